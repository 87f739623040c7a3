"""Packing: a tile of a matrix in memory, copied and converted into what the micro-kernel reads.

Two forms. *Panels* hold a [k, extent] operand as blocks of `width` columns, each stored as [k /
group][width][group], so that the micro-kernel streams through it; the source is [k, extent] or
its transpose. *Rows* are a compact row-major copy. Elements past the run-time limits are zero
and their source is never read.
"""

from __future__ import annotations

from collections.abc import Callable

from tileworkbench.compiler.emit.llvm.bfloat16_guard import Lines, least_exponent
from tileworkbench.compiler.emit.llvm.convert import convert
from tileworkbench.compiler.emit.llvm.isa import Isa
from tileworkbench.compiler.emit.llvm.text import (
    DTYPE_BYTES,
    EmittedFunction,
    FunctionWriter,
    VectorType,
    storage_type,
)
from tileworkbench.compiler.fast_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class PackSpec:
    """How one operand tile is packed.

    Args:
        k: extent of the summed dimension.
        extent: extent of the other dimension (n for B, m for A).
        width: columns of a panel; 0 packs rows [extent, k] instead.
        group: consecutive k that lie together in a panel.
        transposed: the source is stored [extent, k] rather than [k, extent]; always so for rows.
        source_dtype, panel_dtype: element types before and after.
        column_sums: append to each panel -128 times its column sums, as int32.
        least: store the smallest exponent of bfloat16 behind the panels, as int32.
        ragged: whether run-time limits may cut the tile; otherwise they are ignored.
        isa: what the code may use.

    A transposed source needs `width` to be a multiple of the vector length in groups.
    """

    k: int
    extent: int
    width: int
    group: int
    transposed: bool
    source_dtype: str
    panel_dtype: str
    column_sums: bool
    ragged: bool
    isa: Isa
    least: bool = False

    @property
    def panel_stride(self) -> int:
        """Elements from one panel to the next."""
        k_padded = -(-self.k // self.group) * self.group
        return k_padded * self.width + (4 * self.width if self.column_sums else 0)


def emit_pack(spec: PackSpec, name: str, limits: str) -> EmittedFunction:
    """Return the packing function; `limits` orders its last two parameters."""
    formal = ", ".join(f"i64 {limit}" for limit in limits.split(", "))
    writer = FunctionWriter(
        name, "void", f"ptr noalias readonly %source, i64 %ld, ptr noalias %packed, {formal}"
    )
    if not spec.ragged:
        _PackWriter(spec, writer, whole=True).write()
        return _finished(spec, writer)
    k_fits = writer.let(f"icmp sge i64 %k_valid, {spec.k}")
    extent_fits = writer.let(f"icmp sge i64 %extent_valid, {spec.extent}")
    fits = writer.let(f"and i1 {k_fits}, {extent_fits}")
    whole, cut, done = (writer.fresh_label(hint) for hint in ("whole", "cut", "packed"))
    writer.branch(fits, whole, cut)
    for label in (whole, cut):
        writer.place(label)
        _PackWriter(spec, writer, whole=label == whole).write()
        writer.jump(done)
    writer.place(done)
    return _finished(spec, writer)


def _finished(spec: PackSpec, writer: FunctionWriter) -> EmittedFunction:
    if spec.least:
        size = -(-spec.extent // spec.width) * spec.panel_stride
        exponent = least_exponent(writer, spec.isa, Lines("%packed", 1, size, "0"))
        at = writer.address(storage_type(spec.panel_dtype), "%packed", str(size))
        writer.do(f"store i32 {exponent}, ptr {at}, align 4")
    return writer.finish()


class _PackWriter:
    """Writes the loops of one packing, for a whole tile or for one that run-time limits cut."""

    def __init__(self, spec: PackSpec, writer: FunctionWriter, *, whole: bool) -> None:
        self.spec = spec
        self.writer = writer
        self.whole = whole
        self.source = storage_type(spec.source_dtype)
        self.packed = storage_type(spec.panel_dtype)
        unit_bytes = spec.group * DTYPE_BYTES[spec.panel_dtype]
        self.unit = f"i{8 * unit_bytes}"
        """An integer as wide as the group of elements that moves together."""
        self.lanes = spec.isa.lanes(unit_bytes)

    def write(self) -> None:
        if not self.spec.width:
            self.write_rows()
        elif self.spec.transposed:
            self.over_panels(self.write_transposed)
        else:
            self.over_panels(self.write_straight)

    def blocks(self, extent: int, block: int, body: Callable[[str, int], None]) -> None:
        """Run `body(start, size)` over blocks of an extent: a loop over whole ones, then the
        rest."""
        full, rest = divmod(extent, block)
        self.writer.repeat(full, lambda i: body(self.writer.times(i, block), block))
        if rest:
            body(str(full * block), rest)

    def over_panels(self, body: Callable[[str, str, int], None]) -> None:
        """Run `body(panel pointer, first column, columns)` over the panels."""
        spec = self.spec
        full, rest = divmod(spec.extent, spec.width)

        def panel(index: str, columns: int) -> None:
            at = self.writer.address(
                self.packed, "%packed", self.writer.times(index, spec.panel_stride)
            )
            body(at, self.writer.times(index, spec.width), columns)
            if spec.column_sums:
                self.write_column_sums(at)

        self.writer.repeat(full, lambda i: panel(i, spec.width))
        if rest:
            panel(str(full), rest)

    # Loads from the source

    def load(self, row: str, row_limit: str, column: str, column_limit: str, lanes: int) -> str:
        """Load `lanes` elements of a row of the source, zero where a limit cuts them, and convert
        them."""
        spec, writer = self.spec, self.writer
        kind = storage_type(spec.source_dtype, lanes)
        at = self.writer.address(
            self.source, "%source", self.writer.plus(self.writer.times(row, "%ld"), column)
        )
        align = DTYPE_BYTES[spec.source_dtype]
        if self.whole:
            value = writer.let(f"load {kind}, ptr {at}, align {align}")
        else:
            # At least two lanes, because masks are vectors.
            width = max(lanes, 2)
            mask = self.mask(row, row_limit, column, column_limit, lanes, width)
            value = self.masked_load(at, storage_type(spec.source_dtype, width), mask, align)
            value = writer.resize(value, storage_type(spec.source_dtype, width), lanes)
        return convert(writer, value, spec.source_dtype, spec.panel_dtype, lanes, spec.isa)

    def mask(
        self, row: str, row_limit: str, column: str, column_limit: str, lanes: int, width: int
    ) -> str:
        writer = self.writer
        inside = writer.let(f"icmp slt i64 {row}, {row_limit}")
        limit = writer.let(f"select i1 {inside}, i64 {column_limit}, i64 0")
        left = writer.let(f"sub nsw i64 {limit}, {column}")
        left = writer.call("i64", "llvm.smin.i64", ("i64", left), ("i64", str(lanes)))
        narrow = VectorType("i32", width)
        left = writer.let(
            f"trunc i64 {writer.call('i64', 'llvm.smax.i64', ('i64', left), ('i64', '0'))} to i32"
        )
        bound = writer.splat(left, narrow)
        index = ", ".join(f"i32 {lane}" for lane in range(width))
        return writer.let(f"icmp slt {narrow} <{index}>, {bound}")

    def masked_load(self, at: str, kind: VectorType, mask: str, align: int) -> str:
        name = f"llvm.masked.load.{kind.mangled}.p0"
        return self.writer.call(
            kind,
            name,
            ("ptr", at),
            ("i32", str(align)),
            (kind.of("i1"), mask),
            (kind, kind.constant(0)),
        )

    # The three forms

    def write_rows(self) -> None:
        spec = self.spec
        padded = -(-spec.k // spec.group) * spec.group

        def row(i: str) -> None:
            to = self.writer.address(self.packed, "%packed", self.writer.times(i, padded))

            def part(start: str, size: int) -> None:
                value = self.load(i, "%extent_valid", start, "%k_valid", size)
                self.store(to, start, storage_type(spec.panel_dtype, size), value)

            self.blocks(spec.k, self.lanes * spec.group, part)
            for p in range(spec.k, padded):
                self.store(to, str(p), self.packed, "0")

        self.writer.repeat(spec.extent, row)

    def store(self, base: str, index: str, kind: VectorType, value: str) -> None:
        at = self.writer.address(self.packed, base, index)
        self.writer.do(
            f"store {kind} {value}, ptr {at}, align {DTYPE_BYTES[self.spec.panel_dtype]}"
        )

    def write_straight(self, panel: str, first: str, columns: int) -> None:
        """Pack one panel from [k, extent]: copy rows, interleaving `group` of them."""
        spec, group = self.spec, self.spec.group

        def step(at: str, rows: int) -> None:
            to = self.writer.address(self.packed, panel, self.writer.times(at, spec.width))

            def part(start: str, size: int) -> None:
                column = self.writer.plus(first, start)
                kind = storage_type(spec.panel_dtype, size)
                values = [
                    self.load(self.writer.plus(at, p), "%k_valid", column, "%extent_valid", size)
                    for p in range(rows)
                ]
                values += [kind.constant(0)] * (group - rows)
                value = self.interleave(values, kind)
                stored = self.lanes if spec.width % self.lanes == 0 else size
                kind = storage_type(spec.panel_dtype, size * group)
                value = self.writer.resize(value, kind, stored * group)
                kind = storage_type(spec.panel_dtype, stored * group)
                self.store(to, self.writer.times(start, group), kind, value)

            # Written out: a row of a panel is a few vectors, too few for a loop of their own.
            for start in range(0, columns, self.lanes):
                part(str(start), min(self.lanes, columns - start))
            self.clear(to, columns)

        self.blocks(spec.k, group, step)

    def clear(self, row: str, columns: int) -> None:
        """Zero the whole vectors of a row of a panel that its columns do not reach."""
        kind = storage_type(self.spec.panel_dtype, self.lanes * self.spec.group)
        reached = -(-columns // self.lanes) * self.lanes
        for start in range(reached, self.spec.width, self.lanes):
            self.store(row, str(start * self.spec.group), kind, kind.constant(0))

    def interleave(self, values: list[str], kind: VectorType) -> str:
        """Return a[0] b[0] a[1] b[1] ... of one, two or four vectors."""
        while len(values) > 1:
            half = len(values) // 2
            pairs = zip(values[:half], values[half:], strict=True)
            values = [self.zip_lanes(left, right, kind) for left, right in pairs]
            kind = VectorType(kind.element, 2 * kind.lanes)
        return values[0]

    def zip_lanes(self, left: str, right: str, kind: VectorType) -> str:
        if kind.lanes == 1:
            pair = VectorType(kind.element, 2)
            first = self.writer.with_lane("poison", pair, 0, left)
            return self.writer.with_lane(first, pair, 1, right)
        order = [lane + side * kind.lanes for lane in range(kind.lanes) for side in (0, 1)]
        return self.shuffle(left, right, kind, order)

    def shuffle(self, left: str, right: str, kind: VectorType, order: list[int]) -> str:
        mask = ", ".join(f"i32 {lane}" for lane in order)
        return self.writer.let(
            f"shufflevector {kind} {left}, {kind} {right}, <{len(order)} x i32> <{mask}>"
        )

    def write_transposed(self, panel: str, first: str, columns: int) -> None:
        """Pack one panel from [extent, k]: square blocks of groups are transposed in registers."""
        spec, group, lanes = self.spec, self.spec.group, self.lanes
        kind = VectorType(self.unit, lanes)
        align = DTYPE_BYTES[spec.panel_dtype]

        def block(p: str, depth: int, start: str, size: int) -> None:
            values = [kind.constant(0)] * lanes
            for j in range(size):
                row = self.writer.plus(self.writer.plus(first, start), j)
                value = self.load(row, "%extent_valid", p, "%k_valid", depth)
                values[j] = self.as_units(value, depth)
            for q, value in enumerate(self.transpose(values)[: -(-depth // group)]):
                row = self.writer.times(self.writer.plus(p, q * group), spec.width)
                at = self.writer.address(
                    self.packed, panel, self.writer.plus(row, self.writer.times(start, group))
                )
                self.writer.do(f"store {kind} {value}, ptr {at}, align {align}")

        def along_k(start: str, size: int) -> None:  # each load goes on where the last one ended
            self.blocks(spec.k, lanes * group, lambda p, depth: block(p, depth, start, size))

        def clear(q: str) -> None:
            self.clear(
                self.writer.address(self.packed, panel, self.writer.times(q, spec.width * group)),
                columns,
            )

        self.blocks(columns, lanes, along_k)
        if columns <= spec.width - lanes:
            self.writer.repeat(-(-spec.k // group), clear)

    def as_units(self, value: str, elements: int) -> str:
        """Return `elements` packed elements as `lanes` integers of one group each, zero-filled."""
        kind = storage_type(self.spec.panel_dtype, elements)
        wide = storage_type(self.spec.panel_dtype, self.lanes * self.spec.group)
        value = self.writer.resize(value, kind, wide.lanes)
        return self.writer.let(f"bitcast {wide} {value} to {VectorType(self.unit, self.lanes)}")

    def transpose(self, rows: list[str]) -> list[str]:
        """Return the transpose of a square of vectors, by log2(lanes) rounds of two-operand
        shuffles.

        The first rounds interleave lanes within 128-bit parts, the others exchange whole parts:
        each is a single instruction on every x86 level.
        """
        lanes, part = self.lanes, 128 // int(self.unit[1:])
        kind = VectorType(self.unit, lanes)
        offsets = range(0, lanes, part)
        for _ in range(part.bit_length() - 1):
            zipped = []
            for group in offsets:
                for i in range(group, group + part // 2):
                    for half in (0, part // 2):
                        order = [
                            at + half + lane + side
                            for at in offsets
                            for lane in range(part // 2)
                            for side in (0, lanes)
                        ]
                        zipped.append(self.shuffle(rows[i], rows[i + part // 2], kind, order))
            rows = zipped
        distance = part
        while distance < lanes:
            rows = self.exchange(rows, kind, distance)
            distance *= 2
        return rows

    def exchange(self, rows: list[str], kind: VectorType, distance: int) -> list[str]:
        """Swap bit `distance` of the row number with the same bit of the lane number."""
        lanes, result = kind.lanes, list(rows)
        low = [n + lanes - distance if n & distance else n for n in range(lanes)]
        high = [n + lanes if n & distance else n + distance for n in range(lanes)]
        for i in range(lanes):
            if not i & distance:
                pair = rows[i], rows[i + distance]
                result[i] = self.shuffle(*pair, kind, low)
                result[i + distance] = self.shuffle(*pair, kind, high)
        return result

    def write_column_sums(self, panel: str) -> None:
        """Append -128 times the sum of each column of a panel of bytes, as int32."""
        spec, writer, lanes = self.spec, self.writer, self.lanes
        kind = VectorType("i32", lanes)
        steps = -(-spec.k // 4)

        parts = range(spec.width // lanes)
        callee = f"llvm.x86.avx512.vpdpbusd.{spec.isa.vector_bits}"
        ones = kind.constant(0x01010101)

        def place(row: str, part: int) -> str:
            at = self.writer.plus(self.writer.times(row, 4 * spec.width), 4 * lanes * part)
            return self.writer.address(self.packed, panel, at)

        def add(step: str, totals: list[str]) -> list[str]:
            # All parts in one loop: each is a chain of dependent instructions.
            values = [writer.let(f"load {kind}, ptr {place(step, n)}, align 1") for n in parts]
            return [
                writer.call(kind, callee, (kind, total), (kind, ones), (kind, value))
                for total, value in zip(totals, values, strict=True)
            ]

        zeros = [(kind, kind.constant(0)) for _ in parts]
        for n, total in enumerate(writer.counted_loop(steps, 1, add, zeros)):
            scaled = writer.let(f"mul {kind} {total}, {kind.constant(-128)}")
            writer.do(f"store {kind} {scaled}, ptr {place(str(steps), n)}, align 1")
