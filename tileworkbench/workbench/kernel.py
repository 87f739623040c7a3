"""`Kernel`: a compiled kernel as a user holds it: call it, look inside it, test it, measure it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tileworkbench.compiler.compilation import CompiledKernel, Options, Source
from tileworkbench.compiler.diagnostics import ArgumentError, RunError
from tileworkbench.compiler.ir.program import Program
from tileworkbench.workbench.counting import count_for_view
from tileworkbench.workbench.debugging import Debugging
from tileworkbench.workbench.kernel_facts import KernelFacts
from tileworkbench.workbench.replays import trouble_in, trouble_of

if TYPE_CHECKING:
    from tileworkbench.bench.parts import Causes
    from tileworkbench.bench.points import Trail
    from tileworkbench.bench.timing import BenchResult
    from tileworkbench.compiler.sim.masked import Masked
    from tileworkbench.compiler.sim.report import SimReport
    from tileworkbench.compiler.sim.simulate import SimResult
    from tileworkbench.editing.source import Trial
    from tileworkbench.shipping import Shipment
    from tileworkbench.viz.model.error_map import ErrorMap
    from tileworkbench.viz.model.swizzles import Swizzled
    from tileworkbench.viz.model.view import KernelView
    from tileworkbench.viz.model.what_if import Alternative
    from tileworkbench.workbench.annotation import LineCost
    from tileworkbench.workbench.expectations import Outcome
    from tileworkbench.workbench.results import CheckResult
    from tileworkbench.workbench.validation import Validation


class Kernel(KernelFacts, Debugging):
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
        self._failed: tuple[ErrorMap, list[Any]] | None = None
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
        self._annotated = self._counts_lines = False
        self._line: str | None = None  # of the `%%tile` that compiled it

    @cached_property
    def trail(self) -> Trail:
        """The versions that this one follows; see `follow`."""
        from tileworkbench.bench.points import Trail

        return Trail()

    def __call__(self, *args: Any) -> Any:
        if self._watches_calls:
            self._watch(args)
        try:
            return self._compiled(*args)
        except RunError as error:
            error.kernel = self
            trouble_in(self, args, ())
            raise

    @property
    def run_at(self) -> Callable[[Sequence[int]], None] | None:
        """What runs it on memory at these addresses, one for each parameter, outputs included, in
        order, and checks nothing; for callers who know their tensors. None where a call has more
        to do: sizes that are symbols, scalars, simulated targets, warnings to tell.
        """
        return None if self._watches_calls else self._compiled.run_at

    @property
    def native_launches(self) -> tuple[tuple[Any, int, float | None], ...]:
        """What `run_at` runs, in order: (launcher, blocks, nanoseconds on one core if known)."""
        return () if self.run_at is None else self._compiled.native_launches

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
            if name not in ("_compiled", "_replayed")
            and not isinstance(getattr(type(self), name, 0), cached_property)
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
    def _sanitizes(self) -> bool:
        return self._compiled.options.sanitize

    def _watch(self, args: tuple[Any, ...]) -> None:
        """Tell, once, of what is read before it is written; and of indices that come from data and
        are outside, an error where the kernel was compiled with `sanitize`.
        """
        from tileworkbench.workbench.simulation import find_masked, warn_of_fresh_reads

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
        from tileworkbench.workbench.simulation import warn_of_indices

        self._masked, self._masked_in_part = report.masked, report.timed_out
        if self.warns_of_indices:
            warn_of_indices(report, self._warned)

    # Facts

    @cached_property
    def variants(self) -> tuple[Kernel, ...]:
        """The same kernel compiled under assumptions about symbolic extents (`assumes`), for a GPU.

        A call takes the first variant whose assumptions hold of its arguments, else this kernel,
        whose passes, accesses, stats and source are those of the code for every size. What is asked
        of a variant is about its own code.
        """
        return tuple(Kernel(variant) for variant in self._compiled.variants)

    @cached_property
    def line_costs(self) -> tuple[LineCost, ...]:
        """What each line of the kernel's text costs: operations, bytes, conflicts, barriers."""
        from tileworkbench.workbench.annotation import line_costs

        return line_costs(self)

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
        empty for symbolic shapes and unknown GPUs. On the CPU `line_costs` has them by line.
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
        from tileworkbench.viz.model.tiles import movable_tile
        from tileworkbench.viz.model.what_if import compiled_alternatives

        return compiled_alternatives(self.record, movable_tile(self.view(), buffer))

    def swizzles(self, buffer: str, few: int = 3) -> tuple[Swizzled, ...]:
        """CuTe's swizzles <B, M, S> of a tile in shared memory with the fewest wavefronts of all
        its accesses, of equals those that XOR the fewest bits; no code is compiled.

        `each.swizzle.layout(shape, bits)` is the layout for `T.annotate_layout`, `bits` of an
        element. Raises `ArgumentError` as `what_if` does.
        """
        from tileworkbench.viz.model.swizzles import best
        from tileworkbench.viz.model.tiles import movable_tile

        return best(movable_tile(self.view(), buffer), few)

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

    # Tests

    def simulate(
        self,
        *args: Any,
        stage: str | None = None,
        blocks: Iterable[int] | None = None,
        sanitize: bool = False,
        fences: bool = False,
    ) -> SimResult:
        """Execute the program in the simulator instead of natively.

        `stage` is "tile" (the front end's program), "lowered" (after the last pass) or the name of
        a pass; by default "tile" for a CPU kernel, whose lowering guards what a wrong kernel would
        do. `blocks` are the numbers (x fastest) of the blocks to run, by default all: memory that
        the others would write stays as it is. The result has `.outputs` and a `.report` of
        everything found wrong, with lines. With `sanitize` an access of a tensor raises
        `OutOfBoundsError` where its index comes from data, is outside, and nothing in the kernel
        guards it. With `fences` T.fence_proxy_async() must stand between what threads write to
        shared memory and what T.tma_copy, T.wgmma_gemm and their like read there, as sm_90 demands.
        """
        from tileworkbench.workbench.simulation import simulate_stage

        try:
            result = simulate_stage(self, args, stage, blocks, sanitize, fences)
        except RunError as error:
            error.kernel = self
            trouble_in(self, args, ())
            raise
        trouble_of(self, args, result.report)
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
        `tileworkbench.workbench.checking`). `sanitize` is as in `simulate`.
        """
        from tileworkbench.workbench.checking import check_kernel

        self._check = self._failed = self._trouble = (
            None  # a card shows no check that came before a failed one
        )
        self._check = check_kernel(self, reference, args, rtol, atol, sanitize)
        return self._check

    @property
    def error_map(self) -> ErrorMap | None:
        """The wrong elements of the last check, and who wrote each last; None where it passed or
        there was none.
        """
        return None if self._failed is None else self._failed[0]

    def locate(self, blocks: Iterable[int] | None = None, seconds: float | None = None) -> ErrorMap:
        """Look once more who wrote the wrong elements of the last check, which gives up
        after 20,000 statements.

        `blocks` are the numbers (x fastest) of the blocks to simulate, None for all; `seconds` is
        about how long it may take, None for no limit. Raises `ArgumentError` where no check
        failed.
        """
        from tileworkbench.workbench.locating import locate

        if self._failed is None:
            raise ArgumentError(
                f"no check of '{self.name}' has failed", "call .check(reference, ...) first"
            )
        errors, args = self._failed
        self._failed = (locate(self, args, errors, blocks, seconds), args)
        return self._failed[0]

    def expect(self, *conditions: str) -> tuple[Outcome, ...]:
        """Check facts of the compilation: ``kernel.expect("conflicts==0", "smem<=48K")``.

        A condition compares a fact with a number (1K is 1024), or names an instruction that must be
        in the generated code (``"mma.m16n8k16"``; ``"not mma"`` must not). The facts are listed in
        `tileworkbench.workbench.expectations.FACTS`. Nothing is run.

        Raises:
            CheckError: (an AssertionError) a condition does not hold; all of them are listed.
            ArgumentError: a text is no condition.
            UnsupportedError: the target does not have the fact.
        """
        from tileworkbench.workbench.expectations import expect

        return expect(self, *conditions)

    def validate(self, *args: Any) -> Validation:
        """Simulate every snapshot on the same inputs; names the first pass that broke a result."""
        from tileworkbench.workbench.validation import validate_passes

        return validate_passes(self, args)

    # Measurements

    def bench(
        self,
        *args: Any,
        rounds: int = 0,
        against: Callable[..., Any] | None = None,
        cold: bool = False,
    ) -> BenchResult:
        """Time calls of the kernel with these arguments (random ones where none are given), beside
        those of `against` with the same if given; see `BenchResult`. `against` has to be done when
        it returns.

        Each call finds in the caches what the one before it left there; with `cold` it finds none
        of its arguments there, and nothing of what the last call returned. Results say which.

        Ctrl-C raises `BenchInterrupted`; the kernel keeps what was measured before.
        """
        from tileworkbench.bench.kernel import bench_kernel
        from tileworkbench.bench.timing import BenchInterrupted
        from tileworkbench.workbench.inputs import make_inputs

        try:
            inputs = args or make_inputs(self.program)
            self._bench = bench_kernel(self, inputs, rounds, against, cold)
        except BenchInterrupted as error:
            (self._bench,) = error.results.values()
            raise
        return self._bench

    # Views

    def follow(self, previous: Kernel | None, change: tuple[str, ...] = ()) -> Kernel:
        """Continue the trail of `previous` (None: begin one), from which this differs by `change`,
        lines of text; the roofline joins their points. Returns the kernel.
        """
        from tileworkbench.workbench.kernel_view import follow

        follow(self, previous, change)
        return self

    def with_roofline(self, shown: bool = True) -> Kernel:
        """Whether the card has a roofline; it needs a measurement (`bench`). Returns the kernel."""
        self._roofline = shown
        return self

    def with_costs(self, shown: bool = True, counted: bool = False) -> Kernel:
        """Whether the card opens at its source, lines shaded by their costs; `counted` adds what
        `count_traffic` counts of each line, or why nothing can be counted. Returns the kernel.
        """
        self._annotated, self._counts_lines = shown, counted
        if counted:
            count_for_view(self, seconds=1.0)
        return self

    def with_line(self, line: str) -> Kernel:
        """What stood behind the `%%tile` that compiled it: cells that views make of its text begin
        so. Returns the kernel.
        """
        self._line = line
        return self

    def view(self, roofline: bool = False) -> KernelView:
        """The plain data that views are drawn from; `roofline` measures the machine if needed."""
        from tileworkbench.workbench.kernel_view import make_view

        return make_view(self, roofline)

    def show(self, view: str | None = None) -> Any:
        """The widget of one view, a name of `viz.display.NAMES`: card, source, passes, ...

        Views that run the kernel in the simulator do so for about a second and say how far they
        came; the methods of their names (`footprint`, `numerics`, ...) have no such limit.
        """
        from tileworkbench.viz.display import show

        if view == "footprint" and self._footprint is None:
            self.footprint(seconds=1.0)
        if view == "roofline":
            count_for_view(self, seconds=1.0)
        return show(self.view(roofline=self._roofline or view == "roofline"), view or "card")

    def to_dict(self, view: str = "card") -> list[dict[str, Any]]:
        """What a view shows as plain data: a row per line, pass, tile, access, buffer, event or
        point; see `tileworkbench.workbench.plain`. Raises `ArgumentError` for a name of no view.
        """
        from tileworkbench.workbench.plain import rows_of

        return rows_of(self, view)

    def to_frame(self, view: str = "card") -> Any:
        """The same as a ``pandas.DataFrame``. Raises `UnsupportedError` without pandas."""
        from tileworkbench.workbench.plain import frame_of

        return frame_of(self.to_dict(view))

    def save(self, path: str | Path) -> Path:
        """Write one self-contained HTML page that needs neither a kernel nor a network."""
        from tileworkbench.viz.model.page import save_html

        return save_html(self.view(roofline=self._bench is not None), Path(path))

    def export(self, directory: str | Path, *args: Any) -> Path:
        """Write a reproducer into a folder: source, IR of every pass, generated code, parameters,
        versions, and `reproduce.py`, which compiles and runs the exported program.

        `args`, by default those of the last check if it failed, are stored with it: it then runs
        on these, else on made-up ones.
        """
        from tileworkbench.workbench.reproducer import export_kernel

        failed = [] if self._failed is None else self._failed[1]
        return export_kernel(self, Path(directory), args or failed)

    def ship(self, folder: str | Path) -> Shipment:
        """Write the kernel into a new folder that runs it without this package: `from FOLDER import
        KERNEL`.

        For a CPU that is a shared library with a C header, made for the processor that the target
        names ("cpu:avx2" runs on more than "cpu"), which a C compiler links. For a GPU it is the
        machine code with its source. Arguments are checked as here; sizes may be dynamic. Raises
        `TileValueError` for a folder with files in it, `UnsupportedError` for simulated targets and
        what cannot be shipped.
        """
        from tileworkbench.shipping import ship

        return ship(self._compiled, folder)

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
