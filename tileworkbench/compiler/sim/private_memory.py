"""Memory that each iteration of a parallel loop has to itself."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.sim.frame import Frame
from tileworkbench.compiler.sim.memory import Index, Storage, grid_of
from tileworkbench.compiler.sim.problems import ITERATION_READS
from tileworkbench.compiler.sim.regrouped import regroup
from tileworkbench.compiler.sim.report import FindingKind
from tileworkbench.compiler.sim.values import Mask, Value, over_lanes


class PrivateStorage(Storage):
    """A thread's own memory inside a parallel loop: one copy per iteration.

    Iterations must not hand values on through it: `stale` marks elements that some iteration read
    before writing, `fresh` those that each iteration has written.
    """

    __slots__ = ("fresh", "is_shared", "stale")

    def __init__(self, outer: Storage, buffer: Buffer, lanes: tuple[int, ...]) -> None:
        shape = lanes + outer.shape
        written = None if outer.written is None else np.broadcast_to(outer.written, shape).copy()
        data = np.broadcast_to(outer.data, shape).copy()
        super().__init__(buffer, data, written=written, prefix=grid_of(lanes))
        self.fresh = np.zeros(shape, np.bool_)
        self.stale = np.zeros(shape, np.bool_)
        self.is_shared = False

    def share(self, owner: PrivateStorage) -> None:
        """Become another view of the iterations' memory of `owner`. From here on it is not known
        which elements are initialised or handed on.
        """
        self.is_shared = owner.is_shared = True
        lanes = self.data.shape[: len(self.prefix)]
        self.data = regroup(owner.data, owner.dtype, self.dtype, lanes + self.shape)
        self.written = owner.written = None

    def _note_read(self, frame: Frame, place: Index, reading: Mask, lanes: tuple[int, ...]) -> None:
        chosen = over_lanes(reading, lanes)
        place = tuple(np.broadcast_to(position, lanes)[chosen] for position in place)
        self.stale[place] |= ~self.fresh[place]

    def _note_write(
        self,
        frame: Frame,
        place: Index,
        chosen: np.ndarray[Any, Any] | None,
        lanes: tuple[int, ...],
        value: Value,
    ) -> None:
        self.fresh[place] = True

    def leave(self, frame: Frame, outer: Storage) -> None:
        """Copy the last iteration's contents back to `outer`, and record values that passed from
        one iteration to another.
        """
        dims = tuple(range(len(self.prefix)))
        if not self.is_shared and self.fresh[0].size and prod(self.data.shape[: len(dims)]) > 1:
            carried = self.stale.any(axis=dims) & self.fresh.any(axis=dims)
            if carried.any() and frame.options.races:
                index = tuple(map(int, np.argwhere(carried)[0]))
                self.found(
                    frame, FindingKind.RACE, ITERATION_READS, index, int(np.count_nonzero(carried))
                )
        last = (-1,) * len(dims)
        outer.data[...] = self.data[last]
        if outer.written is not None and self.written is not None:
            outer.written[...] = self.written[last]
