"""Serial loops that go over the elements of a tile nest by nest, as reductions do.

What another nest over the same elements computes can be computed inside of them, each element just
before it is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tileworkbench.compiler.analysis.access import element_accesses
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.expr import Buffer, Expr, Var
from tileworkbench.compiler.ir.loops import iterations
from tileworkbench.compiler.ir.rewrite import Rewriter, statements, substitute
from tileworkbench.compiler.ir.stmt import Alloc, For, Let, LoopKind, Seq, Stmt, Store, items, seq
from tileworkbench.compiler.ir.tile import Parallel


@dataclass(frozen=True, slots=True)
class NestLoops:
    """`loops`, outermost first, with `nest` in the innermost of them, among other statements."""

    loops: tuple[For, ...]
    nest: Parallel

    @staticmethod
    def around(stmt: Stmt, tiles: frozenset[Buffer]) -> NestLoops | None:
        """The loops around the one nest that touches `tiles`; None where something else does."""
        if not only_elements(stmt):
            return None
        loops: list[For] = []
        while isinstance(stmt, For):
            loops.append(stmt)
            inside = [each for each in items(stmt.body) if touched(each) & tiles]
            if stmt.kind is not LoopKind.SERIAL or len(inside) != 1:
                return None
            stmt = inside[0]
        return NestLoops(tuple(loops), stmt) if isinstance(stmt, Parallel) else None

    def box(self) -> dict[Var, int] | None:
        """How many values each variable has, all from 0 on; None where that is not known."""
        counts: dict[Var, int] = {}
        for loop in self.loops:
            values = iterations(loop)
            if values is None or values.start or values.step != 1:
                return None
            counts[loop.var] = len(values)
        for var, extent in zip(self.nest.vars, self.nest.extents, strict=True):
            count = const_int(extent)
            if count is None:
                return None
            counts[var] = count
        return counts

    def with_nest(self, nest: Parallel) -> Stmt:
        """The loops around another nest."""

        def change(stmt: Stmt) -> Stmt:
            return nest if stmt is self.nest else stmt

        return Rewriter(rewrite_stmt=change)(self.loops[0])  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class RowLoop:
    """A loop over rows: `elements`, a nest or a loop around one, go over those of a row; `before`
    and `after` are what else there is to do for it.
    """

    loop: For
    before: tuple[Stmt, ...]
    elements: For | Parallel
    after: tuple[Stmt, ...]

    @staticmethod
    def of(loop: For) -> RowLoop | None:
        """The parts of a loop; None where it is none over rows."""
        stmts = items(loop.body)
        if loop.kind is not LoopKind.SERIAL or not only_elements(loop):
            return None
        inner = [at for at, stmt in enumerate(stmts) if isinstance(stmt, For)]
        inner = inner or [at for at, stmt in enumerate(stmts) if isinstance(stmt, Parallel)]
        if len(inner) != 1:
            return None
        at, elements = inner[0], stmts[inner[0]]
        if isinstance(elements, For) and not isinstance(elements.body, Parallel):
            return None
        return RowLoop(loop, stmts[:at], elements, stmts[at + 1 :])  # type: ignore[arg-type]

    @property
    def nest(self) -> Parallel:
        """What is done with elements."""
        elements = self.elements
        return elements.body if isinstance(elements, For) else elements  # type: ignore[return-value]

    @property
    def loops(self) -> tuple[For, ...]:
        """The loops around the nest."""
        return (self.loop, self.elements) if isinstance(self.elements, For) else (self.loop,)

    @property
    def beside(self) -> Stmt:
        """All that is not done with elements."""
        return seq([*self.before, *self.after])

    def named_as(self, other: RowLoop) -> RowLoop | None:
        """The same with the variables of loops that count as these do; None where they do not."""
        bounds = [
            ([(loop.start, loop.stop, loop.step) for loop in row.loops], row.nest.extents)
            for row in (self, other)
        ]
        if bounds[0] != bounds[1]:
            return None
        names = [(*(loop.var for loop in row.loops), *row.nest.vars) for row in (self, other)]
        return RowLoop.of(_renamed(self.loop, dict(zip(*names, strict=True))))

    def joined(self, other: RowLoop, nest: Parallel) -> For:
        """One loop for both, with what they do with elements in `nest`."""
        elements = self.elements
        made = replace(elements, body=nest) if isinstance(elements, For) else nest
        stmts = [*self.before, *other.before, made, *self.after, *other.after]
        return replace(self.loop, body=seq(stmts))


def _renamed(loop: For, names: Mapping[Var, Var]) -> For:
    """A loop with other variables, also where loops and nests bind them."""

    def change(stmt: Stmt) -> Stmt:
        if isinstance(stmt, For):
            return replace(stmt, var=names.get(stmt.var, stmt.var))
        if isinstance(stmt, Parallel):
            return replace(stmt, vars=tuple(names.get(var, var) for var in stmt.vars))
        return stmt

    return substitute(Rewriter(rewrite_stmt=change)(loop), names)  # type: ignore[no-any-return]


def only_elements(stmt: Stmt) -> bool:
    """Whether `stmt` is made of loops, nests and accesses of elements."""
    plain = (For, Seq, Alloc, Let, Store, Parallel)
    return all(isinstance(each, plain) for each in statements(stmt))


def touched(stmt: Stmt, *, writes: bool = False) -> frozenset[Buffer]:
    """The buffers whose elements are read or written below `stmt`, or those written alone."""
    return frozenset(a.buffer for a in element_accesses(stmt) if a.writes or not writes)


def counted(indices: Sequence[Expr], box: Mapping[Var, int], ranges: Ranges) -> list[int] | None:
    """How many values each index has, if it counts them from 0 on and no two points of the box
    have all indices alike; None otherwise.
    """
    left = {var: count for var, count in box.items() if count != 1}
    counts = []
    for index in indices:
        linear = ranges.linear(index)
        # The digits of a number, such as `k * 64 + i`.
        size = 1
        for atom, factor in sorted(linear.terms, key=lambda term: term[1]):
            if box.get(atom) == 1:  # type: ignore[call-overload]
                continue
            if atom not in left or factor != size:
                return None
            size *= left.pop(atom)
        if linear.constant:
            return None
        counts.append(size)
    return None if left else counts
