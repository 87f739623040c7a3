"""Matrix products whose operands are stored in another form: two of four elements, or with scales
per block.

Each writes its operands out in the form that `T.gemm` takes, into shared memory of its own, and is
finished before the next statement.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from tileworkbench.compiler.diagnostics import ShapeError, TileTypeError, TileValueError
from tileworkbench.compiler.frontend.buffers import new_buffer
from tileworkbench.compiler.frontend.builder import Builder, in_kernel
from tileworkbench.compiler.frontend.regions import to_region
from tileworkbench.compiler.frontend.tensors import TensorValue
from tileworkbench.compiler.frontend.values import index_expr
from tileworkbench.compiler.ir import build
from tileworkbench.compiler.ir.expr import Expr, Load, Region, Reinterpret, Var
from tileworkbench.compiler.ir.printer import show_shape
from tileworkbench.compiler.ir.stmt import Alloc, Store
from tileworkbench.compiler.ir.tile import Parallel
from tileworkbench.compiler.ir.types import DType
from tileworkbench.language.tile import GemmWarpPolicy, gemm, operator_builder

_KEPT_OF = 4  # of four neighbours along k two are stored


def gemm_sp(
    A_sparse: Any,
    E: Any,
    B: Any,
    C: Any,
    transpose_A: bool = False,
    transpose_E: bool = False,
    transpose_B: bool = False,
    policy: Any = GemmWarpPolicy.Square,
    clear_accum: Any = False,
    annotations: Any = None,
) -> None:
    """`C += A @ op(B)` for a matrix A of which, of every four neighbours along k, two are stored.

    `A_sparse` is (M, K / 2), or (K / 2, M) when `transpose_A`. `E` holds four bits for each four
    neighbours, the lowest bits first: the positions (0 to 3) of the two stored ones, the first in
    the low two bits. It is (M, K / 4 / n) of 8-, 16- or 32-bit integers with n = 2, 4 or 8 such
    groups each, or transposed when `transpose_E`. For 32-bit elements one of each two neighbours is
    stored, and its four bits are 0b0100 or 0b1110. Operands are tiles as in `T.gemm`. Raises
    `ShapeError`, `TileTypeError` or `TileValueError` for operands that do not fit.

    >>> half = T.alloc_shared((64, 32), T.float16)
    >>> meta = T.alloc_shared((64, 4), T.int16)
    >>> T.copy(A[:, 0:32], half)
    >>> T.fill(meta, 0x4444)
    >>> T.gemm_sp(half, meta, b, acc)
    """
    builder = operator_builder("T.gemm_sp")
    a, e = to_region(A_sparse, "T.gemm_sp", "operand A"), to_region(E, "T.gemm_sp", "operand E")
    rows, stored = _matrix("T.gemm_sp", "A", a, transpose_A)
    if not e.buffer.dtype.is_int or e.buffer.dtype.bits < 8:
        raise TileTypeError(
            f"operand E of T.gemm_sp, '{e.buffer.name}', must hold integers, not '{e.buffer.dtype}'"
        )
    whole = stored * 2
    group = 2 if a.buffer.dtype.bits == 32 else _KEPT_OF
    in_item = e.buffer.dtype.bits // 4
    wanted = (rows, whole // group // in_item)
    if whole % (group * in_item) or _matrix("T.gemm_sp", "E", e, transpose_E) != wanted:
        raise ShapeError(
            f"operand E of T.gemm_sp is {show_shape(e.extents)}, and '{a.buffer.name}' of shape "
            f"{show_shape(a.extents)} needs {wanted[0]} times {wanted[1]} items of "
            f"'{e.buffer.dtype}'"
        )

    def value(row: Var, column: Var) -> Expr:
        number = _divided(column, group)
        item = _element(e, row, _divided(number, in_item), transpose_E)
        bits = DType(f"uint{e.buffer.dtype.bits}")
        start = build.cast(build.mul(_rest(number, in_item), build.int_const(4)), bits)
        code = build.binary("shr", build.cast(item, bits), start)
        if group == 2:
            return _chosen(a, row, number, _position(code, 1, 1), _rest(column, 2), transpose_A)
        first = build.mul(number, build.int_const(2))
        second = build.add(first, build.int_const(1))
        place = _rest(column, group)
        other = _chosen(a, row, second, _position(code, 2, 2), place, transpose_A)
        stored_first = _element(a, row, first, transpose_A)
        here = build.binary("eq", _position(code, 0, 2), place)
        return build.select(here, stored_first, other)

    dense = _written(builder, f"{a.buffer.name}_dense", a.buffer.dtype, (rows, whole), value)
    gemm(dense, B, C, False, transpose_B, policy, clear_accum)


wgmma_gemm_sp = gemm_sp


def gemm_blockscaled(
    A: Any,
    B: Any,
    C: Any,
    SFA: Any,
    SFB: Any,
    transpose_A: bool = False,
    transpose_B: bool = False,
    policy: Any = GemmWarpPolicy.Square,
    clear_accum: Any = False,
    wg_wait: int = 0,
    mbar: Any = None,
    *,
    k_start: Any = 0,
    sf_a_granularity_k: int = 32,
    sf_b_granularity_k: int = 32,
    use_2cta: bool = False,
    sf_layout: str | None = None,
    annotations: Any = None,
) -> None:
    """`C += (A * SFA) @ (B * SFB)`: each element times the scale of its row (of its column for B)
    and its block of `sf_a_granularity_k` or `sf_b_granularity_k` elements along k.

    Operands are those of `T.gemm`; scaled elements are float32. `SFA` is an (M, S) tile of floats
    (`float8_e8m0fnu`), or of 32-bit words with four e8m0 scales each, the lowest byte first; `SFB`
    is the same with N rows. Element k uses scale number `(k_start + k) // granularity` modulo the
    scales of a row. `policy`, `wg_wait`, `use_2cta`, `sf_layout` and `annotations` change no
    result, `mbar` is that of `T.gemm`. Raises as `T.gemm`.

    >>> scale = T.alloc_shared((64, 2), T.float32)
    >>> T.fill(scale, 1)
    >>> T.gemm_blockscaled(a, b, acc, scale, scale)
    """
    builder = operator_builder("T.gemm_blockscaled")
    sides = (
        ("A", A, SFA, bool(transpose_A), sf_a_granularity_k),
        ("B", B, SFB, not transpose_B, sf_b_granularity_k),
    )
    start, _ = index_expr(k_start, "'k_start' of T.gemm_blockscaled")
    left, right = (_scaled(builder, *side, start) for side in sides)
    gemm(left, right, C, False, True, policy, clear_accum, mbar=mbar)


mma_gemm_blockscaled = gemm_blockscaled


@wraps(gemm_blockscaled)
def tcgen05_gemm_blockscaled(*args: Any, **options: Any) -> None:
    """The same, where the architecture's matrix unit has tensor memory; no code for one yet.

    >>> scale = T.alloc_shared((64, 2), T.float32)
    >>> T.fill(scale, 1)
    >>> T.tcgen05_gemm_blockscaled(a, b, acc, scale, scale)
    """
    builder = in_kernel("T.tcgen05_gemm_blockscaled")
    builder.uses.append(("T.tcgen05_gemm_blockscaled", builder.site))
    gemm_blockscaled(*args, **options)


def _scaled(
    builder: Builder,
    name: str,
    operand: Any,
    scales: Any,
    transposed: bool,
    granularity: Any,
    start: Expr,
) -> TensorValue:
    """An operand times its scales, with k along its rows."""
    region = to_region(operand, "T.gemm_blockscaled", f"operand {name}")
    factors = to_region(scales, "T.gemm_blockscaled", f"the scales of {name}")
    rows, columns = _matrix("T.gemm_blockscaled", name, region, transposed)
    if isinstance(granularity, bool) or not isinstance(granularity, int) or granularity <= 0:
        raise TileValueError(
            f"the granularity of operand {name} of T.gemm_blockscaled must be a positive integer, "
            f"not {granularity!r}"
        )
    held = [build.const_int(extent) for extent in factors.extents]
    dtype = factors.buffer.dtype
    packed = dtype in ("uint32", "int32")
    if held[0] != rows or len(held) > 2 or not (packed or dtype.is_float):
        raise ShapeError(
            f"the scales of operand {name} of T.gemm_blockscaled, '{factors.buffer.name}', are "
            f"{show_shape(factors.extents)} of '{dtype}'",
            hint=f"it needs {rows} rows of floats, or of 32-bit words with four scales each",
        )
    in_row = (held[1] or 1) if len(held) == 2 else 1
    count = in_row * (4 if packed else 1)

    def value(row: Var, column: Var) -> Expr:
        number = _rest(_divided(build.add(start, column), granularity), count)
        item = _divided(number, 4) if packed else number
        at = (row, item) if len(held) == 2 else (row,)
        places = tuple(build.add(low, i) for low, i in zip(factors.mins, at, strict=True))
        scale: Expr = Load(factors.buffer, places)
        if packed:
            scale = _byte_scale(scale, _rest(number, 4))
        element = _element(region, row, column, transposed)
        return build.mul(build.cast(element, "float32"), build.cast(scale, "float32"))

    single = DType("float32")
    return _written(builder, f"{region.buffer.name}_scaled", single, (rows, columns), value)


def _byte_scale(word: Expr, number: Expr) -> Expr:
    """Scale `number` of the four e8m0 exponents in a word."""
    bits, byte = DType("uint32"), DType("uint8")
    shift = build.cast(build.mul(number, build.int_const(8)), bits)
    code = build.cast(build.binary("shr", build.cast(word, bits), shift), byte)
    return Reinterpret(code, DType("float8_e8m0fnu"))


def _matrix(construct: str, name: str, region: Region, transposed: bool) -> tuple[int, int]:
    """The rows and columns of an operand, whose leading extents are 1."""
    sizes = [build.const_int(extent) for extent in region.extents]
    if len(sizes) < 2 or any(size != 1 for size in sizes[:-2]) or None in sizes:
        raise ShapeError(
            f"operand {name} of {construct}, '{region.buffer.name}', must be a matrix of constant "
            f"extents, not {show_shape(region.extents)}"
        )
    rows, columns = (size or 0 for size in sizes[-2:])
    return (columns, rows) if transposed else (rows, columns)


def _element(region: Region, row: Expr, column: Expr, transposed: bool) -> Expr:
    at = (column, row) if transposed else (row, column)
    last = tuple(build.add(low, i) for low, i in zip(region.mins[-2:], at, strict=True))
    return Load(region.buffer, (*region.mins[:-2], *last))


def _chosen(
    region: Region, row: Expr, stored: Expr, position: Expr, place: Expr, transposed: bool
) -> Expr:
    """The stored element where its position is `place`, else zero."""
    element = _element(region, row, stored, transposed)
    here = build.binary("eq", position, place)
    return build.select(here, element, build.const(0, element.dtype))


def _position(code: Expr, start: int, bits: int) -> Expr:
    moved = build.binary("shr", code, build.const(start, code.dtype))
    return build.cast(build.binary("and", moved, build.const((1 << bits) - 1, code.dtype)), "int32")


def _divided(value: Expr, factor: int) -> Expr:
    return build.binary("floordiv", value, build.int_const(factor))


def _rest(value: Expr, factor: int) -> Expr:
    return build.binary("floormod", value, build.int_const(factor))


def _written(
    builder: Builder,
    name: str,
    dtype: DType,
    shape: tuple[int, int],
    value: Callable[[Var, Var], Expr],
) -> TensorValue:
    """A new tile in shared memory with `value` at each row and column."""
    extents = tuple(build.int_const(extent) for extent in shape)
    buffer = new_buffer(builder.fresh(name), dtype, extents, "shared")
    builder.emit(Alloc(buffer))
    row, column = builder.fresh_var("i", "int32"), builder.fresh_var("j", "int32")
    store = Store(buffer, (row, column), value(row, column), site=builder.site)
    builder.emit(Parallel((row, column), extents, store))
    return TensorValue(buffer, builder.bind(buffer.name, allocated=True))
