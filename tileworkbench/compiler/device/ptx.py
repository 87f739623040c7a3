"""The interpreter of PTX as a device: it runs what NVRTC made of the CUDA text."""

from __future__ import annotations

import ctypes
import re
from dataclasses import field
from typing import Any

from tileworkbench.compiler.device.gpu import Call, Device, GpuKernel, Loaded, buffer_bytes
from tileworkbench.compiler.device.tensor_maps import map_values
from tileworkbench.compiler.diagnostics import Note, RunError, Span, interrupted
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.ir.simt import TensorMap
from tileworkbench.compiler.sim.ptx.launch import PtxProgram
from tileworkbench.compiler.sim.ptx.tensormap import TensorMap as PtxTensorMap


class InterpretedDevice(Device):
    """Always there; the PTX comes from NVRTC, which must be, too."""

    builds = build_first = True

    def load(self, kernel: GpuKernel) -> Loaded:
        return _Interpretation(kernel)


@dataclass(slots=True)
class _Interpretation:
    kernel: GpuKernel
    program: PtxProgram = field(init=False)

    def __post_init__(self) -> None:
        self.program = PtxProgram.parse(self.kernel.compiled().assembly)

    def launch(self, call: Call) -> None:
        values = self._values(call)
        printed: list[str] = []
        try:
            self._launch_all(call, values, printed)
        finally:
            print("".join(printed), end="")

    def _launch_all(self, call: Call, values: list[Any], printed: list[str]) -> None:
        for launch, grid in zip(self.kernel.module.launches, call.grids, strict=True):
            try:
                self.program.launch(
                    *(launch.entry, grid, (launch.threads, 1, 1), values, launch.shared_bytes),
                    cooperative=launch.cooperative,
                    cluster=launch.cluster,
                    printed=printed,
                )
            except KeyboardInterrupt:
                raise interrupted(self.kernel.record.name) from None
            except RunError as error:
                self._place(error)
                raise

    def _values(self, call: Call) -> list[Any]:
        """The arguments of a launch as arrays of bytes over the tensors' memory, and numbers."""
        import numpy as np

        values: list[Any] = []
        module, numbers = self.kernel.module, call.numbers
        specs = self.kernel.signature.binder.parameters
        slots = {spec.name: slot for spec, slot in zip(specs, call.bound.slots, strict=False)}
        memories: dict[str, Any] = {}
        for argument in module.arguments:
            if isinstance(argument, TensorMap):
                memory = memories[argument.source.name]
                made = map_values(argument, numbers, memory.ctypes.data)
                swizzle = f"{made.swizzle}B" if made.swizzle else "none"
                values.append(
                    PtxTensorMap(
                        memory,
                        made.box[::-1],
                        swizzle,
                        made.shape,
                        made.strides,
                        made.itemsize,
                        made.element,
                    )
                )
                continue
            if not isinstance(argument, Buffer):
                bytes_ = argument.dtype.bytes
                number = numbers[argument.name] & ((1 << 8 * bytes_) - 1)
                values.append(number.to_bytes(bytes_, "little"))
                continue
            size = buffer_bytes(argument, numbers)
            if argument in module.workspaces:
                values.append(np.zeros(max(size, 1), np.uint8))
            else:
                address = slots[argument.name]
                memory = (ctypes.c_uint8 * (size if address else 0)).from_address(address)
                values.append(np.ctypeslib.as_array(memory))
            memories[argument.name] = values[-1]
        return values

    def _place(self, error: RunError) -> None:
        """Give an error of the interpreter, which knows lines of the CUDA text, the user's lines
        and what to do.
        """
        from tileworkbench.compiler.device.nvidia.nvdisasm import comments_above
        from tileworkbench.compiler.sim.problems import PTX_PROBLEMS, remedy

        comments = comments_above(self.kernel.module.text)
        lines = [int(match) for match in re.findall(r"\(source line (\d+)\)", error.message)]
        above = [comments[line - 1] for line in lines if line <= len(comments)]
        numbers = [int(match[1]) for text in above if (match := re.match(r"// line (\d+)", text))]
        file = self.kernel.record.source_file
        places = [Span(file, number) for number in dict.fromkeys(numbers)]
        if places:
            error.span = places[0]
            error.notes = tuple(Note("the other access", place) for place in places[1:2])
        error.hint = error.hint or remedy(PTX_PROBLEMS.get(type(error).__name__, ""))
