"""CPU kernels as callables: LLVM IR text, linked into this process, and its launches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from tileworkbench.compiler.analysis.cost import count_work
from tileworkbench.compiler.analysis.evaluate import evaluate
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.analysis.steps import steps
from tileworkbench.compiler.compilation import (
    Compilation,
    CompiledKernel,
    Needs,
    grid_extents,
)
from tileworkbench.compiler.device.host.launch import Launcher
from tileworkbench.compiler.device.host.llvm import NativeTarget, compile_assembly, native_target
from tileworkbench.compiler.device.host.native import build_native
from tileworkbench.compiler.diagnostics import CompileError, Span, UnsupportedError
from tileworkbench.compiler.emit.c_sources import find_function, symbol_of
from tileworkbench.compiler.emit.llvm.isa import Isa, isa_from_features
from tileworkbench.compiler.emit.llvm.program import Module, generate
from tileworkbench.compiler.emit.llvm.text import without_lines
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.expr import Buffer, Expr
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.stmt import Alloc, ExternCall, Kernel, SourceKernel
from tileworkbench.compiler.record import Snapshot
from tileworkbench.compiler.target import parse_target

BRIEF_STEPS = 50_000
"""Statements, of `analysis.steps`, that are executed before somebody could press Ctrl-C: a loop
with bounds of run time counts as more."""
# A core's rates for the estimate that decides between one thread and all: orders of magnitude.
_FLOPS_PER_NS, _TRANSCENDENTALS_PER_NS, _BYTES_PER_NS = 50.0, 2.0, 10.0


@dataclass(slots=True)
class _Launch:
    """One grid: how many blocks, and what runs them."""

    blocks: Expr | int
    launcher: Launcher


@dataclass(slots=True)
class CpuKernel(CompiledKernel):
    """A kernel linked into this process."""

    module: Module
    launches: tuple[_Launch, ...]
    native: NativeTarget
    estimated_ns: float | None
    grids: tuple[tuple[Expr, ...], ...]  # whose size is checked at run time
    checked: dict[str, int] | None = None  # the numbers of the last call

    def __call__(self, *args: Any) -> Any:
        bound = self.signature.bind(args)
        if not bound.runs:
            return self.signature.results(bound)
        if self.grids and (numbers := self.signature.numbers(bound)) != self.checked:
            for grid in self.grids:
                grid_extents(self.signature.name, grid, numbers)
            self.checked = numbers
        for launch in self.launches:
            blocks = launch.blocks
            if not isinstance(blocks, int):
                blocks = int(evaluate(blocks, self.signature.numbers(bound)))
            launch.launcher(bound.slots, blocks, self.estimated_ns)
        return self.signature.results(bound)

    @property
    def run_at(self) -> Callable[[Sequence[int]], None] | None:
        signature = self.signature
        is_fixed = all(isinstance(launch.blocks, int) for launch in self.launches)
        needs_more = signature.scalars or signature.binder.symbols or signature.assumptions
        return self._run_at if is_fixed and not needs_more and not self.grids else None

    @property
    def imports(self) -> dict[str, int]:
        """The addresses of the functions of others that the code calls, by name."""
        return _imports(self.record.program)

    @property
    def native_launches(self) -> tuple[tuple[Launcher, int, float | None], ...]:
        return tuple((each.launcher, int(each.blocks), self.estimated_ns) for each in self.launches)  # type: ignore[arg-type]

    def _run_at(self, addresses: Sequence[int]) -> None:
        for launch in self.launches:
            launch.launcher(addresses, launch.blocks, self.estimated_ns)  # type: ignore[arg-type]

    @property
    def texts(self) -> Mapping[str, Callable[[], str]]:
        asm = partial(compile_assembly, self.module.text, self.native)
        return {"asm": asm, "isa": asm}

    @property
    def needs(self) -> Needs:
        allocs = (s for s in statements(self.record.program.body) if isinstance(s, Alloc))
        shared = sum(_bytes(s.buffer) for s in allocs if s.buffer.scope == "shared")
        return Needs(shared, self.module.scratch_bytes, estimated_ns=self.estimated_ns)


def compile_for_cpu(compilation: Compilation) -> CpuKernel:
    """Lower, generate and link a program. Raises `CompileError` kinds."""
    program, target = compilation.program, compilation.target
    host = native_target()
    native = host if target.arch == isa_of(host).level else native_target(target.arch)
    _check_sources(program)
    warnings = compilation.find_hazards()
    snapshots = compilation.lower()
    lowered = snapshots[-1].program if snapshots else program
    with compilation.step("codegen"):
        module = generate(lowered, isa_of(native))
        edited = compilation.options.code
        module = replace(module, text=edited or module.text)
    with compilation.step("native"):
        signature = compilation.signature(lowered=lowered)
        entries = [launch.entry for launch in module.launches]
        entries += [module.value_entry] if module.value_entry else []
        # The cache knows a kernel by its text, wherever its lines are. Errors in what a user has
        # edited are told by the lines of that text.
        text = edited or without_lines(module.text)
        built = build_native(text, entries, native, imports=_imports(program))
    launcher = partial(
        Launcher,
        kernel_name=program.name,
        slot_count=signature.binder.slot_count,
        scratch_bytes=module.scratch_bytes,
        assertions=[message for message, _ in module.assertions],
        brief=steps(lowered.body) < BRIEF_STEPS,
        places=[program.span(site) for _, site in module.assertions],
        value=built.functions.get(module.value_entry),
    )
    launches = tuple(
        _Launch(_static_blocks(launch.blocks), launcher(built.functions[launch.entry]))
        for launch in module.launches
    )
    record = compilation.record(
        snapshots,
        module.text,
        entries[0] if entries else "",
        warnings,
        target=parse_target("cpu") if native.level == "native" else target,
        cached="disk" if built.from_cache else "",
    )
    estimate = _estimate_ns(_with_thread_loops(program, snapshots))
    grids = tuple(stmt.grid for stmt in statements(program.body) if isinstance(stmt, Kernel))
    several = tuple(grid for grid in grids if _may_be_too_large(grid, program))
    return CpuKernel(
        *(record, target, signature, module, launches, native, estimate, several),
        options=compilation.options,
    )


def isa_of(native: NativeTarget) -> Isa:
    """The instruction set of a target of LLVM's."""
    return isa_from_features(dict.fromkeys(native.features, True))


def _imports(program: Program) -> dict[str, int]:
    """The addresses of the external functions that the program calls, by their names in code."""
    addresses: dict[str, int] = {}
    for stmt in statements(program.body):
        if isinstance(stmt, ExternCall):
            with placed_at(program.span(stmt.site)):
                address = find_function(stmt.name, program.sources)
            addresses[symbol_of(stmt.name, program.sources)] = address
    return addresses


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
    programs = (step.program for step in snapshots if step.name == "split_threads" and step.changed)
    return next(programs, program)


def _estimate_ns(program: Program) -> float | None:
    """Roughly how long one core takes, None for symbolic shapes: small launches run serially."""
    work = count_work(program)
    total = (
        work.flops.value / _FLOPS_PER_NS
        + work.transcendentals.value / _TRANSCENDENTALS_PER_NS
        + work.moved_bytes.value / _BYTES_PER_NS
    )
    return total if total == total else None


def _may_be_too_large(grid: tuple[Expr, ...], program: Program) -> bool:
    """Whether 32 bits may not hold the number of blocks, or what it is computed from."""
    if all(const_int(extent) is not None for extent in grid):
        return False
    return len(grid) > 1 or grid[0].dtype.bits > 32 or not Ranges(program).is_exact(grid[0])


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


def _bytes(buffer: Buffer) -> int:
    size = buffer.dtype.bits
    for extent in buffer.shape:
        size *= const_int(extent) or 1
    return size // 8
