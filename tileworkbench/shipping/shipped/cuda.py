"""A kernel for NVIDIA's GPUs: cubins beside this file, launched through the CUDA driver.

What is imported of the package here lies beside the copy of this file, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tileworkbench.compiler.device.launch import ordinal_of
from tileworkbench.compiler.device.nvidia.driver import CudaDevice, LoadedKernels, open_device
from tileworkbench.compiler.device.nvidia.tensor_maps import MapEncoder

from .errors import ArgumentError, DeviceUnavailableError
from .loader import Call, Kernel, read_manifest
from .variants import LaunchFacts, MapFacts, Variants

_MOST_EXTENT, _MOST_STRIDE, _ALIGNMENT = 1 << 32, 1 << 40, 16  # of tensor maps


class CudaLauncher:
    """Runs a kernel on the device of its tensors, on PyTorch's current stream."""

    memory = "cuda"

    def __init__(self, folder: Path, manifest: Mapping[str, Any]) -> None:
        self._variants = Variants(folder, manifest)
        self._arch: str = manifest["arch"]
        self._loaded: dict[tuple[int, str], LoadedKernels] = {}
        self._encoders: dict[int, MapEncoder] = {}

    def launch(self, call: Call) -> None:
        """Launch and do not wait. Raises `DeviceUnavailableError` and `RunError`."""
        variant, sizes, grids = self._variants.choose(call)
        device = open_device(ordinal_of(call.device))
        kernels = self._on(device, variant)
        slots: list[int | bytes] = [*call.slots]
        if variant["maps"]:
            encoder = self._encoders.setdefault(device.ordinal, MapEncoder(device))
            slots += [encoder.encode(self._map(each, call)) for each in variant["maps"]]
        kernels.run(grids, slots, sizes)

    def _on(self, device: CudaDevice, variant: Mapping[str, Any]) -> LoadedKernels:
        key = device.ordinal, variant["code"]
        if key not in self._loaded:
            self._check(device)
            launches = [LaunchFacts(each) for each in variant["launches"]]
            self._loaded[key] = LoadedKernels(device, self._variants.read(variant), launches)
        return self._loaded[key]

    def _check(self, device: CudaDevice) -> None:
        """Code for sm_80 runs on sm_86 too; that of sm_90a on sm_90 alone."""
        wanted, has = self._arch.removeprefix("sm_"), device.arch.removeprefix("sm_")
        same_family = wanted[:-1] == has[:-1] and wanted[-1:] <= has[-1:]
        if wanted.rstrip("af") == has or (wanted.isdigit() and same_family):
            return
        raise DeviceUnavailableError(
            f"the kernel is for '{self._arch}', and '{device.name}' is a '{device.arch}'",
            f"ship it for target 'cuda:{device.arch}'",
        )

    def _map(self, facts: Mapping[str, Any], call: Call) -> MapFacts:
        values = MapFacts.of(facts, call)
        name = self._variants.parameter(facts["parameter"])
        if max(values.shape) > _MOST_EXTENT:
            raise ArgumentError(
                f"'{name}' has {max(values.shape)} elements along a dimension, and the copy engine "
                f"takes at most {_MOST_EXTENT}"
            )
        for stride in values.strides[:-1]:
            if stride % _ALIGNMENT or stride >= _MOST_STRIDE:
                raise ArgumentError(
                    f"rows of '{name}' are {stride} bytes apart, and the copy engine takes "
                    f"multiples of {_ALIGNMENT} below {_MOST_STRIDE}"
                )
        return values


def load(folder: Path) -> Kernel:
    """The kernel of a folder."""
    manifest = read_manifest(folder)
    return Kernel(manifest, CudaLauncher(folder, manifest))
