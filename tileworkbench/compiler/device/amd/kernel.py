"""AMD's GPUs: HIP text and code objects. No driver is called yet."""

from __future__ import annotations

from typing import ClassVar, NoReturn

from tileworkbench.compiler.device.amd.clang import (
    HipBuild,
    compile_hip,
    missing_compiler,
    require_compiler,
)
from tileworkbench.compiler.device.gpu import Device, GpuKernel, Loaded
from tileworkbench.compiler.diagnostics import DeviceUnavailableError, UnsupportedError
from tileworkbench.compiler.emit.c_like.program import Module
from tileworkbench.compiler.emit.hip.dialect import generate_hip
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.target import Target

UNAVAILABLE = "calls of AMD's driver are not part of this version"


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
        return compile_hip(text, arch, name=f"{file}.hip")

    def disassemble(self, build: HipBuild, text: str) -> str:
        raise UnsupportedError(
            "SASS are the instructions of NVIDIA's GPUs", hint="kernel.asm has those of AMD's"
        )


class AmdDevice(Device):
    """A GPU of this machine: kernels are compiled for it and cannot be called."""

    memory = "cuda"  # as torch calls the memory of AMD's GPUs

    def open(self) -> NoReturn:
        raise DeviceUnavailableError(UNAVAILABLE, hint="simulate the kernel: target 'sim:<arch>'")

    def load(self, kernel: GpuKernel) -> Loaded:
        self.open()
