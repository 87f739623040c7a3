"""Who read and wrote each element of a buffer: unordered accesses of one element, one of them a
write, are races.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tileworkbench.compiler.sim.problems import (
    BLOCK_READS,
    BLOCKS_WRITE,
    ITERATION_READS,
    ITERATIONS_WRITE,
)
from tileworkbench.compiler.sim.report import FindingKind
from tileworkbench.compiler.sim.values import Mask, over_lanes

if TYPE_CHECKING:
    from tileworkbench.compiler.sim.frame import Frame, ParallelRun

Array = np.ndarray[Any, Any]
Place = tuple[Any, ...]


class AccessLog:
    """The last accesses of each element of one buffer.

    Iterations of parallel loops are numbered upwards through the whole run (`ParallelRun`), blocks
    likewise, so nothing has to be cleared between loops or launches. Memory is made on first use,
    and holds numbers together with the site of the access (`_marked`).
    """

    __slots__ = ("_blocks", "_name", "_readers", "_shape", "_shared_by_blocks", "_writers")

    def __init__(self, name: str, shape: tuple[int, ...], shared_by_blocks: bool) -> None:
        self._name, self._shape, self._shared_by_blocks = name, shape, shared_by_blocks
        self._writers: Array | None = None
        self._readers: Array | None = None
        self._blocks: Array | None = None

    def write(
        self,
        frame: Frame,
        place: Place,
        chosen: Array | None,
        lanes: tuple[int, ...],
        data: Array,
        value: Any,
    ) -> None:
        """The lanes `chosen` (all when None) are about to store `value` at `place` in `data`, which
        has one position per stored element.
        """
        if frame.block_number and self._shared_by_blocks:
            self.write_block(frame, place, data, value)
        run = frame.parallel
        if run is None:
            if lanes:
                self._check_distinct(frame, place)
            return
        if run.ids.size == 1:
            return
        ids = _ids(run, lanes)
        marks = _marked(ids if chosen is None else ids[chosen], frame.site)
        if self._writers is None:
            self._writers = np.zeros(self._shape, np.int64)
        before = self._writers[place]
        self._writers[place] = marks
        # Where iterations write one element in this store, the mark is that of the last one.
        earlier = (_number(before) >= run.first) & (_number(before) != _number(marks))
        met = np.where(earlier, before, self._writers[place])
        if np.any(met != marks):
            lost = np.where(earlier, _changes(data, place, value), _is_lost(data, place, value))
            differs = bool(np.any(lost & (met != marks)))
            self._report_iterations(frame, run, place, ITERATIONS_WRITE, met, marks, differs)
        if self._readers is not None:
            readers = self._readers[place]
            self._report_iterations(frame, run, place, ITERATION_READS, readers, marks)

    def read(self, frame: Frame, place: Place, reading: Mask, lanes: tuple[int, ...]) -> None:
        """The lanes of `reading` load from `place`."""
        if reading is False:
            return
        if self._blocks is not None and frame.block_number:
            self._read_block(self._blocks, frame, place, reading, lanes)
        run = frame.parallel
        if run is None or run.ids.size == 1 or self._name not in run.stored:
            return
        chosen = over_lanes(reading, lanes)
        place = tuple(np.broadcast_to(at, lanes)[chosen] for at in place)
        ids = _ids(run, lanes)[chosen]
        marks = _marked(ids, frame.site)
        if self._writers is not None:
            writers = self._writers[place]
            self._report_iterations(frame, run, place, ITERATION_READS, writers, marks)
        if self._readers is None:
            self._readers = np.zeros(self._shape, np.int64)
        before = _number(self._readers[place])
        marks = np.where((before >= run.first) & (before != ids), marks | _SEVERAL, marks)
        self._readers[place] = marks
        clash = self._readers[place] != marks
        if clash.any():
            self._readers[tuple(at[clash] for at in place)] = marks[clash] | _SEVERAL

    def write_block(self, frame: Frame, place: Place, data: Array, value: Any) -> None:
        """The current block is about to store `value` at `place`, a tuple of positions or of
        slices, in `data`.
        """
        if self._blocks is None:
            self._blocks = np.zeros(self._shape, np.int64)
        before = self._blocks[place]
        others = _other_block(frame, before)
        if np.any(others):
            differs = bool(np.any(_changes(data, place, value) & others))
            self._report_blocks(frame, place, BLOCKS_WRITE, before, differs)
        self._blocks[place] = _marked(frame.block_number, frame.site)

    def read_blocks(self, frame: Frame, place: Place) -> None:
        """The current block loads the box `place` of slices."""
        if self._blocks is not None and frame.block_number:
            self._report_blocks(frame, place, BLOCK_READS, self._blocks[place])

    def _read_block(
        self, blocks: Array, frame: Frame, place: Place, reading: Mask, lanes: tuple[int, ...]
    ) -> None:
        before = blocks[place]
        if np.any(_other_block(frame, before)):
            chosen = over_lanes(reading, lanes)
            place = tuple(np.broadcast_to(at, lanes)[chosen] for at in place)
            self._report_blocks(frame, place, BLOCK_READS, np.broadcast_to(before, lanes)[chosen])

    def _check_distinct(self, frame: Frame, place: Place) -> None:
        """Lanes of one vector store must not write one element."""
        if not place:
            self._report(frame, place, ITERATIONS_WRITE, np.ones((), np.bool_))
            return
        positions = [at.ravel() for at in place]
        if any((at[1:] > at[:-1]).all() for at in positions):
            return
        clash = np.ones(positions[0].size, np.bool_)
        flat = np.ravel_multi_index(positions, self._shape)
        clash[np.unique(flat, return_index=True)[1]] = False
        if clash.any():
            self._report(frame, tuple(positions), ITERATIONS_WRITE, clash)

    def _report_iterations(
        self,
        frame: Frame,
        run: ParallelRun,
        place: Place,
        detail: str,
        before: Array,
        now: Array,
        differs: bool = True,
    ) -> None:
        """Report conflicts of the iterations marked `now` with those marked `before`, as far as
        these are others of the same loop.
        """
        others, ids = _number(before), _number(now)
        clash = (others >= run.first) & ((others != ids) | (before >= _SEVERAL))
        if np.any(clash):
            named = clash & (others != ids)  # the one that is known may be this one
            first = _first(named if np.any(named) else clash)
            numbers = [int(np.broadcast_to(each, clash.shape)[first]) for each in (ids, others)]
            pair = tuple(map(run.indices, numbers if np.any(named) else numbers[:1]))
            self._report(
                frame, place, detail, clash, before, first, iterations=pair, differs=differs
            )

    def _report_blocks(
        self, frame: Frame, place: Place, detail: str, before: Array, differs: bool = True
    ) -> None:
        """Report conflicts of the current block with those marked `before`, as far as they are
        others.
        """
        clash = _other_block(frame, before)
        if np.any(clash):
            number = int(_number(np.asarray(before)[_first(clash)])) - frame.launch_base - 1
            other = frame.block_of(number)
            self._report(frame, place, detail, clash, before, other_block=other, differs=differs)

    def _report(
        self,
        frame: Frame,
        place: Place,
        detail: str,
        clash: Any,
        before: Array | None = None,
        first: tuple[int, ...] | None = None,
        **who: Any,
    ) -> None:
        """Record the accesses of `clash`, which conflict with those marked `before`; the finding
        names the one at `first`.
        """
        first = _first(clash) if first is None else first
        index = tuple(_position(at, first, axis, clash) for axis, at in enumerate(place))
        other = 0 if before is None else int(_site(np.asarray(before)[first]))
        count = int(np.count_nonzero(clash))
        frame.recorder.found(
            FindingKind.RACE,
            detail,
            self._name,
            index,
            frame.block,
            frame.site,
            count,
            other=other,
            **who,
        )


_SITE_BITS = 20
_SEVERAL = 1 << 62  # beside the mark of one of several iterations


def _marked(numbers: Any, site: int) -> Any:
    """Numbers of iterations or blocks together with the site of what they do."""
    return (numbers << _SITE_BITS) | (site & ((1 << _SITE_BITS) - 1))


def _number(marks: Any) -> Any:
    return (marks & (_SEVERAL - 1)) >> _SITE_BITS


def _site(marks: Any) -> Any:
    return marks & ((1 << _SITE_BITS) - 1)


def _other_block(frame: Frame, before: Array) -> Any:
    numbers = _number(before)
    return (numbers > frame.launch_base) & (numbers != frame.block_number)


def _changes(data: Array, place: Place, value: Any) -> Array:
    """Where storing `value` at `place` changes what is there."""
    old = np.asarray(data[place])
    return _unlike(old, np.broadcast_to(np.asarray(value, old.dtype), old.shape))


def _is_lost(data: Array, place: Place, value: Any) -> Array:
    """Where another lane of the same store, the last one, leaves another value."""
    positions = np.broadcast_arrays(*place) if place else [np.zeros(1, np.int64)]
    flat = np.ravel_multi_index([at.ravel() for at in positions], data.shape or (1,))
    values = np.broadcast_to(np.asarray(value, data.dtype), positions[0].shape).ravel()
    elements, which = np.unique(flat, return_inverse=True)
    last = np.zeros(len(elements), np.int64)
    last[which] = np.arange(len(flat))
    return _unlike(values, values[last[which]]).reshape(positions[0].shape)


def _unlike(a: Array, b: Array) -> Array:
    return np.asarray((a != b) & ~((a != a) & (b != b)))


def _first(clash: Any) -> tuple[int, ...]:
    return tuple(map(int, np.argwhere(np.asarray(clash))[0]))


def _ids(run: ParallelRun, lanes: tuple[int, ...]) -> Array:
    """The iteration of each lane; the lanes of an explicit vector share one."""
    return run.ids if run.ids.ndim == len(lanes) else np.broadcast_to(run.ids[..., None], lanes)


def _position(at: Any, first: Any, axis: int, clash: Any) -> int:
    """The coordinate along `axis` of the clash at `first`."""
    if isinstance(at, slice):
        return int((at.start or 0) + first[axis])
    return int(np.broadcast_to(np.asarray(at), np.shape(clash))[tuple(first)])
