"""The state of one group of threads that run together."""

from __future__ import annotations

from dataclasses import field
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from tileworkbench.compiler.diagnostics import RunError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.simt import LANGUAGE_WARP
from tileworkbench.compiler.machine.machine import Machine
from tileworkbench.compiler.sim.frame import Frame
from tileworkbench.compiler.sim.report import located
from tileworkbench.compiler.sim.threads.barriers import BlockBarriers
from tileworkbench.compiler.sim.threads.counters import Counters
from tileworkbench.compiler.sim.threads.order import Clock, ClusterPhases, Order
from tileworkbench.compiler.sim.threads.register_file import RegisterFile
from tileworkbench.compiler.sim.values import Mask, Value, over_lanes
from tileworkbench.compiler.target import parse_target

if TYPE_CHECKING:
    from tileworkbench.compiler.sim.threads.arena import Arena
    from tileworkbench.compiler.sim.threads.copies import CopyQueue

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Visit:
    """A use of a block's shared memory by another one: when, and by which thread of the clock."""

    name: str
    block: tuple[int, ...]
    site: int
    time: int
    visitor: int


def warp_size(program: Program) -> int:
    """The threads of a warp: those of the GPU that a program is for, else of the T language."""
    machine = machine_for(program)
    return LANGUAGE_WARP if machine is None else machine.lanes


def machine_for(program: Program) -> Machine | None:
    """The GPU that a program is for, if it is for one."""
    target = parse_target(program.target) if program.target else None
    return None if target is None or target.kind == "cpu" else target.machine


@dataclass(slots=True)
class ThreadFrame(Frame):
    """A frame whose lanes are the threads of a block: `lanes` is `(threads,)` in their code.

    `owned` are the threads of this group, `mask` those of them that are active. `lock_step`: the
    threads of a group synchronise after every statement, and asynchronous copies are done at once.
    `apart`: threads of the group have had different roles since then and were not synchronised in
    them. `cluster` are the frames of the blocks that share memory with this one, itself at `rank`,
    in the state in which they began; `made` says when, and by which thread of the clock, the memory
    of each slot was made. `visits` are the uses by other blocks, `ended` says whether the block has
    ended, and `phases` is the barrier of the cluster. `machine`: the GPU that the program is for,
    None for none. `warp`: the threads of a warp.
    """

    counters: Counters = field(default_factory=lambda: Counters(LANGUAGE_WARP))
    order: Order = field(default_factory=lambda: Order(1, Clock(1, 0, 1)))
    owned: Mask = True
    lock_step: bool = True
    apart: bool = False
    partial: bool = False
    shared: Arena | None = None
    copies: CopyQueue | None = None
    barriers: BlockBarriers = field(default_factory=lambda: BlockBarriers(1))
    registers: RegisterFile = field(default_factory=RegisterFile)
    warp_meetings: dict[Any, Any] = field(default_factory=dict)
    blocks: int = 1
    rank: int = 0
    cluster: list[ThreadFrame] = field(default_factory=list)
    made: dict[int, tuple[int, int]] = field(default_factory=dict)
    visits: list[Visit] = field(default_factory=list)
    ended: bool = False
    phases: ClusterPhases = field(default_factory=lambda: ClusterPhases(1))
    machine: Machine | None = None
    warp: int = LANGUAGE_WARP

    def __post_init__(self) -> None:
        self.machine = machine = machine_for(self.recorder.program)
        if machine is not None:
            self.warp = self.counters.warp = machine.lanes
            self.counters.memory = machine.shared

    def active(self) -> Array:
        """The active threads as an array of conditions."""
        return over_lanes(self.mask, self.lanes)

    def active_threads(self) -> Array:
        """The indices of the active threads."""
        return np.flatnonzero(self.active())

    def owned_threads(self) -> Array:
        """The indices of this group's threads."""
        return np.flatnonzero(np.broadcast_to(np.asarray(self.owned), (self.threads,)))

    def threads_of(self, lanes: tuple[int, ...]) -> Value:
        if self.parallel is not None or not lanes:
            return -1
        return _threads_of(lanes)

    def lanes_there(self, lanes: tuple[int, ...]) -> int:
        if self.parallel is not None or not lanes or self.owned is True:
            return Frame.lanes_there(self, lanes)
        return len(self.owned_threads()) * prod(lanes[1:])

    def thread_of(self, chosen: Mask, lanes: tuple[int, ...]) -> int | None:
        if self.parallel is not None or not lanes:
            return Frame.thread_of(self, chosen, lanes)
        grid = over_lanes(chosen, lanes).reshape(lanes[0], -1)
        return int(np.argmax(grid.any(axis=1)))

    def count_iteration(self) -> None:
        """A `while` loop begins an iteration. Raises `RunError` when there were too many."""
        self.while_iterations += 1
        limit = self.options.loop_limit
        if self.while_iterations > limit:
            raise located(
                RunError,
                f"'while' loops ran more than {limit} iterations",
                self.recorder.program.span(self.site),
                "check that the loop ends, or raise SimOptions.loop_limit",
            )

    def synchronise(self) -> None:
        """The threads of this group meet."""
        self.apart = False
        if self.is_whole():
            self.order.meet()
        else:
            self.order.gather(self.owned_threads())

    def is_whole(self) -> bool:
        """Whether this group is all of the block."""
        return self.owned is True or bool(np.all(self.owned))


@lru_cache(maxsize=256)
def _threads_of(lanes: tuple[int, ...]) -> Any:
    """The thread of each lane, which are those of the first dimension; not to be changed."""
    return np.broadcast_to(np.arange(lanes[0]).reshape(-1, *(1,) * (len(lanes) - 1)), lanes)
