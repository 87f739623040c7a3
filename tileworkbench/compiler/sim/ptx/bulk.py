"""Bulk and tensor copies (PTX ISA, "cp.async.bulk", "cp.async.bulk.tensor", bulk groups).

A copy into shared memory tells a barrier in memory how many bytes it has brought; one out of shared
memory belongs to a bulk group of the thread that started it. In the mode "lazy" both are done when
somebody waits for them: what was overwritten in between shows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from tileworkbench.compiler.diagnostics import RunError
from tileworkbench.compiler.sim.ptx.access import locate_bytes, split_generic
from tileworkbench.compiler.sim.ptx.clusters import rank_address, resolve
from tileworkbench.compiler.sim.ptx.errors import locate, unsupported
from tileworkbench.compiler.sim.ptx.floats import decode_bits, encode_bits
from tileworkbench.compiler.sim.ptx.loads import over_lanes
from tileworkbench.compiler.sim.ptx.memory import SHARED_WINDOW
from tileworkbench.compiler.sim.ptx.module import Address, Instruction, Operand
from tileworkbench.compiler.sim.ptx.numeric import Array
from tileworkbench.compiler.sim.ptx.operands import Decoder, Reader
from tileworkbench.compiler.sim.ptx.state import State, Step
from tileworkbench.compiler.sim.ptx.tensormap import (
    MAP_BYTES,
    TensorMap,
    decode_number,
    swizzle,
)


def decode_bulk(i: Instruction, d: Decoder) -> Step:
    if i.has("commit_group"):
        return lambda state: state.asynchronous.commit_stores()
    if i.has("wait_group"):
        allowed = int(d.constant(i.operands[0], "u32"))
        return lambda state: state.asynchronous.wait_stores(allowed)
    if i.has("prefetch"):
        return lambda state: None
    if i.opcode != "cp" or i.has("im2col", "tile::gather4"):
        raise unsupported(i)
    if i.has("reduce") and not (i.has("tensor") and i.has("add")):
        raise unsupported(i)
    to_shared = _first_space(i) == "shared"
    if i.has("multicast::cluster") and not (i.has("tensor") and to_shared):
        raise unsupported(i)
    if i.has("tensor"):
        return _tensor_load(i, d) if to_shared else _tensor_store(i, d)
    return _plain_load(i, d) if to_shared else _plain_store(i, d)


def _first_space(i: Instruction) -> str:
    """The space that a copy writes: the first one named."""
    names = (name.split("::")[0] for name in i.modifiers)
    return next(name for name in names if name in ("shared", "global"))


def _coordinates(i: Instruction, d: Decoder, operand: Operand) -> list[Reader]:
    if not isinstance(operand, Address):
        raise unsupported(i, "a tensor operand without coordinates")
    return [d.read(each, "s32") for each in operand.coordinates]


def _find_map(state: State, address: int) -> tuple[TensorMap, int]:
    """The tensor map at a generic address, in parameter or global memory, and where its tensor
    begins in global memory."""
    everywhere = np.full(state.lanes, address, dtype=np.int64)
    ((space, lanes, places),) = split_generic(state, everywhere)
    first = locate_bytes(state, space, lanes[:1], places[:1], MAP_BYTES, "reads", 64)
    start = int(first[0])
    number = decode_number(state.memory.view(space, 8)[start : start + MAP_BYTES].tobytes())
    if number is None:
        raise RunError(f"there is no tensor map where {locate(state.instruction)} looks for one")
    map_, start_address = state.tensor_maps[number]
    return map_, state.memory.global_memory.place_of(start_address)


def _shared(value: int) -> int:
    return value - SHARED_WINDOW if value >= SHARED_WINDOW else value


def _tensor_load(i: Instruction, d: Decoder) -> Step:
    target, source = d.read_address(i.operands[0]), d.read_address(i.operands[1])
    coordinates, barrier = _coordinates(i, d, i.operands[1]), d.read_address(i.operands[2])
    mask = d.read(i.operands[3], "u16") if i.has("multicast::cluster") else None

    def step(state: State) -> None:
        targets, sources, barriers = target(state), source(state), barrier(state)
        starts = [over_lanes(state, each(state)) for each in coordinates]
        masks = None if mask is None else over_lanes(state, mask(state))
        for lane in state.index:
            map_, base = _find_map(state, int(sources[lane]))
            start = np.array([int(each[lane]) for each in starts])
            offsets, inside = map_.elements(start)
            width = map_.itemsize
            to = _shared(int(targets[lane]))
            locate_bytes(
                *(state, "shared", np.array([lane]), np.array([to]), map_.box_bytes),
                *("copies into", 128),
            )
            linear = to + np.arange(len(offsets), dtype=np.int64) * width
            places = swizzle(linear, map_.swizzle)

            read = partial(_read_rows, state, base + offsets, inside, width)
            told = _shared(int(barriers[lane]))
            for block in _blocks(state, int(lane), None if masks is None else int(masks[lane])):
                _start_load(state, int(lane), places, width, read, told, block)

    return step


def _blocks(state: State, lane: int, mask: int | None) -> list[int]:
    """The blocks of the batch that a load goes to: the lane's own, or those of a mask of ranks.
    Each of them gets it at the same offsets, and is told at the barrier of the same offset.
    """
    if mask is None:
        return [int(state.geometry.block_index[lane])]
    if not mask:
        raise RunError(f"a load to no block of the cluster: {locate(state.instruction)}")
    ranks = np.array([rank for rank in range(mask.bit_length()) if mask >> rank & 1])
    owners, _ = resolve(state, np.full(len(ranks), lane), rank_address(ranks))
    return [int(owner) for owner in owners]


def _plain_load(i: Instruction, d: Decoder) -> Step:
    target, source = d.read_address(i.operands[0]), d.read_address(i.operands[1])
    size, barrier = d.read(i.operands[2], "u32"), d.read_address(i.operands[3])

    def step(state: State) -> None:
        targets, sources, barriers = target(state), source(state), barrier(state)
        sizes = over_lanes(state, size(state))
        for lane in state.index:
            count, here = int(sizes[lane]), np.array([lane])
            from_ = locate_bytes(state, "global", here, sources[here], count, "copies", 16)
            to = np.array([_shared(int(targets[lane]))])
            locate_bytes(state, "shared", here, to, count, "copies into", 16)
            steps = np.arange(0, count, 16, dtype=np.int64)
            places, there = to + steps, np.ones(len(steps), dtype=bool)
            read = partial(_read_rows, state, from_ + steps, there, 16)
            told = _shared(int(barriers[lane]))
            _start_load(
                state, int(lane), places, 16, read, told, _blocks(state, int(lane), None)[0]
            )

    return step


def _read_rows(state: State, places: Array, inside: Array, width: int) -> Array:
    """Elements of `width` bytes of global memory, zeros where they are not `inside`."""
    rows = np.zeros((len(places), width), dtype=np.uint8)
    view = state.memory.view("global", 8)
    rows[inside] = view[places[inside][:, None] + np.arange(width)]
    return rows


def _start_load(
    state: State,
    lane: int,
    places: Array,
    width: int,
    read: Callable[[], Array],
    barrier: int,
    block: int,
) -> None:
    """Bring elements of `width` bytes to `places` of a block's memory and tell its barrier of the
    bytes.
    """
    asynchronous, pc = state.asynchronous, state.pc
    asynchronous.require_known(block, barrier)
    chunks = np.unique(places & ~np.int64(15))
    lanes, owners = np.full(len(chunks), lane), np.full(len(chunks), block)
    there = np.full(len(chunks), block * state.geometry.block_lanes)  # who sees what has landed
    if state.shadow is not None and asynchronous.lazy:
        state.shadow.start_copy(lanes, chunks, 16, owners, proxy=True)

    def land() -> None:
        rows = read()
        base = block * state.memory.shared_stride
        state.memory.shared[(base + places)[:, None] + np.arange(width)] = rows
        if state.shadow is not None:
            state.shadow.finish_bulk_copy(there, chunks, 16, pc)
        asynchronous.complete(block, barrier, rows.size)

    asynchronous.queue(block, barrier, land)


def _tensor_store(i: Instruction, d: Decoder) -> Step:
    target, source = d.read_address(i.operands[0]), d.read_address(i.operands[1])
    coordinates = _coordinates(i, d, i.operands[0])

    def step(state: State) -> None:
        targets, sources = target(state), source(state)
        starts = [over_lanes(state, each(state)) for each in coordinates]
        for lane in state.index:
            map_, base = _find_map(state, int(targets[lane]))
            offsets, inside = map_.elements(np.array([int(each[lane]) for each in starts]))
            from_ = _shared(int(sources[lane]))
            locate_bytes(
                *(state, "shared", np.array([lane]), np.array([from_]), map_.box_bytes),
                *("copies", 128),
            )
            width = map_.itemsize
            linear = from_ + np.arange(len(offsets), dtype=np.int64) * width
            places = swizzle(linear, map_.swizzle)
            add = _adder(i, map_.element) if i.has("reduce") else None
            _start_store(state, int(lane), places[inside], (base + offsets)[inside], width, add)

    return step


def _adder(i: Instruction, element: str) -> Callable[[Array, Array], Array]:
    """The sum of elements given as rows of bytes: floats are rounded to nearest."""
    if element == "bfloat16":
        return lambda a, b: _bytes(encode_bits(_bfloat16(a) + _bfloat16(b), "bf16"))
    if element not in ("float32", "float16", "int32", "uint32", "uint64"):
        raise unsupported(i, f"adding '{element}'")
    return lambda a, b: _bytes(a.view(element) + b.view(element))


def _bfloat16(rows: Array) -> Array:
    return decode_bits(rows.view(np.uint16), "bf16").astype(np.float64)


def _bytes(values: Array) -> Array:
    return np.ascontiguousarray(values).view(np.uint8)


def _plain_store(i: Instruction, d: Decoder) -> Step:
    target, source = d.read_address(i.operands[0]), d.read_address(i.operands[1])
    size = d.read(i.operands[2], "u32")

    def step(state: State) -> None:
        targets, sources = target(state), source(state)
        sizes = over_lanes(state, size(state))
        for lane in state.index:
            count, here = int(sizes[lane]), np.array([lane])
            to = locate_bytes(state, "global", here, targets[here], count, "copies into", 16)
            from_ = np.array([_shared(int(sources[lane]))])
            locate_bytes(state, "shared", here, from_, count, "copies", 16)
            steps = np.arange(0, count, 16, dtype=np.int64)
            _start_store(state, int(lane), from_ + steps, to + steps, 16)

    return step


def _start_store(
    state: State,
    lane: int,
    places: Array,
    to: Array,
    width: int,
    add: Callable[[Array, Array], Array] | None = None,
) -> None:
    """Take elements of `width` bytes from `places` to bytes `to` of global memory, or `add` them to
    those.
    """
    base = int(state.geometry.block_index[lane]) * state.memory.shared_stride
    chunks = np.unique(places & ~np.int64(15))
    lanes = np.full(len(chunks), lane)
    if state.shadow is not None:
        state.shadow.read(lanes, chunks, 16, proxy=True)

    def run() -> None:
        steps = np.arange(width)
        rows = state.memory.shared[(base + places)[:, None] + steps]
        view, there = state.memory.view("global", 8), to[:, None] + steps
        view[there] = rows if add is None else add(view[there], rows)

    state.asynchronous.start_store(lane, run)
