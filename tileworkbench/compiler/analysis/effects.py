"""Which buffers a statement writes."""

from __future__ import annotations

from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir import tile
from tileworkbench.compiler.ir.expr import Buffer


def written(stmt: st.Stmt) -> tuple[Buffer, ...]:
    """The buffers that `stmt` itself stores to, not those of the statements inside it."""
    match stmt:
        case st.Atomic(st.AtomicKind.LOAD):
            return ()
        case st.Store(buffer) | st.Atomic(buffer=buffer):
            return (buffer,)
        case tile.Copy(dst=region) | tile.Fill(dst=region) | tile.Scan(dst=region):
            return (region.buffer,)
        case tile.Gemm(c=region):
            return (region.buffer,)
        case tile.Reduce(dst=buffer):
            return (buffer,)
        case tile.Pack(dst=address) | tile.MicroGemm(c=address):
            return (address.buffer,)
    return ()
