"""Buffers of a simulated run, with every access checked: bounds, initialisation and races."""

from __future__ import annotations

import ctypes
from math import prod
from typing import Any

import numpy as np

from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.ir.types import DType
from tileworkbench.compiler.sim.frame import Frame
from tileworkbench.compiler.sim.masked import ends_of
from tileworkbench.compiler.sim.observers import tell_asked, tell_read, tell_written
from tileworkbench.compiler.sim.problems import NEVER_WRITTEN
from tileworkbench.compiler.sim.races import AccessLog
from tileworkbench.compiler.sim.regrouped import Regrouped, regroup
from tileworkbench.compiler.sim.report import FindingKind
from tileworkbench.compiler.sim.values import (
    Mask,
    Value,
    count_lanes,
    from_storage,
    mask_and,
    mask_without,
    over_lanes,
    poison,
    python_value,
    spread,
    storage_dtype,
)

Index = tuple[Value, ...]
_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


class Storage:
    """The memory of one buffer.

    `data`, an array or like one (`regrouped.py`), has the buffer's shape; with a `prefix`
    (thread-private memory inside a parallel loop) the lane grid comes first and `prefix` are the
    lanes' own indices. `written` marks initialised elements, None when all are. A `guarded` buffer
    masks accesses outside it.
    """

    __slots__ = (
        "data",
        "dtype",
        "guarded",
        "log",
        "name",
        "prefix",
        "safe",
        "scope",
        "shape",
        "written",
    )

    def __init__(
        self,
        buffer: Buffer,
        data: np.ndarray[Any, Any],
        *,
        written: np.ndarray[Any, Any] | None = None,
        guarded: bool = False,
        safe: Value | None = None,
        prefix: Index = (),
    ) -> None:
        self.name, self.dtype, self.scope = buffer.name, buffer.dtype, buffer.scope
        self.data, self.written, self.guarded, self.prefix = data, written, guarded, prefix
        self.shape = data.shape[len(prefix) :]
        self.safe = python_value(0, buffer.dtype) if safe is None else safe
        self.log = AccessLog(self.name, data.shape, buffer.scope == "global")

    def flat(self) -> Storage:
        """The same memory as one dimension, in which accesses outside are never masked."""
        made = Storage.__new__(Storage)
        made.name, made.dtype, made.scope, made.safe = self.name, self.dtype, self.scope, self.safe
        made.data, made.guarded, made.prefix = memory_of(self.data), False, ()
        made.written = None if self.written is None else self.written.reshape(-1)
        made.shape, made.log = made.data.shape, AccessLog(self.name, made.data.shape, False)
        return made

    def view(self, buffer: Buffer, shape: tuple[int, ...]) -> Storage:
        """The same memory as `buffer`.

        Elements of another size cannot share the marks of what was written: from here on all of it
        counts as written.
        """
        data = regroup(self.data, self.dtype, buffer.dtype, shape)
        if data.size != self.data.size and self.written is not None:
            self.written[...] = True  # for views that share the marks
            self.written = None
        written = None if self.written is None else self.written.reshape(shape)
        safe = self.safe if buffer.dtype == self.dtype else None
        return Storage(buffer, data, written=written, guarded=self.guarded, safe=safe)

    @property
    def changes(self) -> bool:
        """Whether somebody may write it while the kernel runs."""
        return True

    def landed(self, frame: Frame, place: Index) -> None:
        """What was written at `place` asynchronously is there for those who waited."""

    def load(self, frame: Frame, index: Index, active: Mask, lanes: tuple[int, ...]) -> Value:
        """The elements at `index` in the lanes of `active`; the safe value (or poison) where they
        are outside.
        """
        inside, valid = self.bounds(frame, "load", index, active, lanes)
        fallback = self.safe if self.guarded else poison(self.dtype)
        reading = mask_and(active, valid)
        if frame.observers:
            tell_asked(frame, self, "load", reading, lanes)
        if reading is False:
            return from_storage(np.asarray(fallback, self.data.dtype)[()], self.dtype)
        place = (*self.prefix, *inside) if self.prefix else inside
        if self.written is not None and frame.options.uninitialised:
            self.check_written(frame, index, mask_without(reading, self.written[place]), lanes)
        self._note_read(frame, place, reading, lanes)
        if frame.observers:
            tell_read(frame, self, place, reading, lanes)
        value = from_storage(self.data[place], self.dtype)
        return (
            value
            if valid is True
            else np.where(valid, value, np.asarray(fallback, self.data.dtype))
        )

    def store(
        self, frame: Frame, index: Index, value: Value, active: Mask, lanes: tuple[int, ...]
    ) -> None:
        """Write `value` at `index` in the lanes of `active`; where several lanes write one element,
        the last one's value stays.
        """
        inside, valid = self.bounds(frame, "store", index, active, lanes)
        active = mask_and(active, valid)
        if frame.observers:
            tell_asked(frame, self, "store", active, lanes)
        if active is False:
            return
        place = (*self.prefix, *inside) if self.prefix else inside
        chosen: np.ndarray[Any, Any] | None = None
        if active is not True or (lanes and _shape_of(place) != lanes):
            chosen = over_lanes(active, lanes)
            place = tuple([spread(position, lanes)[chosen] for position in place])
            value = spread(np.asarray(value, self.data.dtype), lanes)[chosen]
        if frame.options.races:
            self._note_write(frame, place, chosen, lanes, value)
        if frame.flights is not None:
            frame.flights.touch(frame, self, place, True)
        self.data[place] = value if place or not lanes else value[-1]
        if self.written is not None:
            self.written[place] = True
        if frame.observers:
            tell_written(frame, self, place, chosen, lanes)

    def note_box(
        self, frame: Frame, box: tuple[slice, ...], values: np.ndarray[Any, Any] | None = None
    ) -> None:
        """An operator of the whole block reads a box, or is about to write `values` there."""
        if frame.flights is not None:
            frame.flights.touch(frame, self, box, values is not None)
        if frame.options.races and self.scope == "global" and frame.block_number:
            if values is not None:
                self.log.write_block(frame, box, self.data, values)
            else:
                self.log.read_blocks(frame, box)

    def expose(self) -> None:
        """Others may write this memory from now on: all of it counts as initialised."""
        if self.written is not None:
            self.written[...] = True

    def _note_read(self, frame: Frame, place: Index, reading: Mask, lanes: tuple[int, ...]) -> None:
        if frame.flights is not None:
            frame.flights.touch(frame, self, place, False, reading, lanes)
        if frame.options.races:
            self.log.read(frame, place, reading, lanes)

    def _note_write(
        self,
        frame: Frame,
        place: Index,
        chosen: np.ndarray[Any, Any] | None,
        lanes: tuple[int, ...],
        value: Value,
    ) -> None:
        """The lanes `chosen` are about to store `value` at `place`."""
        self.log.write(frame, place, chosen, lanes, self.data, value)

    def bounds(
        self, frame: Frame, access: str, index: Index, active: Mask, lanes: tuple[int, ...]
    ) -> tuple[Index, Mask]:
        """`index` moved inside the buffer, and the lanes in which it was inside; deals with the
        active ones that were not.
        """
        for position, extent in zip(index, self.shape, strict=True):
            if type(position) is np.ndarray:
                if position.size and unsigned(position).max() >= extent:  # negatives are large
                    break
            elif not 0 <= position < extent:
                break
        else:
            if self.guarded and active is not False:
                touched = count_lanes(active, lanes) if lanes else 1
                frame.recorder.masks.touch(access, self.name, frame.site, touched)
            return index, True
        return self._outside(frame, access, index, active, lanes)

    def _outside(
        self, frame: Frame, access: str, index: Index, active: Mask, lanes: tuple[int, ...]
    ) -> tuple[Index, Mask]:
        """`bounds` where some lane, active or not, is outside."""
        valid: Mask = True
        inside: list[Value] = []
        for position, extent in zip(index, self.shape, strict=True):
            if type(position) is np.ndarray:
                if position.size and unsigned(position).max() >= extent:  # negatives are large
                    valid = mask_and(valid, (position >= 0) & (position < extent))
                    position = np.clip(position, 0, max(extent - 1, 0))
            elif not 0 <= position < extent:
                valid = False
            inside.append(position)
        bad = mask_without(active, valid)
        if self.guarded and active is not False:
            touched = count_lanes(active, lanes) if lanes else 1
            frame.recorder.masks.touch(access, self.name, frame.site, touched)
        if bad is not False:
            count, where = count_lanes(bad, lanes), first_index(index, bad, lanes)
            if self.guarded:
                beyond = ends_of(index, self.shape, bad)
                who = frame.thread_of(bad, lanes), frame.iteration_of(bad, lanes)
                frame.recorder.masks.add(
                    frame, access, self.name, where, self.shape, beyond, count, *who
                )
            else:
                frame.recorder.out_of_bounds(
                    access,
                    self.name,
                    self.shape,
                    where,
                    frame.block,
                    frame.site,
                    count,
                    frame.thread_of(bad, lanes),
                )
        return tuple(inside), valid

    def check_written(
        self, frame: Frame, index: Index, missing: Mask, lanes: tuple[int, ...]
    ) -> None:
        """Record the lanes of `missing` as reads of elements that were never written."""
        if missing is not False:
            where, count = first_index(index, missing, lanes), count_lanes(missing, lanes)
            thread = frame.thread_of(missing, lanes)
            self.found(frame, FindingKind.UNINITIALISED, NEVER_WRITTEN, where, count, thread)

    def place(self, index: Index) -> Index:
        """Where the element at `index` is in `data`."""
        return index

    def note_atomic(
        self, frame: Frame, index: Index, active: Mask, reads: bool, lanes: tuple[int, ...]
    ) -> None:
        """The `lanes` of `active` access the elements at `index` atomically."""
        if frame.flights is not None:
            frame.flights.touch(frame, self, index, True, active, lanes)
        if self.written is None:
            return
        if reads and frame.options.uninitialised:
            missing = mask_without(active, self.written[index])
            self.check_written(frame, index, missing, lanes)
        chosen = over_lanes(active, lanes)
        place = tuple(np.broadcast_to(np.asarray(at), lanes)[chosen] for at in index)
        self.written[place] = True

    def found(
        self,
        frame: Frame,
        kind: FindingKind,
        detail: str,
        index: tuple[int, ...],
        count: int,
        thread: int | None = None,
    ) -> None:
        """Record a violation of the current statement."""
        frame.recorder.found(kind, detail, self.name, index, frame.block, frame.site, count, thread)


def grid_of(lanes: tuple[int, ...]) -> Index:
    """Each lane's own indices, as arrays that broadcast to the grid."""
    return tuple(np.ogrid[tuple(slice(extent) for extent in lanes)])


def unsigned(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The same bits as unsigned integers; a view."""
    return array.view(_UNSIGNED[array.itemsize])


def memory_of(array: Any) -> Any:
    """The elements of `array` in memory, first to last, holes of its strides included; a view."""
    if isinstance(array, Regrouped):
        return Regrouped(array.cells, array.source, array.target, (array.size,))
    if array.flags.c_contiguous or not array.size:
        return array.reshape(-1)
    strides = [stride // array.itemsize for stride in array.strides]
    pairs = zip(array.shape, strides, strict=True)
    span = 1 + sum((extent - 1) * stride for extent, stride in pairs)
    return np.lib.stride_tricks.as_strided(array, (span,), (array.itemsize,))


def _shape_of(index: Index) -> tuple[int, ...]:
    shapes = {position.shape for position in index if type(position) is np.ndarray}
    return shapes.pop() if len(shapes) == 1 else np.broadcast_shapes(*shapes)


def first_index(index: Index, chosen: Mask, lanes: tuple[int, ...]) -> tuple[int, ...]:
    """The element that the first lane of `chosen` names."""
    lane = tuple(np.argwhere(over_lanes(chosen, lanes))[0])
    return tuple(int(np.broadcast_to(position, lanes)[lane]) for position in index)


def memory_at(
    address: int, buffer: Buffer, shape: tuple[int, ...], strides: tuple[int, ...]
) -> Any:
    """The process's own memory from `address` on, as the elements of `buffer`."""
    packed, storage = buffer.dtype.is_packed, storage_dtype(buffer.dtype)
    if 0 in shape:
        return np.empty(shape, storage)
    steps = strides or tuple(prod(shape[d + 1 :]) for d in range(len(shape)))
    span = 1 + sum((extent - 1) * step for extent, step in zip(shape, steps, strict=True))
    size = (span + 1) // 2 if packed else span * storage.itemsize
    memory: Any = (ctypes.c_char * size).from_address(address)
    if packed:
        made = Regrouped(np.frombuffer(memory, np.uint8), DType("uint8"), buffer.dtype, (span,))
        made.numbers = _strided(made.numbers, shape, steps)
        return made
    flat = np.frombuffer(memory, storage)
    return _strided(flat, shape, steps)


def _strided(
    flat: np.ndarray[Any, Any], shape: tuple[int, ...], steps: tuple[int, ...]
) -> np.ndarray[Any, Any]:
    """A view of `flat` with these steps, in elements."""
    byte_steps = tuple(step * flat.itemsize for step in steps)
    return np.lib.stride_tricks.as_strided(flat, shape, byte_steps)


def allocate(
    buffer: Buffer,
    shape: tuple[int, ...],
    memory: np.ndarray[Any, Any] | None = None,
    lanes: tuple[int, ...] = (),
) -> Storage:
    """New, poisoned memory for `buffer`: at the start of the bytes `memory` when given, and once
    per lane of `lanes`.
    """
    dtype: DType = buffer.dtype
    storage = storage_dtype(dtype)
    if memory is None:
        data = np.empty(lanes + shape, storage)
    else:
        data = memory[: prod(shape) * storage.itemsize].view(storage).reshape(shape)
    data[...] = poison(dtype)
    return Storage(
        buffer, data, written=np.zeros(data.shape, np.bool_), prefix=grid_of(lanes) if lanes else ()
    )
