"""Maxima and minima of floats, by one rule on every processor: NaN is ignored, +0 is greater than
-0.

AVX-512 has an instruction for that, VRANGEPS, except that it returns signalling NaNs: operands that
may be such NaNs are made quiet first. Elsewhere LLVM writes what the processor needs. For single
elements LLVM writes branches, for vectors it does not, so single elements are computed as lanes of
a vector.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tileworkbench.compiler.emit.llvm.isa import Isa
from tileworkbench.compiler.emit.llvm.text import FunctionWriter, VectorType

_LANES = {"float": (4, 16), "double": (2, 8)}  # of the least and the largest register
_MINIMUM, _MAXIMUM = 4, 5  # compare, and take the sign of what is chosen (Intel SDM, VRANGEPS)


def emit_extremum(
    writer: FunctionWriter, isa: Isa, op: str, kind: VectorType, a: str, b: str
) -> str:
    """Append the larger (`op` "max") or smaller ("min") of two values of `kind`.

    For AVX-512 neither may be a signalling NaN: see `emit_quiet`.
    """
    if isa.level == "avx512":
        return _by_register(writer, kind, (a, b), lambda part, *x: _range(writer, op, part, *x))

    def choose(part: VectorType, *values: str) -> str:
        callee = f"llvm.{op}imumnum.{part.mangled}"
        return writer.call(part, callee, *((part, value) for value in values))

    if kind.lanes > 1 or isa.level == "neon":
        return choose(kind, a, b)
    return _by_register(writer, kind, (a, b), choose)


def emit_quiet(writer: FunctionWriter, kind: VectorType, value: str) -> str:
    """Append `value` with every signalling NaN made a quiet one, for AVX-512.

    LLVM has `canonicalize` for that, but not for vectors of every length.
    """
    return _by_register(writer, kind, (value,), lambda part, x: _range(writer, "max", part, x, x))


def _by_register(
    writer: FunctionWriter, kind: VectorType, values: Sequence[str], apply: Callable[..., str]
) -> str:
    """Append `apply(type, *values)` for values of `kind`, in pieces that are registers."""
    least, most = _LANES[kind.element]
    size = min(max(kind.lanes, least), most)
    register = VectorType(kind.element, size)
    if kind.lanes < size:
        wide = (writer.resize(value, kind, size, "poison") for value in values)
        result = apply(register, *wide)
        return writer.resize(result, register, kind.lanes)
    parts = [
        apply(register, *(writer.slice(value, kind, start, size) for value in values))
        for start in range(0, kind.lanes, size)
    ]
    return writer.join(parts, register, kind.lanes)


def _range(writer: FunctionWriter, op: str, kind: VectorType, a: str, b: str) -> str:
    suffix, width = ("ps", 32) if kind.element == "float" else ("pd", 64)
    bits = kind.lanes * width
    operands: list[tuple[VectorType | str, str]] = [
        (kind, a),
        (kind, b),
        ("i32", str(_MAXIMUM if op == "max" else _MINIMUM)),
        (kind, "zeroinitializer"),
        ("i16" if kind.lanes == 16 else "i8", "-1"),
    ]
    if bits == 512:
        operands.append(("i32", "4"))  # exceptions as the control register says
    return writer.call(kind, f"llvm.x86.avx512.mask.range.{suffix}.{bits}", *operands)
