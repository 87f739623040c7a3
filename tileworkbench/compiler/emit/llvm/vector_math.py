"""Elementary functions on vectors of any number of lanes, as LLVM IR functions.

exp, exp2, exp10, log, log2, log10, log1p, sin, cos, atan, tanh, erf, sigmoid, pow and fmod of
float32 are vector code: argument reduction and a polynomial (`coefficients.py`). Everything else
calls the C library once per lane. Denormals, infinities, NaN and signed zeros come out as the C
library has them; nothing saturates. Where no fused multiply-add exists products are rounded, and
the results keep their error bounds: 2 ulp for the exponentials, logarithms and atan, 4 ulp for
log1p, tanh, erf and sigmoid; sin, cos and pow are evaluated in double, 1 ulp, and fmod is exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tileworkbench.compiler.emit.llvm.coefficients import (
    ATAN,
    BASES,
    COS,
    ERF,
    ERF_LIMIT,
    EXP,
    EXP2,
    LOG,
    QUARTER_HIGH,
    QUARTER_LIMIT,
    QUARTER_LOW,
    SIN,
    TANH,
    Base,
)
from tileworkbench.compiler.emit.llvm.error_function import (
    LAST,
    LIMIT,
    erf_of_magnitude,
    has_segments,
)
from tileworkbench.compiler.emit.llvm.isa import Isa
from tileworkbench.compiler.emit.llvm.math_blocks import MathBlocks
from tileworkbench.compiler.emit.llvm.powers import power, remainder
from tileworkbench.compiler.emit.llvm.text import (
    EmittedFunction,
    FunctionWriter,
    VectorType,
    storage_type,
)

_INTRINSICS = {
    "sqrt": "sqrt",
    "floor": "floor",
    "ceil": "ceil",
    "trunc": "trunc",
    "rint": "rint",
    "round": "round",
    "abs": "fabs",
}

_LIBRARY_UNARY = (
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "erf", "erfc", "cbrt"),
    *("sin", "cos", "tan", "asin", "acos", "atan"),
    *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
)
_LIBRARY_BINARY = ("pow", "atan2", "fmod")


def emit_vector_math(op: str, dtype: str, lanes: int, isa: Isa) -> EmittedFunction:
    """Return a function that applies `op` to each lane: `T @name(T %x)` or `T @name(T %x, T %y)`.

    T is `lanes` lanes of float or double (a scalar for one lane). The name is
    'math_{op}_{dtype}_x{lanes}'.

    Args:
        op: one of `UNARY_OPS` or `BINARY_OPS`.
        dtype: 'float32' or 'float64'; 16-bit floats are widened by the caller.

    Raises:
        ValueError: the op or the dtype is unknown.
    """
    if dtype not in ("float32", "float64"):
        raise ValueError(f"vector mathematics is in 'float32' or 'float64', not '{dtype}'")
    kind = storage_type(dtype, lanes)
    names = ("%x", "%y") if op in BINARY_OPS else ("%x",)
    parameters = ", ".join(f"{kind} {parameter}" for parameter in names)
    name = f"math_{op}_{dtype}_x{lanes}"
    writer = FunctionWriter(name, str(kind), parameters, "alwaysinline nounwind")
    return writer.finish(f"{kind} {_MathWriter(writer, kind, isa).apply(op, names)}")


def write_vector_math(
    writer: FunctionWriter, op: str, kind: VectorType, isa: Isa, argument: str
) -> str | None:
    """Write `op` of an argument of type `kind` in place and return the result; None for what takes
    branches or the C library, which `emit_vector_math` has.

    In place, constants stay in registers while a loop runs, and neighbouring vectors overlap.
    """
    if op not in _VECTOR_OPS or op in ("sin", "cos", *BINARY_OPS) or kind.element != "float":
        return None
    return _MathWriter(writer, kind, isa).apply(op, [argument])


class _MathWriter(MathBlocks):
    """Writes elementary functions of values of one type."""

    def apply(self, op: str, arguments: Sequence[str]) -> str:
        if op in _INTRINSICS:
            return self.intrinsic(_INTRINSICS[op], *arguments)
        if op == "rsqrt":
            return self.binary("fdiv", self.constant(1.0), self.intrinsic("sqrt", *arguments))
        if op in _VECTOR_OPS and self.kind.element == "float":
            return _VECTOR_OPS[op](self, *arguments)
        if op == "sigmoid":
            return self.sigmoid(*arguments)
        if op == "exp10":
            return self.library("pow", [self.constant(10.0), *arguments])
        if op in _LIBRARY_UNARY or op in _LIBRARY_BINARY:
            return self.library(op, arguments)
        raise ValueError(f"unknown function '{op}'")

    # Exponentials: b^x = 2^n b^r with n = round(x log2 b) and r = x - n log_b 2

    def exponential(self, x: str, base: Base) -> str:
        # What becomes zero is not computed: Intel's cores take 150 cycles for denormals.
        is_seen = self.flag("uge", x, self.constant(base.lowest))
        x = self.clamp(x, None if self.has_scalef else base.lowest, base.highest)
        # Adding 1.5 * 2^23 rounds to an integer, which then stands in the low bits.
        shift = self.constant(1.5 * 2**23)
        shifted = self.multiply_add(x, self.constant(base.log2), shift)
        n = self.binary("fsub", shifted, shift)
        if base.log2 == 1.0:
            r = self.binary("fsub", x, n)
            power = self.multiply_add(r, self.polynomial(r, EXP2), self.constant(1.0))
        else:
            r = self.multiply_add(n, self.constant(-base.step_high), x)
            r = self.multiply_add(n, self.constant(-base.step_low), r)
            if base.natural != 1.0:
                r = self.binary("fmul", r, self.constant(base.natural))
            square = self.binary("fmul", r, r)
            tail = self.multiply_add(square, self.polynomial(r, EXP), r)
            power = self.binary("fadd", tail, self.constant(1.0))
        return self.scale(power, n, shifted, is_seen)

    @property
    def has_scalef(self) -> bool:
        """Whether VSCALEFPS scales vectors of this type."""
        lanes = self.kind.lanes
        return self.isa.scalef and (lanes in (4, 8) or lanes % 16 == 0)

    def scale(self, power: str, n: str, shifted: str, is_seen: str) -> str:
        """Return power * 2^n, rounded once, also where it is a denormal, zero or infinite; zero in
        lanes without the flag `is_seen`.
        """
        lanes = self.kind.lanes
        if self.has_scalef:
            part = VectorType("float", min(lanes, 16))
            parts = []
            for at in range(0, lanes, part.lanes):
                values = ((power, self.kind), (n, self.kind), (is_seen, self.kind.of("i1")))
                cut = (self.writer.slice(*value, at, part.lanes) for value in values)
                parts.append(self.scale_register(part, *cut))
            return self.writer.join(parts, part, lanes)
        power = self.select(is_seen, power, self.constant(0.0))
        # Two factors, because 2^n itself may not be a normal number; the first product is exact.
        whole = self.integer("sub", self.bits(shifted), 0x4B400000)
        half = self.integer("ashr", whole, 1)
        for exponent in (half, self.integer("sub", whole, half)):
            biased = self.integer("add", exponent, 127)
            factor = self.from_bits(self.integer("shl", biased, 23))
            power = self.binary("fmul", power, factor)
        return power

    def scale_register(self, kind: VectorType, power: str, n: str, flags: str) -> str:
        """The same for one register, by VSCALEFPS."""
        let, given, masked = self.writer.let, kind.of("i1"), VectorType("i1", max(8, kind.lanes))
        if given.lanes < masked.lanes:
            order = ", ".join(f"i32 {lane}" for lane in range(masked.lanes))
            both = f"{given} {flags}, {given} zeroinitializer"
            flags = let(f"shufflevector {both}, <{masked.lanes} x i32> <{order}>")
        mask = let(f"bitcast {masked} {flags} to i{masked.lanes}")
        arguments = [(kind, power), (kind, n), (kind, kind.constant(0.0))]
        rounding = [("i32", "4")] if kind.lanes == 16 else []
        callee = f"llvm.x86.avx512.mask.scalef.ps.{32 * kind.lanes}"
        return self.writer.call(kind, callee, *arguments, (f"i{masked.lanes}", mask), *rounding)

    # Logarithms: log_b(2^e (1 + f)) = e log_b 2 + (f + f^2 q(f)) / log(b)

    def logarithm(self, x: str, base: Base) -> str:
        e, mantissa = self.split(x)
        f = self.binary("fsub", mantissa, self.constant(1.0))
        inverse = 1.0 / base.natural
        quadratic = self.polynomial(f, [coefficient * inverse for coefficient in LOG])
        low = self.binary("fmul", self.binary("fmul", f, f), quadratic)
        low = self.multiply_add(e, self.constant(base.step_low), low) if base.step_low else low
        if inverse == 1.0:
            total = self.binary("fadd", f, low)
        else:
            # Eleven bits of f times eleven of 1 / log(b) are exact, so that only small terms
            # are rounded.
            rough = self.from_bits(self.integer("and", self.bits(f), -0x1000))
            rest = self.binary("fsub", f, rough)
            high = math.floor(inverse * 2048) / 2048
            low = self.multiply_add(rest, self.constant(inverse), low)
            low = self.multiply_add(rough, self.constant(inverse - high), low)
            total = self.multiply_add(rough, self.constant(high), low)
        total = self.multiply_add(e, self.constant(base.step_high), total)
        return self.logarithm_limits(x, total)

    def logarithm_limits(self, x: str, result: str) -> str:
        infinity = self.constant(math.inf)
        result = self.where("olt", x, infinity, result, self.binary("fadd", x, x))
        result = self.where("olt", x, self.constant(0.0), self.constant(math.nan), result)
        return self.where("oeq", x, self.constant(0.0), self.constant(-math.inf), result)

    def log1p(self, x: str) -> str:
        """log(w) x / (w - 1) with w = 1 + x, which undoes that w is rounded (D. Goldberg, "What
        Every Computer Scientist Should Know About Floating-Point Arithmetic", theorem 4).
        """
        one = self.constant(1.0)
        w = self.binary("fadd", x, one)
        logarithm = self.logarithm(w, BASES[""])
        correction = self.binary("fdiv", x, self.binary("fsub", w, one))
        result = self.binary("fmul", logarithm, correction)
        result = self.where("oeq", w, self.constant(math.inf), logarithm, result)
        return self.where("oeq", w, one, x, result)

    # Sine and cosine, in double: x = n pi / 2 + r

    def trigonometric(self, x: str, op: str) -> str:
        """Reduce and evaluate all lanes; where one is too large for that, call the C library."""
        is_large = self.flag("ugt", self.intrinsic("fabs", x), self.constant(QUARTER_LIMIT))
        return self.unless(is_large, lambda: self.quarters(x, op), lambda: self.library(op, [x]))

    def quarters(self, x: str, op: str) -> str:
        let, wide = self.writer.let, _MathWriter(self.writer, self.kind.of("double"), self.isa)
        value = self.widened(x)
        shift = wide.constant(1.5 * 2**52)
        shifted = wide.multiply_add(value, wide.constant(2 / math.pi), shift)
        n = wide.binary("fsub", shifted, shift)
        r = wide.multiply_add(n, wide.constant(-QUARTER_HIGH), value)
        r = wide.multiply_add(n, wide.constant(-QUARTER_LOW), r)
        square = wide.binary("fmul", r, r)
        cube = wide.binary("fmul", square, r)
        sine = wide.multiply_add(cube, wide.polynomial(square, SIN), r)
        cosine = wide.multiply_add(square, wide.polynomial(square, COS), wide.constant(1.0))
        sine, cosine = map(self.narrowed, (sine, cosine))
        bits = let(f"bitcast {wide.kind} {shifted} to {self.kind.of('i64')}")
        quarter = let(f"trunc {self.kind.of('i64')} {bits} to {self.word}")
        if op == "cos":
            quarter = self.integer("add", quarter, 1)
        odd = let(f"trunc {self.word} {quarter} to {self.kind.of('i1')}")
        choice = f"{self.kind} {cosine}, {self.kind} {sine}"
        result = let(f"select {self.kind.of('i1')} {odd}, {choice}")
        sign = self.integer("shl", self.integer("and", quarter, 2), 30)
        result = self.from_bits(self.integer("xor", self.bits(result), sign))
        if op == "cos":
            return result
        return self.where("oeq", x, self.constant(0.0), x, result)

    def arctangent(self, x: str) -> str:
        """Of 1 / x where x is above 1, taken from pi / 2."""
        magnitude, one = self.intrinsic("fabs", x), self.constant(1.0)
        reduced = self.binary("fdiv", one, magnitude)
        small = self.where("ogt", magnitude, one, reduced, magnitude)
        square = self.binary("fmul", small, small)
        cube = self.binary("fmul", square, small)
        angle = self.multiply_add(cube, self.polynomial(square, ATAN), small)
        rest = self.binary("fsub", self.constant(math.pi / 2), angle)
        angle = self.where("ogt", magnitude, one, rest, angle)
        return self.intrinsic("copysign", angle, x)

    # Sigmoids

    def tanh(self, x: str) -> str:
        square = self.binary("fmul", x, x)
        cube = self.binary("fmul", square, x)
        small = self.multiply_add(cube, self.polynomial(square, TANH), x)
        magnitude = self.intrinsic("fabs", x)
        twice = self.binary("fadd", magnitude, magnitude)
        grown = self.exponential(twice, BASES[""])
        quotient = self.binary(
            "fdiv", self.constant(2.0), self.binary("fadd", grown, self.constant(1.0))
        )
        large = self.binary("fsub", self.constant(1.0), quotient)
        result = self.where("olt", magnitude, self.constant(0.625), small, large)
        return self.intrinsic("copysign", result, x)

    def erf(self, x: str) -> str:
        """By segments where they fit registers, else 1 - 2^y with y = n + r: (1 - 2^n) - 2^n (2^r -
        1), which is exact for small x, n = 0."""
        if has_segments(self.isa, self.kind):
            magnitude = self.clamp(self.intrinsic("fabs", x), None, LIMIT)
            within = self.clamp(magnitude, None, LAST)
            positive = erf_of_magnitude(self.writer, self.isa, self.kind, magnitude, within)
            return self.intrinsic("copysign", positive, x)
        magnitude = self.clamp(self.intrinsic("fabs", x), None, ERF_LIMIT)
        y = self.binary("fmul", magnitude, self.polynomial(magnitude, ERF))
        shift = self.constant(1.5 * 2**23)
        shifted = self.binary("fadd", y, shift)
        r = self.binary("fsub", y, self.binary("fsub", shifted, shift))
        growth = self.binary("fmul", r, self.polynomial(r, EXP2))
        exponent = self.integer("shl", self.bits(shifted), 23)
        power = self.from_bits(self.integer("add", exponent, 127 << 23))
        whole = self.binary("fsub", self.constant(1.0), power)
        negative = self.writer.let(f"fneg {self.kind} {power}")
        return self.intrinsic("copysign", self.multiply_add(negative, growth, whole), x)

    def sigmoid(self, x: str) -> str:
        """1 / (1 + e^-x), from e^-|x|, so that nothing overflows and small results stay exact."""
        negative = self.writer.let(f"fneg {self.kind} {self.intrinsic('fabs', x)}")
        decay = self.apply("exp", [negative])
        one = self.constant(1.0)
        numerator = self.where("olt", x, self.constant(0.0), decay, one)
        return self.binary("fdiv", numerator, self.binary("fadd", decay, one))


_VECTOR_OPS: dict[str, Callable[..., str]] = {
    "exp": lambda of, x: of.exponential(x, BASES[""]),
    "exp2": lambda of, x: of.exponential(x, BASES["2"]),
    "exp10": lambda of, x: of.exponential(x, BASES["10"]),
    "log": lambda of, x: of.logarithm(x, BASES[""]),
    "log2": lambda of, x: of.logarithm(x, BASES["2"]),
    "log10": lambda of, x: of.logarithm(x, BASES["10"]),
    "log1p": _MathWriter.log1p,
    "sin": lambda of, x: of.trigonometric(x, "sin"),
    "cos": lambda of, x: of.trigonometric(x, "cos"),
    "atan": _MathWriter.arctangent,
    "tanh": _MathWriter.tanh,
    "erf": _MathWriter.erf,
    "sigmoid": _MathWriter.sigmoid,
    "pow": power,
    "fmod": remainder,
}

UNARY_OPS = tuple(sorted({*_INTRINSICS, *_LIBRARY_UNARY, *_VECTOR_OPS, "rsqrt"}))
"""Functions of one argument that `emit_vector_math` knows."""

BINARY_OPS = _LIBRARY_BINARY
"""Functions of two arguments that `emit_vector_math` knows."""
