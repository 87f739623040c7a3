"""Program to callable: the one place that wires passes, code generation and runtime together.

`compile_program` takes what the front end made, runs the target's passes (verifying and recording
a snapshot after each), generates code and links it. The result is plain data plus a callable;
`tileworkbench.kernel.Kernel` dresses it up.
"""

from __future__ import annotations

import gc
import sys
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any

from tileworkbench.compiler.analysis.assumptions import check_assumptions, host_assumptions
from tileworkbench.compiler.analysis.cost import count_work
from tileworkbench.compiler.analysis.effects import written_below
from tileworkbench.compiler.analysis.elementwise import is_elementwise
from tileworkbench.compiler.analysis.evaluate import evaluate
from tileworkbench.compiler.analysis.hazards import find_hazards
from tileworkbench.compiler.codegen.c_sources import find_function, symbol_of
from tileworkbench.compiler.codegen.cuda import generate_cuda
from tileworkbench.compiler.codegen.isa import Isa, isa_from_features
from tileworkbench.compiler.codegen.llvm import Module, generate
from tileworkbench.compiler.diagnostics import (
    ArgumentError,
    CompileError,
    Note,
    ResourceError,
    Span,
    UnsupportedError,
    VerifyError,
)
from tileworkbench.compiler.gpu import GpuKernel, build_cuda, can_build
from tileworkbench.compiler.ir import expr as ir
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.expr import Buffer, Const, Expr, Var
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import (
    Rewriter,
    buffers_of,
    parameters,
    statements,
    with_body,
)
from tileworkbench.compiler.ir.stmt import ExternCall, Kernel, SourceKernel, Stmt
from tileworkbench.compiler.ir.tile import Pipelined
from tileworkbench.compiler.ir.verify import verify
from tileworkbench.compiler.passes.pipeline import pass_name, pipeline
from tileworkbench.compiler.record import CompileRecord, Snapshot, Timing
from tileworkbench.compiler.runtime.arguments import ArgumentBinder, BoundArguments
from tileworkbench.compiler.runtime.launch import Launcher
from tileworkbench.compiler.runtime.llvm import NativeTarget, compile_assembly, native_target
from tileworkbench.compiler.runtime.native import build_native
from tileworkbench.compiler.runtime.nvrtc import CudaBuild
from tileworkbench.compiler.runtime.parameters import DerivedDim, DimSpec, ParameterSpec
from tileworkbench.compiler.target import Target, parse_target

_RECURSION_LIMIT = 10_000
_MEMORY_CACHE_SIZE = 256
# A core's rates for the estimate that decides between one thread and all: orders of magnitude.
_FLOPS_PER_NS, _TRANSCENDENTALS_PER_NS, _BYTES_PER_NS = 50.0, 2.0, 10.0


@dataclass(frozen=True, slots=True)
class Source:
    """Where a kernel's text came from."""

    text: str = ""
    file: str = ""
    first_line: int = 1


@dataclass(frozen=True, slots=True)
class Options:
    """What a caller may choose beyond the target."""

    allow_alias: bool = False
    constants: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class _Launch:
    """One grid: how many blocks, and what runs them."""

    blocks: Expr | int
    launcher: Launcher


@dataclass(slots=True)
class CompiledKernel:
    """A compiled kernel: its record, and a call that checks its arguments before it runs.

    Calling it takes one argument per parameter that is not an output, in order, and returns the
    outputs: None, one array, or a list in the order the kernel returns them.
    """

    record: CompileRecord
    target: Target
    module: Module
    binder: ArgumentBinder
    launches: tuple[_Launch, ...]
    native: NativeTarget
    estimated_ns: float | None
    _outputs: tuple[int, ...] = field(default=())
    _assumptions: tuple[Expr, ...] = field(default=())

    def __call__(self, *args: Any) -> Any:
        bound = self.binder.bind(args)
        if self._assumptions:
            check_assumptions(self.record.name, self._assumptions, self._values(bound))
        for launch in self.launches:
            blocks = launch.blocks
            if not isinstance(blocks, int):
                blocks = int(evaluate(blocks, self._values(bound)))
            launch.launcher(bound.slots, blocks, self.estimated_ns)
        outputs = [bound.outputs[i] for i in self._outputs]
        return outputs if len(outputs) > 1 else outputs[0] if outputs else None

    @property
    def scratch_bytes(self) -> int:
        """Bytes of a worker's arena."""
        return self.module.scratch_bytes

    def _values(self, bound: BoundArguments) -> dict[str, int]:
        """The integer scalar arguments and the symbols by name: a grid may depend on them."""
        params = self.record.program.params
        scalars = {p.name: bound.slots[i] for i, p in enumerate(params) if isinstance(p.value, Var)}
        return {**scalars, **dict(zip(self.binder.symbols, bound.symbols, strict=True))}

    def assembly(self) -> str:
        """The machine's assembly text, made on request."""
        return compile_assembly(self.module.text, self.native)


def resolve_target(text: str) -> Target:
    """The target of that spelling, a CPU one with this machine's level and vector width.

    Raises `TileValueError` for an unknown spelling and `UnsupportedError` for a level that this
    machine does not have.
    """
    target = parse_target("cpu" if text == "auto" else text)
    if target.kind != "cpu":
        return target
    isa = _isa(native_target(target.arch))
    return replace(
        target,
        arch=isa.level,
        vector_bits=isa.vector_bits,
        dot_int8=isa.dot_int8,
        dot_bfloat16=isa.dot_bfloat16,
    )


def _isa(native: NativeTarget) -> Isa:
    return isa_from_features(dict.fromkeys(native.features, True))


def lower_program(program: Program, target: Target) -> tuple[Snapshot, ...]:
    """Run every pass of `target`, verify after each, and return a snapshot per pass.

    Raises `CompileError` kinds for kernels that cannot be compiled; a `VerifyError` is a bug of
    the compiler and names the pass.
    """
    verify(program)
    snapshots = []
    current = program
    for step in pipeline(target):
        name = pass_name(step)
        start = time.perf_counter()
        after = step(current)
        elapsed = (time.perf_counter() - start) * 1e6
        if after is not current:
            _verify_after(after, name)
        changed = after is not current
        snapshots.append(Snapshot(name, _first_sentence(step), after, changed, elapsed))
        current = after
    return tuple(snapshots)


def _first_sentence(step: Any) -> str:
    """The first paragraph of a pass's docstring, on one line."""
    return " ".join((step.__doc__ or "").strip().split("\n\n")[0].split())


def _verify_after(program: Program, name: str) -> None:
    try:
        verify(program)
    except VerifyError as error:
        raise VerifyError(
            f"pass '{name}' broke the program: {error.message}",
            error.span,
            hint="this is a bug in tileworkbench; please report it with the kernel",
        ) from None


_memory: OrderedDict[tuple[Any, ...], CompiledKernel | GpuKernel] = OrderedDict()
_memory_lock = Lock()


def clear_memory_cache() -> None:
    """Forget every kernel compiled in this process."""
    with _memory_lock:
        _memory.clear()


def compile_program(
    program: Program,
    target: str = "auto",
    *,
    source: Source | None = None,
    options: Options | None = None,
    trace_us: float = 0.0,
) -> CompiledKernel | GpuKernel:
    """Compile a TILE program for `target` and link it into this process.

    An equal program from equal source compiled before is returned as it is, with
    `record.cached == "memory"`. Raises `CompileError` kinds, `TileValueError` for an unknown
    target and `DeviceUnavailableError` for one that nothing here can run.
    """
    source, options = source or Source(), options or Options()
    resolved = resolve_target(target)
    key = (program, resolved, source.text, source.first_line, source.file, options)
    with _memory_lock:
        found = _memory.get(key)
        if found is not None:
            _memory.move_to_end(key)
            return replace(found, record=replace(found.record, cached="memory"))
    compile_for = _compile if resolved.kind == "cpu" else _compile_gpu
    try:
        with _deep_recursion(), _uncollected():
            made = compile_for(program, resolved, source, options, trace_us)
    except RecursionError:
        raise UnsupportedError(
            f"an expression of '{program.name}' is nested too deeply to be compiled",
            hint="give its parts names",
        ) from None
    with _memory_lock:
        _memory[key] = made
        while len(_memory) > _MEMORY_CACHE_SIZE:
            _memory.popitem(last=False)
    return made


@contextmanager
def _deep_recursion() -> Iterator[None]:
    """Room for expressions of a thousand terms; their trees are walked recursively."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _RECURSION_LIMIT))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


@contextmanager
def _uncollected() -> Iterator[None]:
    """No garbage collection: it would walk all that the process has imported, for a few
    thousand nodes that stay alive anyway."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class _Clock:
    """Times the steps of a compilation."""

    def __init__(self, trace_us: float) -> None:
        self.timings = [Timing("trace", trace_us)] if trace_us else []

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.timings.append(Timing(name, (time.perf_counter() - start) * 1e6))


def _compile(
    program: Program, target: Target, source: Source, options: Options, trace_us: float
) -> CompiledKernel:
    clock = _Clock(trace_us)
    host = native_target()
    native = host if target.arch == _isa(host).level else native_target(target.arch)
    _check_grids(program)
    _check_sources(program)
    with clock.step("analysis"):
        warnings = find_hazards(program)
    with clock.step("passes"):
        snapshots = lower_program(program, target)
    lowered = snapshots[-1].program if snapshots else program
    with clock.step("codegen"):
        module = generate(lowered, _isa(native))
    with clock.step("native"):
        binder = _binder(program, options)
        entries = [launch.entry for launch in module.launches]
        built = build_native(module.text, entries, native, imports=_imports(program))
    messages = [message for message, _ in module.assertions]
    launches = tuple(
        _Launch(
            _static_blocks(launch.blocks),
            Launcher(
                built.functions[launch.entry],
                program.name,
                binder.slot_count,
                module.scratch_bytes,
                assertions=messages,
            ),
        )
        for launch in module.launches
    )
    record = CompileRecord(
        name=program.name,
        target=str(parse_target("cpu") if native.level == "native" else target),
        level=target.arch,
        source=source.text,
        source_file=source.file,
        first_line=source.first_line,
        program=program,
        snapshots=snapshots,
        code=module.text,
        entry=entries[0] if entries else "",
        constants=options.constants,
        timings=tuple(clock.timings),
        warnings=warnings,
        cached="disk" if built.from_cache else "",
    )
    estimate = _estimate_ns(_with_thread_loops(program, snapshots))
    order = _return_order(program)
    assumed = host_assumptions(program)
    return CompiledKernel(
        record, target, module, binder, launches, native, estimate, order, assumed
    )


def _return_order(program: Program) -> tuple[int, ...]:
    """The places of the returned tensors among the outputs."""
    outputs = [i for i, param in enumerate(program.params) if param.output]
    return tuple(outputs.index(i) for i in program.returns)


def _compile_gpu(
    program: Program, target: Target, source: Source, options: Options, trace_us: float
) -> GpuKernel:
    clock = _Clock(trace_us)
    _check_grids(program)
    with clock.step("analysis"):
        warnings = find_hazards(program)
    with clock.step("passes"):
        try:
            snapshots = lower_program(program, target)
        except ResourceError as error:
            raise _with_fitting_stages(error, program, target) from None
    lowered = snapshots[-1].program
    with clock.step("codegen"):
        lines = ("",) * (source.first_line - 1) + tuple(source.text.splitlines())
        module = generate_cuda(lowered, target, lines)
    build = None
    if target.execution == "ptx" or (target.execution == "native" and can_build()):
        with clock.step("nvrtc"):
            build = build_cuda(module, program.name, target)
    record = CompileRecord(
        name=program.name,
        target=str(target),
        level=target.arch,
        source=source.text,
        source_file=source.file,
        first_line=source.first_line,
        program=program,
        snapshots=snapshots,
        code=module.text,
        entry=module.launches[0].entry if module.launches else "",
        constants=options.constants,
        timings=tuple(clock.timings),
        warnings=(*warnings, *_build_warnings(build)),
    )
    device = "cuda" if target.execution == "native" else "cpu"
    binder = _binder(program, options, device)
    outputs, assumed = _return_order(program), host_assumptions(program)
    return GpuKernel(record, target, module, lowered, binder, build, outputs, assumed)


def _with_fitting_stages(error: ResourceError, program: Program, target: Target) -> ResourceError:
    """`error` with the most pipeline stages that fit in its hint, where fewer stages do."""
    loops = [stmt for stmt in statements(program.body) if isinstance(stmt, Pipelined)]
    for stages in range(max((loop.num_stages for loop in loops), default=0) - 1, 0, -1):

        def shorten(stmt: Stmt, most: int = stages) -> Stmt:
            if isinstance(stmt, Pipelined) and stmt.num_stages > most:
                return replace(stmt, num_stages=most)
            return stmt

        try:
            lower_program(with_body(program, Rewriter(rewrite_stmt=shorten)(program.body)), target)
        except CompileError:
            continue
        return ResourceError(error.message, error.span, hint=f"num_stages={stages} would fit")
    return error


def _build_warnings(build: CudaBuild | None) -> list[Note]:
    """What ptxas says that costs speed: spills, and what it serialised or ignored (C75xx)."""
    if build is None:
        return []
    notes = [Note(text) for text in build.warnings if "C75" in text]
    for kernel in build.kernels:
        if kernel.spill_store_bytes or kernel.spill_load_bytes:
            notes.append(
                Note(
                    f"'{kernel.name}' needs more than its {kernel.registers} registers: "
                    f"{kernel.spill_store_bytes} bytes are spilled to memory"
                )
            )
    return notes


def _imports(program: Program) -> dict[str, int]:
    """The addresses of the external functions that the program calls, by their names in code."""
    found: dict[str, int] = {}
    for stmt in statements(program.body):
        if isinstance(stmt, ExternCall):
            with placed_at(program.span(stmt.site)):
                address = find_function(stmt.name, program.sources)
            found[symbol_of(stmt.name, program.sources)] = address
    return found


@contextmanager
def placed_at(span: Span | None) -> Iterator[None]:
    """Give a compile error of the block its place."""
    try:
        yield
    except CompileError as error:
        error.span = error.span or span
        raise


def _with_thread_loops(program: Program, snapshots: tuple[Snapshot, ...]) -> Program:
    """`program` with what its threads do written out, so that it can be counted."""
    found = (step.program for step in snapshots if step.name == "split_threads" and step.changed)
    return next(found, program)


def _estimate_ns(program: Program) -> float | None:
    """Roughly how long one core takes, None for symbolic shapes: small launches run serially."""
    work = count_work(program)
    total = (
        work.flops.value / _FLOPS_PER_NS
        + work.transcendentals.value / _TRANSCENDENTALS_PER_NS
        + work.moved_bytes.value / _BYTES_PER_NS
    )
    return total if total == total else None


def _static_blocks(blocks: Expr) -> Expr | int:
    number = const_int(blocks)
    return blocks if number is None else number


def _check_sources(program: Program) -> None:
    for stmt in statements(program.body):
        if isinstance(stmt, SourceKernel):
            raise UnsupportedError(
                "target 'cpu' cannot run CUDA source",
                program.span(stmt.site),
                hint="compile the kernel for a CUDA target",
            )


def _check_grids(program: Program) -> None:
    """A grid that is provably empty would silently do nothing."""
    for stmt in statements(program.body):
        if isinstance(stmt, Kernel):
            for extent in stmt.grid:
                number = const_int(extent)
                if number is not None and number <= 0:
                    raise ArgumentError(
                        f"'{program.name}': the grid has an extent of {number}",
                        hint="every extent of T.Kernel must be at least 1",
                    )


def _binder(program: Program, options: Options, device: str = "cpu") -> ArgumentBinder:
    written = written_below(program.body)
    used = set(buffers_of(program.body))
    if any(isinstance(stmt, SourceKernel) for stmt in statements(program.body)):
        written = used = set(parameters(program))  # what the source does to them is its own affair
    specs = [
        replace(_parameter(param.value, param.output, written), is_used=param.value in used)
        for param in program.params
    ]
    names = [symbol.name for symbol in program.symbols]
    return ArgumentBinder(
        program.name,
        specs,
        names,
        allow_alias=options.allow_alias,
        elementwise_alias_ok=is_elementwise(program),
        device=device,
    )


def _parameter(value: Buffer | Var, output: bool, written: set[Buffer]) -> ParameterSpec:
    if isinstance(value, Var):
        return ParameterSpec(value.name, "scalar", str(value.dtype))
    return ParameterSpec(
        value.name,
        "tensor",
        str(value.dtype),
        tuple(_output_dim(extent) if output else _dim(extent) for extent in value.shape),
        tuple(_dim(stride) for stride in value.strides) or None,
        is_output=output,
        is_written=output or value in written,
    )


def _output_dim(extent: Expr) -> DimSpec:
    """An extent that is computed, not solved for a symbol."""
    number = const_int(extent)
    return DerivedDim(formula=extent) if number is None else DimSpec(number)


def _dim(extent: Expr) -> DimSpec:
    """An extent or stride that is a constant or linear in one symbol."""
    match extent:
        case Const(value=number):
            return DimSpec(int(number))
        case Var(name):
            return DimSpec(0, name)
        case ir.Binary("mul", inner, Const(value=number)) | ir.Binary(
            "mul", Const(value=number), inner
        ):
            found, factor = _dim(inner), int(number)
            return DimSpec(found.constant * factor, found.symbol, found.coefficient * factor)
        case ir.Binary("add", inner, Const(value=number)):
            found = _dim(inner)
            return DimSpec(found.constant + int(number), found.symbol, found.coefficient)
        case ir.Binary("sub", inner, Const(value=number)):
            found = _dim(inner)
            return DimSpec(found.constant - int(number), found.symbol, found.coefficient)
    raise CompileError(
        "an extent must be a constant or linear in one symbol",
        hint="pass the extent as a T.dynamic symbol of its own",
    )
