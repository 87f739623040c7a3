"""Element-wise nests over the same box, each perhaps in serial loops, whose points do not meet.

So each point can go through all of them before the next one begins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from tileworkbench.compiler.analysis.access import (
    depends_on,
    element_accesses,
    has_loads,
    loads,
    varying_lets,
)
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.effects import Access, accesses
from tileworkbench.compiler.ir.expr import Buffer, Expr, Var
from tileworkbench.compiler.ir.loops import iterations
from tileworkbench.compiler.ir.rewrite import bound_by, statements, substitute
from tileworkbench.compiler.ir.stmt import For, LoopKind, Stmt, Store, items
from tileworkbench.compiler.ir.tile import Parallel
from tileworkbench.compiler.lower.shared.nest_fusion import is_plain, without_unit_dims


@dataclass(frozen=True, slots=True)
class Member:
    """A nest with the serial loops around it, outermost first."""

    loops: tuple[For, ...]
    nest: Parallel

    @staticmethod
    def of(stmt: Stmt) -> Member | None:
        """The parts of a statement; None where it is something else."""
        loops: list[For] = []
        while isinstance(stmt, For):
            if stmt.kind is not LoopKind.SERIAL or has_loads(stmt.start) or has_loads(stmt.stop):
                return None
            loops.append(stmt)
            stmt = stmt.body
        if not isinstance(stmt, Parallel) or not is_plain(stmt):
            return None
        if any(const_int(extent) is None for extent in stmt.extents):
            return None
        return Member(tuple(loops), without_unit_dims(stmt))

    def uses(self) -> Iterator[Access]:
        """The accesses of elements."""
        return element_accesses(self.nest.body)

    @property
    def repeats(self) -> bool:
        """Whether the nest may be executed more than once."""
        counts = [iterations(loop) for loop in self.loops]
        return any(values is None or len(values) > 1 for values in counts)

    @property
    def moving(self) -> frozenset[Var]:
        """The variables that differ between iterations, without those of the nest."""
        lets = {var for stmt in statements(self.nest.body) for var in bound_by(stmt)}
        return frozenset({loop.var for loop in self.loops} | lets)

    @property
    def rows_share(self) -> bool:
        """Whether a vector that is loaded is good for several rows."""
        *rows, column = self.nest.vars
        if not rows:
            return False
        along, across = (varying_lets(self.nest.body, var) | {var} for var in (column, rows[-1]))
        return any(
            depends_on(load, along) and not depends_on(load, across)
            for load in loads(self.nest.body)
        )

    def with_vars(self, variables: tuple[Var, ...]) -> Member:
        """The same with other variables of the nest."""
        body = substitute(self.nest.body, dict(zip(self.nest.vars, variables, strict=True)))
        return Member(self.loops, replace(self.nest, vars=variables, body=body))

    def around(self, nest: Parallel) -> Stmt:
        """The loops around another nest."""
        body: Stmt = nest
        for loop in reversed(self.loops):
            body = replace(loop, body=body)
        return body


@dataclass(frozen=True, slots=True)
class NestGroup:
    """Members with the same variables and extents, in the order of the program."""

    members: tuple[Member, ...]
    ranges: Ranges

    @staticmethod
    def of(member: Member, ranges: Ranges) -> NestGroup | None:
        """A group of one; None where points meet from one iteration of its loops to another."""
        group = NestGroup((member,), ranges)
        written = {use.buffer for use in group.uses() if use.writes}
        if member.loops and any(group.place(buffer) is None for buffer in written):
            return None
        return group

    def joined(self, other: NestGroup) -> NestGroup | None:
        """The members of both; None where a point of one meets another point of the other."""
        if self.nest.extents != other.nest.extents:
            return None
        renamed = tuple(member.with_vars(self.nest.vars) for member in other.members)
        both = NestGroup((*self.members, *renamed), self.ranges)
        shared = {use.buffer for use in self.uses()} & {use.buffer for use in other.uses()}
        written = {use.buffer for use in both.uses() if use.writes}
        if any(both.place(buffer) is None for buffer in shared & written):
            return None
        return both

    @property
    def nest(self) -> Parallel:
        """The first nest: its variables and extents are those of all."""
        return self.members[0].nest

    @property
    def extents(self) -> list[int]:
        """The extents of the box."""
        return [const_int(extent) or 0 for extent in self.nest.extents]

    @property
    def repeated(self) -> list[Member]:
        """The members that go over the box more than once."""
        return [member for member in self.members if member.repeats]

    def uses(self) -> Iterator[Access]:
        """All accesses of elements."""
        return (use for member in self.members for use in member.uses())

    def place(self, buffer: Buffer) -> tuple[Expr, ...] | None:
        """The one element of a buffer that each point touches, and no other point in whatever
        iteration; None where that is not so.
        """
        places = {use.indices for use in self.uses() if use.buffer is buffer}
        if len(places) != 1:
            return None
        (place,) = places
        moving = self.moving.union(self.nest.vars)
        alone = set()
        for index in place:
            terms = [term for term, _ in self.ranges.linear(index).terms]
            varying = [term for term in terms if depends_on(term, moving)]
            if len(varying) == 1 and isinstance(varying[0], Var):
                alone.add(varying[0])
        box = zip(self.nest.vars, self.extents, strict=True)
        return place if {var for var, extent in box if extent != 1} <= alone else None

    @property
    def moving(self) -> frozenset[Var]:
        """The variables that differ between iterations of the members."""
        return frozenset[Var]().union(*(member.moving for member in self.members))

    def stays(self, buffer: Buffer) -> bool:
        """Whether a point touches the same element of a buffer in all iterations, and it alone."""
        place = self.place(buffer)
        return place is not None and not any(depends_on(index, self.moving) for index in place)

    def makes(self, buffer: Buffer) -> bool:
        """Whether an element is written before it is read."""
        for member in self.members:
            for stmt in items(member.nest.body):
                uses = [use for use in accesses(stmt) if use.buffer is buffer]
                if uses:
                    certain = isinstance(stmt, Store) and stmt.predicate is None
                    return certain and not member.loops and not any(use.reads for use in uses)
        return False

    def touches(self) -> Counter[Buffer]:
        """How many statements touch each buffer."""
        return touches(stmt for each in self.members for stmt in statements(each.nest.body))


def touches(stmts: Iterable[Stmt]) -> Counter[Buffer]:
    """How many of the statements touch each buffer, without what is inside of them."""
    return Counter(buffer for stmt in stmts for buffer in {use.buffer for use in accesses(stmt)})
