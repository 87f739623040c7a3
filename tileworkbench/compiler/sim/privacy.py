"""Which thread-private memory each iteration of a parallel loop has to itself."""

from __future__ import annotations

from collections.abc import Iterator

from tileworkbench.compiler.ir.expr import Buffer, Expr, Load, Var
from tileworkbench.compiler.ir.rewrite import walk
from tileworkbench.compiler.ir.stmt import Alloc, Let, Stmt, Store
from tileworkbench.compiler.ir.tile import Parallel


def stores_of(body: Stmt) -> Iterator[Store]:
    """The stores below `body`."""
    for node in walk(body):
        if isinstance(node, Store):
            yield node


def private_buffers(loop: Parallel) -> list[Buffer]:
    """The thread-private buffers from outside that the body writes, in the order of the stores.

    One that is indexed by the loop's own variables is no thread's scratch but a tile that a pass
    made thread-private as a whole: its iterations share it.
    """
    inner = {node.buffer for node in walk(loop.body) if isinstance(node, Alloc)}
    written = dict.fromkeys(node.buffer for node in stores_of(loop.body))
    varying = _varying(loop)
    tiles = {
        access.buffer
        for access in walk(loop.body)
        if isinstance(access, Load | Store)
        and any(_reads(index, varying) for index in access.indices)
    }
    return [
        buffer
        for buffer in written
        if buffer.scope in ("local", "local.var") and buffer not in inner and buffer not in tiles
    ]


def _varying(loop: Parallel) -> set[Var]:
    """The loop's variables and the names computed from them."""
    varying = set(loop.vars)
    for stmt in walk(loop.body):
        if isinstance(stmt, Let) and _reads(stmt.value, varying):
            varying.add(stmt.var)
    return varying


def _reads(value: Expr, names: set[Var]) -> bool:
    return any(isinstance(part, Var) and part in names for part in walk(value))
