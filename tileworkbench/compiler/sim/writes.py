"""Who wrote each element of a tensor last: recorded only where a run is asked to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.sim.observers import Observer

if TYPE_CHECKING:
    from tileworkbench.compiler.sim.frame import Frame
    from tileworkbench.compiler.sim.memory import Storage

Array = np.ndarray[Any, Any]

MOST_ELEMENTS = 1 << 23
"""Of one tensor whose writers are recorded: 16 bytes for each, 128 MiB in all. The writers of
larger tensors are not recorded.
"""


@dataclass(frozen=True, slots=True)
class Writers:
    """The last writer of each element of one tensor, in row-major order, as int32: the statement's
    `sites`, the number of the `blocks` (x fastest; outside a launch -1), the `threads` in it, and
    the `registers`: which element of the thread's own buffer it stored. Below zero where that is
    not known; a site of -1 is of an element that nobody wrote.
    """

    sites: Array
    blocks: Array
    threads: Array
    registers: Array

    @classmethod
    def of(cls, size: int) -> Writers:
        """Nobody has written any of `size` elements."""
        return cls(*(np.full(size, -1, np.int32) for _ in range(4)))


class WriteLog(Observer):
    """The writers of all tensors of a run, by name, and the `grid` of the last launch that wrote.
    Tensors of more than `MOST_ELEMENTS` are not recorded.
    """

    __slots__ = ("grid", "tensors")
    of_registers = False

    def __init__(self) -> None:
        self.tensors: dict[str, Writers] = {}
        self.grid: tuple[int, ...] = ()

    def bound(self, storage: Storage) -> None:
        if storage.data.size <= MOST_ELEMENTS:
            self.tensors[storage.name] = Writers.of(storage.data.size)

    def wrote(
        self, frame: Frame, storage: Storage, place: Any, threads: Any, registers: Any
    ) -> None:
        writers = self.tensors.get(storage.name) if storage.scope == "global" else None
        if writers is None or writers.sites.size != storage.data.size:
            return
        shape = storage.data.shape
        self.grid = frame.grid
        for kept, value in (
            (writers.sites, frame.site),
            (writers.blocks, frame.number_in_launch()),
            (writers.threads, threads),
            (writers.registers, registers),
        ):
            kept.reshape(shape)[place] = value
