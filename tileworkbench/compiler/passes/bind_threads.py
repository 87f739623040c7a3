"""The threads of a block get one linear index, and the grid at most three dimensions.

Further thread indices that the kernel names, and block indices that `T.use_swizzle` permutes, are
computed from the linear ones.

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
from tileworkbench.compiler.ir.build import binary, int_const
from tileworkbench.compiler.ir.expr import Expr
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import Rewriter, with_body
from tileworkbench.compiler.ir.stmt import Kernel, Let, Stmt, seq
from tileworkbench.compiler.passes.bind_blocks import block_indices, is_swizzled, launch_size

_GRID_DIMS = 3  # CUDA programming guide: blockIdx has x, y and z


def bind_threads(program: Program) -> Program:
    """Give every launch one thread index, and blocks in the order they are to be visited."""
    names = Names(program)

    def bind(stmt: Stmt) -> Stmt:
        return _bind_blocks(bind_thread(stmt, names), names) if isinstance(stmt, Kernel) else stmt

    return with_body(program, Rewriter(rewrite_stmt=bind)(program.body))


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


def _bind_blocks(kernel: Kernel, names: Names) -> Kernel:
    if not is_swizzled(kernel) and len(kernel.vars) <= _GRID_DIMS:
        return kernel
    block, total = launch_size(kernel, names)
    body = seq([*block_indices(kernel, block, names), kernel.body])
    return replace(kernel, vars=(block,), grid=(total,), swizzle=None, body=body)
