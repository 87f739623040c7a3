"""GPU kernels as callables: on a device, in the simulator, or by executing their PTX.

All three take the same arguments through the same checks; the simulator and the PTX interpreter
work on tensors in the host's memory.
"""

from __future__ import annotations

import ctypes
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tileworkbench.compiler.analysis.alignment import needed_alignment
from tileworkbench.compiler.analysis.evaluate import evaluate
from tileworkbench.compiler.compilation import (
    Compilation,
    CompiledKernel,
    grid_extents,
)
from tileworkbench.compiler.device.nvidia.driver import (
    LoadedKernels,
    current_ordinal,
    open_device,
)
from tileworkbench.compiler.device.nvidia.nvrtc import (
    CudaBuild,
    KernelResources,
    compile_cuda,
    missing_nvrtc,
    nvrtc_version,
)
from tileworkbench.compiler.diagnostics import (
    CompileError,
    Note,
    ResourceError,
    RunError,
    Span,
    interrupted,
)
from tileworkbench.compiler.emit.c_like.program import Launch, Module
from tileworkbench.compiler.emit.c_like.text import bits_of
from tileworkbench.compiler.emit.cuda.dialect import generate_cuda
from tileworkbench.compiler.ir.expr import Buffer, Expr
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import Rewriter, statements, with_body
from tileworkbench.compiler.ir.stmt import Stmt
from tileworkbench.compiler.ir.tile import Pipelined
from tileworkbench.compiler.lowering import lower_program
from tileworkbench.compiler.ops.simt.divisibility import is_changed_by, vector_facts
from tileworkbench.compiler.record import Snapshot, Timing
from tileworkbench.compiler.runtime.arguments import BoundArguments
from tileworkbench.compiler.runtime.torch_calls import is_fake
from tileworkbench.compiler.target import Target

if TYPE_CHECKING:
    from tileworkbench.compiler.sim.ptx.launch import PtxProgram

Grid = tuple[int, int, int]


@dataclass(slots=True)
class GpuKernel(CompiledKernel):
    """A kernel compiled for a GPU.

    `build` is NVRTC's result, None where NVRTC is missing or was not asked (target `sim:`).
    """

    module: Module
    lowered: Program
    build: CudaBuild | None = None
    variants: tuple[GpuKernel, ...] = field(default=(), kw_only=True)
    _ptx: PtxProgram | None = None
    _loaded: dict[int, LoadedKernels] = field(default_factory=dict)

    def __call__(self, *args: Any) -> Any:
        if self.target.execution == "native" and not any(map(is_fake, args)):
            open_device()  # before the arguments: without a device they cannot be right
        bound = self.signature.bind(args)
        if not bound.runs:
            return self.signature.results(bound)
        numbers = self.signature.numbers(bound)
        fitting = (variant for variant in self.variants if variant.signature.fits(bound, numbers))
        self.taken = next(fitting, self)
        self.taken._run(args, bound, numbers)
        return self.signature.results(bound)

    def _run(self, args: Sequence[Any], bound: BoundArguments, numbers: dict[str, int]) -> None:
        grids = [self._grid(launch, numbers) for launch in self.module.launches]
        if self.target.execution == "sim":
            self._simulate(args, bound)
        elif self.target.execution == "ptx":
            self._interpret(bound, numbers, grids)
        else:
            sizes = [_buffer_bytes(buffer, numbers) for buffer in self.module.workspaces]
            self._loaded_on(bound.device).run(grids, bound.slots, sizes)

    def assembly(self) -> str:
        """The PTX. Raises `UnsupportedError` without NVRTC."""
        return self.compiled().ptx

    def compiled(self) -> CudaBuild:
        """NVRTC's result, made now if it was not yet. Raises `UnsupportedError` without NVRTC."""
        if self.build is None:
            start, name = time.perf_counter(), self.record.name
            self.build = compile_cuda(self.module.text, self.target.arch, name=f"{name}.cu")
            timing = Timing("nvrtc", (time.perf_counter() - start) * 1e6)
            self.record = replace(
                self.record,
                timings=(*self.record.timings, timing),
                warnings=(*self.record.warnings, *_build_warnings(self.build)),
            )
        return self.build

    def sass(self) -> str:
        from tileworkbench.compiler.device.nvidia.nvdisasm import disassemble

        return disassemble(self.compiled().cubin, self.module.text)

    @property
    def scratch_bytes(self) -> int:
        return 0

    @property
    def shared_bytes(self) -> int:
        return max((launch.shared_bytes for launch in self.module.launches), default=0)

    @property
    def resources(self) -> tuple[KernelResources, ...]:
        return () if self.build is None else self.build.kernels

    # The three ways to run

    def _simulate(self, args: Sequence[Any], bound: BoundArguments) -> None:
        from tileworkbench.compiler.sim.simulate import simulate

        program = self.record.program
        passed = [param.name for param in program.params if not param.output]
        named = dict(zip(passed, args, strict=True))
        result = simulate(self.lowered, named, signature=program)
        _raise_findings(result.report)
        self._write_back(args, bound, result.arrays)

    def _write_back(self, args: Sequence[Any], bound: BoundArguments, arrays: Any) -> None:
        """Put what the kernel stored into the caller's tensors and the outputs."""
        import numpy as np

        from tileworkbench.compiler.sim.arguments import as_numpy

        given, made = iter(args), iter(bound.outputs)
        specs, params = self.signature.binder.parameters, self.record.program.params
        for spec, param in zip(specs, params, strict=True):
            value = next(made) if spec.is_output else next(given)
            if isinstance(param.value, Buffer) and spec.is_written:
                into = as_numpy(value, param.value.dtype)
                np.copyto(into, arrays[param.name].reshape(into.shape))

    def _interpret(
        self, bound: BoundArguments, numbers: dict[str, int], grids: Sequence[Grid]
    ) -> None:
        from tileworkbench.compiler.sim.ptx.launch import PtxProgram

        if self._ptx is None:
            self._ptx = PtxProgram.parse(self.compiled().ptx)
        values = self._values(bound, numbers)
        for launch, grid in zip(self.module.launches, grids, strict=True):
            block = (launch.threads, 1, 1)
            shared, cooperative = launch.shared_bytes, launch.cooperative
            try:
                self._ptx.launch(launch.entry, grid, block, values, shared, cooperative=cooperative)
            except KeyboardInterrupt:
                raise interrupted(self.record.name) from None
            except RunError as error:
                self._place(error)
                raise

    def _place(self, error: RunError) -> None:
        """Give an error of the PTX interpreter, which knows lines of the CUDA text, the user's
        lines and what to do.
        """
        from tileworkbench.compiler.device.nvidia.nvdisasm import comments_above
        from tileworkbench.compiler.sim.problems import PTX_PROBLEMS, remedy

        comments = comments_above(self.module.text)
        lines = [int(found) for found in re.findall(r"\(source line (\d+)\)", error.message)]
        above = [comments[line - 1] for line in lines if line <= len(comments)]
        numbers = [int(found[1]) for text in above if (found := re.match(r"// line (\d+)", text))]
        places = [Span(self.record.source_file, number) for number in dict.fromkeys(numbers)]
        if places:
            error.span = places[0]
            error.notes = tuple(Note("the other access", place) for place in places[1:2])
        error.hint = error.hint or remedy(PTX_PROBLEMS.get(type(error).__name__, ""))

    def _values(self, bound: BoundArguments, scalars: dict[str, int]) -> list[Any]:
        """The arguments of a launch as arrays of bytes over the tensors' memory, and numbers."""
        import numpy as np

        values: list[Any] = []
        pairs = zip(self.signature.binder.parameters, bound.slots, strict=False)
        named = {spec.name: slot for spec, slot in pairs}
        for argument in self.module.arguments:
            if not isinstance(argument, Buffer):
                bytes_ = argument.dtype.bytes
                number = scalars[argument.name] & ((1 << 8 * bytes_) - 1)
                values.append(number.to_bytes(bytes_, "little"))
                continue
            size = _buffer_bytes(argument, scalars)
            if argument in self.module.workspaces:
                values.append(np.zeros(max(size, 1), np.uint8))
            else:
                address = named[argument.name]
                memory = (ctypes.c_uint8 * (size if address else 0)).from_address(address)
                values.append(np.ctypeslib.as_array(memory))
        return values

    def _loaded_on(self, device: str) -> LoadedKernels:
        """The code on the device "cuda:1", or on the current one ("cuda")."""
        index = device.partition(":")[2]
        ordinal = int(index) if index else current_ordinal()
        if ordinal not in self._loaded:
            opened = open_device(ordinal)
            self._loaded[ordinal] = LoadedKernels(
                opened, self.compiled().cubin, self.module.launches
            )
        return self._loaded[ordinal]

    def _grid(self, launch: Launch, scalars: dict[str, int]) -> Grid:
        """Blocks along x, y, z. Raises `ArgumentError` for a grid that cannot be launched."""
        extents = grid_extents(self.record.name, launch.grid, scalars)
        x, y, z = (*extents, 1, 1, 1)[:3]
        return x, y, z


def _raise_findings(report: Any) -> None:
    """Raise the first thing that the simulator found wrong, as a device would not."""
    error = report.error()
    if error is not None:
        raise error


def _buffer_bytes(buffer: Buffer, scalars: dict[str, int]) -> int:
    """Bytes from the first to the last element of a tensor."""

    def number(value: Expr) -> int:
        return int(evaluate(value, scalars))

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


def compile_for_gpu(compilation: Compilation) -> GpuKernel:
    """Lower and generate a program, and compile its text where that is needed and NVRTC is here.

    Where a symbolic extent may cut vectors short, the same is done once more under the assumption
    that it does not; a call takes the code that fits, and NVRTC compiles what a call has taken.
    Raises `CompileError` kinds, `UnsupportedError` where the target needs NVRTC and there is none.
    """
    warnings = compilation.find_hazards()
    snapshots = _lower(compilation)
    variants = []
    facts = vector_facts(compilation.program)
    if facts and compilation.options.edit is None:  # an edit is of the code for every size
        with compilation.step("variant"):
            under = compilation.assuming(facts)
            found = _lower(under)
            if is_changed_by(snapshots[-1].program, facts, found[-1].program):
                variants.append(_generate(under, found, warnings))
    kernel = _generate(compilation, snapshots, warnings, tuple(variants))
    execution = compilation.target.execution
    if execution == "ptx":
        nvrtc_version()  # it is needed sooner or later
    if not variants and (execution == "ptx" or (execution == "native" and missing_nvrtc() is None)):
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
    variants: tuple[GpuKernel, ...] = (),
) -> GpuKernel:
    """The kernel of a lowered program."""
    target, source = compilation.target, compilation.source
    lowered = snapshots[-1].program
    with compilation.step("codegen"):
        lines = ("",) * (source.first_line - 1) + tuple(source.text.splitlines())
        module = generate_cuda(lowered, target, lines)
    entry = module.launches[0].entry if module.launches else ""
    record = compilation.record(snapshots, module.text, entry, warnings, variants=variants)
    device = "cuda" if target.execution == "native" else "cpu"
    signature = compilation.signature(device, needed_alignment(lowered))
    options = compilation.options
    return GpuKernel(
        record, target, signature, module, lowered, variants=variants, options=options
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


def _build_warnings(build: CudaBuild) -> list[Note]:
    """What ptxas says that costs speed: spills, and what it serialised or ignored (C75xx)."""
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
