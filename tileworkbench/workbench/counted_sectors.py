"""Bytes that a GPU kernel asks of L2 and of memory, counted: its threads are simulated, and each
request of a warp asks the L2 of the target's product for its sectors.

L2 is one cache of sectors with 16 ways that holds nothing at first. The caches of multiprocessors
are left out: each request goes to L2. Blocks run one after another. What is written and still lies
in L2 at the end counts as given to memory. Each request is counted for the line of the user's text
that makes it, with the wavefronts of shared memory that the same run took. Where some blocks stand
for all, what blocks read again that others have read counts as if those never had.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from tileworkbench.bench.cache_model import LOAD, WRITE, CacheModel, Passed
from tileworkbench.bench.counted import CountedTraffic
from tileworkbench.bench.points import CountedLevel
from tileworkbench.bench.published import Product, product_of
from tileworkbench.compiler.device.host.processor import Cache
from tileworkbench.compiler.diagnostics import UnsupportedError, line_in
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.machine.machine import SECTOR_BYTES
from tileworkbench.compiler.sim.observers import Observer
from tileworkbench.workbench.observed import observe, simulated_program
from tileworkbench.workbench.simulation import on_host

if TYPE_CHECKING:
    from tileworkbench.compiler.sim.frame import Frame
    from tileworkbench.compiler.sim.memory import Storage
    from tileworkbench.compiler.sim.report import SimReport
    from tileworkbench.workbench.kernel import Kernel

_WAYS, _WARP, _ALIGNED = 16, 32, 256


class Sectors(Observer):
    """Tells `model` of the sectors of each request to global memory, warp by warp; `places` has
    what the model calls the site of a statement.
    """

    __slots__ = ("_begins", "_free", "_model", "_places")
    of_registers = False

    def __init__(self, model: CacheModel, places: Mapping[int, int]) -> None:
        self._model, self._places = model, places
        self._begins: dict[int, int] = {}  # where a tensor's memory begins on the device, by here
        self._free = 0

    def _begin(self, data: np.ndarray[Any, Any]) -> int:
        """Tensors begin at multiples of 256 bytes, as an allocator of device memory has them."""
        here = data.ctypes.data
        if here not in self._begins:
            self._begins[here] = self._free
            self._free += -(-data.nbytes // _ALIGNED) * _ALIGNED
        return self._begins[here]

    def read(self, frame: Frame, storage: Storage, place: Any, threads: Any) -> None:
        self._tell(frame, storage, place, threads, LOAD)

    def wrote(
        self, frame: Frame, storage: Storage, place: Any, threads: Any, registers: Any
    ) -> None:
        self._tell(frame, storage, place, threads, WRITE)

    def _tell(self, frame: Frame, storage: Storage, place: Any, threads: Any, kind: int) -> None:
        if storage.scope != "global":
            return
        data = storage.data
        offsets = np.zeros((), np.int64)
        for at, extent, stride in zip(place, data.shape, data.strides, strict=True):
            if isinstance(at, slice):  # of a box, that an engine copies
                steps = np.arange(*at.indices(extent)) * stride
                offsets = offsets[..., None] + steps
            else:
                offsets = offsets + np.asarray(at, np.int64) * stride
        sectors = (self._begin(data) + offsets) // SECTOR_BYTES
        warps = np.asarray(threads) // _WARP
        if warps.ndim != sectors.ndim:  # a box has no threads
            warps = np.zeros((), np.int64)
        both = np.stack(np.broadcast_arrays(warps, sectors))
        requests = np.unique(both.reshape(2, -1), axis=1)
        own = self._places.get(frame.site, 0)
        self._model.touch(requests[1] * SECTOR_BYTES, SECTOR_BYTES, kind, own)


def count_sectors(kernel: Kernel, args: Sequence[Any], seconds: float) -> CountedTraffic:
    """The bytes of a launch with `args` at L2 and memory, in about `seconds`: of whole blocks from
    the first on where all would take longer. Raises `UnsupportedError` for a GPU without a
    published L2, and for a kernel that cannot be simulated.
    """
    product = product_of(kernel.compiled.target.arch)
    if product is None or not product.l2_mib:
        raise UnsupportedError(f"the size of the L2 of '{kernel.target}' is not published")
    total, given = prod(map(int, kernel.grid)), on_host(args)
    run = _Run(kernel, product)
    start = perf_counter()
    run.simulate(given, (0,), 2 * seconds + 1)
    most = max(int(seconds / max(perf_counter() - start, 1e-6)), 1)
    blocks = min(most, total)
    model, report = run.simulate(given, range(blocks) if blocks < total else None)
    factor = total / blocks
    how = f"counted by simulating threads and the L2 of {product.rates.product}"
    by_site = zip(model.passed_by_site(), model.unwritten(), strict=True)
    own = [_levels(passed, left, factor) for passed, left in by_site]
    levels = _levels(model.passed(), sum(model.unwritten()), factor)
    lines = dict(zip(run.lines, own, strict=True))
    requests = run.requests(report, factor)
    return CountedTraffic(levels, how, blocks, total, True, 0, lines, requests)


def _levels(passed: Sequence[Passed], unwritten: int, factor: float) -> tuple[CountedLevel, ...]:
    asked, memory = passed
    return (
        CountedLevel("L2", asked.read * factor, 0.0, asked.written * factor),
        CountedLevel("DRAM", memory.read * factor, 0.0, (memory.written + unwritten) * factor),
    )


class _Run:
    """The lowered program of a kernel, whose statements are told apart by their `lines`: those of
    the user's text, after 0 for elsewhere.
    """

    def __init__(self, kernel: Kernel, product: Product) -> None:
        self._kernel, self._product = kernel, product
        program = simulated_program(kernel)
        file = kernel.record.source_file
        line_of = {
            stmt.site: line_in(file, program.span(stmt.site)) for stmt in statements(program.body)
        }
        self.lines = (0, *sorted({line for line in line_of.values() if line}))
        self._places = {site: self.lines.index(line) for site, line in line_of.items()}

    def simulate(
        self, args: Sequence[Any], blocks: Sequence[int] | None, seconds: float | None = None
    ) -> tuple[CacheModel, SimReport]:
        """The L2 behind `blocks`, and what the simulator says of them."""
        size = int(self._product.l2_mib * (1 << 20))
        cache = Cache(2, size, _WAYS, SECTOR_BYTES)
        model = CacheModel((cache,), 1, [0], len(self.lines))
        model.activate()
        observer = Sectors(model, self._places)
        report, why = observe(self._kernel, args, observer, blocks, seconds)
        if report is not None and report.timed_out:
            why = "a block is not done in time, 'count_traffic(seconds=...)' gives it more"
            report = None
        if report is None:
            raise UnsupportedError(f"'{self._kernel.name}' cannot be counted: {why}")
        return model, report

    def requests(
        self, report: SimReport, factor: float
    ) -> dict[int, tuple[float, float, float, float]]:
        """(wavefronts, ideal, sectors, ideal) by line."""
        sums: dict[int, list[float]] = {}
        for each in report.accesses:
            line = self.lines[self._places.get(each.site, 0)]
            numbers = (each.wavefronts, each.ideal, each.sectors, each.ideal_sectors)
            before = sums.get(line, [0.0] * 4)
            sums[line] = [a + b * factor for a, b in zip(before, numbers, strict=True)]
        return {line: (a, b, c, d) for line, (a, b, c, d) in sums.items()}
