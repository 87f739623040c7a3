"""Memory barriers that count more arrivals than ever come, or fewer than come at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import field
from math import prod

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir import simt, tile
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.expr import Address, Buffer

_Key = tuple[Buffer, int]


def arrival_counts(kernel: st.Kernel) -> Iterator[tuple[int, str]]:
    """The site and the sentence of each wait for arrivals that never come, and of each arrival of
    more threads than a phase counts.
    """
    walk = _Walk()
    walk.visit(kernel.body, prod(kernel.threads), False, True)
    for site, place in walk.waits:
        wanted, there = walk.counts.get(_key(place), 0), walk.come[_key(place)]
        if place.buffer not in walk.unknown and there < wanted:
            yield (
                site,
                f"this waits for ever: '{place.buffer.name}' waits for {wanted} "
                f"arrival{'s' if wanted != 1 else ''}, and the kernel has {there or 'none'}",
            )
    for site, place, threads in walk.together:
        wanted = walk.counts.get(_key(place), threads)
        if 0 < wanted < threads:
            yield (
                site,
                f"{threads} threads arrive at '{place.buffer.name}', which counts {wanted} "
                f"arrival{'s' if wanted != 1 else ''} in a phase: make it for {threads}, or let "
                "fewer arrive",
            )


@dataclass(slots=True)
class _Walk:
    """The count of each barrier, the arrivals that may come without loops, the waits for phase 0,
    the arrivals of `threads` that certainly come at once, and barriers of which not all is known.
    """

    counts: dict[_Key, int] = field(default_factory=dict)
    come: Counter[_Key] = field(default_factory=Counter)
    waits: list[tuple[int, Address]] = field(default_factory=list)
    together: list[tuple[int, Address, int]] = field(default_factory=list)
    unknown: set[Buffer] = field(default_factory=set)

    def visit(self, stmt: st.Stmt, threads: int, repeated: bool, certain: bool) -> None:
        """`threads` execute `stmt`; `repeated`: in a loop; `certain`: at least once."""
        match stmt:
            case simt.Role(_, extent):
                threads = extent
            case st.If():
                certain = False
            case st.For() | st.While() | tile.Pipelined():
                repeated, certain = True, False
            case simt.BarrierInit(place, count):
                self.counts[_key(place)] = const_int(count) or 0
            case simt.BarrierArrive(place):
                self.come[_key(place)] += threads
                if certain:
                    self.together.append((stmt.site, place, threads))
                if repeated or _key(place)[1] < 0:
                    self.unknown.add(place.buffer)
            case simt.BarrierSignal(place):
                self.unknown.add(place.buffer)
            case simt.Peer(source=source):
                self.unknown.add(source)
            case simt.BarrierWait(place, parity) if const_int(parity) == 0:
                self.waits.append((stmt.site, place))
        for child in stmt.children():
            if isinstance(child, st.Stmt):
                self.visit(child, threads, repeated, certain)


def _key(place: Address) -> _Key:
    """A memory barrier; -1 stands for any of its buffer."""
    number = const_int(place.indices[0])
    return place.buffer, -1 if number is None else number
