"""Rows of tensors that lie in pages apart from each other, and what reading them so costs.

The processor fetches ahead within a page, for as many rows as it can tell apart. A block whose tile
is narrower than the tensor walks rows of other pages; whether they are there in time depends on
what comes next:

- where the next iteration or the next block goes on in the same rows, they are fetched ahead, and
  stay until they are used as long as the innermost cache has room for what is ahead of all rows;
- where it does not, each row begins anew: a run of lines at its own rate (`memory_rates.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from tileworkbench.bench.cpu_block import GridWork
from tileworkbench.bench.cpu_reuse import kept
from tileworkbench.bench.cpu_terms import shift
from tileworkbench.bench.memory_rates import LINE_BYTES, PAGE_BYTES, MemoryRates
from tileworkbench.compiler.device.host.processor import CacheSizes
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.expr import Buffer

# Bytes that the processor, and a kernel that fetches ahead itself, are ahead of each row.
_AHEAD, _FETCHED_AHEAD = 1024, PAGE_BYTES


@dataclass(frozen=True, slots=True)
class Rows:
    """What a block accesses of a tensor: `count` rows in pages apart, `run` bytes of each at a time
    and `whole` in all; `goes_on` says whether the next iteration or block goes on in them.
    """

    count: int
    run: float
    whole: float
    goes_on: bool


def rows_of(grid: GridWork) -> dict[Buffer, Rows]:
    """The rows that a block of a grid accesses of each tensor whose elements are in a row."""
    reused = next(iter(grid.reused.values()))
    by_tensor: dict[Buffer, Rows] = {}
    for buffer, (index, extent) in reused.whole.extents.items():
        if buffer.scope != "global":
            continue
        size = buffer.dtype.bytes
        strides = {stride * size: trips for stride, trips in extent.places.items()}
        run = extent.run * size
        near = {stride: trips for stride, trips in strides.items() if stride < PAGE_BYTES}
        count = math.prod(trips for stride, trips in strides.items() if stride >= PAGE_BYTES)
        by = shift(index, grid.loop.var, reused.env, 1, reused.reuse.lets) or 0
        goes_on = 0 < abs(by) * size <= run or any(0 < stride <= run for stride in near)
        by_tensor[buffer] = Rows(count, run, run * math.prod(near.values()), goes_on)
    return by_tensor


def streams(rows: Iterable[Rows], fetches_ahead: bool) -> float:
    """Bytes that lie ahead of all rows of a block together."""
    ahead = _FETCHED_AHEAD if fetches_ahead else _AHEAD
    return float(ahead * sum(each.count for each in rows))


def rows_ns(
    rows: Rows,
    bytes_: float,
    straight_ns: float,
    rates: MemoryRates,
    level: str,
    stored: bool,
    ahead: float,
    caches: CacheSizes,
) -> float:
    """Nanoseconds of `bytes_` of a tensor from `level`, which would take `straight_ns` in a row,
    where `ahead` bytes lie ahead of all rows.
    """
    if rows.count <= 1 or (not rows.goes_on and rows.whole >= PAGE_BYTES):
        return straight_ns
    lines = max(rows.run / LINE_BYTES, 1.0)
    # Where rows go on, a line that was begun is still there.
    runs = bytes_ / (max(rows.run, LINE_BYTES) if rows.goes_on else rows.run)
    alone_ns = max(straight_ns, runs * rates.run_ns(level, stored, lines))
    if not rows.goes_on:
        return alone_ns
    lost, gone = (1 - kept(ahead, size) for size in (caches.l1, caches.l2))
    again_ns = straight_ns + lost * runs * rates.run_ns("L2", stored, lines)
    return (1 - gone) * again_ns + gone * alone_ns
