"""Which memory barriers order the threads that wait at them after those that arrive.

A phase completes when as many threads have arrived as the barrier was made for. Who has waited for
it knows what a thread did before it arrived, if the phase could not complete without that thread:
when the barrier counts every thread that ever arrives at it. What a thread does after it arrived is
not ordered by the wait (PTX ISA, "mbarrier").
"""

from __future__ import annotations

from math import prod

from tileworkbench.compiler.analysis.access import has_loads
from tileworkbench.compiler.analysis.uniformity import Uniformity
from tileworkbench.compiler.ir import simt
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.expr import Address, Buffer


class Arrivals:
    """The memory barriers of one kernel with one thread index."""

    def __init__(self, kernel: st.Kernel, uniformity: Uniformity) -> None:
        self._uniformity = uniformity
        self._threads: dict[tuple[Buffer, int | None], set[int]] = {}
        self._counts: dict[Buffer, dict[int | None, int]] = {}
        self._open: set[Buffer] = set()  # those with arrivals that are not counted here
        self._visit(kernel.body, range(prod(kernel.threads)))

    def order(self, barrier: Address) -> bool:
        """Whether a wait at `barrier` orders what each thread did before it arrived there.

        Never where its index is read from memory, which may change in between, or differs between
        threads.
        """
        buffer, at = barrier.buffer, _element(barrier)
        counts = self._counts.get(buffer)
        steady = not has_loads(barrier)
        if buffer in self._open or not counts or None in counts or not steady:
            return False
        if self._uniformity.varies(barrier):
            return False
        count = min(counts.values()) if at is None else counts.get(at, 0)
        threads: set[int] = set()
        for (other, element), arrived in self._threads.items():
            if other is buffer and (at is None or element is None or element == at):
                threads |= arrived
        return len(threads) <= count

    def _visit(self, stmt: st.Stmt, threads: range) -> None:
        match stmt:
            case simt.Role(start, extent):
                threads = range(start, start + extent)
            case simt.BarrierInit(place, count):
                # A number that is not known may be smaller than all others.
                self._counts.setdefault(place.buffer, {})[_element(place)] = const_int(count) or 0
            case simt.BarrierArrive(place):
                key = place.buffer, _element(place)
                self._threads.setdefault(key, set()).update(threads)
            case simt.BarrierSignal(place, arrivals) if arrivals:
                self._open.add(place.buffer)
            case simt.Peer(source=source):  # threads of other blocks arrive there, too
                self._open.add(source)
        for child in stmt.children():
            if isinstance(child, st.Stmt):
                self._visit(child, threads)


def _element(place: Address) -> int | None:
    """The number of a memory barrier in its buffer, None where it is not constant."""
    return const_int(place.indices[0])


def same_everywhere(barrier: Address) -> bool:
    """Whether `barrier` is the same one in every iteration of every loop."""
    return _element(barrier) is not None
