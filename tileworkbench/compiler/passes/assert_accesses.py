"""Run-time checks of tile accesses that are not known to be in range.

Global memory has a rule for what lies outside; an index of a tile has to be inside. Where that is
not known, the kernel stops with an error instead of going on with a value that means nothing.

Before::

    S[n] = x

After::

    T.device_assert(n >= 0 and n < 64, "out of range: 0 of 'S', which has extent 64", n)
    S[n] = x
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tileworkbench.compiler.analysis.access import both, conjuncts
from tileworkbench.compiler.analysis.data_indices import DataAccess
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.diagnostics import OUT_OF_RANGE
from tileworkbench.compiler.ir.build import conjunction, logical, unary
from tileworkbench.compiler.ir.expr import Binary, Buffer, Expr, Load, Ramp, Select
from tileworkbench.compiler.ir.node import Node
from tileworkbench.compiler.ir.printer import print_expr
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import with_body
from tileworkbench.compiler.ir.stmt import (
    Atomic,
    DeviceAssert,
    If,
    Seq,
    Stmt,
    Store,
    While,
    seq,
)

_TILES = ("shared", "local", "local.fragment")


def assert_accesses(program: Program) -> Program:
    """Put a check in front of each access of a tile by an index that may be outside."""
    checks = Checks(Ranges(program))
    return with_body(program, checks.visit(program.body, ()))


class Checks:
    """Puts checks in front of accesses: of tiles where `tiles`, and of `tensors`."""

    def __init__(
        self, ranges: Ranges, tensors: frozenset[DataAccess] = frozenset(), tiles: bool = True
    ) -> None:
        self.ranges, self.tensors, self.tiles = ranges, tensors, tiles

    def visit(self, stmt: Stmt, known: tuple[Expr, ...]) -> Stmt:
        """`stmt` with checks, where the conditions `known` hold."""
        made = self.below(stmt, known)
        checks = list(dict.fromkeys(self.of_statement(stmt, known)))
        if not checks:
            return made
        if isinstance(made, While):
            made = replace(made, body=seq([made.body, *checks]))
        return seq([*checks, made])

    def below(self, stmt: Stmt, known: tuple[Expr, ...]) -> Stmt:
        if isinstance(stmt, If):
            then = self.visit(stmt.then, (*known, *_facts(stmt.cond)))
            orelse = None if stmt.orelse is None else self.visit(stmt.orelse, known)
            if then is stmt.then and orelse is stmt.orelse:
                return stmt
            return replace(stmt, then=then, orelse=orelse)
        if isinstance(stmt, Seq):
            stmts = [self.visit(child, known) for child in stmt.stmts]
            unchanged = all(a is b for a, b in zip(stmts, stmt.stmts, strict=True))
            return stmt if unchanged else seq(stmts)
        made: Stmt = stmt.map_children(
            lambda child: self.visit(child, known) if isinstance(child, Stmt) else child
        )
        return made

    def of_statement(self, stmt: Stmt, known: tuple[Expr, ...]) -> Iterator[Stmt]:
        seen: set[tuple[Node, Expr | None]] = set()
        for child in stmt.children():
            if not isinstance(child, Stmt):
                yield from self.of_part(child, None, known, stmt.site, seen)
        if isinstance(stmt, Store | Atomic):
            yield from self.of_access(
                stmt.buffer, stmt.indices, stmt.predicate, None, known, stmt.site
            )

    def of_part(
        self,
        node: Node,
        path: Expr | None,
        known: tuple[Expr, ...],
        site: int,
        seen: set[tuple[Node, Expr | None]],
    ) -> Iterator[Stmt]:
        """The checks of the loads in an expression that is evaluated where `path` holds."""
        if (node, path) in seen or isinstance(node, Buffer):
            return
        seen.add((node, path))
        lazy: list[tuple[Node, Expr | None]] = [(child, path) for child in node.children()]
        if isinstance(node, Select) and node.lazy:
            lazy[1] = (node.then, both(path, node.cond))
            lazy[2] = (node.other, both(path, unary("not", node.cond)))
        elif isinstance(node, Binary) and node.op in ("logical_and", "logical_or"):
            taken = node.a if node.op == "logical_and" else unary("not", node.a)
            lazy[1] = (node.b, both(path, taken))
        for child, condition in lazy:
            yield from self.of_part(child, condition, known, site, seen)
        if isinstance(node, Load):
            yield from self.of_access(node.buffer, node.indices, node.predicate, path, known, site)

    def of_access(
        self,
        buffer: Buffer,
        indices: tuple[Expr, ...],
        predicate: Expr | None,
        path: Expr | None,
        known: tuple[Expr, ...],
        site: int,
    ) -> Iterator[Stmt]:
        is_tile = self.tiles and buffer.scope in _TILES
        if not is_tile and DataAccess(site, buffer, indices) not in self.tensors:
            return
        given = {*known, *_facts(predicate), *_facts(path)}
        condition = both(path, predicate)
        for d, (index, extent) in enumerate(zip(indices, buffer.shape, strict=True)):
            if isinstance(index, Ramp):
                continue
            lacking = self.ranges.guards(index, extent)
            inside = conjunction([cond for cond in lacking if cond not in given])
            if inside is None:
                continue
            if condition is not None:
                inside = logical("logical_or", unary("not", condition), inside)
            what = f"{OUT_OF_RANGE}{d} of '{buffer.name}', which has extent {print_expr(extent)}"
            yield DeviceAssert(inside, what, index, site=site)


def _facts(cond: Expr | None) -> list[Expr]:
    """What holds where `cond` does; `a & b` of conditions is as good as `a and b`."""
    facts: list[Expr] = []
    for part in conjuncts(cond):
        if isinstance(part, Binary) and part.op == "and" and part.dtype.is_bool:
            facts += [*_facts(part.a), *_facts(part.b)]
        else:
            facts.append(part)
    return facts
