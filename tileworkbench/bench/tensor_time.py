"""How long the levels of memory take for the tensors of a program, at measured rates: the bytes
that each level serves (`cpu_traffic.py`) at its usual rate, rows apart from each other at theirs
(`cpu_runs.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from tileworkbench.bench.ceilings import LEVELS
from tileworkbench.bench.cpu_block import GridWork
from tileworkbench.bench.cpu_runs import Near, Rows, near_of, rows_ns, rows_of
from tileworkbench.bench.cpu_traffic import Moved, Served, moved_by, serve
from tileworkbench.bench.memory_rates import MemoryRates
from tileworkbench.bench.points import BANDWIDTH, Machine
from tileworkbench.bench.probes import host_isa
from tileworkbench.compiler.analysis.effects import constant_buffers
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.analysis.streaming import fetched_loads
from tileworkbench.compiler.device.host import processor
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.ir.program import Program

Pieces = Sequence[tuple[float, Mapping[str, float]]]
"""Microseconds of pieces of code, and the bytes that they move of each tensor, by its name."""


class TensorTime:
    """What tensors take of the levels of a machine's memory."""

    def __init__(self, machine: Machine, memory: MemoryRates, lowered: Program) -> None:
        self.machine, self.memory = machine, memory
        self.levels = tuple(name for name in LEVELS if machine.find(name, BANDWIDTH) is not None)
        self.moved: Moved = {}
        self.stored: dict[tuple[int, Buffer], float] = {}
        self.rows: dict[Buffer, tuple[Rows, Near]] = {}
        # As the emitter names the arguments of a launch.
        params = enumerate(each.value for each in lowered.params)
        self.names = {each: f"%p{at}" for at, each in params if isinstance(each, Buffer)}
        constant = constant_buffers(lowered.body)
        loads = fetched_loads(lowered, constant, Ranges(lowered), host_isa().near_rows)
        self.fetched = {load.buffer for load in loads}

    def add(self, grid: GridWork) -> None:
        """Note how the blocks of a grid walk its tensors, and what they store."""
        caches = processor.cache_sizes()
        rows = rows_of(grid, caches.l2, self.fetched)
        for buffer, each in rows.items():
            self.rows[buffer] = each, near_of(each, rows.values(), caches.l1, caches.l2)
        for key, bytes_ in grid.block.written.items():
            self.stored[key] = self.stored.get(key, 0.0) + bytes_ * grid.blocks

    def served(
        self, works: Sequence[GridWork], used: int, pieces: Pieces
    ) -> Iterator[tuple[Served, float]]:
        """What levels serve to all grids, by so many threads, with microseconds; `pieces` of code
        tell what is loaded and stored at the same time.
        """
        self.moved, far = moved_by(works)
        served = [
            (each, *self.served_us(each, used))
            for each in serve(self.moved, far, used, self.levels, self.memory.kept_part)
        ]
        left = self.side_by_side(served, pieces)
        for each, straight_us, more_us in served:
            yield each, straight_us + left * more_us

    def served_us(self, each: Served, used: int) -> tuple[float, float]:
        """The time of a level for what it serves to a site, with so many threads, if all of it lay
        in a row; and what it takes more.
        """
        rate = self.machine.find(each.level, BANDWIDTH, used)
        if rate is None or each.level == "L1":  # loads and stores are counted as such
            return 0.0, 0.0
        stored = self.stored_part(each)
        # A line that is stored to is fetched first; caches give others back meanwhile.
        more = self.memory.stored(each.level) - 1 if each.level in ("DRAM", "L3") else 0.0
        bytes_ = (1 + stored * more) * each.bytes_
        alone = self.machine.find(each.level, BANDWIDTH, 1)
        usual = self.memory.usual(each.level, alone.value) if alone else 1.0
        straight_ns, more_ns = usual * bytes_ / rate.value, 0.0
        if each.buffer in self.rows:
            rows, near = self.rows[each.buffer]
            alone_ns = used * straight_ns  # of one thread
            about = (self.memory, each.level, stored > 0.5, near)
            more_ns = (rows_ns(rows, each.bytes_, alone_ns, *about) - alone_ns) / used
        return straight_ns / 1e3, more_ns / 1e3

    def stored_part(self, each: Served) -> float:
        """Which part of the bytes of a site and tensor is stored."""
        key = each.site, each.buffer
        return self.stored.get(key, 0.0) / self.moved[key]

    def side_by_side(self, served: Sequence[tuple[Served, float, float]], pieces: Pieces) -> float:
        """Which part of what rows in pages apart take more is left where some are loaded and others
        stored to by one loop: they wait for lines at the same time.
        """
        kinds = {True: 0.0, False: 0.0}
        stored = set[str]()
        for each, straight_us, more_us in served:
            is_stored = self.stored_part(each) > 0.5
            kinds[is_stored] += straight_us + more_us
            if is_stored and each.buffer in self.names:
                stored.add(self.names[each.buffer])
        more = sum(more_us for _, _, more_us in served)
        straight = sum(kinds.values()) - more
        if not more:
            return 1.0
        left = max(max(kinds.values()) - straight, 0.0) / more
        both = part_of_both(pieces, stored)
        return both * left + 1 - both


def part_of_both(pieces: Pieces, stored: Collection[str]) -> float:
    """Which part of the bytes of tensors is moved by code that loads some, and stores others, whose
    names are given.
    """
    both = all_ = 0.0
    for _, sizes in pieces:
        bytes_ = sum(sizes.values())
        all_ += bytes_
        if {name in stored for name in sizes} == {True, False}:
            both += bytes_
    return both / all_ if all_ else 1.0
