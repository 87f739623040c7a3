"""`T.gemm`: a register-blocked micro-kernel on packed operands, or plain loops where the dtypes
have no micro-kernel.
"""

from __future__ import annotations

from tileworkbench.compiler.analysis.micro_tile import (
    MicroTile,
    choose_micro_tile,
    compute_dtype,
    panel_elements,
)
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.build import add, cast, const, const_int, int_const, mul
from tileworkbench.compiler.ir.expr import Address, Buffer, Const, Expr, Load, Region
from tileworkbench.compiler.ir.loops import counting
from tileworkbench.compiler.ir.sizes import const_shape, strides_of
from tileworkbench.compiler.ir.stmt import Alloc, If, Stmt, Store, seq
from tileworkbench.compiler.ir.tile import Gemm, MicroGemm, Pack
from tileworkbench.compiler.ir.types import FLOAT32, DType
from tileworkbench.compiler.layout.layout import Layout
from tileworkbench.compiler.lower.shared.regions import element
from tileworkbench.compiler.lower.vectors.context import Context, Vote
from tileworkbench.compiler.lower.vectors.elementwise import nest
from tileworkbench.compiler.lower.vectors.panels import panel_form, panel_storage


@dataclass(frozen=True, slots=True)
class _Operand:
    """One of A and B: its region and its dimensions along m (or n) and along k."""

    name: str
    region: Region
    outer: int
    inner: int

    @property
    def rows(self) -> int:
        return const_int(self.region.extents[self.outer]) or 0

    @property
    def cols(self) -> int:
        return const_int(self.region.extents[self.inner]) or 0

    @property
    def transposed(self) -> bool:
        """Whether k is not the last dimension."""
        return self.inner < self.outer


def _extents(op: Gemm) -> tuple[int, int, int]:
    """m, n and k."""
    m, n = (const_int(extent) or 0 for extent in op.c.extents[-2:])
    k = const_int(op.a.extents[-2 if op.transpose_a else -1]) or 0
    return m, n, k


def _micro_tile(op: Gemm, context: Context) -> MicroTile | None:
    kinds = (op.a.buffer.dtype, op.b.buffer.dtype)
    if kinds[0] != kinds[1] and not all(kind.is_float and kind.bits <= 8 for kind in kinds):
        return None
    target = context.target
    return choose_micro_tile(*_extents(op), op.a.buffer.dtype, op.c.buffer.dtype, target)


def _operand_a(op: Gemm) -> _Operand:
    last = len(op.a.extents) - 1
    return _Operand("a", op.a, last - (not op.transpose_a), last - op.transpose_a)


def _operand_b(op: Gemm) -> _Operand:
    last = len(op.b.extents) - 1
    return _Operand("b", op.b, last - op.transpose_b, last - (not op.transpose_b))


def infer_layout(op: Gemm, context: Context) -> tuple[Vote, ...]:
    """A is read where it lies, B in panels, both in the micro-kernel's dtype."""
    tile = _micro_tile(op, context)
    if tile is None:
        reason = "is used by a gemm without a micro-kernel"
        return tuple(Vote(region.buffer, reason) for region in (op.a, op.b, op.c))
    wishes = (_wish_for_a(_operand_a(op), tile), _wish_for_b(_operand_b(op), tile))
    return (*wishes, Vote(op.c.buffer, "holds the result of a gemm, row by row"))


def _wish_for_a(a: _Operand, tile: MicroTile) -> Vote:
    buffer, shape = a.region.buffer, const_shape(a.region.buffer)
    if shape is None:
        return Vote(buffer, "has a shape that is not known here")
    if a.transposed and tile.group > 1:
        return Vote(buffer, "is packed by each gemm")
    reason = f"operand A of a {tile.mr}x{tile.nr} micro-kernel, read row by row"
    return Vote(buffer, reason, Layout.row_major(shape), tile.panel_dtype)


def _wish_for_b(b: _Operand, tile: MicroTile) -> Vote:
    buffer, shape = b.region.buffer, const_shape(b.region.buffer)
    if shape is None or len(shape) != 2 or b.region.extents != buffer.shape:
        return Vote(buffer, "is used by a gemm in parts")
    if tile.group > 1 and b.cols <= tile.group:
        return Vote(buffer, "is packed by each gemm")  # one row of a panel does not tell its width
    if tile.panel_dtype == "int8":
        return Vote(buffer, "is packed by each gemm, with its column sums")
    layout = Layout.panels(shape, b.outer, tile.nr, tile.group)
    reason = f"operand B of a {tile.mr}x{tile.nr} micro-kernel, in panels of {tile.nr} columns"
    return Vote(buffer, reason, layout, tile.panel_dtype)


def lower(op: Gemm, context: Context) -> Stmt:
    """Pack the operands that are not in the layout of the micro-kernel yet, then run it."""
    tile = _planned_tile(op, context)
    if tile is None:
        return _lower_to_loops(op, context)
    stmts: list[Stmt] = []
    packed_b = _place_b(_operand_b(op), tile, context, op.site, stmts)
    packed_a, lda, columns = _place_a(_operand_a(op), tile, context, op.site, stmts)
    m, n, k = _extents(op)
    c, ldc = Address(op.c.buffer, op.c.mins), strides_of(op.c.buffer)[-2]
    stmts.append(
        MicroGemm(
            packed_a, lda, columns, packed_b, c, ldc, m, n, k, tile.mr, tile.nr, tile.group,
            op.clear, context.target.arch, site=op.site,
        )
    )  # fmt: skip
    return seq(stmts)


def _planned_tile(op: Gemm, context: Context) -> MicroTile | None:
    """The micro-tile, also when `infer_layouts` has widened the operands; none where elements
    share bytes.
    """
    if {op.a.buffer, op.b.buffer} & context.packed:
        return None
    m, n, k = _extents(op)
    dtypes = [region.buffer.dtype for region in (op.a, op.b)]
    acc = op.c.buffer.dtype
    if acc == "int32" and "int16" in dtypes:
        dtypes = [DType("int16")] * 2  # widened bytes, whatever their sign was
    elif compute_dtype(dtypes[0], acc) is not None and compute_dtype(dtypes[1], acc) is not None:
        dtypes.sort(key=lambda dtype: -dtype.bits)
    elif dtypes[0] != dtypes[1]:
        return None
    return choose_micro_tile(m, n, k, dtypes[0], acc, context.target)


def _place_a(
    a: _Operand, tile: MicroTile, context: Context, site: int, stmts: list[Stmt]
) -> tuple[Address, Expr, bool]:
    """Where the micro-kernel reads A, the stride of its rows, and whether k is the slow index."""
    buffer = a.region.buffer
    in_place = panel_form(buffer) is None and buffer.dtype == tile.panel_dtype
    if in_place and not (a.transposed and tile.group > 1):
        return Address(buffer, a.region.mins), strides_of(buffer)[-2], a.transposed
    width = a.rows if a.transposed else 1
    packed = _pack(a, width, tile, context, site, stmts)
    stride = a.rows if a.transposed else -(-a.cols // tile.group) * tile.group
    return packed, int_const(stride), a.transposed


def _place_b(
    b: _Operand, tile: MicroTile, context: Context, site: int, stmts: list[Stmt]
) -> Address:
    """Where the micro-kernel finds the panels of B."""
    buffer = b.region.buffer
    form = panel_form(buffer)
    if form is not None and buffer.dtype == tile.panel_dtype:
        return Address(panel_storage(buffer, form), (int_const(0),))
    one_panel = b.transposed and const_int(buffer.shape[-1]) == tile.nr == b.rows
    if form is None and buffer.dtype == tile.panel_dtype and tile.group == 1 and one_panel:
        return Address(buffer, b.region.mins)  # row-major [k, nr] is a panel
    return _pack(b, tile.nr, tile, context, site, stmts)


def _pack(
    operand: _Operand, width: int, tile: MicroTile, context: Context, site: int, stmts: list[Stmt]
) -> Address:
    """Pack an operand into a fresh scratch buffer."""
    region, buffer = operand.region, operand.region.buffer
    size = panel_elements(operand.name, operand.rows, operand.cols, width, tile.panel_dtype)
    name = context.names.fresh(f"{buffer.name}_packed")
    packed = Buffer(name, tile.panel_dtype, (int_const(size),), "shared")
    strides, into = strides_of(buffer), Address(packed, (int_const(0),))
    rows, cols = operand.rows, operand.cols
    stmts += [
        Alloc(packed, site=site),
        Pack(
            operand.name, Address(buffer, region.mins), strides[operand.outer],
            strides[operand.inner], into, rows, cols, int_const(rows), int_const(cols), width,
            tile.group, site=site,
        ),
    ]  # fmt: skip
    return into


def _lower_to_loops(op: Gemm, context: Context) -> Stmt:
    """`c[i, j] += a[i, k] * b[k, j]` in c's dtype, vectorised along j.

    Floats narrower than float32 are summed as that, in a tile beside c, and rounded once.
    """
    m, n, k = _extents(op)
    dtype, extents = op.c.buffer.dtype, (int_const(m), int_const(n))
    c_dims = (len(op.c.extents) - 2, len(op.c.extents) - 1)
    last_a, last_b = len(op.a.extents) - 1, len(op.b.extents) - 1
    is_narrow = dtype.is_float and dtype.bits < FLOAT32.bits
    wide = FLOAT32 if is_narrow else dtype
    name = context.names.fresh(f"{op.c.buffer.name}_sum")
    total = Buffer(name, wide, extents, "shared") if is_narrow else op.c.buffer

    def place(at: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return element(op.c, dict(zip(c_dims, at, strict=True)))

    def clear(at: tuple[Expr, ...]) -> Stmt:
        return Store(op.c.buffer, place(at), const(0, dtype), site=op.site)

    def widen(at: tuple[Expr, ...]) -> Stmt:
        return Store(total, at, cast(Load(op.c.buffer, place(at)), wide), site=op.site)

    def narrow(at: tuple[Expr, ...]) -> Stmt:
        return Store(op.c.buffer, place(at), cast(Load(total, at), dtype), site=op.site)

    def accumulate(at: tuple[Expr, ...]) -> Stmt:
        i, j = at
        step = context.names.var("k")
        a = {last_a - (not op.transpose_a): i, last_a - op.transpose_a: step}
        b = {last_b - op.transpose_b: j, last_b - (not op.transpose_b): step}
        index = at if is_narrow else place(at)
        left = cast(Load(op.a.buffer, element(op.a, a)), wide)
        right = cast(Load(op.b.buffer, element(op.b, b)), wide)
        update = Store(total, index, add(Load(total, index), mul(left, right)), site=op.site)
        return counting(step, k, update, op.site)

    stmts: list[Stmt] = []
    if not (isinstance(op.clear, Const) and not op.clear.value):
        zero = nest(context, extents, op.site, clear)
        stmts.append(zero if isinstance(op.clear, Const) else If(op.clear, zero, site=op.site))
    if is_narrow:
        stmts += [Alloc(total, site=op.site), nest(context, extents, op.site, widen)]
    stmts.append(nest(context, extents, op.site, accumulate))
    if is_narrow:
        stmts.append(nest(context, extents, op.site, narrow))
    return seq(stmts)
