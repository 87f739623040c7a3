"""Which buffers a statement reads and writes."""

from __future__ import annotations

from collections.abc import Mapping

from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir import tile
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.ir.node import Node
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import buffers_of, statements

Uses = Mapping[Buffer, tuple[st.Stmt, ...]]
"""Every buffer with the statements that name it, in program order."""


def written(stmt: st.Stmt) -> tuple[Buffer, ...]:
    """The buffers that `stmt` itself stores to, not those of the statements inside it."""
    match stmt:
        case st.Store(buffer):
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


def mentioned(stmt: st.Stmt) -> tuple[Buffer, ...]:
    """The buffers that `stmt` itself names, read or written."""
    found: dict[Buffer, None] = {}
    for child in stmt.children():
        if not isinstance(child, st.Stmt):
            found |= dict.fromkeys(_buffers(child))
    return tuple(found)


def _buffers(node: Node) -> list[Buffer]:
    return [node] if isinstance(node, Buffer) else buffers_of(node)


def uses_of(program: Program) -> Uses:
    """Every buffer with the statements that name it, in program order; parameters included."""
    found: dict[Buffer, list[st.Stmt]] = {}
    for param in program.params:
        if isinstance(param.value, Buffer):
            found[param.value] = []
    for stmt in statements(program.body):
        for buffer in mentioned(stmt):
            found.setdefault(buffer, []).append(stmt)
    return {buffer: tuple(users) for buffer, users in found.items()}
