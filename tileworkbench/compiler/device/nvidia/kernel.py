"""NVIDIA's GPUs: CUDA text, NVRTC and the driver."""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar

from tileworkbench.compiler.device.gpu import Call, Device, GpuKernel, Loaded, buffer_bytes
from tileworkbench.compiler.device.launch import current_ordinal, current_stream, ordinal_of
from tileworkbench.compiler.device.nvidia.driver import (
    LoadedKernels,
    open_device,
    wait_for_stream,
)
from tileworkbench.compiler.device.nvidia.nvrtc import (
    CudaBuild,
    compile_cuda,
    missing_nvrtc,
    nvrtc_version,
)
from tileworkbench.compiler.device.nvidia.tensor_maps import MapEncoder
from tileworkbench.compiler.device.tensor_maps import map_values
from tileworkbench.compiler.emit.c_like.program import Module
from tileworkbench.compiler.emit.cuda.dialect import generate_cuda
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.target import Target


class CudaToolchain:
    """CUDA text, PTX and cubins."""

    step: ClassVar[str] = "nvrtc"

    def generate(self, program: Program, target: Target, source: tuple[str, ...]) -> Module:
        return generate_cuda(program, target, source)

    def missing(self) -> str | None:
        return missing_nvrtc()

    def require(self) -> None:
        nvrtc_version()

    def build(self, text: str, arch: str, file: str, fast_math: bool) -> CudaBuild:
        options = ("--use_fast_math",) if fast_math else ()
        return compile_cuda(text, arch, name=f"{file}.cu", options=options)

    def disassemble(self, build: CudaBuild, text: str) -> str:
        from tileworkbench.compiler.device.nvidia.nvdisasm import disassemble

        return disassemble(build.cubin, text)

    def instructions(self, build: CudaBuild, text: str) -> str:
        return self.disassemble(build, text)


class NvidiaDevice(Device):
    """A CUDA device of this machine; PyTorch's current one, if PyTorch uses any."""

    memory = "cuda"
    builds = True

    def open(self) -> None:
        open_device()

    def wait(self) -> None:
        ordinal = current_ordinal()
        wait_for_stream(current_stream(ordinal), ordinal)

    def flush(self) -> None:
        open_device(current_ordinal()).flush_l2()

    def load(self, kernel: GpuKernel) -> Loaded:
        return _OnDevices(kernel)


@dataclass(slots=True)
class _OnDevices:
    """The code of a kernel on each device that it has run on."""

    kernel: GpuKernel
    loaded: dict[int, LoadedKernels] = field(default_factory=dict)
    encoders: dict[int, MapEncoder] = field(default_factory=dict)

    def launch(self, call: Call) -> None:
        module, numbers = self.kernel.module, call.numbers
        slots: list[int | bytes] = [*call.bound.slots]
        sizes = [buffer_bytes(buffer, numbers) for buffer in module.workspaces]
        kernels = self._on(call.bound.device)
        if module.maps:
            specs = self.kernel.signature.binder.parameters
            places = {spec.name: slot for spec, slot in zip(specs, call.bound.slots, strict=False)}
            values = (map_values(each, numbers, places[each.source.name]) for each in module.maps)
            encoder = self.encoders.setdefault(kernels.device.ordinal, MapEncoder(kernels.device))
            slots += map(encoder.encode, values)
        kernels.run(call.grids, slots, sizes)

    def _on(self, device: str) -> LoadedKernels:
        """The code on the device "cuda:1", or on the current one ("cuda")."""
        ordinal = ordinal_of(device)
        if ordinal not in self.loaded:
            cubin = self.kernel.compiled().cubin
            launches = self.kernel.module.launches
            self.loaded[ordinal] = LoadedKernels(open_device(ordinal), cubin, launches)
        return self.loaded[ordinal]
