"""Accesses of tensors whose index comes from data: from the contents of a tensor, not from loop
variables and arguments alone.

Such an index may be anything. An access is guarded where the kernel asks whether the index is
inside: with an `if`, a conditional expression, a safe value, or a copy of a region, which is cut at
the borders. Where nothing guards it, the author probably took the index to be inside.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from tileworkbench.compiler.analysis.effects import owners, written
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir import tile
from tileworkbench.compiler.ir.expr import Binary, Buffer, Expr, Load, Region, Select, Var
from tileworkbench.compiler.ir.node import Node
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import bound_by, statements

Atoms = frozenset[Node]


@dataclass(frozen=True, slots=True)
class DataAccess:
    """An access of an element of a tensor, at a statement, by an index that comes from data."""

    site: int
    buffer: Buffer
    indices: tuple[Expr, ...]


def unguarded_accesses(program: Program) -> frozenset[DataAccess]:
    """The accesses of `program`, as the front end made it, whose index comes from data and which
    nothing in the kernel guards.
    """
    accesses = _Accesses(DataFlow(program), {name for name, _ in program.safe_values})
    accesses.visit(program.body, ())
    return frozenset(accesses.unguarded)


class DataFlow:
    """What depends on the contents of tensors."""

    def __init__(self, program: Program) -> None:
        self._owners = owners(program.body)
        self._named: dict[Var, tuple[Expr, ...]] = {}
        self._bounds: dict[Var, tuple[Expr, ...]] = {}
        self._data: set[Node] = set()
        self._atoms: dict[tuple[Expr, bool], Atoms] = {}
        body = list(statements(program.body))
        for stmt in body:
            match stmt:
                case st.Let(var, value):
                    self._named[var] = (value,)
                case st.For(var, start, stop) | tile.Pipelined(var, start, stop):
                    self._bounds[var] = (start, stop)
                case tile.Parallel(variables, extents):
                    self._bounds |= {v: (e,) for v, e in zip(variables, extents, strict=True)}
        before = -1
        while before != len(self._data):
            before = len(self._data)
            for stmt in body:
                self._spread(stmt)

    def is_data(self, value: Expr) -> bool:
        """Whether `value` depends on what a tensor holds."""
        return any(
            node in self._data or (isinstance(node, Load) and self._holds_data(node.buffer))
            for node in _nodes(value)
        )

    def atoms(self, value: Expr, bounds: bool = True) -> Atoms:
        """The variables and loads that `value` is made of, through the names of expressions and,
        where `bounds`, the bounds of loops.
        """
        known = self._atoms.get((value, bounds))
        if known is None:
            parts: set[Node] = set()
            for part in _nodes(value):
                if isinstance(part, Var | Load):
                    parts.add(part)
                if isinstance(part, Var):
                    inner = self._named.get(part) or (self._bounds.get(part) if bounds else None)
                    parts = parts.union(*(self.atoms(each, bounds) for each in inner or ()))
            known = self._atoms[value, bounds] = frozenset(parts)
        return known

    def _holds_data(self, buffer: Buffer) -> bool:
        return buffer.scope == "global" or self._owners.get(buffer, buffer) in self._data

    def _spread(self, stmt: st.Stmt) -> None:
        """What `stmt` binds or writes depends on data where one of its operands does."""
        if any(self._is_data_operand(child) for child in stmt.children()):
            self._data.update(bound_by(stmt))
            self._data.update(self._owners.get(buffer, buffer) for buffer in written(stmt))

    def _is_data_operand(self, child: Node) -> bool:
        if isinstance(child, Expr):
            return self.is_data(child)
        if isinstance(child, Region):
            return self._holds_data(child.buffer)
        return isinstance(child, Buffer) and self._holds_data(child)


@dataclass(slots=True)
class _Accesses:
    flow: DataFlow
    safe: set[str]
    unguarded: list[DataAccess] = field(default_factory=list)

    def visit(self, stmt: st.Stmt, guards: tuple[Expr, ...]) -> None:
        """Collect what is below `stmt`, which is executed where all of `guards` decide."""
        for child in stmt.children():
            if isinstance(child, Expr):
                self.expression(child, stmt.site, guards)
        if isinstance(stmt, st.Store | st.Atomic):
            here = guards if stmt.predicate is None else (*guards, stmt.predicate)
            self.access(stmt.buffer, stmt.indices, stmt.site, here)
        if isinstance(stmt, st.If | st.While):
            guards = (*guards, stmt.cond)
        for child in stmt.children():
            if isinstance(child, st.Stmt):
                self.visit(child, guards)

    def expression(self, value: Expr, site: int, guards: tuple[Expr, ...]) -> None:
        for part, conditions in _parts(value, guards):
            if isinstance(part, Load):
                here = conditions if part.predicate is None else (*conditions, part.predicate)
                self.access(part.buffer, part.indices, site, here)

    def access(
        self, buffer: Buffer, indices: tuple[Expr, ...], site: int, guards: tuple[Expr, ...]
    ) -> None:
        if buffer.scope != "global" or buffer.name in self.safe:
            return
        atoms = frozenset[Node]().union(*(self.flow.atoms(index) for index in indices))
        guarded = any(self.flow.atoms(guard) & atoms for guard in guards)
        if not guarded and any(self.flow.is_data(index) for index in indices):
            self.unguarded.append(DataAccess(site, buffer, indices))


def _nodes(value: Expr) -> Iterator[Node]:
    """The nodes of an expression, without the shapes of what it loads from."""
    return (node for node, _ in _parts(value, ()))


def _parts(value: Expr, guards: tuple[Expr, ...]) -> Iterator[tuple[Node, tuple[Expr, ...]]]:
    """The nodes of an expression, each with the conditions that it is evaluated under."""
    stack: list[tuple[Node, tuple[Expr, ...]]] = [(value, guards)]
    seen: set[tuple[Node, tuple[Expr, ...]]] = set()
    while stack:
        node, conditions = stack.pop()
        if (node, conditions) in seen or isinstance(node, Buffer):
            continue
        seen.add((node, conditions))
        yield node, conditions
        match node:
            case Select(cond, then, other) if node.lazy:
                inner = (*conditions, cond)
                stack += [(cond, conditions), (then, inner), (other, inner)]
            case Binary("logical_and" | "logical_or", a, b):
                stack += [(a, conditions), (b, (*conditions, a))]
            case _:
                stack += [(child, conditions) for child in node.children()]
