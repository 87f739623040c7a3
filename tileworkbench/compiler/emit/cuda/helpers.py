"""Device functions that emitted kernels call.

What C++ has no word for is one line of inline PTX (PTX ISA 8.0; the sections are named beside the
functions).
"""

from __future__ import annotations

from tileworkbench.compiler.emit.c_like.helpers import Helper, common_helpers
from tileworkbench.compiler.emit.cuda.atomics import ATOMICS
from tileworkbench.compiler.emit.cuda.clusters import CLUSTERS
from tileworkbench.compiler.emit.cuda.copies import COPIES
from tileworkbench.compiler.emit.cuda.features import BFLOAT16, PAIRS
from tileworkbench.compiler.emit.cuda.functions import function
from tileworkbench.compiler.emit.cuda.matrices import MATRICES
from tileworkbench.compiler.emit.cuda.tensors import TENSORS
from tileworkbench.compiler.emit.cuda.wgmma import WGMMA

WARP_TYPES = {"int": "i32", "unsigned": "u32", "float": "f32", "double": "f64"}
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


def _convert(half: str, to: str, from_: str, feature: str = "") -> Helper:
    """A conversion between float32 and 16 bits."""
    kind, direction = ("f32." + half, "to") if to == "float" else (f"rn.{half}.f32", "from")
    out, into = ("f", "h") if to == "float" else ("h", "f")
    text = f'asm("cvt.{kind} %0, %1;" : "={out}"(y) : "{into}"(x));'
    signature = f"{to} {half}_{direction}_f32({from_} x)"
    return Helper(function(signature, f"  {to} y;\n  {text}\n  return y;"), (half,), feature)


def _pair(half: str) -> Helper:
    text = f'asm("cvt.rn.{half}x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));'
    signature = f"unsigned {half}_pair(float low, float high)"
    return Helper(function(signature, f"  unsigned y;\n  {text}\n  return y;"), (half,), PAIRS)


def _warp(kind: str, op: str, c_type: str) -> Helper:
    body = f"""#pragma unroll
  for (int d = 16; d > 0; d /= 2) {{
    {c_type} y = __shfl_xor_sync(0xffffffffu, x, d);
    x = {op};
  }}
  return x;"""
    return Helper(function(f"{c_type} warp_{kind}_{WARP_TYPES[c_type]}({c_type} x)", body))


_INTEGER = {"sum": "x + y", "and": "x & y", "or": "x | y", "xor": "x ^ y"} | {
    "max": "x > y ? x : y",
    "min": "x < y ? x : y",
}
_WARP = {
    **{"int": _INTEGER, "unsigned": _INTEGER},
    "float": {"sum": "x + y", "max": "fmaxf(x, y)", "min": "fminf(x, y)"},
    "double": {"sum": "x + y", "max": "fmax(x, y)", "min": "fmin(x, y)"},
}

HELPERS: dict[str, Helper] = {
    **common_helpers(function, BIT_CASTS, "__umulhi"),
    "odd_f32": Helper(
        function(
            "float odd_f32(double x)",
            "  float y = __double2float_rz(x);\n"
            "  return y < x || y > x ? __uint_as_float(__float_as_uint(y) | 1u) : y;",
        )
    ),
    "f16_to_f32": _convert("f16", "float", "f16"),
    "f16_from_f32": _convert("f16", "f16", "float"),
    "bf16_from_f32": _convert("bf16", "bf16", "float", BFLOAT16),
    "f16_pair": _pair("f16"),
    "bf16_pair": _pair("bf16"),
    "smem_address": Helper(
        function(
            "unsigned smem_address(const void* p)",
            "  return (unsigned)__cvta_generic_to_shared(p);",
        )
    ),
    **{
        f"warp_{kind}_{WARP_TYPES[c_type]}": _warp(kind, op, c_type)
        for c_type, ops in _WARP.items()
        for kind, op in ops.items()
    },
    **ATOMICS,
    **COPIES,
    **CLUSTERS,
    **MATRICES,
    **TENSORS,
    **WGMMA,
}
