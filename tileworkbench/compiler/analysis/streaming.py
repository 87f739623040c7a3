"""Which tensors are so large that they pass through the caches: outputs that need not be kept
there, and inputs that are worth fetching ahead.
"""

from __future__ import annotations

from collections.abc import Iterator

from tileworkbench.compiler.analysis.access import loads
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.analysis.steps import trips
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.expr import Address, AddressOf, Buffer, Load
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import walk

STREAMED_BYTES = 1 << 25
"""From this size on (32 MiB) an output does not survive in a core's share of the last cache."""

FETCHED_BYTES = 1 << 24
"""From this size on (16 MiB) an input is fetched ahead of its use: a smaller one may still lie in
the last cache, where that only costs instructions."""
AHEAD_BYTES = 4096
"""How far ahead: measured, see DECISIONS."""
_LONG_RUN = 2 * AHEAD_BYTES
_DENSE_STEP = 256  # bytes between the vectors of a run


def fetched_loads(program: Program, constant: frozenset[Buffer], ranges: Ranges) -> frozenset[Load]:
    """The vector loads that run through one of the `constant` tensors in long runs of addresses,
    where it is too large to cache."""
    large = {buffer for buffer in constant if _bytes(buffer) >= FETCHED_BYTES}
    if not large:
        return frozenset()
    return frozenset(
        load
        for load, loops in _vector_loads(program.body, ())
        if load.buffer in large and _run_bytes(load, loops, ranges) >= _LONG_RUN
    )


def _vector_loads(
    stmt: st.Stmt, loops: tuple[st.For, ...]
) -> Iterator[tuple[Load, tuple[st.For, ...]]]:
    """The loads of vector loops, with the serial loops around them, the innermost first."""
    if isinstance(stmt, st.For) and stmt.kind is st.LoopKind.VECTORIZED:
        yield from ((load, loops) for load in loads(stmt.body))
        return
    inside = (stmt, *loops) if isinstance(stmt, st.For) else loops
    for child in stmt.children():
        if isinstance(child, st.Stmt):
            yield from _vector_loads(child, inside)


def _run_bytes(load: Load, loops: tuple[st.For, ...], ranges: Ranges) -> int:
    """Bytes that the loops go through without a jump."""
    if len(load.indices) != 1:
        return 0
    linear, size, run = ranges.linear(load.indices[0]), load.buffer.dtype.bytes, 0
    for loop in loops:
        step = linear.coefficient(loop.var)
        if step != run if run else not 0 < step * size <= _DENSE_STEP:
            break
        run = step * trips(loop)
    return run * size


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
