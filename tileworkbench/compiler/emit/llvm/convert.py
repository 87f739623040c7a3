"""Conversions between float32 and the 16-bit floats, exact in every bit at every instruction
set level.

Round to nearest even; denormals are kept, NaN stays NaN with its sign and leading payload bits
and becomes quiet, as the F16C instructions do. bfloat16 is always converted by integer
arithmetic, because VCVTNEPS2BF16 flushes denormals; with AVX-512 VNNI that is four instructions
per register and one for two results. float16 uses hardware conversions where they exist;
elsewhere LLVM would call compiler-rt, which a process need not contain, so integer code is
written instead.
"""

from __future__ import annotations

from tileworkbench.compiler.emit.llvm.float8 import narrow_float8, widen_float8
from tileworkbench.compiler.emit.llvm.isa import Isa
from tileworkbench.compiler.emit.llvm.text import FunctionWriter, VectorType, storage_type
from tileworkbench.compiler.ir.float_formats import FORMATS


def widen_float(writer: FunctionWriter, value: str, dtype: str, lanes: int, isa: Isa) -> str:
    """Write the conversion of narrow floats, held as i16 or i8, to float32; return the result."""
    short, word, single = (VectorType(e, lanes) for e in ("i16", "i32", "float"))
    if dtype in FORMATS:
        return widen_float8(writer, value, dtype, lanes)
    if dtype == "bfloat16":
        wide = writer.let(f"zext {short} {value} to {word}")
        bits = writer.let(f"shl {word} {wide}, {word.constant(16)}")
        return writer.let(f"bitcast {word} {bits} to {single}")
    if isa.native_half:
        half = writer.let(f"bitcast {short} {value} to {short.of('half')}")
        return writer.let(f"fpext {short.of('half')} {half} to {single}")
    return _half_to_float(writer, value, lanes)


def _half_to_float(writer: FunctionWriter, value: str, lanes: int) -> str:
    word, single = VectorType("i32", lanes), VectorType("float", lanes)
    flag, let, number = word.of("i1"), writer.let, word.constant
    wide = let(f"zext {word.of('i16')} {value} to {word}")
    magnitude = let(f"and {word} {wide}, {number(0x7FFF)}")
    sign = let(f"shl {word} {let(f'and {word} {wide}, {number(0x8000)}')}, {number(16)}")
    shifted = let(f"shl {word} {magnitude}, {number(13)}")
    normal = let(f"add {word} {shifted}, {number(112 << 23)}")
    # An all-ones exponent must become all ones again; a denormal is its integer value times 2^-24.
    special = let(f"icmp uge {word} {magnitude}, {number(0x7C00)}")
    infinite = let(f"add {word} {shifted}, {number(224 << 23)}")
    nan = let(f"icmp ugt {word} {magnitude}, {number(0x7C00)}")
    quiet = let(f"select {flag} {nan}, {word} {number(1 << 22)}, {word} {number(0)}")
    infinite = let(f"or {word} {infinite}, {quiet}")
    tiny = let(f"icmp ult {word} {magnitude}, {number(0x0400)}")
    scaled = let(f"sitofp {word} {magnitude} to {single}")
    scaled = let(f"fmul {single} {scaled}, {single.constant(2.0**-24)}")
    denormal = let(f"bitcast {single} {scaled} to {word}")
    bits = let(f"select {flag} {tiny}, {word} {denormal}, {word} {normal}")
    bits = let(f"select {flag} {special}, {word} {infinite}, {word} {bits}")
    return let(f"bitcast {word} {let(f'or {word} {bits}, {sign}')} to {single}")


def narrow_float(writer: FunctionWriter, value: str, dtype: str, lanes: int, isa: Isa) -> str:
    """Write the rounding of float32 to narrow floats, held as i16 or i8, and return the result."""
    short, single = VectorType("i16", lanes), VectorType("float", lanes)
    if dtype in FORMATS:
        return narrow_float8(writer, value, dtype, lanes)
    if dtype == "bfloat16":
        if isa.vector_bits == 512 and isa.dot_int8 and lanes % 16 == 0:
            return _float_to_bfloat_vnni(writer, value, lanes)
        return _float_to_bfloat(writer, value, lanes)
    if isa.native_half:
        half = writer.let(f"fptrunc {single} {value} to {single.of('half')}")
        return writer.let(f"bitcast {single.of('half')} {half} to {short}")
    return _float_to_half(writer, value, lanes)


def _float_to_bfloat(writer: FunctionWriter, value: str, lanes: int) -> str:
    word, single = VectorType("i32", lanes), VectorType("float", lanes)
    let, number = writer.let, word.constant
    bits = let(f"bitcast {single} {value} to {word}")
    high = let(f"lshr {word} {bits}, {number(16)}")
    odd = let(f"and {word} {high}, {number(1)}")
    bias = let(f"add {word} {odd}, {number(0x7FFF)}")
    rounded = let(f"lshr {word} {let(f'add {word} {bits}, {bias}')}, {number(16)}")
    quiet = let(f"or {word} {high}, {number(0x40)}")
    nan = let(f"fcmp uno {single} {value}, {value}")
    result = let(f"select {word.of('i1')} {nan}, {word} {quiet}, {word} {rounded}")
    return let(f"trunc {word} {result} to {word.of('i16')}")


def _float_to_bfloat_vnni(writer: FunctionWriter, value: str, lanes: int) -> str:
    """The same by VPDPWSSD: to the word it adds its bit 16 and 0x7FFF, as products by one of the
    halves of another word."""
    word, half = VectorType("i32", 16), VectorType("i16", 32)
    let, number = writer.let, word.constant
    rounded = []
    for start in range(0, lanes, 16):
        single = VectorType("float", 16)
        part = writer.slice(value, VectorType("float", lanes), start, 16)
        bits = let(f"bitcast {single} {part} to {word}")
        odd = let(f"and {word} {bits}, {number(1 << 16)}")
        terms = let(f"or {word} {odd}, {number(0x7FFF)}")
        terms, ones = (let(f"bitcast {word} {x} to {half}") for x in (terms, number(0x10001)))
        operands = ((word, bits), (half, terms), (half, ones))
        total = writer.call(word, "llvm.x86.avx512.vpdpwssd.512", *operands)
        nan = let(f"fcmp uno {single} {part}, {part}")
        quiet = let(f"or {word} {bits}, {number(1 << 22)}")
        rounded.append(let(f"select {word.of('i1')} {nan}, {word} {quiet}, {word} {total}"))
    if lanes == 16:
        high = let(f"lshr {word} {rounded[0]}, {number(16)}")
        return let(f"trunc {word} {high} to {word.of('i16')}")
    order = f"<{', '.join(f'i16 {2 * lane + 1}' for lane in range(32))}>"
    pairs = [let(f"bitcast {word} {part} to {half}") for part in rounded]
    shorts = [
        writer.call(
            half, "llvm.x86.avx512.vpermi2var.hi.512", (half, low), (half, order), (half, high)
        )
        for low, high in zip(pairs[::2], pairs[1::2], strict=True)
    ]
    return writer.join(shorts, half, lanes)


def _float_to_half(writer: FunctionWriter, value: str, lanes: int) -> str:
    word, single = VectorType("i32", lanes), VectorType("float", lanes)
    flag, let, number = word.of("i1"), writer.let, word.constant
    bits = let(f"bitcast {single} {value} to {word}")
    magnitude = let(f"and {word} {bits}, {number(0x7FFFFFFF)}")
    sign = let(f"and {word} {let(f'lshr {word} {bits}, {number(16)}')}, {number(0x8000)}")
    odd = let(f"and {word} {let(f'lshr {word} {magnitude}, {number(13)}')}, {number(1)}")
    bias = let(f"add {word} {odd}, {number(0xFFF - (112 << 23))}")
    normal = let(f"lshr {word} {let(f'add {word} {magnitude}, {bias}')}, {number(13)}")
    # Below 2^-14 adding 0.5 aligns the binary points, so that the addition itself rounds to a
    # multiple of 2^-24.
    absolute = let(f"bitcast {word} {magnitude} to {single}")
    aligned = let(f"fadd {single} {absolute}, {single.constant(0.5)}")
    denormal = let(f"bitcast {single} {aligned} to {word}")
    denormal = let(f"sub {word} {denormal}, {number(126 << 23)}")
    tiny = let(f"icmp ult {word} {magnitude}, {number(113 << 23)}")
    finite = let(f"select {flag} {tiny}, {word} {denormal}, {word} {normal}")
    payload = let(f"and {word} {let(f'lshr {word} {magnitude}, {number(13)}')}, {number(0x3FF)}")
    payload = let(f"or {word} {payload}, {number(0x7E00)}")
    nan = let(f"icmp ugt {word} {magnitude}, {number(255 << 23)}")
    special = let(f"select {flag} {nan}, {word} {payload}, {word} {number(0x7C00)}")
    huge = let(f"icmp uge {word} {magnitude}, {number(143 << 23)}")
    result = let(f"select {flag} {huge}, {word} {special}, {word} {finite}")
    return let(f"trunc {word} {let(f'or {word} {result}, {sign}')} to {word.of('i16')}")


def _to_odd(writer: FunctionWriter, value: str, lanes: int) -> str:
    """Write the conversion of float64 to float32 that sets the last bit of what is not exact, so
    that a second rounding, to fewer bits, is as if it were the only one.
    """
    double, single, word = (VectorType(e, lanes) for e in ("double", "float", "i32"))
    let, long, flag = writer.let, word.of("i64"), word.of("i1")
    nearest = let(f"fptrunc {double} {value} to {single}")
    wide = let(f"fpext {single} {nearest} to {double}")
    sizes = (let(f"bitcast {double} {v} to {long}") for v in (wide, value))
    above, size = (let(f"shl {long} {v}, {long.constant(1)}") for v in sizes)
    beyond = let(f"sext {flag} {let(f'icmp ugt {long} {above}, {size}')} to {word}")
    inexact = let(f"fcmp one {double} {wide}, {value}")
    bits = let(f"bitcast {single} {nearest} to {word}")
    odd = let(f"or {word} {let(f'add {word} {bits}, {beyond}')}, {word.constant(1)}")
    bits = let(f"select {flag} {inexact}, {word} {odd}, {word} {bits}")
    return let(f"bitcast {word} {bits} to {single}")


def convert(
    writer: FunctionWriter, value: str, source: str, target: str, lanes: int, isa: Isa
) -> str:
    """Write the conversion of `lanes` elements between two dtypes, as they are stored, and
    return the result.

    Floats convert to any float, through float32 where one of them is narrower; int8, uint8 and
    int16 convert to any integer at least as wide.
    """
    if source == target:
        return value
    have, want = storage_type(source, lanes), storage_type(target, lanes)
    if source in ("int8", "uint8", "int16"):
        return writer.let(f"{'zext' if source == 'uint8' else 'sext'} {have} {value} to {want}")
    single = VectorType("float", lanes)
    if source in ("float16", "bfloat16", *FORMATS):
        value, source, have = widen_float(writer, value, source, lanes, isa), "float32", single
        return convert(writer, value, source, target, lanes, isa)
    if source == "float64":
        if target != "float32":
            return narrow_float(writer, _to_odd(writer, value, lanes), target, lanes, isa)
        return writer.let(f"fptrunc {have} {value} to {single}")
    if target == "float64":
        return writer.let(f"fpext {have} {value} to {want}")
    return narrow_float(writer, value, target, lanes, isa)
