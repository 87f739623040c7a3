"""The simulator as a device: it runs the lowered program over all threads of each block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tileworkbench.compiler.analysis.effects import starts_operations
from tileworkbench.compiler.device.gpu import Call, Device, GpuKernel, Loaded
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.runtime.arguments import BoundArguments

if TYPE_CHECKING:
    from tileworkbench.compiler.sim.report import SimReport


class SimulatedDevice(Device):
    """Always there; needs no machine code."""

    def load(self, kernel: GpuKernel) -> Loaded:
        return _Simulation(kernel)


@dataclass(slots=True)
class _Simulation:
    kernel: GpuKernel

    def launch(self, call: Call) -> None:
        """Run the whole program. Raises the first finding as an error, which no device would do."""
        from tileworkbench.compiler.sim.simulate import SimOptions, simulate

        program = self.kernel.record.program
        passed = [param.name for param in program.params if not param.output]
        named = dict(zip(passed, call.args, strict=True))
        if starts_operations(program.body):
            # Lowered code does at once what the kernel starts: only the kernel shows its waits.
            options = SimOptions(prints=False)
            _raise_error(simulate(program, named, options=options, signature=program).report)
        result = simulate(self.kernel.lowered, named, signature=program)
        _raise_error(result.report)
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


def _raise_error(report: SimReport) -> None:
    error = report.error()
    if error is not None:
        raise error
