"""Probes of bandwidth: arrays walked front to back, again and again."""

from __future__ import annotations

from collections.abc import Callable

from tileworkbench.bench.probes import ARRAY_GAP, STEP_BYTES, Probe, module_text
from tileworkbench.compiler.device.host import processor
from tileworkbench.compiler.emit.llvm.isa import Isa
from tileworkbench.compiler.emit.llvm.text import FunctionWriter, VectorType

STREAMS = ("read", "copy", "triad")
"""A sum of one array; b = a; a = b + 3 c (the TRIAD of McCalpin's STREAM)."""

_STREAM_ARRAYS = {"read": 1, "copy": 2, "triad": 3}
_READ_SUMS = 8


def stream_probe(kind: str, isa: Isa, *, streaming_stores: bool = False) -> Probe:
    """One of `STREAMS`. The destination is the first array of an area.

    ``read`` leaves the sums of 32-bit integers behind its array: eight vectors, vector i the sum
    of the vectors whose number in the array is i modulo 8. The others are float32. With
    `streaming_stores` the destination goes past the caches.
    """
    writer = FunctionWriter("work", "void", "ptr %area, i64 %bytes, i64 %repeats")
    _Stream(writer, isa, streaming_stores).write(kind)
    suffix = " with streaming stores" if streaming_stores else ""
    text = module_text(writer) + ("\n!0 = !{ i32 1 }\n" if streaming_stores else "")
    return Probe(f"{kind}{suffix}", text, _STREAM_ARRAYS[kind])


class _Stream:
    """Writes the two loops of one stream."""

    def __init__(self, writer: FunctionWriter, isa: Isa, streaming_stores: bool) -> None:
        self.writer = writer
        self.floats = VectorType("float", isa.lanes(4))
        self.integers = self.floats.of("i32")
        self.vector_bytes = isa.vector_bits // 8
        self.has_fma = isa.fma
        self.metadata = ", !nontemporal !0" if streaming_stores else ""

    def write(self, kind: str) -> None:
        writer, streaming = self.writer, bool(self.metadata)
        arrays = ["%area"]
        step = writer.let(f"add i64 %bytes, {ARRAY_GAP}")
        for _ in range(1, _STREAM_ARRAYS[kind]):
            arrays.append(writer.let(f"getelementptr i8, ptr {arrays[-1]}, i64 {step}"))
        if kind == "read":
            self.write_read()
            return
        body = self.copy if kind == "copy" else self.triad
        self.repeat(lambda offset, _: body(arrays, offset), [])
        if streaming and processor.architecture() == "x86_64":
            writer.declare("void", "llvm.x86.sse.sfence")
            writer.do("call void @llvm.x86.sse.sfence()")

    def repeat(self, body: Callable[[str, list[str]], list[str]], carried: list[str]) -> list[str]:
        """Write `body(offset, carried)` for every step of every repetition."""
        kind = self.integers

        def pass_over(counter: str, values: list[str]) -> list[str]:
            typed = [(kind, value) for value in values]
            return self.writer.counted_loop("%bytes", STEP_BYTES, body, typed)

        typed = [(kind, value) for value in carried]
        return self.writer.counted_loop("%repeats", 1, pass_over, typed)

    def places(self, array: str, offset: str) -> list[str]:
        """The addresses of the vectors of one step."""
        base = self.writer.let(f"getelementptr i8, ptr {array}, i64 {offset}")
        steps = range(0, STEP_BYTES, self.vector_bytes)
        return [self.writer.let(f"getelementptr i8, ptr {base}, i64 {at}") for at in steps]

    def load(self, kind: VectorType, at: str) -> str:
        return self.writer.let(f"load {kind}, ptr {at}, align {self.vector_bytes}")

    def store(self, value: str, at: str) -> None:
        align = f"align {self.vector_bytes}{self.metadata}"
        self.writer.do(f"store {self.floats} {value}, ptr {at}, {align}")

    def write_read(self) -> None:
        writer, kind = self.writer, self.integers

        def step(offset: str, totals: list[str]) -> list[str]:
            totals = list(totals)
            for number, at in enumerate(self.places("%area", offset)):
                index = number % _READ_SUMS
                value = self.load(kind, at)
                totals[index] = writer.let(f"add {kind} {totals[index]}, {value}")
            return totals

        totals = self.repeat(step, ["zeroinitializer"] * _READ_SUMS)
        end = writer.let("getelementptr i8, ptr %area, i64 %bytes")
        for number, total in enumerate(totals):
            at = writer.let(f"getelementptr {kind}, ptr {end}, i64 {number}")
            writer.do(f"store {kind} {total}, ptr {at}, align {self.vector_bytes}")

    def copy(self, arrays: list[str], offset: str) -> list[str]:
        to, source = (self.places(array, offset) for array in arrays)
        for target, at in zip(to, source, strict=True):
            self.store(self.load(self.floats, at), target)
        return []

    def triad(self, arrays: list[str], offset: str) -> list[str]:
        writer, kind = self.writer, self.floats
        factor = (kind, kind.constant(3.0))
        for target, at_b, at_c in zip(*(self.places(a, offset) for a in arrays), strict=True):
            b, c = (kind, self.load(kind, at_b)), (kind, self.load(kind, at_c))
            if self.has_fma:
                value = writer.call(kind, f"llvm.fma.{kind.mangled}", c, factor, b)
            else:
                product = writer.let(f"fmul {kind} {c[1]}, {factor[1]}")
                value = writer.let(f"fadd {kind} {product}, {b[1]}")
            self.store(value, target)
        return []
