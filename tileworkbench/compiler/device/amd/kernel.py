"""AMD's GPUs: HIP text, code objects, and the HIP runtime."""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar

from tileworkbench.compiler.device.amd.clang import (
    FAST_MATH,
    HipBuild,
    compile_hip,
    missing_compiler,
    require_compiler,
)
from tileworkbench.compiler.device.amd.driver import HipDevice, LoadedKernels, open_device
from tileworkbench.compiler.device.amd.hiprtc import compile_code_object, find_hiprtc
from tileworkbench.compiler.device.gpu import Call, Device, GpuKernel, Loaded, buffer_bytes
from tileworkbench.compiler.device.launch import ordinal_of
from tileworkbench.compiler.diagnostics import RunError, UnsupportedError
from tileworkbench.compiler.emit.c_like.program import Module
from tileworkbench.compiler.emit.hip.dialect import generate_hip
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.target import Target


class HipToolchain:
    """HIP text, AMD's instructions and code objects."""

    step: ClassVar[str] = "clang"

    def generate(self, program: Program, target: Target, source: tuple[str, ...]) -> Module:
        return generate_hip(program, target, source)

    def missing(self) -> str | None:
        return missing_compiler()

    def require(self) -> None:
        require_compiler()

    def build(self, text: str, arch: str, file: str, fast_math: bool) -> HipBuild:
        return compile_hip(text, arch, name=f"{file}.hip", options=_options(fast_math))

    def disassemble(self, build: HipBuild, text: str) -> str:
        raise UnsupportedError(
            "SASS are the instructions of NVIDIA's GPUs", hint="kernel.isa has those of AMD's"
        )

    def instructions(self, build: HipBuild, text: str) -> str:
        return build.assembly


class AmdDevice(Device):
    """A GPU of this machine; PyTorch's current one, if PyTorch uses any. Not run on hardware."""

    memory = "cuda"  # as torch calls the memory of AMD's GPUs

    def open(self) -> None:
        open_device()

    def load(self, kernel: GpuKernel) -> Loaded:
        return _OnDevices(kernel)


@dataclass(slots=True)
class _OnDevices:
    """The code of a kernel on each device that it has run on."""

    kernel: GpuKernel
    loaded: dict[int, LoadedKernels] = field(default_factory=dict)

    def launch(self, call: Call) -> None:
        sizes = [buffer_bytes(each, call.numbers) for each in self.kernel.module.workspaces]
        self._on(call.bound.device).run(call.grids, [*call.bound.slots], sizes)

    def _on(self, name: str) -> LoadedKernels:
        """The code on the device "cuda:1", or on the current one ("cuda")."""
        ordinal = ordinal_of(name)
        if ordinal not in self.loaded:
            device = open_device(ordinal)
            launches = self.kernel.module.launches
            self.loaded[ordinal] = LoadedKernels(device, self._code_object(device), launches)
        return self.loaded[ordinal]

    def _code_object(self, device: HipDevice) -> bytes:
        """Made by ROCm's own compiler where it is, else by clang. Raises `RunError` on another
        machine than the kernel is for.
        """
        kernel, arch = self.kernel, self.kernel.target.arch
        if device.arch != arch:
            raise RunError(
                f"'{kernel.record.name}' is compiled for '{arch}', and '{device.name}' is a "
                f"'{device.arch}'",
                hint=f"compile it with target='hip:{device.arch}'",
            )
        library = find_hiprtc()
        if library is None:
            code: bytes = kernel.compiled().code_object
            return code
        text, name = kernel.module.text, f"{kernel.record.name}.hip"
        options = _options(kernel.options.fast_math)
        return compile_code_object(library, text, device.isa, name=name, options=options)


def _options(fast_math: bool) -> tuple[str, ...]:
    return FAST_MATH if fast_math else ()
