"""Operands of a matrix product on tensor cores: where the registers of one step along K come from.

A fragment in the instruction's dtype is used where it lies. Everything else is loaded into a
register array, two steps of it where loads overlap with products: with ldmatrix where whole 16-byte
rows of a matrix are contiguous in shared memory, else element by element, converted on the way.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.build import add, binary, cast, const_int, int_const
from tileworkbench.compiler.ir.expr import Address, Buffer, Expr, Load, Ramp, Region
from tileworkbench.compiler.ir.simt import LoadMatrix, LoadTurned
from tileworkbench.compiler.ir.stmt import Stmt, Store, seq
from tileworkbench.compiler.ir.types import DType
from tileworkbench.compiler.layout.layout import Layout
from tileworkbench.compiler.lower.threads.context import ThreadContext
from tileworkbench.compiler.lower.threads.formulas import map_exprs
from tileworkbench.compiler.lower.threads.loops import scale, shift, unrolled
from tileworkbench.compiler.lower.threads.registers import matrix_origins, register_map
from tileworkbench.compiler.lower.threads.turning import (
    lanes_that_turn,
    turned_blocks,
)
from tileworkbench.compiler.machine import instructions as machine
from tileworkbench.compiler.machine.instructions import MatrixMove


@dataclass(frozen=True, slots=True)
class Operand:
    """A or B of one warp: `atoms` times the instruction's operand `atom` side by side, `steps`
    times along K.

    `k_last` says that K is the last dimension of the region; `first` is the first row (or column)
    of the warp within it.
    """

    region: Region
    k_last: bool
    atom: machine.Operand
    atoms: int
    steps: int
    first: Expr
    site: int

    @property
    def buffer(self) -> Buffer:
        return self.region.buffer

    @property
    def dtype(self) -> DType:
        """The instruction's."""
        return DType(self.atom.dtype)

    @property
    def rows(self) -> int:
        """Rows of an atom."""
        return self.atom.fragment.shape[0]

    @property
    def depth(self) -> int:
        """Elements of an atom along K."""
        return self.atom.fragment.shape[1]

    @property
    def elements(self) -> int:
        """Elements of a lane in one atom."""
        return self.atom.fragment.slots

    @property
    def in_place(self) -> bool:
        """Whether the instruction reads the fragment itself."""
        return self.buffer.scope == "local.fragment" and self.buffer.dtype == self.dtype

    def at(self, outer: Expr, k: Expr) -> tuple[Expr, ...]:
        """The index of an element; either may be a vector."""
        mins = self.region.mins
        pair = (outer, k) if self.k_last else (k, outer)
        return (*mins[:-2], shift(mins[-2], pair[0]), shift(mins[-1], pair[1]))


def is_contiguous(region: Region, count: int, context: ThreadContext) -> bool:
    """Whether `count` elements of a row, from a multiple of it, are one aligned piece of memory."""
    layout = region.buffer.layout
    if not isinstance(layout, Layout):
        layout = Layout.row_major([const_int(extent) or 1 for extent in region.buffer.shape])
    return layout.vector_width(count) == count and context.ranges.divides(count, region.mins[-1])


@dataclass(frozen=True, slots=True)
class MatrixRows:
    """``lane -> (row, k)`` of the row that each lane points at, to load `matrices` at once."""

    lanes: Layout
    matrices: int


@lru_cache(maxsize=64)
def matrix_rows(
    move: MatrixMove, origins: Layout, rows: int, atoms: int, k_last: bool
) -> MatrixRows:
    """For `atoms` atoms of `rows` rows, with matrices at `origins`; `k_last`: K is the last
    dimension of the tile.
    """
    matrices = atoms * origins.size

    def place(lane: Any) -> tuple[Any, Any]:
        row, number = lane % move.rows, lane // move.rows % matrices
        first, k = origins.evaluate(number % origins.size)
        outer = number // origins.size * rows + first
        return (outer + row, k) if k_last else (outer, k + row)

    return MatrixRows(Layout((move.rows * max(move.counts),), place), matrices)


def make_loader(operand: Operand, context: ThreadContext) -> Loader:
    """How to get `operand` into registers, with room for the next step beside the current one."""
    if operand.in_place:
        return Loader(operand, context, context.registers(operand.buffer), operand.steps)
    versions = min(operand.steps, 2)
    count = operand.atoms * operand.elements * versions
    name = f"{operand.buffer.name.removesuffix('_shared')}_registers"
    registers = context.temporary(name, operand.dtype, count)
    return Loader(operand, context, registers, versions)


@dataclass(frozen=True, slots=True)
class Loader:
    """The registers of an operand, which hold `versions` steps, and the code that fills them."""

    operand: Operand
    context: ThreadContext
    registers: Buffer
    versions: int

    def atom(self, step: Expr, atom: Expr) -> Address:
        """The first register of an atom."""
        operand = self.operand
        index = add(scale(self._version(step), operand.atoms), atom)
        return Address(self.registers, (scale(index, operand.elements),))

    def load(self, step: Expr) -> list[Stmt]:
        """Statements that get one step along K into its registers."""
        operand = self.operand
        if operand.in_place:
            return []
        if operand.buffer.scope == "local.fragment":
            return [self._convert(step)]
        matrices, turning = self._matrices(), self._turning()
        if matrices is not None:
            return self._load_matrices(step, *matrices)
        return [self._load_elements(step) if turning is None else self._load_turned(step, turning)]

    def _version(self, step: Expr) -> Expr:
        """Which of the versions a step is in."""
        if self.versions >= self.operand.steps:
            return step
        return binary("floormod", step, int_const(self.versions))

    def _convert(self, step: Expr) -> Stmt:
        """Elements of a fragment of another dtype."""
        operand, source = self.operand, self.context.registers(self.operand.buffer)
        count = operand.atoms * operand.elements

        def body(e: Expr) -> Stmt:
            value = Load(source, (add(scale(step, count), e),))
            into = add(scale(self._version(step), count), e)
            return Store(self.registers, (into,), cast(value, operand.dtype), site=operand.site)

        return unrolled(self.context, "e", count, body, operand.site)

    # ldmatrix

    def _matrices(self) -> tuple[MatrixMove, Layout] | None:
        """The instruction that loads the operand, and where its matrices begin in an atom, if there
        is one: rows in one piece, and elements that it transposes where they are.
        """
        operand, move = self.operand, self.context.target.machine.move(loads=True)
        if move is None or operand.buffer.dtype != operand.dtype:
            return None
        bits = operand.dtype.bits
        matrix = move.fragment(bits)
        if matrix is None or not (operand.k_last or bits == move.transposed_bits):
            return None
        origins = matrix_origins(operand.atom.fragment, matrix)
        if origins is None or not is_contiguous(operand.region, matrix.shape[1], self.context):
            return None
        return move, origins

    def _load_matrices(self, step: Expr, move: MatrixMove, origins: Layout) -> list[Stmt]:
        """All atoms of one step: as many matrices at once as the instruction takes."""
        operand = self.operand
        stmts: list[Stmt] = []
        done, group = 0, max(move.counts) // origins.size
        while done < operand.atoms:
            count = (operand.atoms - done) // group
            if count:
                rows = matrix_rows(move, origins, operand.rows, group, operand.k_last)
                stmts.append(self._load_groups(step, done, count, group, rows))
                done += count * group
            group //= 2
        return stmts

    def _load_groups(
        self, step: Expr, first: int, count: int, group: int, rows: MatrixRows
    ) -> Stmt:
        """`count` times `group` atoms, from atom `first` on."""
        operand, context = self.operand, self.context
        outer, k = map_exprs(rows.lanes.mapping, (context.lane,))
        outer, k = self._named(add(operand.first, outer), k)

        def body(g: Expr) -> Stmt:
            atom = add(scale(g, group), int_const(first))
            row = add(outer, scale(atom, operand.rows))
            column = add(scale(step, operand.depth), k)
            source = Address(operand.buffer, operand.at(row, column))
            return LoadMatrix(
                self.atom(step, atom), source, rows.matrices, not operand.k_last, site=operand.site
            )

        return unrolled(context, "i", count, body, operand.site)

    def _named(self, outer: Expr, k: Expr) -> tuple[Expr, Expr]:
        """The parts of an index that depend on the thread, computed once."""
        buffer, names = self.operand.buffer, ("row", "column")
        outer_name, k_name = names if self.operand.k_last else reversed(names)
        outer = self.context.named(f"{buffer.name}_{outer_name}", outer)
        if const_int(k) is None:
            k = self.context.named(f"{buffer.name}_{k_name}", k)
        return outer, k

    # Lanes that turn what they read

    def _turning(self) -> Layout | None:
        """Where each lane begins to read, if lanes can turn the operand."""
        operand, turned = self.operand, self.context.target.machine.turned
        bits = operand.dtype.bits
        if operand.k_last or turned is None or bits != operand.buffer.dtype.bits:
            return None
        rows = turned.rows(bits)
        if bits not in turned.bits or not is_contiguous(operand.region, rows, self.context):
            return None
        return lanes_that_turn(operand.atom.fragment, rows, turned.lanes)

    def _load_turned(self, step: Expr, lanes: Layout) -> Stmt:
        """All atoms of one step, a few registers at once."""
        operand, context = self.operand, self.context
        turned = context.target.machine.turned
        assert turned is not None, "lanes that turn what they read"
        rows = turned.rows(operand.dtype.bits)
        outer, k = map_exprs(lanes.mapping, (context.lane,))
        blocks = turned_blocks(operand.atom.fragment, rows)
        outer, k = self._named(add(operand.first, outer), k)

        def atom(at: Expr) -> Stmt:
            row = add(outer, scale(at, operand.rows))
            into = self.atom(step, at).indices[0]

            def part(x: Expr) -> Stmt:
                (block,) = map_exprs(blocks.mapping, (x,))
                column = add(add(scale(step, operand.depth), block), k)
                source = Address(operand.buffer, operand.at(row, column))
                target = Address(self.registers, (add(into, scale(x, rows)),))
                return LoadTurned(target, source, rows, site=operand.site)

            return unrolled(context, "x", operand.elements // rows, part, operand.site)

        return unrolled(context, "i", operand.atoms, atom, operand.site)

    # Element by element

    def _load_elements(self, step: Expr) -> Stmt:
        """Every register from loads of its elements, at once where they lie side by side."""
        operand, context, site = self.operand, self.context, self.operand.site
        registers = register_map(operand.atom.fragment)
        run = registers.run
        first, k = registers.first(context)
        outer, k = self._named(add(operand.first, first), k)
        whole = operand.k_last and run > 1 and is_contiguous(operand.region, run, context)
        count, apart = (1, 0) if operand.k_last else registers.across
        rows: Buffer | None = None
        if count > 1 and is_contiguous(operand.region, count, context):
            name = f"{operand.buffer.name.removesuffix('_shared')}_rows"
            rows = context.temporary(name, operand.dtype, run * count)

        def atom(at: Expr) -> Stmt:
            start = self.atom(step, at).indices[0]
            first_row = add(outer, scale(at, operand.rows))

            def each(slot: Expr, row: Expr, part: Expr) -> Stmt:
                row = add(first_row, row)
                column = add(add(scale(step, operand.depth), part), k)
                into = add(start, slot)
                if whole:
                    return self._move(Ramp(into, int_const(1), run), row, _ramp(column, run))

                def one(x: Expr) -> Stmt:
                    at, place = add(into, x), add(column, x)
                    if rows is None:
                        return self._move(at, row, place)
                    value = Load(operand.buffer, operand.at(_ramp(row, count), place))
                    return Store(rows, (_ramp(scale(x, count), count),), value, site=site)

                loads = unrolled(context, "x", run, one, site)
                return loads if rows is None else seq([loads, self._turned(rows, into, apart)])

            return registers.each_run(context, each, site, rows is not None)

        return unrolled(context, "i", operand.atoms, atom, site)

    def _turned(self, rows: Buffer, into: Expr, apart: int) -> Stmt:
        """What was read by rows to registers by columns: those of each product are `apart`."""
        registers = register_map(self.operand.atom.fragment)
        run, (count, _) = registers.run, registers.across

        def column(c: Expr) -> Stmt:
            value = Load(rows, (Ramp(c, int_const(count), run),))
            at = _ramp(add(into, scale(c, apart)), run)
            return Store(self.registers, (at,), value, site=self.operand.site)

        return unrolled(self.context, "c", count, column, self.operand.site)

    def _move(self, into: Expr, row: Expr, column: Expr) -> Stmt:
        operand = self.operand
        value = cast(Load(operand.buffer, operand.at(row, column)), operand.dtype)
        return Store(self.registers, (into,), value, site=operand.site)


def _ramp(base: Expr, lanes: int) -> Expr:
    return Ramp(base, int_const(1), lanes)


def load_all(loaders: tuple[Loader, ...], step: Expr) -> list[Stmt]:
    """The loads of all operands of one step."""
    return [stmt for loader in loaders for stmt in loader.load(step)]
