"""Device functions that emitted kernels call.

What C++ has no word for is one line of inline PTX (PTX ISA 8.0; the sections are named beside the
functions).
"""

from __future__ import annotations

from tileworkbench.compiler.emit.c_like.helpers import Helper, common_helpers
from tileworkbench.compiler.emit.cuda.atomics import ATOMICS
from tileworkbench.compiler.emit.cuda.copies import COPIES
from tileworkbench.compiler.emit.cuda.features import BFLOAT16, PAIRS
from tileworkbench.compiler.emit.cuda.functions import function
from tileworkbench.compiler.emit.cuda.matrices import MATRICES

BIT_CASTS = {
    ("float32", "int32"): "__float_as_int",
    ("float32", "uint32"): "__float_as_uint",
    ("int32", "float32"): "__int_as_float",
    ("uint32", "float32"): "__uint_as_float",
    ("float64", "int64"): "__double_as_longlong",
    ("float64", "uint64"): "__double_as_longlong",
    ("int64", "float64"): "__longlong_as_double",
    ("uint64", "float64"): "__longlong_as_double",
}


def _convert(name: str, to: str, from_: str, text: str, constraints: tuple[str, str]) -> str:
    out, into = constraints
    body = f'  {to} y;\n  asm("{text}" : "={out}"(y) : "{into}"(x));\n  return y;'
    return function(f"{to} {name}({from_} x)", body)


def _pair(name: str) -> Helper:
    body = (
        f'  unsigned y;\n  asm("cvt.rn.{name}x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));'
        "\n  return y;"
    )
    return Helper(function(f"unsigned {name}_pair(float low, float high)", body), (name,), PAIRS)


def _warp(kind: str, op: str, ctype: str) -> str:
    body = (
        "#pragma unroll\n"
        "  for (int d = 16; d > 0; d /= 2) {\n"
        f"    {ctype} y = __shfl_xor_sync(0xffffffffu, x, d);\n"
        f"    x = {op};\n"
        "  }\n"
        "  return x;"
    )
    return function(f"{ctype} warp_{kind}_{_NAMES[ctype]}({ctype} x)", body)


_NAMES = {"int": "i32", "unsigned": "u32", "float": "f32", "double": "f64"}
_WARP_OPS = {
    "sum": "x + y",
    "and": "x & y",
    "or": "x | y",
    "xor": "x ^ y",
}
_WARP_ORDER = {
    "int": ("x > y ? x : y", "x < y ? x : y"),
    "unsigned": ("x > y ? x : y", "x < y ? x : y"),
    "float": ("fmaxf(x, y)", "fminf(x, y)"),
    "double": ("fmax(x, y)", "fmin(x, y)"),
}


def _warp_helpers() -> dict[str, Helper]:
    found: dict[str, Helper] = {}
    for ctype, name in _NAMES.items():
        ops = {"sum": _WARP_OPS["sum"]}
        if ctype in ("int", "unsigned"):
            ops = dict(_WARP_OPS)
        ops["max"], ops["min"] = _WARP_ORDER[ctype]
        for kind, op in ops.items():
            found[f"warp_{kind}_{name}"] = Helper(_warp(kind, op, ctype))
    return found


HELPERS: dict[str, Helper] = {
    **common_helpers(function, BIT_CASTS, "__umulhi"),
    "odd_f32": Helper(
        function(
            "float odd_f32(double x)",
            "  float y = __double2float_rz(x);\n"
            "  return y < x || y > x ? __uint_as_float(__float_as_uint(y) | 1u) : y;",
        )
    ),
    "f16_to_f32": Helper(
        _convert("f16_to_f32", "float", "f16", "cvt.f32.f16 %0, %1;", ("f", "h")), ("f16",)
    ),
    "f16_from_f32": Helper(
        _convert("f16_from_f32", "f16", "float", "cvt.rn.f16.f32 %0, %1;", ("h", "f")), ("f16",)
    ),
    "bf16_from_f32": Helper(
        _convert("bf16_from_f32", "bf16", "float", "cvt.rn.bf16.f32 %0, %1;", ("h", "f")),
        ("bf16",),
        BFLOAT16,
    ),
    "f16_pair": _pair("f16"),
    "bf16_pair": _pair("bf16"),
    "smem_address": Helper(
        function(
            "unsigned smem_address(const void* p)",
            "  return (unsigned)__cvta_generic_to_shared(p);",
        )
    ),
    **_warp_helpers(),
    **ATOMICS,
    **COPIES,
    **MATRICES,
}
