"""Copies of a pipelined loop that complete at memory barriers: who waits for which phase.

Copies that one thread does together are started instead, and have a ring of barriers, as many as
their tiles have versions (`schedule/rings`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.build import int_const, sub
from tileworkbench.compiler.ir.expr import Buffer, Expr
from tileworkbench.compiler.ir.simt import BarrierWait, TensorMap
from tileworkbench.compiler.ir.stmt import Alloc, If, Stmt
from tileworkbench.compiler.ir.tile import Pipelined
from tileworkbench.compiler.schedule.pipelines import Item, Schedule, Step
from tileworkbench.compiler.schedule.rings import (
    Ring,
    bytes_of,
    counter,
    loads_below,
    new_ring,
    started,
)
from tileworkbench.compiler.schedule.versions import version_count


@dataclass(frozen=True, slots=True)
class Filling:
    """The copies that statement `at` of the schedule does, of `bytes_` in all, which bring `tiles`;
    the barriers of `ring` know when they are there.
    """

    at: int
    ring: Ring
    bytes_: int
    tiles: frozenset[Buffer]

    def started(self, stmt: Stmt, distance: Expr) -> Stmt:
        """`stmt`, which does the copies, where it starts them instead. One thread executes what is
        in its condition.
        """
        if not isinstance(stmt, If):
            raise TypeError(f"a '{type(stmt).__name__}' that does copies of boxes")
        barrier = self.ring.place(distance)
        return replace(stmt, then=started(stmt.then, barrier, self.bytes_, stmt.site))

    def initialised(self) -> list[Stmt]:
        """What makes the barriers, and what counts iterations, at the start of the kernel."""
        done = self.ring.done
        made = self.ring.initialised()
        return made if done is None else [Alloc(done, int_const(0)), *made]


def fillings_of(
    schedule: Schedule,
    versions: Mapping[Buffer, Buffer],
    maps: Mapping[Buffer, TensorMap],
    repeated: bool,
    fresh: Callable[[str], str],
) -> list[Filling]:
    """The copies of a loop whose tiles have these `versions`; `repeated`: the loop may be executed
    more than once. What a statement starts and waits for itself is none.
    """
    fillings = []
    for at, item in enumerate(schedule.items):
        loads = loads_below(item.stmt)
        if loads:
            tiles = frozenset(load.dst.buffer for load in loads)
            number = max(version_count(versions[tile]) if tile in versions else 1 for tile in tiles)
            done = counter(fresh("done")) if repeated else None
            ring = new_ring(fresh("filled"), number, done)
            fillings.append(Filling(at, ring, bytes_of(loads, maps), tiles))
    return fillings


class Phases:
    """The phases of one loop: the `Completion` of copies that count bytes at memory barriers."""

    def __init__(self, loop: Pipelined, schedule: Schedule, fillings: Sequence[Filling]) -> None:
        self.loop, self.items, self.fillings = loop, schedule.items, fillings
        self.readers = {each.at: self._reader(each) for each in fillings}

    def prepare(self) -> Sequence[Stmt]:
        """The barriers are made at the start of the kernel."""
        return ()

    def begin(self, step: Step) -> Sequence[Stmt]:
        """Nothing: barriers of the block keep new copies behind the last reads of their tiles."""
        return ()

    def before(self, at: int, step: Step) -> Sequence[Stmt]:
        """The wait of the first statement that reads the tiles of a ring."""
        return [stmt for each in self.fillings for stmt in self._wait(each, at, step)]

    def behind(self, at: int, step: Step) -> Sequence[Stmt]:
        """The wait for copies that nobody reads."""
        return [
            stmt
            for each in self.fillings
            if each.at == at and self.readers[at] is None
            for stmt in self._waits(each.ring, self.items[at], step)
        ]

    def finish(self) -> Sequence[Stmt]:
        """Count the iterations of this execution, if the loop may be executed again."""
        return [stmt for each in self.fillings for stmt in each.ring.counted(self.loop)]

    def _wait(self, filling: Filling, at: int, step: Step) -> Iterator[Stmt]:
        if self.readers[filling.at] == at:
            yield from self._waits(filling.ring, self.items[at], step)

    def _waits(self, ring: Ring, item: Item, step: Step) -> Iterator[Stmt]:
        if not step.runs(item):
            return
        distance = sub(step.iteration(item), self.loop.start)
        wait = BarrierWait(ring.place(distance), ring.parity(distance), site=item.stmt.site)
        condition = step.condition(item)
        yield wait if condition is None else If(condition, wait, site=item.stmt.site)

    def _reader(self, filling: Filling) -> int | None:
        """The first statement that reads what copies bring."""
        start = self.items[filling.at]
        for at, item in enumerate(self.items):
            reads = item.effects.reads & filling.tiles
            if item is not start and reads and start.comes_before(item):
                return at
        return None
