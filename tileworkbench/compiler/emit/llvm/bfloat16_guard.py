"""When pairs of bfloat16 may be multiplied by VDPBF16PS, which takes denormals for zero.

Let a and b be the smallest magnitudes of two operands, zeros aside. Where both are normal, every
product is a multiple of 2^(exponent(a) - 7 + exponent(b) - 7), and so is every sum of products,
however it was rounded. If that is at least 2^-126, the smallest normal float32, nothing denormal
goes in and nothing denormal can come out: the instruction then computes what float32 arithmetic
would, up to the order of the sums. Whether it holds is asked of the operands at run time.
"""

from __future__ import annotations

from functools import partial

from tileworkbench.compiler.emit.llvm.isa import Isa
from tileworkbench.compiler.emit.llvm.text import FunctionWriter, VectorType
from tileworkbench.compiler.fast_dataclass import dataclass

_SHORT = VectorType("i16", 1)
# The sum of two biased exponents at which 2^-14 times the product of the powers is 2^-126.
_LEAST_SUM = 2 * 127 + 14 - 126


@dataclass(frozen=True, slots=True)
class Lines:
    """`count` runs of `elements` bfloat16 at `base`, i64 `stride` elements apart."""

    base: str
    count: int
    elements: int
    stride: str


def is_exact(writer: FunctionWriter, a: str, b: str) -> str:
    """Write the test of the smallest exponents of two operands; return an i1 that says that
    VDPBF16PS is exact for them.
    """
    normal = [writer.let(f"icmp ugt i32 {exponent}, 0") for exponent in (a, b)]
    large = writer.let(f"icmp uge i32 {writer.let(f'add i32 {a}, {b}')}, {_LEAST_SUM}")
    safe = writer.let(f"and i1 {writer.let(f'and i1 {normal[0]}, {normal[1]}')}, {large}")
    return writer.call("i1", "llvm.expect.i1", ("i1", safe), ("i1", "true"))


def least_exponent(writer: FunctionWriter, isa: Isa, lines: Lines) -> str:
    """The smallest biased exponent of what is not zero; 256 if all is zero."""
    kind = VectorType("i16", isa.lanes(2))
    full, rest = divmod(lines.elements, kind.lanes)

    def line(number: str, least: list[str]) -> list[str]:
        start = writer.address(_SHORT, lines.base, writer.times(number, lines.stride))

        def step(at: str, least: list[str]) -> list[str]:
            return [fold(least[0], start, writer.times(at, kind.lanes), kind.lanes)]

        if full:
            least = writer.counted_loop(full, 1, step, [(kind, least[0])])
        if rest:
            least = [fold(least[0], start, str(full * kind.lanes), rest)]
        return least

    def fold(least: str, start: str, at: str, elements: int) -> str:
        part = VectorType("i16", elements)
        place = writer.address(_SHORT, start, at)
        value = writer.let(f"load {part}, ptr {place}, align 2")
        value = writer.resize(value, part, kind.lanes)
        # Without the sign, and with zero as the largest number.
        double = writer.let(f"add {kind} {value}, {value}")
        below = writer.let(f"add {kind} {double}, {kind.constant(-1)}")
        smaller = partial(writer.call, kind, f"llvm.umin.{kind.mangled}")
        return smaller((kind, least), (kind, below))

    exponents = writer.counted_loop(lines.count, 1, line, [(kind, kind.constant(-1))])
    least = writer.call("i16", f"llvm.vector.reduce.umin.{kind.mangled}", (kind, exponents[0]))
    wide = writer.let(f"zext i16 {least} to i32")
    return writer.let(f"lshr i32 {writer.let(f'add i32 {wide}, 1')}, 8")
