"""Matrix products by the tile registers of AMX: eight of up to 16 rows of 64 bytes each.

A register holds a block C[16, 16], or sixteen rows of A, or sixteen groups of rows of B. One
instruction multiplies the rows of A with those of B and adds the result to C: TDPBF16PS for pairs
of bfloat16, TDPBSSD for groups of four bytes (Intel SDM, volume 2 and chapter 18 of volume 1).
Packed panels of B have the order that it wants: consecutive k lie together. Blocks are 32 x 32,
four registers of sums, so that each register that is loaded is used twice. TDPBF16PS takes
denormals for zero, as VDPBF16PS does. Sums therefore begin with zero, and what C held is added at
the end.
"""

from __future__ import annotations

from tileworkbench.compiler.emit.llvm.gemm_spec import MicroGemmSpec
from tileworkbench.compiler.emit.llvm.text import (
    DTYPE_BYTES,
    FunctionWriter,
    VectorType,
    storage_type,
)
from tileworkbench.compiler.fast_dataclass import dataclass

PRODUCTS = {"bfloat16": "llvm.x86.tdpbf16ps", "int8": "llvm.x86.tdpbssd"}
"""The instruction that multiplies two registers and adds to a third, by the type of its factors."""

ROWS, ROW_BYTES = 16, 64
"""The size of a register."""

_LEFT, _RIGHT = 4, 6  # the first registers of A and of B; those of C are 0 to 3
_WORD = VectorType("i64", 1)


def begin(spec: MicroGemmSpec, writer: FunctionWriter) -> TileRegisters:
    """Configure the registers for a product. `end` undoes it."""
    configure(writer)
    return TileRegisters(spec, writer, writer.let("alloca [256 x i32], align 64"))


def configure(writer: FunctionWriter) -> None:
    """Make all eight registers sixteen rows of 64 bytes. `end` undoes it."""
    config = writer.let("alloca [64 x i8], align 64")
    widths, rows = ROW_BYTES * 0x0001_0001_0001_0001, ROWS * 0x0101_0101_0101_0101
    shapes = [1, 0, widths, widths, 0, 0, rows, 0]  # palette 1; each register's size
    for at, word in enumerate(shapes):
        writer.do(f"store i64 {word}, ptr {writer.address(_WORD, config, str(at))}, align 8")
    writer.run("llvm.x86.ldtilecfg", ("ptr", config))


def load(writer: FunctionWriter, register: int, address: str, stride: str) -> None:
    """Load rows that lie `stride` bytes apart into a register."""
    operands = (("i8", str(register)), ("ptr", address), ("i64", stride))
    writer.run("llvm.x86.tileloadd64", *operands)


def store(writer: FunctionWriter, register: int, address: str, stride: str) -> None:
    """Store the rows of a register `stride` bytes apart."""
    operands = (("i8", str(register)), ("ptr", address), ("i64", stride))
    writer.run("llvm.x86.tilestored64", *operands)


def multiply(writer: FunctionWriter, dtype: str, total: int, a: int, b: int) -> None:
    """Multiply two registers of `PRODUCTS` and add to a third; all three are different ones."""
    operands = [("i8", str(register)) for register in (total, a, b)]
    writer.run(PRODUCTS[dtype], *operands)


def end(writer: FunctionWriter) -> None:
    """Give the registers back, so that a thread switch need not save them."""
    writer.run("llvm.x86.tilerelease")


@dataclass(frozen=True, slots=True)
class TileRegisters:
    """Writes products that fill registers. `buffer` holds the sums of one register."""

    spec: MicroGemmSpec
    writer: FunctionWriter
    buffer: str

    def write_rows(self, a: str, c: str, high: int) -> None:
        """Write the product of `high` registers of rows from `a` on with all whole panels of B."""
        writer, spec = self.writer, self.spec
        element, memory = storage_type(spec.panel_dtype), storage_type(spec.acc_dtype)

        def panel(index: str) -> None:
            b = writer.address(element, "%B", writer.times(index, spec.panel_stride))
            sums = writer.address(memory, c, writer.times(index, spec.nr))
            for column in range(0, spec.nr, 2 * ROWS):
                wide = min(2, (spec.nr - column) // ROWS)
                right = writer.address(element, b, str(column * spec.group))
                self._multiply(a, right, writer.address(memory, sums, str(column)), high, wide)

        writer.repeat(spec.n // spec.nr, panel)

    def _multiply(self, a: str, b: str, c: str, high: int, wide: int) -> None:
        """`high` x `wide` registers of C."""
        writer, spec = self.writer, self.spec
        places = [
            (2 * i + j, self._moved(c, i, "%ldc", j)) for i in range(high) for j in range(wide)
        ]
        self._start(places)
        element, size = storage_type(spec.panel_dtype), DTYPE_BYTES[spec.panel_dtype]
        depth = ROW_BYTES // size
        down = writer.let(f"mul i64 %lda, {ROWS}")
        bytes_of_a = writer.let(f"mul i64 %lda, {size}")

        def step(k: str, carried: list[str]) -> list[str]:
            left = writer.address(element, a, k)
            right = writer.address(element, b, writer.times(k, spec.nr))
            for i in range(high):
                at = writer.address(element, left, down) if i else left
                load(writer, _LEFT + i, at, bytes_of_a)
            for j in range(wide):
                at = writer.address(element, right, str(j * ROWS * spec.group))
                load(writer, _RIGHT + j, at, str(4 * spec.nr))
            for number, _ in places:
                multiply(writer, spec.dot, number, _LEFT + number // 2, _RIGHT + number % 2)
            return carried

        writer.counted_loop(spec.k, depth, step)
        self._finish(places)

    def _moved(self, c: str, rows: int, ldc: str, columns: int) -> str:
        """The address of a register's first element."""
        memory, writer = storage_type(self.spec.acc_dtype), self.writer
        if rows:
            c = writer.address(memory, c, writer.let(f"mul i64 {ldc}, {ROWS}"))
        return writer.address(memory, c, str(columns * ROWS))

    def _bytes_of_c(self) -> str:
        return self.writer.let(f"mul i64 %ldc, {DTYPE_BYTES[self.spec.acc_dtype]}")

    def _start(self, places: list[tuple[int, str]]) -> None:
        """Sums of integers begin with what C holds."""
        writer = self.writer
        for number, _ in places:
            writer.run("llvm.x86.tilezero", ("i8", str(number)))
        if self.spec.dot == "bfloat16":
            return
        loaded, go = writer.fresh_label("load"), writer.fresh_label("go")
        writer.branch("%accumulate", loaded, go)
        writer.place(loaded)
        stride = self._bytes_of_c()
        for number, at in places:
            load(writer, number, at, stride)
        writer.jump(go)
        writer.place(go)

    def _finish(self, places: list[tuple[int, str]]) -> None:
        writer, stride = self.writer, self._bytes_of_c()
        if self.spec.dot != "bfloat16":
            for number, at in places:
                store(writer, number, at, stride)
            return
        added, stored, done = (writer.fresh_label(hint) for hint in ("add", "store", "stored"))
        writer.branch("%accumulate", added, stored)
        writer.place(added)
        for number, at in places:
            store(writer, number, self.buffer, str(ROW_BYTES))
            writer.repeat(ROWS, lambda row, at=at: self._add_row(at, row))  # type: ignore[misc]
        writer.jump(done)
        writer.place(stored)
        for number, at in places:
            store(writer, number, at, stride)
        writer.jump(done)
        writer.place(done)

    def _add_row(self, c: str, row: str) -> None:
        writer, memory, kind = self.writer, storage_type("float32"), storage_type("float32", 16)
        into = writer.address(memory, c, writer.let(f"mul i64 {row}, %ldc"))
        sums = writer.address(memory, self.buffer, writer.times(row, ROWS))
        parts = [writer.let(f"load {kind}, ptr {at}, align 4") for at in (into, sums)]
        total = writer.let(f"fadd {kind} {parts[0]}, {parts[1]}")
        writer.do(f"store {kind} {total}, ptr {into}, align 4")
