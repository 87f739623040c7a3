"""Device functions around MFMA: "Matrix Arithmetic Instructions" of AMD's ISA guides.

Operand B is given first, so that what a lane has of the result are neighbours in a row.
"""

from __future__ import annotations

from tileworkbench.compiler.emit.c_like.helpers import Helper
from tileworkbench.compiler.emit.hip.functions import function
from tileworkbench.compiler.ir.types import DType
from tileworkbench.compiler.machine.instructions import MatrixInstruction

_KINDS = {
    **{"float16": "f16", "bfloat16": "bf16", "int8": "i8"},
    **{"float32": "f32", "tfloat32": "xf32", "float64": "f64"},
    **dict.fromkeys(("float8_e4m3fn", "float8_e4m3fnuz"), "fp8"),
    **dict.fromkeys(("float8_e5m2", "float8_e5m2fnuz"), "bf8"),
}
# For an operand and the 32-bit words of it in a lane: its type, and how the instruction ends.
_OPERANDS = {
    ("f16", 2): ("f16r4", "f16"),
    ("f16", 4): ("f16r8", "_f16"),
    ("bf16", 2): ("i16r4", "bf16_1k"),
    ("bf16", 4): ("bf16r8", "_bf16"),
    ("i8", 1): ("int", "i8"),
    ("i8", 2): ("i64r1", "_i8"),
    ("i8", 4): ("i32r4", "_i8"),
    ("f32", 1): ("float", "f32"),
    ("xf32", 2): ("f32r2", "_xf32"),
    ("f64", 2): ("double", "f64"),
    ("fp8", 2): ("i64r1", "_fp8"),
    ("bf8", 2): ("i64r1", "_bf8"),
    ("fp8", 8): ("i32r8", "_f8f6f4"),
    ("bf8", 8): ("i32r8", "_f8f6f4"),
}
_FORMATS = {"fp8": 0, "bf8": 1}  # that the instruction for several formats is told
_RESULTS = {"float32": ("f32", "float"), "float64": ("f64", "double"), "int32": ("i32", "int")}


def mfma_helper(row: MatrixInstruction) -> tuple[str, Helper]:
    """`row` as a function of the registers of a lane; `c` is updated in place."""
    kinds = [_KINDS[dtype] for dtype in row.dtypes[:2]]
    name = f"mfma_{row.m}x{row.n}x{row.k}_{'_'.join(dict.fromkeys(kinds))}"
    result, c_type = _RESULTS[row.c.dtype]
    bits = DType(row.a.dtype).bits
    held = row.a.fragment.slots * bits // 32
    words = held // row.issues
    (a_type, ending), (b_type, other) = (_OPERANDS[kind, words] for kind in kinds)
    scaled, how = "", "0, 0, 0"
    if words == 8:  # formats, and no scales
        scaled, how = "scale_", f"{_FORMATS[kinds[1]]}, {_FORMATS[kinds[0]]}, 0, 0, 0, 0"
    elif kinds[0] in _FORMATS:
        ending = other + ending  # as they are given
    size = f"{row.m}x{row.m}x{row.k // row.issues}"
    called = f"__builtin_amdgcn_mfma_{scaled}{result}_{size}{ending}"
    pointer = "double" if bits == 64 else "unsigned"
    sums = row.c.fragment.slots // row.across
    lines = []
    for column in range(row.across):
        c = f"*({result}r{sums}*)c"
        if row.across > 1:  # results take turns
            c = f"d{column}"
            lines.append(f"  {result}r{sums} {c};")
            lines += _each(sums, f"{c}[v] = c[v * {row.across} + {column}]")
        for issue in range(row.issues):
            at = issue * words * 32 // max(bits, 32)
            b, a = _moved("b", column * held + at), _moved("a", at)
            lines.append(
                f"  {c} = {called}(*(const {b_type}*){b}, *(const {a_type}*){a}, {c}, {how});"
            )
        if row.across > 1:
            lines += _each(sums, f"c[v * {row.across} + {column}] = {c}[v]")
    signature = f"void {name}({c_type}* c, const {pointer}* a, const {pointer}* b)"
    return name, Helper(function(signature, "\n".join(lines)))


def _each(count: int, statement: str) -> list[str]:
    return ["#pragma unroll", f"  for (int v = 0; v < {count}; ++v) {statement};"]


def _moved(pointer: str, by: int) -> str:
    return f"({pointer} + {by})" if by else pointer
