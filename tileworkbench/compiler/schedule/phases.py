"""Copies of a pipelined loop that complete at memory barriers: who waits for which phase.

Copies that one thread does together are started instead, and have a ring of barriers, as many as
their tiles have versions. Barrier i mod n completes a phase for each iteration i that uses it, so
the parity of the phase is that of i div n. Where the loop is executed again, i counts on from its
last execution.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import prod

from tileworkbench.compiler.ir.build import add, binary, cast, const, int_const, sub
from tileworkbench.compiler.ir.expr import Address, Buffer, Expr, Load
from tileworkbench.compiler.ir.simt import (
    BarrierInit,
    BarrierSignal,
    BarrierWait,
    Engine,
    Start,
    TensorLoad,
    TensorMap,
)
from tileworkbench.compiler.ir.stmt import Alloc, If, Stmt, Store, items, seq
from tileworkbench.compiler.ir.tile import Pipelined
from tileworkbench.compiler.ir.types import INT32, UINT64
from tileworkbench.compiler.schedule.pipelines import Item, Schedule, Step
from tileworkbench.compiler.schedule.versions import version_count


@dataclass(frozen=True, slots=True)
class Ring:
    """The barriers `buffer` of the copies that statement `at` of the schedule does, of `bytes_` in
    all; their `tiles`, and `done`: how many iterations earlier executions of the loop had, modulo
    two rounds (None where there are none).
    """

    at: int
    buffer: Buffer
    bytes_: int
    tiles: frozenset[Buffer]
    done: Buffer | None

    @property
    def number(self) -> int:
        """How many barriers there are."""
        return version_count(self.buffer)

    def place(self, distance: Expr) -> Address:
        """The barrier of the iteration that is `distance` behind the loop's start."""
        return Address(self.buffer, (_modulo(self._count(distance), self.number),))

    def parity(self, distance: Expr) -> Expr:
        """The parity of the phase that completes for that iteration."""
        if self.number == 1:
            return cast(_modulo(self._count(distance), 2), INT32)
        rounds = _modulo(self._count(distance), 2 * self.number)
        return cast(binary("ge", rounds, const(self.number, rounds.dtype)), INT32)

    def started(self, stmt: Stmt, distance: Expr) -> Stmt:
        """`stmt`, which does the copies, where it starts them instead. One thread executes what is
        in its condition.
        """
        if not isinstance(stmt, If):
            raise TypeError(f"a '{type(stmt).__name__}' that does copies of boxes")
        barrier = self.place(distance)
        made: list[Stmt] = [BarrierSignal(barrier, 1, self.bytes_, site=stmt.site)]
        for site, group in groupby(items(stmt.then), lambda each: each.site):
            made.append(Start(seq(list(group)), Engine.TMA, barrier, site=site))
        return replace(stmt, then=seq(made))

    def initialised(self) -> list[Stmt]:
        """What makes the barriers, and what counts iterations, at the start of the kernel."""
        made: list[Stmt] = [Alloc(self.buffer)]
        if self.done is not None:
            made.append(Alloc(self.done, int_const(0)))
        places = (Address(self.buffer, (int_const(at),)) for at in range(self.number))
        return [*made, *(BarrierInit(place, int_const(1)) for place in places)]

    def _count(self, distance: Expr) -> Expr:
        if self.done is None:
            return distance
        return add(cast(Load(self.done, ()), distance.dtype), distance)


def rings_of(
    schedule: Schedule,
    versions: Mapping[Buffer, Buffer],
    maps: Mapping[Buffer, TensorMap],
    repeated: bool,
    fresh: Callable[[str], str],
) -> list[Ring]:
    """The rings of barriers of a loop whose tiles have these `versions`; `repeated`: the loop may
    be executed more than once. What a statement starts and waits for itself needs none.
    """
    rings = []
    for at, item in enumerate(schedule.items):
        loads = _loads(item.stmt)
        if loads:
            tiles = frozenset(load.dst.buffer for load in loads)
            number = max(version_count(versions[tile]) if tile in versions else 1 for tile in tiles)
            buffer = Buffer(fresh("filled"), UINT64, (int_const(number),), "shared.barrier")
            boxes = (maps[load.src.buffer] for load in loads)
            bytes_ = sum(prod(each.box) * each.buffer.dtype.bits // 8 for each in boxes)
            done = Buffer(fresh("done"), INT32, (), "local.var") if repeated else None
            rings.append(Ring(at, buffer, bytes_, tiles, done))
    return rings


def _loads(stmt: Stmt) -> list[TensorLoad]:
    """The copies of boxes below `stmt` that nobody has started yet."""
    if isinstance(stmt, Start):
        return []
    if isinstance(stmt, TensorLoad):
        return [stmt]
    below = (child for child in stmt.children() if isinstance(child, Stmt))
    return [load for child in below for load in _loads(child)]


class Phases:
    """The phases of one loop: the `Completion` of copies that count bytes at memory barriers."""

    def __init__(self, loop: Pipelined, schedule: Schedule, rings: Sequence[Ring]) -> None:
        self.loop, self.items, self.rings = loop, schedule.items, rings
        self.readers = {ring.buffer: self._reader(ring) for ring in rings}

    def prepare(self) -> Sequence[Stmt]:
        """The barriers are made at the start of the kernel."""
        return ()

    def begin(self, step: Step) -> Sequence[Stmt]:
        """Nothing: barriers of the block keep new copies behind the last reads of their tiles."""
        return ()

    def before(self, at: int, step: Step) -> Sequence[Stmt]:
        """The wait of the first statement that reads the tiles of a ring."""
        return [stmt for ring in self.rings for stmt in self._wait(ring, at, step)]

    def behind(self, at: int, step: Step) -> Sequence[Stmt]:
        """The wait for copies that nobody reads."""
        return [
            stmt
            for ring in self.rings
            if ring.at == at and self.readers[ring.buffer] is None
            for stmt in self._waits(ring, self.items[at], step)
        ]

    def finish(self) -> Sequence[Stmt]:
        """Count the iterations of this execution, if the loop may be executed again."""
        loop, stmts = self.loop, []
        for ring in self.rings:
            if ring.done is not None:
                zero = const(0, loop.var.dtype)
                trips = binary("max", sub(loop.stop, loop.start), zero)
                total = add(cast(Load(ring.done, ()), trips.dtype), trips)
                rounds = cast(_modulo(total, 2 * ring.number), INT32)
                stmts.append(Store(ring.done, (), rounds, site=loop.site))
        return stmts

    def _wait(self, ring: Ring, at: int, step: Step) -> Iterator[Stmt]:
        if self.readers[ring.buffer] == at:
            yield from self._waits(ring, self.items[at], step)

    def _waits(self, ring: Ring, item: Item, step: Step) -> Iterator[Stmt]:
        if not step.runs(item):
            return
        distance = sub(step.iteration(item), self.loop.start)
        wait = BarrierWait(ring.place(distance), ring.parity(distance), site=item.stmt.site)
        condition = step.condition(item)
        yield wait if condition is None else If(condition, wait, site=item.stmt.site)

    def _reader(self, ring: Ring) -> int | None:
        """The first statement that reads what the copies of a ring bring."""
        start = self.items[ring.at]
        for at, item in enumerate(self.items):
            if item is not start and item.effects.reads & ring.tiles and start.comes_before(item):
                return at
        return None


def _modulo(value: Expr, number: int) -> Expr:
    return binary("floormod", value, const(number, value.dtype))
