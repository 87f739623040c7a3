"""How long a kernel will take on this CPU, from its lowered program and the machine's ceilings.

The program is walked for a few blocks all over the grid. Five parts:

- arithmetic: micro-kernels at the peak of their operands, and the operations of loops at the rates
  that were measured of each (`operation_rates.py`), by the port that has most to do
  (`cpu_ports.py`); sums that wait for each other at their latency;
- packing: vectors written by `Pack`;
- tiles: what has to come back from behind a core's inner caches (`cpu_reuse.py`);
- memory: the bytes that each level serves (`cpu_traffic.py`) at its measured rate; loops that move
  much wait for it by themselves (`cpu_phases.py`);
- overhead: the call, a launch, a block, and pages of outputs that the system has to clear.

Arithmetic and packing share a core's time with waiting for memory; processors overlap the two in
part, which the square root of the sum of squares stands for. Within tens of percent this tells
what a kernel spends its time on; `bench` tells how long it takes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import field, replace

from tileworkbench.bench.ceilings import LEVELS
from tileworkbench.bench.cpu_block import GridWork, Spent
from tileworkbench.bench.cpu_phases import Phase, phases
from tileworkbench.bench.cpu_reuse import Reused
from tileworkbench.bench.cpu_terms import bytes_of
from tileworkbench.bench.cpu_traffic import Moved, Served, moved_by, serve
from tileworkbench.bench.cpu_work import grids
from tileworkbench.bench.operation_rates import OperationRates, assumed_rates
from tileworkbench.bench.parts import Causes, Part
from tileworkbench.bench.points import BANDWIDTH, PEAK, Machine
from tileworkbench.bench.probes import host_isa
from tileworkbench.bench.units import format_bytes, format_count, format_time
from tileworkbench.compiler.device.host import processor
from tileworkbench.compiler.diagnostics import ArgumentError, line_in
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.ir.program import Program, Stage

# Microseconds of a call and of a block; nanoseconds per byte of a fresh page, which the C library
# asks the system for from so many bytes on.
_CALL_US, _WAKE_US, _BLOCK_US = 6.0, 3.0, 0.0015
_FRESH_NS, _FRESH_BYTES = 0.15, 32 << 20
_CORE, _MEMORY = "core", "memory"  # what parts keep busy


@dataclass(frozen=True, slots=True)
class Prediction:
    """Microseconds of a call by what they are spent on; `memory_us` has a part for each level, in
    which cores compute something else, and `waiting_us` is when they do not.

    `causes` has the same time by line.
    """

    compute_us: float
    packing_us: float
    memory_us: Mapping[str, float]
    overhead_us: float
    threads: int
    causes: Causes = field(default_factory=lambda: Causes(()))
    tiles_us: float = 0.0
    waiting_us: float = 0.0

    @property
    def total_us(self) -> float:
        """The whole call."""
        work = self.compute_us + self.packing_us + self.tiles_us + self.waiting_us
        memory = sum(self.memory_us.values())
        return float(math.hypot(work, memory)) + self.overhead_us

    def __str__(self) -> str:
        parts = {"compute": self.compute_us, "packing": self.packing_us, "tiles": self.tiles_us}
        parts["waiting"] = self.waiting_us
        parts |= self.memory_us
        shown = ", ".join(f"{name} {value:.3g}" for name, value in parts.items() if value)
        return f"{self.total_us:.4g} µs ({shown}, overhead {self.overhead_us:.3g})"


def refuse_unknown(lowered: Program) -> None:
    """Raise the `ArgumentError` of `predict_time`, before anything is measured for it."""
    if lowered.stage is not Stage.CPU or lowered.symbols:
        raise ArgumentError(
            f"the time of '{lowered.name}' is not known before a call",
            hint="predictions are for target 'cpu' and shapes without symbols",
        )


def predict_time(
    lowered: Program,
    machine: Machine,
    threads: int,
    file: str = "",
    rates: OperationRates | None = None,
) -> Prediction:
    """The time of a call of a program of stage CPU with at most `threads` threads.

    `file` is that of the kernel's own text, whose lines the parts name. Without `rates`, measured
    ones of the same machine, operations take so many times what its peak says of a multiply-add.

    Raises `ArgumentError` for symbolic shapes, whose sizes only a call knows, and for programs of
    other targets.
    """
    refuse_unknown(lowered)
    model = _Model(machine, lowered, file, rates)
    works = tuple(grids(lowered, model.rates))
    used = max((model.launch(grid, threads) for grid in works), default=1)
    fresh = sum(
        size
        for param in lowered.params
        if param.output and (size := bytes_of(param.value)) >= _FRESH_BYTES
    )
    wake = _WAKE_US if used > 1 else 0.0
    overhead = _CALL_US + wake + model.block_us + fresh * _FRESH_NS / 1e3
    memory: dict[str, float] = {}
    model.moved, far = moved_by(works)
    for each in serve(model.moved, far, used, model.levels):
        rate = machine.find(each.level, BANDWIDTH, used)
        if rate is not None and each.level != "L1":  # loads and stores are counted as such
            # A line that is stored to is fetched first.
            time_us = (1 + model.stored_part(each)) * each.bytes_ / rate.value / 1e3
            together = time_us - model.wait(each, time_us, used)
            memory[each.level] = memory.get(each.level, 0.0) + together
            model.parts.append(model.memory_part(each, together))
    waiting = model.waits()
    model.parts.append(model.launch_part(_CALL_US + wake + model.block_us))
    clears = "clears new memory for the outputs: the system does that for large ones"
    model.parts.append(Part("fresh pages", fresh * _FRESH_NS / 1e3, finding=clears))
    causes = Causes(tuple(part for part in model.parts if part.time_us > 0), _MODEL)
    times = model.compute_us, model.packing_us, memory, overhead
    return Prediction(*times, used, causes, model.tiles_us, waiting)


_MODEL = "a model of this machine's cores under its measured ceilings"


class _Model:
    def __init__(
        self, machine: Machine, lowered: Program, file: str, rates: OperationRates | None
    ) -> None:
        self.machine, self.lowered, self.file = machine, lowered, file
        self.lanes = host_isa().lanes(4)
        self.rates = rates or assumed_rates(2 * self.lanes / self.peak("float32"))
        self.levels = tuple(name for name in LEVELS if machine.find(name, BANDWIDTH) is not None)
        self.compute_us = self.packing_us = self.tiles_us = self.block_us = 0.0
        self.moved: Moved = {}
        self.stored: dict[tuple[int, Buffer], float] = {}
        self.computes: dict[int, float] = {}  # microseconds by site, with its tiles
        self.waiting: dict[Phase, list[tuple[Served, float]]] = {}
        self.parts: list[Part] = []
        self.launch_site = 0

    def peak(self, dtype: str) -> float:
        """GFLOP/s of one thread."""
        ceiling = self.machine.find(dtype, PEAK, 1)
        return ceiling.value if ceiling else 1.0

    def line(self, site: int) -> int:
        """The line of a site in the kernel's own text, 0 elsewhere."""
        return line_in(self.file, self.lowered.span(site))

    def launch(self, grid: GridWork, threads: int) -> int:
        """Add one grid; returns the number of threads it uses."""
        blocks, block = grid.blocks, grid.block
        workers = min(threads, blocks)
        rounds = math.ceil(blocks / workers)
        busy = blocks / (threads * rounds)  # part of the cores' time in which they have a block
        self.launch_site = self.launch_site or grid.site
        before = self.compute_us + self.packing_us
        for (site, kind), spent in block.spent.items():
            time_us = rounds * spent.time_ns / 1e3
            self.computes[site] = self.computes.get(site, 0.0) + time_us
            if kind == "packing":
                self.packing_us += time_us
            else:
                self.compute_us += time_us
            self.parts.append(self.compute_part(site, kind, spent, time_us * busy, blocks))
        for (site, dtype), operations in block.products.items():
            time_us = rounds * operations / self.peak(dtype) / 1e3
            self.compute_us += time_us
            finding = "multiplies tiles, at the peak of the arithmetic"
            at = self.line(site)
            self.parts.append(Part("compute", time_us * busy, _CORE, at, finding))
        self.idle(self.compute_us + self.packing_us - before, busy, blocks, threads)
        self.tiles(grid, workers, rounds)
        self.waiting |= {phase: [] for phase in phases(grid.loop, dict(grid.env))}
        self.block_us += rounds * _BLOCK_US
        for key, bytes_ in block.written.items():
            self.stored[key] = self.stored.get(key, 0.0) + bytes_ * blocks
        return workers

    def tiles(self, grid: GridWork, workers: int, rounds: int) -> None:
        """The time in which a core waits for tiles that its inner caches have given up."""
        caches = processor.cache_sizes()
        sizes = {"L1": caches.l1, "L2": caches.l2, "L3": caches.l3 / workers}
        computes: dict[int, float] = {}
        for (site, _), spent in grid.block.spent.items():
            computes[site] = computes.get(site, 0.0) + rounds * spent.time_ns / 1e3
        for inner, level in itertools.pairwise(self.levels):
            rate = self.machine.find(level, BANDWIDTH, workers)
            if rate is None:
                continue
            size = sizes[inner]
            reused = grid.reused.get(size) or Reused(grid.loop, dict(grid.env), size)
            for site, bytes_ in reused.tile_misses().items():
                # A line's own arithmetic goes on meanwhile; what the next lines do waits for it.
                busy = computes.get(site, 0.0)
                waiting = rounds * bytes_ * workers / rate.value / 1e3
                time_us = math.hypot(busy, waiting) - busy
                self.tiles_us += time_us
                computes[site] = busy + time_us
                self.computes[site] = self.computes.get(site, 0.0) + time_us
                finding = (
                    f"fetches {format_bytes(bytes_ * grid.blocks)} of tiles from {level}, because "
                    f"{inner} is too small for what lies between two uses"
                )
                remedy = "Smaller tiles stay nearer to the core."
                line = self.line(site)
                self.parts.append(Part("tiles", time_us, _CORE, line, finding, time_us, remedy))

    def wait(self, each: Served, time_us: float, used: int) -> float:
        """Note what of a level's time for a site nothing overlaps with."""
        phase = next((phase for phase in self.waiting if each.site in phase.sites), None)
        if phase is None:
            return 0.0
        alone = phase.alone * time_us
        loaded = each.bytes_ * (1 - self.stored_part(each))
        starts_us = phase.alone * phase.starts_ns(each.level, loaded) / used / 1e3
        self.waiting[phase].append((each, alone + starts_us))
        return alone

    def stored_part(self, each: Served) -> float:
        """Which part of the bytes of a site and tensor is stored."""
        key = each.site, each.buffer
        return self.stored.get(key, 0.0) / self.moved[key]

    def waits(self) -> float:
        """The time in which cores wait for the tensors of a loop, with a part for each."""
        served = [each for phase in self.waiting.values() for each in phase]
        self.parts += [replace(self.memory_part(*each), uses=_CORE) for each in served]
        return sum(time_us for _, time_us in served)

    def idle(self, time_us: float, busy: float, blocks: int, threads: int) -> None:
        """The time in which cores have no block."""
        waste = time_us * (1 - busy)
        count = "1 block" if blocks == 1 else f"{blocks} blocks"
        lost, rounds = f"{(1 - busy) * 100:.0f} %", math.ceil(blocks / threads)
        finding = f"launches {count} for {threads} cores, " + (
            f"of which {lost} have nothing to do"
            if rounds == 1
            else f"so that {lost} of their time is lost in the last of {rounds} rounds"
        )
        remedy = f"Make smaller tiles, so that the grid has a multiple of {threads} blocks."
        line = self.line(self.launch_site)
        self.parts.append(Part("idle cores", waste, _CORE, line, finding, waste, remedy))

    def compute_part(self, site: int, kind: str, spent: Spent, time_us: float, blocks: int) -> Part:
        """Time of a core as a part, with what there is to say of it."""
        count = format_count(spent.count * blocks)
        waste = time_us * spent.spare_ns / spent.time_ns if spent.time_ns else 0.0
        texts = {
            "arithmetic": ("computes on whole vectors", ""),
            "loop": ("counts the iterations of its loop", ""),
            "packing": ("packs tiles for the products", ""),
            "scalar": (
                f"computes {count} results one at a time",
                f"A loop of T.Parallel over neighbours would do {self.lanes} at once.",
            ),
            "chain": (
                f"adds {count} times to the same number, and each addition waits for the last",
                "T.reduce_sum over a tile keeps many sums at once.",
            ),
            "conflicts": (
                f"fetches or gives back {count} lines of the cache, because its rows lie at the "
                "same places there",
                "Fewer rows a block, or rows that are a line longer, stay in the cache.",
            ),
            "scattered": (
                f"accesses {count} elements one by one, because neighbouring lanes are not "
                "neighbours in memory",
                "Let the last index of T.Parallel be the last index of the tensor, or go through "
                "a tile.",
            ),
            "division": (
                f"divides {count} times" + (" by the same number" if waste else ""),
                "Compute its reciprocal once and multiply." if waste else "",
            ),
        }
        finding, remedy = texts.get(kind, (f"computes {kind} {count} times", ""))
        cause = "packing" if kind == "packing" else "compute"
        return Part(cause, time_us, _CORE, self.line(site), finding, waste, remedy)

    def memory_part(self, each: Served, time_us: float) -> Part:
        """The time of a level for one site."""
        line, name = self.line(each.site), each.buffer.name
        if not each.again:
            finding = f"moves {format_bytes(each.bytes_)} of '{name}'"
            return Part(each.level, time_us, _MEMORY, line, finding)
        finding = (
            f"moves '{name}' {each.times:.3g} times over, {format_bytes(each.bytes_)} more than "
            "once would be"
        )
        remedy = "Larger tiles, or a copy outside the loop, move it less often."
        return Part(each.level, time_us, _MEMORY, line, finding, time_us, remedy)

    def launch_part(self, time_us: float) -> Part:
        """What a call costs before any work is done."""
        finding = f"starts a launch, which costs {format_time(time_us)} however little it does"
        remedy = "Do more in one launch."
        line = self.line(self.launch_site)
        return Part("launch", time_us, "", line, finding, time_us, remedy)
