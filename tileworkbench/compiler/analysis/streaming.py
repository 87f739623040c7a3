"""Which outputs are so large that caching them does nothing but push out other data."""

from __future__ import annotations

from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.expr import Address, AddressOf, Buffer, Load
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import walk

STREAMED_BYTES = 1 << 25
"""From this size on (32 MiB) an output does not survive in a core's share of the last cache."""


def streamed_buffers(program: Program) -> frozenset[Buffer]:
    """The tensors that are only stored to, and too large to cache.

    Those that the call allocates are not among them: the system has just zeroed their pages, so
    they are in the cache.
    """
    stored: set[Buffer] = set()
    others = {param.value for param in program.params if param.output}
    for found in walk(program.body):
        if isinstance(found, st.Store):
            stored.add(found.buffer)
        elif isinstance(found, Load | Address | AddressOf | st.Atomic):
            others.add(found.buffer)
        elif isinstance(found, st.Alias):
            others |= {found.buffer, found.source}
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
