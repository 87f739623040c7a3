"""Memory of another block of a cluster, where its blocks are roles of one: a buffer that is known,
or one of several that the rank chooses.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tileworkbench.compiler.analysis.names import Names
from tileworkbench.compiler.ir import simt
from tileworkbench.compiler.ir.build import binary, const, const_int, logical, select
from tileworkbench.compiler.ir.expr import Buffer, Expr, Load
from tileworkbench.compiler.ir.rewrite import Rewriter, buffers_of
from tileworkbench.compiler.ir.stmt import DeviceAssert, If, Let, Seq, Stmt, seq


class PeerResolver:
    """Puts the memory of other roles in the place of peers; `ranks` says for the memory of a block
    what each block of the cluster has instead.
    """

    def __init__(self, ranks: dict[Buffer, tuple[Buffer, ...]], names: Names) -> None:
        self.ranks = ranks
        self.names = names
        self.known: dict[Buffer, Buffer] = {}
        self.chosen: dict[Buffer, tuple[Expr, tuple[Buffer, ...]]] = {}

    def visit(self, stmt: Stmt) -> Stmt:
        """`stmt` without peers."""
        if isinstance(stmt, simt.Peer):
            return self.declare(stmt)
        made: Any = stmt.map_children(
            lambda child: self.visit(child) if isinstance(child, Stmt) else self.operand(child)
        )
        if isinstance(stmt, Seq):
            return seq(made.stmts)
        used = [buffer for child in _operands(made) for buffer in buffers_of(child)]
        for buffer in used:
            if buffer in self.chosen:
                return self.by_rank(made, buffer)
        return made  # type: ignore[no-any-return]

    def declare(self, stmt: simt.Peer) -> Stmt:
        """Remember what the peer stands for: one buffer, or one of several by its rank."""
        buffers, rank = self.ranks[stmt.source], const_int(stmt.rank)
        if rank is not None and 0 <= rank < len(buffers):
            self.known[stmt.buffer] = buffers[rank]
            return Seq(())
        var = self.names.var("rank", stmt.rank.dtype)
        self.chosen[stmt.buffer] = (var, buffers)
        first, end = (const(at, var.dtype) for at in (0, len(buffers)))
        exists = logical("logical_and", binary("le", first, var), binary("lt", var, end))
        message = f"the cluster of {len(buffers)} blocks has no block of that rank"
        checked = DeviceAssert(exists, message, site=stmt.site)
        return Seq((Let(var, stmt.rank, site=stmt.site), checked))

    def operand(self, child: Any) -> Any:
        """An operand with the buffers that are known; loads of others select one."""

        def change(node: object) -> object:
            if isinstance(node, Buffer):
                return self.known.get(node, node)
            if isinstance(node, Load) and node.buffer in self.chosen:
                rank, buffers = self.chosen[node.buffer]
                value: Expr = replace(node, buffer=buffers[-1])
                for number, buffer in reversed(list(enumerate(buffers[:-1]))):
                    is_it = binary("eq", rank, const(number, rank.dtype))
                    value = select(is_it, replace(node, buffer=buffer), value)
                return value
            return node

        return Rewriter(change)(child)

    def by_rank(self, stmt: Stmt, buffer: Buffer) -> Stmt:
        """A statement on the memory of a block that is known when it is executed."""
        rank, buffers = self.chosen[buffer]
        made: Stmt | None = None
        for number, own in reversed(list(enumerate(buffers))):

            def change(node: object, own: Buffer = own) -> object:
                return own if node is buffer else node

            one = self.visit(Rewriter(change)(stmt))
            is_it = binary("eq", rank, const(number, rank.dtype))
            made = If(is_it, one, made, site=stmt.site)
        assert made is not None  # a cluster has blocks
        return made


def _operands(stmt: Stmt) -> Iterator[Any]:
    return (child for child in stmt.children() if not isinstance(child, Stmt))
