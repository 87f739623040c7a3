"""How long a kernel will take on this CPU, from its lowered program and the machine's ceilings.

The program is walked for a few blocks all over the grid. Four parts:

- arithmetic and packing: the code that LLVM makes of a block, at the rates that were measured of
  its operations (`llvm/block_time.py`); lines of the user's text share it by what their statements
  ask for (`cpu_work.py`);
- tiles: what has to come back from behind a core's inner caches (`cpu_reuse.py`);
- memory: what the tensors take of each level (`tensor_time.py`);
- overhead: the call, a launch, a block, and pages of outputs that the system has to clear.

A core computes while data are on their way, but not all of the time: what a loop takes together
with the tensors that it loads or stores is between the longer of the two and their sum (`OVERLAP`);
loops follow each other. Within tens of percent this tells what a kernel spends its time on;
`bench` tells how long it takes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from tileworkbench.bench.cpu_block import GridWork, Spent
from tileworkbench.bench.cpu_reuse import Reused
from tileworkbench.bench.cpu_terms import bytes_of
from tileworkbench.bench.cpu_traffic import Served
from tileworkbench.bench.cpu_work import grids, spread
from tileworkbench.bench.llvm.block_time import BlockTimes
from tileworkbench.bench.llvm.core import Core
from tileworkbench.bench.llvm.numbered import numbered
from tileworkbench.bench.memory_rates import MemoryRates, assumed_memory
from tileworkbench.bench.operation_rates import OperationRates, assumed_rates
from tileworkbench.bench.parts import Causes, Part, together
from tileworkbench.bench.points import BANDWIDTH, PEAK, Machine
from tileworkbench.bench.probes import assumed_target, host_isa
from tileworkbench.bench.tensor_time import TensorTime
from tileworkbench.bench.units import format_bytes, format_count, format_time
from tileworkbench.compiler.device.host import processor
from tileworkbench.compiler.device.host.llvm import (
    compile_assembly,
    native_target,
    optimized_text,
)
from tileworkbench.compiler.diagnostics import ArgumentError, line_in
from tileworkbench.compiler.emit.llvm import amx
from tileworkbench.compiler.emit.llvm.program import generate
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.ir.program import Program, Stage

# Microseconds of a call, of each argument that it checks and each output that it makes, and of a
# block; nanoseconds per byte of a fresh page, which the C library asks the system for from so many
# bytes on.
_CALL_US, _ARGUMENT_US, _OUTPUT_US = 4.0, 0.85, 1.75
_WAKE_US, _BLOCK_US = 3.0, 0.0006
_FRESH_NS, _FRESH_BYTES = 0.15, 32 << 20
_CORE, _NEAR, _MEMORY = "core", "near", "memory"  # what parts keep busy
_WALKED = 5  # blocks of a grid whose code is walked
# What a dot product of vectors takes where peaks are those of tiles, in fused multiply-adds, which
# begin twice a cycle: measured on an Intel Xeon with AMX.
_DOTS_BESIDE_TILES = {"bfloat16": 4.0, "int8": 1.0}

OVERLAP = 2.0
"""The norm of the times of a core and of memory that is the time of both."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """Microseconds of a call by what they are spent on; `memory_us` has a part for each level, in
    which cores may compute something else, but for `alone_us` of their work, with which nothing
    overlaps.

    `causes` has the same time by line.
    """

    compute_us: float
    packing_us: float
    memory_us: Mapping[str, float]
    overhead_us: float
    threads: int
    causes: Causes = field(default_factory=lambda: Causes(()))
    tiles_us: float = 0.0
    alone_us: float = 0.0

    @property
    def total_us(self) -> float:
        """The whole call."""
        work = self.compute_us + self.packing_us + self.tiles_us
        together = norm(max(work - self.alone_us, 0.0), *overlapping(self.memory_us))
        return together + self.alone_us + self.overhead_us

    def __str__(self) -> str:
        parts = {"compute": self.compute_us, "packing": self.packing_us, "tiles": self.tiles_us}
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
    memory: MemoryRates | None = None,
) -> Prediction:
    """The time of a call of a program of stage CPU with at most `threads` threads.

    `file` is that of the kernel's own text, whose lines the parts name. Without `rates`, measured
    ones of the same machine, operations take so many times what its peak says of a multiply-add;
    without `memory`, rows apart take what they take on an ordinary server.

    Raises `ArgumentError` for symbolic shapes, whose sizes only a call knows, and for programs of
    other targets.
    """
    refuse_unknown(lowered)
    model = _Model(machine, lowered, file, rates, memory)
    works = tuple(grids(lowered, model.rates))
    used = max((model.launch(at, grid, threads) for at, grid in enumerate(works)), default=1)
    outputs = [param.value for param in lowered.params if param.output]
    fresh = sum(size for value in outputs if (size := bytes_of(value)) >= _FRESH_BYTES)
    arguments = len(lowered.params) - len(outputs)
    call = _CALL_US + _ARGUMENT_US * arguments + _OUTPUT_US * len(outputs)
    launch = call + (_WAKE_US if used > 1 else 0.0) + model.block_us
    overhead = launch + fresh * _FRESH_NS / 1e3
    memory_us, tensor_us = model.add_memory(works, used)
    model.parts.append(model.launch_part(launch))
    clears = "clears new memory for the outputs: the system does that for large ones"
    model.parts.append(Part("fresh pages", fresh * _FRESH_NS / 1e3, finding=clears))
    alone = model.alone(tensor_us)
    parts = (
        replace(part, alone=alone) if part.uses == _CORE else part
        for part in model.parts
        if part.time_us > 0
    )
    causes = Causes(tuple(parts), _MODEL, OVERLAP)
    times = model.compute_us, model.packing_us, memory_us, overhead
    return Prediction(*times, used, causes, model.tiles_us, alone * model.work_us)


_MODEL = "a model of this machine's cores under its measured ceilings"


class _Model:
    def __init__(
        self,
        machine: Machine,
        lowered: Program,
        file: str,
        rates: OperationRates | None,
        memory: MemoryRates | None,
    ) -> None:
        self.machine, self.lowered, self.file = machine, lowered, file
        isa = host_isa()
        self.lanes = isa.lanes(4)
        fused_ns = 2 * self.lanes / self.peak("float32")
        self.rates = rates or assumed_rates(fused_ns)
        self.tensors = TensorTime(machine, memory or assumed_memory(), lowered)
        # One sum of a register takes so many products at once; the peaks are those of tiles if any.
        groups = amx.ROWS * amx.ROWS * amx.ROW_BYTES // 4 if isa.tiles else self.lanes
        dots_ns = {
            dtype: 2 * groups * together / self.peak(dtype)
            for dtype, together in (("bfloat16", 2), ("int8", 4))
        }
        tiles_ns: dict[str, float] = {}
        if isa.tiles:
            tiles_ns = dots_ns
            dots_ns = {dtype: fused_ns * times for dtype, times in _DOTS_BESIDE_TILES.items()}
        dots_ns["int16"] = 4 * self.lanes / self.peak("uint8")  # bytes without a sign are widened
        core = Core(self.rates, isa.vector_bits, fused_ns, dots_ns, isa.fma, tiles_ns)
        module = generate(lowered, isa)
        self.entries = [launch.entry for launch in module.launches]
        target = assumed_target.get() or native_target()
        text = optimized_text(module.text, target)
        is_x86 = target.triple.startswith("x86_64")
        assembly = compile_assembly(numbered(text), target, ()) if is_x86 else ""
        self.blocks = BlockTimes(text, core, assembly)
        self.compute_us = self.packing_us = self.tiles_us = self.block_us = 0.0
        self.computes: dict[int, float] = {}  # microseconds by site, with its tiles
        # Microseconds of pieces of code, and the bytes they move of each tensor.
        self.pieces: list[tuple[float, dict[str, float]]] = []
        self.parts: list[Part] = []
        self.launch_site = 0

    def peak(self, dtype: str) -> float:
        """GFLOP/s of one thread."""
        ceiling = self.machine.find(dtype, PEAK, 1)
        return ceiling.value if ceiling else 1.0

    def slower(self, threads: int) -> float:
        """How many times as long as one core at its best so many usually take: the more are busy,
        the lower is their clock.
        """
        one, all_ = (self.machine.find("float32", PEAK, count) for count in (1, threads))
        busy = max(threads * one.value / all_.value, 1.0) if one and all_ else 1.0
        return busy * self.rates.usual

    def line(self, site: int) -> int:
        """The line of a site in the kernel's own text, 0 elsewhere."""
        return line_in(self.file, self.lowered.span(site))

    def launch(self, number: int, grid: GridWork, threads: int) -> int:
        """Add one grid; returns the number of threads it uses."""
        blocks, block = grid.blocks, grid.block
        workers = min(threads, blocks)
        rounds = math.ceil(blocks / workers)
        busy = blocks / (threads * rounds)  # part of the cores' time in which they have a block
        self.launch_site = self.launch_site or grid.site
        asked = {key: operations / self.peak(key[1]) for key, operations in block.products.items()}
        slower = self.slower(workers)
        work = [
            each.scaled(1.0, slower)
            for each in self.blocks.block_work(f"{self.entries[number]}_block", walked(blocks))
        ]
        code_ns = sum(each.time_ns for each in work)
        for each in work:
            moved = {name: size * blocks for name, size in each.bytes_.items()}
            self.pieces.append((rounds * each.time_ns / 1e3, moved))
        # What the statements ask for tells which line has how much of it.
        asked_ns = block.total_ns + sum(asked.values())
        scale = code_ns / asked_ns if asked_ns else 0.0
        for (site, kind), spent in block.spent.items():
            time_us = scale * rounds * spent.time_ns / 1e3
            self.computes[site] = self.computes.get(site, 0.0) + time_us
            if kind == "packing":
                self.packing_us += time_us
            else:
                self.compute_us += time_us
            self.parts.append(self.compute_part(site, kind, spent, time_us * busy, blocks))
        for (site, _), time_ns in asked.items():
            time_us = scale * rounds * time_ns / 1e3
            self.compute_us += time_us
            finding = "multiplies tiles, at the peak of the arithmetic"
            at = self.line(site)
            self.parts.append(Part("compute", time_us * busy, _CORE, at, finding))
        self.idle(rounds * code_ns / 1e3, busy, blocks, threads)
        self.tiles(grid, workers, rounds)
        self.tensors.add(grid)
        self.block_us += rounds * _BLOCK_US
        return workers

    def add_memory(
        self, works: Sequence[GridWork], used: int
    ) -> tuple[dict[str, float], dict[Buffer, dict[str, float]]]:
        """Add what levels serve to all grids, by so many threads: microseconds by level, and those
        of each tensor.
        """
        by_level, by_tensor = dict[str, float](), dict[Buffer, dict[str, float]]()
        for each, time_us in self.tensors.served(works, used, self.pieces):
            if time_us:
                by_level[each.level] = by_level.get(each.level, 0.0) + time_us
                own = by_tensor.setdefault(each.buffer, {})
                own[each.level] = own.get(each.level, 0.0) + time_us
                self.parts.append(self.memory_part(each, time_us))
        return by_level, by_tensor

    def tiles(self, grid: GridWork, workers: int, rounds: int) -> None:
        """The time in which a core waits for tiles that its inner caches have given up."""
        caches = processor.cache_sizes()
        sizes = {"L1": caches.l1, "L2": caches.l2, "L3": caches.l3 / workers}
        computes: dict[int, float] = {}
        for (site, _), spent in grid.block.spent.items():
            computes[site] = computes.get(site, 0.0) + rounds * spent.time_ns / 1e3
        for (site, dtype), operations in grid.block.products.items():
            product_us = rounds * operations / self.peak(dtype) / 1e3
            computes[site] = computes.get(site, 0.0) + product_us
        pairs = tuple(itertools.pairwise(self.tensors.levels))
        missed = [self.misses(grid, sizes[inner]) for inner, _ in pairs]
        for (inner, level), misses, behind in zip(pairs, missed, [*missed[1:], {}], strict=False):
            rate = self.machine.find(level, BANDWIDTH, workers)
            if rate is None:
                continue
            for site, all_ in misses.items():
                # What comes from behind the level, too, takes that one's time.
                bytes_ = max(all_ - behind.get(site, 0.0), 0.0)
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
                part = Part("tiles", time_us, _CORE, line, finding, time_us, remedy)
                self.parts.append(part)

    def misses(self, grid: GridWork, cache: float) -> dict[int, float]:
        """Bytes of tiles that a block fetches from behind a cache of so many bytes, by site."""
        reused = grid.reused.get(cache) or Reused(grid.loop, dict(grid.env), cache)
        return reused.tile_misses()

    @property
    def work_us(self) -> float:
        """What cores do."""
        return self.compute_us + self.packing_us + self.tiles_us

    def alone(self, tensor_us: Mapping[Buffer, Mapping[str, float]]) -> float:
        """Which part of the cores' work overlaps with no memory, if each piece of code overlaps
        with the tensors it moves, whose times are given by level.
        """
        names = self.tensors.names
        own = {
            names[buffer]: overlapping(each)
            for buffer, each in tensor_us.items()
            if buffer in names
        }
        moved: dict[str, float] = {}
        for _, sizes in self.pieces:
            for name, size in sizes.items():
                moved[name] = moved.get(name, 0.0) + size
        pairs = [overlapping(each) for each in tensor_us.values()]
        memory = sum(near for near, _ in pairs), sum(far for _, far in pairs)
        rest, total = sum(memory), self.tiles_us
        for time_us, sizes in self.pieces:
            near = far = 0.0
            for name, size in sizes.items():
                of_tensor = own.get(name, (0.0, 0.0))
                near += of_tensor[0] * size / moved[name]
                far += of_tensor[1] * size / moved[name]
            rest -= near + far
            total += norm(time_us, near, far)
        total += max(rest, 0.0)
        return share_alone(self.work_us, memory, total)

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
        uses = _NEAR if each.level == "L2" else _MEMORY
        if not each.again:
            finding = f"moves {format_bytes(each.bytes_)} of '{name}'"
            return Part(each.level, time_us, uses, line, finding)
        finding = (
            f"moves '{name}' {each.times:.3g} times over, {format_bytes(each.bytes_)} more than "
            "once would be"
        )
        remedy = "Larger tiles, or a copy outside the loop, move it less often."
        return Part(each.level, time_us, uses, line, finding, time_us, remedy)

    def launch_part(self, time_us: float) -> Part:
        """What a call costs before any work is done."""
        finding = f"starts a launch, which costs {format_time(time_us)} however little it does"
        remedy = "Do more in one launch."
        line = self.line(self.launch_site)
        return Part("launch", time_us, "", line, finding, time_us, remedy)


def walked(blocks: int) -> tuple[int, ...]:
    """The blocks of a grid whose code is walked: all over it."""
    return spread(blocks)[:_WALKED]


def overlapping(memory_us: Mapping[str, float]) -> tuple[float, float]:
    """The time of the second cache, and of what lies behind it, which are busy side by side."""
    near = memory_us.get("L2", 0.0)
    return near, sum(memory_us.values()) - near


def norm(*times: float) -> float:
    """The time of what overlaps."""
    return together(times, OVERLAP)


def share_alone(work: float, memory: tuple[float, ...], total: float) -> float:
    """Which part of `work` overlaps with nothing, if the rest of it overlaps with `memory` so that
    all takes `total`.
    """
    low, high = 0.0, 1.0
    for _ in range(30):
        middle = (low + high) / 2
        if norm(work * (1 - middle), *memory) + work * middle < total:
            low = middle
        else:
            high = middle
    return low
