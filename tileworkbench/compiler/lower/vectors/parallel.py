"""`T.Parallel`: serial loops around a vector loop along the dimension that memory likes best.

Iterations are independent, so the loops may be reordered, statements inside may be executed in lock
step for a vector of iterations, and a serial loop in the body may go outside the vector loop.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from tileworkbench.compiler.analysis.access import (
    Motion,
    depends_on,
    element_accesses,
    motion,
    varying_lets,
)
from tileworkbench.compiler.analysis.division import divide
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.build import add, binary, const, const_int, int_const, mul
from tileworkbench.compiler.ir.effects import Access
from tileworkbench.compiler.ir.expr import (
    Binary,
    Buffer,
    Call,
    Cast,
    Expr,
    Load,
    Select,
    Unary,
    Var,
)
from tileworkbench.compiler.ir.loops import counting
from tileworkbench.compiler.ir.rewrite import Rewriter, statements, substitute, walk
from tileworkbench.compiler.ir.sizes import const_shape
from tileworkbench.compiler.ir.stmt import For, LoopKind, Stmt, Store, seq
from tileworkbench.compiler.ir.tile import Parallel
from tileworkbench.compiler.layout.layout import Layout
from tileworkbench.compiler.lower.vectors.context import Context, Vote
from tileworkbench.compiler.lower.vectors.lanes import NotLanesError, run_in_lanes
from tileworkbench.compiler.lower.vectors.panels import can_turn, panel_form, panel_storage

_MAX_LANES = 64
CHAINS = 4
"""Vectors at once of functions that are one long chain of operations: a core looks ahead for a few
such chains only, if they follow each other. Eight do not fit in sixteen registers.
"""
_LONG = frozenset(
    (
        *("exp", "exp2", "exp10", "expm1", "log", "log2", "log10", "log1p"),
        *("erf", "tanh", "sigmoid", "atan"),
    )
)
_SCORES = {
    (Motion.CONTIGUOUS, True): 4,
    (Motion.CONTIGUOUS, False): 2,
    (Motion.SCATTERED, True): -6,
    (Motion.SCATTERED, False): -3,
    (Motion.UNIFORM, False): 0,
    (Motion.REPEATED, False): 1,
    (Motion.STRIDED, False): 1,
    (Motion.STRIDED, True): -6,
}
_WORTH = 8  # operations on vectors that make up for a point of scattered reads
# Operations of a lane that is accessed by itself, and of a vector that an operation is on: several,
# as integers are as wide as the widest of them. What is gained at least where memory likes no
# dimension.
_APART, _REGISTERS, _GAIN = 3.0, 2.0, 1.5


def infer_layout(op: Parallel, context: Context) -> tuple[Vote, ...]:
    """Every buffer of the body is taken by elements, row by row or down its columns."""
    reasons = {True: "is written inside T.Parallel", False: "is read inside T.Parallel"}
    votes = {
        access.buffer: Vote(access.buffer, reasons[access.writes])
        for access in element_accesses(op.body)
    }
    for buffer in _read_down(op, context):
        rows = const_int(buffer.shape[0]) or 0
        layout = Layout.panels(const_shape(buffer) or (), 0, rows)
        votes[buffer] = Vote(buffer, "is read down its columns inside T.Parallel", layout)
    return tuple(votes.values())


def _read_down(op: Parallel, context: Context) -> list[Buffer]:
    """The tiles that are only read, all of them, with neighbours of a vector below each other."""
    uses: dict[Buffer, list[Access]] = {}
    for access in element_accesses(op.body):
        uses.setdefault(access.buffer, []).append(access)
    extents = dict(zip(op.vars, op.extents, strict=True))
    turned = [
        buffer
        for buffer, (use, *others) in uses.items()
        if _is_turnable(buffer, context)
        and not use.writes
        and all(other.indices == use.indices and not other.writes for other in others)
        and tuple(extents.get(index) for index in use.indices) == buffer.shape  # type: ignore[call-overload]
    ]
    plan = choose(op, context, but=turned) if turned else None
    return [b for b in turned if plan is not None and uses[b][0].indices[0] is op.vars[plan.at]]


def _is_turnable(buffer: Buffer, context: Context) -> bool:
    shape = const_shape(buffer) or ()
    if buffer.scope == "global" or len(shape) != 2:
        return False
    return can_turn(buffer.dtype, shape[0], shape[1], context.target)


def from_panels(op: Parallel) -> Parallel:
    """The nest with loads of tiles that are kept in panels from where they are."""

    def change(node: object) -> object:
        form = panel_form(node.buffer) if isinstance(node, Load) else None
        if form is None or not isinstance(node, Load):
            return node
        inside, outside = node.indices[form.dim], node.indices[1 - form.dim]
        place = add(mul(outside, int_const(form.width)), inside)
        return replace(node, buffer=panel_storage(node.buffer, form), indices=(place,))

    return Rewriter(change)(op)  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class Plan:
    """The position of the vector dimension among the loop variables, and the number of lanes."""

    at: int
    lanes: int


def lower(op: Parallel, context: Context) -> Stmt:
    """Serial loops in the order written around the vector dimension, with what its extent leaves
    over after it.
    """
    plan = choose(op, context)
    if plan is not None:
        try:
            inner = _vectorize(op, plan, context)
        except NotLanesError:
            plan = None
    if plan is None:
        return _loops(op, serial_inside(op.body), None)
    return _loops(op, inner, plan.at)


def _loops(op: Parallel, body: Stmt, skip: int | None) -> Stmt:
    for at in reversed(range(len(op.vars))):
        if at != skip:
            body = _serial(op.vars[at], int_const(0), op.extents[at], body, op.site)
    return body


def _serial(var: Var, start: Expr, stop: Expr, body: Stmt, site: int) -> Stmt:
    if const_int(stop) == 1 and const_int(start) == 0:
        return substitute(body, {var: int_const(0)})  # type: ignore[no-any-return]
    return counting(var, stop, body, site, start)


def choose(op: Parallel, context: Context, but: Collection[Buffer] = ()) -> Plan | None:
    """The loop variable along which most accesses are contiguous, `but` for those of some buffers,
    the innermost of equals; None where no vector pays.
    """
    accesses = [access for access in element_accesses(op.body) if access.buffer not in but]
    widest = max((max(access.buffer.dtype.bits, 8) for access in accesses), default=0)
    if not widest or not any(access.writes for access in accesses):
        return None
    best, best_score, spare, most = None, 0, None, _GAIN
    chains = CHAINS if _is_long(op) else 1
    for at in reversed(range(len(op.vars))):
        extent = const_int(op.extents[at])
        lanes = min(context.target.vector_bits // widest * chains, _MAX_LANES)
        if extent is not None:
            lanes = min(lanes, 1 << max(extent, 1).bit_length() - 1)
        if lanes < 2:
            continue
        varying = varying_lets(op.body, op.vars[at])
        moves = [
            (motion(access, op.vars[at], context.ranges, varying, lanes), access.writes)
            for access in accesses
        ]
        score = sum(_SCORES.get(move, -1000) for move in moves)
        if (Motion.SCATTERED, False) in moves:
            score += _operations(op.body, varying | {op.vars[at]}) // _WORTH
        if score > best_score:
            best, best_score = Plan(at, lanes), score
        elif best is None and (gain := _gain(op, moves, varying | {op.vars[at]}, lanes)) > most:
            spare, most = Plan(at, lanes), gain
    return best or spare


def _gain(
    op: Parallel, moves: Sequence[tuple[Motion, bool]], varying: frozenset[Var], lanes: int
) -> float:
    """How many times as many operations single iterations take as vectors, whose scattered lanes
    are accessed one by one; none where one element is written by several.
    """
    if any(move not in _SCORES for move in moves):
        return 0.0
    operations = _operations(op.body, varying)
    lanes_apart = sum(motion is Motion.SCATTERED for motion, _ in moves)
    one = operations + len(moves)
    return lanes * one / (_REGISTERS * one + _APART * lanes * lanes_apart)


def _operations(body: Stmt, varying: frozenset[Var]) -> int:
    """How many operations have a result that depends on one of some variables."""
    kinds = Binary, Unary, Select, Cast, Call
    return sum(isinstance(node, kinds) and depends_on(node, varying) for node in walk(body))


def _is_long(op: Parallel) -> bool:
    """Whether each vector waits for a long chain of operations, or for the one before it."""
    return any(
        (isinstance(node, Call) and node.name in _LONG)
        or (isinstance(node, Store) and node.buffer.scope == "local")
        for node in walk(op.body)
    )


def _vectorize(op: Parallel, plan: Plan, context: Context) -> Stmt:
    """The loop over the vector dimension: whole vectors, then narrower ones or single iterations
    for the rest.
    """
    var, extent = op.vars[plan.at], op.extents[plan.at]
    body = serial_inside(op.body)
    count = const_int(extent)
    if count is None:
        whole = binary("floordiv", extent, int_const(plan.lanes))
        main = _main_loop(var, whole, plan.lanes, body, op.site, context)
        start = mul(whole, int_const(plan.lanes))
        low = context.ranges.bounds(extent).low
        if low is None or low < 0:  # an extent below zero is one of zero
            start = binary("max", start, const(0, start.dtype))
        return seq([main, _serial(var, start, extent, body, op.site)])
    stmts: list[Stmt] = []
    if count == plan.lanes:
        return run_in_lanes(body, var, plan.lanes, op.site, context)
    if count >= plan.lanes:
        stmts.append(
            _main_loop(var, int_const(count // plan.lanes), plan.lanes, body, op.site, context)
        )
    done, lanes = count // plan.lanes * plan.lanes, plan.lanes
    while done < count:
        lanes //= 2
        if count - done >= lanes:
            stmts.append(_chunk(var, int_const(done), lanes, body, op.site, context))
            done += lanes
    return seq(stmts)


def _main_loop(var: Var, count: Expr, lanes: int, body: Stmt, site: int, context: Context) -> Stmt:
    if const_int(count) == 1:
        return _chunk(var, int_const(0), lanes, body, site, context)
    outer = context.names.var(f"{var.name}_outer", var.dtype)
    context.ranges.enter(outer, int_const(0), count, 1)
    return _serial(
        outer,
        int_const(0),
        count,
        _chunk(var, mul(outer, int_const(lanes)), lanes, body, site, context),
        site,
    )


def _chunk(var: Var, start: Expr, lanes: int, body: Stmt, site: int, context: Context) -> Stmt:
    """`body` for the `lanes` values of `var` from `start` on."""
    if lanes == 1:
        return substitute(body, {var: start})  # type: ignore[no-any-return]
    lane = context.names.var(f"{var.name}_lane", var.dtype)
    context.ranges.enter(lane, int_const(0), int_const(lanes), 1)
    moved = _with_digits(substitute(body, {var: add(start, lane)}), var, context)
    return run_in_lanes(moved, lane, lanes, site, context)


def _with_digits(body: Stmt, var: Var, context: Context) -> Stmt:
    """`body` with quotients and remainders of the lane alone, where the vector begins at a multiple
    of the divisor: then it is known which lanes share an element.
    """

    def change(node: object) -> object:
        if isinstance(node, Binary) and node.op in ("floordiv", "floormod"):
            made = divide(node, context.ranges)
            # What is known of lets still mentions the variable that the lane stands for.
            if made is not None and not depends_on(made, frozenset({var})):
                return made
        return node

    return Rewriter(change)(body)  # type: ignore[no-any-return]


def serial_inside(body: Stmt) -> Stmt:
    """`body` with the user's vectorised loops as serial ones: the vector dimension is a Parallel
    one.
    """
    if not any(
        isinstance(inner, For) and inner.kind is LoopKind.VECTORIZED for inner in statements(body)
    ):
        return body

    def change(stmt: Stmt) -> Stmt:
        if isinstance(stmt, For) and stmt.kind is LoopKind.VECTORIZED:
            return replace(stmt, kind=LoopKind.SERIAL)
        return stmt

    return Rewriter(rewrite_stmt=change)(body)  # type: ignore[no-any-return]
