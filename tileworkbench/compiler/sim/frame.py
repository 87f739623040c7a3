"""The state of a simulated run: variables, memory, and which lanes are active."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.sim.observers import Observer
from tileworkbench.compiler.sim.recorder import Recorder
from tileworkbench.compiler.sim.values import Mask, Value

if TYPE_CHECKING:
    from tileworkbench.compiler.layout.fragment import Fragment
    from tileworkbench.compiler.sim.flights import Flights
    from tileworkbench.compiler.sim.memory import Storage
    from tileworkbench.compiler.sim.pipeline.trace import TraceRecorder


@dataclass(frozen=True, slots=True)
class SimOptions:
    """How to simulate.

    `seed` shuffles the order of the blocks, and of groups of threads; None runs them in order.
    `races` and `uninitialised` switch those checks, and for programs that run thread by thread
    `misaligned` (addresses that are no multiple of the access's size) and `divergence` (barriers
    that only some threads reach).
    With `stop_at_out_of_bounds` the first access outside a shared or thread-private buffer raises;
    otherwise it is recorded, reads as poison and writes nothing.
    With `sanitize` an access of a tensor raises where its index comes from data, is outside, and
    nothing in the kernel guards it (`analysis/data_indices.py`). `prints`: whether T.print writes.
    With `most_blocks` no more than so many of a launch run, the first, the last and some between,
    and nothing after a launch of which some did not. With `seconds` the run ends after about that
    time, with `most_statements` after so many, each counted once for all threads that execute it
    together: that does not depend on how fast the machine is. With `fences` a fence must stand
    between what threads write to shared memory and what the copy engine or tensor cores read there
    (sm_90 and later); in front of stage SIMT that is otherwise left to lowering.
    `loop_limit` bounds the iterations of all `while` loops together. `blocks` are the numbers (x
    fastest) of the blocks of each launch that run, None for all; their clusters run with them, and
    where blocks wait for the whole grid all do. `trace` records what the threads of one block do,
    in programs that run thread by thread. `observers` are told of statements and accesses: with
    none a run costs nothing more.
    """

    seed: int | None = None
    races: bool = True
    uninitialised: bool = True
    misaligned: bool = True
    divergence: bool = True
    stop_at_out_of_bounds: bool = True
    sanitize: bool = False
    fences: bool = False
    prints: bool = True
    most_blocks: int | None = None
    seconds: float | None = None
    most_statements: int | None = None
    loop_limit: int = 1_000_000
    blocks: tuple[int, ...] | None = None
    trace: TraceRecorder | None = None
    observers: tuple[Observer, ...] = ()

    def chosen(self, total: int) -> Sequence[int]:
        """The numbers of the blocks that run of a launch of `total`, in order."""
        if self.blocks is None:
            return range(total)
        return sorted({number for number in self.blocks if 0 <= number < total})


@dataclass(frozen=True, slots=True)
class ParallelRun:
    """One execution of a parallel loop.

    `ids` numbers the iterations from `first`, which is above every number used before. `stored`
    names the buffers that the body stores to, `layout` says which threads execute which iterations,
    where that is known.
    """

    first: int
    ids: np.ndarray[Any, Any]
    stored: frozenset[str]
    layout: Fragment | None = None

    def indices(self, number: int) -> tuple[int, ...]:
        """The values of the loop's variables in the iteration of that number."""
        return tuple(map(int, np.unravel_index(number - self.first, self.ids.shape)))


@dataclass(slots=True)
class Frame:
    """Everything that changes while a program runs.

    `values` and `storages` are indexed by the slots the translator gave variables and buffers.
    `mask` holds the active lanes of the grid `lanes` (`()` outside vectorised code), `broke` those
    that left the innermost loop. `launch` counts the launches so far; `threads` are those of a
    block of the current one, `grid` its blocks along each axis (`()` where they are numbered).
    `edges` are the loops around the current statement that have several iterations, each with the
    value of its variable, and whether this is the first or the last one; `from_data`: the index of
    the current access comes from data and is not guarded. `register`: which element of a thread's
    own buffer the current store takes, for those who watch.
    """

    values: list[Value]
    storages: list[Storage]
    recorder: Recorder
    options: SimOptions
    strict: bool
    arena: np.ndarray[Any, Any]
    mask: Mask = True
    broke: Mask = False
    lanes: tuple[int, ...] = ()
    parallel: ParallelRun | None = None
    iterations: int = 0
    site: int = 0
    block: tuple[int, ...] = ()
    block_number: int = 0
    launch_base: int = 0
    launch: int = 0
    grid: tuple[int, ...] = ()
    edges: tuple[tuple[str, int, bool, bool], ...] = ()
    from_data: bool = False
    threads: int = 1
    register: Value = -1
    observers: tuple[Observer, ...] = ()
    registers_watched: bool = False
    while_iterations: int = 0
    random: np.random.Generator | None = field(default=None)
    flights: Flights | None = None  # operations under way, in kernels that start some

    def begin_parallel(
        self, extents: tuple[int, ...], stored: frozenset[str], layout: Fragment | None = None
    ) -> ParallelRun:
        """Number the iterations of a parallel loop that starts now."""
        first, total = self.iterations + 1, prod(extents)
        self.iterations += total
        ids = np.arange(first, first + total, dtype=np.int64).reshape(extents)
        return ParallelRun(first, ids, stored, layout)

    def chosen(self, groups: int, size: int = 1) -> Sequence[int]:
        """Which of the `groups` of `size` blocks of a launch, which run together, are to run."""
        if self.options.most_blocks is None:
            return range(groups)
        count = self.options.most_blocks // size
        if groups <= count:
            return range(groups)
        # The borders, two neighbours, and one far from all of them.
        wanted = dict.fromkeys((0, groups - 1, 1, groups // 2, *range(2, count)))
        return sorted(list(wanted)[:count])

    def number_in_launch(self) -> int:
        """The number of the current block in its launch (x fastest), -1 outside of one."""
        if not self.block:
            return -1
        number = 0
        for position, extent in zip(reversed(self.block), reversed(self.grid or (1,)), strict=True):
            number = number * extent + position
        return number

    def block_of(self, number: int) -> tuple[int, ...]:
        """The indices of a block of the current launch."""
        indices = []
        for extent in self.grid:
            indices.append(number % extent)
            number //= extent
        return tuple(indices) if self.grid else (number,)

    def threads_of(self, lanes: tuple[int, ...]) -> Value:
        """The threads of the block that the `lanes` of an access are, -1 where they are none."""
        return -1

    def lanes_there(self, lanes: tuple[int, ...]) -> int:
        """How many lanes an access over the grid `lanes` has, active or not."""
        return prod(lanes)

    def thread_of(self, chosen: Mask, lanes: tuple[int, ...]) -> int | None:
        """The first thread of the lanes `chosen`, where lanes are threads or a loop's layout says
        which they are.
        """
        iteration = self.iteration_of(chosen, lanes)
        if not iteration or self.parallel is None or self.parallel.layout is None:
            return None
        return int(self.parallel.layout.thread_of(*iteration))

    def iteration_of(self, chosen: Mask, lanes: tuple[int, ...]) -> tuple[int, ...]:
        """The first iteration of the current parallel loop in the lanes `chosen`."""
        if self.parallel is None or not lanes:
            return ()
        first = np.argwhere(np.broadcast_to(np.asarray(chosen), lanes))[0]
        return tuple(map(int, first[: self.parallel.ids.ndim]))
