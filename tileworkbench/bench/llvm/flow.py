"""When the results of instructions are there, if nothing but their operands holds them up.

A value of several registers has a time for each of them: tiles in registers are such values, and
one register of them is written while others are read.
"""

from __future__ import annotations

from collections.abc import Sequence

from tileworkbench.bench.llvm.costs import Cost, Costs
from tileworkbench.bench.llvm.instructions import Instruction
from tileworkbench.bench.llvm.values import Place, Value
from tileworkbench.bench.operation_rates import CHAIN, FORWARD

Times = tuple[float, ...]


class Flow:
    """Times of a function's values, and of what was stored, by register."""

    def __init__(self, costs: Costs) -> None:
        self.costs, core = costs, costs.core
        self.ready: dict[str, Times] = {}
        self.stored: dict[tuple[str, int], float] = {}
        self.register_bytes = core.vector_bits // 8
        self.forward_ns = core.rates.of(FORWARD) - core.rates.of(CHAIN)
        self.last_store_ns = 0.0

    def times(self, arg: str, registers: int = 1) -> Times:
        """When each of so many registers of a value is there."""
        known = self.ready.get(arg, (0.0,))
        return known if len(known) == registers else (max(known),) * registers

    def follow(self, each: Instruction, cost: Cost, place: Value | None) -> None:
        """Note when the result of an instruction is there; `place` is where it loads or stores."""
        registers = max(1, round(self.costs.core.registers(each.kind)))
        if each.op == "store":
            times = self.times(each.args[0], registers)
            self.last_store_ns = max(self.last_store_ns, *times)
            if isinstance(place, Place):
                for number, time_ns in enumerate(times):
                    self.stored[place.base, place.offset + number * self.register_bytes] = time_ns
        elif each.op == "shufflevector" and self.costs.takes_registers(each):
            self.ready[each.name] = self._taken(each)
        elif each.op == "select" and each.mask:
            self.ready[each.name] = self._chosen(each, registers)
        else:
            times = self._computed(each, cost, registers)
            if each.op == "load" and isinstance(place, Place) and self.stored:
                times = self._forwarded(place, times)
            self.ready[each.name] = times

    def pass_on(self, name: str, arg: str) -> None:
        """A value is another one."""
        self.ready[name] = self.ready.get(arg, (0.0,))

    def _computed(self, each: Instruction, cost: Cost, registers: int) -> Times:
        latest = [0.0] * registers
        for number, arg in enumerate(each.args):
            if arg in self.ready:
                late = cost.latency(number)
                for at, time_ns in enumerate(self.times(arg, registers)):
                    latest[at] = max(latest[at], time_ns + late)
        return tuple(latest)

    def _forwarded(self, place: Place, times: Times) -> Times:
        """Loads of what was just stored get it before it is in the cache."""
        later = list(times)
        for number in range(len(later)):
            key = place.base, place.offset + number * self.register_bytes
            if key in self.stored:
                later[number] = max(later[number], self.stored[key] + self.forward_ns)
        return tuple(later)

    def _taken(self, each: Instruction) -> Times:
        """The registers of a shuffle that only takes them."""
        lanes = max(1, self.costs.core.vector_bits // max(each.kind.bits, 1))
        count = max(1, -(-each.kind.lanes // lanes))
        sources = (*self.times(each.args[0], count), *self.times(each.args[1], count))
        taken = []
        for start in range(0, len(each.mask), lanes):
            part = each.mask[start : start + lanes]
            lane = next((lane for lane in part if lane is not None), None)
            inside = lane is not None and lane // lanes < len(sources)
            taken.append(sources[(lane or 0) // lanes] if inside else 0.0)
        return tuple(taken)

    def _chosen(self, each: Instruction, registers: int) -> Times:
        """Lanes of one value and lanes of another."""
        first, second = (self.times(arg, registers) for arg in each.args[1:3])
        lanes = len(each.mask) // registers
        chosen = []
        for at in range(registers):
            part = each.mask[at * lanes : (at + 1) * lanes]
            both = max(first[at], second[at])
            chosen.append(first[at] if all(part) else both if any(part) else second[at])
        return tuple(chosen)


def longest_step(before: Sequence[Times], after: Sequence[Times]) -> float:
    """How much later values are than they were an iteration before, at most."""
    longest = 0.0
    for old, new in zip(before, after, strict=True):
        same = old if len(old) == len(new) else (max(old),) * len(new)
        longest = max(longest, *(b - a for a, b in zip(same, new, strict=True)))
    return longest
