"""Which register block a tile product uses, and what its packed operands take.

The block's size is a matter of registers: `mr` rows times `nr / lanes` vectors of accumulators, one
vector of B per column group and one broadcast of A have to fit. The structure is that of Goto and
van de Geijn, "Anatomy of high-performance matrix multiplication" (2008); the row counts are
measured.
"""

from __future__ import annotations

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.types import DType
from tileworkbench.compiler.target import Target

_FLOATS = ("float64", "float32", "float16", "bfloat16")
# Multiplied as float32, which holds their products exactly.
_WIDENED = (
    *("tfloat32", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"),
    *("float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn"),
)
_SMALL_INTEGERS = ("int8", "uint8", "int16")

LINE_OF_LEAST = 32
"""Elements behind panels of bfloat16 for the smallest exponent in them: a line of the cache."""

# Accumulator rows by number of vectors of columns: 32 vector registers, 16 registers, and 16 where
# a multiplication and an addition take a register more than a fused one.
_ROWS = {
    "avx512": {1: 16, 2: 12, 3: 8, 4: 6},
    "neon": {1: 16, 2: 12, 3: 8, 4: 6},
    "avx2": {1: 12, 2: 6},
    "generic": {1: 8, 2: 4, 3: 3, 4: 2},
}


@dataclass(frozen=True, slots=True)
class MicroTile:
    """A register block of `mr` x `nr` whose operands are stored as `panel_dtype`.

    `group` consecutive k lie together in packed operands, because one instruction sums them.
    """

    mr: int
    nr: int
    panel_dtype: DType
    group: int


def compute_dtype(in_dtype: DType, acc_dtype: DType) -> DType | None:
    """The dtype in which products are summed, or None where there is no micro-kernel."""
    if in_dtype in (*_FLOATS, *_WIDENED) and acc_dtype in _FLOATS:
        return DType("float64" if "float64" in (in_dtype, acc_dtype) else "float32")
    if in_dtype in _SMALL_INTEGERS and acc_dtype == "int32":
        return DType("int32")
    return None


def tile_dtype(dtype: DType) -> DType:
    """The dtype that elements of `dtype` are in the memory of a worker: those of 4 bits are bytes
    there.
    """
    names = {"int4": "int8", "uint4": "uint8", "tfloat32": "float32"}
    return DType(names.get(str(dtype), dtype))


def choose_micro_tile(
    m: int, n: int, k: int, in_dtype: DType, acc_dtype: DType, target: Target
) -> MicroTile | None:
    """The register block for c[m, n] += a[m, k] @ b[k, n], or None without a micro-kernel.

    The widest block the registers allow is best; columns that do not fill such blocks are divided
    evenly. Bytes are multiplied four at a time where the target can, else as pairs of int16;
    bfloat16 as pairs where it can, else as float32.
    """
    in_dtype = tile_dtype(in_dtype)
    compute = compute_dtype(in_dtype, acc_dtype)
    if compute is None:
        return None
    lanes, rows = target.vector_bits // compute.bits, _ROWS[target.arch]
    vectors = -(-n // lanes)
    panels = -(-vectors // max(rows))
    width = -(-vectors // panels)
    panel_dtype = compute
    if compute == "int32":
        panel_dtype = DType("int8" if in_dtype == "int8" and target.dot_int8 else "int16")
    elif compute == "float32" and in_dtype == "bfloat16" and target.dot_bfloat16:
        panel_dtype = in_dtype
    return MicroTile(min(m, rows[width]), width * lanes, panel_dtype, panel_group(panel_dtype))


def panel_group(panel_dtype: DType) -> int:
    """How many consecutive k of a packed operand lie together: 4 bytes, 2 int16 or bfloat16,
    else 1.
    """
    return {"int8": 4, "int16": 2, "bfloat16": 2}.get(str(panel_dtype), 1)


def panel_elements(operand: str, rows: int, cols: int, width: int, dtype: DType) -> int:
    """Elements of `dtype` that a `rows` x `cols` operand takes in panels of `width`.

    Panels of int8 of operand "b" are each followed by `4 * width` bytes for column sums, all of
    bfloat16 by a line of the cache for their smallest exponent.
    """
    group = panel_group(dtype)
    trailer = 4 * width if operand == "b" and dtype == "int8" else 0
    last = LINE_OF_LEAST if operand == "b" and dtype == "bfloat16" else 0
    return -(-rows // width) * (width * -(-cols // group) * group + trailer) + last
