"""`Kernel.causes` and `Kernel.traffic`: the model of the kernel's own target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Protocol

from tileworkbench.bench.cpu_traffic import LevelBytes, site_traffic, total_traffic
from tileworkbench.bench.gpu_time_model import Launch, gpu_traffic, predict_launch
from tileworkbench.bench.parts import Causes
from tileworkbench.bench.published import product_of
from tileworkbench.bench.time_model import Prediction
from tileworkbench.compiler.analysis.cost import count_work
from tileworkbench.compiler.analysis.occupancy import Occupancy, occupancy
from tileworkbench.compiler.device.host.threads import get_num_threads
from tileworkbench.compiler.diagnostics import ArgumentError
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.ir.program import Program, Stage
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.stmt import Alloc
from tileworkbench.compiler.sim.threads.requests import WarpAccess
from tileworkbench.compiler.target import parse_target

_SCALARS = 32  # registers of a thread beside its arrays


class Predictable(Protocol):
    """What the models need of a kernel."""

    @property
    def target(self) -> str: ...
    @property
    def program(self) -> Program: ...
    @property
    def record(self) -> Any: ...
    @property
    def requests(self) -> Sequence[Any]: ...
    @property
    def threads(self) -> int: ...
    @property
    def occupancy(self) -> Occupancy | None: ...
    @property
    def stats(self) -> Any: ...
    @property
    def compiled(self) -> Any: ...


def causes_of(kernel: Predictable) -> Causes | None:
    """The predicted time of a launch by cause, None where there is no prediction."""
    target = parse_target(kernel.target)
    if target.kind == "cpu":
        prediction = _on_cpu(kernel)
        return None if prediction is None else prediction.causes
    product, launch = product_of(target.arch), _launch(kernel)
    return None if product is None or launch is None else predict_launch(launch, product)


def traffic_of(kernel: Predictable) -> Mapping[str, float]:
    """Bytes that come from each memory level or from behind it, innermost first."""
    if parse_target(kernel.target).kind == "cpu":
        return total_traffic(cpu_traffic_of(kernel))
    launch = _launch(kernel)
    return {} if launch is None else gpu_traffic(launch)


def cpu_traffic_of(kernel: Predictable) -> dict[int, LevelBytes]:
    """The same of a CPU kernel by the site that moves them, without measuring the machine; empty
    for other targets and symbolic shapes.
    """
    lowered = _lowered(kernel)
    if lowered.stage is not Stage.CPU or lowered.symbols:
        return {}
    return site_traffic(lowered, get_num_threads())


def _lowered(kernel: Predictable) -> Program:
    snapshots = kernel.record.snapshots
    program: Program = snapshots[-1].program if snapshots else kernel.program
    return program


def _on_cpu(kernel: Predictable) -> Prediction | None:
    try:
        prediction: Prediction = kernel.stats.predicted
    except ArgumentError:
        return None
    return prediction


def _launch(kernel: Predictable) -> Launch | None:
    lowered = _lowered(kernel)
    if lowered.stage is not Stage.SIMT or lowered.symbols:
        return None
    resident = _resident(kernel, lowered)
    requests = [each for each in kernel.requests if isinstance(each, WarpAccess)]
    work = count_work(kernel.program)
    fast = kernel.compiled.options.fast_math
    return Launch(lowered, requests, work, resident, kernel.record.source_file, fast)


def _resident(kernel: Predictable, lowered: Program) -> int:
    """Blocks that a multiprocessor holds at once; without ptxas its registers are estimated."""
    if kernel.occupancy is None:
        return 1
    if kernel.stats.resources:
        return max(kernel.occupancy.blocks, 1)
    arrays = [
        stmt.buffer
        for stmt in statements(lowered.body)
        if isinstance(stmt, Alloc) and stmt.buffer.scope.startswith("local")
    ]
    target, shared = parse_target(kernel.target), kernel.stats.shared_bytes
    most = target.machine.thread_registers
    registers = min(_SCALARS + sum(map(_words, arrays)), most)
    held = occupancy(target.arch, kernel.threads, shared, registers)
    return 1 if held is None else max(held.blocks, 1)


def _words(buffer: Buffer) -> int:
    elements = prod(const_int(extent) or 1 for extent in buffer.shape)
    return -(-elements * buffer.dtype.bits // 32)
