"""Small kernels with a known amount of work, compiled like any other: what ceilings are measured
with.

Each follows the contract of `compiler.runtime.llvm`. A block of the grid is one thread's share and
has an area of its own in memory. The arguments are the address of block 0's area, the bytes from
one area to the next, the bytes of one array in an area (streams only, a multiple of `STEP_BYTES`)
and how often to repeat. What a probe leaves in memory is fixed, so that a test can tell whether it
did all its work.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tileworkbench.compiler.codegen.isa import Isa, isa_from_features
from tileworkbench.compiler.codegen.text import FunctionWriter, VectorType
from tileworkbench.compiler.runtime import host
from tileworkbench.compiler.runtime.launch import Launcher
from tileworkbench.compiler.runtime.llvm import NativeTarget, native_target
from tileworkbench.compiler.runtime.native import build_native

STEP_BYTES = 512
"""What one iteration of a stream reads or writes of each array."""

ARRAY_GAP = 21 * 64
"""Bytes between two arrays of a stream: a load whose address equals an earlier store's modulo 4096
would wait for it, so arrays of a power of two in length must not follow each other closely."""

_PAGE = 4096
_ENTRY = """
define i32 @probe(ptr %args, i64 %begin, i64 %end, ptr %flag, ptr %scratch) {
entry:
  %data = load ptr, ptr %args
  %stride_at = getelementptr i64, ptr %args, i64 1
  %stride = load i64, ptr %stride_at
  %bytes_at = getelementptr i64, ptr %args, i64 2
  %bytes = load i64, ptr %bytes_at
  %repeats_at = getelementptr i64, ptr %args, i64 3
  %repeats = load i64, ptr %repeats_at
  br label %block
block:
  %id = phi i64 [ %begin, %entry ], [ %next, %block ]
  %offset = mul i64 %id, %stride
  %area = getelementptr i8, ptr %data, i64 %offset
  call void @work(ptr %area, i64 %bytes, i64 %repeats)
  %next = add i64 %id, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %block, label %done
done:
  ret i32 0
}
"""


@dataclass(frozen=True, slots=True)
class Probe:
    """LLVM IR of one probe. `work` is what a repetition does: floating-point (or integer)
    operations of an arithmetic probe, arrays walked by a stream, cycles of the chain."""

    name: str
    ir_text: str
    work: int


class ProbeRunner:
    """A probe linked into this process, with an area for each of `blocks` blocks.

    `array_bytes` is the length of one array of a stream; for other probes the area holds
    `AREA_BYTES`.
    """

    def __init__(
        self, probe: Probe, blocks: int, array_bytes: int = 0, target: NativeTarget | None = None
    ) -> None:
        self.blocks = blocks
        self.array_bytes = array_bytes
        arrays = probe.work if array_bytes else 0
        self._stride = area_stride(arrays, array_bytes)
        self._memory = np.empty(blocks * self._stride + _PAGE, np.uint8)
        # Touched, or every page would be the system's one page of zeros, which is always cached.
        self._memory.fill(0)
        self._start = -self._memory.ctypes.data % _PAGE
        function = build_native(probe.ir_text, ("probe",), target).functions["probe"]
        self._launch = Launcher(function, probe.name, 4, chunk=1)

    def area(self, block: int) -> NDArray[np.uint8]:
        """The memory of one block."""
        start = self._start + block * self._stride
        return self._memory[start : start + self._stride]

    def run(self, repeats: int) -> None:
        """Execute all blocks, each on a thread of its own if a launch may use as many."""
        data = self._memory.ctypes.data + self._start
        self._launch((data, self._stride, self.array_bytes, repeats), self.blocks)


def area_stride(arrays: int, array_bytes: int) -> int:
    """Bytes from one area to the next: whole pages, and a gap after each array."""
    return -(-max(arrays * (array_bytes + ARRAY_GAP), AREA_BYTES) // _PAGE) * _PAGE


def host_isa() -> Isa:
    """What code compiled for all of this machine may use."""
    return isa_from_features(dict.fromkeys(native_target().features, True))


# Arithmetic: as many independent sums as registers hold, so that throughput is what counts.

AREA_BYTES = 4096
"""Memory of a block of an arithmetic probe: its sums, then the factor in every 32-bit word."""

_FACTORS: dict[str, bytes] = {
    "float32": np.float32(1).tobytes(),
    "float64": np.float64(1).tobytes(),
    "int8": bytes((1, 1, 1, 1)),
    "uint8": np.int16(1).tobytes() * 2,
}
ARITHMETIC = tuple(_FACTORS)
"""Kinds of arithmetic: what T.gemm does with operands of that type."""


def arithmetic_probe(kind: str, isa: Isa) -> Probe:
    """A loop of nothing but the multiply-adds of T.gemm with operands of `kind`.

    ``float32`` and ``float64`` are fused where `isa` has FMA, else a product and a sum; ``int8``
    sums four products at once where it has VPDPBUSD; otherwise, and for ``uint8``, PMADDWD sums
    two. A product and its sum count as two operations. With factors of one (`ones`) every 32-bit
    (64-bit for ``float64``) sum grows by the products it takes at once per repetition.
    """
    writer = FunctionWriter("work", "void", "ptr %area, i64 %bytes, i64 %repeats")
    arithmetic = _Arithmetic(writer, kind, isa)
    fused = isa.fma if kind.startswith("float") else arithmetic.group == 4
    step = arithmetic.fused_step if fused else arithmetic.separate_step
    arithmetic.write(step)
    operations = 2 * arithmetic.group * arithmetic.count * arithmetic.vector.lanes
    return Probe(f"{kind} multiply-add", _module(writer), operations)


def products_at_once(kind: str, isa: Isa) -> int:
    """Products that one lane of a sum takes in one step."""
    if kind == "int8" and isa.dot_int8:
        return 4
    return 1 if kind.startswith("float") else 2


def sums(kind: str, isa: Isa) -> int:
    """How many sums a block has; they lie at the start of its area."""
    lanes = isa.lanes(8 if kind == "float64" else 4)
    return _sum_vectors(isa) * lanes


def write_factors(area: NDArray[np.uint8], kind: str, isa: Isa) -> None:
    """Put the factor 1 behind the sums of an area, and zero into the sums.

    For int8 the pairs of PMADDWD are 16-bit, as in ``uint8``.
    """
    unit = _FACTORS["uint8" if kind == "int8" and not isa.dot_int8 else kind]
    first = sums(kind, isa) * (8 if kind == "float64" else 4)
    area[:first] = 0
    area[first:AREA_BYTES] = np.tile(
        np.frombuffer(unit, np.uint8), (AREA_BYTES - first) // len(unit)
    )


def _sum_vectors(isa: Isa) -> int:
    # Enough for two multiply-adds a cycle with a latency of five; the rest holds factors.
    return 24 if isa.registers >= 32 else 12


class _Arithmetic:
    """Writes the loop of one arithmetic probe."""

    def __init__(self, writer: FunctionWriter, kind: str, isa: Isa) -> None:
        self.writer, self.isa = writer, isa
        self.count = _sum_vectors(isa)
        self.group = products_at_once(kind, isa)
        element = {"float32": "float", "float64": "double"}.get(kind, "i32")
        self.vector = VectorType(element, isa.lanes(8 if kind == "float64" else 4))
        # Separate products are arranged as in a register block of a matrix product.
        self.rows = 6
        self.columns = self.count // self.rows
        self.left: list[str] = []

    def write(self, step: Callable[[int, str, str], str]) -> None:
        """`step(number, counter, value)` is the next value of sum `number`."""
        writer, vector = self.writer, self.vector
        places = [self.place(number) for number in range(self.count)]
        starts = [writer.let(f"load {vector}, ptr {at}, align 64") for at in places]
        factors = range(self.count, self.count + self.columns)
        self.right = [writer.let(f"load {vector}, ptr {self.place(n)}, align 16") for n in factors]

        def iteration(counter: str, values: list[str]) -> list[str]:
            return [step(number, counter, value) for number, value in enumerate(values)]

        carried = [(vector, value) for value in starts]
        ends = writer.counted_loop("%repeats", 1, iteration, carried)
        for at, value in zip(places, ends, strict=True):
            writer.do(f"store {vector} {value}, ptr {at}, align 64")

    def place(self, number: int) -> str:
        return self.writer.let(f"getelementptr {self.vector}, ptr %area, i64 {number}")

    def fused_step(self, number: int, counter: str, value: str) -> str:
        writer, vector, factor = self.writer, self.vector, self.right[0]
        if vector.element != "i32":
            operands = [(vector, factor), (vector, factor), (vector, value)]
            return writer.call(vector, f"llvm.fma.{vector.mangled}", *operands)
        bytes_ = VectorType("i8", 4 * vector.lanes)
        operand = writer.let(f"bitcast {vector} {factor} to {bytes_}")
        callee = f"llvm.x86.avx512.vpdpbusd.{self.isa.vector_bits}"
        return writer.call(vector, callee, (vector, value), (bytes_, operand), (bytes_, operand))

    def separate_step(self, number: int, counter: str, value: str) -> str:
        """A product that does not depend on the sum would be computed once for all repetitions:
        its first factor is read again, from one of two places in turn."""
        row, column = divmod(number, self.columns)
        if column == 0:
            self.left = [*self.left[:row], self.broadcast(counter, row)]
        product = self.multiply(self.left[row], self.right[column])
        add = "add" if self.vector.element == "i32" else "fadd"
        return self.writer.let(f"{add} {self.vector} {value}, {product}")

    def broadcast(self, counter: str, row: int) -> str:
        writer, vector = self.writer, self.vector
        parity = writer.let(f"and i64 {counter}, 1")
        first = self.count * vector.lanes + 2 * row
        index = writer.let(f"add i64 {parity}, {first}")
        at = writer.let(f"getelementptr {vector.element}, ptr %area, i64 {index}")
        value = writer.let(f"load {vector.element}, ptr {at}, align 4")
        single = writer.let(f"insertelement {vector} poison, {vector.element} {value}, i64 0")
        zeros = f"<{vector.lanes} x i32> zeroinitializer"
        return writer.let(f"shufflevector {vector} {single}, {vector} poison, {zeros}")

    def multiply(self, left: str, right: str) -> str:
        """Products of floats, or sums of two products of shorts in the form of PMADDWD."""
        writer, vector = self.writer, self.vector
        if vector.element != "i32":
            return writer.let(f"fmul {vector} {left}, {right}")
        short, wide = VectorType("i16", 2 * vector.lanes), VectorType("i32", 2 * vector.lanes)
        pairs = [writer.let(f"bitcast {vector} {value} to {short}") for value in (left, right)]
        factors = [writer.let(f"sext {short} {value} to {wide}") for value in pairs]
        product = writer.let(f"mul nsw {wide} {factors[0]}, {factors[1]}")
        halves = []
        for parity in (0, 1):
            lanes = ", ".join(f"i32 {2 * lane + parity}" for lane in range(vector.lanes))
            mask = f"<{vector.lanes} x i32> <{lanes}>"
            halves.append(writer.let(f"shufflevector {wide} {product}, {wide} poison, {mask}"))
        return writer.let(f"add {vector} {halves[0]}, {halves[1]}")


# Streams: arrays walked front to back, again and again.

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
    text = _module(writer) + ("\n!0 = !{ i32 1 }\n" if streaming_stores else "")
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
        if streaming and host.architecture() == "x86_64":
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


# The clock: additions that wait for each other, one cycle each.

_CHAIN_PAIRS = 16
_CHAIN_REPEATS = 20_000


def chain_probe() -> Probe:
    """A chain of dependent 64-bit additions and exclusive ors, one cycle each on any processor.

    It begins with the first word of the area, adds the second and flips by the third, and leaves
    the result in the first.
    """
    writer = FunctionWriter("work", "void", "ptr %area, i64 %bytes, i64 %repeats")
    places = [writer.let(f"getelementptr i64, ptr %area, i64 {number}") for number in range(3)]
    start, addend, flips = (writer.let(f"load i64, ptr {at}, align 8") for at in places)

    def iteration(counter: str, values: list[str]) -> list[str]:
        value = values[0]
        for _ in range(_CHAIN_PAIRS):
            value = writer.let(f"xor i64 {writer.let(f'add i64 {value}, {addend}')}, {flips}")
        return [value]

    ends = writer.counted_loop("%repeats", 1, iteration, [(VectorType("i64", 1), start)])
    writer.do(f"store i64 {ends[0]}, ptr {places[0]}, align 8")
    return Probe("dependent additions", _module(writer), 2 * _CHAIN_PAIRS)


@functools.cache
def _clock_runner() -> ProbeRunner:
    return ProbeRunner(chain_probe(), 1)


def sample_clock() -> float:
    """The processor's clock in GHz just now, from a chain of additions; takes half a
    millisecond.

    Raises `UnsupportedError` where nothing can be compiled.
    """
    runner = _clock_runner()
    fastest = float("inf")
    for _ in range(4):
        start = time.perf_counter_ns()
        runner.run(_CHAIN_REPEATS)
        fastest = min(fastest, time.perf_counter_ns() - start)
    return _CHAIN_REPEATS * 2 * _CHAIN_PAIRS / fastest


def _module(writer: FunctionWriter) -> str:
    function = writer.finish()
    return "\n".join((*sorted(function.declarations), function.text, _ENTRY))
