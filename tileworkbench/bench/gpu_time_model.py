"""How long a launch would take on a GPU, from its lowered program and published numbers.

Nothing is run, and no GPU has confirmed it. Six things are kept busy, each counted by line:

- compute: matrix instructions at the peak of their operands, other operations by issue slots;
- shared memory: a wavefront a clock on each multiprocessor;
- L2: the sectors that requests touch, DRAM: every byte of a tensor once, and, of a tensor larger
  than L2, once again for each round of blocks that are at work together;
- latency: loops whose iterations wait for memory, for a barrier, or for the sum before;
- one element of a tensor: atomic updates of it are made one a clock ("NVIDIA Kepler GK110", white
  paper).

A multiprocessor has `ceil(blocks / multiprocessors)` blocks to do, and holds as many at once as
occupancy says.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from tileworkbench.bench.gpu_work import BlockWork, Spent, Wait, blocks_of, merged
from tileworkbench.bench.parts import Causes, Part
from tileworkbench.bench.published import Product, product_peak
from tileworkbench.bench.units import format_bytes, format_count
from tileworkbench.compiler.analysis.cost import Work
from tileworkbench.compiler.diagnostics import line_in
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.program import Program, Stage
from tileworkbench.compiler.machine.machine import SECTOR_BYTES
from tileworkbench.compiler.sim.report import AccessCount
from tileworkbench.compiler.sim.threads.requests import WarpAccess

_LAUNCH_US = 3.0
# Clocks until a value from memory, a sum, a barrier can be used, as published microbenchmarks of
# these architectures have them within tens of percent.
_MEMORY_CLOCKS, _SUM_CLOCKS, _BARRIER_CLOCKS = 500.0, 4.0, 25.0
_MODEL = "a model under published numbers, which no GPU has confirmed"
_COMPUTE, _SHARED, _L2, _DRAM, _LATENCY = "compute", "shared", "L2", "DRAM", "latency"
_ELEMENT = "element"


@dataclass(frozen=True, slots=True)
class Launch:
    """What the model is made from: the lowered program, what it asks of memory, its work as
    written, resident blocks of a multiprocessor, the file whose lines are named, whether functions
    are approximate.
    """

    lowered: Program
    requests: Sequence[WarpAccess]
    work: Work
    resident: int = 1
    file: str = ""
    fast_math: bool = False


def predict_launch(launch: Launch, product: Product) -> Causes | None:
    """The time of a launch by cause, None for a program that is not lowered for a GPU or whose
    shapes are symbolic.
    """
    program = launch.lowered
    if program.stage is not Stage.SIMT or program.symbols:
        return None
    parts: list[Part] = []
    works = list(blocks_of(program.body, launch.fast_math))
    for block in works:
        model = _Model(launch, product, block)
        mine = [*model.computing(), *model.waiting(), *model.shared(), *model.moving()]
        mine += model.updating()
        parts += [*model.spread(mine), *model.in_series()]
    site = works[0].site if works else 0
    line = line_in(launch.file, launch.lowered.span(site))
    time_us = _LAUNCH_US * len(works)
    starts = f"starts a launch, which costs {_LAUNCH_US:.0f} µs however little it does"
    parts.append(Part("launch", time_us, "", line, starts, time_us, "Do more in one launch."))
    return Causes(tuple(part for part in parts if part.time_us > 0), _MODEL)


def gpu_traffic(launch: Launch) -> dict[str, float]:
    """Bytes of a launch by memory level: of shared memory those its wavefronts could carry, of L2
    whole sectors, of DRAM the compulsory ones; empty where nothing is known.
    """
    program = launch.lowered
    if program.stage is not Stage.SIMT or program.symbols:
        return {}
    levels = {"shared": 0.0, "L2": 0.0, "DRAM": launch.work.bytes_.value}
    for block in blocks_of(program.body):
        for count in _requests(launch, block):
            times = block.repeats(count.site, count.buffer) * block.blocks
            if count.scope == "shared":
                levels["shared"] += 128 * count.wavefronts * times
            else:
                levels["L2"] += SECTOR_BYTES * count.sectors * times
    return levels


def _requests(launch: Launch, block: BlockWork) -> Iterator[AccessCount]:
    """What the blocks of one launch ask of memory, as compilers leave it."""
    for access in launch.requests:
        if (access.count.site, access.count.buffer) in block.made:
            yield _scaled_count(access.count, merged(access))


def _scaled_count(count: AccessCount, part: float) -> AccessCount:
    return replace(
        count,
        count=round(part * count.count),
        wavefronts=round(part * count.wavefronts),
        ideal=round(part * count.ideal),
        sectors=round(part * count.sectors),
        ideal_sectors=round(part * count.ideal_sectors),
    )


class _Model:
    """One launch on one product."""

    def __init__(self, launch: Launch, product: Product, block: BlockWork) -> None:
        self.launch, self.product, self.block = launch, product, block
        self.rounds = math.ceil(block.blocks / product.multiprocessors)
        # Of the multiprocessors' time, in which each has a block.
        self.busy = block.blocks / (product.multiprocessors * self.rounds)
        self.us = 1 / product.clock / 1e3  # of a clock
        # The same of each of a multiprocessor's blocks, where resident ones wait together.
        self.turns_us = math.ceil(self.rounds / max(launch.resident, 1)) * self.us

    def line(self, site: int) -> int:
        """The line of a site in the kernel's own text, 0 elsewhere."""
        return line_in(self.launch.file, self.launch.lowered.span(site))

    def computing(self) -> Iterator[Part]:
        """Matrix instructions and other operations."""
        peaks, block = self.product.peaks, self.block
        for (site, dtype), flops in block.products.items():
            peak = peaks[product_peak(dtype, peaks)]
            rate = 1e6 * peak / self.product.multiprocessors  # FLOP per µs
            units = self.product.rates.matrix_units
            finding = f"multiplies {dtype} tiles, at the peak of the {units}"
            time_us = self.rounds * flops / rate
            yield Part("compute", time_us, _COMPUTE, self.line(site), finding)
        for (site, kind), spent in block.spent.items():
            time_us = self.rounds * spent.slots / self.product.rates.lanes * self.us
            yield Part("compute", time_us, _COMPUTE, self.line(site), self.computes(kind, spent))

    def computes(self, kind: str, spent: Spent) -> str:
        """What operations of a kind are called."""
        count = format_count(spent.count * self.block.blocks)
        if kind == "arithmetic":
            return f"does {count} operations"
        return f"divides {count} times" if kind == "division" else f"computes {kind} {count} times"

    def shared(self) -> Iterator[Part]:
        """Wavefronts of shared memory."""
        for count in _requests(self.launch, self.block):
            if count.scope != "shared":
                continue
            times = self.rounds * self.block.repeats(count.site, count.buffer) * self.us
            does = "writes" if count.writes else "reads"
            finding = (
                f"{does} '{count.buffer}' with bank conflicts, {count.factor:.1f} times the "
                "wavefronts it needs"
            )
            waste = (count.wavefronts - count.ideal) * times
            yield Part(
                *("wavefronts", count.wavefronts * times, _SHARED, self.line(count.site)),
                *((finding, waste, _SWIZZLE) if waste > 0 else (f"{does} '{count.buffer}'",)),
            )

    def updating(self) -> Iterator[Part]:
        """Atomic updates of one element, which follow each other."""
        for (site, name), made in self.block.updates.items():
            turns = self.block.blocks if made.of_all_blocks else self.rounds
            time_us = made.count * turns * self.us
            waste = time_us * (1 - 1 / made.count) if made.count else 0.0
            count = format_count(made.count * (self.block.blocks if made.of_all_blocks else 1))
            whose = "" if made.of_all_blocks else " in each block"
            finding = f"updates one element of '{name}' {count} times{whose}, one after the other"
            yield Part("atomics", time_us, _ELEMENT, self.line(site), finding, waste, _REDUCE)

    def moving(self) -> Iterator[Part]:
        """Sectors from L2, bytes from DRAM."""
        tensors = {each.name: each for each in self.launch.work.tensors}
        needed: dict[tuple[str, bool], float] = {}
        listed = []
        for count in _requests(self.launch, self.block):
            if count.scope == "shared":
                continue
            key = count.buffer, count.writes
            times = self.block.repeats(count.site, count.buffer) * self.block.blocks * SECTOR_BYTES
            listed.append((count, key, times))
            needed[key] = needed.get(key, 0.0) + count.ideal_sectors * times
        capacity = self.product.l2_mib * 2**20
        for count, (name, writes), times in listed:
            tensor, line = tensors.get(name), self.line(count.site)
            wanted = count.ideal_sectors * times
            traffic = (tensor.written if writes else tensor.read) if tensor else None
            once = (traffic.value if traffic is not None else 0.0) or wanted
            first = min(1.0, once / needed[name, writes]) * wanted if wanted else 0.0
            does = "writes" if writes else "reads"
            yield from self.l2(first, count.sectors * times, wanted, line, f"{does} '{name}'")
            yield self.dram(first, line, f"{does} {format_bytes(first)} of '{name}'")
            again = wanted - first
            if again > 0:
                finding = (
                    f"{does} '{name}' {wanted / first:.3g} times over, "
                    f"{format_bytes(again)} more than once would be"
                )
                rate = self.l2_rate()
                waste = again / rate / 1e3
                yield Part("L2", waste, _L2, line, finding, waste, _AGAIN)
                if once > capacity:  # blocks at work at the same time share what they read
                    waste = again / self.at_once() / self.product.memory / 1e3
                    yield Part("DRAM", waste, _DRAM, line, finding, waste, _AGAIN)

    def l2(self, first: float, moved: float, wanted: float, line: int, does: str) -> Iterator[Part]:
        """What must come from L2, and the sectors of which only a part is used."""
        rate = self.l2_rate()
        yield Part("L2", first / rate / 1e3, _L2, line, f"{does} in whole sectors")
        unused = moved - wanted
        if unused > 0:
            finding = (
                f"{does} in {moved / wanted:.1f} times the sectors it needs, because neighbouring "
                "threads are not neighbours in memory"
            )
            waste = unused / rate / 1e3
            yield Part("L2", waste, _L2, line, finding, waste, _COALESCE)

    def l2_rate(self) -> float:
        """GB/s that the multiprocessors at work can take."""
        working = min(self.block.blocks, self.product.multiprocessors)
        return min(self.product.l2_rate, working * 64 * self.product.clock)

    def at_once(self) -> int:
        """Blocks that all multiprocessors hold together."""
        most = self.product.multiprocessors * max(self.launch.resident, 1)
        return min(self.block.blocks, most)

    def dram(self, bytes_: float, line: int, finding: str) -> Part:
        return Part("DRAM", bytes_ / self.product.memory / 1e3, _DRAM, line, finding)

    def waiting(self) -> Iterator[Part]:
        """Latencies: those of a block follow each other, resident blocks wait together."""
        for wait in self.block.waits:
            if wait.kind != "load":
                yield self.wait(wait)
        for site, times in self.block.barriers.items():
            time_us = times * _BARRIER_CLOCKS * self.turns_us
            yield Part("barriers", time_us, _LATENCY, self.line(site), f"meets {times:.0f} times")

    def wait(self, wait: Wait) -> Part:
        """One loop."""
        clocks = _SUM_CLOCKS if wait.kind == "sum" else _MEMORY_CLOCKS / max(wait.ahead, 1)
        time_us = wait.trips * clocks * self.turns_us
        trips, line = format_count(wait.trips), self.line(wait.site)
        if wait.kind == "ahead":
            finding = f"loads {wait.ahead} iteration{'s' if wait.ahead > 1 else ''} ahead"
            return Part("latency", time_us, _LATENCY, line, finding)
        what = "the sum of the one before" if wait.kind == "sum" else "an element from memory"
        finding = f"waits {trips} times, one after the other, for {what}"
        return Part("latency", time_us, _LATENCY, line, finding, time_us, _SPREAD)

    def in_series(self) -> Iterator[Part]:
        """Loops that load nothing ahead: a block computes after its tiles have come, and only other
        resident blocks compute meanwhile. More blocks elsewhere would make them no shorter.
        """
        for wait in self.block.waits:
            if wait.kind == "load":
                waits = wait.trips * _MEMORY_CLOCKS * self.turns_us
                time_us = waits + self.alone_us(wait.sites)
                finding = (
                    "loads a tile, waits for it and computes with it, one after the other, "
                    f"{format_count(wait.trips)} times, with nothing loaded ahead"
                )
                waste = time_us - waits / _AHEAD
                line = self.line(wait.site)
                yield Part("latency", time_us, _LATENCY, line, finding, waste, _PIPELINE)

    def alone_us(self, sites: Collection[int]) -> float:
        """What the blocks of a multiprocessor, resident ones together, do at these sites as if
        nothing came late."""
        block, kept = self.block, set(sites)
        work = replace(
            block,
            spent={key: each for key, each in block.spent.items() if key[0] in kept},
            products={key: each for key, each in block.products.items() if key[0] in kept},
            made={key: each for key, each in block.made.items() if key[0] in kept},
        )
        model = _Model(self.launch, self.product, work)
        parts = (*model.computing(), *model.shared(), *model.moving())
        rounds_us = Causes(tuple(part for part in parts if part.uses != _DRAM)).total_us
        return rounds_us / self.rounds * self.turns_us / self.us

    def spread(self, parts: list[Part]) -> list[Part]:
        """`parts`, and what of them is there because multiprocessors have no block."""
        if self.busy >= 1:
            return parts
        count = self.product.multiprocessors
        blocks = "1 block" if self.block.blocks == 1 else f"{self.block.blocks} blocks"
        lost = f"{(1 - self.busy) * 100:.0f} %"
        units = self.product.rates.units
        finding = f"launches {blocks} for {count} {units}, " + (
            f"of which {lost} have nothing to do"
            if self.rounds == 1
            else f"so that {lost} of their time is lost in the last of {self.rounds} rounds"
        )
        remedy = f"Make smaller tiles, or split the sum, for a multiple of {count} blocks."
        scaled_parts: list[Part] = []
        idle: dict[str, float] = {}
        for part in parts:
            share = self.busy if part.uses in (_COMPUTE, _SHARED, _LATENCY) else 1.0
            scaled = part.time_us * share, part.waste_us * share
            scaled_parts.append(_scaled(part, *scaled))
            if share < 1:
                idle[part.uses] = idle.get(part.uses, 0.0) + part.time_us * (1 - share)
        line = self.line(self.block.site)
        return scaled_parts + [
            Part(f"idle {units}", time_us, uses, line, finding, time_us, remedy)
            for uses, time_us in idle.items()
        ]


_AHEAD = 2  # iterations, with the stages of the remedy
_PIPELINE = (
    "Write T.Pipelined(..., num_stages=3) for this loop: tiles are loaded while others are "
    "computed with."
)
_SWIZZLE = "The view 'banks' ranks the layouts that have none."
_COALESCE = (
    "Let the last index of T.Parallel be the last index of the tensor, or go through a tile."
)
_AGAIN = "Larger tiles, or a copy outside the loop, move it less often."
_REDUCE = "Add up in the block first, T.reduce_sum over a tile, and let one thread update it."
_SPREAD = "Let the threads share the loop: T.reduce_sum over a tile, or T.Parallel."


def _scaled(part: Part, time_us: float, waste_us: float) -> Part:
    return Part(*(part.cause, time_us, part.uses, part.line, part.finding, waste_us, part.remedy))
