"""Accesses that may be out of range get a predicate; a load reads the safe value where it does not
hold.

For global memory that is what the language says. An index of a tile has to be in range, so a guard
there only keeps a wrong kernel from writing over its neighbours; the simulator reports it.

What is provably in range stays as it is. A nest whose guards all hold for most tiles is split:
whole tiles run without guards, only those at the border check each element.

Before::

    for i in T.Parallel(64):
        A_local[i] = A[bx * 64 + i]

After::

    if bx * 64 + 63 < n:
        for i in T.Parallel(64):
            A_local[i] = A[bx * 64 + i]
    else:
        for i in T.Parallel(64):
            A_local[i] = T.load(A[bx * 64 + i], bx * 64 + i < n)
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tileworkbench.compiler.analysis.access import conjuncts, has_loads
from tileworkbench.compiler.analysis.extremes import at_extreme
from tileworkbench.compiler.analysis.linear import Linear
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.ir.build import FALSE, binary, conjunction, const, const_int
from tileworkbench.compiler.ir.expr import Binary, Buffer, Expr, Load, Select, Var
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import (
    Rewriter,
    bound_by,
    statements,
    variables,
    walk,
    with_body,
)
from tileworkbench.compiler.ir.rules import Rules
from tileworkbench.compiler.ir.stmt import Atomic, For, If, Stmt, Store
from tileworkbench.compiler.ir.tile import Parallel

_SPLIT_FROM = 16  # elements; a smaller nest is not worth a second copy
_SPLIT_NODES = 200  # nodes of the body; the second copy of a larger one costs too much code


def guard_accesses(program: Program) -> Program:
    """Add predicates to the accesses that are not known to be in range."""
    return with_body(program, _Guard(program)(program.body))


class _Guard(Rewriter):
    """Guards accesses; nests are split on the way."""

    def __init__(self, program: Program) -> None:
        stores = dict.fromkeys((Store, Atomic), (self.guard_store,))
        super().__init__(Rules({Load: (self.guard_load,)}), Rules(stores))
        self.ranges = Ranges(program)
        self.safe = dict(program.safe_values)
        self.conditions: dict[tuple[Expr, Expr], list[Expr]] = {}
        self.in_nest = False

    def __call__(self, root: Any) -> Any:
        if self.in_nest or not isinstance(root, Parallel):
            return super().__call__(root)
        self.in_nest = True
        guarded = super().__call__(root)
        if self._log is None:
            made = self.split_nest(root, guarded)
        else:
            with self._log.aside():
                made = self.split_nest(root, guarded)
            if made is not guarded:
                self._log.note(self.split_nest, guarded, made, root)
        self.in_nest = False
        return made

    def split_nest(self, stmt: Parallel, guarded: Parallel) -> Stmt:
        """A nest whose guards hold for whole tiles is there twice, for those without guards."""
        if guarded is stmt or not _is_worth_splitting(stmt):
            return guarded
        added = self.added_conditions(stmt.body)
        lifted = [self.lift(cond, stmt) for cond in added]
        outside = [cond for cond in lifted if cond is not None]
        if not outside:
            return guarded
        whole = conjunction(list(dict.fromkeys(outside)))
        if whole is None:
            return guarded
        known = {cond for cond, moved in zip(added, lifted, strict=True) if moved is not None}
        return If(whole, _without(guarded, known), guarded, site=stmt.site)

    def added_conditions(self, body: Stmt) -> list[Expr]:
        """The guards that the accesses in `body` lack, each once."""
        conditions: dict[Expr, None] = {}
        for current in walk(body):
            if isinstance(current, Load | Store | Atomic) and current.indices:
                indices = tuple(self(index) for index in current.indices)
                conditions |= dict.fromkeys(
                    self.missing(current.buffer, indices, current.predicate)
                )
        return list(conditions)

    def lift(self, cond: Expr, stmt: Parallel) -> Expr | None:
        """A condition outside the nest that implies `cond` in all its iterations; None where there
        is none.
        """
        if not isinstance(cond, Binary) or has_loads(cond):
            return None
        boxes: dict[Var, Expr] = dict(zip(stmt.vars, stmt.extents, strict=True))
        for inner in statements(stmt.body):
            if (
                isinstance(inner, For)
                and const_int(inner.start) == 0
                and const_int(inner.step) == 1
            ):
                boxes[inner.var] = inner.stop
        highest, linear = cond.op == "lt", self.ranges.linear(cond.a)
        moved = at_extreme(linear, boxes, highest, cond.a.dtype)
        bound = {var for below in statements(stmt.body) for var in bound_by(below)} - set(boxes)
        if moved is None or any(var in bound or var in boxes for var in variables(moved)):
            return None
        made = binary(cond.op, moved, cond.b)
        if made is FALSE:  # no iterations are without it
            return None
        if self.ranges.fits(cond.a):
            return made
        # The sum may wrap around: between two numbers from 0 on it does not, if they are near.
        span = Linear(tuple((a, abs(factor)) for a, factor in linear.terms if a in boxes), 0)
        reach = self.ranges.linear_bounds(span).high
        if reach is None or reach > cond.a.dtype.max_value:
            return None
        return conjunction([binary("ge", moved, const(0, moved.dtype)), made]) if highest else made

    def guard_load(self, node: Load) -> Load | None:
        """A load that may be outside gets the condition that it is inside."""
        missing = self.missing(node.buffer, node.indices, node.predicate)
        if not missing:
            return None
        predicate = conjunction([*conjuncts(node.predicate), *missing])
        safe = node.safe if node.safe is not None else self.safe.get(node.buffer.name)
        return Load(node.buffer, node.indices, predicate, safe)

    def guard_store(self, stmt: Store | Atomic) -> Stmt | None:
        """A store that may be outside gets the condition that it is inside."""
        missing = self.missing(stmt.buffer, stmt.indices, stmt.predicate)
        if not missing:
            return None
        predicate = conjunction([*conjuncts(stmt.predicate), *missing])
        if isinstance(stmt, Atomic) and stmt.previous is not None and stmt.safe is None:
            return replace(stmt, predicate=predicate, safe=self.safe.get(stmt.buffer.name))
        return replace(stmt, predicate=predicate)

    def missing(
        self, buffer: Buffer, indices: tuple[Expr, ...], predicate: Expr | None
    ) -> list[Expr]:
        """The guards of an access that its predicate does not hold yet."""
        if not indices:  # a scalar is always inside
            return []
        present = conjuncts(predicate)
        return [cond for cond in self.guards(buffer, indices) if cond not in present]

    def guards(self, buffer: Buffer, indices: tuple[Expr, ...]) -> list[Expr]:
        """The conditions under which an element is in range, without those known to hold."""
        conditions: list[Expr] = []
        for index, extent in zip(indices, buffer.shape, strict=True):
            key = (index, extent)
            if key not in self.conditions:
                self.conditions[key] = self.ranges.guards(index, extent)
            conditions += self.conditions[key]
        return list(dict.fromkeys(conditions))


def _is_worth_splitting(stmt: Parallel) -> bool:
    total = 1
    for extent in stmt.extents:
        total *= const_int(extent) or _SPLIT_FROM
    return (
        total >= _SPLIT_FROM
        and sum(1 for _ in zip(walk(stmt.body), range(_SPLIT_NODES), strict=False)) < _SPLIT_NODES
    )


def _without(stmt: Stmt, known: set[Expr]) -> Stmt:
    """`stmt` with the conditions `known` to hold taken out of its predicates and choices."""

    def strip(predicate: Expr | None) -> Expr | None:
        return conjunction([cond for cond in conjuncts(predicate) if cond not in known])

    def change(node: object) -> object:
        if isinstance(node, Load) and node.predicate is not None:
            left = strip(node.predicate)
            return replace(node, predicate=left, safe=node.safe if left is not None else None)
        if isinstance(node, Select) and node.cond in known:
            return node.then
        return node

    def change_store(node: Stmt) -> Stmt:
        if isinstance(node, Store | Atomic) and node.predicate is not None:
            return replace(node, predicate=strip(node.predicate))
        return node

    return Rewriter(change, change_store)(stmt)  # type: ignore[no-any-return]
