"""Element-wise nests by threads: which iterations, in which order, under which guards."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from tileworkbench.compiler.ir.build import (
    add,
    binary,
    cast,
    ceildiv,
    conjunction,
    const,
    const_int,
    int_const,
    mul,
    product,
)
from tileworkbench.compiler.ir.expr import Expr, Load
from tileworkbench.compiler.ir.loops import counting
from tileworkbench.compiler.ir.rewrite import Rewriter, statements
from tileworkbench.compiler.ir.stmt import Atomic, For, If, LoopKind, Seq, Stmt, Store
from tileworkbench.compiler.ir.tile import Copy, Fill, Parallel
from tileworkbench.compiler.ir.types import INT32
from tileworkbench.compiler.layout.fragment import Fragment
from tileworkbench.compiler.layout.maps import build_map
from tileworkbench.compiler.lower.threads import matrices
from tileworkbench.compiler.lower.threads.binding import infer_nest
from tileworkbench.compiler.lower.threads.context import ThreadContext
from tileworkbench.compiler.lower.threads.groups import Group
from tileworkbench.compiler.lower.threads.inference import LayoutMap, Level
from tileworkbench.compiler.lower.threads.iterations import Iterations, SymbolicIterations, guarded
from tileworkbench.compiler.lower.threads.lanes import LanePlan, plan_along, plan_lanes
from tileworkbench.compiler.lower.threads.nests import Nest, analyse, nest_of, pure_lets
from tileworkbench.compiler.lower.threads.partition import partition

_UNROLL = 16  # trips of a loop without registers that are written out
_SYMBOLIC_LANES = 16  # iterations that a thread takes at once where extents are symbolic
_ZERO, _ONE = int_const(0), int_const(1)


def lower(op: Parallel | Copy | Fill, context: ThreadContext) -> Stmt:
    """What one thread does of an element-wise operator."""
    nest = nest_of(op, context)
    if _is_private(nest):
        return _everything(nest, context)
    if nest.shape is None:
        return _symbolic(nest, context)
    if 0 in nest.shape or _is_idle(nest.op.body):
        return Seq(())
    loop = nest.op.loop_layout
    if loop is None:
        used = [*(a.buffer for a in nest.fragments), *(a.buffer for a in nest.memory)]
        layouts = LayoutMap({b: b.layout for b in used if b.layout is not None})
        loop = infer_nest(nest, layouts, Level.FREE, context).loop
    if loop is None:
        raise TypeError("an element-wise nest without a loop layout")
    nest, loop = _with_vector_loop(nest, loop, context)
    shared = partition(loop, context.threads)
    if isinstance(op, Copy):
        made = matrices.lower(op, nest, shared, context)
        if made is not None:
            return made
    plan = plan_lanes(nest, shared, context)
    iterations = Iterations.of(nest, shared, plan.step, plan.lanes, context)
    body = Group(nest, iterations, plan, context, pure_lets(nest.op.body)).lower()
    return _looped(body, nest, iterations)


def _looped(body: Stmt, nest: Nest, iterations: Iterations) -> Stmt:
    """The loops of the thread around one group of iterations, and the guards around these."""
    site = nest.op.site
    bound = iterations.bound_guard()
    if bound is not None:
        body = If(bound, body, site=site)
    trips = prod(extent for _, extent in iterations.loops)
    unrolled = bool(nest.fragments) or trips <= _UNROLL
    kind = LoopKind.UNROLLED if unrolled else LoopKind.SERIAL
    for var, extent in reversed(iterations.loops):
        body = For(var, _ZERO, int_const(extent), _ONE, kind, body, site=site)
    guards = [iterations.thread_guard()]
    if nest.stores_memory and not nest.writes_fragment:
        guards.append(iterations.replica())
    guard = conjunction([cond for cond in guards if cond is not None])
    return body if guard is None else If(guard, body, site=site)


def _with_vector_loop(nest: Nest, loop: Fragment, context: ThreadContext) -> tuple[Nest, Fragment]:
    """A nest whose body is a vector loop of the user's, with its variable as the last dimension,
    which every thread walks alone.
    """
    op, inner = nest.op, nest.op.body
    if not isinstance(inner, For) or inner.kind is not LoopKind.VECTORIZED or nest.shape is None:
        return nest, loop
    extent = const_int(inner.stop)
    if (const_int(inner.start), const_int(inner.step)) != (0, 1) or not extent:
        return nest, loop
    box = (*nest.shape, extent, loop.replicate)

    def place(*x: Any) -> tuple[Any, Any]:
        thread, slot = loop.evaluate(*x[:-2], x[-1])
        return thread, slot * extent + x[-2]

    wider = Fragment.from_map(build_map(box, place), loop.thread_range)
    made = replace(
        op,
        vars=(*op.vars, inner.var),
        extents=(*op.extents, inner.stop),
        body=inner.body,
        loop_layout=wider,
    )
    return analyse(made, context.ranges), wider


def _is_idle(body: Stmt) -> bool:
    """Whether it stores what is there already, as `x = x if cond else y` does where `cond` always
    holds.
    """
    return isinstance(body, Store) and body.value is Load(body.buffer, body.indices)


def _is_private(nest: Nest) -> bool:
    """Whether it only fills memory of the thread's own: then each thread does all of it."""
    scopes = [
        stmt.buffer.scope for stmt in statements(nest.op.body) if isinstance(stmt, Store | Atomic)
    ]
    own = bool(scopes) and all(scope.startswith("local") for scope in scopes)
    return own and not nest.fragments


def _everything(nest: Nest, context: ThreadContext) -> Stmt:
    rewriter = Rewriter(lambda load: guarded(load, context) if isinstance(load, Load) else load)
    body: Stmt = rewriter(nest.op.body)
    for var, extent in reversed(list(zip(nest.op.vars, nest.op.extents, strict=True))):
        small = (const_int(extent) or _UNROLL + 1) <= _UNROLL
        kind = LoopKind.UNROLLED if small else LoopKind.SERIAL
        body = For(var, _ZERO, extent, _ONE, kind, body, site=nest.op.site)
    return body


def _symbolic(nest: Nest, context: ThreadContext) -> Stmt:
    """A nest of symbolic extents: vectors in row-major order, one in `threads` for each thread."""
    op, last = nest.op, len(nest.op.vars) - 1
    plan = _symbolic_plan(nest, context)
    counts = [*op.extents[:last], binary("floordiv", op.extents[last], int_const(plan.lanes))]
    counts = [_natural(count, context) for count in counts]
    total = product(tuple(counts))
    most = [context.ranges.bounds(count).high for count in counts]
    if None not in most and prod(n for n in most if n is not None) <= INT32.largest_extent:
        total = cast(total, INT32)
    threads = const(context.threads, total.dtype)
    step = context.loop_var("step", total.dtype)
    flat = add(mul(step, threads), context.thread)
    digits: list[Expr] = []
    rest = flat
    for count in reversed(counts[1:]):
        digits.append(binary("floormod", rest, count))
        rest = binary("floordiv", rest, count)
    digits = [rest, *reversed(digits)]
    values = [cast(digit, var.dtype) for digit, var in zip(digits, op.vars, strict=True)]
    values[last] = mul(values[last], int_const(plan.lanes))
    iterations = SymbolicIterations(nest, tuple(values))
    body = Group(nest, iterations, plan, context, pure_lets(op.body)).lower()
    inside = If(binary("lt", flat, total), body, site=op.site)
    return counting(step, ceildiv(total, threads), inside, op.site)


def _natural(count: Expr, context: ThreadContext) -> Expr:
    """A number of iterations, zero where it is below."""
    low = context.ranges.bounds(count).low
    is_known = low is not None and low >= 0
    return count if is_known else binary("max", count, const(0, count.dtype))


def _symbolic_plan(nest: Nest, context: ThreadContext) -> LanePlan:
    """Vectors along the last variable, as far as its extent is known to divide."""
    last, lanes = len(nest.op.vars) - 1, _SYMBOLIC_LANES
    while True:
        plan = plan_along(nest, last, 0, lanes, context)
        if context.ranges.divides(plan.lanes, nest.op.extents[last]):
            return plan
        lanes = plan.lanes // 2
