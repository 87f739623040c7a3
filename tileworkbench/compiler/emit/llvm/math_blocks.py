"""What vector code of elementary functions is written with: arithmetic and choices lane by lane."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tileworkbench.compiler.emit.llvm.isa import Isa
from tileworkbench.compiler.emit.llvm.text import FunctionWriter, VectorType


class MathBlocks:
    """Writes operations on values of one type, `lanes` floats or doubles."""

    def __init__(self, writer: FunctionWriter, kind: VectorType, isa: Isa) -> None:
        self.writer = writer
        self.kind = kind
        self.word = kind.of("i32")
        self.isa = isa

    def constant(self, value: float) -> str:
        return self.kind.constant(value)

    def binary(self, instruction: str, left: str, right: str) -> str:
        return self.writer.let(f"{instruction} {self.kind} {left}, {right}")

    def integer(self, instruction: str, left: str, right: str | int) -> str:
        right = self.word.constant(right) if isinstance(right, int) else right
        return self.writer.let(f"{instruction} {self.word} {left}, {right}")

    def bits(self, value: str) -> str:
        return self.writer.let(f"bitcast {self.kind} {value} to {self.word}")

    def from_bits(self, value: str) -> str:
        return self.writer.let(f"bitcast {self.word} {value} to {self.kind}")

    def intrinsic(self, name: str, *arguments: str) -> str:
        typed = [(self.kind, argument) for argument in arguments]
        return self.writer.call(self.kind, f"llvm.{name}.{self.kind.mangled}", *typed)

    def multiply_add(self, a: str, b: str, c: str) -> str:
        if self.isa.fma:
            return self.intrinsic("fma", a, b, c)
        return self.binary("fadd", self.binary("fmul", a, b), c)

    def flag(self, comparison: str, left: str, right: str) -> str:
        return self.writer.let(f"fcmp {comparison} {self.kind} {left}, {right}")

    def both(self, left: str, right: str) -> str:
        """Of two flags."""
        return self.writer.let(f"and {self.kind.of('i1')} {left}, {right}")

    def select(self, flag: str, then: str, otherwise: str) -> str:
        choice = f"{self.kind} {then}, {self.kind} {otherwise}"
        return self.writer.let(f"select {self.kind.of('i1')} {flag}, {choice}")

    def where(self, comparison: str, left: str, right: str, then: str, otherwise: str) -> str:
        return self.select(self.flag(comparison, left, right), then, otherwise)

    def widened(self, value: str) -> str:
        """A float as a double."""
        return self.writer.let(f"fpext {self.kind} {value} to {self.kind.of('double')}")

    def narrowed(self, value: str) -> str:
        """A double as a float."""
        return self.writer.let(f"fptrunc {self.kind.of('double')} {value} to {self.kind}")

    def polynomial(self, x: str, coefficients: Sequence[float]) -> str:
        """Horner's rule; the coefficient of x^0 comes first."""
        total = self.constant(coefficients[-1])
        for coefficient in reversed(coefficients[:-1]):
            total = self.multiply_add(total, x, self.constant(coefficient))
        return total

    def clamp(self, x: str, lowest: float | None, highest: float) -> str:
        """Limit x; NaN stays NaN."""
        top = self.constant(highest)
        x = self.where("olt", top, x, top, x)
        if lowest is None:
            return x
        bottom = self.constant(lowest)
        return self.where("ogt", bottom, x, bottom, x)

    def library(self, op: str, arguments: Sequence[str]) -> str:
        """Call the C library for every lane."""
        scalar = VectorType(self.kind.element, 1)
        callee = op + ("f" if scalar.element == "float" else "")
        if self.kind.lanes == 1:
            return self.writer.call(scalar, callee, *((scalar, value) for value in arguments))
        result = "poison"
        for lane in range(self.kind.lanes):
            values = [self.writer.lane(value, self.kind, lane) for value in arguments]
            value = self.writer.call(scalar, callee, *((scalar, value) for value in values))
            result = self.writer.with_lane(result, self.kind, lane, value)
        return result

    def unless(self, rare: str, usual: Callable[[], str], rarely: Callable[[], str]) -> str:
        """What `usual` writes, or `rarely` for all lanes where one of them has the flag `rare`."""
        writer, flag = self.writer, self.kind.of("i1")
        labels = [writer.fresh_label(hint) for hint in ("usual", "rare", "end")]
        if self.kind.lanes > 1:
            rare = writer.call("i1", f"llvm.vector.reduce.or.{flag.mangled}", (flag, rare))
        rare = writer.call("i1", "llvm.expect.i1", ("i1", rare), ("i1", "false"))
        writer.branch(rare, labels[1], labels[0])
        arms = []
        for label, write in zip(labels, (usual, rarely), strict=False):
            writer.place(label)
            arms.append(f"[ {write()}, %{writer.block} ]")
            writer.jump(labels[2])
        writer.place(labels[2])
        return writer.let(f"phi {self.kind} {', '.join(arms)}")

    def split(self, x: str) -> tuple[str, str]:
        """(e, m) with x = 2^e m and m around 1, for a positive and finite x."""
        smallest = self.constant(2.0**-126)
        enlarged = self.binary("fmul", x, self.constant(2.0**23))
        normal = self.where("olt", x, smallest, enlarged, x)
        correction = self.where("olt", x, smallest, self.constant(-23.0), self.constant(0.0))
        bits = self.bits(normal)
        exponent = self.integer("ashr", self.integer("sub", bits, 0x3F3504F3), 23)
        mantissa = self.integer("sub", bits, self.integer("shl", exponent, 23))
        e = self.writer.let(f"sitofp {self.word} {exponent} to {self.kind}")
        return self.binary("fadd", e, correction), self.from_bits(mantissa)
