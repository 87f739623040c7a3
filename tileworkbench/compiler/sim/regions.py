"""Boxes of a buffer, read and written at once."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from tileworkbench.compiler.sim.frame import Frame
from tileworkbench.compiler.sim.memory import Storage
from tileworkbench.compiler.sim.observers import tell_read, tell_written
from tileworkbench.compiler.sim.problems import NEVER_WRITTEN
from tileworkbench.compiler.sim.report import FindingKind
from tileworkbench.compiler.sim.values import poison

Array = np.ndarray[Any, Any]
Box = tuple[int, ...]


def read_box(frame: Frame, storage: Storage, corner: Box, shape: Box) -> Array:
    """The box at `corner`; elements outside a global buffer have its safe value, outside another
    one it is an error.
    """
    inside, target, complete = _clip(frame, "load", storage, corner, shape)
    inner = storage.data[inside]
    if storage.written is not None and frame.options.uninitialised:
        missing = ~storage.written[inside]
        if missing.any():
            first = tuple(
                int(at + box.start) for at, box in zip(np.argwhere(missing)[0], inside, strict=True)
            )
            storage.found(
                frame,
                FindingKind.UNINITIALISED,
                NEVER_WRITTEN,
                first,
                int(np.count_nonzero(missing)),
            )
    storage.note_box(frame, inside)
    if frame.observers:
        tell_read(frame, storage, inside, True, ())
    if complete:
        return inner
    padded = np.full(
        shape, storage.safe if storage.guarded else poison(storage.dtype), storage.data.dtype
    )
    padded[target] = inner
    return padded


def write_box(frame: Frame, storage: Storage, corner: Box, values: Array) -> None:
    """Write `values` as the box at `corner`; what is outside a global buffer is dropped, outside
    another one an error.
    """
    inside, target, complete = _clip(frame, "store", storage, corner, values.shape)
    kept = values if complete else values[target]
    storage.note_box(frame, inside, kept)
    storage.data[inside] = kept
    if storage.written is not None:
        if complete and values.shape == storage.shape:
            storage.written[...] = True  # an alias may share the marks
            storage.written = None
        else:
            storage.written[inside] = True
    if frame.observers:
        tell_written(frame, storage, inside, None, ())


def _clip(
    frame: Frame, access: str, storage: Storage, corner: Box, shape: Box
) -> tuple[tuple[slice, ...], tuple[slice, ...], bool]:
    """The part of a box that is inside `storage`: as slices of the storage and of the box, and
    whether that is all.
    """
    lows = [min(max(low, 0), extent) for low, extent in zip(corner, storage.shape, strict=True)]
    highs = [
        max(low, min(at + length, extent))
        for low, at, length, extent in zip(lows, corner, shape, storage.shape, strict=True)
    ]
    inside = tuple(slice(low, high) for low, high in zip(lows, highs, strict=True))
    kept = tuple(high - low for low, high in zip(lows, highs, strict=True))
    outside = prod(shape) - prod(kept)
    if storage.scope == "global":
        for observer in frame.observers:
            observer.asked(frame, storage, access, prod(kept), prod(shape))
    if storage.guarded:
        frame.recorder.masks.touch(access, storage.name, frame.site, prod(shape))
    if outside:
        first = _first_outside(corner, shape, storage.shape)
        if storage.guarded:
            boxes = list(enumerate(zip(corner, shape, storage.shape, strict=True)))
            before = {(d, False) for d, (at, _, _) in boxes if at < 0}
            behind = {(d, True) for d, (at, length, extent) in boxes if at + length > extent}
            frame.recorder.masks.add(
                frame, access, storage.name, first, storage.shape, before | behind, outside
            )
        else:
            frame.recorder.out_of_bounds(
                access, storage.name, storage.shape, first, frame.block, frame.site, outside
            )
    target = tuple(
        slice(low - at, high - at) if high > low else slice(0, 0)
        for low, high, at in zip(lows, highs, corner, strict=True)
    )
    return inside, target, kept == tuple(shape)


def _first_outside(corner: Box, shape: Box, extents: Box) -> Box:
    """The first element of the box that is outside, in row-major order where the last dimensions
    leave first.
    """
    index = list(corner)
    for axis in reversed(range(len(corner))):
        if not 0 <= corner[axis] < extents[axis]:
            return tuple(index)
        if corner[axis] + shape[axis] > extents[axis]:
            index[axis] = extents[axis]
            return tuple(index)
    return tuple(index)
