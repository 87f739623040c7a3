"""What commits, arrivals and waits do to operations that were started, in program order.

| statement | the operations under way |
|---|---|
| start | one more, counted at its memory barrier if it names one |
| commit | end of a group of their engine |
| wait for groups | all but the latest groups of their engine are done |
| arrival that counts an engine | those started so far belong to its memory barrier |
| wait for a phase | those of its memory barrier are done |
| wait for a cluster or the grid | nothing is known of those that write to other blocks |

`schedule/order.py` says what such statements order between threads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import field, replace

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.effects import Access, Order, accesses, order_of
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.simt import (
    BarrierArrive,
    BarrierWait,
    CommitGroup,
    Engine,
    Start,
    WaitGroup,
)
from tileworkbench.compiler.ir.stmt import Stmt

_OTHER_BLOCKS = (Order.PHASE, Order.CLUSTER, Order.CLUSTER_PHASE, Order.GRID)


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation under way. It belongs to a group of its engine or, where `barrier` is given, is
    counted at that memory barrier.
    """

    engine: Engine
    group: int
    barrier: Buffer | None
    touched: tuple[Access, ...]


@dataclass(slots=True)
class Pending:
    """The operations under way, and how many groups each engine has; whether these are all."""

    operations: list[Operation] = field(default_factory=list)
    committed: Counter[Engine] = field(default_factory=Counter)
    complete: bool = True

    def forget(self) -> None:
        """From here on it is not known what is under way."""
        self.operations, self.complete = [], False

    def start(self, stmt: Start) -> None:
        """The operation of `stmt` is under way."""
        touched = tuple(each for part in statements(stmt.body) for each in accesses(part))
        barrier = None if stmt.barrier is None else stmt.barrier.buffer
        group = self.committed[stmt.engine]
        self.operations.append(Operation(stmt.engine, group, barrier, touched))

    def in_groups(self, engine: Engine) -> list[Operation]:
        """The operations of `engine` that complete in groups."""
        return [one for one in self.operations if one.engine is engine and one.barrier is None]

    def written(self) -> set[Buffer]:
        """The buffers that operations under way may still write."""
        touched = (access for one in self.operations for access in one.touched)
        return {access.buffer for access in touched if access.writes}

    def order(self, stmt: Stmt) -> None:
        """Take into account what `stmt` commits, counts or waits for."""
        match stmt:
            case CommitGroup(engine):
                self.committed[engine] += 1
            case WaitGroup():
                self._wait(stmt)
            case BarrierWait(place):
                self._keep(lambda one: one.barrier is not place.buffer)
            case BarrierArrive(place, engine) if engine is not None:
                owned = self.in_groups(engine)
                self.operations = [
                    replace(one, barrier=place.buffer) if one in owned else one
                    for one in self.operations
                ]
        if order_of(stmt) in _OTHER_BLOCKS:  # these may have waited, and have passed it on
            self._keep(lambda one: one.engine is not Engine.CLUSTER)

    def _keep(self, kept: Callable[[Operation], bool]) -> None:
        self.operations = list(filter(kept, self.operations))

    def _wait(self, stmt: WaitGroup) -> None:
        reached = self.committed[stmt.engine] - stmt.pending
        done = [one for one in self.in_groups(stmt.engine) if one.group < reached]
        self._keep(lambda one: one not in done)
        if stmt.sources:  # what they write may still be on its way
            for one in done:
                writes = tuple(access for access in one.touched if access.writes)
                self.operations.append(replace(one, touched=writes))
