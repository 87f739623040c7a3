"""What vector operations cost a core of this machine: nanoseconds of one vector each.

They are measured (`operation_probes.py`); `assumed_rates` has those of a machine of which only the
peak is known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from tileworkbench.compiler.fast_dataclass import dataclass

SIMPLE, INTEGER, LOAD, STORE, DIVISION = "simple", "integer", "load", "store", "division"
FORWARD, CHAIN, CYCLE = "forward", "chain", "cycle"
"""A sum that is stored and loaded again before the next; one that stays in a register; and a cycle
of the clock, which no vector is needed for."""

ACCUMULATED, MULTIPLIED, ACCESS = "accumulated", "multiplied", "access"
"""A fused multiply-add that waits for what it adds to, and one that waits for a factor; and a load
or store where three loads go with each store."""

GATHER = "gather"
"""The lanes of a vector from places that are not neighbours."""

CHAINS, CHAIN_LENGTH = "chains", 96
"""A fused multiply-add of a chain of so many that wait for each other, where chains follow that do
not: as much of their latency as a core does not hide."""

HALVED = (SIMPLE, LOAD, STORE, ACCESS, DIVISION)
"""What is measured of vectors of half as many lanes besides: some processors do two at once."""

COMPARISON, LARGER, EXTREMUM, CONVERSION, SHIFT, INTEGER_PRODUCT = (
    *("comparison", "larger", "extremum", "conversion", "shift", "integer product"),
)
SHUFFLE, PERMUTATION, WIDENING, NARROWING = "shuffle", "permutation", "widening", "narrowing"
MIXED = (
    *(COMPARISON, LARGER, EXTREMUM, CONVERSION, SHIFT, INTEGER_PRODUCT),
    *(SHUFFLE, PERMUTATION, WIDENING, NARROWING),
)
"""What is measured beside others: a comparison with the choice it is made for, the choice of the
larger of what is compared, a maximum as kernels have it, lanes of one vector and of two, and
conversions to twice as many bits and half as many."""

BESIDE = ("logic", "sums", "products")
"""What a result goes into: an operation that any port for arithmetic does, and two that some do."""

AFTER = "after itself"
"""One of `MIXED`, and a multiply-add, that wait for each other: LLVM would take a simpler operation
out of the chain."""

FUNCTIONS = ("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "tanh", "erf", "sin", "cos", "sigmoid")
"""Functions with a cost of their own; others cost what `erf` does."""

_SLIGHT = 0.2  # of a load: less than that is no share of a port

# Where nothing was measured: in units of the time in which a core ends two fused multiply-adds.
_ASSUMED: Mapping[str, float] = {
    **{
        SIMPLE: 0.4,
        INTEGER: 0.4,
        LOAD: 0.5,
        STORE: 1.0,
        DIVISION: 3.0,
        FORWARD: 7.0,
        CHAIN: 2.0,
        CYCLE: 0.7,
        ACCUMULATED: 3.0,
        MULTIPLIED: 3.0,
        ACCESS: 0.4,
        GATHER: 15.0,
        CHAINS: 1.3,
    },
    **{"half simple": 0.4, "half load": 0.5, "half store": 1.0, "half access": 0.4},
    "half division": 3.0,
    **{"exp": 5.0, "exp2": 4.0, "log": 11.0, "log2": 11.0, "sqrt": 5.0, "rsqrt": 8.0},
    **{"tanh": 11.0, "erf": 6.0, "sin": 24.0, "cos": 24.0, "sigmoid": 7.0},
    **{f"{name} beside logic": 0.8 for name in MIXED},
    **{f"{name} beside sums": 1.0 for name in MIXED},
    **{f"{name} beside products": 0.5 for name in MIXED},
    **{f"{name} {AFTER}": 5.0 for name in MIXED},
}

OPERATIONS = frozenset(_ASSUMED)
"""The names of all operations that are measured."""

USUAL = "usual"
"""How many times as long as at best operations usually take: clocks of cores change."""


@dataclass(frozen=True, slots=True)
class OperationRates:
    """Nanoseconds that a core needs for one vector register of float32, by operation."""

    vector_ns: Mapping[str, float]

    def of(self, name: str) -> float:
        """The time of an operation or function; of one that has none of its own, that of `erf`."""
        return self.vector_ns.get(name, self.vector_ns["erf"])

    @property
    def usual(self) -> float:
        """How many times as long as these operations usually take."""
        return self.vector_ns.get(USUAL, 1.0)

    @property
    def window(self) -> float:
        """Operations on vectors that wait inside a core at once, as chains of multiply-adds tell:
        one begins when there is room for its first, and those before it have done parts of theirs.
        No limit where chains were not measured.
        """
        if CHAINS not in self.vector_ns:
            return math.inf
        seen = self.of(CHAINS) / self.of(MULTIPLIED)
        left = (1 - number * seen for number in range(1, CHAIN_LENGTH))
        return CHAIN_LENGTH * sum(max(part, 0.0) for part in left) + 1.0

    def shares(self, name: str) -> tuple[float, float, float]:
        """What one of `MIXED` takes of all ports for arithmetic, of those for sums, and of those
        for products: nanoseconds by which each of `BESIDE` is longer with it.
        """
        usual = 2 * self.of(SIMPLE), self.of(LOAD) + 2 * self.of(SIMPLE), self.of(LOAD)
        logic, sums, products = (
            self.vector_ns.get(f"{name} beside {other}", default)
            for other, default in zip(BESIDE, usual, strict=True)
        )
        own, other = (
            longer if (longer := each - self.of(LOAD)) > _SLIGHT * self.of(LOAD) else 0.0
            for each in (sums, products)
        )
        return max(logic - self.of(INTEGER), self.of(SIMPLE)), own, other

    def latency(self, name: str) -> float:
        """Until the result of one of `MIXED` is there."""
        usual = self.of(CHAIN) + self.of(MULTIPLIED)
        chain = self.vector_ns.get(f"{name} {AFTER}", usual)
        return max(chain - self.of(MULTIPLIED), self.of(CYCLE))

    def half(self, name: str) -> float:
        """The time of one of `HALVED` on a vector of half as many lanes, or fewer."""
        return self.vector_ns.get(f"half {name}", self.of(name))


def assumed_rates(fused_ns: float) -> OperationRates:
    """The rates of a core that ends a vector's fused multiply-add every `fused_ns` nanoseconds."""
    return OperationRates({name: 2 * fused_ns * units for name, units in _ASSUMED.items()})
