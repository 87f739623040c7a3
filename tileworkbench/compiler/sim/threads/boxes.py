"""Copies of boxes between tensors and shared memory, as the copy engine does them (PTX ISA, "Tensor
copies").

The engine knows nothing of a tile's layout: elements follow one another from the first one's
address on, swizzled by bits of the address. What is outside the tensor is zero, or dropped. A copy
runs in a `Start`, which hides what it writes until somebody has waited.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from tileworkbench.compiler.diagnostics import VerifyError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir import simt
from tileworkbench.compiler.ir.expr import Address
from tileworkbench.compiler.layout.descriptors import UNIT
from tileworkbench.compiler.machine.nvidia import BOXES
from tileworkbench.compiler.sim.expressions import ExpressionTranslator
from tileworkbench.compiler.sim.memory import Storage
from tileworkbench.compiler.sim.observers import tell_asked
from tileworkbench.compiler.sim.problems import BOX_MISPLACED, BOX_OUTSIDE, NEVER_WRITTEN
from tileworkbench.compiler.sim.report import FindingKind
from tileworkbench.compiler.sim.threads.arena import NEVER, WRITTEN, ArenaStorage
from tileworkbench.compiler.sim.threads.findings import report_clash, report_threads
from tileworkbench.compiler.sim.threads.frame import ThreadFrame
from tileworkbench.compiler.sim.threads.pieces import TMA_LOAD, TMA_STORE, Boxes
from tileworkbench.compiler.sim.threads.tensors import ThreadTensor

Array = np.ndarray[Any, Any]


class MapStorage(Storage):
    """What a tensor map says: the tensor, its shape and strides in elements, the box, and the
    swizzle in bytes.
    """

    __slots__ = ("box", "extents", "pieces", "steps", "swizzle", "tensor")

    def __init__(
        self,
        tensor: ThreadTensor,
        extents: tuple[int, ...],
        steps: tuple[int, ...],
        stmt: simt.TensorMap,
    ) -> None:
        self.name, self.dtype, self.scope = tensor.name, tensor.dtype, stmt.buffer.scope
        self.data, self.written, self.guarded = tensor.data, None, False
        self.prefix, self.shape, self.safe, self.log = (), extents, tensor.safe, tensor.log
        self.tensor, self.extents, self.steps = tensor, extents, steps
        self.box, self.swizzle = stmt.box, stmt.swizzle
        size = tensor.data.itemsize
        self.pieces = Boxes(stmt.box, size, stmt.swizzle, extents, steps)

    def elements(self, origin: tuple[int, ...]) -> tuple[tuple[Array, ...], Array]:
        """(where the elements of the box at `origin` are in the data of the tensor, which of them
        are in the tensor), in the order in which the box lies in shared memory.
        """
        axes = np.indices(self.box).reshape(len(self.box), -1)
        places = [axis + first for axis, first in zip(axes, origin, strict=True)]
        inside = np.ones(axes.shape[1], np.bool_)
        for place, extent in zip(places, self.extents, strict=True):
            inside &= (place >= 0) & (place < extent)
        if self.tensor.data.ndim != len(places) or self.tensor.data.shape != self.extents:
            flat = sum(place * step for place, step in zip(places, self.steps, strict=True))
            places = [np.asarray(flat)]
        return tuple(place[inside] for place in places), inside


@dataclass(frozen=True, slots=True)
class _Box:
    """One box at run time: its elements in the tensor and in the tile, a number for each."""

    map: MapStorage
    tile: ArenaStorage
    place: tuple[Array, ...]
    inside: Array
    slots: Array
    origin: tuple[int, ...]
    first: int


def translate(
    stmt: simt.TensorMap | simt.TensorLoad | simt.TensorStore, expr: ExpressionTranslator
) -> Callable[..., None]:
    """The closure of a statement about copies of boxes."""
    match stmt:
        case simt.TensorMap():
            return _map(stmt, expr)
        case simt.TensorLoad():
            return _load(stmt, expr)
    return _store(stmt, expr)


def _map(stmt: simt.TensorMap, expr: ExpressionTranslator) -> Callable[..., None]:
    """The closure of `tensor_map`."""
    slot, source = expr.slots.buffer(stmt.buffer), expr.slots.buffer(stmt.source)
    shape, strides = expr.all(stmt.buffer.shape), expr.all(stmt.buffer.strides)

    def make(frame: ThreadFrame) -> None:
        tensor = frame.storages[source]
        if not isinstance(tensor, ThreadTensor):
            raise VerifyError(f"a map of '{tensor.name}', which is no tensor")
        extents = tuple(int(value(frame)) for value in shape)
        steps = tuple(int(value(frame)) for value in strides)
        frame.storages[slot] = MapStorage(tensor, extents, steps, stmt)

    return make


def _load(stmt: simt.TensorLoad, expr: ExpressionTranslator) -> Callable[..., None]:
    """The closure of `tensor_load`."""
    boxes = _Boxes(stmt.src, stmt.dst, expr)

    def load(frame: ThreadFrame) -> None:
        for thread in map(int, frame.active_threads()):
            box = boxes.of(frame, thread)
            tensor, tile = box.map.tensor, box.tile
            values = np.zeros(len(box.slots), tensor.data.dtype)
            lanes = (int(box.inside.sum()),)
            if frame.options.races and lanes[0]:
                tensor.log.read(frame, box.place, True, lanes)
            values[box.inside] = tensor.data[box.place]
            _touch(frame, box, thread, write=True)
            tile.data[box.slots] = values.view(tile.data.dtype)
            if frame.flights is not None:
                frame.flights.carries(values.nbytes)
            _tell(frame, box, thread, (tensor, box.place), (tile, (box.slots,)))

    return load


def _store(stmt: simt.TensorStore, expr: ExpressionTranslator) -> Callable[..., None]:
    """The closure of `tensor_store`."""
    boxes, adds = _Boxes(stmt.dst, stmt.src, expr), stmt.reduce == "add"

    def store(frame: ThreadFrame) -> None:
        for thread in map(int, frame.active_threads()):
            box = boxes.of(frame, thread)
            tensor, tile = box.map.tensor, box.tile
            _touch(frame, box, thread, write=False)
            values = tile.data[box.slots].view(tensor.data.dtype)[box.inside]
            if adds:
                values = (tensor.data[box.place] + values).astype(values.dtype)
            elif frame.options.races:
                tensor.log.write_block(frame, box.place, tensor.data, values)
            if frame.flights is not None:
                frame.flights.touch(frame, tensor, box.place, True)
            tensor.data[box.place] = values
            _tell(frame, box, thread, (tile, (box.slots,)), (tensor, box.place))
            if tensor.written is not None:
                tensor.written[box.place] = True

    return store


class _Boxes:
    """The boxes that threads name."""

    def __init__(self, there: Address, here: Address, expr: ExpressionTranslator) -> None:
        self._map, self._origin = expr.slots.buffer(there.buffer), expr.all(there.indices)
        self._tile, self._place = expr.slots.buffer(here.buffer), expr.all(here.indices)

    def of(self, frame: ThreadFrame, thread: int) -> _Box:
        made, tile = frame.storages[self._map], frame.storages[self._tile]
        if not isinstance(made, MapStorage) or not isinstance(tile, ArenaStorage):
            raise VerifyError(f"a copy of a box between '{made.name}' and '{tile.name}'")

        def own(value: Any) -> int:
            return int(np.broadcast_to(np.asarray(value(frame)), frame.lanes)[thread])

        origin, index = tuple(map(own, self._origin)), tuple(map(own, self._place))
        size = tile.bits // 8
        first = tile.base + int(tile.locate(index)) * size
        if first % max(made.swizzle * BOXES.swizzle_rows, BOXES.alignment):
            wrong = np.arange(frame.threads) == thread
            kind = FindingKind.MISALIGNED
            report_threads(frame, kind, BOX_MISPLACED, tile.name, index, wrong)
        addresses = first + np.arange(prod(made.box)) * size
        # Bits of the address, 16 bytes within 128 by the row of 128 bytes: 1, 2 or 3 of them.
        mask = made.swizzle - 1 & 0x70 if made.swizzle else 0
        addresses ^= addresses >> 3 & mask
        place, inside = made.elements(origin)
        slots = (addresses - tile.base) // size
        if ((slots < 0) | (slots >= tile.data.size)).any():
            wrong = np.arange(frame.threads) == thread
            kind = FindingKind.OUT_OF_BOUNDS
            report_threads(frame, kind, BOX_OUTSIDE, tile.name, index, wrong)
            slots = np.clip(slots, 0, tile.data.size - 1)
        return _Box(made, tile, place, inside, slots, origin, first)


def _tell(
    frame: ThreadFrame,
    box: _Box,
    thread: int,
    source: tuple[Storage, tuple[Array, ...]],
    target: tuple[Storage, tuple[Array, ...]],
) -> None:
    """Tell the observers that the engine has copied a box for `thread`."""
    if not frame.observers:
        return
    access = "load" if source[0].scope == "global" else "store"
    tell_asked(frame, box.map.tensor, access, box.inside, box.inside.shape)
    for observer in frame.observers:
        for told, (storage, place) in ((observer.read, source), (observer.wrote, target)):
            count = len(place[0])
            registers = (np.full(count, -1),) if told == observer.wrote else ()
            told(frame, storage, place, np.full(count, thread), *registers)


def _touch(frame: ThreadFrame, box: _Box, thread: int, write: bool) -> None:
    """The engine reads or writes the elements of a tile for `thread`."""
    tile, arena = box.tile, box.tile.arena
    kind, pieces = TMA_LOAD if write else TMA_STORE, box.map.pieces
    frame.counters.instruction(kind, frame.active())
    places, inside = pieces.there(box.origin)
    frame.counters.global_(frame.site, box.map.name, kind, places, inside, UNIT)
    places = pieces.here(box.first)
    frame.counters.shared(frame.site, tile.name, kind, places, np.ones_like(inside), UNIT)
    if frame.flights is not None:
        frame.flights.touch(frame, tile, (box.slots,), write)
    size = tile.bits // 8
    granules = np.unique(arena.granules(tile.base + box.slots * size, size))
    threads = np.full(len(granules), thread)
    if write:
        arena.state[granules] = WRITTEN
    elif frame.options.uninitialised and (arena.state[granules] == NEVER).any():
        wrong = np.arange(frame.threads) == thread
        report_threads(frame, FindingKind.UNINITIALISED, NEVER_WRITTEN, tile.name, (), wrong)
    if not frame.options.races:
        return
    if write:
        clashes = arena.marks.write(frame.order, threads, granules, frame.site)
    else:
        unordered = arena.marks.read(frame.order, threads, granules, frame.site)
        clashes = [] if unordered is None else [unordered]
    for clash in clashes:
        report_clash(frame, tile.name, (), threads, clash)
