"""The body of a vector loop: lets and stores only, with conditions as predicates.

A vector loop executes each statement for all lanes before the next one, and both sides of a
condition. So a branch becomes a predicate on its stores, and a load that the branch protected gets
the predicate as well.
"""

from __future__ import annotations

from dataclasses import replace

from tileworkbench.compiler.analysis.access import both, conjuncts, depends_on, has_loads
from tileworkbench.compiler.analysis.extremes import to_expr
from tileworkbench.compiler.analysis.linear import Linear, combine
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.ir.build import conjunction, const, const_int, int_const, logical, unary
from tileworkbench.compiler.ir.expr import Binary, Const, Expr, Load, Select, Var
from tileworkbench.compiler.ir.rewrite import substitute, walk
from tileworkbench.compiler.ir.stmt import (
    DeviceAssert,
    For,
    If,
    Let,
    LoopKind,
    Seq,
    Stmt,
    Store,
    seq,
)
from tileworkbench.compiler.ir.types import BOOL
from tileworkbench.compiler.lower.vectors.context import Context

_DIVISIONS = ("floordiv", "floormod", "truncdiv", "truncmod")


class NotLanesError(Exception):
    """The body cannot be executed in lock step; never reaches users."""


def run_in_lanes(body: Stmt, lane: Var, lanes: int, site: int, context: Context) -> Stmt:
    """`body` for `lane` = 0 .. `lanes` - 1 as vector loops; serial loops and uniform branches of
    the body go outside them.

    Raises `NotLanesError` for bodies that cannot be executed in lock step.
    """
    return _Writer(lane, lanes, site, context).block(body)


class _Writer:
    def __init__(self, lane: Var, lanes: int, site: int, context: Context) -> None:
        self.lane = lane
        self.lanes = lanes
        self.site = site
        self.context = context
        self.varying = {lane}

    def block(self, body: Stmt) -> Stmt:
        """A body as vector loops, cut where a serial loop or a uniform branch stands."""
        stmts = list(body.stmts) if isinstance(body, Seq) else [body]
        if any(
            isinstance(stmt, For) or (isinstance(stmt, If) and self.is_uniform(stmt.cond))
            for stmt in stmts
        ):
            stmts = _inline_lets(stmts)
        done: list[Stmt] = []
        run: list[Stmt] = []
        for stmt in stmts:
            if isinstance(stmt, For) and self.is_uniform(stmt.start) and self.is_uniform(stmt.stop):
                self.flush(run, done)
                done.append(replace(stmt, body=self.block(stmt.body)))
            elif isinstance(stmt, If) and self.is_uniform(stmt.cond):
                self.flush(run, done)
                orelse = None if stmt.orelse is None else self.block(stmt.orelse)
                done.append(replace(stmt, then=self.block(stmt.then), orelse=orelse))
            else:
                self.flatten(stmt, [], run)
        self.flush(run, done)
        return seq(done)

    def is_uniform(self, value: Expr) -> bool:
        return not depends_on(value, frozenset(self.varying))

    def flatten(self, stmt: Stmt, conditions: list[Expr], run: list[Stmt]) -> None:
        """Append `stmt` to the run, under `conditions`."""
        guard = conjunction(conditions)
        match stmt:
            case Seq(stmts):
                for child in stmts:
                    self.flatten(child, conditions, run)
            case Let(var, value):
                run.append(replace(stmt, value=self.eager(value, guard)))
                if not self.is_uniform(value):
                    self.varying.add(var)
            case Store(_, indices, value, predicate):
                joined = conjunction(
                    [*conditions, *(self.eager(operand, guard) for operand in conjuncts(predicate))]
                )
                index = tuple(self.eager(operand, guard) for operand in indices)
                run.append(
                    replace(stmt, indices=index, value=self.eager(value, guard), predicate=joined)
                )
            case DeviceAssert(cond, _, value):
                held = self.eager(cond, guard)
                if guard is not None:
                    held = logical("logical_or", unary("not", guard), held)
                shown = None if value is None else self.eager(value, guard)
                run.append(replace(stmt, cond=held, value=shown))
            case If(cond, then, orelse):
                cond = self.name_condition(self.eager(cond, guard), run)
                self.flatten(then, [*conditions, *conjuncts(cond)], run)
                if orelse is not None:
                    self.flatten(orelse, [*conditions, unary("not", cond)], run)
            case _:
                raise NotLanesError

    def name_condition(self, cond: Expr, run: list[Stmt]) -> Expr:
        """`cond` itself, or a name for its value now when stores that follow could change what it
        reads.
        """
        if not has_loads(cond):
            return cond
        var = self.context.names.var("taken", BOOL)
        run.append(Let(var, cond, site=self.site))
        self.varying.add(var)
        return var

    def eager(self, value: Expr, guard: Expr | None) -> Expr:
        """`value` safe to evaluate in all lanes, also where `guard` or a lazy condition inside does
        not hold.

        Raises `NotLanesError` for a division that only the condition keeps from dividing by zero.
        """
        if not _has_hazards(value, guard is not None):
            return value
        return self.protect(value, guard)

    def protect(self, value: Expr, guard: Expr | None) -> Expr:
        if (
            isinstance(value, Binary)
            and value.op in _DIVISIONS
            and guard is not None
            and not const_int(value.b)
        ):
            raise NotLanesError
        if isinstance(value, Load):
            made = value.map_children(
                lambda child: self.protect(child, guard) if isinstance(child, Expr) else child
            )
            if guard is None or _is_inside(made, self.context.ranges):
                return made
            return replace(made, predicate=both(guard, made.predicate))
        if isinstance(value, Select) and value.lazy:
            cond = self.protect(value.cond, guard)
            then = self.protect(value.then, both(guard, cond))
            other = self.protect(value.other, both(guard, unary("not", cond)))
            return Select(cond, then, other, value.lazy, value.dtype)
        if isinstance(value, Binary) and value.op in ("logical_and", "logical_or"):
            a = self.protect(value.a, guard)
            b = self.protect(
                value.b, both(guard, a if value.op == "logical_and" else unary("not", a))
            )
            return Binary(value.op, a, b, value.dtype)
        return value.map_children(
            lambda child: self.protect(child, guard) if isinstance(child, Expr) else child
        )

    # Writing the loop

    def flush(self, run: list[Stmt], done: list[Stmt]) -> None:
        """Close the run: one vector loop, inside an `If` of what its only store needs in every lane
        alike.
        """
        if not run:
            return
        body = [self.drop_uniform_lanes(stmt) for stmt in run]
        run.clear()
        uniform: list[Expr] = []
        if len(body) == 1 and isinstance(body[0], Store):
            store = body[0]
            conditions = conjuncts(store.predicate)
            uniform = [cond for cond in conditions if self.is_uniform(cond) and not has_loads(cond)]
            kept = conjunction([cond for cond in conditions if cond not in uniform])
            facts = {cond: const(True, BOOL) for cond in uniform}
            body = [_drop_facts(replace(store, predicate=kept), facts)]
        zero, one = int_const(0), int_const(1)
        loop: Stmt = For(
            self.lane,
            zero,
            int_const(self.lanes),
            one,
            LoopKind.VECTORIZED,
            seq(body),
            site=self.site,
        )
        cond = conjunction(uniform)
        done.append(loop if cond is None else If(cond, loop, site=self.site))

    def drop_uniform_lanes(self, stmt: Stmt) -> Stmt:
        """`lane + b < n` as `b < n` in predicates where b and n are multiples of the number of
        lanes.
        """
        from tileworkbench.compiler.ir.rewrite import Rewriter

        def change(node: object) -> object:
            if isinstance(node, Binary) and node.op in ("lt", "ge") and node.a.dtype.is_int:
                return self.without_lane(node)
            return node

        return Rewriter(change)(stmt)  # type: ignore[no-any-return]

    def without_lane(self, cond: Binary) -> Expr:
        ranges = self.context.ranges
        difference = combine([(ranges.linear(cond.a), 1), (ranges.linear(cond.b), -1)])
        if (
            difference.coefficient(self.lane) != 1
            or ranges.linear(cond.a).coefficient(self.lane) != 1
        ):
            return cond
        rest = Linear(
            tuple(term for term in difference.terms if term[0] is not self.lane),
            difference.constant,
        )
        if any(depends_on(atom, frozenset(self.varying)) for atom, _ in rest.terms):
            return cond
        if not ranges.linear_divides(self.lanes, rest):
            return cond
        whole = ranges.linear(cond.a)
        terms = tuple(term for term in whole.terms if term[0] is not self.lane)
        start = to_expr(Linear(terms, whole.constant), cond.a.dtype)
        return Binary(cond.op, start, cond.b, cond.dtype)


def _has_hazards(value: Expr, guarded: bool) -> bool:
    """Whether evaluating `value` in all lanes could read or divide where the program would not."""
    lazy = guarded or any(
        (isinstance(node, Select) and node.lazy)
        or (isinstance(node, Binary) and node.op in ("logical_and", "logical_or"))
        for node in walk(value)
    )
    return lazy and any(
        isinstance(node, Load) or getattr(node, "op", None) in _DIVISIONS for node in walk(value)
    )


def _is_inside(load: Load, ranges: Ranges) -> bool:
    return all(
        all(ranges.in_range(index, extent))
        for index, extent in zip(load.indices, load.buffer.shape, strict=True)
    )


def _inline_lets(stmts: list[Stmt]) -> list[Stmt]:
    """The statements without lets of pure expressions, so that they can be cut into several vector
    loops.

    Raises `NotLanesError` where a let reads memory: its value would not survive the cut.
    """
    values: dict[Var, Expr] = {}
    kept: list[Stmt] = []
    for stmt in stmts:
        stmt = substitute(stmt, values)
        if isinstance(stmt, Let):
            if has_loads(stmt.value):
                raise NotLanesError
            values[stmt.var] = stmt.value
        else:
            kept.append(stmt)
    return kept


def _drop_facts(store: Store, facts: dict[Expr, Const]) -> Store:
    """`store` without the conditions known to hold in the predicates of its loads."""
    if not facts:
        return store
    from tileworkbench.compiler.ir.rewrite import Rewriter

    def change(node: object) -> object:
        if isinstance(node, Load) and node.predicate is not None:
            left = [cond for cond in conjuncts(node.predicate) if cond not in facts]
            return replace(node, predicate=conjunction(left))
        return node

    return Rewriter(change)(store)  # type: ignore[no-any-return]


__all__ = ["NotLanesError", "run_in_lanes"]
