"""The threads of a block get one linear index, and the grid at most three dimensions.

Further thread indices that the kernel names, and block indices that `T.use_swizzle` permutes, are
computed from the linear ones. Views of tensors move into the launches. A branch with tile operators
that only threads in a row take becomes a role of these threads, and so does one in which whole
warps exchange data: they have barriers of their own. Where threads may come to the block's barrier
from different statements it says how many they are.

Before::

    with T.Kernel(8, threads=(32, 4), thread_vars=["x", "y"]) as bx:
        C[bx, y * 32 + x] = 0.0

After::

    with T.Kernel(8, threads=128, thread_vars=["tx"]) as bx:
        x = tx % 32
        y = tx // 32
        C[bx, y * 32 + x] = 0.0
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from tileworkbench.compiler.analysis.names import Names
from tileworkbench.compiler.analysis.uniformity import Uniformity
from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.build import add, binary, const_int, int_const, mul
from tileworkbench.compiler.ir.expr import Expr
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import (
    Rewriter,
    statements,
    with_body,
)
from tileworkbench.compiler.ir.simt import (
    Barrier,
    GridBarrier,
    Role,
)
from tileworkbench.compiler.ir.stmt import If, Kernel, Let, Stmt, seq
from tileworkbench.compiler.lower.threads.outer_views import with_own_views
from tileworkbench.compiler.lower.threads.roles import threads_where, with_roles
from tileworkbench.compiler.passes.bind_blocks import block_indices, is_swizzled, launch_size
from tileworkbench.compiler.target import Target

_GRID_DIMS = 3  # CUDA programming guide: blockIdx has x, y and z


@dataclass(frozen=True, slots=True)
class BindThreads:
    """Give every launch one thread index, and blocks in the order they are to be visited."""

    target: Target

    def __call__(self, program: Program) -> Program:
        names, lanes = Names(program), self.target.machine.lanes

        def bind(stmt: Stmt) -> Stmt:
            if not isinstance(stmt, Kernel):
                return stmt
            if stmt.cluster:
                _check_cluster(stmt, program, self.target)
            kernel = with_roles(bind_thread(stmt, names), program, lanes)
            kernel = with_counted_barriers(kernel, program, lanes)
            return _bind_blocks(kernel, names, self.target.machine.dies)

        body = with_own_views(program.body, names)
        return with_body(program, Rewriter(rewrite_stmt=bind)(body))


def _check_cluster(kernel: Kernel, program: Program, target: Target) -> None:
    most, blocks = target.machine.cluster_blocks, prod(kernel.cluster)
    if not most:
        raise UnsupportedError(
            f"clusters of blocks need sm_90, and '{target.arch}' has none",
            program.span(kernel.site),
            hint="compile for 'cuda:sm_90', 'ptx:sm_90' or 'sim:sm_90', or later",
        )
    if blocks > most:
        raise UnsupportedError(
            f"a cluster has at most {most} blocks on every '{target.arch}', and this one {blocks}",
            program.span(kernel.site),
        )
    if is_swizzled(kernel) or len(kernel.vars) > _GRID_DIMS:
        raise UnsupportedError(
            "the blocks of clusters are visited in the order of the grid, which has at most "
            f"{_GRID_DIMS} dimensions",
            program.span(kernel.site),
            hint="leave T.use_swizzle out, and join dimensions of the grid",
        )


def bind_thread(kernel: Kernel, names: Names) -> Kernel:
    """The launch with one thread index, from which the others are computed."""
    if len(kernel.threads) == 1 and kernel.thread_vars:
        return kernel
    thread = names.var("tx")
    lets: list[Stmt] = []
    rest: Expr = thread
    for at, (var, extent) in enumerate(zip(kernel.thread_vars, kernel.threads, strict=False)):
        last = at == len(kernel.threads) - 1
        index = rest if last else binary("floormod", rest, int_const(extent))
        lets.append(Let(var, index, site=kernel.site))
        rest = binary("floordiv", rest, int_const(extent))
    body = seq([*lets, kernel.body])
    return replace(kernel, threads=(prod(kernel.threads),), thread_vars=(thread,), body=body)


def with_counted_barriers(kernel: Kernel, program: Program, lanes: int) -> Kernel:
    """Barriers of the block that its threads may reach at different statements say how many threads
    wait, so that arrivals from all these statements count (PTX ISA, "bar").

    Raises `UnsupportedError` where only some threads of a warp would wait, or some of the block for
    the grid.
    """
    uniformity, threads = Uniformity(kernel), kernel.threads[0]
    lets = {stmt.var: stmt.value for stmt in statements(kernel.body) if isinstance(stmt, Let)}

    def check(stmt: If) -> None:
        waits = [inner for inner in statements(stmt) if _waits_for_all(inner)]
        try:
            inside = set(threads_where([stmt.cond], kernel, lets, program, stmt))
        except UnsupportedError:
            return  # known at run time only
        warps = {thread // lanes for thread in inside}
        if waits and len(inside) < sum(min(lanes, threads - lanes * warp) for warp in warps):
            raise UnsupportedError(
                "only some threads of a warp reach this barrier",
                program.span(waits[0].site),
                hint=f"let the condition name whole warps, of {lanes} threads",
            )

    def visit(stmt: Stmt, apart: bool) -> Stmt:
        if _waits_for_all(stmt) and apart and threads % lanes == 0:
            return Barrier(0, threads, site=stmt.site)
        if isinstance(stmt, GridBarrier) and apart:
            raise UnsupportedError(
                "only some threads of the block reach this barrier of the grid",
                program.span(stmt.site),
                hint="call T.sync_grid() where all of them are",
            )
        if isinstance(stmt, If) and uniformity.varies(stmt.cond):
            check(stmt)
            apart = True
        apart = apart or isinstance(stmt, Role)
        return stmt.map_children(
            lambda child: visit(child, apart) if isinstance(child, Stmt) else child
        )

    body = visit(kernel.body, False)
    return kernel if body is kernel.body else replace(kernel, body=body)


def _waits_for_all(stmt: Stmt) -> bool:
    return isinstance(stmt, Barrier) and stmt.id == 0 and stmt.count == 0 and stmt.wait


def _bind_blocks(kernel: Kernel, names: Names, dies: int) -> Kernel:
    if not is_swizzled(kernel) and len(kernel.vars) <= _GRID_DIMS:
        return kernel
    block, total = launch_size(kernel, names)
    lets, number = [], block
    if is_swizzled(kernel) and dies > 1:
        number = names.var("place", block.dtype)
        lets.append(Let(number, _by_die(block, total, dies), site=kernel.site))
    body = seq([*lets, *block_indices(kernel, number, names), kernel.body])
    return replace(kernel, vars=(block,), grid=(total,), swizzle=None, body=body)


def _by_die(block: Expr, total: Expr, dies: int) -> Expr:
    """The place of a block in the order of visiting. Dies take blocks in turn, and each has a cache
    of its own: so each gets blocks that follow one another, the first ones one more of the rest.
    """
    count = int_const(dies)
    die, more = binary("floormod", block, count), binary("floormod", total, count)
    first = mul(die, binary("floordiv", total, count))
    if const_int(more) != 0:
        first = add(first, binary("min", die, more))
    return add(first, binary("floordiv", block, count))
