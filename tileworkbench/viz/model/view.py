"""Everything the views of one kernel are drawn from, gathered by whoever owns the kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from tileworkbench.bench.points import CountedLevel, Machine, Point
from tileworkbench.compiler.analysis.occupancy import Occupancy
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.record import CompileRecord, Count, RunRecord
from tileworkbench.compiler.schedule.shared_memory import SharedMemory
from tileworkbench.workbench.results import BufferLayout, CheckResult

if TYPE_CHECKING:
    from tileworkbench.compiler.sim.footprint.result import Footprint
    from tileworkbench.compiler.sim.numerics.result import Numerics
    from tileworkbench.compiler.sim.pipeline.model import Pipeline
    from tileworkbench.compiler.sim.pipeline.trace import Trace
    from tileworkbench.compiler.sim.prints import Prints
    from tileworkbench.compiler.sim.replay.model import Replay
    from tileworkbench.compiler.sim.threads.requests import WarpAccess
    from tileworkbench.compiler.sim.vector_requests import VectorAccess
    from tileworkbench.viz.model.error_map import ErrorMap


Place = tuple[Machine | None, tuple[Point, ...]]


class Choice(Protocol):
    """What another number of stages would mean."""

    def to_dict(self) -> dict[str, Any]: ...


class LineTraffic(Protocol):
    """What a run was counted to move (`bench.counted.CountedTraffic`)."""

    @property
    def levels(self) -> tuple[CountedLevel, ...]: ...
    @property
    def note(self) -> str: ...
    @property
    def lines(self) -> Mapping[int, tuple[CountedLevel, ...]]: ...
    @property
    def requests(self) -> Mapping[int, tuple[float, float, float, float]]: ...


class Pipelining(Protocol):
    """Who knows the pipelines of a kernel; asked when they are looked at."""

    @property
    def pipelines(self) -> Sequence[Pipeline]: ...
    def trace(self, *, launch: int) -> Trace: ...
    def what_if_stages(self, *, launch: int) -> Sequence[Choice]: ...


class Debugging(Protocol):
    """Who can look into runs of a kernel; runs it when asked to."""

    @property
    def numerics_missing(self) -> str: ...
    @property
    def last_numerics(self) -> Numerics | None: ...
    @property
    def prints_missing(self) -> str: ...
    @property
    def last_prints(self) -> Prints | None: ...
    def prints(
        self, *args: Any, blocks: Iterable[int] | None = None, seconds: float | None = None
    ) -> Prints: ...
    def numerics(
        self, *args: Any, block: tuple[int, ...] | None = None, seconds: float | None = None
    ) -> Numerics: ...


class Replaying(Protocol):
    """Who records what a block does; asked when somebody looks."""

    @property
    def last_replay(self) -> Replay | None: ...
    @property
    def replay_missing(self) -> str: ...
    def replay(self, *, block: Any = None, stage: str | None = None) -> Replay: ...


@dataclass(frozen=True, slots=True)
class KernelView:
    """The facts of one kernel beside its compile record.

    Attributes:
        record: name, target, source, passes, code, warnings and timings.
        grid: the launch grid as text, ``4x4`` or ``ceildiv(N, 64)``.
        threads: threads of a block.
        shared_bytes: shared memory of a block as the user wrote it, the same on every host.
        scratch_bytes: what a worker really holds; depends on the host, so only live views show it.
        flops, bytes_: static counts of one launch over global memory, None where unknown. A value
            of NaN means that only the formula is known (symbolic shapes).
        operation: what `flops` counts: ``OP`` of integers, else ``FLOP``.
        layouts: in the order in which the kernel declares its buffers.
        portable_layouts: whether they are the same on every host; the static card names them only
            where they are made for this very machine.
        portable_code: generated text that is the same on every host, for the static card; leave it
            empty for code made for this very machine.
        accesses: one line per tensor and shared buffer of a GPU kernel, with what its accesses cost
            over the ideal: sectors of global memory, wavefronts of shared memory.
        requests: the addresses behind the accesses (`Kernel.requests`), found when first asked for.
        unlisted: scope and a line for each access whose address is not known beforehand.
        resources: one line per function that NVRTC compiled; they depend on its version, so only
            live views show them.
        edited: what the user wrote in place of the compiler, ``edited IR``, empty for nothing.
        variants: one line per code of a kernel that has several, saying for which arguments, and
            per copy that a copy engine does, or why not.
        masked: what was accessed outside tensors in the last simulated run, by line, each with
            whether it is worth a look.
        portable_masked: whether that run was not cut short by its time.
        check: the last comparison with a reference, if there was one.
        errors: where the last check failed, if it did.
        bisect: searches one stage further for the pass that broke the result, anew where asked to.
        footprint: what a call touches (`Kernel.footprint`): of the block of that number with its
            threads, or with None of all; gives None where it was not
            recorded and is not to be now. None where there is no kernel to record.
        bench: the last measurement, if there was one.
        line_costs: gives the costs of each line as plain data, counted when they are looked at.
        line_traffic: what a run was counted to move, by line, or why it was not; None where that
            was not asked for.
        line: what stood behind the `%%tile` that compiled it, None where nothing did.
        annotated: whether the card opens at the costs of its lines.
        shared: the shared buffers of a block over address and time, of each launch that has any.
        pipelining: tells of the software pipelines, predicted and simulated.
        debugging: looks into runs in the simulator.
        replays: records a block of it, None where it cannot be run.
        occupancy: of blocks on one multiprocessor, None for a CPU.
        machine, points: the roofline's ceilings and this kernel's measured points.
        place: finds the same where they are not known yet; True lets it measure this machine.
    """

    record: CompileRecord
    grid: str
    threads: int
    shared_bytes: int = 0
    scratch_bytes: int = 0
    flops: Count | None = None
    bytes_: Count | None = None
    operation: str = "FLOP"
    layouts: tuple[BufferLayout, ...] = ()
    portable_layouts: bool = True
    portable_code: str = ""
    accesses: tuple[str, ...] = ()
    requests: Callable[[], tuple[WarpAccess, ...] | tuple[VectorAccess, ...]] = tuple
    unlisted: Callable[[], tuple[tuple[str, str], ...]] = tuple
    resources: tuple[str, ...] = ()
    edited: str = ""
    variants: tuple[str, ...] = ()
    line_costs: Callable[[], list[dict[str, Any]]] = list
    line_traffic: LineTraffic | str | None = None
    line: str | None = None
    annotated: bool = False
    shared: tuple[SharedMemory, ...] = ()
    pipelining: Pipelining | None = None
    debugging: Debugging | None = None
    replays: Replaying | None = None
    occupancy: Occupancy | None = None
    masked: tuple[tuple[str, bool], ...] = ()
    portable_masked: bool = True
    check: CheckResult | None = None
    errors: ErrorMap | None = None
    bisect: Callable[[bool], dict[str, Any]] | None = None
    footprint: Callable[[int | None, bool], Footprint | None] | None = None
    bench: RunRecord | None = None
    machine: Machine | None = None
    points: tuple[Point, ...] = ()
    place: Callable[[bool], Place] = lambda measures: (None, ())

    @property
    def target_kind(self) -> str:
        """``cpu`` or ``gpu``."""
        return "cpu" if self.record.target.partition(":")[0] == "cpu" else "gpu"

    def placed(self, measures: bool = False) -> KernelView:
        """The same with its place under the roofs, where it is known or this machine may be
        measured for it.
        """
        if self.points:
            return self
        machine, points = self.place(measures)
        return replace(self, machine=machine, points=points)

    @property
    def intensity(self) -> float | None:
        """Arithmetic intensity in `operation` per byte, where both counts have a value."""
        if self.flops is None or self.bytes_ is None or not self.bytes_.value > 0:
            return None
        ratio = self.flops.value / self.bytes_.value
        return None if ratio != ratio else ratio
