"""`T.gemm` by the warps of a block: matrix instructions where the target has one for the dtypes and
the shape, else dot products or plain multiply-adds of threads (`scalar_gemm`).

On tensor cores, for each step along K: the operands' atoms of the next step go to registers, then
the grid of atoms of this step is multiplied, rows in turn from left and from right so that
neighbours share an operand.

Before::

    T.gemm(A_shared, B_shared, C_local)

After::

    T.load_matrix(T.address_of(A_registers[0]), ...)
    for k in T.unroll(1):
        ...
    for i in T.unroll(4):
        for j in T.unroll(8):
            T.mma(T.address_of(A_registers[...]), ..., m=16, n=8, k=16)
"""

from __future__ import annotations

from dataclasses import replace

from tileworkbench.compiler.diagnostics import TileValueError, UnsupportedError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.build import add, binary, const_int, int_const, mul, sub
from tileworkbench.compiler.ir.expr import Buffer, Expr, Region
from tileworkbench.compiler.ir.simt import Mma
from tileworkbench.compiler.ir.stmt import Alloc, Stmt, seq
from tileworkbench.compiler.ir.tile import Gemm
from tileworkbench.compiler.ir.types import DType
from tileworkbench.compiler.layout.fragment import Fragment
from tileworkbench.compiler.layout.layout import Layout
from tileworkbench.compiler.lower.threads import scalar_gemm, wgmma
from tileworkbench.compiler.lower.threads.accumulator import Accumulator, warp_origin
from tileworkbench.compiler.lower.threads.context import ThreadContext
from tileworkbench.compiler.lower.threads.inference import (
    LayoutMap,
    LayoutUpdate,
    Level,
    Proposal,
)
from tileworkbench.compiler.lower.threads.loaded_layouts import loaded_layout
from tileworkbench.compiler.lower.threads.loops import scale, unrolled
from tileworkbench.compiler.lower.threads.mma import (
    MatrixPlan,
    Product,
    can_share,
    fitting_instructions,
    partition_warps,
    with_neighbours,
)
from tileworkbench.compiler.lower.threads.operand import Loader, Operand, load_all, make_loader
from tileworkbench.compiler.lower.threads.scalar_gemm import fragment_c
from tileworkbench.compiler.lower.threads.shared_layouts import Reader, operand_layout
from tileworkbench.compiler.lower.threads.staging import SharedTile, write_tile

_REASONS = {
    "a": "is operand A of a matrix product",
    "b": "is operand B of a matrix product",
    "c": "holds the result of a matrix product",
}


def product_of(op: Gemm) -> Product:
    """The extents and dtypes of `op`."""
    m, n = (const_int(extent) or 0 for extent in op.c.extents[-2:])
    k = const_int(op.a.extents[-2 if op.transpose_a else -1]) or 0
    a, b = op.a.buffer, op.b.buffer
    chained = any(each.scope == "local.fragment" and each.dtype.bits == 16 for each in (a, b))
    return Product(m, n, k, a.dtype, b.dtype, op.c.buffer.dtype, chained)


def plan_of(op: Gemm, context: ThreadContext) -> MatrixPlan | None:
    """The matrix instruction and the grid of warps, None where the threads multiply themselves.

    Raises `TileValueError` when the warps cannot share the result.
    """
    product, warp = product_of(op), context.lanes
    if _is_for_warpgroups(op, context):
        return wgmma.plan_of(op, product, context)
    fitting = list(fitting_instructions(context.target, product, op.instruction))
    if not fitting:
        return None
    span = context.span(op.site)
    if context.threads % warp:
        raise TileValueError(
            f"T.gemm on tensor cores takes whole warps of {warp} threads, not {context.threads} "
            "threads",
            span,
            hint=f"use threads={-(-context.threads // warp) * warp}",
        )
    warps = context.threads // warp
    m, n = product.m, product.n
    shared = (each for each in fitting if can_share(m, n, warps, each))
    instruction = next(shared, fitting[-1])
    grid = partition_warps(op.policy, m, n, warps, instruction, span)
    plan = MatrixPlan(instruction, grid, product.k)
    b = op.b.buffer
    by_rows = b.scope == "shared" and not op.transpose_b and b.dtype == instruction.b.dtype
    alone = op.instruction.count("x") == 1  # a shape without its depth
    alone = alone or context.target.machine.turns(b.dtype.bits)  # lanes turn it
    return with_neighbours(plan, context.target) if by_rows and not alone else plan


def _is_for_warpgroups(op: Gemm, context: ThreadContext) -> bool:
    return any(op.instruction == row.name for row in wgmma.instructions(context.target))


# Layouts


def infer_layout(
    op: Gemm, layouts: LayoutMap, level: Level, context: ThreadContext
) -> LayoutUpdate:
    """The fragments that the instruction dictates, and swizzles for operands in shared memory.

    Operands of 16 bits in registers lie as results do, so one product can feed the next: they must
    have the instruction's fragment. Other operands get that fragment where they have none yet; one
    with another fragment goes through shared memory.
    """
    _check_operands(op, context)
    plan = plan_of(op, context)
    wanted = _fragments(op, plan, context)
    if level is Level.STRICT:
        proposals = [
            Proposal(each.buffer, each.fragment, each.reason) for each in wanted if each.strict
        ]
        return LayoutUpdate((*proposals, *_shared(op, plan, context)))
    missing = [
        Proposal(each.buffer, each.fragment, each.reason)
        for each in wanted
        if layouts.fragment(each.buffer) is None
    ]
    return LayoutUpdate(tuple(missing))


def _check_operands(op: Gemm, context: ThreadContext) -> None:
    """Operands that threads can share, fragments as a whole."""
    for name, region in (("A", op.a), ("B", op.b), ("C", op.c)):
        buffer = region.buffer
        if buffer.scope not in ("shared", "local.fragment"):
            raise UnsupportedError(
                f"operand {name} of T.gemm, '{buffer.name}', is private to each thread",
                context.span(op.site),
                hint="allocate it with T.alloc_shared or T.alloc_fragment",
            )
        if buffer.scope == "local.fragment" and region.extents != buffer.shape:
            raise UnsupportedError(
                f"operand {name} of T.gemm is a part of the fragment '{buffer.name}'",
                context.span(op.site),
                hint="give the part a fragment of its own, or keep it in shared memory",
            )


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The fragment that an operand in registers should have, or must have when `strict`."""

    buffer: Buffer
    fragment: Fragment
    reason: str
    strict: bool


def _fragments(op: Gemm, plan: MatrixPlan | None, context: ThreadContext) -> list[_Wanted]:
    """What is wanted for the operands in registers. Threads that multiply themselves read A and B
    from shared memory, whatever their fragments are.
    """
    fragments: list[_Wanted] = []

    def add_one(buffer: Buffer, fragment: Fragment, name: str, strict: bool) -> None:
        if buffer.scope == "local.fragment":
            placed = context.placed(fragment, buffer)
            fragments.append(_Wanted(buffer, placed, _REASONS[name], strict))

    if plan is None:
        add_one(op.c.buffer, fragment_c(product_of(op), context.threads), "c", True)
        return fragments
    add_one(op.c.buffer, plan.fragment_c(), "c", True)
    short = DType(plan.instruction.a.dtype).bits == 16
    if plan.turned:
        add_one(op.b.buffer, plan.fragment_a(not op.transpose_b), "b", short)
        return fragments
    add_one(op.a.buffer, plan.fragment_a(op.transpose_a), "a", short)
    if plan.instruction.b.place is not None:
        add_one(op.b.buffer, plan.fragment_b(op.transpose_b), "b", short)
    return fragments


def _shared(op: Gemm, plan: MatrixPlan | None, context: ThreadContext) -> list[Proposal]:
    """Swizzles for the operands in shared memory; a layout that is known already is kept."""
    proposals = []
    for name, region, k_last in (("a", op.a, not op.transpose_a), ("b", op.b, op.transpose_b)):
        layout = _shared_layout(region.buffer, name, k_last, plan, context)
        if region.buffer.scope == "shared" and layout is not None:
            proposals.append(Proposal(region.buffer, layout, _REASONS[name], soft=True))
    return proposals


def _shared_layout(
    buffer: Buffer, name: str, k_last: bool, plan: MatrixPlan | None, context: ThreadContext
) -> Layout | None:
    """The layout in which operand "a" or "b" is read without conflicts, None for a symbolic shape.
    """
    shape = [const_int(extent) for extent in buffer.shape]
    constant = [extent for extent in shape if extent is not None]
    if len(constant) < len(shape):
        return None
    if plan is not None and plan.instruction.a.swizzles:
        return wgmma.shared_layout(buffer)
    machine = context.target.machine
    by_columns = plan is not None and name == "b" and not k_last and plan.instruction.across > 1
    alone = machine.move(loads=True) is None and buffer.dtype.bits >= 8
    if plan is not None and (alone or by_columns):
        row = plan.instruction
        operand = {"a": row.a, "b": row.b}[name].fragment
        box, bits = tuple(constant), buffer.dtype.bits
        # What several products across read is no result that was stored.
        stored = row.c.fragment if k_last or row.across == 1 else None
        return loaded_layout(box, bits, operand, k_last, stored, machine)
    reader, memory = _reader(buffer.dtype, k_last, plan), machine.shared
    return operand_layout(constant, buffer.dtype.bits, reader, memory)


def _reader(dtype: DType, k_last: bool, plan: MatrixPlan | None) -> Reader:
    """How the operand is read: rows are as far apart as a register has elements."""
    if dtype.bits == 64 or (dtype.bits == 32 and (plan is None or not k_last)):
        return Reader.ELEMENTS
    if k_last or dtype.bits > 8:
        return Reader.MATRIX
    bits = dtype.bits if plan is None else DType(plan.instruction.a.dtype).bits
    return {4: Reader.NIBBLES, 8: Reader.BYTES}.get(bits, Reader.MATRIX)


# Lowering


def lower(op: Gemm, context: ThreadContext) -> Stmt:
    """The code of one thread, which belongs to a warp of the plan."""
    plan = plan_of(op, context)
    if plan is not None and _is_for_warpgroups(op, context):
        return wgmma.lower(op, plan, context)
    stmts: list[Stmt] = []
    op = _with_readable_operands(op, plan, context, stmts)
    if plan is None:
        return seq([*stmts, scalar_gemm.lower(op, product_of(op), context)])
    accumulator = Accumulator(op, plan, context)
    loaders = _loaders(op, plan, context)
    stmts += accumulator.begin()
    if all(loader.operand.in_place for loader in loaders):
        stmts.append(
            unrolled(
                context,
                "k",
                plan.steps,
                lambda step: _multiply(loaders, accumulator, step),
                op.site,
            )
        )
    else:
        stmts += _overlapped(loaders, accumulator)
    return seq([*stmts, *accumulator.end()])


def _with_readable_operands(
    op: Gemm, plan: MatrixPlan | None, context: ThreadContext, stmts: list[Stmt]
) -> Gemm:
    """`op` with operands that the plan can read: fragments of another layout are copied to shared
    memory.
    """
    wanted = {each.buffer: each.fragment for each in _fragments(op, plan, context)}
    a, b = op.a, op.b
    for name, region, k_last in (("a", op.a, not op.transpose_a), ("b", op.b, op.transpose_b)):
        buffer = region.buffer
        if buffer.scope != "local.fragment" or buffer.layout == wanted.get(buffer):
            continue
        layout = _shared_layout(buffer, name, k_last, plan, context)
        moved = _spill(region, layout, context, op.site, stmts)
        a, b = (moved if each is region else each for each in (a, b))
    return replace(op, a=a, b=b)


def _spill(
    region: Region, layout: Layout | None, context: ThreadContext, site: int, stmts: list[Stmt]
) -> Region:
    """Copy a fragment to a workspace in shared memory, from where any thread can read it."""
    buffer = region.buffer
    fragment = buffer.layout
    assert isinstance(fragment, Fragment)  # inference gives every fragment one
    name = context.names.fresh(f"{buffer.name}_workspace")
    workspace = Buffer(name, buffer.dtype, buffer.shape, "shared", layout=layout)
    context.prologue.allocs.append(Alloc(workspace, site=site))
    into = SharedTile(workspace, tuple)
    stmts.append(write_tile(context.registers(buffer), fragment, into, context, site))
    return Region(workspace, region.mins, region.extents)


def _overlapped(loaders: tuple[Loader, Loader], accumulator: Accumulator) -> list[Stmt]:
    """Steps along K, each behind the loads of the next one."""
    op, context, last = accumulator.op, accumulator.context, accumulator.plan.steps - 1

    def advance(step: Expr) -> Stmt:
        ahead = load_all(loaders, add(step, int_const(1)))
        return seq([*ahead, _multiply(loaders, accumulator, step)])

    stmts = load_all(loaders, int_const(0))
    if last:
        stmts.append(unrolled(context, "k", last, advance, op.site))
    return [*stmts, _multiply(loaders, accumulator, int_const(last))]


def _loaders(op: Gemm, plan: MatrixPlan, context: ThreadContext) -> tuple[Loader, Loader]:
    shape = plan.instruction
    row, column = warp_origin(plan, context)
    a = Operand(op.a, not op.transpose_a, shape.a, plan.atoms_m, plan.steps, row, op.site)
    b = Operand(op.b, op.transpose_b, shape.b, plan.atoms_n, plan.steps, column, op.site)
    return make_loader(a, context), make_loader(b, context)


def _multiply(loaders: tuple[Loader, Loader], accumulator: Accumulator, step: Expr) -> Stmt:
    """The grid of atoms of one step, every other row backwards."""
    plan, context, site = accumulator.plan, accumulator.context, accumulator.op.site
    a, b = loaders
    shape = plan.instruction
    last = int_const(plan.atoms_n - 1)

    def row(i: Expr) -> Stmt:
        odd = binary("floormod", i, int_const(2))

        def column(j: Expr) -> Stmt:
            at: Expr = j
            if plan.atoms_m > 1:
                at = add(j, mul(odd, sub(last, scale(j, 2))))
            return Mma(
                a.atom(step, i), b.atom(step, at), accumulator.atom(i, at),
                shape.m, shape.n, shape.k, site=site,
            )  # fmt: skip

        return unrolled(context, "j", plan.atoms_n, column, site)

    return unrolled(context, "i", plan.atoms_m, row, site)
