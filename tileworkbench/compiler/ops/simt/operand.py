"""Operands of a matrix product on tensor cores: where the registers of one step along K come from.

A fragment in the instruction's dtype is used where it lies. Everything else is loaded into a
register array, two steps of it where loads overlap with products: with ldmatrix where whole 16-byte
rows of a matrix are contiguous in shared memory, else element by element, converted on the way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tileworkbench.compiler.ir.build import add, binary, cast, const_int, int_const, mul
from tileworkbench.compiler.ir.expr import Address, Binary, Buffer, Const, Expr, Load, Ramp, Region
from tileworkbench.compiler.ir.simt import LoadMatrix
from tileworkbench.compiler.ir.stmt import For, LoopKind, Stmt, Store
from tileworkbench.compiler.ir.types import DType
from tileworkbench.compiler.layout.layout import Layout
from tileworkbench.compiler.ops.simt.context import ThreadContext
from tileworkbench.compiler.ops.simt.traces import map_exprs


def unrolled(
    context: ThreadContext, name: str, extent: int, body: Callable[[Expr], Stmt], site: int
) -> Stmt:
    """`body` for 0 .. extent - 1, as an unrolled loop where there is more than one."""
    if extent == 1:
        return body(int_const(0))
    var = context.loop_var(name)
    zero, one = int_const(0), int_const(1)
    return For(var, zero, int_const(extent), one, LoopKind.UNROLLED, body(var), site=site)


@dataclass(frozen=True, slots=True)
class Operand:
    """A or B of one warp: `atoms` atoms of `rows` x `depth` elements side by side, `steps` times
    along K. `dtype` is the instruction's.

    `k_last` says that K is the last dimension of the region; `first` is the first row (or column)
    of the warp within it.
    """

    region: Region
    k_last: bool
    rows: int
    depth: int
    atoms: int
    steps: int
    dtype: DType
    first: Expr
    site: int

    @property
    def buffer(self) -> Buffer:
        return self.region.buffer

    @property
    def elements(self) -> int:
        """Elements of a lane in one atom."""
        return self.rows * self.depth // 32

    @property
    def per_register(self) -> int:
        """Elements of a register, which follow one another along K."""
        return max(1, 32 // self.dtype.bits)

    @property
    def in_place(self) -> bool:
        """Whether the instruction reads the fragment itself."""
        return self.buffer.scope == "local.fragment" and self.buffer.dtype == self.dtype

    def at(self, outer: Expr, k: Expr) -> tuple[Expr, ...]:
        """The index of an element; either may be a vector."""
        mins = self.region.mins
        pair = (outer, k) if self.k_last else (k, outer)
        return (*mins[:-2], shift(mins[-2], pair[0]), shift(mins[-1], pair[1]))


def scale(value: Expr, factor: int) -> Expr:
    """`value * factor`, with constants gathered."""
    if isinstance(value, Binary) and value.op == "add":
        return add(scale(value.a, factor), scale(value.b, factor))
    if isinstance(value, Binary) and value.op == "mul" and isinstance(value.b, Const):
        return mul(value.a, int_const(int(value.b.value) * factor))
    return mul(value, int_const(factor))


def shift(start: Expr, index: Expr) -> Expr:
    """`start + index`, where `index` may be a vector of neighbours."""
    if isinstance(index, Ramp):
        return Ramp(shift(start, index.base), index.stride, index.lanes)
    return add(start, index)


@lru_cache(maxsize=64)
def matrix_rows(rows: int, along: int, per_atom: int, matrices: int, k_last: bool) -> Layout:
    """``lane -> (row, k)`` of the 16 bytes a lane points ldmatrix at, to load atoms of `rows` rows
    and `per_atom` matrices of `along` elements along K each; `k_last`: K is the last dimension.
    """

    def place(t: Any) -> tuple[Any, Any]:
        row, matrix = t % 8, t // 8 % matrices
        inside = matrix % per_atom
        outer = matrix // per_atom * rows + inside % (rows // 8) * 8
        k = inside // (rows // 8) * along
        return (outer + row, k) if k_last else (outer, k + row)

    return Layout((32,), place)


def is_contiguous(region: Region, count: int, context: ThreadContext) -> bool:
    """Whether `count` elements of a row, from a multiple of it, are one aligned piece of memory."""
    layout = region.buffer.layout
    if not isinstance(layout, Layout):
        layout = Layout.row_major([const_int(extent) or 1 for extent in region.buffer.shape])
    return layout.vector_width(count) == count and context.ranges.divides(count, region.mins[-1])


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
        """Where the registers of an atom start."""
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
        return self._load_matrices(step) if self._has_matrices() else [self._load_elements(step)]

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

    def _has_matrices(self) -> bool:
        """Whether ldmatrix can load the operand: rows of 16 bytes in one piece, and 16-bit elements
        where they are transposed.
        """
        operand = self.operand
        bits = operand.dtype.bits
        if operand.buffer.dtype != operand.dtype or bits not in (4, 8, 16, 32):
            return False
        if not operand.k_last and bits != 16:
            return False
        return is_contiguous(operand.region, 128 // bits, self.context)

    def _load_matrices(self, step: Expr) -> list[Stmt]:
        """All atoms of one step: up to four matrices of 8 rows at once."""
        operand = self.operand
        per_atom = operand.rows * operand.depth * operand.dtype.bits // 1024
        stmts: list[Stmt] = []
        done, group = 0, 4 // per_atom
        while done < operand.atoms:
            count = (operand.atoms - done) // group
            if count:
                stmts.append(self._load_groups(step, done, count, group, per_atom))
                done += count * group
            group //= 2
        return stmts

    def _load_groups(self, step: Expr, first: int, count: int, group: int, per_atom: int) -> Stmt:
        """`count` times `group` atoms, from atom `first` on."""
        operand, context = self.operand, self.context
        matrices = group * per_atom
        along = 128 // operand.dtype.bits
        rows = matrix_rows(operand.rows, along, per_atom, matrices, operand.k_last)
        outer, k = map_exprs(rows.mapping, (context.lane,))
        outer, k = self._named(add(operand.first, outer), k)

        def body(g: Expr) -> Stmt:
            atom = add(scale(g, group), int_const(first))
            row = add(outer, scale(atom, operand.rows))
            column = add(scale(step, operand.depth), k)
            source = Address(operand.buffer, operand.at(row, column))
            return LoadMatrix(
                self.atom(step, atom), source, matrices, not operand.k_last, site=operand.site
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

    # Element by element

    def _load_elements(self, step: Expr) -> Stmt:
        """Every register from loads of its elements, at once where they lie side by side."""
        operand, context = self.operand, self.context
        lane, per = context.lane, operand.per_register
        quad = binary("floormod", lane, int_const(4))
        first = binary("floordiv", lane, int_const(4))
        outer, k = self._named(add(operand.first, first), scale(quad, per))
        half = 4 * per
        whole = operand.k_last and per > 1 and is_contiguous(operand.region, per, context)

        def register(atom: Expr, part: Expr, block: Expr) -> Stmt:
            """Rows 8 * block .. and columns half * part .. of an atom."""
            row = add(add(outer, scale(atom, operand.rows)), scale(block, 8))
            column = add(add(scale(step, operand.depth), scale(part, half)), k)
            number = add(scale(part, operand.rows // 8), block)
            start = self.atom(step, atom).indices[0]
            into = add(start, scale(number, per))
            if whole:
                return self._move(Ramp(into, int_const(1), per), row, _ramp(column, per))
            return unrolled(
                context,
                "x",
                per,
                lambda x: self._move(add(into, x), row, add(column, x)),
                operand.site,
            )

        return self._each_register(half, register)

    def _each_register(self, half: int, body: Callable[[Expr, Expr, Expr], Stmt]) -> Stmt:
        """Loops over the atoms of a step and the registers of an atom."""
        operand, context, site = self.operand, self.context, self.operand.site

        def atom(at: Expr) -> Stmt:
            def part(p: Expr) -> Stmt:
                return unrolled(context, "b", operand.rows // 8, lambda b: body(at, p, b), site)

            return unrolled(context, "p", operand.depth // half, part, site)

        return unrolled(context, "i", operand.atoms, atom, site)

    def _move(self, into: Expr, row: Expr, column: Expr) -> Stmt:
        operand = self.operand
        value = cast(Load(operand.buffer, operand.at(row, column)), operand.dtype)
        return Store(self.registers, (into,), value, site=operand.site)


def _ramp(base: Expr, lanes: int) -> Expr:
    return Ramp(base, int_const(1), lanes)


def load_all(loaders: tuple[Loader, ...], step: Expr) -> list[Stmt]:
    """The loads of all operands of one step."""
    return [stmt for loader in loaders for stmt in loader.load(step)]
