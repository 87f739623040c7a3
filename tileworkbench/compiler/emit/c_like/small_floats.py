"""Conversions between float32 and floats of a byte or less as C++.

Formats are those of `float_formats.py`. Rounding is to nearest even, too large becomes the largest
finite value, NaN stays NaN where there is one. Bodies name the casts of bits as_float and as_bits.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator

from tileworkbench.compiler.ir.float_formats import FORMATS, SCALE, Format
from tileworkbench.compiler.ir.types import DType

NAMES = {dtype: dtype.removeprefix("float8_").replace("float", "fp") for dtype in FORMATS}


def _bits(value: float) -> str:
    return f"{value!r}f"


def _widen(form: Format) -> list[str]:
    lines = [
        f"  unsigned magnitude = x & {form.sign - 1:#x}u, sign = (x & {form.sign:#x}u) << "
        f"{32 - form.bits};",
        f"  float y = as_float(magnitude << {23 - form.mantissa}) * "
        f"{_bits(2.0 ** (127 - form.bias))};",
    ]
    if form.infinity is not None:
        lines.append(f"  if (magnitude == {form.infinity:#x}u) y = as_float(0x7f800000u);")
    if form.bits == 8:
        nan = f"magnitude > {form.special:#x}u" if form.signed_zero else f"x == {form.nan:#x}u"
        lines.append(f"  if ({nan}) y = as_float(0x7fc00000u);")
    lines.append("  return as_float(as_bits(y) | sign);")
    return lines


def _narrow(name: str, form: Format) -> list[str]:
    shift = 23 - form.mantissa
    unit = 23 - (form.bias - 1 + form.mantissa)
    return [
        "  unsigned bits = as_bits(x);",
        f"  unsigned sign = (bits & 0x80000000u) >> {32 - form.bits};",
        f"  float y = fminf(as_float(bits & 0x7fffffffu), {_bits(form.largest)});",
        "  unsigned magnitude = as_bits(y);",
        f"  unsigned half = (magnitude >> {shift} & 1u) + {(1 << (shift - 1)) - 1:#x}u;",
        f"  unsigned code = (magnitude + half >> {shift}) - "
        f"{(127 - form.bias) << form.mantissa:#x}u;",
        f"  if (magnitude < {(128 - form.bias) << 23:#x}u)",
        f"    code = as_bits(y + {_bits(2.0**unit)}) - {(127 + unit) << 23:#x}u;",
        "  code |= sign;" if form.signed_zero else "  if (code) code |= sign;",
        f"  return x != x ? {form.nan:#x} : ({name})code;",
    ]


def _widen_scale() -> list[str]:
    return [
        "  if (x == 255) return as_float(0x7fc00000u);",
        "  return as_float(x ? (unsigned)x << 23 : 0x400000u);",
    ]


def _narrow_scale(name: str) -> list[str]:
    """The nearest power of two to the magnitude, ties upwards; a denormal has no leading one, so
    there the middle of two powers is elsewhere.
    """
    return [
        "  unsigned magnitude = as_bits(x) & 0x7fffffffu;",
        "  unsigned code = magnitude + (magnitude < 0x800000u ? 0x200000u : 0x400000u) >> 23;",
        f"  return x != x ? 0xff : ({name})(code < 0xfeu ? code : 0xfeu);",
    ]


def code_of(number: float, dtype: DType) -> int:
    """The bits of a number that `dtype`, a float of at most 16 bits, holds exactly."""
    if dtype == "float16":
        return int.from_bytes(struct.pack("<e", number), "little")
    if dtype == "bfloat16":
        return int.from_bytes(struct.pack("<f", number), "little") >> 16
    form, magnitude = FORMATS[str(dtype)], abs(number)
    if number != number:
        return form.nan
    if form.infinity is not None and math.isinf(number):
        code = form.infinity
    else:
        # An exponent field of 0 has the exponent of 1, and no leading one.
        exponent = max(math.frexp(magnitude)[1] - 1, 1 - form.bias) if magnitude else 1 - form.bias
        digits = int(math.ldexp(magnitude, form.mantissa - exponent))
        code = (exponent + form.bias - 1 << form.mantissa) + digits
    negative = math.copysign(1.0, number) < 0 and (code or form.signed_zero)
    return code | form.sign if negative else code


def small_floats(
    function: Callable[[str, str], str], as_float: str, as_bits: str
) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """The type and both conversions of every format: name, text and what it needs."""

    def define(signature: str, lines: list[str]) -> str:
        body = "\n".join(lines).replace("as_float(", f"{as_float}(")
        return function(signature, body.replace("as_bits(", f"{as_bits}("))

    for dtype, form in FORMATS.items():
        name, scale = NAMES[dtype], dtype == SCALE
        widened = _widen_scale() if scale else _widen(form)
        narrowed = _narrow_scale(name) if scale else _narrow(name, form)
        yield name, f"typedef unsigned char {name};", ()
        yield f"{name}_to_f32", define(f"float {name}_to_f32({name} x)", widened), (name,)
        yield f"{name}_from_f32", define(f"{name} {name}_from_f32(float x)", narrowed), (name,)
