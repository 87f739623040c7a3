"""GPU kernels as callables: what is the same for every vendor and for everything that runs them.

A `Toolchain` turns a lowered program into text and machine code; a `Device` loads and launches it:
a vendor's driver, the simulator, or the interpreter of PTX. The last two work on tensors in the
host's memory. All take the same arguments through the same checks.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, ClassVar, Protocol

from tileworkbench.compiler.analysis.alignment import needed_alignment
from tileworkbench.compiler.analysis.evaluate import evaluate
from tileworkbench.compiler.compilation import (
    Compilation,
    CompiledKernel,
    Needs,
    grid_extents,
)
from tileworkbench.compiler.diagnostics import CompileError, Note, ResourceError, UnsupportedError
from tileworkbench.compiler.emit.c_like.program import Module
from tileworkbench.compiler.emit.c_like.text import bits_of
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.expr import Buffer, Expr
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import Rewriter, statements, with_body
from tileworkbench.compiler.ir.stmt import Stmt
from tileworkbench.compiler.ir.tile import Pipelined
from tileworkbench.compiler.lower.threads.divisibility import is_changed_by, vector_facts
from tileworkbench.compiler.lowering import lower_program
from tileworkbench.compiler.record import Snapshot, Timing
from tileworkbench.compiler.runtime.arguments import BoundArguments
from tileworkbench.compiler.runtime.torch_calls import is_fake
from tileworkbench.compiler.target import Target

Grid = tuple[int, int, int]


class Build(Protocol):
    """What a vendor's compiler made of a text."""

    @property
    def assembly(self) -> str:
        """The code as text of the vendor's virtual or real instruction set."""

    @property
    def kernels(self) -> tuple[Any, ...]:
        """What each function needs of the device."""

    def notes(self) -> list[Note]:
        """What the compiler reports that costs time, such as spilled registers."""


class Toolchain(Protocol):
    """How a vendor's code is made. `step` names its compiler in the times of a compilation."""

    step: ClassVar[str]

    def generate(self, program: Program, target: Target, source: tuple[str, ...]) -> Module:
        """The text of a lowered program. Raises `UnsupportedError` for what it cannot say."""

    def missing(self) -> str | None:
        """One sentence saying that there is no compiler here, or None where there is one."""

    def require(self) -> None:
        """Raises `UnsupportedError` where there is no compiler."""

    def build(self, text: str, arch: str, file: str, fast_math: bool) -> Build:
        """Compile a text. Raises `UnsupportedError` where there is no compiler."""

    def disassemble(self, build: Build, text: str) -> str:
        """The machine's instructions under the lines of the text that they come from."""

    def instructions(self, build: Build, text: str) -> str:
        """The machine's own instructions, in the form that the vendor's tools have for them."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call on its way to a device: the arguments as they were given and as they were checked, the
    values of scalars and symbols by name, and the blocks along x, y and z of each launch.
    """

    args: Sequence[Any]
    bound: BoundArguments
    numbers: dict[str, int]
    grids: list[Grid]


class Loaded(Protocol):
    """A kernel on a device."""

    def launch(self, call: Call) -> None:
        """Run its launches, in order. Raises `RunError` kinds."""


class Device(ABC):
    """What runs the kernels of a GPU target.

    `memory` says where tensors must lie, in words of DLPack and torch. `build_first` says that a
    kernel is of no use without machine code, so that a compiler must be here; `builds` that code
    is made when a kernel is compiled, where there is a compiler.
    """

    memory: ClassVar[str] = "cpu"
    builds: ClassVar[bool] = False
    build_first: ClassVar[bool] = False

    def open(self) -> None:  # noqa: B027 (most devices are always there)
        """Raise `DeviceUnavailableError` where this machine has no such device."""

    def wait(self) -> None:  # noqa: B027 (a simulator is done when it returns)
        """Return when the current device has done all that was started on the current stream."""

    def flush(self) -> None:
        """Leave nothing of any tensor in the L2 of the current device. Raises `UnsupportedError`
        where that is not known how to do.
        """
        raise UnsupportedError(
            "the caches of this device cannot be made cold: only those of NVIDIA's GPUs and of "
            "processors can",
            hint="measure with warm caches",
        )

    @abstractmethod
    def load(self, kernel: GpuKernel) -> Loaded:
        """What launches `kernel`, made at its first call."""


@dataclass(slots=True)
class GpuKernel(CompiledKernel):
    """A kernel compiled for a GPU.

    `build` is what the vendor's compiler made, None where it is missing or was not asked.
    """

    module: Module
    lowered: Program
    device: Device
    toolchain: Toolchain
    build: Build | None = None
    variants: tuple[GpuKernel, ...] = field(default=(), kw_only=True)
    _loaded: Loaded | None = None

    def __call__(self, *args: Any) -> Any:
        if not any(map(is_fake, args)):
            self.device.open()  # before the arguments: without a device they cannot be right
        bound = self.signature.bind(args)
        if not bound.runs:
            return self.signature.results(bound)
        numbers = self.signature.numbers(bound)
        fitting = (variant for variant in self.variants if variant.signature.fits(bound, numbers))
        self.taken = next(fitting, self)
        self.taken._run(args, bound, numbers)
        return self.signature.results(bound)

    def _run(self, args: Sequence[Any], bound: BoundArguments, numbers: dict[str, int]) -> None:
        if self.target.is_simulated:
            SimulatedCall.last = SimulatedCall(self.record.name, str(self.target))
        grids = [self._grid(launch.grid, numbers) for launch in self.module.launches]
        if self._loaded is None:
            self._loaded = self.device.load(self)
        self._loaded.launch(Call(args, bound, numbers, grids))

    def _grid(self, grid: tuple[Expr, ...], numbers: dict[str, int]) -> Grid:
        """Blocks along x, y, z. Raises `ArgumentError` for a grid that cannot be launched."""
        x, y, z = (*grid_extents(self.record.name, grid, numbers), 1, 1, 1)[:3]
        return x, y, z

    @property
    def texts(self) -> Mapping[str, Callable[[], str]]:
        return {
            "asm": lambda: self.compiled().assembly,
            "isa": lambda: self.toolchain.instructions(self.compiled(), self.module.text),
            "sass": lambda: self.toolchain.disassemble(self.compiled(), self.module.text),
        }

    def compiled(self) -> Any:
        """The `Build`, made now if it was not yet. Raises `UnsupportedError` without a compiler."""
        if self.build is None:
            start, name = time.perf_counter(), self.record.name
            fast, build = self.options.fast_math, self.toolchain.build
            self.build = build(self.module.text, self.target.arch, name, fast)
            timing = Timing(self.toolchain.step, (time.perf_counter() - start) * 1e6)
            self.record = replace(
                self.record,
                timings=(*self.record.timings, timing),
                warnings=(*self.record.warnings, *self.build.notes()),
            )
        return self.build

    @property
    def needs(self) -> Needs:
        shared = max((launch.shared_bytes for launch in self.module.launches), default=0)
        return Needs(shared, functions=() if self.build is None else self.build.kernels)


@dataclass(frozen=True, slots=True, eq=False)
class SimulatedCall:
    """A call that a simulator executed, by the kernel's name and target: its time is no kernel's.

    `last` is the last one of this process, None before.
    """

    last: ClassVar[SimulatedCall | None] = None
    name: str
    target: str


def buffer_bytes(buffer: Buffer, numbers: Mapping[str, int]) -> int:
    """Bytes from the first to the last element of a tensor with these scalars and symbols."""

    def number(value: Expr) -> int:
        return int(evaluate(value, numbers))

    shape = [number(extent) for extent in buffer.shape]
    if not all(shape):
        return 0
    if buffer.strides:
        pairs = zip(shape, buffer.strides, strict=True)
        elements = 1 + sum((extent - 1) * number(stride) for extent, stride in pairs)
    else:
        elements = 1
        for extent in shape:
            elements *= extent
    return -(-elements * bits_of(buffer.dtype) * buffer.dtype.lanes // 8)


def compile_for_gpu(
    compilation: Compilation, back_end: Callable[[Target], tuple[Device, Toolchain]]
) -> GpuKernel:
    """Lower and generate a program, and compile its text where that is needed.

    Where a symbolic extent may cut vectors short, the same is done once more under the assumption
    that it does not; a call takes the code that fits, and what a call has taken is compiled then.
    Raises `CompileError` kinds, `UnsupportedError` where a compiler is needed and there is none.
    """
    warnings = compilation.find_hazards()
    lowered = _lower(compilation)
    device, toolchain = back_end(compilation.target)

    def generate(under: Compilation, steps: tuple[Snapshot, ...], variants: Any = ()) -> GpuKernel:
        return _generate(under, steps, warnings, variants, device, toolchain)

    variants = []
    facts = vector_facts(compilation.program)
    if facts and not compilation.options.is_edited:  # what is edited is the code for every size
        with compilation.step("variant"):
            under = compilation.assuming(facts)
            specialised = _lower(under)
            if is_changed_by(lowered[-1].program, facts, specialised[-1].program):
                variants.append(generate(under, specialised))
    kernel = generate(compilation, lowered, tuple(variants))
    if device.build_first:
        toolchain.require()  # it is needed sooner or later
    if device.builds and not variants and toolchain.missing() is None:
        kernel.compiled()
    return kernel


def _lower(compilation: Compilation) -> tuple[Snapshot, ...]:
    try:
        return compilation.lower()
    except ResourceError as error:
        error.hint = _fitting_stages(compilation.program, compilation.target) or error.hint
        raise


def _generate(
    compilation: Compilation,
    snapshots: tuple[Snapshot, ...],
    warnings: tuple[Note, ...],
    variants: tuple[GpuKernel, ...],
    device: Device,
    toolchain: Toolchain,
) -> GpuKernel:
    """The kernel of a lowered program."""
    target, source = compilation.target, compilation.source
    lowered = snapshots[-1].program
    with compilation.step("codegen"):
        lines = ("",) * (source.first_line - 1) + tuple(source.text.splitlines())
        module = toolchain.generate(lowered, target, lines)
        module = replace(module, text=compilation.options.code or module.text)
    entry = module.launches[0].entry if module.launches else ""
    record = compilation.record(snapshots, module.text, entry, warnings, variants=variants)
    signature = compilation.signature(device.memory, needed_alignment(lowered))
    return GpuKernel(
        *(record, target, signature, module, lowered, device, toolchain),
        variants=variants,
        options=compilation.options,
    )


def _fitting_stages(program: Program, target: Target) -> str | None:
    """A hint with the most pipeline stages that fit, where fewer stages than the kernel's do."""
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
        return f"num_stages={stages} would fit"
    return None
