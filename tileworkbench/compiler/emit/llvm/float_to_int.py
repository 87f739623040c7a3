"""Conversions of vectors of floats to integers that saturate, with NaN as 0.

LLVM has an intrinsic of that meaning, but makes it one element at a time on x86.
"""

from __future__ import annotations

from tileworkbench.compiler.emit.llvm.text import FunctionWriter, VectorType

_PRECISION = {"float": 24, "double": 53}  # bits of a significand


def float_to_int(
    writer: FunctionWriter, value: str, have: VectorType, want: VectorType, signed: bool
) -> str:
    """Write the conversion of `value`, of float32 or float64, to the integers of `want`; return
    the result. Fractions are cut off.
    """
    kind = "si" if signed else "ui"
    if have.lanes == 1:
        callee = f"llvm.fpto{kind}.sat.{want.mangled}.{have.mangled}"
        return writer.call(want, callee, (have, value))
    bits = int(want.element[1:])
    least, end = (-(1 << bits - 1), 1 << bits - 1) if signed else (0, 1 << bits)
    let, flag = writer.let, have.of("i1")

    def choose(test: str, a: str, b: str, kind: VectorType, yes: str, no: str) -> str:
        holds = let(f"fcmp {test} {have} {a}, {b}")
        return let(f"select {flag} {holds}, {kind} {yes}, {kind} {no}")

    # Processors convert to 32 and 64 bits only.
    wide = want.of(f"i{max(bits, 32)}")
    convert = "fptosi" if signed or bits < 32 else "fptoui"
    low, high, past = (have.constant(limit) for limit in (least, end - 1, end))
    inside = choose("ogt", value, low, have, value, low)  # NaN is the least, for now
    if bits <= _PRECISION[have.element]:
        inside = choose("olt", inside, high, have, inside, high)
    result = let(f"{convert} {have} {inside} to {wide}")
    if bits > _PRECISION[have.element]:
        result = choose("oge", value, past, wide, wide.constant(end - 1), result)
    if signed:
        result = choose("ord", value, value, wide, result, wide.constant(0))
    return let(f"trunc {wide} {result} to {want}") if wide != want else result
