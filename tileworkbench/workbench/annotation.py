"""`Kernel.line_costs`: what each line of the user's text costs.

Work (operations, bytes) is that of one launch, counted on the program as written. How well memory
is used, barriers, registers and the bytes of a CPU's caches are those of the lowered code.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace
from math import nan
from typing import TYPE_CHECKING, Any

from tileworkbench.compiler.analysis.cost import count_sites
from tileworkbench.compiler.diagnostics import UnsupportedError, line_in
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.program import Program, Stage
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.simt import Barrier
from tileworkbench.compiler.ir.stmt import Kernel as Launch
from tileworkbench.compiler.schedule.lifetimes import shared_bytes, timeline
from tileworkbench.compiler.sim.report import AccessCount
from tileworkbench.workbench.accesses import GlobalAccess

if TYPE_CHECKING:
    from tileworkbench.workbench.kernel import Kernel

REGISTER_BYTES = 4
_AMOUNTS = ("flops", "global_bytes", "shared_bytes", "l1_bytes", "barriers", "registers")

LEVEL_BYTES = {"L1": "l1_bytes", "L2": "l2_bytes", "L3": "l3_bytes", "DRAM": "dram_bytes"}
"""The number of a line by the name that `kernel.traffic` has for a level of a CPU."""


@dataclass(frozen=True, slots=True)
class LineCost:
    """One line of the user's text.

    Attributes:
        line: its number.
        flops: floating-point operations of one launch, NaN for symbolic shapes.
        global_bytes, shared_bytes: bytes moved to or from each memory in one launch, likewise.
        wavefronts, ideal: of its accesses to shared memory in one block (loops once), and the
            fewest that would do; 0 on a CPU.
        sectors, ideal_sectors: the same of global memory, in sectors of 32 bytes.
        barriers: `__syncthreads` written for it.
        registers: 32-bit words of register arrays that a thread holds while it executes the line,
            0 on a CPU. Scalars come on top; ``kernel.resources`` has the total from ptxas.
        l1_bytes, l2_bytes, l3_bytes, dram_bytes: of one launch on a CPU, what comes from each level
            or from behind it, written bytes too; of L1 all loads and stores. Estimated from this
            machine's caches as `bench/cpu_traffic.py` says; no counter of the processor is read.
            All lines together, with those of macros in other files, have what ``kernel.traffic``
            has. 0 on a GPU and for a level that the machine lacks, NaN where shapes or the grid are
            known in a call only.
        vector_share: of its accesses to tensors on a CPU the share that are whole vectors or
            routines, NaN elsewhere.
        accesses: what it does to memory, in words.
    """

    line: int
    flops: float = 0.0
    global_bytes: float = 0.0
    shared_bytes: float = 0.0
    wavefronts: int = 0
    ideal: int = 0
    sectors: int = 0
    ideal_sectors: int = 0
    barriers: int = 0
    registers: int = 0
    l1_bytes: float = 0.0
    l2_bytes: float = 0.0
    l3_bytes: float = 0.0
    dram_bytes: float = 0.0
    vector_share: float = nan
    accesses: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        return asdict(self)


def line_costs(kernel: Kernel) -> tuple[LineCost, ...]:
    """The costs of the lines of a kernel's own text, in order; lines without any are left out."""
    file = kernel.record.source_file
    costs = _Costs(file)
    for site, work in count_sites(kernel.program).items():
        costs.add_work(kernel.program, site, work.flops, work.global_bytes, work.shared_bytes)
    lowered = kernel.passes[-1].program if len(kernel.passes) else kernel.program
    costs.add_accesses(kernel.accesses)
    if lowered.stage is Stage.CPU:
        costs.add_levels(kernel, lowered)
    if lowered.stage is Stage.SIMT:
        for stmt in statements(lowered.body):
            if isinstance(stmt, Barrier):
                costs.add(costs.line(lowered, stmt.site), barriers=1)
        costs.add_registers(lowered)
    return costs.found()


class _Costs:
    """The costs by line, summed up."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._lines: dict[int, LineCost] = {}
        self._vectors: dict[int, list[bool]] = {}

    def line(self, program: Program, site: int) -> int:
        """The line of a site in the kernel's own file, 0 elsewhere."""
        return line_in(self._file, program.span(site))

    def add(self, line: int, **amounts: float) -> None:
        """Add to the numbers of a line; line 0 is nobody's."""
        if line:
            old = self._lines.get(line) or LineCost(line)
            summed = {name: getattr(old, name) + more for name, more in amounts.items()}
            self._lines[line] = replace(old, **summed)

    def add_work(
        self, program: Program, site: int, flops: float, global_bytes: float, shared_bytes: float
    ) -> None:
        line = self.line(program, site)
        self.add(line, flops=flops, global_bytes=global_bytes, shared_bytes=shared_bytes)

    def add_accesses(self, accesses: Iterable[GlobalAccess | AccessCount]) -> None:
        for access in accesses:
            if isinstance(access, GlobalAccess):
                words = f"{access.buffer}: {access.kind} {access.pattern}".strip()
                line = access.line
                self._vectors.setdefault(line, []).append(access.pattern in ("contiguous", ""))
            else:
                line = line_in(self._file, access.span)
                words = f"{access.buffer}: {access.described}"
                if access.scope == "shared":
                    self.add(line, wavefronts=access.wavefronts, ideal=access.ideal)
                else:
                    waste = {"sectors": access.sectors, "ideal_sectors": access.ideal_sectors}
                    self.add(line, **waste)
            old = self._lines.get(line) or LineCost(line)
            if line and words not in old.accesses:
                self._lines[line] = replace(old, accesses=(*old.accesses, words))

    def add_levels(self, kernel: Kernel, lowered: Program) -> None:
        """Bytes by memory level of a CPU."""
        from tileworkbench.bench.causes import cpu_traffic_of

        sites = cpu_traffic_of(kernel)
        if not sites:
            for line, cost in list(self._lines.items()):
                if cost.global_bytes or cost.shared_bytes:
                    self.add(line, **dict.fromkeys(LEVEL_BYTES.values(), nan))
        for site, levels in sites.items():
            amounts = {LEVEL_BYTES[level]: bytes_ for level, bytes_ in levels.items()}
            self.add(self.line(lowered, site), **amounts)

    def add_registers(self, lowered: Program) -> None:
        """The most words of register arrays that are live in a statement of each line."""
        for launch in statements(lowered.body):
            if not isinstance(launch, Launch):
                continue
            try:
                timed = timeline(launch, lowered, ("local", "local.fragment"))
            except UnsupportedError:
                continue
            change = [0] * (len(timed.sites) + 1)  # of the words held, before each statement
            for life in timed.lives:
                words = -(-shared_bytes(life.buffer) // REGISTER_BYTES)
                change[life.first] += words
                change[life.last + 1] -= words
            held = 0
            for step, site in enumerate(timed.sites):
                held += change[step]
                line = self.line(lowered, site)
                if line and line in self._lines:
                    old = self._lines[line]
                    self._lines[line] = replace(old, registers=max(old.registers, held))

    def found(self) -> tuple[LineCost, ...]:
        costs = []
        for line, cost in sorted(self._lines.items()):
            vectors = self._vectors.get(line)
            share = nan if not vectors else sum(vectors) / len(vectors)
            cost = replace(cost, vector_share=share)
            if any(getattr(cost, name) for name in _AMOUNTS) or cost.accesses:
                costs.append(cost)
        return tuple(costs)
