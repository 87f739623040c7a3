"""Warp-level matrix instructions: ``mma.sync``, ``ldmatrix``, ``stmatrix``, ``movmatrix``.

Fragments follow the figures of the PTX ISA ("Matrix Fragments for mma"). With g = lane / 4 and
t = lane % 4, and registers of E elements, register r and element j of

* A (16 rows) is row g + 8 (r mod 2), column t E + j + 4 E (r div 2); with 8 rows it is row g,
  column t E + j + 4 E r;
* B is row t E + j + 4 E r, column g;
* C and D are row g + 8 (r div 2), column 2 t + r mod 2.

Products are exact. Sums of half, brain, tf32 and 8-bit floats are binary32 in an unspecified order,
those of integers wrap at 32 bits and those of binary64 are binary64: this is how tensor cores are
commonly modelled, their internal alignment of addends is not.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

import numpy as np

from tileworkbench.compiler.sim.ptx.access import locate_bytes, store_elements
from tileworkbench.compiler.sim.ptx.errors import DivergenceError, locate, unsupported
from tileworkbench.compiler.sim.ptx.geometry import WARP
from tileworkbench.compiler.sim.ptx.loads import over_lanes, put_some
from tileworkbench.compiler.sim.ptx.memory import SHARED_WINDOW
from tileworkbench.compiler.sim.ptx.module import Instruction, Operand, Register
from tileworkbench.compiler.sim.ptx.numeric import Array, from_bfloat16, from_float8
from tileworkbench.compiler.sim.ptx.operands import Decoder, items_of
from tileworkbench.compiler.sim.ptx.state import State, Step

_GROUP, _THREAD = np.arange(WARP) // 4, np.arange(WARP) % 4

_ELEMENT_BITS = {
    **{"f16": 16, "bf16": 16, "tf32": 32, "f64": 64, "s8": 8, "u8": 8, "s4": 4, "u4": 4},
    **{"e4m3": 8, "e5m2": 8, "b1": 1},
}


def require_whole_warps(state: State) -> Array:
    """The active warps; raises `DivergenceError` when only a part of one is active."""
    by_warp = state.by_warp(state.mask)
    active = by_warp.any(axis=1)
    if (by_warp.all(axis=1) != active).any():
        warp = int(np.argmax(by_warp.all(axis=1) != active))
        count = int(by_warp[warp].sum())
        raise DivergenceError(
            f"{count} of 32 threads of a warp, {state.geometry.thread_name(warp * WARP)} first, "
            f"execute {locate(state.instruction)}, which needs them all"
        )
    return np.flatnonzero(active)


@functools.cache
def gather_a(rows: int, columns: int, bits: int) -> Array:
    """For each element of A in row-major order its place among a warp's register elements, which
    are numbered (register, lane, element)."""
    per_register = max(32 // bits, 1)
    table = np.empty((rows, columns), dtype=np.int64)
    high = rows // 8
    for register in range(rows * columns // (WARP * per_register)):
        for j in range(per_register):
            row = _GROUP + 8 * (register % high)
            column = _THREAD * per_register + j + 4 * per_register * (register // high)
            table[row, column] = (register * WARP + np.arange(WARP)) * per_register + j
    return table.ravel()


@functools.cache
def gather_b(rows: int, bits: int) -> Array:
    """The same for B with eight columns."""
    per_register = max(32 // bits, 1)
    table = np.empty((rows, 8), dtype=np.int64)
    for register in range(rows * 8 // (WARP * per_register)):
        for j in range(per_register):
            row = _THREAD * per_register + j + 4 * per_register * register
            table[row, _GROUP] = (register * WARP + np.arange(WARP)) * per_register + j
    return table.ravel()


def _spread_nibbles(words: Array, signed: bool) -> Array:
    shifts = np.arange(0, 32, 4, dtype=np.uint32)
    nibbles = ((words[..., None] >> shifts) & np.uint32(15)).astype(np.int64)
    return np.where(nibbles > 7, nibbles - 16, nibbles) if signed else nibbles


def _elements(words: Array, kind: str) -> Array:
    """The elements that registers hold, along a new last axis, as numbers that multiply exactly."""
    if kind == "f64":
        return words.view(np.float64)[..., None]
    if kind == "tf32":  # the lower fraction bits are not read
        return (words & np.uint32(0xFFFFE000)).view(np.float32)[..., None]
    if kind in ("s4", "u4"):
        return _spread_nibbles(words, kind == "s4").astype(np.float64)
    narrow = words.view({16: np.uint16, 8: np.uint8}[_ELEMENT_BITS[kind]])
    narrow = narrow.reshape(*words.shape, -1)
    if kind == "f16":
        return narrow.view(np.float16).astype(np.float32)
    if kind == "bf16":
        return from_bfloat16(narrow)
    if kind in ("e4m3", "e5m2"):
        return from_float8(narrow, kind)
    return narrow.view(np.int8 if kind == "s8" else np.uint8).astype(np.float64)


def operand_matrix(
    state: State, slots: list[int], kind: str, table: Array, rows: int, warps: Array
) -> Array:
    """The matrices that a fragment's registers hold, one for each of the warps."""
    words = np.stack([state.by_warp(state.registers[slot])[warps] for slot in slots], axis=1)
    elements = _elements(words, kind).reshape(len(warps), -1)
    return elements[:, table].reshape(len(warps), rows, -1)


def register_slots(i: Instruction, operand: Operand) -> list[int]:
    """The slots of the registers that hold a fragment."""
    slots = []
    for item in items_of(operand):
        if not isinstance(item, Register):
            raise unsupported(i, "a fragment that is not made of registers")
        slots.append(item.slot)
    return slots


def decode_mma(i: Instruction, d: Decoder) -> Step:
    shape = next(
        (re.fullmatch(r"m(\d+)n(\d+)k(\d+)", name) for name in i.modifiers if name.startswith("m")),
        None,
    )
    if i.opcode != "mma" or shape is None or i.has("sp", "sp::ordered_metadata", "block_scale"):
        raise unsupported(i)
    m, n, k = (int(size) for size in shape.groups())
    kinds = [name for name in i.modifiers if name in (*_ELEMENT_BITS, "f32", "s32")]
    if len(kinds) != 4 or n != 8 or kinds[1] == "b1" or (m, n, k, kinds[1]) == (8, 8, 4, "f16"):
        raise unsupported(i, "a shape or type of mma")
    d_kind, a_kind, b_kind, c_kind = kinds
    bits = _ELEMENT_BITS[a_kind]
    table_a, table_b = gather_a(m, k, bits), gather_b(k, bits)
    a_slots, b_slots = register_slots(i, i.operands[1]), register_slots(i, i.operands[2])
    per_register = max(32 // bits, 1)
    if len(a_slots) * WARP * per_register != m * k or len(b_slots) * WARP * per_register != k * n:
        raise unsupported(i, "a fragment of another size")
    read_c = [d.read(item, _accumulator_kind(c_kind)) for item in items_of(i.operands[3])]
    writers = [d.write(item, _accumulator_kind(d_kind)) for item in items_of(i.operands[0])]

    def step(state: State) -> None:
        warps = require_whole_warps(state)
        a = operand_matrix(state, a_slots, a_kind, table_a, m, warps)
        b = operand_matrix(state, b_slots, b_kind, table_b, k, warps)
        product = np.matmul(a, b).reshape(len(warps), m // 8, 8, 4, 2)
        for number, writer in enumerate(writers):
            if d_kind == "f16":  # two neighbours in a register
                part = product[:, number].reshape(len(warps), WARP, 2)
            else:
                part = product[:, number // 2, :, :, number % 2].reshape(len(warps), WARP)
            c = over_lanes(state, read_c[number](state))
            total = _accumulate(state.by_warp(c)[warps], part, d_kind)
            whole = np.zeros((state.lanes // WARP, WARP), dtype=total.dtype)
            whole[warps] = total
            writer(state, whole.reshape(-1))

    return step


def _accumulator_kind(kind: str) -> str:
    return {"f64": "f64", "f32": "f32", "s32": "b32"}.get(kind, "b32")


def _accumulate(c: Array, product: Array, d_kind: str) -> Array:
    if d_kind == "s32":
        return c + product.astype(np.int64).astype(np.uint32)
    if d_kind in ("f32", "f64"):
        return np.asarray(c + product.astype(c.dtype))
    halves = np.ascontiguousarray(c).view(np.float16).reshape(*c.shape, 2).astype(np.float32)
    return np.ascontiguousarray((halves + product).astype(np.float16)).view(np.uint32)[..., 0]


# -- matrices of eight rows of sixteen bytes


def _rows(
    state: State, address: Callable[[State], Array], i: Instruction, count: int
) -> tuple[Array, Array, Array]:
    """The warps of a matrix access, the lanes that give row addresses and these addresses."""
    warps = require_whole_warps(state)
    lanes = (warps[:, None] * WARP + np.arange(8 * count)).ravel()
    addresses = address(state)[lanes]
    if not i.has("shared", "shared::cta"):
        addresses = addresses - SHARED_WINDOW
    return warps, lanes, addresses


def _matrix_count(i: Instruction) -> int:
    if not i.has("b16") or not i.has("m8n8"):
        raise unsupported(i)
    return next((int(name[1]) for name in i.modifiers if name in ("x1", "x2", "x4")), 1)


def decode_ldmatrix(i: Instruction, d: Decoder) -> Step:
    count = _matrix_count(i)
    address = d.read_address(i.operands[1])
    slots = register_slots(i, i.operands[0])
    if len(slots) != count:
        raise unsupported(i, "another number of registers")
    transposes = i.has("trans")

    def step(state: State) -> None:
        warps, lanes, addresses = _rows(state, address, i, count)
        places = locate_bytes(state, "shared", lanes, addresses, 16, "reads")
        state.statistics.record_rows(state.pc, addresses, lanes // WARP, lanes % WARP)
        if state.shadow is not None:
            state.shadow.read(lanes, addresses, 16, whole=True)
        view = state.memory.view("shared", 16)
        halves = view[(places // 2)[:, None] + np.arange(8)]
        matrices = halves.reshape(len(warps), count, 8, 8)
        if transposes:
            matrices = matrices.transpose(0, 1, 3, 2)
        words = np.ascontiguousarray(matrices).view(np.uint32).reshape(len(warps), count, WARP)
        targets = (warps[:, None] * WARP + np.arange(WARP)).ravel()
        for number, slot in enumerate(slots):
            put_some(state, slot, targets, np.ascontiguousarray(words[:, number]).reshape(-1))

    return step


def decode_stmatrix(i: Instruction, d: Decoder) -> Step:
    count = _matrix_count(i)
    address = d.read_address(i.operands[0])
    sources = d.read_all(items_of(i.operands[1]), "b32")
    if len(sources) != count:
        raise unsupported(i, "another number of registers")
    transposes = i.has("trans")

    def step(state: State) -> None:
        warps, lanes, addresses = _rows(state, address, i, count)
        values = [state.by_warp(over_lanes(state, source(state)))[warps] for source in sources]
        words = np.ascontiguousarray(np.stack(values, axis=1))
        matrices = words.view(np.uint16).reshape(len(warps), count, 8, 8)
        if transposes:
            matrices = matrices.transpose(0, 1, 3, 2)
        rows = np.ascontiguousarray(matrices).reshape(-1, 8)
        state.statistics.record_rows(state.pc, addresses, lanes // WARP, lanes % WARP)
        store_elements(state, "shared", lanes, addresses, rows, 16, counted=False, whole=True)

    return step


def decode_movmatrix(i: Instruction, d: Decoder) -> Step:
    """Transpose an 8x8 matrix of halves that a warp holds."""
    read, write = d.read(i.operands[1], "b32"), d.write(i.operands[0], "b32")

    def step(state: State) -> None:
        require_whole_warps(state)
        words = np.ascontiguousarray(over_lanes(state, read(state)))
        matrices = words.view(np.uint16).reshape(-1, 8, 8).transpose(0, 2, 1)
        write(state, np.ascontiguousarray(matrices).view(np.uint32).reshape(-1))

    return step
