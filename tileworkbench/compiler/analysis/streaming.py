"""Which tensors are so large that they pass through the caches: outputs that need not be kept
there, and inputs that are worth fetching ahead.

The processor fetches ahead by itself, but only within a page. So loads that go through a large
tensor in long runs are fetched over the ends of pages, and loads that jump to the next row after a
short run some rows before.
"""

from __future__ import annotations

from collections.abc import Iterator

from tileworkbench.compiler.analysis.access import loads
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.analysis.steps import trips
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.expr import Address, AddressOf, Buffer, Load
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import walk

STREAMED_BYTES = 1 << 25
"""From this size on (32 MiB) an output does not survive in a core's share of the last cache."""

FETCHED_BYTES = 3 << 23
"""From this size on (24 MiB) an input is fetched ahead of its use: a smaller one may still lie in
the last cache, where that only costs instructions."""
ROWS_BYTES = 1 << 24
"""From this size on (16 MiB) rows are, which the last cache too serves slowly."""
# How far ahead, all inputs together: measured, see DECISIONS. The second is that of rows which go
# to the first cache.
_AHEAD_BYTES, _NEAR_BYTES = 8192, 4096
_LONG_RUN = 8192
_DENSE_STEP = 256  # bytes between the vectors of a run

_SHORT_RUN = 4096  # a page: of longer runs the processor foresees most
_LEAST_PITCH = 2048  # of rows; nearer ones it foresees as well
_LEAST_ROWS = 16  # of which a quarter may be ahead
_LINE_BYTES = 64


@dataclass(frozen=True, slots=True)
class Ahead:
    """That a load is fetched so many bytes before its use, into the first cache or the second."""

    bytes_: int
    cache: int = 2


def rows_ahead(near_rows: bool) -> Ahead:
    """How rows are fetched, all inputs together: into the second cache, or into the first where a
    processor has them sooner there.
    """
    return Ahead(_NEAR_BYTES, 1) if near_rows else Ahead(_AHEAD_BYTES)


def fetched_loads(
    program: Program, constant: frozenset[Buffer], ranges: Ranges, near_rows: bool = False
) -> dict[Load, Ahead]:
    """The vector loads of large `constant` tensors that are fetched ahead: those that go through
    it in long runs of addresses, or down its rows (`rows_ahead`).
    """
    sizes = {buffer: _bytes(buffer) for buffer in constant}
    if max(sizes.values(), default=0) < ROWS_BYTES:
        return {}
    rows: dict[Load, _Rows | None] = {}
    for load, lanes, loops in _vector_loads(program.body, ()):
        size = sizes.get(load.buffer, 0)
        if size < ROWS_BYTES or len(load.indices) != 1:
            continue
        if _run_bytes(load, loops, ranges) >= _LONG_RUN:
            if size >= FETCHED_BYTES:
                rows[load] = None
        elif (down := _rows(load, (lanes, *loops), ranges)) is not None:
            rows[load] = down
    tensors = max(len({load.buffer for load in rows}), 1)
    in_a_row, of_rows = Ahead(_AHEAD_BYTES // tensors), rows_ahead(near_rows)
    return {
        load: in_a_row
        if down is None
        else Ahead(down.ahead(of_rows.bytes_ // tensors), of_rows.cache)
        for load, down in rows.items()
    }


def _vector_loads(
    stmt: st.Stmt, loops: tuple[st.For, ...]
) -> Iterator[tuple[Load, st.For, tuple[st.For, ...]]]:
    """The loads of vector loops, with these and the serial loops around them, the innermost
    first.
    """
    if isinstance(stmt, st.For) and stmt.kind is st.LoopKind.VECTORIZED:
        yield from ((load, stmt, loops) for load in loads(stmt.body))
        return
    inside = (stmt, *loops) if isinstance(stmt, st.For) else loops
    for child in stmt.children():
        if isinstance(child, st.Stmt):
            yield from _vector_loads(child, inside)


def _run_bytes(load: Load, loops: tuple[st.For, ...], ranges: Ranges) -> int:
    """Bytes that the loops go through without a jump."""
    linear, size, run = ranges.linear(load.indices[0]), load.buffer.dtype.bytes, 0
    for loop in loops:
        step = linear.coefficient(loop.var)
        if step != run if run else not 0 < step * size <= _DENSE_STEP:
            break
        run = step * trips(loop)
    return run * size


@dataclass(frozen=True, slots=True)
class _Rows:
    """So many rows of `run` bytes, each `pitch` bytes after the one before."""

    run: int
    pitch: int
    count: int

    @property
    def are_apart(self) -> bool:
        """Whether there are many, and the processor does not foresee the next one."""
        is_far = self.pitch >= max(_LEAST_PITCH, 2 * self.run)
        return is_far and self.run <= _SHORT_RUN and self.count >= _LEAST_ROWS

    def ahead(self, bytes_: int) -> int:
        """The distance of the row before which `bytes_` bytes of rows lie."""
        rows = bytes_ // max(self.run, _LINE_BYTES)
        return min(max(rows, 1), self.count // 4) * self.pitch


def _rows(load: Load, loops: tuple[st.For, ...], ranges: Ranges) -> _Rows | None:
    """The rows that the loops go down, None where they are not apart."""
    if load.buffer.dtype.is_packed:
        return None
    linear, size = ranges.linear(load.indices[0]), load.buffer.dtype.bytes
    run, pitch, count = 1, 0, 1
    for loop in loops:
        step, times = linear.coefficient(loop.var), trips(loop)
        if loop.kind is st.LoopKind.BLOCKS:
            break
        if times == 1:
            continue
        if not pitch and step == run:
            run *= times
        elif step == pitch * count if pitch else step > run:
            pitch, count = pitch or step, count * times
        elif not 0 < step < pitch:  # else further on in the same rows
            break
    rows = _Rows(run * size, pitch * size, count)
    return rows if rows.are_apart else None


def streamed_buffers(program: Program) -> frozenset[Buffer]:
    """The tensors that are only stored to, and too large to cache.

    Those that the call allocates are not among them: the system has just zeroed their pages, so
    they are in the cache.
    """
    stored: set[Buffer] = set()
    others = {param.value for param in program.params if param.output}
    for node in walk(program.body):
        if isinstance(node, st.Store):
            stored.add(node.buffer)
        elif isinstance(node, Load | Address | AddressOf | st.Atomic):
            others.add(node.buffer)
        elif isinstance(node, st.Alias):
            others |= {node.buffer, node.source}
    return frozenset(
        buffer
        for buffer in stored - others
        if buffer.scope == "global"
        and not buffer.dtype.is_packed
        and _bytes(buffer) >= STREAMED_BYTES
    )


def _bytes(buffer: Buffer) -> int:
    size = buffer.dtype.bytes
    for extent in buffer.shape:
        size *= const_int(extent) or 0
    return size
