"""A core by what was measured of it."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import field

from tileworkbench.bench.llvm.instructions import Kind
from tileworkbench.bench.memory_rates import LINE_BYTES
from tileworkbench.bench.operation_rates import CYCLE, LOAD, STORE, OperationRates
from tileworkbench.compiler.fast_dataclass import dataclass

_HALF_AS_LONG = 0.75  # takes a half that goes alone, of a whole


@dataclass(frozen=True, slots=True)
class Core:
    """A core: nanoseconds of operations, the width of its registers, those of a fused multiply-add
    of a register, and those of the dot products of one, and of a product of tile registers, by the
    type of their elements.
    """

    rates: OperationRates
    vector_bits: int
    fused_ns: float
    dots_ns: Mapping[str, float]
    has_fma: bool = True
    tiles_ns: Mapping[str, float] = field(default_factory=dict)

    def cycles(self, count: float) -> float:
        """Nanoseconds of so many cycles."""
        return count * self.rates.of(CYCLE)

    def part(self, operation: str, kind: Kind) -> float:
        """What an operation takes of that on a whole register."""
        if kind.lanes * max(kind.bits, 8) > self.vector_bits / 2:
            return 1.0
        return self.rates.half(operation) / self.rates.of(operation)

    def split(self, op: str, first: int, size: int) -> float:
        """How often as long as others a "load" or "store" takes of so many bytes from the `first`
        on. As many bytes as half a register has or a whole one go at once.
        """
        operation = LOAD if op == "load" else STORE
        is_half = self.rates.half(operation) < _HALF_AS_LONG * self.rates.of(operation)
        width = self.vector_bits // (16 if is_half else 8)
        return _split(op, first % LINE_BYTES, size, width)

    def registers(self, kind: Kind) -> float:
        """How many a value takes; at least one operation is done on it."""
        if kind.lanes <= 1:
            return 1.0
        return max(1.0, kind.lanes * max(kind.bits, 8) / self.vector_bits)


@functools.cache
def _split(op: str, first: int, size: int, width: int) -> float:
    """Where so many bytes go at once: they are loaded from each line of the cache that they lie in,
    and stored to each of their own size's places.
    """
    if op == "store":
        places = (first + size - 1) // width - first // width + 1
        return places / -(-size // width)
    parts = [
        (start, min(start + width, first + size)) for start in range(first, first + size, width)
    ]
    more = ((end - 1) // LINE_BYTES - start // LINE_BYTES for start, end in parts)
    return 1.0 + sum(more) / len(parts)
