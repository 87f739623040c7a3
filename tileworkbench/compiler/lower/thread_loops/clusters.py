"""A launch of clusters as one of single blocks, in which the blocks of a cluster are roles."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import prod

from tileworkbench.compiler.analysis.access import has_loads
from tileworkbench.compiler.analysis.names import Names
from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.compiler.ir import simt, tile
from tileworkbench.compiler.ir.build import add, binary, const, int_const, mul, sub
from tileworkbench.compiler.ir.expr import Buffer, Expr, Var
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.renaming import renamed
from tileworkbench.compiler.ir.rewrite import Rewriter, statements, substitute, variables
from tileworkbench.compiler.ir.stmt import Alias, Alloc, Kernel, Let, Seq, Stmt, seq
from tileworkbench.compiler.lower.thread_loops.units import BARRIERS, OF_CLUSTER

_SHARED = ("shared", "shared.barrier")


def united(
    kernel: Kernel, program: Program, names: Names, ranks: dict[Buffer, tuple[Buffer, ...]]
) -> Kernel:
    """The launch of clusters, with the peers of its blocks still to be found."""
    _check(kernel, program)
    (thread,), (count,) = kernel.thread_vars, kernel.threads
    kernel = replace(kernel, body=_without_indices(kernel))
    made: list[tuple[Stmt, dict[Buffer, Buffer]]] = []
    places = product(*(range(extent) for extent in reversed(kernel.cluster)))
    outer = {var: names.var(var.name, var.dtype) for var in kernel.vars}
    for rank, place in enumerate(places):
        values: dict[Var, Expr] = {thread: sub(thread, int_const(rank * count))}
        for var, extent, at in zip(kernel.vars, kernel.cluster, reversed(place), strict=True):
            first = mul(outer[var], const(extent, var.dtype))
            values[var] = add(first, const(at, var.dtype))
        body = substitute(kernel.body, values)
        made.append(renamed(_as_role(body, rank, count, prod(kernel.cluster)), names.fresh))
    for buffer in made[0][1]:
        of_ranks = tuple(buffers[buffer] for _, buffers in made)
        ranks.update(dict.fromkeys(of_ranks, of_ranks))
    grid = zip(kernel.grid, kernel.cluster, strict=True)
    common = [stmt for body, _ in made for stmt in statements(body) if _is_common(stmt)]
    roles = [
        simt.Role(rank * count, count, _without_common(body), site=kernel.site)
        for rank, (body, _) in enumerate(made)
    ]
    return replace(
        kernel,
        vars=tuple(outer.values()),
        grid=tuple(binary("floordiv", have, const(by, have.dtype)) for have, by in grid),
        threads=(len(made) * count,),
        body=seq([*common, *roles]),
        swizzle=None,
        cluster=(),
        blocks=len(made),
    )


def _check(kernel: Kernel, program: Program) -> None:
    if kernel.threads[0] % simt.LANGUAGE_WARP:
        raise UnsupportedError(
            f"target 'cpu' executes clusters of blocks of whole warps, and {kernel.threads[0]} is "
            f"not a multiple of {simt.LANGUAGE_WARP}",
            program.span(kernel.site),
            hint="give the blocks more threads, in T.ClusterKernel(threads=...)",
        )


def _without_indices(kernel: Kernel) -> Stmt:
    """The body without the lets that only compute with the block's indices."""
    values: dict[Var, Expr] = {}
    for stmt in statements(kernel.body):
        if isinstance(stmt, Let) and not has_loads(stmt.value):
            used = variables(stmt.value)
            if used and all(var in values or var in kernel.vars for var in used):
                values[stmt.var] = substitute(stmt.value, values)

    def drop(stmt: Stmt) -> Stmt:
        return Seq(()) if isinstance(stmt, Let) and stmt.var in values else stmt

    return substitute(Rewriter(rewrite_stmt=drop)(kernel.body), values)  # type: ignore[no-any-return]


def _as_role(body: Stmt, rank: int, count: int, blocks: int) -> Stmt:
    """The code of the block of that rank, for its threads among those of all `blocks`."""

    def change(stmt: Stmt) -> Stmt:
        match stmt:
            case simt.ClusterArrive():
                return Seq(())  # the wait is a barrier of all threads: later, and orders more
            case simt.ClusterBarrier() | simt.ClusterWait():
                return simt.Barrier(OF_CLUSTER, blocks * count, site=stmt.site)
            case simt.Barrier(number, threads):
                return replace(stmt, id=(rank + 1) * BARRIERS + number, count=threads or count)
            case simt.Role(start):
                return replace(stmt, start=start + rank * count)
            case _ if isinstance(stmt, tile.OPERATORS):
                return replace(stmt)  # an object of its own, which identifies the barrier
        return stmt

    return Rewriter(rewrite_stmt=change)(body)  # type: ignore[no-any-return]


def _is_common(stmt: Stmt) -> bool:
    """Whether others use what `stmt` makes."""
    match stmt:
        case Alloc(buffer) | Alias(buffer):
            return buffer.scope in _SHARED
    return isinstance(stmt, simt.BarrierInit)


def _without_common(body: Stmt) -> Stmt:
    return Rewriter(rewrite_stmt=lambda s: Seq(()) if _is_common(s) else s)(body)  # type: ignore[no-any-return]
