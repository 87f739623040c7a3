"""Conversions between float32 and floats of a byte or less by integer arithmetic, exact in every
bit.

Rounding is to nearest even with denormals; what is too large becomes the largest finite value, as
GPUs convert, and NaN stays NaN, or becomes the largest value where there is none.
"""

from __future__ import annotations

from tileworkbench.compiler.emit.llvm.text import FunctionWriter, VectorType
from tileworkbench.compiler.ir.float_formats import FORMATS, SCALE


def widen_float8(writer: FunctionWriter, value: str, dtype: str, lanes: int) -> str:
    """Write the conversion of small floats, held as i8, to float32 and return the result."""
    if dtype == SCALE:
        return _widen_scale(writer, value, lanes)
    form, let = FORMATS[dtype], writer.let
    word, single = VectorType("i32", lanes), VectorType("float", lanes)
    number, flag = word.constant, word.of("i1")
    wide = let(f"zext {word.of('i8')} {value} to {word}")
    magnitude = let(f"and {word} {wide}, {number(form.sign - 1)}")
    signed = let(f"and {word} {wide}, {number(form.sign)}")
    sign = let(f"shl {word} {signed}, {number(32 - form.bits)}")
    # The exponent field lands on float32's lowest bits; a power of two moves the bias.
    shifted = let(f"shl {word} {magnitude}, {number(23 - form.mantissa)}")
    scale = single.constant(2.0 ** (127 - form.bias))
    scaled = let(f"fmul {single} {let(f'bitcast {word} {shifted} to {single}')}, {scale}")
    bits = let(f"bitcast {single} {scaled} to {word}")
    if form.infinity is not None:
        infinite = let(f"icmp eq {word} {magnitude}, {number(form.infinity)}")
        bits = let(f"select {flag} {infinite}, {word} {number(0x7F800000)}, {word} {bits}")
    if form.bits < 8:
        return let(f"bitcast {word} {let(f'or {word} {bits}, {sign}')} to {single}")
    if form.signed_zero:
        nan = let(f"icmp ugt {word} {magnitude}, {number(form.special)}")
    else:
        nan = let(f"icmp eq {word} {wide}, {number(form.nan)}")
    bits = let(f"select {flag} {nan}, {word} {number(0x7FC00000)}, {word} {bits}")
    return let(f"bitcast {word} {let(f'or {word} {bits}, {sign}')} to {single}")


def narrow_float8(
    writer: FunctionWriter, value: str, dtype: str, lanes: int, exact: bool = False
) -> str:
    """Write the rounding of float32 to small floats, held as i8, and return the result.

    `exact` values are numbers of the format already: infinity stays, and NaN keeps its sign.
    """
    if dtype == SCALE:
        return _narrow_scale(writer, value, lanes)
    form, let = FORMATS[dtype], writer.let
    word, single = VectorType("i32", lanes), VectorType("float", lanes)
    number, flag, shift = word.constant, word.of("i1"), 23 - form.mantissa
    nan = let(f"fcmp uno {single} {value}, {value}")
    bits = let(f"bitcast {single} {value} to {word}")
    negative = let(f"and {word} {bits}, {number(0x80000000)}")
    sign = let(f"lshr {word} {negative}, {number(32 - form.bits)}")
    magnitude = let(f"and {word} {bits}, {number(0x7FFFFFFF)}")
    absolute = let(f"bitcast {word} {magnitude} to {single}")
    limit = single.constant(form.largest)
    large = let(f"fcmp ogt {single} {absolute}, {limit}")
    absolute = let(f"select {flag} {large}, {single} {limit}, {single} {absolute}")
    magnitude = let(f"bitcast {single} {absolute} to {word}")
    odd = let(f"and {word} {let(f'lshr {word} {magnitude}, {number(shift)}')}, {number(1)}")
    half = let(f"add {word} {odd}, {number((1 << (shift - 1)) - 1)}")
    rounded = let(f"lshr {word} {let(f'add {word} {magnitude}, {half}')}, {number(shift)}")
    normal = let(f"sub {word} {rounded}, {number((127 - form.bias) << form.mantissa)}")
    # Adding a power of two aligns the binary points, so that the addition itself rounds to a
    # multiple of the smallest denormal.
    unit = 23 - (form.bias - 1 + form.mantissa)
    aligned = let(f"fadd {single} {absolute}, {single.constant(2.0**unit)}")
    aligned = let(f"bitcast {single} {aligned} to {word}")
    denormal = let(f"sub {word} {aligned}, {number((127 + unit) << 23)}")
    tiny = let(f"icmp ult {word} {magnitude}, {number((128 - form.bias) << 23)}")
    result = let(f"select {flag} {tiny}, {word} {denormal}, {word} {normal}")
    if exact and form.infinity is not None:
        result = let(f"select {flag} {large}, {word} {number(form.infinity)}, {word} {result}")
    signed = let(f"or {word} {result}, {sign}")
    if not form.signed_zero:
        zero = let(f"icmp eq {word} {result}, {number(0)}")
        signed = let(f"select {flag} {zero}, {word} {number(0)}, {word} {signed}")
    code = number(form.nan)
    if exact and form.signed_zero:
        code = let(f"or {word} {sign}, {code}")
    signed = let(f"select {flag} {nan}, {word} {code}, {word} {signed}")
    return let(f"trunc {word} {signed} to {word.of('i8')}")


def _widen_scale(writer: FunctionWriter, value: str, lanes: int) -> str:
    """An exponent is a float32's, but for the least, 2 ** -127, and the greatest, which is NaN."""
    let, word, single = writer.let, VectorType("i32", lanes), VectorType("float", lanes)
    number, flag = word.constant, word.of("i1")
    wide = let(f"zext {word.of('i8')} {value} to {word}")
    bits = let(f"shl {word} {wide}, {number(23)}")
    least = let(f"icmp eq {word} {wide}, {number(0)}")
    bits = let(f"select {flag} {least}, {word} {number(1 << 22)}, {word} {bits}")
    nan = let(f"icmp eq {word} {wide}, {number(0xFF)}")
    bits = let(f"select {flag} {nan}, {word} {number(0x7FC00000)}, {word} {bits}")
    return let(f"bitcast {word} {bits} to {single}")


def _narrow_scale(writer: FunctionWriter, value: str, lanes: int) -> str:
    """The nearest power of two to the magnitude, ties upwards, at most 2 ** 127."""
    let, word, single = writer.let, VectorType("i32", lanes), VectorType("float", lanes)
    number, flag = word.constant, word.of("i1")
    bits = let(f"bitcast {single} {value} to {word}")
    magnitude = let(f"and {word} {bits}, {number(0x7FFFFFFF)}")
    # A denormal has no leading one: there the middle of two powers is elsewhere.
    tiny = let(f"icmp ult {word} {magnitude}, {number(1 << 23)}")
    half = let(f"select {flag} {tiny}, {word} {number(1 << 21)}, {word} {number(1 << 22)}")
    rounded = let(f"add {word} {magnitude}, {half}")
    code = let(f"lshr {word} {rounded}, {number(23)}")
    large = let(f"icmp ugt {word} {code}, {number(0xFE)}")
    code = let(f"select {flag} {large}, {word} {number(0xFE)}, {word} {code}")
    nan = let(f"icmp ugt {word} {magnitude}, {number(0x7F800000)}")
    code = let(f"select {flag} {nan}, {word} {number(0xFF)}, {word} {code}")
    return let(f"trunc {word} {code} to {word.of('i8')}")
