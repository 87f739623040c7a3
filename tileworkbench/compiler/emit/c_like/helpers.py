"""Functions that emitted kernels call, each pasted only where it is used.

No header is included and nothing is a template: 16-bit floats travel as bits, and elements of less
than 32 bits lie in words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tileworkbench.compiler.emit.c_like.small_floats import small_floats
from tileworkbench.compiler.fast_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Helper:
    """One function or type, the helpers it needs, and what it needs of the machine in the words of
    the dialect.
    """

    text: str
    needs: tuple[str, ...] = ()
    feature: str = ""


Writer = Callable[[str, str], str]
"""Makes a function's definition from its signature and its body."""


def common_helpers(
    function: Writer, casts: Mapping[tuple[str, str], str], high_product: str
) -> dict[str, Helper]:
    """What texts of every dialect call, defined by `function`. `casts` are its bit casts,
    `high_product` gives the upper half of a product of two unsigned.
    """
    made = {name: function(signature, body) for name, (signature, body) in _COMMON.items()}
    wide = f"  return {casts['uint32', 'float32']}((unsigned)x << 16);"
    return {
        **{name: Helper(f"typedef unsigned short {name};") for name in ("f16", "bf16")},
        "philox": Helper(function(_PHILOX[0], _PHILOX[1].replace("high_product", high_product))),
        "bf16_to_f32": Helper(function("float bf16_to_f32(bf16 x)", wide), ("bf16",)),
        **{name: Helper(text) for name, text in made.items()},
        **{
            name: Helper(text, needs)
            for name, text, needs in small_floats(
                function, casts["uint32", "float32"], casts["float32", "uint32"]
            )
        },
    }


def _floor(c_type: str, suffix: str) -> dict[str, tuple[str, str]]:
    """Python's division and its rest."""
    return {
        f"floordiv{suffix}": (
            f"{c_type} floordiv{suffix}({c_type} a, {c_type} b)",
            f"  {c_type} q = a / b;\n  return q - (a % b != 0 && (a < 0) != (b < 0));",
        ),
        f"floormod{suffix}": (
            f"{c_type} floormod{suffix}({c_type} a, {c_type} b)",
            f"  {c_type} r = a % b;\n  return r != 0 && (r < 0) != (b < 0) ? r + b : r;",
        ),
    }


def _words(bits: int, c_type: str) -> dict[str, tuple[str, str]]:
    """Reading and writing an element of an array that is kept in 32-bit words."""
    per, mask = 32 // bits, f"{(1 << bits) - 1:#x}u"
    return {
        f"get{bits}": (
            f"{c_type} get{bits}(const unsigned* words, int i)",
            f"  return ({c_type})(words[i / {per}] >> (i % {per} * {bits}));",
        ),
        f"set{bits}": (
            f"void set{bits}(unsigned* words, int i, {c_type} x)",
            f"  unsigned shift = i % {per} * {bits};\n"
            f"  words[i / {per}] = (words[i / {per}] & ~({mask} << shift)) | (unsigned)x << shift;",
        ),
    }


# Philox4x32-10: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3".
_PHILOX = (
    """unsigned philox(
    unsigned a, unsigned b, unsigned c, unsigned d, unsigned key, unsigned other, unsigned word)""",
    """#pragma unroll
  for (int round = 0; round < 10; ++round) {
    unsigned high = high_product(0xD2511F53u, a), low = 0xD2511F53u * a;
    unsigned above = high_product(0xCD9E8D57u, c), below = 0xCD9E8D57u * c;
    a = above ^ b ^ key, b = below, c = high ^ d ^ other, d = low;
    key += 0x9E3779B9u, other += 0xBB67AE85u;
  }
  return word == 0 ? a : word == 1 ? b : word == 2 ? c : d;""",
)
_COMMON: dict[str, tuple[str, str]] = {
    **_words(16, "unsigned short"),
    **_words(8, "unsigned char"),
    "get4": (
        "unsigned char get4(const unsigned char* bytes, int i)",
        "  return bytes[i / 2] >> (i % 2 * 4) & 15;",
    ),
    "set4": (
        "void set4(unsigned* words, int i, unsigned char x)",
        "  unsigned shift = i % 8 * 4;\n"
        "  words[i / 8] = (words[i / 8] & ~(15u << shift)) | (x & 15u) << shift;",
    ),
    **_floor("int", ""),
    **_floor("long long", "_i64"),
    **{
        f"{kind}_nan{suffix}": (
            f"{c_type} {kind}_nan{suffix}({c_type} a, {c_type} b)",
            f"  return a != a ? a : b != b ? b : f{kind}{suffix}(a, b);",
        )
        for kind in ("max", "min")
        for c_type, suffix in (("float", "f"), ("double", ""))
    },
}
