"""GPU kernels as callables: on a device, in the simulator, or by executing their PTX.

All three take the same arguments through the same checks; the simulator and the PTX interpreter
work on tensors in the host's memory.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tileworkbench.compiler.analysis.assumptions import check_assumptions
from tileworkbench.compiler.analysis.evaluate import evaluate
from tileworkbench.compiler.codegen.cuda import CudaLaunch, CudaModule
from tileworkbench.compiler.codegen.cuda_expressions import bits_of
from tileworkbench.compiler.diagnostics import ArgumentError, RaceError, RunError
from tileworkbench.compiler.ir.expr import Buffer, Expr, Var
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.record import CompileRecord
from tileworkbench.compiler.runtime.arguments import ArgumentBinder, BoundArguments
from tileworkbench.compiler.runtime.nvrtc import CudaBuild, compile_cuda, missing_nvrtc
from tileworkbench.compiler.target import Target

if TYPE_CHECKING:
    from tileworkbench.compiler.sim.ptx.launch import PtxProgram

Grid = tuple[int, int, int]


@dataclass(slots=True)
class GpuKernel:
    """A kernel compiled for a GPU: its record, and a call that checks its arguments before it runs.

    `build` is NVRTC's result, None where NVRTC is missing or was not asked (target `sim:`). Calling
    it takes one argument per parameter that is not an output and returns the outputs, as the CPU's
    kernels do.
    """

    record: CompileRecord
    target: Target
    module: CudaModule
    lowered: Program
    binder: ArgumentBinder
    build: CudaBuild | None
    _outputs: tuple[int, ...] = field(default=())
    _assumptions: tuple[Expr, ...] = field(default=())
    _ptx: PtxProgram | None = None
    _device: Any = None

    @property
    def scratch_bytes(self) -> int:
        """No worker's arena: shared memory is counted apart."""
        return 0

    def __call__(self, *args: Any) -> Any:
        run = {"sim": self._simulate, "ptx": self._interpret}.get(self.target.execution)
        if run is None:
            self._load()  # before the arguments: without a device they cannot be right
        bound = self.binder.bind(args)
        scalars = self._scalars(bound)
        check_assumptions(self.record.name, self._assumptions, scalars)
        grids = [self._grid(launch, scalars) for launch in self.module.launches]
        if run is None:
            sizes = [_buffer_bytes(buffer, scalars) for buffer in self.module.workspaces]
            self._device.run(grids, bound.slots, sizes)
        else:
            run(args, bound, grids)
        outputs = [bound.outputs[at] for at in self._outputs]
        return outputs if len(outputs) > 1 else outputs[0] if outputs else None

    def assembly(self) -> str:
        """The PTX. Raises `UnsupportedError` without NVRTC."""
        return self.compiled().ptx

    def compiled(self) -> CudaBuild:
        """NVRTC's result, made now if it was not yet. Raises `UnsupportedError` without NVRTC."""
        if self.build is None:
            self.build = build_cuda(self.module, self.record.name, self.target)
        return self.build

    # The three ways to run

    def _simulate(self, args: Sequence[Any], bound: BoundArguments, grids: Sequence[Grid]) -> None:
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
        for spec, param in zip(self.binder.parameters, self.record.program.params, strict=True):
            value = next(made) if spec.is_output else next(given)
            if isinstance(param.value, Buffer) and spec.is_written:
                into = as_numpy(value, param.value.dtype)
                np.copyto(into, arrays[param.name].reshape(into.shape))

    def _interpret(self, args: Sequence[Any], bound: BoundArguments, grids: Sequence[Grid]) -> None:
        from tileworkbench.compiler.sim.ptx.launch import PtxProgram

        if self._ptx is None:
            self._ptx = PtxProgram.parse(self.compiled().ptx)
        values = self._values(bound, self._scalars(bound))
        for launch, grid in zip(self.module.launches, grids, strict=True):
            block = (launch.threads, 1, 1)
            self._ptx.launch(launch.entry, grid, block, values, launch.shared_bytes)

    def _values(self, bound: BoundArguments, scalars: dict[str, int]) -> list[Any]:
        """The arguments of a launch as arrays of bytes over the tensors' memory, and numbers."""
        import numpy as np

        values: list[Any] = []
        pairs = zip(self.binder.parameters, bound.slots, strict=False)
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
                memory = (ctypes.c_uint8 * size).from_address(named[argument.name])
                values.append(np.ctypeslib.as_array(memory))
        return values

    def _scalars(self, bound: BoundArguments) -> dict[str, int]:
        """Scalar arguments (their bits) and symbols by name."""
        found = dict(zip(self.binder.symbols, bound.symbols, strict=True))
        for param, slot in zip(self.record.program.params, bound.slots, strict=False):
            if isinstance(param.value, Var):
                found[param.name] = slot
        return found

    def _load(self) -> None:
        """Load the code into the device. Raises `DeviceUnavailableError` where there is none."""
        from tileworkbench.compiler.runtime.cuda_driver import CudaDevice

        if self._device is None:
            device = CudaDevice.open()  # first: without a device NVRTC need not run
            self._device = CudaDevice.load(self.compiled().cubin, self.module.launches, device)

    def _grid(self, launch: CudaLaunch, scalars: dict[str, int]) -> Grid:
        """Blocks along x, y, z. Raises `ArgumentError` where there are none."""
        extents = [int(evaluate(extent, scalars)) for extent in launch.grid]
        if min(extents, default=1) < 1:
            raise ArgumentError(
                f"'{self.record.name}': the grid is empty, there is no block to run"
            )
        x, y, z = (*extents, 1, 1, 1)[:3]
        return x, y, z


def _raise_findings(report: Any) -> None:
    """Raise the first thing that the simulator found wrong, as a device would not."""
    if report.races:
        raise RaceError(str(report))
    if not report.ok:
        raise RunError(str(report))


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


def build_cuda(module: CudaModule, name: str, target: Target) -> CudaBuild:
    """Compile the module. Raises `UnsupportedError` where NVRTC is missing."""
    return compile_cuda(module.text, target.arch, name=f"{name}.cu")


def can_build() -> bool:
    """Whether NVRTC is here."""
    return missing_nvrtc() is None
