"""Powers of float32, in double, and remainders."""

from __future__ import annotations

import math

from tileworkbench.compiler.emit.llvm.math_blocks import MathBlocks

_LOG2 = [2 / math.log(2) / odd for odd in range(1, 15, 2)]  # log2((1 + s) / (1 - s)) / s, in s^2
_EXP2 = [math.log(2) ** n / math.factorial(n) for n in range(10)]  # of |x| <= 1/2
_FINITE = 1e40  # more than any float
_BEYOND = 200.0  # 2^-200 is 0 as a float, and 2^200 infinite
_EXACT = 2.0**22  # a quotient below it has a whole part that is a float
_WHOLE = 2.0**28  # a quotient below it has a whole part that is exact, and so is its product


def power(of: MathBlocks, x: str, y: str) -> str:
    """x^y = 2^(y log2 |x|), of a negative x for whole y alone, with its sign for odd ones."""
    wide = MathBlocks(of.writer, of.kind.of("double"), of.isa)
    one, zero, infinity = (of.constant(value) for value in (1.0, 0.0, math.inf))
    size = of.intrinsic("fabs", x)
    exponent = wide.clamp(of.widened(y), -_FINITE, _FINITE)  # 1^y is 1 for an infinite y, too
    raised = wide.binary("fmul", exponent, _log2(of, wide, size))
    value = of.narrowed(_exp2(wide, wide.clamp(raised, -_BEYOND, _BEYOND)))
    is_whole = of.flag("oeq", of.intrinsic("trunc", y), y)
    half = of.binary("fmul", y, of.constant(0.5))
    is_odd = of.both(is_whole, of.flag("one", of.intrinsic("trunc", half), half))
    value = of.select(is_odd, of.intrinsic("copysign", value, x), value)
    is_negative = of.both(of.flag("olt", x, zero), of.flag("olt", size, infinity))
    real = of.select(is_whole, value, of.constant(math.nan))
    value = of.select(is_negative, real, value)
    value = of.where("uno", x, y, of.binary("fadd", x, y), value)
    value = of.where("oeq", y, zero, one, value)
    return of.where("oeq", x, one, one, value)


def _log2(of: MathBlocks, wide: MathBlocks, size: str) -> str:
    """The logarithm of a float that is not negative, as a double."""
    e, mantissa = map(of.widened, of.split(size))
    one = wide.constant(1.0)
    s = wide.binary("fdiv", wide.binary("fsub", mantissa, one), wide.binary("fadd", mantissa, one))
    series = wide.polynomial(wide.binary("fmul", s, s), _LOG2)
    logarithm = wide.multiply_add(s, series, e)
    plain = of.widened(size)
    infinity = wide.constant(math.inf)
    logarithm = wide.where("oeq", plain, infinity, infinity, logarithm)
    return wide.where("oeq", plain, wide.constant(0.0), wide.constant(-math.inf), logarithm)


def _exp2(wide: MathBlocks, x: str) -> str:
    shift = wide.constant(1.5 * 2**52)  # adding it rounds to an integer, in the low bits
    shifted = wide.binary("fadd", x, shift)
    rest = wide.binary("fsub", x, wide.binary("fsub", shifted, shift))
    word = wide.kind.of("i64")
    bits, whole = (
        wide.writer.let(f"bitcast {wide.kind} {value} to {word}")
        for value in (wide.polynomial(rest, _EXP2), shifted)
    )
    exponent = wide.writer.let(f"shl {word} {whole}, {word.constant(52)}")
    scaled = wide.writer.let(f"add {word} {bits}, {exponent}")
    return wide.writer.let(f"bitcast {word} {scaled} to {wide.kind}")


def remainder(of: MathBlocks, x: str, y: str) -> str:
    """x - n y with n = trunc(x / y), exactly; of a large quotient, or none, in double or by the C
    library.
    """
    if not of.isa.fma:
        return _remainder_in_double(of, x, y)
    quotient = of.binary("fdiv", x, y)
    size = of.intrinsic("fabs", quotient)

    def exact() -> str:
        whole = of.writer.let(f"fneg {of.kind} {of.intrinsic('trunc', quotient)}")
        # One divisor too far where the quotient was rounded up.
        rest = of.intrinsic("fma", whole, y, x)
        back = of.binary("fadd", rest, of.intrinsic("copysign", y, x))
        rest = of.where("oeq", of.intrinsic("copysign", rest, x), rest, rest, back)
        rest = of.where("olt", size, of.constant(1.0), x, rest)  # y may be infinite
        return of.intrinsic("copysign", rest, x)

    is_large = of.flag("uge", size, of.constant(_EXACT))
    return of.unless(is_large, exact, lambda: _remainder_in_double(of, x, y))


def _remainder_in_double(of: MathBlocks, x: str, y: str) -> str:
    wide = MathBlocks(of.writer, of.kind.of("double"), of.isa)
    a, b = (of.widened(of.intrinsic("fabs", value)) for value in (x, y))
    quotient = wide.binary("fdiv", a, b)

    def exact() -> str:
        product = wide.binary("fmul", wide.intrinsic("trunc", quotient), b)
        rest = wide.binary("fsub", a, product)
        rest = wide.where("olt", quotient, wide.constant(1.0), a, rest)  # y may be infinite
        return of.intrinsic("copysign", of.narrowed(rest), x)

    is_large = wide.flag("uge", quotient, wide.constant(_WHOLE))
    return of.unless(is_large, exact, lambda: of.library("fmod", [x, y]))
