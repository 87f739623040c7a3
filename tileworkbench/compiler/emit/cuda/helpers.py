"""Device functions that emitted kernels call, each pasted only where it is used.

No header is included and nothing is a template: 16-bit floats travel as bits, and what C++ has no
word for is one line of inline PTX (PTX ISA 8.0; the sections are named beside the functions).
"""

from __future__ import annotations

from tileworkbench.compiler.emit.c_like.functions import Helper, function
from tileworkbench.compiler.emit.cuda.atomics import ATOMICS
from tileworkbench.compiler.emit.cuda.copies import COPIES
from tileworkbench.compiler.emit.cuda.matrices import MATRICES


def _convert(name: str, to: str, from_: str, text: str, constraints: tuple[str, str]) -> str:
    out, into = constraints
    body = f'  {to} y;\n  asm("{text}" : "={out}"(y) : "{into}"(x));\n  return y;'
    return function(f"{to} {name}({from_} x)", body)


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


# Philox4x32-10: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3".
_PHILOX = """__device__ __forceinline__ unsigned philox(
    unsigned a, unsigned b, unsigned c, unsigned d, unsigned key, unsigned other, unsigned word) {
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    unsigned high = __umulhi(0xD2511F53u, a), low = 0xD2511F53u * a;
    unsigned above = __umulhi(0xCD9E8D57u, c), below = 0xCD9E8D57u * c;
    a = above ^ b ^ key, b = below, c = high ^ d ^ other, d = low;
    key += 0x9E3779B9u, other += 0xBB67AE85u;
  }
  return word == 0 ? a : word == 1 ? b : word == 2 ? c : d;
}"""

HELPERS: dict[str, Helper] = {
    "odd_f32": Helper(
        function(
            "float odd_f32(double x)",
            "  float y = __double2float_rz(x);\n"
            "  return y < x || y > x ? __uint_as_float(__float_as_uint(y) | 1u) : y;",
        )
    ),
    "f16": Helper("typedef unsigned short f16;"),
    "bf16": Helper("typedef unsigned short bf16;"),
    "f16_to_f32": Helper(
        _convert("f16_to_f32", "float", "f16", "cvt.f32.f16 %0, %1;", ("f", "h")), ("f16",)
    ),
    "f16_from_f32": Helper(
        _convert("f16_from_f32", "f16", "float", "cvt.rn.f16.f32 %0, %1;", ("h", "f")), ("f16",)
    ),
    "bf16_to_f32": Helper(
        function("float bf16_to_f32(bf16 x)", "  return __uint_as_float((unsigned)x << 16);"),
        ("bf16",),
    ),
    "bf16_from_f32": Helper(
        _convert("bf16_from_f32", "bf16", "float", "cvt.rn.bf16.f32 %0, %1;", ("h", "f")),
        ("bf16",),
        80,
    ),
    "f16_pair": Helper(
        function(
            "unsigned f16_pair(float low, float high)",
            '  unsigned y;\n  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));'
            "\n  return y;",
        ),
        ("f16",),
        80,
    ),
    "bf16_pair": Helper(
        function(
            "unsigned bf16_pair(float low, float high)",
            '  unsigned y;\n  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));'
            "\n  return y;",
        ),
        ("bf16",),
        80,
    ),
    "get16": Helper(
        function(
            "unsigned short get16(const unsigned* words, int i)",
            "  return (unsigned short)(words[i / 2] >> (i % 2 * 16));",
        )
    ),
    "set16": Helper(
        function(
            "void set16(unsigned* words, int i, unsigned short x)",
            "  unsigned shift = i % 2 * 16;\n"
            "  words[i / 2] = (words[i / 2] & ~(0xffffu << shift)) | (unsigned)x << shift;",
        )
    ),
    "get8": Helper(
        function(
            "unsigned char get8(const unsigned* words, int i)",
            "  return (unsigned char)(words[i / 4] >> (i % 4 * 8));",
        )
    ),
    "set8": Helper(
        function(
            "void set8(unsigned* words, int i, unsigned char x)",
            "  unsigned shift = i % 4 * 8;\n"
            "  words[i / 4] = (words[i / 4] & ~(0xffu << shift)) | (unsigned)x << shift;",
        )
    ),
    "get4": Helper(
        function(
            "unsigned char get4(const unsigned char* bytes, int i)",
            "  return bytes[i / 2] >> (i % 2 * 4) & 15;",
        )
    ),
    "set4": Helper(
        function(
            "void set4(unsigned* words, int i, unsigned char x)",
            "  unsigned shift = i % 8 * 4;\n"
            "  words[i / 8] = (words[i / 8] & ~(15u << shift)) | (x & 15u) << shift;",
        )
    ),
    "philox": Helper(_PHILOX),
    "smem_address": Helper(
        function(
            "unsigned smem_address(const void* p)",
            "  return (unsigned)__cvta_generic_to_shared(p);",
        )
    ),
    "floordiv": Helper(
        function(
            "int floordiv(int a, int b)",
            "  int q = a / b;\n  return q - (a % b != 0 && (a < 0) != (b < 0));",
        )
    ),
    "floormod": Helper(
        function(
            "int floormod(int a, int b)",
            "  int r = a % b;\n  return r != 0 && (r < 0) != (b < 0) ? r + b : r;",
        )
    ),
    "floordiv_i64": Helper(
        function(
            "long long floordiv_i64(long long a, long long b)",
            "  long long q = a / b;\n  return q - (a % b != 0 && (a < 0) != (b < 0));",
        )
    ),
    "floormod_i64": Helper(
        function(
            "long long floormod_i64(long long a, long long b)",
            "  long long r = a % b;\n  return r != 0 && (r < 0) != (b < 0) ? r + b : r;",
        )
    ),
    **{
        f"{kind}_nan{suffix}": Helper(
            function(
                f"{ctype} {kind}_nan{suffix}({ctype} a, {ctype} b)",
                f"  return a != a ? a : b != b ? b : f{kind}{suffix}(a, b);",
            )
        )
        for kind in ("max", "min")
        for ctype, suffix in (("float", "f"), ("double", ""))
    },
    **_warp_helpers(),
    **ATOMICS,
    **COPIES,
    **MATRICES,
}


def resolve(names: dict[str, Helper]) -> list[str]:
    """The texts of the helpers in `names` and of all they need, needed ones first."""
    done: dict[str, str] = {}  # in order: what is needed comes first

    def add(name: str, helper: Helper) -> None:
        if name not in done:
            for needed in helper.needs:
                add(needed, names.get(needed) or HELPERS[needed])
            done[name] = helper.text

    for name, helper in names.items():
        add(name, helper)
    return list(done.values())
