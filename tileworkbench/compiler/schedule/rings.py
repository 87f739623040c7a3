"""Rings of memory barriers: one for each of the iterations of a loop that are under way at once.

Barrier i mod n completes a phase for each iteration i that uses it, so the parity of the phase is
that of i div n. Where the loop is executed again, i counts on from its last execution.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from math import prod

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.build import add, binary, cast, const, int_const, sub
from tileworkbench.compiler.ir.expr import Address, Buffer, Expr, Load
from tileworkbench.compiler.ir.simt import (
    BarrierInit,
    BarrierSignal,
    Engine,
    Start,
    TensorLoad,
    TensorMap,
)
from tileworkbench.compiler.ir.stmt import Alloc, Stmt, Store, items, seq
from tileworkbench.compiler.ir.tile import Pipelined
from tileworkbench.compiler.ir.types import INT32, UINT64
from tileworkbench.compiler.schedule.versions import version_count


@dataclass(frozen=True, slots=True)
class Ring:
    """The barriers `buffer`, each of which waits for so many `arrivals`. `done`: how many
    iterations earlier executions of the loop had, modulo two rounds (None where there are none).
    """

    buffer: Buffer
    done: Buffer | None
    arrivals: int = 1

    @property
    def number(self) -> int:
        """How many barriers there are."""
        return version_count(self.buffer)

    def index(self, distance: Expr) -> Expr:
        """Which barrier belongs to the iteration that is `distance` behind the loop's start."""
        return _modulo(self.count(distance), self.number)

    def place(self, distance: Expr) -> Address:
        """The barrier of that iteration."""
        return Address(self.buffer, (self.index(distance),))

    def parity(self, distance: Expr, before: bool = False) -> Expr:
        """The parity of the phase that completes for that iteration, or of the one `before`."""
        if self.number == 1:
            rounds = cast(_modulo(self.count(distance), 2), INT32)
            return sub(int_const(1), rounds) if before else rounds
        rounds = _modulo(self.count(distance), 2 * self.number)
        relation = "lt" if before else "ge"
        return cast(binary(relation, rounds, const(self.number, rounds.dtype)), INT32)

    def initialised(self) -> list[Stmt]:
        """What makes the barriers, at the start of the kernel."""
        places = (Address(self.buffer, (int_const(at),)) for at in range(self.number))
        count = int_const(self.arrivals)
        return [Alloc(self.buffer), *(BarrierInit(place, count) for place in places)]

    def counted(self, loop: Pipelined) -> list[Stmt]:
        """What adds the iterations of an execution of the loop, behind it."""
        if self.done is None:
            return []
        trips = binary("max", sub(loop.stop, loop.start), const(0, loop.var.dtype))
        total = add(cast(Load(self.done, ()), trips.dtype), trips)
        rounds = cast(_modulo(total, 2 * self.number), INT32)
        return [Store(self.done, (), rounds, site=loop.site)]

    def count(self, distance: Expr) -> Expr:
        """How many iterations come before the one at `distance`, modulo two rounds."""
        if self.done is None:
            return distance
        return add(cast(Load(self.done, ()), distance.dtype), distance)


def new_ring(name: str, number: int, done: Buffer | None, arrivals: int = 1) -> Ring:
    """`number` barriers called `name`."""
    return Ring(Buffer(name, UINT64, (int_const(number),), "shared.barrier"), done, arrivals)


def counter(name: str) -> Buffer:
    """What counts the iterations of earlier executions of a loop."""
    return Buffer(name, INT32, (), "local.var")


def loads_below(stmt: Stmt) -> list[TensorLoad]:
    """The copies of boxes below `stmt` that nobody has started yet."""
    if isinstance(stmt, Start):
        return []
    if isinstance(stmt, TensorLoad):
        return [stmt]
    below = (child for child in stmt.children() if isinstance(child, Stmt))
    return [load for child in below for load in loads_below(child)]


def bytes_of(loads: Iterable[TensorLoad], maps: Mapping[Buffer, TensorMap]) -> int:
    """What copies of boxes bring, also of boxes that are partly outside."""
    boxes = (maps[load.src.buffer] for load in loads)
    return sum(prod(each.box) * each.buffer.dtype.bits // 8 for each in boxes)


def started(copies: Stmt, barrier: Address, bytes_: int, site: int) -> Stmt:
    """The start of copies of boxes, of `bytes_` in all, which complete at `barrier`."""
    made: list[Stmt] = [BarrierSignal(barrier, 1, bytes_, site=site)]
    for place, group in groupby(items(copies), lambda each: each.site):
        made.append(Start(seq(list(group)), Engine.TMA, barrier, site=place))
    return seq(made)


def _modulo(value: Expr, number: int) -> Expr:
    return binary("floormod", value, const(number, value.dtype))
