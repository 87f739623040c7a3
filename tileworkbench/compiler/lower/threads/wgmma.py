"""`T.gemm` by warpgroups, with products that run while threads do other work (wgmma).

B lies in shared memory, where the instruction finds it by a descriptor; A lies there too or is in
registers. Where B is in registers and A is not, the instruction forms the transpose of C instead,
``B.T @ A.T``; the layout of C's registers says so (decision 129).

The instructions of one product are a batch: it begins with a fence of the registers, and is waited
for behind it.

Before::

    T.gemm(A_shared, B_shared, C_local, instruction="wgmma.mma_async")

After::

    with T.started("wgmma"):
        T.fence(kind="wgmma")
        for k in T.unroll(4):
            T.wgmma(T.address_of(A_shared[...]), ..., n=128, k=16, ...)
    T.commit_group(engine="wgmma")
    T.wait_group(pending=0, engine="wgmma")
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tileworkbench.compiler.diagnostics import LayoutError, TileValueError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.build import FALSE, add, binary, const_int, int_const
from tileworkbench.compiler.ir.expr import Address, Buffer, Const, Expr, Region
from tileworkbench.compiler.ir.simt import CommitGroup, Engine, Fence, Start, WaitGroup, Wgmma
from tileworkbench.compiler.ir.stmt import Alloc, Stmt, seq
from tileworkbench.compiler.ir.tile import Copy, Gemm, WarpPolicy
from tileworkbench.compiler.layout.descriptors import (
    Descriptor,
    descriptor_layout,
    find_descriptor,
)
from tileworkbench.compiler.layout.layout import Layout
from tileworkbench.compiler.lower.threads import parallel
from tileworkbench.compiler.lower.threads.accumulator import Accumulator, warp_origin
from tileworkbench.compiler.lower.threads.context import ThreadContext
from tileworkbench.compiler.lower.threads.loops import scale, unrolled
from tileworkbench.compiler.lower.threads.mma import MatrixPlan, Product, partition_warps
from tileworkbench.compiler.lower.threads.operand import Loader, Operand, make_loader
from tileworkbench.compiler.machine.instructions import WARPGROUP_WARPS, MatrixInstruction, Scope
from tileworkbench.compiler.target import Target


def instructions(target: Target) -> list[MatrixInstruction]:
    """The instructions of warpgroups, the widest first for each dtype."""
    return [row for row in target.machine.matrices if row.scope is Scope.WARPGROUP]


# Which products


def objection(op: Gemm, product: Product, others: Iterable[Gemm], context: ThreadContext) -> str:
    """Why warpgroups cannot multiply `op`, one of a kernel with `others`; empty where they can."""
    if reason := objection_to_threads(context) or _objection_to_turning(op, product, others):
        return reason
    rows = _rows(product, context.target)
    if not rows:
        return f"there is none for {product.a}, {product.b} and {product.c}"
    turned = is_turned(op)
    a, b, m, n = ("B", "A", "N", "M") if turned else ("A", "B", "M", "N")
    op, product = (_turned(op), product.turned) if turned else (op, product)
    for name, extent, unit in (
        (m, product.m, rows[-1].m),
        (n, product.n, rows[-1].n),
        ("K", product.k, rows[-1].k),
    ):
        if extent % unit:
            return f"{name} is {extent}, no multiple of {unit}"
    try:
        plan = _plan(op, product, context)
    except TileValueError:
        groups = context.threads // (context.lanes * WARPGROUP_WARPS)
        tile = f"{rows[-1].m} x {rows[-1].n}"
        return f"{groups} warpgroups cannot share {product.m} x {product.n} in tiles of {tile}"
    if op.transpose_a and op.a.buffer.scope != "shared" and product.a.bits != 16:
        return f"{a}, '{op.a.buffer.name}', is not stored along K"
    sides = [(b, op.b, not op.transpose_b, plan.instruction.n)]
    if op.a.buffer.scope == "shared":
        sides.append((a, op.a, op.transpose_a, plan.instruction.m))
    texts = (_side(*side, plan.instruction.k, context) for side in sides)
    return next((text for text in texts if text), "")


def is_turned(op: Gemm) -> bool:
    """Whether the instruction forms the transpose of C: only its first operand may be in registers,
    and B is there alone.
    """
    return op.b.buffer.scope != "shared" and op.a.buffer.scope == "shared"


def _turned(op: Gemm) -> Gemm:
    """``C.T += B.T @ A.T``. Its region of C is still that of `op`."""
    policy = {WarpPolicy.FULL_ROW: WarpPolicy.FULL_COL, WarpPolicy.FULL_COL: WarpPolicy.FULL_ROW}
    return replace(
        op,
        a=op.b,
        b=op.a,
        transpose_a=not op.transpose_b,
        transpose_b=not op.transpose_a,
        policy=policy.get(op.policy, op.policy),
    )


def _objection_to_turning(op: Gemm, product: Product, others: Iterable[Gemm]) -> str:
    """Why B must not be in registers as it is, empty where it may. Other products want C and B in
    the layouts of their own instructions.
    """
    if op.b.buffer.scope == "shared":
        return ""
    b, c = op.b.buffer, op.c.buffer
    used = {each.buffer for other in others for each in (other.a, other.b, other.c)}
    alone = c.scope == "local.fragment" and product.c.bits == 32 and not used & {b, c}
    return "" if is_turned(op) and alone else f"B, '{b.name}', is in registers"


def objection_to_threads(context: ThreadContext) -> str:
    """Why the threads are no warpgroups, empty where they are."""
    threads = context.lanes * WARPGROUP_WARPS
    if context.threads % threads:
        return f"{context.threads} threads are no whole warpgroups of {threads}"
    if context.start % threads:
        return f"its threads begin at {context.start}, which is no multiple of {threads}"
    return ""


def _rows(product: Product, target: Target) -> list[MatrixInstruction]:
    """The instructions for the dtypes; sums of 16 bits may be formed in float32."""
    short = product.c.is_float and product.c.bits == 16
    for c in (str(product.c), *(["float32"] if short else [])):
        wanted = (str(product.a), str(product.b), c)
        rows = [row for row in instructions(target) if row.dtypes == wanted]
        if rows:
            return rows
    return []


def _side(
    name: str, region: Region, transposed: bool, rows: int, k: int, context: ThreadContext
) -> str:
    """Why an operand in shared memory cannot be used, None where it can."""
    buffer = region.buffer
    bits = buffer.dtype.bits
    if transposed and bits != 16:
        return f"{name}, '{buffer.name}', is not stored along K, which {buffer.dtype} must be"
    extents = (k, rows) if transposed else (rows, k)
    for first, extent in zip(region.mins[-2:], extents, strict=True):
        if not context.ranges.divides(extent, first):
            return f"{name} begins within '{buffer.name}' at no multiple of {extent}"
    layout = buffer.layout if isinstance(buffer.layout, Layout) else shared_layout(buffer)
    if layout is None or find_descriptor(layout, bits, transposed, (rows, k)) is None:
        kind = "layout" if buffer.layout is not None else "shape"
        return f"no descriptor has the {kind} of {name}, '{buffer.name}'"
    return ""


def shared_layout(buffer: Buffer) -> Layout | None:
    """The layout of an operand in shared memory, None where no descriptor has one for its shape."""
    shape = tuple(const_int(extent) or 0 for extent in buffer.shape)
    if 0 in shape:
        return None
    try:
        return descriptor_layout(shape, buffer.dtype.bits)
    except LayoutError:
        return None


def plan_of(op: Gemm, product: Product, context: ThreadContext) -> MatrixPlan:
    """The instruction, and how warpgroups share the result or, where `op` is turned, its transpose.

    Raises `TileValueError` where they cannot.
    """
    if is_turned(op):
        return replace(_plan(_turned(op), product.turned, context), turned=True)
    return _plan(op, product, context)


def _plan(op: Gemm, product: Product, context: ThreadContext) -> MatrixPlan:
    """Warpgroups along M, as far as its rows go, then along N; FULL_COL the other way round. The
    instruction is the widest that divides the columns of a warpgroup.

    Raises `TileValueError` where the warpgroups cannot share the result.
    """
    rows = _rows(product, context.target)
    policy = WarpPolicy.FULL_ROW if op.policy is WarpPolicy.SQUARE else op.policy
    groups, span = context.threads // (context.lanes * WARPGROUP_WARPS), context.span(op.site)
    grid = partition_warps(policy, product.m, product.n, groups, rows[-1], span)
    widest = next(row for row in rows if grid.warp_columns % row.n == 0)
    grid = replace(grid, atom=(widest.m, widest.n))
    return MatrixPlan(widest, grid, product.k)


def describe(op: Gemm, product: Product, context: ThreadContext) -> str:
    """The instruction, and where it finds the operands."""
    plan = plan_of(op, product, context)
    shape = plan.instruction
    texts, names = [], "AB"
    if plan.turned:
        op, names = _turned(op), "BA"
        texts.append("C's transpose, B.T @ A.T")
    for name, region, transposed, rows in (
        (names[0], op.a, op.transpose_a, shape.m),
        (names[1], op.b, not op.transpose_b, shape.n),
    ):
        where = "in registers"
        if region.buffer.scope == "shared":
            layout = region.buffer.layout or shared_layout(region.buffer)
            bits = region.buffer.dtype.bits
            assert isinstance(layout, Layout)  # there is no objection to it
            descriptor = find_descriptor(layout, bits, transposed, (rows, shape.k))
            width = descriptor.swizzle if descriptor else 0
            where = f"in shared memory, {f'{width}-byte' if width else 'no'} swizzle"
        texts.append(f"{name} {where}")
    if product.a.is_float and product.a.bits == 8:
        texts.append("its sums have about 14 bits")  # decision 105
    return f"wgmma m{shape.m}n{shape.n}k{shape.k}; {'; '.join(texts)}"


# Lowering


@dataclass(frozen=True, slots=True)
class _Tile:
    """An operand in shared memory, and what its descriptors say."""

    operand: Operand
    descriptor: Descriptor
    rows: int
    depth: int

    @property
    def form(self) -> tuple[int, ...]:
        made = self.descriptor
        return made.leading, made.stride, made.swizzle, int(made.transposed)

    def atom(self, step: Expr, atom: Expr) -> Address:
        """Where the elements of one instruction begin."""
        operand = self.operand
        row = add(operand.first, scale(atom, self.rows))
        return Address(operand.buffer, operand.at(row, scale(step, self.depth)))


def lower(op: Gemm, plan: MatrixPlan, context: ThreadContext) -> Stmt:
    """The code of one thread, which belongs to a warpgroup of the plan."""
    stmts: list[Stmt] = []
    op = _with_descriptors(_turned(op) if plan.turned else op, plan, context, stmts)
    accumulator = Accumulator(op, plan, context)
    row, column = warp_origin(plan, context)
    shape, site = plan.instruction, op.site
    a: _Tile | Loader
    left = Operand(op.a, not op.transpose_a, shape.a, plan.atoms_m, plan.steps, row, site)
    right = Operand(op.b, op.transpose_b, shape.b, plan.atoms_n, plan.steps, column, site)
    a = make_loader(left, context) if left.in_place else _tile(left, shape.m, shape.k)
    b = _tile(right, shape.n, shape.k)

    def step(k: Expr) -> Stmt:
        first = binary("eq", k, int_const(0))
        replaces = op.clear if isinstance(op.clear, Const) else None
        clear = FALSE if replaces is FALSE else binary("logical_and", op.clear, first)
        clear = first if replaces is not None and replaces.value else clear

        def atom(i: Expr, j: Expr) -> Stmt:
            return Wgmma(
                a.atom(k, i), b.atom(k, j), accumulator.atom(i, j), clear, shape.n, shape.k,
                a.form if isinstance(a, _Tile) else (), b.form, site=site,
            )  # fmt: skip

        def line(i: Expr) -> Stmt:
            return unrolled(context, "j", plan.atoms_n, lambda j: atom(i, j), site)

        return unrolled(context, "i", plan.atoms_m, line, site)

    batch = [Fence("wgmma", site=site), unrolled(context, "k", plan.steps, step, site)]
    stmts += accumulator.added_to()
    stmts.append(Start(seq(batch), Engine.WGMMA, site=site))
    end = accumulator.end()
    if end or not context.started:  # else the kernel ends the group, and waits for it
        stmts.append(CommitGroup(Engine.WGMMA, site=site))
        stmts.append(WaitGroup(0, Engine.WGMMA, site=site))
    return seq([*stmts, *end])


def _tile(operand: Operand, rows: int, k: int) -> _Tile:
    buffer = operand.buffer
    assert isinstance(buffer.layout, Layout)  # `_with_descriptors` saw to it
    descriptor = find_descriptor(buffer.layout, buffer.dtype.bits, not operand.k_last, (rows, k))
    assert descriptor is not None, f"'{buffer.name}' has no descriptor"
    return _Tile(operand, descriptor, rows, k)


def _with_descriptors(
    op: Gemm, plan: MatrixPlan, context: ThreadContext, stmts: list[Stmt]
) -> Gemm:
    """`op` with operands that the instruction can read. Another operator may have chosen another
    layout for a shared tile, and A may be a fragment of another form: these are copied.
    """
    shape = plan.instruction
    a, b = op.a, op.b
    wanted = plan.fragment_a(op.transpose_a)
    if a.buffer.scope == "shared":
        a = _readable(a, op.transpose_a, (shape.m, shape.k), context, op.site, stmts)
    elif a.buffer.layout != context.placed(wanted, a.buffer):
        a = _moved(a, context, op.site, stmts)
    b = _readable(b, not op.transpose_b, (shape.n, shape.k), context, op.site, stmts)
    return replace(op, a=a, b=b)


def _readable(
    region: Region,
    transposed: bool,
    extents: tuple[int, int],
    context: ThreadContext,
    site: int,
    stmts: list[Stmt],
) -> Region:
    layout = region.buffer.layout
    known = isinstance(layout, Layout)
    bits = region.buffer.dtype.bits
    if known and find_descriptor(layout, bits, transposed, extents) is not None:
        return region
    return _moved(region, context, site, stmts)


def _moved(region: Region, context: ThreadContext, site: int, stmts: list[Stmt]) -> Region:
    """A copy of an operand in shared memory, in the layout that descriptors have."""
    buffer, zero = region.buffer, int_const(0)
    shape = region.extents[-2:]
    name = context.names.fresh(f"{buffer.name}_workspace")
    plain = Buffer(name, buffer.dtype, shape, "shared")
    workspace = replace(plain, layout=shared_layout(plain))
    context.prologue.allocs.append(Alloc(workspace, site=site))
    into = Region(workspace, (zero, zero), shape)
    stmts.append(parallel.lower(Copy(region, into, site=site), context))
    return into
