"""The order between iterations of a pipelined loop.

A statement of stage s works in step k + s of the loop on iteration k, in its place in that step: so
one comes before another where its (step, place) is smaller. A schedule keeps a dependence if what
comes first in the kernel still does. A buffer needs as many versions as iterations write it before
the first of them is done with it. What a statement waits for are the copies that write what it
reads: in how many groups these are, and how many later ones may be under way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tileworkbench.compiler.analysis.dataflow import Effects, effects_of
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.simt import AsyncCopy
from tileworkbench.compiler.ir.stmt import Alias, Alloc, Let, Stmt, items
from tileworkbench.compiler.ir.tile import Pipelined


def declares(stmt: Stmt) -> bool:
    """Whether `stmt` only makes a name: it has no place in a schedule."""
    return isinstance(stmt, Let | Alloc | Alias)


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
    """The statements of a loop in the order of execution, and what follows from it.

    Copies are committed in groups, one for each run of copies of one stage. Groups are numbered
    from the first one of a step; those of the steps before have numbers below zero.
    """

    def __init__(self, loop: Pipelined) -> None:
        self.items = sorted(schedule_of(loop, {}), key=lambda item: item.order)
        self.depth = max((item.stage for item in self.items), default=0)
        self.groups = self._groups()
        self.group_count = max(self.groups.values(), default=-1) + 1

    def _groups(self) -> dict[int, int]:
        """The number of the group of each asynchronous item, by position."""
        numbers: dict[int, int] = {}
        before: Item | None = None
        for at, item in enumerate(self.items):
            if item.asynchronous:
                joins = before is not None and before.asynchronous and before.stage == item.stage
                numbers[at] = max(numbers.values(), default=-1) + (not joins)
            before = item
        return numbers

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

    def waits(self) -> dict[int, int]:
        """The latest group that each statement needs, by position."""
        needed: dict[int, int] = {}
        for at, item in enumerate(self.items):
            for position, group in self.groups.items():
                writer = self.items[position]
                if writer.effects.writes & item.effects.reads and writer.comes_before(item):
                    wanted = group - (item.stage - writer.stage) * self.group_count
                    needed[at] = max(needed.get(at, wanted), wanted)
        return needed

    def committed_before(self, at: int) -> int:
        """The groups of a step that are committed when its statement `at` runs."""
        return len({group for position, group in self.groups.items() if position < at})

    def all_consumed(self) -> bool:
        """Whether some statement reads what each group writes."""
        read = {buffer for item in self.items for buffer in item.effects.reads}
        return all(self.items[at].effects.writes & read for at in self.groups)
