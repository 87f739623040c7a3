"""What the operations of one straight piece of code take of a core, side by side.

A core does arithmetic, loads and stores at the same time, and the one that takes longest decides.
The rates are those of `operation_rates`; instructions that are not vectors' are taken to be issued
a few per cycle.
"""

from __future__ import annotations

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
_LOOP_INSTRUCTIONS = 3  # of the loop that has a vector as its body
_PORTS = {LOAD: LOAD, STORE: STORE}  # all other operations share the ports of arithmetic


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
    def time_ns(self) -> float:
        """Of the port that takes longest."""
        busy: dict[str, float] = {}
        for use in self.uses:
            busy[use.port] = busy.get(use.port, 0.0) + use.time_ns
        issued = self.instructions / _ISSUED * self.rates.of(CYCLE)
        return max(issued, *busy.values()) if busy else 0.0

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


def division_spare(rates: OperationRates) -> float:
    """What part of a division a multiplication would save."""
    return max(0.0, 1 - rates.of(SIMPLE) / rates.of(DIVISION))


def scalar_ns(rates: OperationRates, operations: float) -> float:
    """Nanoseconds of operations on single elements that do not wait for each other."""
    return operations / _SCALARS * rates.of(CYCLE)
