"""Warpgroup matrix instructions (PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions").

Each of the four warps of a warpgroup computes its 16 of the 64 rows, so that a warp is what is
executed here. In the mode "lazy" a product reads its operands and writes its accumulators when a
``wait_group`` requires it.

A descriptor of an operand in shared memory has its start address, two byte offsets (leading and
stride) in units of 16 bytes, and the swizzle. With W bytes of swizzle (128, 64 or 32) and elements
of b bytes, element (m, k) of an operand whose rows run along k lies at byte
(m div 8) stride + (m mod 8) W + b k, and of one whose columns run along m, with T = W / b, at
(m div T) leading + b (m mod T) + (k div 8) stride + (k mod 8) W; then the swizzle permutes the
16-byte chunks by the bits of the address. Without a swizzle the operand is made of blocks of eight
rows of 16 bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tileworkbench.compiler.diagnostics import RaceError
from tileworkbench.compiler.sim.ptx.access import locate_bytes
from tileworkbench.compiler.sim.ptx.errors import locate, unsupported
from tileworkbench.compiler.sim.ptx.geometry import WARP
from tileworkbench.compiler.sim.ptx.loads import over_lanes
from tileworkbench.compiler.sim.ptx.matrix import (
    gather_a,
    operand_matrix,
    register_slots,
    require_whole_warps,
)
from tileworkbench.compiler.sim.ptx.module import Instruction, Vector
from tileworkbench.compiler.sim.ptx.numeric import Array, from_bfloat16, from_float8
from tileworkbench.compiler.sim.ptx.operands import Decoder, Reader
from tileworkbench.compiler.sim.ptx.state import State, Step
from tileworkbench.compiler.sim.ptx.tensormap import swizzle

_BYTES = {"f16": 2, "bf16": 2, "tf32": 4, "e4m3": 1, "e5m2": 1, "s8": 1, "u8": 1}
_SWIZZLES = ("none", "128B", "64B", "32B")
_WIDTHS = {"none": 16, "128B": 128, "64B": 64, "32B": 32}


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A matrix descriptor, its offsets in bytes."""

    start: int
    leading: int
    stride: int
    swizzle: str

    @classmethod
    def decode(cls, bits: int) -> Descriptor:
        def field(shift: int) -> int:
            return (bits >> shift & 0x3FFF) << 4

        return cls(field(0), field(16), field(32), _SWIZZLES[bits >> 62 & 3])

    def places(self, m: Array, count: int, width: int, transposed: bool) -> Array:
        """The byte address of each element: a row for each of `m`, a column for each k below
        `count`. `width` is the bytes of an element."""
        row, k = m[:, None], np.arange(count)
        across = _WIDTHS[self.swizzle]
        if transposed:
            per_line = across // width
            line, rest = row // per_line, row % per_line * width
            groups = (self.stride, self.leading)
            if self.swizzle != "none":
                groups = (self.leading, self.stride)
            linear = line * groups[0] + rest + k // 8 * groups[1] + k % 8 * across
        elif self.swizzle == "none":
            bytes_ = k * width
            linear = row // 8 * self.stride + row % 8 * 16
            linear = linear + bytes_ // 16 * self.leading + bytes_ % 16
        else:
            linear = row // 8 * self.stride + row % 8 * across + k * width
        return swizzle(self.start + linear, self.swizzle)


def _numbers(raw: Array, kind: str) -> Array:
    """The bits of elements as numbers that multiply exactly."""
    if kind == "f16":
        return np.asarray(raw.view(np.float16).astype(np.float32))
    if kind == "bf16":
        return from_bfloat16(raw)
    if kind == "tf32":
        return np.asarray((raw & np.uint32(0xFFFFE000)).view(np.float32))
    if kind in ("e4m3", "e5m2"):
        return from_float8(raw, kind)
    integers: Array = raw.view(np.int8 if kind == "s8" else np.uint8)
    return integers.astype(np.float64)


@dataclass(frozen=True, slots=True)
class _Shape:
    """What one mma_async computes: D[64, n] of type `result` from k columns."""

    n: int
    k: int
    result: str
    a_kind: str
    b_kind: str
    a_transposed: bool
    b_transposed: bool


def decode_wgmma(i: Instruction, d: Decoder) -> Step:
    if i.has("fence"):
        return lambda state: state.asynchronous.fence_registers()
    if i.has("commit_group"):
        return lambda state: state.asynchronous.commit_products()
    if i.has("wait_group"):
        allowed = int(d.constant(i.operands[0], "u32"))
        return lambda state: state.asynchronous.wait_products(allowed)
    if not i.has("mma_async") or i.has("sp"):
        raise unsupported(i)
    return _decode_product(i, d)


def _read_shape(i: Instruction, d: Decoder) -> _Shape:
    match = next(m for name in i.modifiers if (m := re.fullmatch(r"m64n(\d+)k(\d+)", name)))
    result, a_kind, b_kind = i.modifiers[-3:]
    if a_kind not in _BYTES or b_kind not in _BYTES or result not in ("f32", "f16", "s32"):
        raise unsupported(i, "a type of wgmma")
    flags = [int(d.constant(each, "s32")) for each in i.operands[4:]]
    if any(sign != 1 for sign in flags[:2]) and result != "s32":
        raise unsupported(i, "a negated operand")
    from_registers = isinstance(i.operands[1], Vector)
    transposes = [bool(flag) for flag in flags[2:]]
    a_transposed = transposes.pop(0) if transposes and not from_registers else False
    b_transposed = transposes.pop(0) if transposes else False
    return _Shape(
        *(int(match[1]), int(match[2]), result, a_kind, b_kind), a_transposed, b_transposed
    )


def _decode_product(i: Instruction, d: Decoder) -> Step:
    shape = _read_shape(i, d)
    slots = register_slots(i, i.operands[0])
    scale = d.read(i.operands[3], "pred")
    b_descriptor = d.read(i.operands[2], "b64")
    a_slots: list[int] = []
    a_descriptor: Reader | None = None
    if isinstance(i.operands[1], Vector):
        a_slots = register_slots(i, i.operands[1])
    else:
        a_descriptor = d.read(i.operands[1], "b64")

    def step(state: State) -> None:
        warps = require_whole_warps(state)
        if not state.asynchronous.is_fenced(warps, (*slots, *a_slots)):
            raise RaceError(
                "a product uses registers that were written behind the last wgmma.fence of the "
                f"warp: {locate(i)}",
                hint="execute 'wgmma.fence.sync.aligned' behind the writes",
            )
        first = warps * WARP
        keeps = over_lanes(state, scale(state))[first]
        b = over_lanes(state, b_descriptor(state))[first]
        a = over_lanes(state, a_descriptor(state))[first] if a_descriptor else None
        operands = {
            int(warp): (int(a[at]) if a is not None else None, int(b[at]), bool(keeps[at]))
            for at, warp in enumerate(warps)
        }
        run = _product(state, shape, slots, a_slots, operands)
        state.asynchronous.start_product(warps, run)

    return step


def _product(
    state: State,
    shape: _Shape,
    slots: list[int],
    a_slots: list[int],
    operands: dict[int, tuple[int | None, int, bool]],
) -> Callable[[Array], None]:
    """A function that computes the product in some of the warps that executed it."""
    pc = state.pc

    def run(warps: Array) -> None:
        here, state.pc = state.pc, pc
        if state.shadow is not None:
            state.shadow.pc = pc
        totals = []
        read: dict[tuple[int, int], Array] = {}  # of B, which the warps of a block share
        for warp in warps:
            a_bits, b_bits, keeps = operands[int(warp)]
            a = _left(state, shape, a_slots, int(warp), a_bits)
            key = int(state.geometry.block_index[warp * WARP]), b_bits
            places = Descriptor.decode(b_bits).places(
                np.arange(shape.n), shape.k, _BYTES[shape.b_kind], shape.b_transposed
            )
            _note_reads(state, int(warp), places)
            if key not in read:
                read[key] = _fetch(state, key[0], places, shape.b_kind)
            b = read[key]
            if shape.a_kind in ("e4m3", "e5m2"):
                old = _accumulator(state, shape, slots, int(warp), keeps)
                product, keeps = _sum_of_bytes(a, b, old), False
            else:
                product = a @ b.T
            totals.append(_to_registers(state, shape, slots, int(warp), product, keeps))
        lanes = (warps[:, None] * WARP + np.arange(WARP)).ravel()
        columns = np.stack(totals, axis=1)  # register, warp, lane
        for slot, values in zip(slots, columns.reshape(len(slots), -1), strict=True):
            state.scatter(slot, lanes, values)
        state.asynchronous.formed(warps, slots)
        state.pc = here
        if state.shadow is not None:
            state.shadow.pc = here

    return run


def _left(state: State, shape: _Shape, slots: list[int], warp: int, bits: int | None) -> Array:
    """The 16 rows of A that belong to a warp."""
    if bits is None:
        table = gather_a(16, shape.k, 8 * _BYTES[shape.a_kind])
        matrices = operand_matrix(state, slots, shape.a_kind, table, 16, np.array([warp]))
        return np.asarray(matrices[0])
    rows = int(state.geometry.warp[warp * WARP]) % 4 * 16 + np.arange(16)
    places = Descriptor.decode(bits).places(rows, shape.k, _BYTES[shape.a_kind], shape.a_transposed)
    _note_reads(state, warp, places)
    block = int(state.geometry.block_index[warp * WARP])
    return _fetch(state, block, places, shape.a_kind)


def _note_reads(state: State, warp: int, places: Array) -> None:
    """Check and note that a warp reads elements at these bytes of shared memory."""
    chunks = np.unique(places & ~np.int64(15))
    lanes = np.full(len(chunks), warp * WARP)
    locate_bytes(state, "shared", lanes, chunks, 16, "reads")
    if state.shadow is not None:
        state.shadow.read(lanes, chunks, 16, whole=True, proxy=True)


def _fetch(state: State, block: int, places: Array, kind: str) -> Array:
    """Elements at bytes of a block's shared memory as numbers."""
    width = _BYTES[kind]
    view = state.memory.view("shared", 8 * width)
    index = (block * state.memory.shared_stride + places) // width
    return _numbers(np.ascontiguousarray(view[index]), kind)


def _accumulator(state: State, shape: _Shape, slots: list[int], warp: int, keeps: bool) -> Array:
    """What a warp adds to, as a matrix of 16 rows; zeros unless it `keeps` that."""
    if not keeps:
        return np.zeros((16, shape.n))
    lanes = slice(warp * WARP, warp * WARP + WARP)
    words = np.stack([state.registers[slot][lanes] for slot in slots])
    if shape.result == "f16":
        halves = words.view(np.float16).reshape(shape.n // 8, 2, 8, 4, 2)
        return np.asarray(halves.transpose(1, 2, 0, 3, 4).reshape(16, shape.n), dtype=np.float64)
    singles = words.view(np.float32).reshape(shape.n // 8, 2, 2, 8, 4)
    return np.asarray(singles.transpose(1, 3, 0, 4, 2).reshape(16, shape.n), dtype=np.float64)


def _sum_of_bytes(a: Array, b: Array, old: Array) -> Array:
    """``old + a @ b.T`` of 8-bit floats with 14 bits: every term loses what is below the 14th bit
    of the largest one. That is how an H100 was reported to sum (DeepSeek-V3 Technical Report,
    section 3.3.2); the PTX ISA only says that the accumulator may have less than its precision.
    """
    terms = np.empty((*old.shape, a.shape[1] + 1))
    terms[..., :-1], terms[..., -1] = a[:, None, :] * b[None, :, :], old
    if not np.isfinite(terms).all():
        return np.asarray(terms.sum(axis=2))
    largest = np.abs(terms).max(axis=2)
    lowest = np.exp2(np.floor(np.log2(np.where(largest > 0, largest, 1.0))) - 13)[..., None]
    return np.asarray((np.trunc(terms / lowest) * lowest).sum(axis=2))


def _to_registers(
    state: State, shape: _Shape, slots: list[int], warp: int, product: Array, keeps: bool
) -> Array:
    """The new contents of the accumulators of one warp: a row for each register, a column for each
    lane."""
    lanes = slice(warp * WARP, warp * WARP + WARP)
    old = np.stack([state.registers[slot][lanes] for slot in slots])
    tiles = product.reshape(2, 8, shape.n // 8, 4, 2)  # row half, g, column tile, t, neighbour
    if shape.result == "f16":
        pairs = tiles.transpose(2, 0, 1, 3, 4).reshape(len(slots), WARP, 2)
        halves = old.view(np.float16).reshape(len(slots), WARP, 2).astype(np.float32)
        total = (pairs + halves if keeps else pairs).astype(np.float16)
        return np.ascontiguousarray(total).view(np.uint32)[..., 0]
    registers = tiles.transpose(2, 0, 4, 1, 3).reshape(len(slots), WARP)
    if shape.result == "s32":
        whole = registers.astype(np.int64).astype(np.uint32)
        return np.asarray(whole + old if keeps else whole)
    single = registers.astype(np.float32)
    return np.asarray(single + old.view(np.float32) if keeps else single).view(np.uint32)
