"""A group of nests strip by strip: all members go over the points of a strip before the next one
begins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tileworkbench.compiler.analysis.names import Names
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.build import add, const_int, int_const, mul
from tileworkbench.compiler.ir.expr import Buffer, Expr, Load, Var
from tileworkbench.compiler.ir.loops import counting
from tileworkbench.compiler.ir.renaming import with_new_names
from tileworkbench.compiler.ir.rewrite import Rewriter, substitute
from tileworkbench.compiler.ir.stmt import Alloc, Stmt, Store, seq
from tileworkbench.compiler.ir.tile import Parallel
from tileworkbench.compiler.lower.shared.nest_groups import Member, NestGroup

VECTORS = 8
"""Of a strip. So many partial sums hide the latency of an addition, and leave half of the registers
or more. So many neighbours, 512 bytes, come from memory as fast as whole rows do.
"""


def strip_width(extent: int, lanes: int, *, shared: bool = False) -> int:
    """Columns of a strip of `extent` columns: of those that fit the registers the most that leave
    no rest. Half of them where what is loaded is `shared` by rows, for two rows then fit.
    """
    vectors = VECTORS // 2 if shared else VECTORS
    most = lanes * vectors
    widths = [width for width in range(most, most // 2, -lanes) if extent % width == 0]
    return widths[0] if extent > most and widths else min(most, extent)


def strip_of(extents: Sequence[int], lanes: int, *, shared: bool) -> list[int]:
    """Points of a strip along each dimension: its columns, then as many rows as fit."""
    width = strip_width(extents[-1], lanes, shared=shared)
    sizes, left = [width], VECTORS // -(-width // lanes)
    for extent in reversed(extents[:-1]):
        size = max(each for each in range(1, min(left, extent) + 1) if extent % each == 0)
        sizes.insert(0, size)
        left //= size
    return sizes


@dataclass(frozen=True, slots=True)
class Strips:
    """What is written for a group: the tiles `held` are in registers, those `kept` at the end in
    their memory too.
    """

    group: NestGroup
    held: tuple[Buffer, ...]
    kept: frozenset[Buffer]
    names: Names

    def write(self, sizes: Sequence[int]) -> Stmt:
        """Loops over strips of so many points. Columns are outermost: what rows share stays in the
        innermost cache.
        """
        width = sizes[-1]
        count, rest = divmod(self.group.extents[-1], width)
        stmts: list[Stmt] = []
        if count == 1:
            stmts.append(self.rows(sizes, int_const(0)))
        else:
            strip = self.names.var("strip")
            body = self.rows(sizes, mul(strip, int_const(width)))
            stmts.append(counting(strip, count, body, self.group.nest.site))
        if rest:
            # What a name stands for is known where it stands for one thing only.
            over = self.rows((*sizes[:-1], rest), int_const(count * width))
            stmts.append(with_new_names(over, self.names.fresh))
        return seq(stmts)

    def rows(self, sizes: Sequence[int], column: Expr) -> Stmt:
        """The columns from `column` on, some rows after others."""
        nest, outer = self.group.nest, sizes[:-1]
        blocks = [self.names.var(var.name, var.dtype) for var in nest.vars[:-1]]
        starts = [mul(block, int_const(size)) for block, size in zip(blocks, outer, strict=True)]
        body = self.points(_Strip((*sizes,), (*starts, column)))
        counts = [n // size for n, size in zip(self.group.extents[:-1], outer, strict=True)]
        for block, count in reversed(list(zip(blocks, counts, strict=True))):
            body = counting(block, count, body, nest.site)
        return body

    def points(self, strip: _Strip) -> Stmt:
        """All members at the points of a strip."""
        registers = {
            buffer: Buffer(self.names.fresh(buffer.name), buffer.dtype, strip.shape, "local")
            for buffer in self.held
        }
        pairs = registers.items()
        site = self.group.nest.site
        return seq(
            [
                *(Alloc(register, site=site) for register in registers.values()),
                *(self.load(*each, strip) for each in pairs if not self.group.makes(each[0])),
                *(self.member(member, registers, strip) for member in self.group.members),
                *(self.store(*each, strip) for each in pairs if each[0] in self.kept),
            ]
        )

    def load(self, buffer: Buffer, register: Buffer, strip: _Strip) -> Parallel:
        """A tile's elements into registers."""
        nest, place = self.group.nest, self.group.place(buffer) or ()

        def body(here: tuple[Expr, ...]) -> Stmt:
            return Store(register, here, Load(buffer, place), site=nest.site)

        return strip.nest(nest, body, self.names)

    def store(self, buffer: Buffer, register: Buffer, strip: _Strip) -> Parallel:
        """Registers into a tile's elements."""
        nest, place = self.group.nest, self.group.place(buffer) or ()

        def body(here: tuple[Expr, ...]) -> Stmt:
            return Store(buffer, place, Load(register, here), site=nest.site)

        return strip.nest(nest, body, self.names)

    def member(self, member: Member, registers: Mapping[Buffer, Buffer], strip: _Strip) -> Stmt:
        """A member with registers in place of tiles."""

        def body(here: tuple[Expr, ...]) -> Stmt:
            return _in_registers(member.nest.body, registers, here)

        return member.around(strip.nest(member.nest, body, self.names))


@dataclass(frozen=True, slots=True)
class _Strip:
    """So many points along each dimension, from `starts` on."""

    sizes: tuple[int, ...]
    starts: tuple[Expr, ...]

    @property
    def shape(self) -> tuple[Expr, ...]:
        """The sizes of what has an element for each point: of rows only where there are some."""
        *rows, columns = map(int_const, self.sizes)
        return (*(size for size in rows if const_int(size) != 1), columns)

    def nest(
        self, nest: Parallel, body: Callable[[tuple[Expr, ...]], Stmt], names: Names
    ) -> Parallel:
        """`body`, in the variables of `nest`, at the points. It is given their numbers."""
        at: dict[Var, Expr] = {}
        points: list[Var] = []
        for var, size, start in zip(nest.vars, self.sizes, self.starts, strict=True):
            at[var] = start
            if size != 1 or var is nest.vars[-1]:
                points.append(names.var(var.name, var.dtype))
                at[var] = add(start, points[-1])
        here = tuple(points)
        return replace(nest, vars=here, extents=self.shape, body=substitute(body(here), at))


def _in_registers(body: Stmt, registers: Mapping[Buffer, Buffer], here: tuple[Expr, ...]) -> Stmt:
    def load(node: object) -> object:
        if isinstance(node, Load) and node.buffer in registers:
            return Load(registers[node.buffer], here)
        return node

    def store(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Store) and stmt.buffer in registers:
            return replace(stmt, buffer=registers[stmt.buffer], indices=here)
        return stmt

    return Rewriter(load, store)(body)  # type: ignore[no-any-return]
