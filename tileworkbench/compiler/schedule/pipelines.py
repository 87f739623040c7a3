"""The order between iterations of a pipelined loop.

A statement of stage s works in step k + s of the loop on iteration k, in its place in that step: so
one comes before another where its (step, place) is smaller. A schedule keeps a dependence if what
comes first in the kernel still does. A buffer needs as many versions as iterations write it before
the first of them is done with it. How statements wait for what the loop starts is in `completion`.
"""

from __future__ import annotations

from collections.abc import Mapping

from tileworkbench.compiler.analysis.dataflow import Effects, effects_of
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.build import add, binary, const
from tileworkbench.compiler.ir.expr import Buffer, Expr
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.simt import AsyncCopy
from tileworkbench.compiler.ir.stmt import Stmt, declares, items
from tileworkbench.compiler.ir.tile import Pipelined


def scheduled(body: Stmt) -> list[Stmt]:
    """The statements of a pipelined body that have a place in the schedule."""
    return [stmt for stmt in items(body) if not declares(stmt)]


@dataclass(frozen=True, slots=True)
class Item:
    """One scheduled statement: the place `order` in a step, `stage` steps behind the first."""

    stmt: Stmt
    order: int
    stage: int
    effects: Effects

    def comes_before(self, other: Item, ahead: int = 0) -> bool:
        """Whether this comes before `other` on the iteration that is `ahead` of this one's."""
        return (self.stage, self.order) < (other.stage + ahead, other.order)

    @property
    def counted(self) -> bool:
        """Whether it starts copies for which waits count instructions."""
        return any(
            isinstance(inner, AsyncCopy) and inner.in_line for inner in statements(self.stmt)
        )

    @property
    def asynchronous(self) -> bool:
        """Whether it starts copies."""
        return any(isinstance(inner, AsyncCopy) for inner in statements(self.stmt))


def schedule_of(loop: Pipelined, views: Mapping[Buffer, Buffer]) -> list[Item]:
    """The scheduled statements as the kernel has them; of `views` the memory behind them counts.
    A loop without a schedule executes them one after another.
    """
    stmts = scheduled(loop.body)
    order, stage = loop.order or range(len(stmts)), loop.stage or (0,) * len(stmts)
    return [
        Item(stmt, place, behind, effects_of(stmt).through(views))
        for stmt, place, behind in zip(stmts, order, stage, strict=True)
    ]


class Schedule:
    """The statements of a loop in the order of execution, and what follows from it."""

    def __init__(self, loop: Pipelined) -> None:
        self.items = sorted(schedule_of(loop, {}), key=lambda item: item.order)
        self.depth = max((item.stage for item in self.items), default=0)

    def lives(self) -> dict[Buffer, tuple[int, int]]:
        """For each buffer that the loop writes: how many stages lie between the first write and the
        last use, and how many versions it needs: the fewest n of which each use comes before the
        write n iterations later.
        """
        needs: dict[Buffer, tuple[int, int]] = {}
        for buffer in {buffer for item in self.items for buffer in item.effects.writes}:
            writers = [item for item in self.items if buffer in item.effects.writes]
            users = [*writers, *(item for item in self.items if buffer in item.effects.reads)]
            apart = max(user.stage for user in users) - min(writer.stage for writer in writers)
            free = all(user.comes_before(each, apart) for user in users for each in writers)
            needs[buffer] = apart, max(1, apart + (not free))
        return needs


@dataclass(frozen=True, slots=True)
class Step:
    """One step of an expanded loop, in which each statement works on an iteration of its own:
    step `number` of the prologue, or for None the steps of the loop that remains.
    """

    loop: Pipelined
    depth: int
    number: int | None
    ranges: Ranges

    def runs(self, item: Item) -> bool:
        """Whether the statement has an iteration to work on: not yet in the prologue's first
        steps.
        """
        return self.number is None or item.stage <= self.number

    def ahead(self, item: Item) -> int:
        """How many iterations the statement is ahead: of the loop variable, in the prologue of the
        loop's start.
        """
        return (self.depth if self.number is None else self.number) - item.stage

    def iteration(self, item: Item) -> Expr:
        """The iteration that the statement works on."""
        base = self.loop.var if self.number is None else self.loop.start
        return add(base, const(self.ahead(item), base.dtype))

    def is_current(self, item: Item) -> bool:
        """Whether that is the iteration of the loop variable."""
        return self.number is None and not self.ahead(item)

    def condition(self, item: Item) -> Expr | None:
        """What must hold for that iteration to exist, None where it always does."""
        return self.exists(self.ahead(item))

    def exists(self, ahead: int) -> Expr | None:
        """What must hold for the iteration that is `ahead` to exist, None where it always does."""
        base = self.loop.var if self.number is None else self.loop.start
        if self.number is None and not ahead:
            return None
        inside = binary("lt", add(base, const(ahead, base.dtype)), self.loop.stop)
        return None if self.number is not None and self.ranges.proves(inside) else inside
