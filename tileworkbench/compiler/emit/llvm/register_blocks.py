"""The loops of a tile product by vectors: blocks whose accumulators stay in registers.

The tile is cut into blocks of `mr` rows and `nr` columns; while the loop over k runs there is one
broadcast of A and one multiply-add per register for each vector of B. Rows that do not divide are
split evenly (128 rows in blocks of 6 become 18 blocks of 6 and 4 of 5), columns that do not divide
give one narrower block. The structure is that of Goto and van de Geijn, "Anatomy of
high-performance matrix multiplication" (2008).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from tileworkbench.compiler.emit.llvm.convert import convert
from tileworkbench.compiler.emit.llvm.gemm_spec import MicroGemmSpec
from tileworkbench.compiler.emit.llvm.text import (
    DTYPE_BYTES,
    LINE_BYTES,
    FunctionWriter,
    VectorType,
    storage_type,
)


def split_evenly(extent: int, block: int) -> list[tuple[int, int]]:
    """Return (count, size) of the fewest blocks of at most `block`, as equal as can be."""
    count = -(-extent // block)
    if not count:
        return []
    small, larger = divmod(extent, count)
    return [
        (blocks, size) for blocks, size in ((larger, small + 1), (count - larger, small)) if blocks
    ]


class Blocks:
    """Writes the loops of one tile product of `a`, `b` and `c` with vectors; the pointers of the
    current block are passed down.
    """

    def __init__(
        self,
        spec: MicroGemmSpec,
        writer: FunctionWriter,
        a: str = "%A",
        b: str = "%B",
        c: str = "%C",
    ) -> None:
        self.spec, self.a, self.b, self.c = spec, a, b, c
        self.writer = writer
        self.accumulator = storage_type(spec.compute_dtype, spec.lanes)
        self.panel = storage_type(spec.panel_dtype)
        self.memory = storage_type(spec.acc_dtype)

    def write_tile(self) -> None:
        spec = self.spec
        full, rest = divmod(spec.n, spec.nr)
        stride = spec.panel_stride if spec.b_layout == "panels" else spec.nr

        def block(first: int, columns: int, index: str) -> None:
            panel = self.offset(self.panel, self.b, index, stride, first)
            c = self.offset(self.memory, self.c, index, spec.nr, first)
            self.write_columns(panel, c, columns)

        self.writer.repeat(full, partial(block, 0, spec.nr))
        if rest:
            self.writer.repeat(1, partial(block, full, rest))

    def offset(self, kind: VectorType, base: str, block: str, stride: int, first: int) -> str:
        if first:
            base = self.writer.address(kind, base, str(first * stride))
        return self.writer.address(kind, base, self.writer.times(block, stride))

    def write_columns(self, panel: str, c: str, columns: int) -> None:
        """Write all blocks of rows of one block of columns."""
        first = 0
        for count, rows in split_evenly(self.spec.m, self.spec.mr):
            self.writer.repeat(count, partial(self.write_rows, panel, c, first, rows, columns))
            first += count * rows

    def write_rows(
        self, panel: str, c: str, first: int, rows: int, columns: int, index: str
    ) -> None:
        """Write one block of rows, the `index`-th of `rows` rows from row `first` on."""
        row = self.writer.let(f"add nuw nsw i64 {self.writer.times(index, rows)}, {first}")
        step = "%lda" if self.spec.a_layout == "rows" else self.spec.group
        a = self.writer.address(self.panel, self.a, self.writer.times(row, step))
        self.write_block(
            a,
            panel,
            self.writer.address(self.memory, c, self.writer.times(row, "%ldc")),
            rows,
            columns,
        )

    def write_block(self, a: str, panel: str, c: str, rows: int, columns: int) -> None:
        """Write one register block: load C, run over k, store C."""
        writer, lanes = self.writer, self.spec.lanes
        widths = [min(lanes, columns - j) for j in range(0, columns, lanes)]
        c_rows = [
            self.writer.address(self.memory, c, self.writer.times("%ldc", i)) if i else c
            for i in range(rows)
        ]
        if self.spec.dot == "bfloat16":
            zeros = [self.accumulator.constant(0)] * (rows * len(widths))
            self.finish_late(c_rows, widths, self.run_over_k(a, panel, rows, widths, zeros))
            return
        zeros = self.initial(panel, len(widths))
        entry, load, start = writer.block, writer.fresh_label("load"), writer.fresh_label("start")
        writer.branch("%accumulate", load, start)
        writer.place(load)
        loaded = [
            self.add(self.load_c(c_rows[i], j, width), zeros[j])
            for i in range(rows)
            for j, width in enumerate(widths)
        ]
        loaded_at = writer.block
        writer.jump(start)
        writer.place(start)
        kind = self.accumulator
        sums = [
            writer.let(
                f"phi {kind} [ {zeros[at % len(widths)]}, %{entry} ], [ {value}, %{loaded_at} ]"
            )
            for at, value in enumerate(loaded)
        ]
        if self.spec.prefetch_a:
            self.prefetch(a, rows)
        sums = self.run_over_k(a, panel, rows, widths, sums)
        for i in range(rows):
            for j, width in enumerate(widths):
                self.store_c(c_rows[i], j, width, sums[i * len(widths) + j])

    def finish_late(self, c_rows: list[str], widths: list[int], sums: list[str]) -> None:
        """Add what C held to the finished sums, and store: a dot product that started from C would
        lose what is denormal there."""
        writer, kind = self.writer, self.accumulator
        entry, load, store = writer.block, writer.fresh_label("load"), writer.fresh_label("store")
        places = [(row, j, width) for row in c_rows for j, width in enumerate(widths)]
        writer.branch("%accumulate", load, store)
        writer.place(load)
        added = [
            writer.let(f"fadd {kind} {self.load_c(*place)}, {total}")
            for place, total in zip(places, sums, strict=True)
        ]
        loaded_at = writer.block
        writer.jump(store)
        writer.place(store)
        values = [
            writer.let(f"phi {kind} [ {total}, %{entry} ], [ {value}, %{loaded_at} ]")
            for total, value in zip(sums, added, strict=True)
        ]
        for place, value in zip(places, values, strict=True):
            self.store_c(*place, value)

    def prefetch(self, a: str, rows: int) -> None:
        """Prefetch the cache lines of these rows `prefetch_a` elements further on, even past the
        end of A.
        """
        spec = self.spec
        line = LINE_BYTES // DTYPE_BYTES[spec.panel_dtype]
        for i in range(rows):
            for p in range(spec.prefetch_a, spec.prefetch_a + spec.k, line):
                index = (
                    self.writer.let(f"add i64 {self.writer.times('%lda', i)}, {p}") if i else str(p)
                )
                at = self.writer.let(f"getelementptr {self.panel}, ptr {a}, i64 {index}")
                self.writer.prefetch(at)

    def initial(self, panel: str, vectors: int) -> list[str]:
        """Return what sums start from: zero, or what makes up for the 128 added to bytes of A."""
        if self.spec.dot != "int8":
            return [self.accumulator.constant(0)] * vectors
        sums = self.writer.address(self.panel, panel, str(self.spec.k_padded * self.spec.nr))
        kind = self.accumulator
        places = [self.writer.address(kind, sums, str(j)) for j in range(vectors)]
        return [self.writer.let(f"load {kind}, ptr {at}, align 1") for at in places]

    def add(self, value: str, initial: str) -> str:
        if self.spec.dot != "int8":
            return value
        return self.writer.let(f"add {self.accumulator} {value}, {initial}")

    def load_c(self, row: str, vector: int, width: int) -> str:
        spec, memory = self.spec, storage_type(self.spec.acc_dtype, width)
        at = self.writer.address(self.memory, row, str(vector * spec.lanes))
        value = self.writer.let(f"load {memory}, ptr {at}, align {DTYPE_BYTES[spec.acc_dtype]}")
        value = convert(self.writer, value, spec.acc_dtype, spec.compute_dtype, width, spec.isa)
        return self.writer.resize(value, storage_type(spec.compute_dtype, width), spec.lanes)

    def store_c(self, row: str, vector: int, width: int, value: str) -> None:
        spec = self.spec
        at = self.writer.address(self.memory, row, str(vector * spec.lanes))
        value = self.writer.resize(value, self.accumulator, width)
        value = convert(self.writer, value, spec.compute_dtype, spec.acc_dtype, width, spec.isa)
        kind = storage_type(spec.acc_dtype, width)
        self.writer.do(f"store {kind} {value}, ptr {at}, align {DTYPE_BYTES[spec.acc_dtype]}")

    def run_over_k(
        self, a: str, panel: str, rows: int, widths: list[int], sums: list[str]
    ) -> list[str]:
        """Write the loop over k, two steps at a time, and return the sums.

        The accumulators of one step already cover the latency of multiply-adds. But counters and
        addresses take turns of the ports that multiply on Intel's cores; with two steps they take
        half as many (6 % of a product there, nothing on AMD's).
        """
        spec = self.spec
        a_rows = [a]
        if spec.a_layout == "rows":
            a_rows += [
                self.writer.address(self.panel, a, self.writer.times("%lda", i))
                for i in range(1, rows)
            ]

        def iteration(step: str, sums: list[str]) -> list[str]:
            return self.multiply(a_rows, panel, step, rows, widths, sums)

        def two(step: str, sums: list[str]) -> list[str]:
            following = self.writer.let(f"add nuw nsw i64 {step}, 1")
            return iteration(following, iteration(step, sums))

        steps, rest = divmod(spec.k, spec.group)
        if steps > 1:
            carried = [(self.accumulator, value) for value in sums]
            sums = self.writer.counted_loop(steps // 2 * 2, 2, two, carried)
        if steps % 2:
            sums = iteration(str(steps - 1), sums)
        if rest:
            sums = self.multiply(a_rows, panel, str(steps), rows, widths, sums, rest)
        return sums

    def multiply(
        self,
        a_rows: list[str],
        panel: str,
        step: str,
        rows: int,
        widths: list[int],
        sums: list[str],
        valid: int = 0,
    ) -> list[str]:
        """Write one step of k: vectors of B, then per row a broadcast of A and its multiply-adds.

        `valid`, where not 0, is how many elements of the last, incomplete group of a row of A
        exist.
        """
        spec = self.spec
        row_of_b = self.writer.times(
            step, spec.nr * spec.group if spec.b_layout == "panels" else "%ldb"
        )
        b = self.writer.address(self.panel, panel, row_of_b)
        vectors = [self.load_b(b, j, width) for j, width in enumerate(widths)]
        result = []
        for i in range(rows):
            broadcast = self.broadcast_a(a_rows, step, i, valid)
            for j, vector in enumerate(vectors):
                result.append(self.multiply_add(broadcast, vector, sums[i * len(widths) + j]))
        return result

    def load_b(self, row: str, vector: int, width: int) -> str:
        spec = self.spec
        at = self.writer.address(self.panel, row, str(vector * spec.lanes * spec.group))
        if spec.b_layout == "panels":
            return self.writer.let(
                f"load {self.accumulator}, ptr {at}, align {DTYPE_BYTES[spec.panel_dtype]}"
            )
        kind = storage_type(spec.panel_dtype, width)
        value = self.writer.let(f"load {kind}, ptr {at}, align {DTYPE_BYTES[spec.panel_dtype]}")
        return self.writer.resize(value, kind, spec.lanes)

    def broadcast_a(self, a_rows: list[str], step: str, row: int, valid: int) -> str:
        """Return the group of A at (row, step) in every lane."""
        spec, writer = self.spec, self.writer
        if spec.a_layout == "rows":
            at = self.writer.address(self.panel, a_rows[row], self.writer.times(step, spec.group))
        else:
            line = self.writer.address(
                self.panel,
                a_rows[0],
                self.writer.times(self.writer.times(step, "%lda"), spec.group),
            )
            at = self.writer.address(self.panel, line, str(row * spec.group))
        element = self.accumulator.element
        if valid and spec.a_layout == "rows":
            value = self.load_partial(at, valid)
        else:
            value = writer.let(f"load {element}, ptr {at}, align {DTYPE_BYTES[spec.panel_dtype]}")
        return writer.splat(value, self.accumulator)

    def load_partial(self, at: str, valid: int) -> str:
        """Load a group whose trailing elements lie outside A and count as zero."""
        writer, bits = self.writer, 8 * DTYPE_BYTES[self.spec.panel_dtype]
        total = ""
        for p in range(valid):
            place = self.writer.address(self.panel, at, str(p))
            value = writer.let(f"load {self.panel}, ptr {place}, align {bits // 8}")
            wide = writer.let(f"zext {self.panel} {value} to i32")
            shifted = writer.let(f"shl i32 {wide}, {p * bits}")
            total = writer.let(f"or i32 {total}, {shifted}") if total else shifted
        element = self.accumulator.element
        return total if element == "i32" else writer.let(f"bitcast i32 {total} to {element}")

    def multiply_add(self, a: str, b: str, total: str) -> str:
        if self.spec.dot:
            return self.dot_product(a, b, total)
        return self.multiply_floats(a, b, total)

    def multiply_floats(self, a: str, b: str, total: str) -> str:
        writer, kind = self.writer, self.accumulator
        if self.spec.isa.fma:
            return writer.call(
                kind, f"llvm.fma.{kind.mangled}", (kind, a), (kind, b), (kind, total)
            )
        product = writer.let(f"fmul {kind} {a}, {b}")
        return writer.let(f"fadd {kind} {total}, {product}")

    def dot_product(self, a: str, b: str, total: str) -> str:
        """Add the products of a group: VPDPBUSD, PMADDWD or VDPBF16PS."""
        if self.spec.dot == "int16":
            return self.dot_shorts(a, b, total)
        writer, kind, bits = self.writer, self.accumulator, self.spec.isa.vector_bits
        if self.spec.dot == "int8":
            # The first factor is unsigned: A + 128.
            a = writer.let(f"xor {kind} {a}, {kind.constant(-0x7F7F7F80)}")
            callee = f"llvm.x86.avx512.vpdpbusd.{bits}"
            return writer.call(kind, callee, (kind, total), (kind, a), (kind, b))
        pairs, callee = VectorType("bfloat", 2 * kind.lanes), f"llvm.x86.avx512bf16.dpbf16ps.{bits}"
        left, right = (writer.let(f"bitcast {kind} {value} to {pairs}") for value in (a, b))
        return writer.call(kind, callee, (kind, total), (pairs, left), (pairs, right))

    def dot_shorts(self, a: str, b: str, total: str) -> str:
        """Sums of two products of int16, in the form that LLVM selects PMADDWD for on x86."""
        writer, kind = self.writer, self.accumulator
        pairs, wide = VectorType("i16", 2 * kind.lanes), VectorType("i32", 2 * kind.lanes)
        factors = []
        for value in (a, b):
            short = writer.let(f"bitcast {kind} {value} to {pairs}")
            factors.append(writer.let(f"sext {pairs} {short} to {wide}"))
        product = writer.let(f"mul nsw {wide} {factors[0]}, {factors[1]}")
        halves = []
        for parity in (0, 1):
            mask = ", ".join(f"i32 {2 * lane + parity}" for lane in range(kind.lanes))
            halves.append(
                writer.let(
                    f"shufflevector {wide} {product}, {wide} poison, <{kind.lanes} x i32> <{mask}>"
                )
            )
        pair_sum = writer.let(f"add {kind} {halves[0]}, {halves[1]}")
        return writer.let(f"add {kind} {total}, {pair_sum}")


class WideningBlocks(Blocks):
    """The product of panels of bfloat16 pairs in float32 arithmetic."""

    def __init__(self, spec: MicroGemmSpec, *args: Any) -> None:
        # Both halves of a row of B are in registers, and of an element of A.
        vectors = spec.nr // spec.lanes
        rows = max((spec.isa.registers - 2 * vectors - 2) // vectors, 1)
        super().__init__(replace(spec, mr=min(spec.mr, rows)), *args)
        self.halves: dict[str, tuple[str, str]] = {}

    def dot_product(self, a: str, b: str, total: str) -> str:
        """Add the product of the elements of even k, then that of odd k."""
        for left, right in zip(self.widen(a), self.widen(b), strict=True):
            total = self.multiply_floats(left, right, total)
        return total

    def widen(self, pairs: str) -> tuple[str, str]:
        """The first and the second of each pair as float32: a bfloat16 is the upper half of one."""
        if pairs not in self.halves:
            kind, let = self.accumulator.of("i32"), self.writer.let
            words = let(f"bitcast {self.accumulator} {pairs} to {kind}")
            first = let(f"shl {kind} {words}, {kind.constant(16)}")
            second = let(f"and {kind} {words}, {kind.constant(-0x10000)}")
            self.halves[pairs] = (
                let(f"bitcast {kind} {first} to {self.accumulator}"),
                let(f"bitcast {kind} {second} to {self.accumulator}"),
            )
        return self.halves[pairs]
