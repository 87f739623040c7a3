"""Observers of a simulated run are told of every statement and every access."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.sim.values import Mask, count_lanes

if TYPE_CHECKING:
    from tileworkbench.compiler.ir.program import Program
    from tileworkbench.compiler.ir.stmt import Print, Stmt
    from tileworkbench.compiler.sim.expressions import Slots
    from tileworkbench.compiler.sim.frame import Frame
    from tileworkbench.compiler.sim.memory import Storage
    from tileworkbench.compiler.sim.report import Finding

Array = np.ndarray[Any, Any]
Place = tuple[Any, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Operation:
    """An asynchronous operation under way: the statement `site` that started it, by `threads` of
    the `block`, on which `engine`, and the `targets` that it writes, as storages with places.
    """

    site: int
    block: tuple[int, ...]
    engine: str
    threads: Array
    targets: tuple[tuple[Storage, Place], ...]


class Observer:
    """Watches a run (`SimOptions.observers`); each method does nothing until it is overridden.

    A `place` is an index of `storage.data`: one slice per dimension where an operator of the whole
    block takes a box, else one integer or array per dimension, with an entry for each lane that
    takes part (lanes that are masked have none) in at least one of them: the others broadcast to
    it. Of shared memory of a block of threads, and of registers, that is the place in memory: one
    number of an element there, the thread before the indices here. `threads` are those of the
    block, an entry for each lane; -1 where lanes are no threads. Accesses of registers are told
    only to those who ask for them (`of_registers`), since most accesses are of registers.
    """

    __slots__ = ()
    of_registers = True

    def prepared(self, program: Program, slots: Slots) -> None:
        """`program` is about to run; `slots` are the places of its variables and buffers in the
        lists of a frame.
        """

    def bound(self, storage: Storage) -> None:
        """A tensor parameter of the program has its memory; the run has not begun."""

    def began(self, frame: Frame, stmt: Stmt) -> None:
        """A statement of a block that holds no others is about to run, in the lanes of
        `frame.mask`.
        """

    def ended(self, frame: Frame, stmt: Stmt) -> None:
        """A statement has run. Of a statement that waits: its threads have arrived."""

    def asked(self, frame: Frame, storage: Storage, access: str, active: int, lanes: int) -> None:
        """An access ("load", "store" or "atomic") of `lanes` elements of a global tensor is about
        to be made by `active` of them: predicates, branches and bounds mask the others.
        """

    def read(self, frame: Frame, storage: Storage, place: Place, threads: Any) -> None:
        """The current statement reads the elements at `place`."""

    def wrote(
        self, frame: Frame, storage: Storage, place: Place, threads: Any, registers: Any
    ) -> None:
        """The current statement has written the elements at `place`. `registers`: which element of
        the thread's own buffer a value stored to a global tensor comes from; -1 of other stores,
        and where the value was computed.
        """

    def printed(
        self, frame: Frame, stmt: Print, thread: int, loops: dict[str, int], text: str
    ) -> None:
        """`T.print` has made a line: in which thread (-1: in all, or where lanes are no threads)
        and in which iteration of the user's loops around it.
        """

    def started(self, frame: Frame, operation: Operation) -> None:
        """An asynchronous operation has begun: until it lands what it writes is hidden."""

    def landed(self, operation: Operation, threads: Any) -> None:
        """What it writes is there; of a copy by each thread, what these `threads` have started."""

    def waits(self, frame: Frame, what: str) -> None:
        """The threads of `frame` stop at the current statement; `what` completes `they wait ...`"""

    def passed(self, frame: Frame) -> None:
        """They go on."""

    def failed(self, finding: Finding) -> None:
        """The current statement does something wrong, for the first time."""


def tell_asked(
    frame: Frame, storage: Storage, access: str, active: Mask, lanes: tuple[int, ...]
) -> None:
    """Tell the observers that the lanes of `active` access a tensor, of those that could."""
    if storage.scope == "global":
        taking = count_lanes(active, lanes) if lanes else int(active is not False)
        possible = frame.lanes_there(lanes)
        for observer in frame.observers:
            observer.asked(frame, storage, access, taking, possible)


def _spread(values: Any, lanes: tuple[int, ...]) -> Array:
    """An entry for each lane. Most have that already, and numpy takes longer to find out."""
    if type(values) is np.ndarray and values.shape == lanes:
        return values
    return np.broadcast_to(values, lanes)


def _spread_one(place: Place, lanes: tuple[int, ...]) -> Place:
    """The same place with an entry for each lane in one of its dimensions at least."""
    for at in place:
        if type(at) is np.ndarray and at.shape == lanes:
            return place
    return (np.broadcast_to(place[0], lanes), *place[1:]) if place else place


def tell_read(
    frame: Frame, storage: Storage, place: Place, active: Mask, lanes: tuple[int, ...]
) -> None:
    """Tell the observers that the lanes of `active` read what is at `place`, as they have it."""
    threads: Any = frame.threads_of(lanes)
    if lanes:
        threads = _spread(threads, lanes)
        if active is True or np.all(active):
            place = _spread_one(place, lanes)
        else:
            chosen = _spread(active, lanes)
            place = tuple([_spread(at, lanes)[chosen] for at in place])
            threads = threads[chosen]
    for observer in frame.observers:
        observer.read(frame, storage, place, threads)


def tell_written(
    frame: Frame, storage: Storage, place: Place, chosen: Array | None, lanes: tuple[int, ...]
) -> None:
    """Tell the observers that the lanes `chosen` (None: all) have written, each its entry of
    `place`.
    """
    threads, registers = frame.threads_of(lanes), frame.register
    if lanes:
        threads, registers = _spread(threads, lanes), _spread(registers, lanes)
        if chosen is None:
            place = _spread_one(place, lanes)
        else:
            threads, registers = threads[chosen], registers[chosen]
    for observer in frame.observers:
        observer.wrote(frame, storage, place, threads, registers)
