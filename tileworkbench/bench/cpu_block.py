"""The work of a block of a lowered CPU program, as `cpu_work` counts it and others read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.expr import Buffer

if TYPE_CHECKING:
    from tileworkbench.bench.cpu_reuse import Reused

Env = dict[str, int | float | bool]


@dataclass(slots=True)
class Spent:
    """What one site spends on one kind of work: nanoseconds of a core, those of them that other
    code would spare, and how many operations it does.
    """

    time_ns: float = 0.0
    spare_ns: float = 0.0
    count: float = 0.0


@dataclass(slots=True)
class BlockWork:
    """What one block does.

    `spent` is by site and kind: ``arithmetic``, ``division``, ``scalar``, ``scattered``, ``chain``,
    ``loop``, ``packing``, or the name of a function. `products` are the operations
    of micro-kernels by site and element type, `moved` the bytes of each tensor by site and tensor,
    `far` those of them that come from behind the second cache, and `written` those that are stored;
    `accessed` are the bytes of all loads and stores of
    a site, tiles included.
    """

    spent: dict[tuple[int, str], Spent] = field(default_factory=dict)
    products: dict[tuple[int, str], float] = field(default_factory=dict)
    moved: dict[tuple[int, Buffer], float] = field(default_factory=dict)
    written: dict[tuple[int, Buffer], float] = field(default_factory=dict)
    far: dict[tuple[int, Buffer], float] = field(default_factory=dict)
    accessed: dict[int, float] = field(default_factory=dict)
    total_ns: float = 0.0  # of `spent`

    def add(
        self, site: int, kind: str, time_ns: float, spare_ns: float = 0.0, count: float = 0.0
    ) -> None:
        """More of a kind of work."""
        spent = self.spent.setdefault((site, kind), Spent())
        spent.time_ns += time_ns
        spent.spare_ns += spare_ns
        spent.count += count
        self.total_ns += time_ns

    def move(self, site: int, buffer: Buffer, bytes_: float) -> None:
        """More bytes of a tensor or tile."""
        self.access(site, bytes_)
        if buffer.scope == "global":
            self.moved[site, buffer] = self.moved.get((site, buffer), 0.0) + bytes_

    def write(self, site: int, buffer: Buffer, bytes_: float) -> None:
        """So many of the bytes moved are stored."""
        if buffer.scope == "global":
            self.written[site, buffer] = self.written.get((site, buffer), 0.0) + bytes_

    def access(self, site: int, bytes_: float) -> None:
        """More bytes that are loaded or stored."""
        self.accessed[site] = self.accessed.get(site, 0.0) + bytes_

    def keep(
        self, near: Mapping[tuple[int, Buffer], float], far: Mapping[tuple[int, Buffer], float]
    ) -> None:
        """Of what a site moves of a tensor, only the part `near` comes from outside of the
        innermost cache, and only the part `far` from behind the next.
        """
        for key, bytes_ in self.moved.items():
            self.far[key] = bytes_ * far.get(key, 1.0)
            self.moved[key] = bytes_ * near.get(key, 1.0)
            if key in self.written:
                self.written[key] *= near.get(key, 1.0)

    def mean(self, blocks: int) -> BlockWork:
        """The work of one block, where this is that of several."""
        return BlockWork(
            {
                key: Spent(spent.time_ns / blocks, spent.spare_ns / blocks, spent.count / blocks)
                for key, spent in self.spent.items()
            },
            {key: operations / blocks for key, operations in self.products.items()},
            {key: bytes_ / blocks for key, bytes_ in self.moved.items()},
            {key: bytes_ / blocks for key, bytes_ in self.written.items()},
            accessed={site: bytes_ / blocks for site, bytes_ in self.accessed.items()},
            total_ns=self.total_ns / blocks,
        )


@dataclass(frozen=True, slots=True)
class GridWork:
    """A launch: how many blocks, and the work of one of them on average."""

    site: int
    blocks: int
    block: BlockWork
    loop: st.For
    env: Env  # what is known around the launch
    reused: Mapping[float, Reused]  # by the size of a cache
