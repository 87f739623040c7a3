"""Products of warpgroups: wgmma, on all warpgroups of a block at once.

Operands in shared memory are read where the instruction reads them: by their descriptor and the
bits of addresses, not by the layout of the tile. Numbers are those of `matrix`: sums of one
instruction are formed in float32 (float64 for integers) and rounded once to the accumulator. Of
8-bit floats tensor cores keep fewer bits than that (`aligned_sums`).

An instruction is part of a `Start`, which hides what it writes until the wait for its group.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tileworkbench.compiler.diagnostics import RunError, VerifyError
from tileworkbench.compiler.ir import simt
from tileworkbench.compiler.ir.expr import Address
from tileworkbench.compiler.layout.atoms import wgmma_a, wgmma_c
from tileworkbench.compiler.layout.descriptors import UNIT, Descriptor
from tileworkbench.compiler.machine.instructions import WARPGROUP_WARPS
from tileworkbench.compiler.sim.expressions import ExpressionTranslator
from tileworkbench.compiler.sim.problems import (
    DESCRIPTOR_MISPLACED,
    DESCRIPTOR_OUTSIDE,
    NEVER_WRITTEN,
)
from tileworkbench.compiler.sim.report import FindingKind, located
from tileworkbench.compiler.sim.threads.arena import NEVER, ArenaStorage
from tileworkbench.compiler.sim.threads.findings import report_clash, report_threads
from tileworkbench.compiler.sim.threads.frame import ThreadFrame
from tileworkbench.compiler.sim.threads.matrix import Registers, accumulate, by_lane, multiplied
from tileworkbench.compiler.sim.threads.pieces import WGMMA, operand_bytes
from tileworkbench.compiler.sim.threads.register_file import whole_groups
from tileworkbench.compiler.sim.values import storage_dtype

Array = np.ndarray[Any, Any]
# Of a sum of products of 8-bit floats.
_SUM_BITS = 14


def translate_wgmma(stmt: simt.Wgmma, expr: ExpressionTranslator) -> Callable[..., None]:
    """The closure of wgmma."""
    c = Registers(stmt.c, expr)
    at_c, slots_c = by_lane(wgmma_c(stmt.n))
    inverse = np.argsort(at_c.reshape(-1))
    a = _Tile(stmt.a, stmt.a_form, (stmt.m, stmt.k), expr) if stmt.a_form else None
    b = _Tile(stmt.b, stmt.b_form, (stmt.n, stmt.k), expr)
    clear = expr(stmt.clear)
    in_registers = None if stmt.a_form else Registers(stmt.a, expr)
    dtype_a, dtype_b = stmt.a.buffer.dtype, stmt.b.buffer.dtype
    of_bytes = dtype_a.is_float and dtype_a.bits == 8

    def wgmma(frame: ThreadFrame) -> None:
        groups = whole_groups(frame, "wgmma")
        frame.counters.instruction("wgmma", frame.active())
        if a is not None:
            left = a.read(frame, groups)
        else:
            assert in_registers is not None
            at_a, slots_a = by_lane(wgmma_a(dtype_a.bits))
            left = _by_group(in_registers.read(frame, slots_a), frame)[groups][:, at_a]
        right = b.read(frame, groups)
        replaced = bool(np.broadcast_to(np.asarray(clear(frame)), frame.lanes)[frame.active()][0])
        if replaced:
            old = np.zeros((len(groups), stmt.m, stmt.n), storage_dtype(c.dtype))
        else:
            old = _by_group(c.read(frame, slots_c), frame)[groups][:, at_c]
        given = multiplied(left, dtype_a), multiplied(right, dtype_b).swapaxes(1, 2), old
        sums = aligned_sums(*given) if of_bytes else accumulate(*given, c.dtype)
        made = np.zeros((frame.threads, slots_c), sums.dtype)
        _by_group(made, frame)[groups] = sums.reshape(len(sums), -1)[:, inverse]
        c.write(frame, made)

    return wgmma


def aligned_sums(a: Array, b: Array, old: Array) -> Array:
    """`old` plus the products of 8-bit floats [group, row, k] and [group, k, column], as an H100 is
    reported to form them: all terms of an instruction, the old value too, are aligned to the
    largest one, cut to `_SUM_BITS` bits, and added exactly (DeepSeek-V3 Technical Report, arXiv
    2412.19437, section 3.3.2, which names the bits and the alignment; no document of NVIDIA does).
    """
    terms = np.concatenate(
        [a[:, :, None, :] * b.swapaxes(1, 2)[:, None, :, :], old[..., None].astype(np.float32)], -1
    ).astype(np.float64)
    top = np.frexp(np.abs(terms).max(axis=-1, keepdims=True))[1]
    unit = np.ldexp(1.0, top - _SUM_BITS)
    with np.errstate(invalid="ignore"):  # of infinities and NaN
        sums = (np.trunc(terms / unit) * unit).sum(axis=-1)
    finite = np.isfinite(terms).all(axis=-1)
    return np.asarray(np.where(finite, sums, terms.sum(axis=-1)), old.dtype)


def _by_group(values: Array, frame: ThreadFrame) -> Array:
    """Values of threads, with one row for each whole warpgroup."""
    size = frame.warp * WARPGROUP_WARPS
    whole = len(values) // size
    return values[: whole * size].reshape(whole, -1)


class _Tile:
    """An operand that the instruction finds in shared memory."""

    def __init__(
        self,
        address: Address,
        form: tuple[int, ...],
        extents: tuple[int, int],
        expr: ExpressionTranslator,
    ) -> None:
        leading, stride, swizzle, transposed = form
        self._descriptor = Descriptor(leading, stride, swizzle, bool(transposed))
        self._slot, self._indices = expr.slots.buffer(address.buffer), expr.all(address.indices)
        self._extents = extents

    def read(self, frame: ThreadFrame, groups: Array) -> Array:
        """The elements as [group, row, k]."""
        storage = frame.storages[self._slot]
        if not isinstance(storage, ArenaStorage):
            raise VerifyError(f"'{storage.name}' is not in shared memory")
        size = storage.bits // 8
        index = tuple([at(frame) for at in self._indices])
        place = np.broadcast_to(np.asarray(storage.locate(index)), frame.lanes)
        starts = storage.base + _by_group(place, frame)[groups] * size
        if (starts != starts[:, :1]).any():
            span = frame.recorder.program.span(frame.site)
            raise located(
                RunError, f"threads of a warpgroup name different places of '{storage.name}'", span
            )
        row, k = np.indices(self._extents)
        linear = self._descriptor.places(row, k, size)
        for start in starts[:, 0]:
            places = operand_bytes(self._descriptor, *self._extents, size, int(start))
            every = np.ones(len(places), np.bool_)
            frame.counters.shared(frame.site, storage.name, WGMMA, places, every, UNIT)
        pairs = zip(starts[:, 0], groups, strict=True)
        return np.stack([self._read(frame, storage, int(at), linear, int(g)) for at, g in pairs])

    def _read(
        self, frame: ThreadFrame, storage: ArenaStorage, start: int, linear: Array, group: int
    ) -> Array:
        size, first = storage.bits // 8, group * frame.warp * WARPGROUP_WARPS
        wrong = np.arange(frame.threads) == first
        if start % 16:
            kind = FindingKind.MISALIGNED
            report_threads(frame, kind, DESCRIPTOR_MISPLACED, storage.name, (), wrong)
        addresses = self._descriptor.swizzled(start + linear)
        slots = (addresses - storage.base) // size
        outside = (slots < 0) | (slots >= storage.data.size)
        if outside.any():
            kind = FindingKind.OUT_OF_BOUNDS
            report_threads(frame, kind, DESCRIPTOR_OUTSIDE, storage.name, (), wrong)
            slots = np.clip(slots, 0, storage.data.size - 1)
        self._note(frame, storage, slots, first, wrong)
        return np.asarray(storage.data[slots])

    def _note(
        self, frame: ThreadFrame, storage: ArenaStorage, slots: Array, first: int, wrong: Array
    ) -> None:
        """The tensor cores read these elements, for each warp of the group."""
        size, arena = storage.bits // 8, storage.arena
        if frame.flights is not None:
            frame.flights.touch(frame, storage, (slots.reshape(-1),), False)
        for observer in frame.observers:
            observer.read(frame, storage, (slots.reshape(-1),), np.full(slots.size, first))
        granules = np.unique(arena.granules(storage.base + slots.reshape(-1) * size, size))
        if frame.options.uninitialised and (arena.state[granules] == NEVER).any():
            kind = FindingKind.UNINITIALISED
            report_threads(frame, kind, NEVER_WRITTEN, storage.name, (), wrong)
        if not frame.options.races:
            return
        for warp in range(WARPGROUP_WARPS):
            threads = np.full(len(granules), first + warp * frame.warp)
            if frame.flights is not None:
                note = partial(_read, storage=storage, granules=granules, threads=threads)
                frame.flights.reads(frame.order.ids(threads[:1]), note)
            if not _read(frame, storage, granules, threads):
                return


def _read(frame: ThreadFrame, storage: ArenaStorage, granules: Array, threads: Array) -> bool:
    """Note that a product has read these elements for `threads`; returns whether no write races
    with that.
    """
    clash = storage.arena.marks.read(frame.order, threads, granules, frame.site)
    if clash is not None:
        report_clash(frame, storage.name, (), threads, clash)
    return clash is None
