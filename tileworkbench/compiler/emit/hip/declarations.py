"""What a text says before its first function, so that it needs no header: the words of HIP where
the compiler does not bring them, vectors, and mathematics that the machine has instructions for.

Texts are read by ROCm's compiler and by plain clang. Names are our own wherever ROCm's headers have
a function of that name. Each declaration stands in a text that uses it.
"""

from __future__ import annotations

import re

from tileworkbench.compiler.emit.hip.functions import function

_WORDS = {
    "__global__": "global",
    "__device__": "device",
    "__shared__": "shared",
    "__constant__": "constant",
}
VECTORS = {
    "unsigned": "u32",
    "int": "i32",
    "float": "f32",
    "double": "f64",
    "long long": "i64",
    "unsigned long long": "u64",
}
_CASTS = {
    "as_int": "int",
    "as_uint": "unsigned",
    "as_float": "float",
    "as_long": "long long",
    "as_ulong": "unsigned long long",
    "as_double": "double",
}
BIT_CASTS = {
    ("float32", "int32"): "as_int",
    ("float32", "uint32"): "as_uint",
    ("int32", "float32"): "as_float",
    ("uint32", "float32"): "as_float",
    ("float64", "int64"): "as_long",
    ("float64", "uint64"): "as_ulong",
    ("int64", "float64"): "as_double",
    ("uint64", "float64"): "as_double",
}
# Elements of a lane's registers as one value, of MFMA: named by type and count.
_REGISTERS = {
    **{"f16": "_Float16", "bf16": "__bf16", "i16": "short"},
    **{"f32": "float", "f64": "double", "i32": "int"},
}
# What the core calls, and the compiler has without a header under another name.
_BUILTINS = (
    "exp",
    "expf",
    "fmaxf",
    "fminf",
    "fabsf",
    "fmodf",
    "powf",
    "fmax",
    "fmin",
    "fabs",
    "fmod",
)


def _mathematics() -> dict[str, str]:
    """Functions of float32 that are no instruction. Two pi is taken off in three parts."""
    small = (
        "  if (__builtin_fabsf(x) < {edge}f) {{\n    float y = x * x;\n    return {series};\n  }}\n"
    )
    tanh = "x * (1.0f + y * (-0.33333333f + y * (0.13333333f + y * (-0.053968254f + "
    erf = "1.12837917f * x * (1.0f + y * (-0.33333333f + y * (0.1f + y * (-0.023809524f + "
    exp = "__builtin_expf"
    bodies = {
        "rsqrt_f32": "  const bool small = x < 1.17549435e-38f;  // which v_rsq takes for zero\n"
        "  float y = __builtin_amdgcn_rsqf(small ? x * 16777216.0f : x);\n"
        "  return small ? y * 4096.0f : y;",
        "reduced_f32": "  float k = __builtin_rintf(x * 0.15915494f);\n"
        "  x = __builtin_fmaf(k, -6.28125f, x);\n"
        "  x = __builtin_fmaf(k, -1.9353072e-03f, x);\n"
        "  return __builtin_fmaf(k, -1.0253132e-11f, x);",
        "sin_f32": "  return __builtin_sinf(reduced_f32(x));",
        "cos_f32": "  return __builtin_cosf(reduced_f32(x));",
        "tan_f32": "  return sin_f32(x) / cos_f32(x);",
        "log1p_f32": "  float y = 1.0f + x;\n"
        "  return y == 1.0f ? x : __builtin_logf(y) * (x / (y - 1.0f));",
        "atan_f32": "  float z = __builtin_fabsf(x), more = 0.0f, t = z;\n"
        "  if (z > 2.4142136f) more = 1.5707963f, t = -1.0f / z;\n"
        "  else if (z > 0.41421356f) more = 0.78539816f, t = (z - 1.0f) / (z + 1.0f);\n"
        "  float y = t * t, sum = 0.0f;\n"
        "#pragma unroll\n"
        "  for (int k = 17; k > 0; k -= 2) sum = 1.0f / k - y * sum;\n"
        "  return __builtin_copysignf(more + t * sum, x);",
        "tanh_f32": small.format(edge="0.3", series=f"{tanh}y * 0.021869489f))))")
        + f"  float y = {exp}(-2.0f * __builtin_fabsf(x));\n"
        "  return __builtin_copysignf((1.0f - y) / (1.0f + y), x);",
        "sinh_f32": small.format(
            edge="0.5",
            series="x * (1.0f + y * (0.16666667f + y * (0.0083333333f + y * 1.98412698e-4f)))",
        )
        + f"  float y = {exp}(__builtin_fabsf(x) - 0.69314718f);\n"
        "  return __builtin_copysignf(y - 0.25f / y, x);",
        "cosh_f32": f"  float y = {exp}(__builtin_fabsf(x) - 0.69314718f);\n"
        "  return y + 0.25f / y;",
        "erf_f32": small.format(
            edge="0.5", series=f"{erf}y * (0.0046296296f - y * 7.57575758e-4f)))))"
        )
        + "  float z = __builtin_fabsf(x), t = 1.0f / (1.0f + 0.3275911f * z);\n"
        "  float y = t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * "
        "(-1.453152027f + t * 1.061405429f))));\n"
        f"  return __builtin_copysignf(1.0f - y * {exp}(-z * z), x);",
    }
    return {name: function(f"float {name}(float x)", body) for name, body in bodies.items()}


MATH = {
    **{name: f"__builtin_{name}" for name in ("exp", "exp2", "exp10", "log", "log2", "log10")},
    **{name: f"__builtin_{name}" for name in ("sqrt", "fma", "floor", "ceil", "trunc", "round")},
    "nearbyint": "__builtin_rint",
}
FUNCTIONS = _mathematics()
_ALSO_DOUBLE = frozenset({"rsqrt", "sqrt", "fma", "floor", "ceil", "trunc", "round", "nearbyint"})


def has_double(name: str) -> bool:
    """Whether the machine has the function of float64 too."""
    return name in _ALSO_DOUBLE


def _vector(name: str, c_type: str, count: int, alignment: int) -> str:
    attributes = f"ext_vector_type({count}), aligned({alignment})"
    return f"typedef {c_type} {name} __attribute__(({attributes}));"


DECLARATIONS: dict[str, str] = {
    **{
        word: f"#ifndef {word}\n#define {word} __attribute__(({name}))\n#endif"
        for word, name in _WORDS.items()
    },
    **{
        f"{short}x{count}": _vector(f"{short}x{count}", c_type, count, count * int(short[1:]) // 8)
        for c_type, short in VECTORS.items()
        for count in (2, 4)
    },
    **{
        f"{short}r{count}": _vector(f"{short}r{count}", c_type, count, 4)
        for short, c_type in _REGISTERS.items()
        for count in (2, 4, 8, 16)
    },
    "i64r1": "typedef long i64r1 __attribute__((aligned(4), may_alias));",
    **{name: f"#define {name} __builtin_{name}" for name in _BUILTINS},
    **{name: f"#define {name}(x) __builtin_bit_cast({to}, x)" for name, to in _CASTS.items()},
    "rsqrt": "#define rsqrt(x) (1.0 / __builtin_sqrt(x))",
    "min": "#define min(x, y) ((x) < (y) ? (x) : (y))",
    "max": "#define max(x, y) ((x) > (y) ? (x) : (y))",
    **FUNCTIONS,
    "high_product": function(
        "unsigned high_product(unsigned a, unsigned b)",
        "  return (unsigned)((unsigned long long)a * b >> 32);",
    ),
}


def with_declarations(text: str) -> str:
    """`text` with what it uses of DECLARATIONS behind its first line."""
    used: set[str] = set()
    pending = [text]
    while pending:
        words = set(re.findall(r"\w+", re.sub(r"//.*", "", pending.pop())))
        new = (words & DECLARATIONS.keys()) - used
        used |= new
        pending += [DECLARATIONS[name] for name in new]
    head, rest = text.split("\n", 1)
    lines = [line for name, line in DECLARATIONS.items() if name in used]
    return "\n".join([head, *lines, rest])
