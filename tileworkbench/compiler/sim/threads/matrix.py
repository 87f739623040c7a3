"""Matrix instructions of warps: ldmatrix, stmatrix, mma.sync and MFMA, on all warps of a block at
once.

The lane maps are those of the PTX ISA, "Matrix fragments for mma.m16n8k16" and its neighbours, and
of AMD's ISA guides, "Matrix Arithmetic Instructions", from `layout.atoms`. Products of floats are
summed in float32 (float64 for float64) and rounded to the accumulator's dtype once an instruction;
integers are exact and wrap. Operands of dtype tfloat32, and float32 of mma.sync, lose their lowest
13 bits (they are truncated, as tensor cores ignore those bits).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

import numpy as np

from tileworkbench.compiler.diagnostics import DivergenceError, RunError, VerifyError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir import simt
from tileworkbench.compiler.ir.expr import Address
from tileworkbench.compiler.ir.types import DType
from tileworkbench.compiler.layout.fragment import Fragment
from tileworkbench.compiler.machine.tables import ARCHITECTURES, machine_of
from tileworkbench.compiler.sim.expressions import ExpressionTranslator
from tileworkbench.compiler.sim.observers import tell_read, tell_written
from tileworkbench.compiler.sim.problems import NOT_CONTIGUOUS
from tileworkbench.compiler.sim.regrouped import four_bits
from tileworkbench.compiler.sim.report import FindingKind, located
from tileworkbench.compiler.sim.threads.arena import ArenaStorage, check_access
from tileworkbench.compiler.sim.threads.findings import report_threads
from tileworkbench.compiler.sim.threads.frame import ThreadFrame
from tileworkbench.compiler.sim.threads.registers import LaneStorage
from tileworkbench.compiler.sim.values import narrowed, storage_dtype

_ALL = 8  # times eight lanes are at least a warp

Array = np.ndarray[Any, Any]
Execute = Callable[[ThreadFrame], None]


def require_warps(frame: ThreadFrame, what: str) -> None:
    """Raise unless every warp takes part as a whole or not at all."""
    active = frame.active()
    if len(active) % frame.warp == 0:
        warps = active.reshape(-1, frame.warp)
        counts = warps.sum(axis=1)
        if not ((counts != 0) & (counts != frame.warp)).any():
            return
        warp = int(np.argmax((counts != 0) & (counts != frame.warp)))
        detail = f"by {counts[warp]} of the {frame.warp} threads of warp {warp}"
    else:
        detail = f"in a block of {len(active)} threads, whose last warp is not whole"
    where = f" in block ({', '.join(map(str, frame.block))})"
    span = frame.recorder.program.span(frame.site)
    raise located(DivergenceError, f"'{what}' is executed {detail}{where}", span)


def uniform_index(frame: ThreadFrame, storage: LaneStorage, index: tuple[Any, ...]) -> int:
    """The flat place of a register that is the same for all threads."""
    flat = 0
    for position, extent in zip(index, storage.shape, strict=True):
        if type(position) is np.ndarray:
            values = np.unique(np.broadcast_to(position, frame.lanes)[frame.active()])
            if len(values) != 1:
                span = frame.recorder.program.span(frame.site)
                raise located(
                    RunError, f"threads name different registers of '{storage.name}'", span
                )
            position = int(values[0])
        flat = flat * extent + position
    return flat


class Registers:
    """Consecutive registers of each thread, from an address on."""

    def __init__(self, address: Address, expr: ExpressionTranslator) -> None:
        self.dtype = address.buffer.dtype
        self._slot = expr.slots.buffer(address.buffer)
        self._indices = expr.all(address.indices)

    def _find(self, frame: ThreadFrame) -> tuple[LaneStorage, int]:
        storage = frame.storages[self._slot]
        if not isinstance(storage, LaneStorage):
            raise VerifyError(f"'{storage.name}' is not in registers")
        index = tuple([at(frame) for at in self._indices])
        return storage, uniform_index(frame, storage, index)

    def read(self, frame: ThreadFrame, count: int) -> Array:
        """`count` elements of each thread."""
        storage, first = self._find(frame)
        return storage.read_registers(frame, first, count)

    def write(self, frame: ThreadFrame, values: Array) -> None:
        """Replace elements of the active threads, a row for each thread."""
        storage, first = self._find(frame)
        storage.write_registers(frame, first, values)

    def write_bytes(self, frame: ThreadFrame, values: Array) -> None:
        """The same from bytes."""
        if self.dtype.bits == 4:
            nibbles = np.stack([values & 15, values >> 4], axis=-1).reshape(len(values), -1)
            self.write(frame, four_bits(nibbles, self.dtype))
        else:
            self.write(frame, np.ascontiguousarray(values).view(storage_dtype(self.dtype)))

    def read_bytes(self, frame: ThreadFrame, count: int) -> Array:
        """`count` bytes of each thread."""
        if self.dtype.bits == 4:
            nibbles = np.ascontiguousarray(self.read(frame, 2 * count)).view(np.uint8) & 15
            return np.asarray(nibbles[:, ::2] | nibbles[:, 1::2] << 4)
        whole = np.ascontiguousarray(self.read(frame, count // storage_dtype(self.dtype).itemsize))
        return whole.view(np.uint8).reshape(len(whole), -1)


class _Rows:
    """The rows of matrices in shared memory, to which the lanes point."""

    def __init__(
        self, address: Address, count: int, expr: ExpressionTranslator, width: int = 16
    ) -> None:
        self._slot, self._count = expr.slots.buffer(address.buffer), count
        self._width = width  # bytes of a row
        self._indices = expr.all(address.indices)

    def find(self, frame: ThreadFrame, kind: str) -> tuple[ArenaStorage, Array, Array, Any]:
        """(buffer, byte address by thread, threads that give one, index), counted."""
        storage = frame.storages[self._slot]
        if not isinstance(storage, ArenaStorage):
            raise VerifyError(f"'{storage.name}' is not in shared memory")
        index = tuple([at(frame) for at in self._indices])
        lanes = np.arange(frame.threads) % frame.warp < 8 * self._count
        width = self._width
        giving = frame.active() & lanes
        addresses = storage.addresses(frame, index, giving)
        elements = 8 * width // storage.bits
        last = (*index[:-1], index[-1] + (elements - 1))
        gap = storage.addresses(frame, last, giving) - addresses
        wrong = giving & (gap != (elements - 1) * storage.bits // 8)
        report_threads(frame, FindingKind.MISALIGNED, NOT_CONTIGUOUS, storage.name, index, wrong)
        counters = frame.counters
        counters.shared(frame.site, storage.name, kind, addresses, giving, width)
        counters.instruction(kind.partition(".")[0], frame.active())
        return storage, addresses, giving, index

    def by_matrix(self, addresses: Array) -> Array:
        """The addresses as [warp, matrix, row]."""
        return addresses.reshape(-1, 4, 8)[:, : self._count]


def matrix_kind(name: str, count: int, transpose: bool) -> str:
    """How accesses of a matrix instruction are called: `ldmatrix.x4.trans`."""
    return f"{name}.x{count}{'.trans' if transpose else ''}"


def translate_load(stmt: simt.LoadMatrix, expr: ExpressionTranslator) -> Execute:
    """The closure of ldmatrix."""
    rows, registers = _Rows(stmt.src, stmt.count, expr), Registers(stmt.dst, expr)
    kind = matrix_kind("ldmatrix", stmt.count, stmt.transpose)

    def load(frame: ThreadFrame) -> None:
        require_warps(frame, "ldmatrix")
        storage, addresses, giving, index = rows.find(frame, kind)
        check_access(frame, storage, "load", addresses, giving, 16, index)
        _touch(frame, storage, addresses[giving], write=False)
        if frame.observers:
            row, lanes = storage.row(addresses, 16)
            tell_read(frame, storage, (row,), giving[:, None], lanes)
        places = np.where(giving, addresses, 0)
        matrices = storage.arena.memory[rows.by_matrix(places)[..., None] + np.arange(16)]
        registers.write_bytes(frame, _to_lanes(matrices, stmt.transpose))

    return load


def translate_turned(stmt: simt.LoadTurned, expr: ExpressionTranslator) -> Execute:
    """The closure of a load that turns blocks of `elements` rows."""
    count, bytes_ = stmt.elements, stmt.src.buffer.dtype.bits // 8
    width = bytes_ * count
    rows, registers = _Rows(stmt.src, _ALL, expr, width), Registers(stmt.dst, expr)

    def load(frame: ThreadFrame) -> None:
        require_warps(frame, "ds_read_tr")
        storage, addresses, giving, index = rows.find(frame, "load")
        check_access(frame, storage, "load", addresses, giving, width, index)
        _touch(frame, storage, addresses[giving], write=False, width=width)
        if frame.observers:
            row, lanes = storage.row(addresses, width)
            tell_read(frame, storage, (row,), giving[:, None], lanes)
        places = np.where(giving, addresses, 0)
        pieces = storage.arena.memory[places[:, None] + np.arange(width)].view(f"u{bytes_}")
        blocks = pieces.reshape(-1, count, simt.TURNING_LANES)  # rows of pieces
        columns = np.ascontiguousarray(blocks.swapaxes(1, 2)).reshape(-1, count)
        registers.write_bytes(frame, columns.view(np.uint8))

    return load


def translate_store(stmt: simt.StoreMatrix, expr: ExpressionTranslator) -> Execute:
    """The closure of stmatrix."""
    rows, registers = _Rows(stmt.dst, stmt.count, expr), Registers(stmt.src, expr)
    kind = matrix_kind("stmatrix", stmt.count, stmt.transpose)

    def store(frame: ThreadFrame) -> None:
        require_warps(frame, "stmatrix")
        matrices = _from_lanes(
            registers.read_bytes(frame, 4 * stmt.count), frame.warp, stmt.transpose
        )
        storage, addresses, giving, index = rows.find(frame, kind)
        check_access(frame, storage, "store", addresses, giving, 16, index)
        _touch(frame, storage, addresses[giving], write=True)
        chosen = rows.by_matrix(giving)
        places = rows.by_matrix(addresses)[chosen]
        storage.arena.memory[places[:, None] + np.arange(16)] = matrices[chosen]
        if frame.observers:
            row, lanes = storage.row(addresses, 16)
            wide = np.broadcast_to(giving[:, None], lanes)
            tell_written(frame, storage, (row[wide],), wide, lanes)

    return store


def _touch(
    frame: ThreadFrame, storage: ArenaStorage, rows: Array, write: bool, width: int = 16
) -> None:
    """Tell operations under way that these rows are read or written."""
    if frame.flights is not None:
        places, _ = storage.row(rows, width)
        frame.flights.touch(frame, storage, (places.reshape(-1),), write)


def _to_lanes(matrices: Array, transpose: bool) -> Array:
    """Bytes [warp, matrix, row, 16] as the registers of lanes: [thread, 4 * matrices]."""
    warps, count = matrices.shape[:2]
    if transpose:
        halves = np.ascontiguousarray(matrices).view(np.uint16)
        matrices = np.ascontiguousarray(halves.swapaxes(2, 3)).view(np.uint8)
    lanes = matrices.reshape(warps, count, -1, 4).swapaxes(1, 2)
    return np.ascontiguousarray(lanes).reshape(-1, 4 * count)


def _from_lanes(registers: Array, warp: int, transpose: bool) -> Array:
    """The inverse of `_to_lanes`, for warps of `warp` threads."""
    count = registers.shape[1] // 4
    lanes = registers.reshape(-1, warp, count, 4).swapaxes(1, 2)
    matrices = np.ascontiguousarray(lanes).reshape(-1, count, 8, 16)
    if transpose:
        halves = matrices.view(np.uint16).swapaxes(2, 3)
        matrices = np.ascontiguousarray(halves).view(np.uint8)
    return np.asarray(matrices)


@cache
def by_lane(fragment: Fragment) -> tuple[Array, int]:
    """For each element of an operand its place among the registers of the threads that execute an
    instruction, lane by lane, and how many a lane has.
    """
    lane, slot = (np.asarray(table).reshape(fragment.shape) for table in fragment.table())
    return lane * fragment.slots + slot, fragment.slots


@dataclass(frozen=True, slots=True)
class _Tables:
    """For each element of A, B and C its place among the registers of a warp, and how many a lane
    has; `inverse` are the elements of C by their places. `truncates`: float32 is read as tf32.
    """

    a: tuple[Array, int]
    b: tuple[Array, int]
    c: tuple[Array, int]
    inverse: Array
    truncates: bool


@lru_cache(maxsize=64)
def _tables(stmt: simt.Mma, archs: tuple[str, ...]) -> _Tables:
    """Those of the first of `archs` with the instruction. Raises `VerifyError` without one."""
    rows = (machine_of(arch).matrix(stmt.shape, stmt.dtypes) for arch in archs)
    row = next((row for row in rows if row is not None), None)
    if row is None:
        raise VerifyError("mma.m{}n{}k{} of {}, {} and {}".format(*stmt.shape, *stmt.dtypes))
    a, b, c = (by_lane(operand.fragment) for operand in (row.a, row.b, row.c))
    return _Tables(a, b, c, np.argsort(c[0].reshape(-1)), row.reads_tf32)


def translate_mma(stmt: simt.Mma, expr: ExpressionTranslator) -> Execute:
    """The closure of mma.sync and of MFMA."""
    a, b, c = Registers(stmt.a, expr), Registers(stmt.b, expr), Registers(stmt.c, expr)

    def mma(frame: ThreadFrame) -> None:
        require_warps(frame, "mma")
        archs = ARCHITECTURES if frame.machine is None else (frame.machine.name,)
        tables = _tables(stmt, archs)
        (at_a, slots_a), (at_b, slots_b), (at_c, slots_c) = tables.a, tables.b, tables.c
        frame.counters.instruction("mma", frame.active())
        left = a.read(frame, slots_a).reshape(-1, frame.warp * slots_a)[:, at_a]
        right = b.read(frame, slots_b).reshape(-1, frame.warp * slots_b)[:, at_b]
        old = c.read(frame, slots_c).reshape(-1, frame.warp * slots_c)[:, at_c]
        left, right = (
            multiplied(values, each.dtype, tables.truncates)
            for values, each in ((left, a), (right, b))
        )
        total = accumulate(left, right.swapaxes(1, 2), old, c.dtype)
        c.write(frame, total.reshape(len(total), -1)[:, tables.inverse].reshape(-1, slots_c))

    return mma


def multiplied(values: Array, dtype: DType, truncates: bool = True) -> Array:
    """Operand elements in the type they are multiplied in; `truncates`: float32 is read as tf32."""
    if not dtype.is_float or dtype.bits == 64:
        return values.astype(np.float64)  # exact, and fast
    wide = values.astype(np.float32)
    if dtype == "tfloat32" or (dtype.bits == 32 and truncates):
        return (wide.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    return wide


def accumulate(a: Array, b: Array, old: Array, dtype: DType) -> Array:
    """`old` plus the products, in the accumulator's dtype."""
    if dtype.is_float:
        working = np.float64 if dtype.bits == 64 else np.float32
        total = np.matmul(a, b).astype(working) + old.astype(working)
        return np.asarray(narrowed(total, storage_dtype(dtype)))
    total = np.matmul(a, b).astype(np.int64) + old
    return np.asarray(total.astype(storage_dtype(dtype)))
