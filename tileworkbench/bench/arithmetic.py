"""Probes of arithmetic: as many independent sums as registers hold, so that throughput is what
counts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tileworkbench.bench.probes import AREA_BYTES, Probe, module_text
from tileworkbench.compiler.emit.llvm import amx
from tileworkbench.compiler.emit.llvm.isa import Isa
from tileworkbench.compiler.emit.llvm.text import FunctionWriter, VectorType

_FACTORS: dict[str, bytes] = {
    "float32": np.float32(1).tobytes(),
    "float64": np.float64(1).tobytes(),
    "bfloat16": np.float32(1).tobytes()[2:] * 2,
    "int8": bytes((1, 1, 1, 1)),
    "uint8": np.int16(1).tobytes() * 2,
}
ARITHMETIC = tuple(_FACTORS)
"""Kinds of arithmetic: what T.gemm does with operands of that type."""

_TILES_OF_SUMS = 4  # as products have: one is done in 16 cycles and takes 52


def arithmetic_probe(kind: str, isa: Isa) -> Probe:
    """A loop of nothing but the multiply-adds of T.gemm with operands of `kind`.

    ``float32`` and ``float64`` are fused where `isa` has FMA, else a product and a sum;
    ``bfloat16`` sums two products at once where it has VDPBF16PS, else it is float32; ``int8``
    sums four products at once where it has VPDPBUSD; otherwise, and for ``uint8``, PMADDWD sums
    two. With AMX, ``bfloat16`` and ``int8`` are products of tile registers. A product and its sum
    count as two operations. With factors of one (`write_factors`) a sum grows by the products it
    takes at once per repetition.
    """
    writer = FunctionWriter("work", "void", "ptr %area, i64 %bytes, i64 %repeats")
    if _takes_tiles(kind, isa):
        _write_tile_products(writer, kind)
        operations = 2 * products_at_once(kind, isa) * sums(kind, isa)
        return Probe(f"{kind} multiply-add", module_text(writer), operations)
    arithmetic = _Arithmetic(writer, kind, isa)
    fused = isa.fma if arithmetic.vector.element != "i32" else arithmetic.group == 4
    step = arithmetic.fused_step if fused else arithmetic.separate_step
    arithmetic.write(step)
    operations = 2 * arithmetic.group * arithmetic.count * arithmetic.vector.lanes
    return Probe(f"{kind} multiply-add", module_text(writer), operations)


def products_at_once(kind: str, isa: Isa) -> int:
    """Products that one lane of a sum takes in one step."""
    if _takes_tiles(kind, isa):
        return amx.ROW_BYTES // (1 if kind == "int8" else 2)
    if kind == "int8" and isa.dot_int8:
        return 4
    if kind == "bfloat16" and isa.dot_bfloat16:
        return 2
    return 2 if kind.endswith("int8") else 1


def sums(kind: str, isa: Isa) -> int:
    """How many sums a block has; they lie at the start of its area."""
    if _takes_tiles(kind, isa):
        return _TILES_OF_SUMS * amx.ROWS * amx.ROW_BYTES // 4
    lanes = isa.lanes(8 if kind == "float64" else 4)
    return _sum_vectors(isa) * lanes


def write_factors(area: NDArray[np.uint8], kind: str, isa: Isa) -> None:
    """Put the factor 1 behind the sums of an area, and zero into the sums.

    For int8 the pairs of PMADDWD are 16-bit, as in ``uint8``.
    """
    if kind == "int8" and not isa.dot_int8:
        kind = "uint8"
    elif kind == "bfloat16" and not isa.dot_bfloat16:
        kind = "float32"
    unit = _FACTORS[kind]
    first = sums(kind, isa) * (8 if kind == "float64" else 4)
    area[:first] = 0
    area[first:AREA_BYTES] = np.tile(
        np.frombuffer(unit, np.uint8), (AREA_BYTES - first) // len(unit)
    )


def _sum_vectors(isa: Isa) -> int:
    # Enough for two multiply-adds a cycle with a latency of five; the rest holds factors.
    return 24 if isa.registers >= 32 else 12


def _takes_tiles(kind: str, isa: Isa) -> bool:
    return isa.tiles and kind in amx.PRODUCTS


def _write_tile_products(writer: FunctionWriter, kind: str) -> None:
    """Four registers of sums, each of which takes the products of the same two factors."""
    amx.configure(writer)
    totals, factors = range(_TILES_OF_SUMS), range(_TILES_OF_SUMS, _TILES_OF_SUMS + 2)
    tile_bytes = amx.ROWS * amx.ROW_BYTES

    stride = str(amx.ROW_BYTES)

    def place(number: int) -> str:
        return writer.let(f"getelementptr i8, ptr %area, i64 {number * tile_bytes}")

    def iteration(counter: str, carried: list[str]) -> list[str]:
        for number in totals:
            amx.multiply(writer, kind, number, *factors)
        return []

    for number in (*totals, *factors):
        amx.load(writer, number, place(number), stride)
    writer.counted_loop("%repeats", 1, iteration)
    for number in totals:
        amx.store(writer, number, place(number), stride)
    amx.end(writer)


class _Arithmetic:
    """Writes the loop of one arithmetic probe."""

    def __init__(self, writer: FunctionWriter, kind: str, isa: Isa) -> None:
        self.writer, self.isa = writer, isa
        self.count = _sum_vectors(isa)
        self.group = products_at_once(kind, isa)
        element = "double" if kind == "float64" else "i32" if kind.endswith("int8") else "float"
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
        if vector.element == "float" and self.group == 2:
            pairs = VectorType("bfloat", 2 * vector.lanes)
            operand = writer.let(f"bitcast {vector} {factor} to {pairs}")
            callee = f"llvm.x86.avx512bf16.dpbf16ps.{self.isa.vector_bits}"
            return writer.call(vector, callee, (vector, value), (pairs, operand), (pairs, operand))
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
