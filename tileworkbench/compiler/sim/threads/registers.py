"""Thread-private memory."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.sim.frame import Frame
from tileworkbench.compiler.sim.memory import Index, Storage
from tileworkbench.compiler.sim.observers import tell_read, tell_written
from tileworkbench.compiler.sim.regrouped import regroup
from tileworkbench.compiler.sim.values import (
    Mask,
    Value,
    mask_and,
    over_lanes,
    poison,
    storage_dtype,
)

if TYPE_CHECKING:
    from tileworkbench.compiler.sim.threads.frame import ThreadFrame

Array = np.ndarray[Any, Any]


class LaneStorage(Storage):
    """Thread-private memory: `data` has one copy for each thread of the block in front."""

    __slots__ = ()

    def __init__(self, buffer: Buffer, shape: tuple[int, ...], threads: int) -> None:
        data = np.empty((threads, *shape), storage_dtype(buffer.dtype))
        written = np.zeros(data.shape, np.bool_)
        super().__init__(buffer, data, written=written, prefix=(np.arange(threads),))

    def view(self, buffer: Buffer, shape: tuple[int, ...]) -> Storage:
        made = LaneStorage.__new__(LaneStorage)
        lanes = (len(self.data), *shape)
        Storage.__init__(made, buffer, regroup(self.data, self.dtype, buffer.dtype, lanes))
        made.prefix, made.shape = self.prefix, shape
        if made.data.size != self.data.size and self.written is not None:
            self.written[...] = True  # the marks cannot be shared, as in Storage.view
            self.written = None
        elif self.written is not None:
            made.written = self.written.reshape(made.data.shape)
        return made

    def forget(self, active: Mask) -> None:
        """The contents of the active threads become undefined."""
        chosen = slice(None) if active is True else np.asarray(active)
        self.data[chosen] = poison(self.dtype)
        if self.written is not None:
            self.written[chosen] = False

    def fill(self, value: Value, active: Mask) -> None:
        """Set every element of the active threads; `value` may differ from thread to thread."""
        chosen = slice(None) if active is True else np.asarray(active)
        values = np.asarray(value, self.data.dtype)
        self.data[chosen] = values[chosen] if values.ndim else values
        if self.written is not None:
            self.written[chosen] = True

    def load(self, frame: Frame, index: Index, active: Mask, lanes: tuple[int, ...]) -> Value:
        inside, valid = self.bounds(frame, "load", index, active, lanes)
        place = self._place(inside, lanes)
        self._tell(frame, (thread_column(lanes), *inside), False, mask_and(active, valid), lanes)
        if self.written is not None and frame.options.uninitialised:
            known = self.written[place]
            if not known.all():
                reading = mask_and(mask_and(active, valid), True)
                self.check_written(frame, index, mask_and(reading, ~known), lanes)
        if frame.registers_watched:
            tell_read(frame, self, (thread_column(lanes), *inside), mask_and(active, valid), lanes)
        value = self.data[place]
        return value if value.base is None else value.copy()

    def store(
        self, frame: Frame, index: Index, value: Value, active: Mask, lanes: tuple[int, ...]
    ) -> None:
        inside, valid = self.bounds(frame, "store", index, active, lanes)
        active = mask_and(active, valid)
        if active is False:
            return
        place = self._place(inside, lanes)
        self._tell(frame, (thread_column(lanes), *inside), True, active, lanes)
        if active is True:
            self.data[place] = value
            if self.written is not None:
                self.written[place] = True
            if frame.registers_watched:
                tell_written(frame, self, (thread_column(lanes), *inside), None, lanes)
            return
        chosen = over_lanes(active, lanes)
        if isinstance(place[0], slice):
            place = (thread_column(lanes), *place[1:])
        at = tuple(np.broadcast_to(position, lanes)[chosen] for position in place)
        self.data[at] = np.broadcast_to(np.asarray(value, self.data.dtype), lanes)[chosen]
        if self.written is not None:
            self.written[at] = True
        if frame.registers_watched:
            tell_written(frame, self, at, chosen, lanes)

    def _tell(
        self, frame: Frame, place: Index, write: bool, active: Mask, lanes: tuple[int, ...]
    ) -> None:
        """Tell products under way that these registers are accessed."""
        if frame.flights is not None and self.name in frame.flights.products:
            frame.flights.touch(frame, self, place, write, active, lanes)

    def _tell_row(self, frame: ThreadFrame, first: int, count: int, write: bool) -> None:
        if frame.flights is not None and self.name in frame.flights.products:
            place, lanes = self._row(first, count)
            frame.flights.touch(frame, self, place, write, frame.active()[:, None], lanes)

    def _place(self, index: Index, lanes: tuple[int, ...]) -> tuple[Any, ...]:
        """An index of `data`; a slice in front where all threads use the same elements."""
        own = all(type(at) is not np.ndarray or (len(lanes) > 1 and at.ndim < 2) for at in index)
        return (slice(None), *index) if own else (thread_column(lanes), *index)

    def registers(self, frame: Frame, first: int, count: int) -> Array:
        """`count` elements of each thread from the flat index `first` on; a view."""
        flat = self.data.reshape(len(self.data), -1)
        if not 0 <= first <= flat.shape[1] - count:
            frame.recorder.out_of_bounds(
                "load", self.name, self.shape, (first + count - 1,), frame.block, frame.site, 1
            )
            first, count = max(min(first, flat.shape[1] - count), 0), min(count, flat.shape[1])
        return flat[:, first : first + count]

    def read_registers(self, frame: ThreadFrame, first: int, count: int) -> Array:
        """The same, recording elements that active threads never wrote."""
        values = self.registers(frame, first, count)
        self._tell_row(frame, first, count, False)
        if frame.registers_watched:
            place, lanes = self._row(first, count)
            active = True if frame.mask is True else frame.active()[:, None]
            tell_read(frame, self, place, active, lanes)
        if self.written is not None and frame.options.uninitialised:
            known = self.written.reshape(len(self.data), -1)[:, first : first + count]
            if not known.all():
                missing = mask_and(frame.active()[:, None], ~known)
                index = (np.arange(first, first + count),)
                self.check_written(frame, index, missing, known.shape)
        return values

    def write_registers(self, frame: ThreadFrame, first: int, values: Array) -> None:
        """Replace elements of the active threads from the flat index `first` on."""
        target = self.registers(frame, first, values.shape[1])
        self._tell_row(frame, first, values.shape[1], True)
        if frame.mask is True:
            target[...] = values
        else:
            target[frame.active()] = values[frame.active()]
        if self.written is not None:
            known = self.written.reshape(len(self.data), -1)
            known[frame.active_threads(), first : first + values.shape[1]] = True
        if frame.registers_watched:
            place, lanes = self._row(first, values.shape[1])
            chosen = None
            if frame.mask is not True:
                chosen = np.broadcast_to(frame.active()[:, None], lanes)
                place = tuple(np.broadcast_to(at, lanes)[chosen] for at in place)
            tell_written(frame, self, place, chosen, lanes)

    def _row(self, first: int, count: int) -> tuple[Index, tuple[int, ...]]:
        """Where `count` elements of each thread are, from the flat index `first` on, and the lanes
        that takes.
        """
        lanes = (len(self.data), count)
        return _row(first, lanes, self.shape), lanes


@lru_cache(maxsize=256)
def _row(first: int, lanes: tuple[int, ...], shape: tuple[int, ...]) -> Index:
    """The same, remembered: loops read the same registers again and again."""
    columns = np.unravel_index(np.arange(first, first + lanes[1]), shape)
    for column in columns:
        column.flags.writeable = False
    return (np.broadcast_to(thread_column(lanes), lanes), *columns)


@lru_cache(maxsize=256)
def thread_column(lanes: tuple[int, ...]) -> Array:
    """The threads' numbers, in a shape that broadcasts to `lanes`; not to be changed."""
    rows = np.arange(lanes[0]).reshape(-1, *(1,) * (len(lanes) - 1))
    rows.flags.writeable = False
    return rows
