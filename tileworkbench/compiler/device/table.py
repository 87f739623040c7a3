"""What compiles for a target. Imported when it is asked for: what compiles for one kind of machine
need not wait for the other's."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tileworkbench.compiler.compilation import Compilation, CompiledKernel
from tileworkbench.compiler.target import Target

_PACKAGE = "tileworkbench.compiler.device"

# What runs the code of a GPU target, by kind and execution.
_DEVICES = {
    ("cuda", "native"): "nvidia.kernel:NvidiaDevice",
    ("cuda", "ptx"): "ptx:InterpretedDevice",
    ("cuda", "sim"): "sim:SimulatedDevice",
    ("hip", "native"): "amd.kernel:AmdDevice",
    ("hip", "emu"): "amd.emulated:EmulatedDevice",
    ("hip", "sim"): "sim:SimulatedDevice",
}
# What makes it, by kind.
_TOOLCHAINS = {"cuda": "nvidia.kernel:CudaToolchain", "hip": "amd.kernel:HipToolchain"}


def compile_for(compilation: Compilation) -> CompiledKernel:
    """Compile for the device of `compilation.target`. Raises `CompileError` kinds."""
    if compilation.target.kind == "cpu":
        compiled: CompiledKernel = _load("host.kernel:compile_for_cpu")(compilation)
        return compiled
    from tileworkbench.compiler.device.gpu import compile_for_gpu

    return compile_for_gpu(compilation, _back_end)


def _back_end(target: Target) -> tuple[Any, Any]:
    """The device and the toolchain of a GPU target."""
    device = _load(_DEVICES[target.kind, target.execution])
    return device(), _load(_TOOLCHAINS[target.kind])()


def _load(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(f"{_PACKAGE}.{module}"), name)
