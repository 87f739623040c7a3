"""Shared-memory layouts of operands that lanes load by themselves, register after register.

No rule says which swizzle serves every instruction, so the first of a few is taken whose loads take
the fewest wavefronts by the rules of the machine. Units of 16 bytes or more stay in one piece, so
copies by rows have no conflicts either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

from tileworkbench.compiler.layout.fragment import Fragment
from tileworkbench.compiler.layout.layout import Layout
from tileworkbench.compiler.lower.threads.registers import register_map
from tileworkbench.compiler.machine.machine import Machine, SharedMemory

Place = Callable[[Any, Any], Any]  # row and column of a tile to its offset, in elements


@dataclass(frozen=True, slots=True)
class Loads:
    """How a warp loads one operand: for each load the row and the column where each lane begins,
    and the bytes of a lane.
    """

    starts: tuple[tuple[tuple[int, int], ...], ...]
    width: int


@lru_cache(maxsize=256)
def loads_of(fragment: Fragment, bits: int, k_last: bool) -> Loads:
    """The loads of an operand with this fragment from elements of `bits` bits; `k_last`: K is the
    last dimension of the tile, so that neighbours along K are loaded at once.
    """
    run = register_map(fragment).run if k_last else 1
    held = [fragment.elements_of(lane).tolist() for lane in range(fragment.threads)]
    starts = tuple(
        tuple((row, k) if k_last else (k, row) for row, k in (each[slot] for each in held))
        for slot in range(0, fragment.slots, run)
    )
    return Loads(starts, max(run * bits // 8, 1))


def loaded_layout(shape: tuple[int, ...], bits: int, loads: Loads, machine: Machine) -> Layout:
    """The layout of a buffer of `bits`-bit elements from which a warp makes `loads`."""
    rows, columns = shape[-2:]
    chosen = _chosen(rows, columns, bits, loads, machine.name, machine.shared)
    if isinstance(chosen, int):
        return Layout.padded((rows, columns), chosen).expand(shape[:-2])
    return Layout((rows, columns), _place(columns, chosen)).expand(shape[:-2])


@dataclass(frozen=True, slots=True)
class _Swizzle:
    """The number of a unit XORed with ``row // divisor % count``."""

    unit: int
    divisor: int
    count: int


def _place(columns: int, swizzle: _Swizzle) -> Place:
    unit, divisor, count = swizzle.unit, swizzle.divisor, swizzle.count

    def place(i: Any, j: Any) -> Any:
        number = j // unit ^ i // divisor % count if count > 1 else j // unit
        return i * columns + number * unit + j % unit

    return place


@lru_cache(maxsize=256)
def _chosen(
    rows: int, columns: int, bits: int, loads: Loads, arch: str, memory: SharedMemory
) -> _Swizzle | int:
    """The first swizzle without conflicts, else what has the fewest, or rows further apart."""
    best: tuple[int, _Swizzle | int] | None = None
    least = _cost(lambda i, j: i * columns + j, bits, loads, memory, ideal=True)
    for choice in (*_swizzles(columns, bits), *_pitches(columns, bits)):
        if isinstance(choice, int):
            cost = _cost(lambda i, j, pitch=choice: i * pitch + j, bits, loads, memory)
        else:
            cost = _cost(_place(columns, choice), bits, loads, memory)
        if best is None or cost < best[0]:
            best = cost, choice
        if cost <= least:
            break
    assert best is not None  # rows as they are come first
    return best[1]


def _swizzles(columns: int, bits: int) -> Iterator[_Swizzle]:
    yield _Swizzle(columns, 1, 1)
    for bytes_, divisor in product((16, 32, 64), (1, 2, 4, 8, 16, 32)):
        unit = bytes_ * 8 // bits
        for count in (8, 16, 4, 2):
            if columns % (unit * count) == 0:
                yield _Swizzle(unit, divisor, count)


def _pitches(columns: int, bits: int) -> Iterator[int]:
    """Rows of whole units of 16 bytes, an odd number of them apart."""
    unit = 128 // bits
    for more in (1, 2, 3):
        yield -(-columns // unit) * unit + more * unit


def _cost(
    place: Place, bits: int, loads: Loads, memory: SharedMemory, ideal: bool = False
) -> int:
    """The wavefronts of all loads, or those that their bytes need."""
    total, word = 0, memory.bank_bytes
    phases = memory.phases(len(loads.starts[0]), loads.width, reads=True)
    for starts in loads.starts:
        firsts = [place(*start) * bits // 8 for start in starts]
        for phase in phases:
            words = {
                number
                for first in (firsts[lane] for lane in phase)
                for number in range(first // word, (first + loads.width - 1) // word + 1)
            }
            if ideal:
                total += -(-len(words) // memory.banks)
                continue
            busy = [0] * memory.banks
            for number in words:
                busy[number % memory.banks] += 1
            total += max(busy)
    return total
