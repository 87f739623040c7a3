"""Loops that compute what they read: nests move into them, and loops over the same rows are one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tileworkbench.compiler.analysis.access import element_accesses
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.effects import Access
from tileworkbench.compiler.ir.expr import Buffer, Expr, Var
from tileworkbench.compiler.ir.rewrite import buffers_of, substitute
from tileworkbench.compiler.ir.stmt import Alloc, For, Stmt, seq
from tileworkbench.compiler.ir.tile import Parallel
from tileworkbench.compiler.lower.shared.nest_fusion import NestFuser, is_plain, without_unit_dims
from tileworkbench.compiler.lower.shared.nest_loops import NestLoops, RowLoop, counted, touched


class LoopFuser:
    """Fuses loops of a program with what stands before them."""

    def __init__(self, nests: NestFuser) -> None:
        self.nests, self.ranges = nests, nests.ranges

    def around_nests(self, done: list[Stmt], stmt: Stmt) -> Stmt:
        """A loop with the nests in it whose tiles it reads, and with the loop before it; they leave
        `done`.
        """
        while isinstance(stmt, For):
            taken = self.with_maker(done, stmt)
            if taken is None:
                break
            stmt = taken
        before = last(done)
        both = self.join(done[before], stmt) if before is not None else None
        if before is not None and both is not None:
            del done[before]
        return both or stmt

    def with_maker(self, done: list[Stmt], loop: For) -> Stmt | None:
        """The loop with a nest of `done` inside, which leaves it; None where none can."""
        for at, nest in _makers(done, loop):
            taken = self.take_in(nest, loop)
            if taken is not None:
                del done[at]
                return taken
        return None

    def take_in(self, nest: Parallel, loop: For) -> Stmt | None:
        """The loop with the nest inside, for each element before it is read; None where it reads
        others, or not all of them once.
        """
        nest = without_unit_dims(nest)
        around = NestLoops.around(loop, touched(nest, writes=True))
        box = None if around is None else around.box()
        if around is None or box is None or touched(loop, writes=True) & touched(nest):
            return None
        place = self.place(nest, around.nest, box)
        if place is None or not is_plain(around.nest):
            return None
        moved = substitute(nest.body, place)
        uses = [list(element_accesses(body)) for body in (moved, around.nest.body)]
        # With wider elements there would be fewer in a vector.
        if _bits(uses[0]) > _bits(uses[1]):
            return None
        if not self.nests.moves_in_step([*uses[0], *uses[1]], around.nest.vars[-1]):
            return None
        body = self.nests.forward(seq([moved, around.nest.body]))
        return around.with_nest(replace(around.nest, body=body))

    def place(
        self, nest: Parallel, reader: Parallel, box: Mapping[Var, int]
    ) -> dict[Var, Expr] | None:
        """The variables of a nest in terms of the box, whose points each read one element of what
        it writes; None where not all elements are read once.
        """
        made: dict[Var, Expr] = {}
        for buffer in touched(nest, writes=True) & touched(reader):
            mine, theirs = (_places(each, buffer) for each in (nest, reader))
            if len(mine) != 1 or len(theirs) != 1:
                return None
            at, sizes = dict[Var, Expr](), list[int | None]()
            counts = counted(indices := theirs.pop(), box, self.ranges)
            for index, other in zip(mine.pop(), indices, strict=True):
                if isinstance(index, Var) and index in nest.vars:
                    at[index] = other
                    sizes.append(const_int(nest.extents[nest.vars.index(index)]))
                elif const_int(index) == 0:
                    sizes.append(1)
            if counts != sizes or len(at) != len(nest.vars) or made not in ({}, at):
                return None
            made = at
        return made or None

    def join(self, first: Stmt, second: Stmt) -> Stmt | None:
        """Two loops over the same rows as one; None where one needs all of the other."""
        if not isinstance(first, For) or not isinstance(second, For):
            return None
        one, two = RowLoop.of(first), RowLoop.of(second)
        two = None if one is None or two is None else two.named_as(one)
        if one is None or two is None or not self.are_in_step(one, two):
            return None
        nest = self.nests.fuse(one.nest, two.nest)
        return None if nest is None else one.joined(two, nest)

    def are_in_step(self, one: RowLoop, two: RowLoop) -> bool:
        """Whether loops share no element but what they access at the same time."""
        for here, there in ((one, two), (two, one)):
            if touched(here.beside, writes=True) & touched(there.loop):
                return False
            if touched(here.nest, writes=True) & touched(there.beside):
                return False
        written = touched(one.nest, writes=True) | touched(two.nest, writes=True)
        box = NestLoops(one.loops, one.nest).box()
        for buffer in written & touched(one.nest) & touched(two.nest):
            places = _places(one.nest, buffer) | _places(two.nest, buffer)
            if len(places) != 1 or box is None or counted(places.pop(), box, self.ranges) is None:
                return False
        return True


def last(done: Sequence[Stmt]) -> int | None:
    """The place of the last statement that does something."""
    return next((at for at in reversed(range(len(done))) if not isinstance(done[at], Alloc)), None)


def _makers(done: Sequence[Stmt], loop: For) -> Iterator[tuple[int, Parallel]]:
    """The nests that write what `loop` reads and can as well come later, the last one first, with
    their places.
    """
    reads = touched(loop)
    between: set[Buffer] = set()
    for at in reversed(range(len(done))):
        stmt = done[at]
        if (
            isinstance(stmt, Parallel)
            and is_plain(stmt)
            and touched(stmt, writes=True) & reads
            and between.isdisjoint(buffers_of(stmt))
        ):
            yield at, stmt
        if not isinstance(stmt, Alloc):
            between.update(buffers_of(stmt))


def _places(nest: Stmt, buffer: Buffer) -> set[tuple[Expr, ...]]:
    return {each.indices for each in element_accesses(nest) if each.buffer is buffer}


def _bits(uses: Sequence[Access]) -> int:
    return max(use.buffer.dtype.bits for use in uses)
