"""Memory barriers as counters of the block: arrivals and bytes that are missing, phases that are
complete.
"""

from __future__ import annotations

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.build import add, binary, const, int_const, logical, sub
from tileworkbench.compiler.ir.expr import Address, Buffer, Expr, Load
from tileworkbench.compiler.ir.stmt import Stmt, Store, While, seq
from tileworkbench.compiler.ir.types import INT32
from tileworkbench.compiler.lower.thread_loops.block import Block

_ZERO, _ONE = int_const(0), int_const(1)


@dataclass(frozen=True, slots=True)
class Counters:
    """The state of an array of memory barriers."""

    expected: Buffer
    missing: Buffer
    bytes_: Buffer
    phase: Buffer

    @classmethod
    def of(cls, barriers: Buffer, block: Block) -> Counters:
        """Fresh counters for the memory barriers `barriers`."""
        names = ("expected", "missing", "bytes", "phase")
        made = [block.memory(f"{barriers.name}_{name}", INT32, barriers.shape) for name in names]
        return cls(*made)

    def init(self, place: Address, count: Expr, site: int) -> list[Stmt]:
        """The barrier expects `count` arrivals; phase 0 is open."""
        values = (
            (self.expected, count),
            (self.missing, count),
            (self.bytes_, _ZERO),
            (self.phase, _ZERO),
        )
        return [Store(buffer, place.indices, value, site=site) for buffer, value in values]

    def arrive(self, place: Address, count: Expr, site: int) -> list[Stmt]:
        """`count` arrivals, which may complete the phase."""
        left = sub(Load(self.missing, place.indices), count)
        return [Store(self.missing, place.indices, left, site=site), self.complete(place, site)]

    def expect(self, place: Address, bytes_: Expr, site: int) -> list[Stmt]:
        """The phase waits for `bytes_` more bytes; negative ones have arrived."""
        total = add(Load(self.bytes_, place.indices), bytes_)
        return [Store(self.bytes_, place.indices, total, site=site), self.complete(place, site)]

    def signal(self, place: Address, arrivals: int, bytes_: int, site: int) -> list[Stmt]:
        """Arrivals, and bytes that the phase also waits for or that have come."""
        made = [] if bytes_ == 0 else self.expect(place, int_const(bytes_), site)
        return [*made, *self.arrive(place, int_const(arrivals), site)]

    def complete(self, place: Address, site: int) -> Stmt:
        """Begin the next phase as long as nothing is missing."""
        at = place.indices
        missing = Load(self.missing, at)
        ready = logical(
            "logical_and",
            binary("le", missing, _ZERO),
            binary("eq", Load(self.bytes_, at), _ZERO),
        )
        steps: list[Stmt] = [
            Store(self.phase, at, add(Load(self.phase, at), _ONE), site=site),
            Store(self.missing, at, add(missing, Load(self.expected, at)), site=site),
        ]
        return While(ready, seq(steps), site=site)

    def has_completed(self, place: Address, parity: Expr) -> Expr:
        """Whether the latest phase of that parity has completed."""
        current = binary("and", Load(self.phase, place.indices), _ONE)
        return binary("ne", current, binary("and", parity, const(1, parity.dtype)))
