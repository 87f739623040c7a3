"""Which elements of each tensor the blocks of a run touch, how often, and how much is masked."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from tileworkbench.compiler.diagnostics import SimulatorLimitError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.simt import Engine
from tileworkbench.compiler.sim.observers import Observer, Operation
from tileworkbench.compiler.sim.threads.arena import ArenaStorage

if TYPE_CHECKING:
    from tileworkbench.compiler.sim.frame import Frame
    from tileworkbench.compiler.sim.memory import Storage

Array = np.ndarray[Any, Any]

MOST_CELLS = 1 << 22
"""Of one tensor that are counted, 48 bytes each. The elements of a larger tensor are counted in
runs of 2, 4, ... neighbours.
"""
MOST_KEPT = 1 << 24
"""Elements that are remembered until the blocks that touch them end, 8 bytes each."""
_BATCH = 1 << 18  # accesses that are gathered before they are counted
_THREADS = 1024  # of a block at most


@dataclass(slots=True)
class Side:
    """The loads or the stores of one tensor, cell by cell.

    `times`: how many elements are loaded or stored; `blocks`: by how many blocks; `block`: the
    lowest of their numbers; `threads`: by how many threads, and `thread` the lowest of them, where
    a run records threads. `block` and `thread` are -1 where nobody is known.
    """

    times: Array
    blocks: Array
    block: Array
    threads: Array
    thread: Array

    @classmethod
    def of(cls, cells: int) -> Side:
        """The counts before any access. They take no memory until somebody touches a cell."""
        times, blocks = np.zeros(cells, np.int64), np.zeros(cells, np.int32)
        none, nobody = np.zeros((), np.int32), np.full((), -1, np.int32)
        who = (np.broadcast_to(each, cells) for each in (nobody, none, nobody))
        return cls(times, blocks, *who)

    @property
    def lowest(self) -> Array:
        """`block` to be changed, as numbers of which -1 is the highest."""
        if not self.block.flags.writeable:
            self.block = self.block.copy()
        return self.block.view(np.uint32)

    def add_block(self, cells: Array, block: int) -> None:
        """The block of that number touches the `cells`."""
        self.blocks[cells] += 1
        lowest = self.lowest
        lowest[cells] = np.minimum(lowest[cells], _unsigned(block))

    def add_threads(self, cells: Array, many: Array, lowest: Array) -> None:
        """`many` threads of one block touch each of the `cells`."""
        if not self.threads.flags.writeable:
            self.threads, self.thread = self.threads.copy(), self.thread.copy()
        self.threads[cells] += many.astype(np.int32)
        self.thread[cells] = lowest


def _unsigned(block: int) -> np.uint32:
    """The number of a block, of which that of none (-1) is the highest."""
    return np.uint32(block & 0xFFFFFFFF)


@dataclass(frozen=True, slots=True)
class Counts:
    """What is counted of a tensor of `elements`, in cells of `cell` neighbouring elements of `item`
    bytes each, of which the first is at `address`.
    """

    name: str
    elements: int
    cell: int
    item: int
    address: int
    loads: Side
    stores: Side


Corners = tuple[tuple[int, int], ...]
"""First and last index + 1 of a box, along each dimension."""


class _Boxes:
    """Boxes of a side of a tensor with who touches them: `[times, blocks, lowest block]` of each.

    Blocks share most of their boxes: all blocks in one row of a product's grid read the same tiles.
    So accesses are gathered by box, and each box is counted once.
    """

    def __init__(self, side: Side) -> None:
        self._side = side
        self._shape: tuple[int, ...] = ()
        self._known: dict[Corners, list[int]] = {}

    def add(self, shape: tuple[int, ...], boxes: dict[Corners, int], block: int) -> None:
        """`block` touches disjoint boxes of a tensor of that shape, each so many times."""
        if shape != self._shape:
            self.paint()
            self._shape = shape
        for corners, times in boxes.items():
            known = self._known.setdefault(corners, [0, 0, block])
            known[0] += times
            known[1] += 1
            known[2] = min(known[2], block)

    def paint(self) -> None:
        """Count them."""
        if not self._known:
            return
        side = self._side
        times, blocks, lowest = (
            each.reshape(self._shape) for each in (side.times, side.blocks, side.lowest)
        )
        for corners, (many, several, block) in self._known.items():
            box = tuple([slice(*each) for each in corners])
            times[box] += many
            blocks[box] += several
            np.minimum(lowest[box], _unsigned(block), out=lowest[box])
        self._known = {}


def _are_disjoint(boxes: dict[Corners, int]) -> bool:
    """Whether no two of them have an element in common: they are tiles of one grid."""
    for along in zip(*boxes, strict=True):
        extent = max(stop - start for start, stop in along)
        if len({start % extent for start, _ in along}) > 1:
            return False
    return True


class _Batch:
    """What one block did to one side of a tensor: `cells` that are not counted yet, with `threads`
    where these are recorded, and which cells it has touched: as a mask, or where many blocks are
    open at once as numbers. `kept` are the numbers that it remembers.
    """

    __slots__ = (
        "_boxes", "_cells", "_mask", "_owned", "_range", "_shape", "_side", "_threads",
        "_touched", "size",
    )  # fmt: skip

    def __init__(self, side: Side, masked: bool) -> None:
        self._side, self.size = side, 0
        self._cells: list[Array] = []
        self._threads: list[Array] = []
        self._boxes: dict[Corners, int] = {}
        self._shape: tuple[int, ...] = ()
        self._mask = np.zeros(len(side.times), np.bool_) if masked else None
        self._range = (len(side.times), 0)  # where the mask is set
        self._touched, self._owned = np.zeros(0, np.int64), np.zeros(0, np.int64)

    @property
    def kept(self) -> int:
        return len(self._touched) + len(self._owned)

    def add(self, cells: Array, threads: Array | None) -> None:
        """The block touches `cells`."""
        self._cells.append(cells)
        self.size += len(cells)
        if threads is not None:
            self._threads.append(threads)

    def add_box(self, box: tuple[slice, ...], shape: tuple[int, ...]) -> bool:
        """The block touches a box of a tensor of that shape; False where that must be told by
        cells.
        """
        if self._mask is None or len(self._mask) != prod(shape):
            return False
        if all(at.stop > at.start for at in box):
            corners = tuple([(at.start, at.stop) for at in box])
            self._boxes[corners] = self._boxes.get(corners, 0) + 1
            self._shape = shape
        return True

    def _paint(self, mask: Array) -> None:
        """Count the boxes in the mask."""
        for corners, times in self._boxes.items():
            box = tuple([slice(*each) for each in corners])
            self._side.times.reshape(self._shape)[box] += times
            mask.reshape(self._shape)[box] = True
            first, last = 0, 0
            for (start, stop), extent in zip(corners, self._shape, strict=True):
                first, last = first * extent + start, last * extent + stop - 1
            self._range = min(first, self._range[0]), max(last + 1, self._range[1])
        self._boxes = {}

    def count(self) -> None:
        """Count what was gathered."""
        if not self.size:
            return
        cells, times = np.concatenate(self._cells), self._side.times
        first, last = int(cells.min()), int(cells.max()) + 1
        if last - first <= 4 * len(cells):
            counts = np.bincount(cells - first, minlength=last - first)
            times[first:last] += counts
            unique = np.flatnonzero(counts) + first
        else:
            unique, counts = np.unique(cells, return_counts=True)
            times[unique] += counts
        if self._mask is None:
            self._touched = np.union1d(self._touched, unique)
        else:
            self._mask[unique] = True
            self._range = min(first, self._range[0]), max(last, self._range[1])
        if self._threads:
            threads = np.concatenate(self._threads)
            keys = (cells * _THREADS + threads)[threads >= 0]
            self._owned = np.union1d(self._owned, keys)
        self._cells, self._threads, self.size = [], [], 0

    def end(self, block: int, boxes: _Boxes) -> None:
        """The block has ended. `boxes` are those of the side."""
        if self._boxes and not self.size and not self._range[1] and _are_disjoint(self._boxes):
            boxes.add(self._shape, self._boxes, block)
            return
        self.count()
        side, cells = self._side, self._touched
        if self._mask is not None:
            self._paint(self._mask)
            first, last = self._range
            cells = np.flatnonzero(self._mask[first:last]) + first
        side.add_block(cells, block)
        if len(self._owned):
            cells, first_of, many = np.unique(
                self._owned // _THREADS, return_index=True, return_counts=True
            )
            side.add_threads(cells, many, self._owned[first_of] % _THREADS)


class FootprintRecorder(Observer):
    """Counts the accesses of a run; `finish` when it has ended, in whatever way.

    `tensors` by name; `lanes` by site, tensor and kind of access: how many took part, and how many
    could; `tiles` by name: elements of shared memory that were read, and written; `launches` are
    the grids of those that touched a tensor, `seen` their blocks that did, numbered over all of
    them (x fastest). With `only`, nothing is recorded but the block of that number in each launch,
    and with it which of its threads did what. `side_by_side`: all blocks run at the same time.
    """

    of_registers = False

    def __init__(self, only: int | None = None, side_by_side: bool = False) -> None:
        self.tensors: dict[str, Counts] = {}
        self.lanes: dict[tuple[int, str, str], list[int]] = {}
        self.tiles: dict[str, list[int]] = {}
        self.launches: list[tuple[int, ...]] = []
        self.seen: set[int] = set()
        self._only, self._side_by_side = only, side_by_side
        self._named: dict[str, Counts | None] = {}  # by the names of views too
        self._launch, self._first = 0, 0  # the current launch, and the number of its first block
        self._together = -1  # the cluster that runs now
        self._open: dict[tuple[int, str, bool], _Batch] = {}
        self._boxes: dict[tuple[str, bool], _Boxes] = {}
        self._kept = 0

    def bound(self, storage: Storage) -> None:
        size, cell = int(storage.data.size), 1
        while size > MOST_CELLS * cell:
            cell *= 2
        cells = -(-size // cell)
        item, address = storage.data.itemsize, _address(storage)
        sides = (Side.of(cells) for _ in range(2))
        made = Counts(storage.name, size, cell, item, address, *sides)
        self.tensors[storage.name] = self._named[storage.name] = made

    def asked(self, frame: Frame, storage: Storage, access: str, active: int, lanes: int) -> None:
        counts = self._tensor(storage)
        if counts is not None and self._is_recorded(frame):
            tally = self.lanes.setdefault((frame.site, counts.name, access), [0, 0])
            tally[0] += active
            tally[1] += lanes

    def read(self, frame: Frame, storage: Storage, place: Any, threads: Any) -> None:
        self._note(frame, storage, place, threads, False)

    def wrote(
        self, frame: Frame, storage: Storage, place: Any, threads: Any, registers: Any
    ) -> None:
        self._note(frame, storage, place, threads, True)

    def started(self, frame: Frame, operation: Operation) -> None:
        for storage, place in operation.targets:  # others are told of when they are executed
            if operation.engine == Engine.CP_ASYNC.value and isinstance(storage, ArenaStorage):
                self._note(frame, storage, place, operation.threads, True)

    def finish(self) -> None:
        """Count the rest."""
        self._end_blocks()
        for boxes in self._boxes.values():
            boxes.paint()

    def _end_blocks(self) -> None:
        for (block, name, written), batch in self._open.items():
            batch.end(block, self._boxes[name, written])
        self._open, self._kept = {}, 0

    def _note(
        self, frame: Frame, storage: Storage, place: Any, threads: Any, written: bool
    ) -> None:
        if not self._is_recorded(frame):
            return
        if storage.scope == "shared":
            self.tiles.setdefault(storage.name, [0, 0])[written] += _count(place)
            return
        counts = self._tensor(storage) if storage.scope == "global" else None
        if counts is None:
            return
        key = (self._block(frame), counts.name, written)
        batch = self._open.get(key)
        if batch is None:
            side = counts.stores if written else counts.loads
            batch = self._open[key] = _Batch(side, not self._side_by_side)
            self._boxes.setdefault(key[1:], _Boxes(side))
        boxed = bool(place) and isinstance(place[0], slice)
        if boxed and batch.add_box(place, storage.data.shape):
            return
        cells = _flat(place, storage.data.shape).reshape(-1)
        if storage.data.itemsize != counts.item:
            cells = cells * storage.data.itemsize // counts.item
        if counts.cell > 1:
            cells = cells // counts.cell
        owners = None
        if self._only is not None:
            owners = np.broadcast_to(np.asarray(threads).reshape(-1), cells.shape)
        batch.add(cells, owners)
        if batch.size > _BATCH:
            self._kept -= batch.kept
            batch.count()
            self._kept += batch.kept
            if self._kept > MOST_KEPT:
                raise SimulatorLimitError(
                    f"blocks that run side by side touch more than {MOST_KEPT} elements"
                )

    def _is_recorded(self, frame: Frame) -> bool:
        return self._only is None or frame.number_in_launch() == self._only

    def _tensor(self, storage: Storage) -> Counts | None:
        """The parameter that `storage` is, or is a view of."""
        if storage.name not in self._named:
            address = _address(storage)
            same = (each for each in self.tensors.values() if each.address == address)
            self._named[storage.name] = next(same, None)
        return self._named[storage.name]

    def _block(self, frame: Frame) -> int:
        """The number of the current block, -1 outside a launch; when a block of another cluster
        begins, those before it have ended.
        """
        if not frame.block:
            return -1
        if frame.launch != self._launch:
            self._end_blocks()
            self._first += prod(self.launches[-1]) if self.launches else 0
            self._launch = frame.launch
            self.launches.append(frame.grid)
        if frame.block_number != self._together and not self._side_by_side:
            self._end_blocks()
            self._together = frame.block_number
        number = self._first + frame.number_in_launch()
        self.seen.add(number)
        return number


def _address(storage: Storage) -> int:
    data = storage.data
    return int(data.ctypes.data) if isinstance(data, np.ndarray) else id(data)


def _count(place: Any) -> int:
    if place and isinstance(place[0], slice):
        return prod(at.stop - at.start for at in place)
    return max((np.size(at) for at in place), default=1)


def _flat(place: Any, shape: tuple[int, ...]) -> Array:
    """The row-major positions of a place."""
    flat = np.zeros((), np.int64)
    for axis, (at, extent) in enumerate(zip(place, shape, strict=True)):
        if isinstance(at, slice):
            at = np.arange(at.start, at.stop).reshape(-1, *(1,) * (len(shape) - axis - 1))
        flat = np.asarray(flat * extent + np.asarray(at, np.int64))
    return flat
