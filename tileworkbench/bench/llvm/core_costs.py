"""What the kinds of operations cost a core: time of its ports, and until a result is there.

Times are those that were measured of such operations (`operation_rates.py`). Multiplications and
additions have ports of their own, half of those for arithmetic, as on most processors: two fused
multiply-adds at once are the peak. How much of them other operations take was measured beside sums
and products; rounding is done where conversions are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from tileworkbench.bench.llvm.core import Core
from tileworkbench.bench.llvm.instructions import Instruction, Kind
from tileworkbench.bench.operation_rates import (
    ACCESS,
    ACCUMULATED,
    CHAIN,
    COMPARISON,
    DIVISION,
    GATHER,
    INTEGER,
    LOAD,
    MULTIPLIED,
    SIMPLE,
    STORE,
)
from tileworkbench.compiler.emit.llvm import amx
from tileworkbench.compiler.fast_dataclass import dataclass

ARITHMETIC, MULTIPLY, ADD, LANES = "arithmetic", "multiply", "add", "lanes"
SCALARS = "integers"
LOADS, STORES, ACCESSES, DIVIDER, DIVIDER_OF_INTEGERS = (
    *("load", "store", "access", "divider", "integer divider"),
)
WAIT = "wait"
MEMORY = frozenset((LOADS, STORES, ACCESSES))

ISSUED = 6.0  # instructions a cycle
ONE = Kind(1, 32)
_WHOLE = Kind(64, 64)  # as many lanes as any register has
# In cycles: until a number from the innermost cache is there, a quotient of integers and what it
# takes of its divider, an update that no other core may interrupt, a lane that is scattered, a
# function of the C library.
_LOADED, _QUOTIENT, _DIVIDES, _ATOMIC, _SCATTERED, _LIBRARY = 5.0, 12.0, 6.0, 20.0, 1.0, 40.0
_GATHERING, _GATHERED = 20.0, 2.5  # cycles of a gather; instructions of each lane
_INTEGERS = 4.0  # integers in a cycle
_ONE_OF_MANY = 0.5  # a quotient or root of one element takes so much of a vector's
_TILE_ROWS = amx.ROWS
# Cycles until a tile is there that is loaded, and one of sums (Intel 64 and IA-32 Optimization
# Reference Manual, "Intel AMX instructions throughput and latency").
_TILE_LOADED, _TILE_MULTIPLIED = 45.0, 52.0
LATE = 4.0  # quotients and roots, in additions

Busy = tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Cost:
    """Nanoseconds of ports, the number of instructions, and nanoseconds from each operand to the
    result; the last one counts for operands that are not listed.
    """

    busy: Busy = ()
    instructions: float = 0.0
    latencies: tuple[float, ...] = (0.0,)

    def latency(self, operand: int) -> float:
        """From an operand by its number."""
        return self.latencies[min(operand, len(self.latencies) - 1)]


FREE = Cost()


class CoreCosts(ABC):
    """The costs of instructions; what they are is told by a subclass."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.add_ns, self.cycle_ns = core.rates.of(CHAIN), core.cycles(1)
        self._known: dict[int, Cost] = {}

    @abstractmethod
    def cost(self, each: Instruction) -> Cost:
        """What an instruction costs."""

    def of(self, each: Instruction) -> Cost:
        """What an instruction costs, found once; loads and stores as those within a line of the
        cache.
        """
        known = self._known.get(id(each))
        if known is None:
            known = self._known[id(each)] = self.cost(each)
        return known

    def operands(self, each: Instruction) -> tuple[str, ...]:
        """What the result of an instruction waits for."""
        return each.args

    def takes_registers(self, each: Instruction) -> bool:
        """Whether every register of the result is one of the operands'."""
        return False

    def integers(self, kind: Kind) -> Cost:
        """What any port for arithmetic does with vectors of integers."""
        registers = self.core.registers(kind)
        time_ns = registers * self.core.part(SIMPLE, kind) * self.core.rates.of(INTEGER)
        return Cost(((ARITHMETIC, time_ns),), registers, (self.cycle_ns,))

    def scalar(self, count: float = 1.0, cycles: float = 1.0) -> Cost:
        """So many instructions on single integers, of which a core does some in a cycle."""
        time_ns = count * self.cycle_ns / _INTEGERS
        return Cost(((SCALARS, time_ns),), count, (self.core.cycles(cycles),))

    def busy(self, registers: float, port: str = "", kind: Kind = _WHOLE) -> Busy:
        """So many vectors of arithmetic on values of a type, on a port of their own if named."""
        registers *= self.core.part(SIMPLE, kind)
        ports = ((ARITHMETIC, registers * self.core.rates.of(SIMPLE)),)
        return (*ports, (port, registers * self.core.fused_ns)) if port else ports

    def arithmetic(self, each: Instruction, port: str, latency: float, times: float = 1.0) -> Cost:
        """An operation on floats that any port for arithmetic does, or one that is named."""
        registers = times * self.core.registers(each.kind)
        return Cost(self.busy(registers, port, each.kind), registers, (latency,))

    def mixed(self, operation: str, registers: float, kind: Kind) -> Busy:
        """The ports of an operation that was measured beside others, on values of a type."""
        registers *= self.core.part(SIMPLE, kind)
        shares = self.core.rates.shares(operation)
        return tuple(
            (port, registers * time_ns)
            for port, time_ns in zip((ARITHMETIC, ADD, MULTIPLY), shares, strict=True)
            if time_ns
        )

    def measured(self, operation: str, kind: Kind, instructions: float = 1.0) -> Cost:
        """Such an operation on a value of a type, so many instructions for each register."""
        registers, late = self.core.registers(kind), self.core.rates.latency(operation)
        return Cost(self.mixed(operation, registers, kind), instructions * registers, (late,))

    def moved(self, operation: str, registers: float, kind: Kind) -> Busy:
        """The ports of what moves lanes of so many vectors; one of these has all of them."""
        own = registers * self.core.part(SIMPLE, kind) * self.core.fused_ns
        return (*self.mixed(operation, registers, kind), (LANES, own))

    def access(self, port: str, operation: str, kind: Kind) -> Busy:
        """A value that is loaded or stored."""
        core, registers = self.core, self.core.registers(kind)
        return tuple(
            (name, registers * core.rates.of(each) * core.part(each, kind))
            for name, each in ((port, operation), (ACCESSES, ACCESS))
        )

    def loaded(self, kind: Kind, count: float) -> Cost:
        """A load, which is so many instructions."""
        return Cost(self.access(LOADS, LOAD, kind), count, (self.core.cycles(_LOADED),))

    def store(self, each: Instruction) -> Cost:
        return Cost(self.access(STORES, STORE, each.kind), self.core.registers(each.kind))

    def fused(self, kind: Kind, adds_to: int) -> Cost:
        """A multiply-add of values of a type; which of its operands is added to."""
        registers = self.core.registers(kind)
        return Cost(self.busy(registers, MULTIPLY, kind), registers, self.late(adds_to))

    def late(self, adds_to: int) -> tuple[float, ...]:
        """Latencies of three operands, one of which products are added to."""
        rate = self.core.rates.of
        return tuple(rate(ACCUMULATED if at == adds_to else MULTIPLIED) for at in range(3))

    def dots(self, name: str, kind: Kind, adds_to: int) -> Cost:
        """Products of pairs or fours that are added to a register of sums; the name of their
        instruction tells their type.
        """
        dtype = "bfloat16" if "bf16" in name else "int16" if "wss" in name else "int8"
        registers, part = self.core.registers(kind), self.core.part(SIMPLE, kind)
        busy = ((MULTIPLY, part * registers * self.core.dots_ns[dtype]), *self.busy(registers))
        return Cost(busy, registers, self.late(adds_to))

    def tile_products(self, name: str) -> Cost:
        """AMX: sixteen rows by sixteen columns of sums, sixteen registers of operands each."""
        time_ns = self.core.tiles_ns["bfloat16" if "bf16" in name else "int8"]
        return Cost(((MULTIPLY, time_ns),), 1.0, (self.core.cycles(_TILE_MULTIPLIED),))

    def tile_moved(self, port: str, operation: str) -> Cost:
        """AMX: a tile is loaded or stored a row after the other."""
        late = self.core.cycles(_TILE_LOADED) if port == LOADS else 0.0
        return Cost(((port, _TILE_ROWS * self.core.rates.of(operation)),), 1.0, (late,))

    def divides(self, each: Instruction, operation: str, additions: float) -> Cost:
        """A quotient or root of floats, which takes as long as so many additions."""
        registers = self.core.registers(each.kind)
        part = _ONE_OF_MANY if each.kind.lanes == 1 else self.core.part(DIVISION, each.kind)
        time_ns = part * registers * self.core.rates.of(operation)
        busy = (*self.busy(registers, MULTIPLY, each.kind), (DIVIDER, time_ns))
        return Cost(busy, registers, (additions * self.add_ns,))

    def integer_division(self, each: Instruction) -> Cost:
        """A quotient of integers."""
        busy = ((DIVIDER_OF_INTEGERS, self.core.cycles(_DIVIDES)),)
        return Cost(busy, 2.0, (self.core.cycles(_QUOTIENT),))

    def comparison_of(self, kind: Kind) -> Cost:
        """A comparison, which was measured with a choice, an instruction besides."""
        registers, simple = self.core.registers(kind), self.core.rates.of(SIMPLE)
        (port, both_ns), *others = self.mixed(COMPARISON, registers, kind)
        choice_ns = registers * self.core.part(SIMPLE, kind) * simple
        busy = (port, max(both_ns - choice_ns, choice_ns)), *others
        late = max(self.core.rates.latency(COMPARISON) - self.cycle_ns, self.cycle_ns)
        return Cost(busy, registers, (late,))

    def gathered(self, lanes: int, is_own: bool) -> Cost:
        """Lanes of 32 bits from places that are no neighbours, an address out of a vector and an
        element into one for each; whether the core does so by itself.
        """
        registers, moves = lanes * 32 / self.core.vector_bits, _GATHERED * lanes
        loads, own = (LOADS, registers * self.core.rates.of(GATHER)), self.busy(moves, kind=ONE)
        busy = (loads, *own) if is_own else (*own, loads)
        return Cost(busy, moves, (self.core.cycles(_GATHERING),))

    def scattered(self, lanes: int) -> Cost:
        """Lanes that are stored one by one."""
        time_ns = lanes * self.core.cycles(_SCATTERED)
        return Cost(((STORES, time_ns),), 1.5 * lanes)

    def atomic(self, each: Instruction) -> Cost:
        """An update that no other core may interrupt."""
        time_ns = self.core.cycles(_ATOMIC)
        return Cost(((WAIT, time_ns),), 1.0, (time_ns,))

    def library(self, each: Instruction) -> Cost:
        """A function of the C library."""
        time_ns = self.core.cycles(_LIBRARY)
        return Cost(((ARITHMETIC, time_ns),), _LIBRARY, (time_ns,))
