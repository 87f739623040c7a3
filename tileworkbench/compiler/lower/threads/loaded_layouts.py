"""Shared-memory layouts of operands that lanes load by themselves, register after register, and of
tiles to which they store results.

No rule says which swizzle serves every instruction, so the first of a few is taken whose loads take
the fewest wavefronts by the rules of the machine; of equal ones that into which a result, which may
be the operand of the next product, is stored with the fewest. Units of 16 bytes or more stay in one
piece, so copies by rows have no conflicts either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import product
from typing import Any

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.sizes import const_shape
from tileworkbench.compiler.ir.tile import Copy
from tileworkbench.compiler.layout.fragment import Fragment
from tileworkbench.compiler.layout.layout import SWIZZLES, Layout
from tileworkbench.compiler.lower.threads.context import ThreadContext
from tileworkbench.compiler.lower.threads.inference import LayoutMap, Proposal
from tileworkbench.compiler.lower.threads.registers import register_map
from tileworkbench.compiler.lower.threads.shared_layouts import Reader, operand_layout
from tileworkbench.compiler.lower.threads.turning import lanes_that_turn, turned_blocks
from tileworkbench.compiler.machine.instructions import TurnedLoad
from tileworkbench.compiler.machine.machine import VECTOR_BITS, Machine, SharedMemory

_SAMPLE = 16  # registers of a lane whose stores are counted

Place = Callable[[Any, Any], Any]  # row and column of a tile to its offset, in elements


@dataclass(frozen=True, slots=True)
class Accesses:
    """How a warp loads an operand, or stores a result: for each access the row and the column where
    each lane begins, and the bytes of a lane.
    """

    starts: tuple[tuple[tuple[int, int], ...], ...]
    width: int
    reads: bool


@lru_cache(maxsize=256)
def _accesses(fragment: Fragment, bits: int, reads: bool, rows_last: bool = False) -> Accesses:
    """One access for each run of registers of `fragment`; `rows_last`: what it calls rows is the
    last dimension of the tile, so that every element is an access, or neighbouring rows are.
    """
    registers = register_map(fragment)
    run = 1 if rows_last else registers.run
    count, apart = registers.across if rows_last else (1, 0)
    first = [s for s in range(0, fragment.slots, run) if count == 1 or s // apart % count == 0]
    held = [fragment.elements_of(lane).tolist() for lane in range(fragment.threads)]
    starts = tuple(
        tuple((at[1], at[0]) if rows_last else (at[0], at[1]) for at in (e[slot] for e in held))
        for slot in first
    )
    return Accesses(starts, max(run * count * bits // 8, 1), reads)


@lru_cache(maxsize=256)
def _turning(operand: Fragment, bits: int, turned: TurnedLoad) -> Accesses | None:
    """The accesses of lanes that turn what they read, None where they cannot."""
    rows = turned.rows(bits)
    lanes = lanes_that_turn(operand, rows, turned.lanes)
    if lanes is None:
        return None
    held = [lanes.evaluate(lane) for lane in range(operand.threads)]
    blocks = turned_blocks(operand, rows)
    more = [int(blocks.evaluate(number)[0]) for number in range(blocks.size)]
    starts = tuple(tuple((int(k) + at, int(n)) for n, k in held) for at in more)
    return Accesses(starts, rows * bits // 8, True)


def loaded_layout(
    shape: tuple[int, ...], bits: int, operand: Fragment, k_last: bool, result: Fragment | None,
    machine: Machine,
) -> Layout:  # fmt: skip
    """The layout of a buffer of `bits`-bit elements from which a warp loads `operand`, with K as
    the last dimension or not, and into which it may have stored `result`, if any.
    """
    rows, columns = shape[-2:]
    loads = _accesses(operand, bits, True, not k_last)
    if machine.turned is not None and machine.turns(bits) and not k_last:
        loads = _turning(operand, bits, machine.turned) or loads
    stores = loads if result is None else _accesses(result, bits, False)
    chosen = _chosen(columns, bits, (loads, stores), machine.name, machine.shared)
    if isinstance(chosen, int):
        return Layout.padded((rows, columns), chosen).expand(shape[:-2])
    return Layout((rows, columns), _place(columns, chosen)).expand(shape[:-2])


def layout_between(
    shape: tuple[int, int], bits: int, operand: Fragment, stores: Accesses, machine: Machine
) -> Layout:
    """The layout of a tile that threads fill by `stores`, and from which a warp loads `operand`
    with K as the last dimension.
    """
    loads = _accesses(operand, bits, True)
    chosen = _chosen(shape[1], bits, (loads, stores), machine.name, machine.shared, twice=True)
    if isinstance(chosen, int):
        return Layout.padded(shape, chosen)
    return Layout(shape, _place(shape[1], chosen))


def staged_results(op: Copy, layouts: LayoutMap, context: ThreadContext) -> Iterator[Proposal]:
    """The layout of a tile through which a copy takes what is in registers to other copies."""
    tile, result = op.dst.buffer, layouts.fragment(op.src.buffer)
    shape, box = const_shape(tile), const_shape(op.src.buffer)
    if result is None or shape is None or box is None or layouts.get(tile) is not None:
        return
    uses = (*context.uses.readers.get(tile, ()), *context.uses.writers.get(tile, ()))
    alike = len(box) == 2 and shape[-2:] == box and tile.dtype.bits in (8, 16, 32, 64)
    if tile.scope != "shared" or not alike or not all(isinstance(use, Copy) for use in uses):
        return
    layout = stored_layout(shape, tile.dtype.bits, result, context.target.machine)
    if layout is not None:
        yield Proposal(tile, layout, "takes results from registers without conflicts", soft=True)


@lru_cache(maxsize=256)
def stored_layout(
    shape: tuple[int, ...], bits: int, result: Fragment, machine: Machine
) -> Layout | None:
    """The layout of a tile of `bits`-bit elements to which threads store `result` as it lies in
    their registers, and which is then read by rows: the first that takes the fewest wavefronts for
    what it moves. Rows stay in pieces of 16 bytes. An engine that stores tiles reads without
    conflicts, and only what it can take is asked. None where rows as they are do as well.
    """
    run = min(register_map(result).run, VECTOR_BITS // bits)
    held = [result.elements_of(lane).tolist() for lane in range(machine.lanes)]
    slots = range(0, min(result.slots, _SAMPLE * run), run)
    starts = tuple(tuple((each[slot][0], each[slot][1]) for each in held) for slot in slots)
    stores = Accesses(starts, max(run * bits // 8, 1), False)
    unit = VECTOR_BITS // bits
    pieces = [divmod(lane * unit, shape[-1]) for lane in range(machine.lanes)]
    loads = Accesses((tuple(pieces),), VECTOR_BITS // 8, True)
    moves = (stores,) if machine.box_copies("global") else (stores, loads)
    rows = _padded(shape[-1])
    ideal = [_cost(rows, bits, each, machine.shared, ideal=True) for each in moves]

    def cost(place: Place) -> float:
        costs = (_cost(place, bits, each, machine.shared) for each in moves)
        return sum(each / least for each, least in zip(costs, ideal, strict=True))

    best, least = None, cost(rows)
    for layout in _stored_layouts(shape[-2:], bits, machine):
        if least <= len(moves):
            break
        asked = cost(_tabulated(layout))
        if asked < least:
            best, least = layout, asked
    return None if best is None else best.expand(shape[:-2])


def _tabulated(layout: Layout) -> Place:
    offsets = layout.table().tolist()
    return lambda i, j: offsets[i][j]


def _stored_layouts(shape: tuple[int, ...], bits: int, machine: Machine) -> Iterator[Layout]:
    row = shape[-1] * bits // 8
    for width in SWIZZLES:
        if row % width == 0 and shape[-2] % 8 == 0:
            yield Layout.swizzled(shape, bits, width)
    if machine.box_copies("global") is None:
        for reader in (Reader.MATRIX, Reader.ELEMENTS):
            yield operand_layout(shape, bits, reader, machine.shared)


@dataclass(frozen=True, slots=True)
class _Swizzle:
    """The number of a unit XORed with ``row // divisor % count``, and with ``row // again % count``
    where there is such; where `turned`, two rows change places if ``row // turned`` is odd.
    """

    unit: int
    divisor: int
    count: int
    turned: int = 0
    again: int = 0


def _place(columns: int, swizzle: _Swizzle) -> Place:
    unit, divisor, count = swizzle.unit, swizzle.divisor, swizzle.count

    def place(i: Any, j: Any) -> Any:
        number = j // unit ^ i // divisor % count if count > 1 else j // unit
        if swizzle.again:
            number = number ^ i // swizzle.again % count
        if swizzle.turned:
            i = i // 2 * 2 + (i % 2 ^ i // swizzle.turned % 2)
        return i * columns + number * unit + j % unit

    return place


@lru_cache(maxsize=256)
def _chosen(
    columns: int,
    bits: int,
    accesses: tuple[Accesses, Accesses],
    arch: str,
    memory: SharedMemory,
    twice: bool = False,
) -> _Swizzle | int:
    """The first swizzle without conflicts, else what has the fewest; rows further apart where no
    swizzle has as few in loads. `twice` also tries those by two parts of the row's number.
    """
    loads, stores = accesses
    plain = _padded(columns)
    least = _cost(plain, bits, loads, memory, ideal=True)
    best: tuple[int, int, _Swizzle | int] | None = None
    swizzles = [*_swizzles(columns, bits), *(_double(columns, bits) if twice else ())]
    choices: list[_Swizzle | int] = [*swizzles, *_pitches(columns, bits)]
    for choice in choices:
        padded = isinstance(choice, int)
        if padded and best is not None and best[0] <= least:
            break
        place = _padded(choice) if isinstance(choice, int) else _place(columns, choice)
        cost = _cost(place, bits, loads, memory)
        if best is not None and cost > best[0]:
            continue
        stored = _cost(place, bits, stores, memory)
        if best is None or (cost, stored) < best[:2]:
            best = cost, stored, choice
        if cost <= least and stored <= _cost(plain, bits, stores, memory, ideal=True):
            break
    assert best is not None  # rows as they are come first
    return best[2]


def _padded(pitch: int) -> Place:
    return lambda i, j: i * pitch + j


def _swizzles(columns: int, bits: int) -> Iterator[_Swizzle]:
    yield _Swizzle(columns, 1, 1)
    for bytes_, divisor in product((16, 32, 64), (1, 2, 4, 8, 16, 32)):
        unit = bytes_ * 8 // bits
        for count in (8, 16, 4, 2):
            if columns % (unit * count) == 0:
                yield _Swizzle(unit, divisor, count)
    # Of machines whose banks hold two rows.
    unit = VECTOR_BITS // bits
    for turned in (2, 4, 8, 16):
        yield _Swizzle(columns, 1, 1, turned)
        for divisor in (2, 4, 8) if columns == 8 * unit else ():
            yield _Swizzle(unit, divisor, 8, turned)
        if columns == 4 * unit:
            yield _Swizzle(2 * unit, 2 * turned, 2, turned)


def _double(columns: int, bits: int) -> Iterator[_Swizzle]:
    """Swizzles by two parts of the row's number, in pieces of 16 bytes."""
    unit = VECTOR_BITS // bits
    for count in (8, 4, 2):
        if columns % (unit * count) == 0:
            for divisor, again, turned in product((1, 2, 4), (4, 8, 16, 32), (0, 8, 16, 32)):
                if again > divisor:
                    yield _Swizzle(unit, divisor, count, turned, again)


def _pitches(columns: int, bits: int) -> Iterator[int]:
    """Rows of whole units of 16 bytes, an odd number of them apart."""
    unit = VECTOR_BITS // bits
    for more in (1, 2, 3):
        yield -(-columns // unit) * unit + more * unit


def _cost(
    place: Place, bits: int, accesses: Accesses, memory: SharedMemory, ideal: bool = False
) -> int:
    """The wavefronts of all accesses, or those that their bytes need."""
    total, word = 0, memory.bank_bytes
    phases = memory.phases(len(accesses.starts[0]), accesses.width, accesses.reads)
    for starts in accesses.starts:
        firsts = [place(*start) * bits // 8 for start in starts]
        for phase in phases:
            words = {
                number
                for first in (firsts[lane] for lane in phase)
                for number in range(first // word, (first + accesses.width - 1) // word + 1)
            }
            if ideal:
                total += -(-len(words) // memory.banks)
                continue
            busy = [0] * memory.banks
            for number in words:
                busy[number % memory.banks] += 1
            total += max(busy)
    return total
