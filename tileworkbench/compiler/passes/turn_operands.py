"""Operands of bytes whose rows do not run along K are turned in front of a product of warpgroups.

wgmma reads bytes along K only. Where a tile has them along M or N, threads load blocks of its rows,
and store each column of a block as neighbours to another tile, which the instruction reads. Else
mma.sync would multiply, whose lanes turn what they read, each warp for itself.

Before::

    T.copy(B[k * 64, bx * 128], B_shared)
    T.gemm(A_shared, B_shared, C_local)

After::

    T.copy(B[k * 64, bx * 128], B_shared)
    T.copy(B_shared, B_shared_block)  # a block of 16 x 4 elements for each thread
    for i, j in T.Parallel(64, 128):
        B_shared_turned[j, i] = B_shared_block[i, j]
    T.gemm(A_shared, B_shared_turned, C_local, transpose_B=True)
"""

from __future__ import annotations

from dataclasses import replace

from tileworkbench.compiler.analysis.names import Names
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.expr import Buffer, Load, Region, Var
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import Rewriter, statements, with_body
from tileworkbench.compiler.ir.simt import Start
from tileworkbench.compiler.ir.sizes import const_shape
from tileworkbench.compiler.ir.stmt import Alloc, Kernel, Stmt, Store, seq
from tileworkbench.compiler.ir.tile import Copy, Gemm, Parallel, Pipelined
from tileworkbench.compiler.ir.types import INT32
from tileworkbench.compiler.lower.shared.regions import is_whole, whole_region
from tileworkbench.compiler.lower.threads import wgmma
from tileworkbench.compiler.lower.threads.context import ThreadContext, with_contexts
from tileworkbench.compiler.lower.threads.gemm import product_of
from tileworkbench.compiler.lower.threads.turned import turned_bytes
from tileworkbench.compiler.passes.optional import optional
from tileworkbench.compiler.target import Target


@dataclass(frozen=True, slots=True)
class _Turn:
    """`product` reads turned tiles; `stmts` make them, from buffers that are allocated by
    `allocs`.
    """

    product: Gemm
    stmts: tuple[Stmt, ...]
    allocs: tuple[Alloc, ...]


@optional("bytes along M or N are turned by each warp that reads them, for mma.sync")
@dataclass(frozen=True, slots=True)
class TurnOperands:
    """Turn operands of bytes so that warpgroups can multiply them."""

    target: Target

    def __call__(self, program: Program) -> Program:
        names = Names(program)

        def change(stmt: Stmt) -> Stmt:
            return self._kernel(stmt, program, names) if isinstance(stmt, Kernel) else stmt

        return with_body(program, Rewriter(rewrite_stmt=change)(program.body))

    def _kernel(self, kernel: Kernel, program: Program, names: Names) -> Kernel:
        context = ThreadContext.of(program, kernel, self.target)
        products = [stmt for stmt in statements(kernel.body) if isinstance(stmt, Gemm)]
        fixed = {id(inner) for stmt in _fixed(kernel.body) for inner in statements(stmt)}
        turns: dict[int, _Turn] = {}
        for stmt, threads in with_contexts(kernel.body, context):
            if isinstance(stmt, Gemm) and id(stmt) not in fixed:
                others = [other for other in products if other is not stmt]
                turn = _turn(stmt, others, threads, names)
                if turn is not None:
                    turns[id(stmt)] = turn
        if not turns:
            return kernel

        def change(stmt: Stmt) -> Stmt:
            turn = turns.get(id(stmt))
            if turn is not None:
                return seq([*turn.stmts, turn.product])
            made = stmt.map_children(
                lambda child: change(child) if isinstance(child, Stmt) else child
            )
            return made

        allocs = [each for turn in turns.values() for each in turn.allocs]
        body = Rewriter()(change(kernel.body))  # sequences in sequences are joined
        return replace(kernel, body=seq([*allocs, body]))


def _fixed(body: Stmt) -> list[Stmt]:
    """What nothing can be added to: products that the kernel starts, and loops with a schedule."""
    return [
        stmt
        for stmt in statements(body)
        if isinstance(stmt, Start) or (isinstance(stmt, Pipelined) and (stmt.order or stmt.stage))
    ]


def _turn(op: Gemm, others: list[Gemm], context: ThreadContext, names: Names) -> _Turn | None:
    """How the product is changed; None where that is of no use."""
    sides = [("a", op.a, op.transpose_a), ("b", op.b, not op.transpose_b)]
    turned = [(side, region) for side, region, along in sides if along and _bytes(region)]
    used = {each.buffer for other in others for each in (other.a, other.b, other.c)}
    if not turned or op.c.buffer in used or op.a.buffer.scope != "shared":
        return None
    made, stmts, allocs = op, list[Stmt](), list[Alloc]()
    for side, region in turned:
        held = turned_bytes(const_shape(region.buffer) or (), context.threads)
        if held is None or not is_whole(region):
            return None
        name, extents = region.buffer.name, region.extents
        plain = Buffer(names.fresh(f"{name}_turned"), region.buffer.dtype, extents[::-1], "shared")
        block = Buffer(names.fresh(f"{name}_block"), plain.dtype, extents, "local.fragment")
        first, last = (Var(names.fresh(each), INT32) for each in "ij")
        store = Store(plain, (last, first), Load(block, (first, last)), site=op.site)
        stmts.append(Copy(region, whole_region(block), loop_layout=held, site=op.site))
        stmts.append(Parallel((first, last), extents, store, site=op.site))
        allocs += [Alloc(plain, site=op.site), Alloc(block, site=op.site)]
        if side == "a":
            made = replace(made, a=whole_region(plain), transpose_a=not op.transpose_a)
        else:
            made = replace(made, b=whole_region(plain), transpose_b=not op.transpose_b)
    if wgmma.objection(made, product_of(made), others, context):
        return None
    return _Turn(made, tuple(stmts), tuple(allocs))


def _bytes(region: Region) -> bool:
    buffer = region.buffer
    return buffer.scope == "shared" and buffer.dtype.bits == 8 and buffer.layout is None
