"""The simulator as a device: it runs the lowered program over all threads of each block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tileworkbench.compiler.device.gpu import Call, Device, GpuKernel, Loaded
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.runtime.arguments import BoundArguments


class SimulatedDevice(Device):
    """Always there; needs no machine code."""

    def load(self, kernel: GpuKernel) -> Loaded:
        return _Simulation(kernel)


@dataclass(slots=True)
class _Simulation:
    kernel: GpuKernel

    def launch(self, call: Call) -> None:
        """Run the whole program. Raises the first thing that was found wrong, as no device does."""
        from tileworkbench.compiler.sim.simulate import simulate

        program = self.kernel.record.program
        passed = [param.name for param in program.params if not param.output]
        named = dict(zip(passed, call.args, strict=True))
        result = simulate(self.kernel.lowered, named, signature=program)
        error = result.report.error()
        if error is not None:
            raise error
        self._write_back(call.args, call.bound, result.arrays)

    def _write_back(self, args: Sequence[Any], bound: BoundArguments, arrays: Any) -> None:
        """Put what the kernel stored into the caller's tensors and the outputs."""
        import numpy as np

        from tileworkbench.compiler.sim.arguments import as_numpy

        given, made = iter(args), iter(bound.outputs)
        specs = self.kernel.signature.binder.parameters
        for spec, param in zip(specs, self.kernel.record.program.params, strict=True):
            value = next(made) if spec.is_output else next(given)
            if isinstance(param.value, Buffer) and spec.is_written:
                into = as_numpy(value, param.value.dtype)
                np.copyto(into, arrays[param.name].reshape(into.shape))
