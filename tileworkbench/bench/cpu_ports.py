"""What the operations of one straight piece of code take of a core, side by side.

A core does arithmetic, loads and stores at the same time, and the one that takes longest decides.
The rates are those of `operation_rates`; instructions that are not vectors' are taken to be issued
a few per cycle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from tileworkbench.bench.operation_rates import (
    CYCLE,
    DIVISION,
    LOAD,
    SIMPLE,
    STORE,
    OperationRates,
)
from tileworkbench.compiler.fast_dataclass import dataclass

ARITHMETIC = "arithmetic"

# Instructions a cycle: what code without vectors reaches, and what a core takes of any kind.
_SCALARS, _ISSUED = 5.0, 5.0
_ISSUE = "issue"
AHEAD = 320  # instructions that a core has under way
_LOOP_INSTRUCTIONS = 3  # of the loop that has a vector as its body
# Quotients and roots are begun by a port of arithmetic and then computed beside it; all other
# operations share the ports of arithmetic.
_PORTS = {LOAD: LOAD, STORE: STORE, **dict.fromkeys((DIVISION, "sqrt", "rsqrt"), DIVISION)}


@dataclass(slots=True)
class Use:
    """Nanoseconds of one port for one kind of work of a site; `spare_ns` would not be needed."""

    site: int
    kind: str
    port: str
    time_ns: float
    spare_ns: float
    count: float


@dataclass(slots=True)
class Ports:
    """The operations of a piece of code, each with the port that does it."""

    rates: OperationRates
    uses: list[Use] = field(default_factory=list)
    instructions: float = _LOOP_INSTRUCTIONS

    def add(
        self,
        site: int,
        operation: str,
        registers: float,
        kind: str = ARITHMETIC,
        spare: float = 0.0,
        count: float = 0.0,
    ) -> None:
        """`registers` vectors of an operation; the part `spare` of its time is needless."""
        port, time_ns = _PORTS.get(operation, SIMPLE), self.rates.of(operation) * registers
        self.instructions += registers
        self.uses.append(Use(site, kind, port, time_ns, spare * time_ns, count))

    def lanes(self, site: int, lanes: float, cycles: float, spare: float) -> None:
        """Lanes that are loaded or stored one by one."""
        time_ns = lanes * cycles * self.rates.of(CYCLE)
        self.uses.append(Use(site, "scattered", SIMPLE, time_ns, spare * time_ns, lanes))

    @property
    def busy(self) -> dict[str, float]:
        """Nanoseconds of each port, and of what issues instructions to them."""
        busy: dict[str, float] = {}
        for use in self.uses:
            busy[use.port] = busy.get(use.port, 0.0) + use.time_ns
        if busy:
            busy[_ISSUE] = self.instructions / _ISSUED * self.rates.of(CYCLE)
        return busy

    @property
    def time_ns(self) -> float:
        """Of the port that takes longest."""
        return max(self.busy.values(), default=0.0)

    def shares(self) -> list[Use]:
        """The uses, with times that add up to `time_ns`."""
        total = sum(use.time_ns for use in self.uses)
        scale = self.time_ns / total if total else 0.0
        return [
            Use(
                each.site,
                each.kind,
                each.port,
                each.time_ns * scale,
                each.spare_ns * scale,
                each.count,
            )
            for each in self.uses
        ]


@dataclass(slots=True)
class Piece:
    """Straight code that is executed `times` times, of whose time the part `scale` is its own."""

    ports: Ports
    times: float
    scale: float = 1.0


def overlap(pieces: Sequence[Piece], iterations: float) -> None:
    """Let the pieces of an iteration go on side by side, as far as a core looks ahead.

    Where all of them are fewer instructions than that, the loads of one go on beside the stores of
    another, and the port with most to do in all of them decides; of longer ones, only their ends.
    """
    together: dict[str, float] = {}
    apart = instructions = 0.0
    for piece in pieces:
        busy = piece.ports.busy
        apart += piece.scale * piece.times * max(busy.values(), default=0.0)
        instructions += piece.times * piece.ports.instructions
        for port, time_ns in busy.items():
            together[port] = together.get(port, 0.0) + piece.times * time_ns
    least = max(together.values(), default=0.0)
    if least < apart:
        seen = min(1.0, AHEAD * iterations / instructions)
        for piece in pieces:
            piece.scale *= 1 - seen * (1 - least / apart)


def waits(rates: OperationRates, site: int, time_ns: float) -> Ports:
    """An iteration that begins `time_ns` after the one before it: other code goes on meanwhile."""
    return Ports(rates, [Use(site, "chain", "chain", time_ns, time_ns, 1.0)], 0.0)


def division_spare(rates: OperationRates) -> float:
    """What part of a division a multiplication would save."""
    return max(0.0, 1 - rates.of(SIMPLE) / rates.of(DIVISION))


def scalar_ns(rates: OperationRates, operations: float) -> float:
    """Nanoseconds of operations on single elements that do not wait for each other."""
    return operations / _SCALARS * rates.of(CYCLE)
