"""A core that executes instructions as soon as it can: when each begins, and when its result is
there.

Instructions enter in the order of the program, a few per cycle, wait for their operands and for
ports, and leave in the order of the program. So many are inside at once, and fewer of those on
vectors wait: a long chain of operations hides the next one from the core. This is how a processor
that executes out of order works (Hennessy, Patterson: Computer Architecture, 3.4 to 3.6), with
times that were measured of this one.

A value of several registers has a time for each of them: tiles in registers are such values, and
one register of them is written while others are read.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Mapping

from tileworkbench.bench.cpu_ports import AHEAD
from tileworkbench.bench.llvm.core_costs import ARITHMETIC, ISSUED, MEMORY, CoreCosts, Cost
from tileworkbench.bench.llvm.instructions import Instruction
from tileworkbench.bench.llvm.values import Place, Value
from tileworkbench.bench.operation_rates import CHAIN, FORWARD
from tileworkbench.compiler.fast_dataclass import dataclass

Times = tuple[float, ...]

_THERE: Times = (0.0,)
_FULL, _NOTHING = 1.0 - 1e-6, 1e-9  # of a cycle
# Bytes by which it is known what was stored, and at whose multiples parts of it are forwarded.
_WORD, _HALF = 4, 32
_BLOCKED = 2.0  # times as long takes what cannot be forwarded, from when the store has left
# Of the places where operations on vectors wait: chains of one operation fill them evenly, other
# code does not, as the times of functions say.
_OF_USE = 0.75
_PARTS = 64  # of a cycle; what was measured is not exact, and two halves should fit into one


class Port:
    """What does operations, cycle by cycle."""

    __slots__ = ("busy", "full", "used")

    def __init__(self) -> None:
        self.busy = 0.0  # cycles in all
        self.used: dict[int, float] = {}
        self.full: dict[int, int] = {}  # by cycle: a later one that may have time left

    def free(self, cycle: int) -> int:
        """The first cycle from this one on that has time left."""
        full = self.full
        if cycle not in full:
            return cycle
        end = full[cycle]
        while end in full:
            end = full[end]
        while cycle != end:  # the next one who asks goes there at once
            full[cycle], cycle = end, full[cycle]
        return end

    def take(self, cycle: int, time: float) -> None:
        """So many cycles' time, from a cycle on."""
        used = self.used
        self.busy += time
        while time > _NOTHING:
            cycle = self.free(cycle)
            before = used.get(cycle, 0.0)
            part = min(1.0 - before, time)
            used[cycle] = before + part
            time -= part
            if before + part >= _FULL:
                self.full[cycle] = cycle + 1


@dataclass(frozen=True, slots=True)
class _Step:
    """An instruction as the core sees it: its operands, of how many registers its result is,
    nanoseconds from each operand to it beyond the least of them, and its ports with cycles of each
    register.
    """

    operands: tuple[str, ...]
    registers: int
    least_ns: float
    more_ns: tuple[float, ...]
    ports: tuple[tuple[Port, float, bool], ...]  # and whether lines of the cache count
    instructions: float
    is_vector: bool


@dataclass(frozen=True, slots=True)
class _Stored:
    """A register that was stored: its first byte, when it was there, and when the store has left,
    so that the cache can have it.
    """

    first: int
    time_ns: float
    left_ns: float


class Pipeline:
    """Executes what it is given; times are nanoseconds since its beginning."""

    def __init__(self, costs: CoreCosts) -> None:
        self.costs, core = costs, costs.core
        self.cycle_ns, self.window = core.cycles(1), _OF_USE * core.rates.window
        self.register_bytes = core.vector_bits // 8
        self.forward_ns = core.rates.of(FORWARD) - core.rates.of(CHAIN)
        self.instructions = 0.0
        self.retired_ns = 0.0  # when all that entered had left
        self.ready: dict[str, Times] = {}
        self._stored: dict[tuple[str, int], _Stored] = {}
        self._entered_ns = 0.0
        # Of those that may be inside: how many had entered with it, and when it leaves; of those on
        # vectors that may wait: when they begin, the first one first, how many they are, and all.
        self._inside = deque[tuple[float, float]]()
        self._waiting: list[tuple[float, float]] = []
        self._vectors = 0.0
        self._ports: dict[str, Port] = {}
        self._steps: dict[int, _Step] = {}

    def pass_on(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Values that are others, and there when those are: names and what they stand for."""
        ready = self.ready
        for name, times in [(name, ready.get(arg, _THERE)) for name, arg in pairs]:
            ready[name] = times

    def rename(self, name: str, other: str = "") -> None:
        """A register has what another one has, or what nobody waits for."""
        self.ready[name] = self.ready.get(other, _THERE)

    def call(
        self, name: str, costs: CoreCosts, args: Mapping[str, str], body: Callable[[], str]
    ) -> None:
        """A function whose parameters stand for `args`: `body` executes it, and returns the name of
        its result, which is then called `name`.
        """
        outer = self.costs, self.ready
        self.costs = costs
        self.ready = {param: self.ready.get(arg, _THERE) for param, arg in args.items()}
        result = self.ready.get(body(), _THERE)
        self.costs, self.ready = outer
        self.ready[name] = result

    def execute(self, each: Instruction, place: Value | None, times: float, lines: float) -> None:
        """An instruction; `place` is where it loads or stores. Its ports are taken `times` as long,
        and those of memory `lines` times besides.
        """
        if each.op == "shufflevector" and self.costs.takes_registers(each):
            self.ready[each.name] = self._taken(each)
            return
        step = self._step(each)
        if each.op == "select" and each.mask:
            self.ready[each.name] = self._chosen(each, step.registers)
            return
        begins = self._needed(step)
        if step.instructions or step.ports:
            self._enter(step, times)
            begins = self._begin(begins, step, times, lines)
        self._finish(each, step, [begin + step.least_ns for begin in begins], place)

    def skip(self, each: Instruction, times: float, lines: float) -> None:
        """An instruction that is so rare that nothing waits for it."""
        step = self._step(each)
        self._enter(step, times)
        self._begin([self._entered_ns] * step.registers, step, times, lines)

    @property
    def busy(self) -> list[float]:
        """Cycles that each port was busy, in the order in which they were first of use."""
        return [port.busy for port in self._ports.values()]

    def settle(self) -> None:
        """Time passes in which what was stored reaches the cache."""
        self._stored.clear()

    def issue(self, count: float) -> None:
        """So many instructions that need neither operands nor ports."""
        self.instructions += count
        self._entered_ns += count * self.cycle_ns / ISSUED

    def _step(self, each: Instruction) -> _Step:
        step = self._steps.get(id(each))
        if step is None:
            step = self._steps[id(each)] = self._made(each, self.costs.of(each))
        return step

    def _made(self, each: Instruction, cost: Cost) -> _Step:
        registers = max(1, round(self.costs.core.registers(each.kind)))
        least = min(cost.latencies)
        operands = self.costs.operands(each)
        more = tuple(cost.latency(number) - least for number in range(len(operands)))
        ports = tuple(
            (self._ports.setdefault(name, Port()), parts / _PARTS, name in MEMORY)
            for name, time_ns in cost.busy
            if (parts := round(time_ns / registers / self.cycle_ns * _PARTS))
        )
        is_vector = bool(cost.busy) and cost.busy[0][0] == ARITHMETIC
        return _Step(operands, registers, least, more, ports, cost.instructions, is_vector)

    def _needed(self, step: _Step) -> list[float]:
        """When the operands of each register of the result are there."""
        registers, ready = step.registers, self.ready
        latest = [0.0] * registers
        for arg, more_ns in zip(step.operands, step.more_ns, strict=True):
            known = ready.get(arg)
            if known is None:
                continue
            if len(known) != registers:
                known = (max(known),) * registers
            for at, time_ns in enumerate(known):
                if time_ns + more_ns > latest[at]:
                    latest[at] = time_ns + more_ns
        return latest

    def _enter(self, step: _Step, times: float) -> None:
        """Wait until there is room inside."""
        self.issue(step.instructions * times)
        while self._inside and self._inside[0][0] <= self.instructions - AHEAD:
            self._entered_ns = max(self._entered_ns, self._inside.popleft()[1])
        if step.is_vector:
            while self._waiting and self._vectors > self.window:
                began_ns, count = heapq.heappop(self._waiting)
                self._entered_ns = max(self._entered_ns, began_ns)
                self._vectors -= count

    def _begin(self, needed: list[float], step: _Step, times: float, lines: float) -> list[float]:
        """Take the ports for each register; returns when they begin, until when they wait."""
        begins = list[float]()
        ports = step.ports
        for time_ns in needed:
            begin_ns = max(time_ns, self._entered_ns)
            first = last = int(begin_ns / self.cycle_ns)
            for port, time, is_memory in ports:
                cycle = port.free(first)
                port.take(cycle, time * times * (lines if is_memory else 1.0))
                last = max(last, cycle)
            begins.append(begin_ns if last == first else last * self.cycle_ns)
        if step.is_vector:
            count = step.instructions * times / step.registers
            for begin_ns in begins:
                heapq.heappush(self._waiting, (begin_ns, count))
            self._vectors += step.instructions * times
        return begins

    def _finish(
        self, each: Instruction, step: _Step, times: list[float], place: Value | None
    ) -> None:
        """Note when results are there, and when the instruction leaves."""
        if isinstance(place, Place):
            size = min(each.kind.bytes_, self.register_bytes)
            for number, time_ns in enumerate(times):
                first = place.offset + number * self.register_bytes
                if each.op == "store":
                    stored = _Stored(first, time_ns, max(self.retired_ns, time_ns))
                    for offset in range(first, first + size, _WORD):
                        self._stored[place.base, offset] = stored
                else:
                    times[number] = max(time_ns, self._forwarded(place.base, first, size))
        if each.name:
            self.ready[each.name] = tuple(times)
        if step.instructions or step.ports:
            self.retired_ns = max(self.retired_ns, *times)
            self._inside.append((self.instructions, self.retired_ns))

    def _forwarded(self, base: str, first: int, size: int) -> float:
        """When what was just stored there can be loaded: a part of one store before it is in the
        cache, what lies across two, or across halves of one, after it.
        """
        last = first + max(size - _WORD, 0)
        stored = self._stored.get((base, first)), self._stored.get((base, last))
        parts = {id(each): each for each in stored if each is not None}
        if not parts:
            return 0.0
        (one, *_), is_one = parts.values(), stored[0] is stored[1]
        if is_one and (first - one.first) % min(size, _HALF) == 0:
            return one.time_ns + self.forward_ns
        return max(each.left_ns for each in parts.values()) + _BLOCKED * self.forward_ns

    def _times(self, arg: str, registers: int) -> Times:
        """When each of so many registers of a value is there."""
        known = self.ready.get(arg, _THERE)
        return known if len(known) == registers else (max(known),) * registers

    def _taken(self, each: Instruction) -> Times:
        """The registers of a shuffle that only takes them."""
        lanes = max(1, self.costs.core.vector_bits // max(each.kind.bits, 1))
        count = max(1, -(-each.kind.lanes // lanes))
        sources = (*self._times(each.args[0], count), *self._times(each.args[1], count))
        taken = []
        for start in range(0, len(each.mask), lanes):
            part = each.mask[start : start + lanes]
            lane = next((lane for lane in part if lane is not None), None)
            inside = lane is not None and lane // lanes < len(sources)
            taken.append(sources[(lane or 0) // lanes] if inside else 0.0)
        return tuple(taken)

    def _chosen(self, each: Instruction, registers: int) -> Times:
        """Lanes of one value and lanes of another."""
        first, second = (self._times(arg, registers) for arg in each.args[1:3])
        lanes = len(each.mask) // registers
        chosen = []
        for at in range(registers):
            part = each.mask[at * lanes : (at + 1) * lanes]
            both = max(first[at], second[at])
            chosen.append(first[at] if all(part) else both if any(part) else second[at])
        return tuple(chosen)
