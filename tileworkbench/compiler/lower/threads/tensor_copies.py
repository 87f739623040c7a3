"""Copies between global and shared memory that the copy engine does (TMA): which can be, in which
boxes, and why others cannot.

The engine takes boxes of up to 256 elements along each dimension of a tensor, whose rows start at
multiples of 16 bytes. It stores them one behind the other, swizzled by bits of the address, from a
multiple of 128 bytes on (CUDA driver API, "cuTensorMapEncodeTiled"; PTX ISA, "Tensor copies"). A
tile is cut in boxes that are contiguous in its layout, so the layout that its readers agreed on
decides about the swizzle, and tiles with another layout are copied by threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod

from tileworkbench.compiler.diagnostics import ShapeError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.build import add, cast, const_int, int_const, mul
from tileworkbench.compiler.ir.expr import Address, Buffer, Expr, Region
from tileworkbench.compiler.ir.printer import print_expr
from tileworkbench.compiler.ir.sizes import const_shape, strides_of
from tileworkbench.compiler.ir.stmt import Atomic, AtomicKind, Stmt
from tileworkbench.compiler.ir.tile import Copy
from tileworkbench.compiler.ir.types import INT32
from tileworkbench.compiler.layout.layout import Layout
from tileworkbench.compiler.lower.shared.regions import match_dims
from tileworkbench.compiler.lower.threads.context import ThreadContext
from tileworkbench.compiler.machine.instructions import Boxes, CopyEngine

_MOST_BOXES = 32
# What it adds to elements of global memory (PTX ISA, "cp.reduce.async.bulk").
_SUMS = ("float32", "float16", "bfloat16", "int32", "uint32", "uint64")


class Unsuitable(Exception):
    """Why the copy engine cannot do a copy, as the end of a sentence."""


class Impossible(Unsuitable):
    """The same where only another tensor or tile would help, and which."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(reason)
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class TensorCopy:
    """A copy as the engine does it: boxes of `box` elements of `tensor`, swizzled by `swizzle`
    bytes, each from an element of the tensor to one of the `tile`, or back.
    """

    tensor: Buffer
    tile: Buffer
    box: tuple[int, ...]
    swizzle: int
    places: tuple[tuple[tuple[Expr, ...], Address], ...]

    @property
    def bytes_(self) -> int:
        """The bytes of the whole copy."""
        return len(self.places) * prod(self.box) * self.tensor.dtype.bits // 8

    def __str__(self) -> str:
        return f"TMA, {self.swizzle}-byte swizzle" if self.swizzle else "TMA"


@dataclass(frozen=True, slots=True)
class _Level:
    """Neighbours in the memory of a tile: `extent` of the `size` that there are, along dimension
    `dim` of the tile, `step` elements apart. With `apart` they are never in one box.
    """

    dim: int
    size: int
    extent: int
    step: int = 1
    apart: bool = False


def between(op: Copy) -> bool:
    """Whether a copy is between global and shared memory."""
    return {op.src.buffer.scope, op.dst.buffer.scope} == {"global", "shared"}


def plan(op: Copy, context: ThreadContext, adds: bool = False) -> TensorCopy:
    """How the copy engine does `op`, or with `adds` an addition to its destination. Raises
    `Unsuitable` where it cannot.
    """
    loads = op.src.buffer.scope == "global"
    tensor, tile = (op.src, op.dst) if loads else (op.dst, op.src)
    engine = context.target.machine.box_copies("shared" if loads else "global")
    if engine is None or engine.boxes is None:
        raise Unsuitable(f"{context.target.arch} has no engine for it")
    boxes = engine.boxes
    if tile.buffer in context.peers or tile.buffer in context.reached:
        raise Unsuitable(f"threads of several blocks access '{tile.buffer.name}'")
    _check_tensor(op, tensor.buffer, engine, context)
    (_check_sum if adds else _check_alone)(tensor.buffer, loads, context)
    try:
        pairs = match_dims(op, context)
    except ShapeError:
        raise Unsuitable("the extents of its two sides are not the same") from None
    if not loads:
        pairs = [(d, s) for s, d in pairs]
    for region in (tensor, tile):
        if any(const_int(extent) is None for extent in region.extents):
            raise Unsuitable("its extents are known at run time only")
    if any(const_int(tensor.extents[g]) != const_int(tile.extents[t]) for g, t in pairs):
        raise Unsuitable("the extents of its two sides are not the same")
    swizzle = _swizzle(tile.buffer, engine)
    if swizzle:
        _check_swizzled(tile, swizzle, boxes, context)
    levels = list(_levels(tile, swizzle))
    box, steps = _cut(levels, boxes.extent)
    extents = [1] * len(tensor.extents)
    for g, t in pairs:
        extents[g] = box[t]
    _check_box(extents, tensor.buffer, engine)
    dims = {t: g for g, t in pairs}
    places = tuple(_places(tensor, tile, steps, dims))
    for _, place in places:
        if not swizzle:  # a swizzled box starts where the swizzle repeats
            _check_place(place, boxes, context)
    return TensorCopy(tensor.buffer, tile.buffer, tuple(extents), swizzle, places)


def _check_tensor(op: Copy, tensor: Buffer, engine: CopyEngine, context: ThreadContext) -> None:
    """What the engine asks of a tensor in global memory."""
    dtype, other = tensor.dtype, (op.dst if op.src.buffer is tensor else op.src).buffer.dtype
    if other != dtype:
        raise Unsuitable(f"'{dtype}' and '{other}' are converted")
    if dtype.bits not in (8, 16, 32, 64) or dtype.lanes != 1:
        remedy = "elements of 8, 16, 32 or 64 bits"
        raise Impossible(f"elements of '{dtype}' are none of the engine's", remedy)
    most = 0 if engine.boxes is None else engine.boxes.dims
    if not 1 <= len(tensor.shape) <= most:
        reason = f"'{tensor.name}' has {len(tensor.shape)} dimensions, at most {most} can be"
        raise Impossible(reason, "a tensor of fewer dimensions")
    if tensor not in context.uses.tensors:
        raise Unsuitable(f"'{tensor.name}' is no tensor that the caller passes")
    *strides, last = strides_of(tensor)
    if const_int(last) != 1:
        raise Unsuitable(f"neighbours in a row of '{tensor.name}' are not next to each other")
    size = dtype.bits // 8
    for stride in strides:
        if not context.ranges.divides(engine.alignment // size, stride):
            count = const_int(stride)
            if count is not None:
                raise Impossible(
                    f"rows of {count * size} bytes are not multiples of {engine.alignment}",
                    f"a tensor whose rows are padded to a multiple of {engine.alignment} bytes",
                )
            raise Unsuitable(
                f"rows of '{print_expr(stride)}' elements are not known to be multiples of "
                f"{engine.alignment} bytes"
            )


def _check_alone(tensor: Buffer, loads: bool, context: ThreadContext) -> None:
    """Whether the engine has the tensor to itself."""
    uses = context.uses
    if loads and tensor in uses.writers:
        raise Unsuitable(f"'{tensor.name}' is written in the same launch, too")
    if not loads and tensor in uses.readers:
        raise Unsuitable(f"'{tensor.name}' is read in the same launch, too")
    if not loads and not all(_is_store(stmt) for stmt in uses.writers[tensor]):
        raise Unsuitable(f"threads store to '{tensor.name}', too")
    if loads and tensor.name in context.safe_values:
        raise Unsuitable(f"what is outside '{tensor.name}' is not zero")


def _check_sum(tensor: Buffer, loads: bool, context: ThreadContext) -> None:
    """Whether the engine can add to the elements of a tensor, which others may do, too."""
    uses = context.uses
    if str(tensor.dtype) not in _SUMS:
        raise Unsuitable(f"it does not add '{tensor.dtype}'")
    if not all(map(_is_sum, (*uses.writers[tensor], *uses.readers.get(tensor, ())))):
        raise Unsuitable(f"'{tensor.name}' is also read or written otherwise in the same launch")


def _is_sum(stmt: Stmt) -> bool:
    return isinstance(stmt, Atomic) and stmt.kind is AtomicKind.ADD and stmt.previous is None


def _is_store(stmt: Stmt) -> bool:
    return isinstance(stmt, Copy) and between(stmt)


def _swizzle(tile: Buffer, engine: CopyEngine) -> int:
    """The width of the swizzle that is the layout of `tile`, 0 for rows one behind the other."""
    layout, shape = tile.layout, const_shape(tile)
    if shape is None or not isinstance(layout, Layout) or layout == Layout.row_major(shape):
        return 0
    row = shape[-1] * tile.dtype.bits if len(shape) > 1 else 0
    for width in engine.swizzles:
        whole = width and row and row % (width * 8) == 0
        if whole and layout == Layout.swizzled(shape, tile.dtype.bits, width):
            return width
    raise Unsuitable(f"the layout of '{tile.name}' is none that the engine stores")


def _check_swizzled(tile: Region, swizzle: int, boxes: Boxes, context: ThreadContext) -> None:
    """Boxes of a swizzled tile are whole repetitions of the swizzle."""
    rows, width = boxes.swizzle_rows, swizzle * 8 // tile.buffer.dtype.bits
    whole = (
        (rows, tile.buffer.shape[-2]),
        (rows, tile.extents[-2]),
        (rows, tile.mins[-2]),
        (width, tile.extents[-1]),
        (width, tile.mins[-1]),
    )
    if not all(context.ranges.divides(number, value) for number, value in whole):
        raise Unsuitable(f"it takes a part of '{tile.buffer.name}' that cuts its swizzle")


def _levels(tile: Region, swizzle: int) -> Iterator[_Level]:
    """The levels of a tile's memory, innermost first."""
    shape = const_shape(tile.buffer) or ()
    extents = [const_int(extent) or 0 for extent in tile.extents]
    last = len(shape) - 1
    rest = range(last, -1, -1)
    if swizzle:
        width = swizzle * 8 // tile.buffer.dtype.bits
        yield _Level(last, width, width)
        yield _Level(last - 1, shape[last - 1], extents[last - 1])
        yield _Level(last, shape[last] // width, extents[last] // width, width, apart=True)
        rest = range(last - 2, -1, -1)
    for dim in rest:
        yield _Level(dim, shape[dim], extents[dim])


def _cut(levels: list[_Level], most: int) -> tuple[dict[int, int], list[tuple[int, range]]]:
    """The extent of a box along each dimension of the tile, at most `most`, and the dimensions
    along which there are several boxes, with where they start.
    """
    box: dict[int, int] = {}
    steps: list[tuple[int, range]] = []
    contiguous = True
    for level in levels:
        taken = 1
        if contiguous and not level.apart:
            fits = (n for n in range(min(level.extent, most), 0, -1))
            taken = next((n for n in fits if level.extent % n == 0), 1)
        contiguous = contiguous and taken == level.size
        box[level.dim] = box.get(level.dim, 1) * taken
        if taken < level.extent:
            stop = level.extent * level.step
            steps.append((level.dim, range(0, stop, taken * level.step)))
    return box, steps


def _check_box(box: list[int], tensor: Buffer, engine: CopyEngine) -> None:
    row = box[-1] * tensor.dtype.bits // 8
    if row % engine.alignment:
        raise Impossible(
            f"rows of {row} bytes in the tile are not multiples of {engine.alignment}",
            f"a tile with rows of a multiple of {engine.alignment} bytes",
        )


def _places(
    tensor: Region, tile: Region, steps: list[tuple[int, range]], dims: dict[int, int]
) -> Iterator[tuple[tuple[Expr, ...], Address]]:
    """Where each box starts in the tensor and in the tile. Raises `Unsuitable` for too many."""
    count = prod(len(starts) for _, starts in steps)
    if count > _MOST_BOXES or 0 in map(const_int, tile.extents):
        reason = f"it would take {count} boxes, more than {_MOST_BOXES}"
        raise Impossible(reason, "several copies of parts")
    for starts in product(*(starts for _, starts in reversed(steps))):
        origin, place = list(tensor.mins), list(tile.mins)
        for (t, _), start in zip(reversed(steps), starts, strict=True):
            place[t] = add(place[t], int_const(start))
            if t in dims:
                g = dims[t]
                origin[g] = add(origin[g], cast(int_const(start), origin[g].dtype))
        yield tuple(cast(at, INT32) for at in origin), Address(tile.buffer, tuple(place))


def _check_place(place: Address, boxes: Boxes, context: ThreadContext) -> None:
    """A box that is not swizzled starts where the engine can store it."""
    flat: Expr = int_const(0)
    for index, stride in zip(place.indices, strides_of(place.buffer), strict=True):
        flat = add(flat, mul(index, stride))
    if not context.ranges.divides(boxes.alignment * 8 // place.buffer.dtype.bits, flat):
        raise Unsuitable(
            f"its boxes in '{place.buffer.name}' do not start at multiples of {boxes.alignment} "
            "bytes"
        )
