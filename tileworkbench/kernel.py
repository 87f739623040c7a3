"""`Kernel`: a compiled kernel as a user holds it: call it, look inside it, test it, measure it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tileworkbench.compiler.compilation import CompiledKernel, Options, Source
from tileworkbench.compiler.diagnostics import ArgumentError, Note, UnsupportedError
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.ir.printer import print_expr
from tileworkbench.compiler.ir.program import Program, Stage
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.stmt import Alloc
from tileworkbench.compiler.ir.stmt import Kernel as Grid
from tileworkbench.compiler.record import Count, Timing
from tileworkbench.pipelining import PipelineFacts
from tileworkbench.snapshots import Passes
from tileworkbench.viz.model.roofline import Trail

if TYPE_CHECKING:
    from tileworkbench.accesses import GlobalAccess
    from tileworkbench.annotation import LineCost
    from tileworkbench.bench.time_model import Prediction
    from tileworkbench.bench.timing import BenchResult
    from tileworkbench.compiler.analysis.cost import Work
    from tileworkbench.compiler.analysis.occupancy import Occupancy
    from tileworkbench.compiler.analysis.shared_memory import SharedMemory
    from tileworkbench.compiler.device.nvidia.nvrtc import KernelResources
    from tileworkbench.compiler.layout import Fragment, Layout
    from tileworkbench.compiler.sim.masked import Masked
    from tileworkbench.compiler.sim.report import AccessCount, SimReport
    from tileworkbench.compiler.sim.simulate import SimResult
    from tileworkbench.compiler.sim.threads.requests import WarpAccess
    from tileworkbench.compiler.sim.vector_requests import VectorAccess
    from tileworkbench.editing.source import Trial
    from tileworkbench.expectations import Outcome
    from tileworkbench.validation import Validation
    from tileworkbench.viz.model.causes import Causes
    from tileworkbench.viz.model.view import BufferLayout, CheckResult, KernelView
    from tileworkbench.viz.model.what_if import Alternative


@dataclass(frozen=True, slots=True)
class Stats:
    """Static facts of one compilation. Bytes are of one launch over global memory.

    `flops` and `bytes_` have a value and the formula it comes from; the value is NaN for symbolic
    shapes. `shared_bytes` is the shared memory of a block: on a GPU what it is launched with, on a
    CPU what it allocates as written. `scratch_bytes` is a CPU worker's arena. `resources` are the
    registers and spills of each CUDA function, where NVRTC has compiled it. `timings` are the steps
    of the compilation.
    """

    flops: Count
    bytes_: Count
    shared_bytes: int
    scratch_bytes: int
    timings: tuple[Timing, ...]
    resources: tuple[KernelResources, ...] = ()
    lowered: Program | None = field(default=None, repr=False, compare=False)
    file: str = field(default="", repr=False, compare=False)

    @property
    def predicted(self) -> Prediction:
        """The time that a model expects of a call, by what it is spent on; nothing is run.

        The first use on a machine measures its ceilings, which takes seconds. Raises
        `ArgumentError` for symbolic shapes and for targets other than `cpu`.
        """
        from tileworkbench.bench.ceilings import machine
        from tileworkbench.bench.time_model import predict_time, refuse_unknown
        from tileworkbench.compiler.device.host.threads import get_num_threads

        if self.lowered is None:
            raise ArgumentError("a kernel that no pass of 'cpu' has lowered has no predicted time")
        refuse_unknown(self.lowered)
        return predict_time(self.lowered, machine(), get_num_threads(), self.file)

    @property
    def intensity(self) -> float:
        """FLOP per byte of compulsory traffic."""
        return self.flops.value / self.bytes_.value if self.bytes_.value else float("inf")


class Kernel(PipelineFacts):
    """A compiled kernel. Calling it checks the arguments, runs it and returns its outputs.

    `config` is the configuration that `tw.autotune` chose, `latency` its time and `ref_latency`
    that of the reference, in milliseconds; None where nothing was tuned. `trail` has the versions
    of its `%%tile` cell before this one.
    """

    # Whether indices that come from data and are outside are told of, beside the report.
    warns_of_indices = True

    def __init__(self, compiled: CompiledKernel) -> None:
        self.config: Mapping[str, Any] | None = None
        self.latency: float | None = None
        self.ref_latency: float | None = None
        self._compiled = compiled
        self._check: CheckResult | None = None
        self._masked: tuple[Masked, ...] = ()
        self._masked_in_part = False
        self._warned: set[tuple[str, int]] = set()
        self._told = False
        simulated = self.warns_of_indices and compiled.target.execution != "native"
        self._watches_indices = simulated and self.has_unguarded_indices
        # The first call tells of what the card would have shown.
        self._watches_calls = self._watches_indices or bool(compiled.record.warnings)
        self._bench: BenchResult | None = None
        self._roofline = False
        self._annotated = False
        self.trail = Trail()

    def __call__(self, *args: Any) -> Any:
        if self._watches_calls:
            self._watch(args)
        return self._compiled(*args)

    def __reduce__(self) -> tuple[Any, ...]:
        """What `pickle` and `copy` keep: the program and what was measured of it; a process that
        loads it compiles it again. Raises `ArgumentError` for a variant.
        """
        if self.assumes:
            raise ArgumentError(
                f"a variant of '{self.name}' is part of its kernel and cannot be stored",
                hint="store the kernel, whose 'variants' has it",
            )
        kept = {
            name: value
            for name, value in vars(self).items()
            if name != "_compiled" and not isinstance(getattr(type(self), name, 0), cached_property)
        }
        record, options = self._compiled.record, self._compiled.options
        source = Source(record.source, record.source_file, record.first_line)
        return _compiled_again, (type(self), record.program, record.target, source, options), kept

    @cached_property
    def has_unguarded_indices(self) -> bool:
        """Whether it accesses tensors by indices that come from data and that nothing guards."""
        from tileworkbench.compiler.analysis.data_indices import unguarded_accesses

        return bool(unguarded_accesses(self.program))

    @property
    def compiled(self) -> CompiledKernel:
        """What the compiler made: code and a call, without views."""
        return self._compiled

    @property
    def _sanitizes(self) -> bool:
        return self._compiled.options.sanitize

    def _watch(self, args: tuple[Any, ...]) -> None:
        """Tell, once, of what is read before it is written; and of indices that come from data and
        are outside, an error where the kernel was compiled with `sanitize`.
        """
        from tileworkbench.simulation import find_masked, warn_of_fresh_reads

        if not self._told:
            self._told = True
            warn_of_fresh_reads(self.program)
            self._watches_calls = self._watches_indices
        if not self._watches_indices:
            return
        report = find_masked(self, args, self._sanitizes)
        if report is not None:
            self.note_masked(report)

    def note_masked(self, report: SimReport) -> None:
        """Keep what a simulated run masked for the card, and warn of what comes from data."""
        from tileworkbench.simulation import warn_of_indices

        self._masked, self._masked_in_part = report.masked, report.timed_out
        if self.warns_of_indices:
            warn_of_indices(report, self._warned)

    # Facts

    @property
    def name(self) -> str:
        """The function's name."""
        return self._compiled.record.name

    @property
    def target(self) -> str:
        """The target it was compiled for."""
        return self._compiled.record.target

    @property
    def record(self) -> Any:
        """The `CompileRecord`: everything about the compilation as plain data."""
        return self._compiled.record

    @property
    def program(self) -> Program:
        """The front end's program; `print` shows it as text."""
        return self._compiled.record.program

    @cached_property
    def grid(self) -> tuple[int | str, ...]:
        """Blocks along x, y, z of the first launch; text where they depend on a symbol."""
        launch = self._launch()
        if launch is None:
            return ()
        numbers = [(const_int(extent), extent) for extent in launch.grid]
        return tuple(print_expr(e) if number is None else number for number, e in numbers)

    @property
    def threads(self) -> int:
        """Threads of a block."""
        launch = self._launch()
        total = 1
        for extent in launch.threads if launch else ():
            total *= extent
        return total

    def _launch(self) -> Grid | None:
        found = (stmt for stmt in statements(self.program.body) if isinstance(stmt, Grid))
        return next(found, None)

    @cached_property
    def variants(self) -> tuple[Kernel, ...]:
        """The same kernel compiled under assumptions about symbolic extents (`assumes`), for a GPU.

        A call takes the first variant whose assumptions hold of its arguments, else this kernel,
        whose passes, accesses, stats and source are those of the code for every size. What is asked
        of a variant is about its own code.
        """
        return tuple(Kernel(variant) for variant in self._compiled.variants)

    @property
    def assumes(self) -> tuple[str, ...]:
        """What a variant assumes, such as ``N % 8 == 0``; () for a kernel of its own."""
        return self._compiled.record.facts

    @cached_property
    def passes(self) -> Passes:
        """One snapshot per pass."""
        return Passes(self.program, self._compiled.record.snapshots)

    def edit_ir(self, text: str, after: str | int) -> Kernel:
        """A kernel that has `text`, IR as `passes` prints it, as its program after the pass `after`
        (a name, or its number; 0 is the front end), and is compiled from there on.

        Raises `TileSyntaxError` for text that is no IR, `VerifyError` naming the rule that it
        breaks, `TileValueError` for other parameters, and `CompileError` kinds of later passes.
        """
        from tileworkbench.editing.ir import edit_ir

        return edit_ir(self, text, after)

    def edit_source(self, text: str, *args: Any, seconds: float = 10.0) -> Trial:
        """A kernel that has `text` as its generated code (`source`), after it ran on `args` in a
        process of its own: a wrong edit ends that process, or is stopped after `seconds`.

        The result has `.kernel`, and says as text how its results compare with this kernel's.
        Raises `TileSyntaxError` for code that does not compile, `RunError` where the process ended
        or was stopped, `UnsupportedError` on `sim:`, which runs no text.
        """
        from tileworkbench.editing.source import edit_source

        return edit_source(self, text, args, seconds)

    @cached_property
    def layouts(self) -> Mapping[str, Layout | Fragment]:
        """The layout of every shared buffer and fragment, by buffer name."""
        return {found.name: found.layout for found in self._buffer_layouts}

    @cached_property
    def _buffer_layouts(self) -> tuple[BufferLayout, ...]:
        from tileworkbench.viz.model.view import BufferLayout

        planned = [s for s in self._compiled.record.snapshots if s.program.stage is Stage.PLANNED]
        if not planned:
            return ()
        banked = self._compiled.target.kind != "cpu"
        return tuple(
            BufferLayout(buffer.name, buffer.layout, _role(buffer), buffer.dtype.bytes, banked)
            for buffer in _allocated(planned[0].program)
            if buffer.layout is not None
        )

    @cached_property
    def accesses(self) -> tuple[GlobalAccess | AccessCount, ...]:
        """How the lowered code uses memory, access by access, with its line.

        On the CPU: bytes at once and pattern of accesses to tensors. For a GPU: wavefronts of
        shared memory and sectors of global memory against the least that would do, for one block
        and one iteration of each loop that is not unrolled.
        """
        from tileworkbench.accesses import accesses_of

        return accesses_of(self.passes[-1].program, self.requests)

    @cached_property
    def requests(self) -> tuple[WarpAccess, ...] | tuple[VectorAccess, ...]:
        """The byte addresses behind `accesses`.

        For a GPU a `WarpAccess` per entry of `accesses`, in the same order: what each thread of a
        block accesses, the phases in which shared memory serves it, with bank, word, degree and who
        collides with whom, and the sectors of global memory. On the CPU a `VectorAccess` per access
        to a tensor or tile: the lanes of its first vectors and the cache lines they touch. Each has
        `to_dict()`.
        """
        from tileworkbench.accesses import requests_of

        return requests_of(self.passes[-1].program)

    @cached_property
    def line_costs(self) -> tuple[LineCost, ...]:
        """What each line of the kernel's text costs: operations, bytes, conflicts, barriers."""
        from tileworkbench.annotation import line_costs

        return line_costs(self)

    @cached_property
    def shared_memory(self) -> SharedMemory | None:
        """The shared memory of a block: buffers with their bytes, places and lifetimes, and what
        other numbers of pipeline stages would need. None for a kernel without any. On the CPU it is
        that of the kernel as written.
        """
        from tileworkbench.compiler.analysis.shared_memory import shared_memory

        by_name = {each.name: each.program for each in self._compiled.record.snapshots}
        placed = by_name.get("plan_shared_memory")
        if placed is None:
            return shared_memory(self.program)
        return shared_memory(placed, by_name.get("infer_thread_layouts"))

    @property
    def occupancy(self) -> Occupancy | None:
        """How many blocks one multiprocessor of the target holds at once, what limits that and what
        would help. None on the CPU. Registers count where NVRTC has compiled the kernel.
        """
        from tileworkbench.compiler.analysis.occupancy import occupancy

        registers = [found.registers for found in self._compiled.footprint.functions]
        target, shared = self._compiled.target, self._compiled.footprint.shared_bytes
        return occupancy(target.arch, self.threads, shared, max(registers, default=None))

    @property
    def causes(self) -> Causes | None:
        """Where the time of a launch goes by cause and line, predicted without running it: see
        `Causes`. On the CPU the first use on a machine measures its ceilings, which takes seconds.

        None where there is no prediction: symbolic shapes, or a GPU without published numbers.
        """
        from tileworkbench.bench.causes import causes_of

        return causes_of(self)

    @property
    def traffic(self) -> Mapping[str, float]:
        """Predicted bytes of a launch by the memory level that they come from, innermost first;
        empty where `causes` is None.
        """
        from tileworkbench.bench.causes import traffic_of

        return traffic_of(self)

    def what_if(self, buffer: str) -> tuple[Alternative, ...]:
        """What the accesses of a tile in shared memory would cost with other layouts, best first:
        row-major, padded, swizzled by 32, 64 and 128 bytes, and its own.

        The kernel is lowered again with each, so these are the counts that `Alternative.line` gives
        when it stands in the kernel. Raises `ArgumentError` for a kernel without such a tile, or a
        tile that can have no other layout.
        """
        from tileworkbench.viz.model.tiles import find_tile
        from tileworkbench.viz.model.what_if import compiled_alternatives

        tile = find_tile(self.view(), buffer)
        if tile.fixed:
            raise ArgumentError(f"the layout of '{buffer}' cannot be changed: {tile.fixed}")
        return compiled_alternatives(self.record, tile)

    @property
    def source(self) -> str:
        """The generated text (LLVM IR on cpu)."""
        return self._compiled.record.code

    def get_kernel_source(self, kernel_only: bool = True) -> str:
        """The same as `source`: there is no text of a host, whatever `kernel_only` is."""
        return self.source

    @cached_property
    def asm(self) -> str:
        """The machine's assembly text (PTX for a GPU)."""
        return self._compiled.text("asm")

    @cached_property
    def sass(self) -> str:
        """The instructions of an NVIDIA device under the lines of the kernel that they come from.

        Raises `UnsupportedError` without NVRTC and nvdisasm (the extra `cuda`), or for a CPU.
        """
        return self._compiled.text("sass")

    @cached_property
    def _work(self) -> Work:
        from tileworkbench.compiler.analysis.cost import count_work

        return count_work(self.program)

    @property
    def stats(self) -> Stats:
        """Operations, traffic, memory and compile times."""
        work, compiled, needs = self._work, self._compiled, self._compiled.footprint
        snapshots = compiled.record.snapshots
        lowered = snapshots[-1].program if snapshots and compiled.target.kind == "cpu" else None
        return Stats(
            flops=work.flops,
            bytes_=work.bytes_,
            shared_bytes=needs.shared_bytes,
            scratch_bytes=needs.scratch_bytes,
            timings=compiled.record.timings,
            resources=needs.functions,
            lowered=lowered,
            file=compiled.record.source_file,
        )

    @property
    def warnings(self) -> tuple[Note, ...]:
        """What is certainly wrong although it compiles, each with its place: tiles read before they
        are written, indices out of range, writes that conflict. `simulate` finds the rest.
        """
        return self._compiled.record.warnings

    # Tests

    def simulate(
        self,
        *args: Any,
        stage: str | None = None,
        blocks: Iterable[int] | None = None,
        sanitize: bool = False,
    ) -> SimResult:
        """Execute the program in the simulator instead of natively.

        `stage` is "tile" (the front end's program), "lowered" (after the last pass) or the name of
        a pass; by default "tile" for a CPU kernel, whose lowering guards what a wrong kernel would
        do. `blocks` are the numbers (x fastest) of the blocks to run, by default all: memory that
        the others would write stays as it is. The result has `.outputs` and a `.report` of
        everything found wrong, with lines. With `sanitize` an access of a tensor raises
        `OutOfBoundsError` where its index comes from data, is outside, and nothing in the kernel
        guards it.
        """
        from tileworkbench.simulation import simulate_stage

        result = simulate_stage(self, args, stage, blocks, sanitize)
        self._masked, self._masked_in_part = result.report.masked, False
        return result

    def check(
        self,
        reference: Callable[..., Any],
        *args: Any,
        rtol: float | None = None,
        atol: float | None = None,
        sanitize: bool = False,
    ) -> CheckResult:
        """Compare the outputs with those of `reference(*args)`.

        The simulator runs some blocks first (at most four, or 0.3 s; with `sanitize` all of them),
        and what it finds is raised: `RaceError`, or another `RunError`. Then the kernel runs on
        outputs that hold NaN. Raises `CheckError` on a mismatch, saying where it is. The default
        tolerance follows the dtypes of the output and of the reference's result (see
        `tileworkbench.checking`). `sanitize` is as in `simulate`.
        """
        from tileworkbench.checking import check_kernel

        self._check = None  # a card shows no check that came before a failed one
        self._check = check_kernel(self, reference, args, rtol, atol, sanitize)
        return self._check

    def expect(self, *conditions: str) -> tuple[Outcome, ...]:
        """Check facts of the compilation: ``kernel.expect("conflicts==0", "smem<=48K")``.

        A condition compares a fact with a number (1K is 1024), or names an instruction that must be
        in the generated code (``"mma.m16n8k16"``; ``"not mma"`` must not). The facts are listed in
        `tileworkbench.expectations.FACTS`. Nothing is run.

        Raises:
            CheckError: (an AssertionError) a condition does not hold; all of them are listed.
            ArgumentError: a text is no condition.
            UnsupportedError: the target does not have the fact.
        """
        from tileworkbench.expectations import expect

        return expect(self, *conditions)

    @property
    def resources(self) -> tuple[KernelResources, ...]:
        """Registers and spills of each function of a GPU kernel, which NVRTC compiles for it.

        Raises `UnsupportedError` without NVRTC (the extra `cuda`), or for a CPU.
        """
        if not self._compiled.footprint.functions:
            self._compiled.text("asm")  # what NVRTC has compiled is known
        found = self._compiled.footprint.functions
        if not found:
            raise UnsupportedError(f"'{self.name}' is compiled for a CPU: registers are a GPU's")
        return found

    def validate(self, *args: Any) -> Validation:
        """Simulate every snapshot on the same inputs; names the first pass that broke a result."""
        from tileworkbench.validation import validate_passes

        return validate_passes(self, args)

    # Measurements

    def bench(self, *args: Any, rounds: int = 0) -> BenchResult:
        """Time calls of the kernel with these arguments; see `BenchResult`.

        Ctrl-C raises `BenchInterrupted`; the kernel keeps what was measured before.
        """
        from tileworkbench.bench.kernel import bench_kernel
        from tileworkbench.bench.timing import BenchInterrupted

        try:
            self._bench = bench_kernel(self, args, rounds)
        except BenchInterrupted as error:
            (self._bench,) = error.results.values()
            raise
        return self._bench

    # Views

    def follow(self, previous: Kernel | None, change: tuple[str, ...] = ()) -> Kernel:
        """Continue the trail of `previous` (None: begin one), from which this differs by `change`,
        lines of text; the roofline joins their points. Returns the kernel.
        """
        from tileworkbench.kernel_view import follow

        follow(self, previous, change)
        return self

    def with_roofline(self, shown: bool = True) -> Kernel:
        """Whether the card has a roofline; it needs a measurement (`bench`). Returns the kernel."""
        self._roofline = shown
        return self

    def with_costs(self, shown: bool = True) -> Kernel:
        """Whether the card opens at its source, lines shaded by their costs. Returns the kernel."""
        self._annotated = shown
        return self

    def view(self, roofline: bool = False) -> KernelView:
        """The plain data that views are drawn from; `roofline` measures the machine if needed."""
        from tileworkbench.kernel_view import make_view

        return make_view(self, roofline)

    def show(self, view: str | None = None) -> Any:
        """The widget of one view, a name of `viz.display.NAMES`: card, source, passes, ..."""
        from tileworkbench.viz.display import show

        return show(self.view(roofline=self._roofline or view == "roofline"), view or "card")

    def save(self, path: str | Path) -> Path:
        """Write one self-contained HTML page that needs neither a kernel nor a network."""
        from tileworkbench.viz.model.page import save_html

        return save_html(self.view(roofline=self._bench is not None), Path(path))

    def export(self, directory: str | Path) -> Path:
        """Write a reproducer into a folder: source, IR of every pass, generated code, parameters,
        versions, and `reproduce.py`, which compiles and runs the exported program.
        """
        from tileworkbench.reproducer import export_kernel

        return export_kernel(self, Path(directory))

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        from tileworkbench.viz.display import mimebundle

        return mimebundle(self.view(roofline=self._roofline))

    def __repr__(self) -> str:
        from tileworkbench.viz.model.text import plain_line

        return plain_line(self.view())


def _compiled_again(
    kind: type[Kernel], program: Program, target: str, source: Source, options: Options
) -> Kernel:
    """A kernel that was stored, without what was known of it besides."""
    from tileworkbench.compiler.driver import compile_program

    kernel = kind.__new__(kind)
    kernel._compiled = compile_program(program, target, source=source, options=options)
    return kernel


def _allocated(program: Program) -> list[Buffer]:
    """The tiles a block allocates, in order."""
    scopes = ("shared", "local.fragment")
    found = [stmt.buffer for stmt in statements(program.body) if isinstance(stmt, Alloc)]
    return [buffer for buffer in found if buffer.scope in scopes]


def _role(buffer: Buffer) -> str:
    scope = "fragment" if buffer.scope == "local.fragment" else buffer.scope
    return f"{scope} {buffer.dtype} {'x'.join(print_expr(extent) for extent in buffer.shape)}"
