"""Who read and wrote each element of a buffer: unordered accesses that meet are races."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tileworkbench.compiler.sim.report import FindingKind
from tileworkbench.compiler.sim.values import Mask

if TYPE_CHECKING:
    from tileworkbench.compiler.sim.frame import Frame, ParallelRun

Place = tuple[Any, ...]
TWO_WRITERS = "two iterations of one parallel loop write this element"
READ_AND_WRITTEN = "one iteration of a parallel loop reads what another one writes"
TWO_BLOCKS = "two blocks write this element"
BLOCK_READS = "one block reads what another one writes"


class AccessLog:
    """The last accesses of each element of one buffer.

    Iterations of parallel loops are numbered upwards through the whole run (`ParallelRun`), blocks
    likewise, so nothing has to be cleared between loops or launches. Memory is made on first use.
    """

    __slots__ = ("_blocks", "_name", "_readers", "_shape", "_shared_by_blocks", "_writers")

    def __init__(self, name: str, shape: tuple[int, ...], shared_by_blocks: bool) -> None:
        self._name, self._shape, self._shared_by_blocks = name, shape, shared_by_blocks
        self._writers: np.ndarray[Any, Any] | None = None
        self._readers: np.ndarray[Any, Any] | None = None
        self._blocks: np.ndarray[Any, Any] | None = None

    def write(
        self,
        frame: Frame,
        place: Place,
        chosen: np.ndarray[Any, Any] | None,
        lanes: tuple[int, ...],
    ) -> None:
        """The lanes `chosen` (all when None) store at `place`, which has one position per stored
        element.
        """
        if frame.block_number and self._shared_by_blocks:
            self.write_block(frame, place)
        run = frame.parallel
        if run is None:
            if lanes:
                self._check_distinct(frame, place)
            return
        if run.ids.size == 1:
            return
        ids = _ids(run, lanes)
        ids = ids if chosen is None else ids[chosen]
        if self._writers is None:
            self._writers = np.zeros(self._shape, np.int64)
        before = self._writers[place]
        self._writers[place] = ids
        self._report(
            frame,
            place,
            TWO_WRITERS,
            ((before >= run.first) & (before != ids)) | (self._writers[place] != ids),
        )
        if self._readers is not None:
            readers = self._readers[place]
            self._report(frame, place, READ_AND_WRITTEN, (readers >= run.first) & (readers != ids))

    def read(self, frame: Frame, place: Place, reading: Mask, lanes: tuple[int, ...]) -> None:
        """The lanes of `reading` load from `place`."""
        if reading is False:
            return
        if self._blocks is not None and frame.block_number:
            self._read_block(self._blocks, frame, place, reading, lanes)
        run = frame.parallel
        if run is None or run.ids.size == 1 or self._name not in run.stored:
            return
        chosen = np.broadcast_to(np.asarray(reading), lanes)
        place, ids = (
            tuple(np.broadcast_to(at, lanes)[chosen] for at in place),
            _ids(run, lanes)[chosen],
        )
        if self._writers is not None:
            writers = self._writers[place]
            self._report(frame, place, READ_AND_WRITTEN, (writers >= run.first) & (writers != ids))
        if self._readers is None:
            self._readers = np.zeros(self._shape, np.int64)
        before = self._readers[place]
        marks = np.where((before >= run.first) & (before != ids), run.several, ids)
        self._readers[place] = marks
        clash = self._readers[place] != marks
        if clash.any():
            self._readers[tuple(at[clash] for at in place)] = run.several

    def write_block(self, frame: Frame, place: Place) -> None:
        """The current block stores at `place`, a tuple of positions or of slices."""
        if self._blocks is None:
            self._blocks = np.zeros(self._shape, np.int64)
        before = self._blocks[place]
        self._report(
            frame, place, TWO_BLOCKS, (before > frame.launch_base) & (before != frame.block_number)
        )
        self._blocks[place] = frame.block_number

    def read_blocks(self, frame: Frame, place: Place) -> None:
        """The current block loads the box `place` of slices."""
        if self._blocks is not None and frame.block_number:
            before = self._blocks[place]
            self._report(
                frame,
                place,
                BLOCK_READS,
                (before > frame.launch_base) & (before != frame.block_number),
            )

    def _read_block(
        self,
        blocks: np.ndarray[Any, Any],
        frame: Frame,
        place: Place,
        reading: Mask,
        lanes: tuple[int, ...],
    ) -> None:
        before = blocks[place]
        clash = (before > frame.launch_base) & (before != frame.block_number)
        if np.any(clash):
            chosen = np.broadcast_to(np.asarray(reading), lanes)
            place = tuple(np.broadcast_to(at, lanes)[chosen] for at in place)
            self._report(frame, place, BLOCK_READS, np.broadcast_to(clash, lanes)[chosen])

    def _check_distinct(self, frame: Frame, place: Place) -> None:
        """Lanes of one vector store must not meet."""
        if not place:
            self._report(frame, place, TWO_WRITERS, np.ones((), np.bool_))
            return
        positions = [at.ravel() for at in place]
        if any((at[1:] > at[:-1]).all() for at in positions):
            return
        clash = np.ones(positions[0].size, np.bool_)
        flat = np.ravel_multi_index(positions, self._shape)
        clash[np.unique(flat, return_index=True)[1]] = False
        self._report(frame, tuple(positions), TWO_WRITERS, clash)

    def _report(
        self, frame: Frame, place: Place, detail: str, clash: np.ndarray[Any, Any] | np.bool_
    ) -> None:
        if not clash.any():
            return
        first = np.argwhere(np.asarray(clash))[0]
        index = tuple(_position(at, first, axis, clash) for axis, at in enumerate(place))
        frame.recorder.found(
            FindingKind.RACE,
            detail,
            self._name,
            index,
            frame.block,
            frame.site,
            int(np.count_nonzero(clash)),
        )


def _ids(run: ParallelRun, lanes: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """The iteration of each lane; the lanes of an explicit vector share one."""
    return run.ids if run.ids.ndim == len(lanes) else np.broadcast_to(run.ids[..., None], lanes)


def _position(at: Any, first: Any, axis: int, clash: Any) -> int:
    """The coordinate along `axis` of the clash at `first`."""
    if isinstance(at, slice):
        return int((at.start or 0) + first[axis])
    return int(np.broadcast_to(np.asarray(at), np.shape(clash))[tuple(first)])
