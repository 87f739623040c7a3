"""Bytes that each memory level of this CPU serves to a kernel, by the site that asks for them.

They are estimated from the lowered program and the sizes of the caches
(`compiler/device/host/processor.py`); no hardware counter is read and nothing is run or timed:

- a tensor comes once from the innermost level that holds all tensors of the kernel together, since
  a call before this one may have left them there;
- what a block, or one shortly before it, has accessed comes from a core's caches while they still
  have it (`cpu_reuse.py`); what else is accessed again from the innermost level that holds that
  tensor alone;
- private caches hold as much as the threads have together; of data about as large as a cache it
  serves part;
- every load and store passes through L1, those of tiles too; those that have to come back from
  behind it are the time model's (`cpu_reuse.py`).

Bytes are those of elements, not of the cache lines around them, and caches with few ways, hardware
prefetch and other programs are left out.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping

from tileworkbench.bench.ceiling_samples import working_sets
from tileworkbench.bench.ceilings import LEVELS
from tileworkbench.bench.cpu_block import GridWork
from tileworkbench.bench.cpu_terms import bytes_of
from tileworkbench.bench.cpu_work import grids
from tileworkbench.bench.memory_rates import SHARED_KEPT
from tileworkbench.compiler.device.host import processor
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.ir.program import Program

# Up to this many times its size, a cache still serves part of data that is walked again and again.
_PARTLY_CACHED = 2
# Parts of a cache that data may fill and still be served, all of them and any of them.
_ALL_KEPT, _NOTHING_KEPT = 0.75, 1.0

LevelBytes = dict[str, float]
"""Bytes that come from a level or from behind it, innermost first."""


@dataclass(frozen=True, slots=True)
class Served:
    """Bytes of a tensor that a memory level serves to a site; `again` for those moved before, and
    `times` says how often the whole tensor is moved.
    """

    site: int
    buffer: Buffer
    level: str
    bytes_: float
    again: bool
    times: float


def host_levels(threads: int) -> tuple[str, ...]:
    """The levels of this machine that have a ceiling, measured or not, innermost first."""
    known = working_sets(processor.cache_sizes(), threads)
    return tuple(level for level in LEVELS if level in known)


def holding_level(bytes_: float, threads: int, levels: Collection[str]) -> str:
    """The innermost of `levels` that holds `bytes_` bytes of `threads` threads' data.

    Private caches count once per thread. Data somewhat larger than a cache belong to it still: part
    of them stays there, so the roof of the next level would not hold.
    """
    caches = processor.cache_sizes()
    sizes = {"L1": caches.l1 * threads, "L2": caches.l2 * threads, "L3": caches.l3}
    for level, size in sizes.items():
        if bytes_ <= _PARTLY_CACHED * size and level in levels:
            return level
    return "DRAM"


def holding_shares(
    bytes_: float, threads: int, levels: Collection[str], kept_part: float = SHARED_KEPT
) -> dict[str, float]:
    """Which part of `bytes_` bytes that are walked again and again comes from which level.

    What no longer fits beside other data is given up before it is used again: a core's cache serves
    all of data that leave a quarter of it, the last cache, which others use too, all of data that
    take `kept_part` of it, and both nothing of data as large as themselves.
    """
    caches, shares, rest = processor.cache_sizes(), dict[str, float](), 1.0
    sizes = {"L1": caches.l1 * threads, "L2": caches.l2 * threads, "L3": caches.l3}
    for level, size in sizes.items():
        if level in levels and size:
            part = bytes_ / size
            if level == "L3":
                held = math.log(max(part, kept_part)) / math.log(kept_part)
            else:
                held = (_NOTHING_KEPT - part) / (_NOTHING_KEPT - _ALL_KEPT)
            held = min(max(held, 0.0), 1.0)
            if held * rest > 0:
                shares[level] = held * rest
            rest *= 1 - held
    return {**shares, "DRAM": rest} if rest > 0 else shares


def site_traffic(lowered: Program, threads: int) -> dict[int, LevelBytes]:
    """Bytes of a call by site and level, for a program of stage CPU without symbols that at most
    `threads` threads run.
    """
    works = tuple(grids(lowered))
    moved, far = moved_by(works)
    passed: dict[int, float] = {}
    for grid in works:
        for site, bytes_ in grid.block.accessed.items():
            passed[site] = passed.get(site, 0.0) + bytes_ * grid.blocks
    levels = host_levels(threads)
    behind: dict[int, LevelBytes] = {site: {"L1": bytes_} for site, bytes_ in passed.items()}
    for each in serve(moved, far, workers(works, threads), levels):
        passing = behind[each.site]
        for level in levels[1 : levels.index(each.level) + 1]:
            passing[level] = passing.get(level, 0.0) + each.bytes_
    return behind


def total_traffic(sites: Mapping[int, LevelBytes]) -> LevelBytes:
    """The sum over all sites."""
    by_level: LevelBytes = {}
    for level in LEVELS:
        total = sum(each.get(level, 0.0) for each in sites.values())
        if total:
            by_level[level] = total
    return by_level


def workers(works: Collection[GridWork], threads: int) -> int:
    """The most threads that have a block of a launch."""
    return max((min(threads, grid.blocks) for grid in works), default=1)


Moved = dict[tuple[int, Buffer], float]
"""Bytes by site and tensor."""


def moved_by(works: Collection[GridWork]) -> tuple[Moved, Moved]:
    """What all blocks move from outside of a core's first cache, and of its second."""
    moved, far = Moved(), Moved()
    for grid in works:
        for all_, one in ((moved, grid.block.moved), (far, grid.block.far)):
            for key, bytes_ in one.items():
                all_[key] = all_.get(key, 0.0) + bytes_ * grid.blocks
    return moved, far


def serve(
    moved: Moved,
    far: Moved,
    threads: int,
    levels: Collection[str],
    kept_part: float = SHARED_KEPT,
) -> Iterator[Served]:
    """Which level serves which bytes of `moved`, those of `far` from behind the second cache."""
    totals: dict[Buffer, float] = {}
    for (_, buffer), bytes_ in moved.items():
        totals[buffer] = totals.get(buffer, 0.0) + bytes_
    once = {buffer: min(total, bytes_of(buffer)) for buffer, total in totals.items()}
    home = holding_shares(sum(once.values()), threads, levels, kept_part)
    for (site, buffer), bytes_ in moved.items():
        first = bytes_ * once[buffer] / totals[buffer] if totals[buffer] else 0.0
        again = min(bytes_ - first, max(far[site, buffer] - first, 0.0))
        near = holding_shares(once[buffer], threads, levels, kept_part)
        soon = {"L2": 1.0} if "L2" in levels else near
        parts = (home, first, False), (near, again, True), (soon, bytes_ - first - again, True)
        for shares, part, repeated in parts:
            for level, share in shares.items():
                if part * share > 0:
                    times = totals[buffer] / once[buffer]
                    yield Served(site, buffer, level, part * share, repeated, times)
