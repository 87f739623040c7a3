"""A kernel for AMD's GPUs: code objects beside this file, launched through the HIP runtime. Not run
on hardware.

What is imported of the package here lies beside the copy of this file, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tileworkbench.compiler.device.amd.driver import HipDevice, LoadedKernels, open_device
from tileworkbench.compiler.device.launch import ordinal_of

from .errors import DeviceUnavailableError
from .loader import Call, Kernel, read_manifest
from .variants import LaunchFacts, Variants


class HipLauncher:
    """Runs a kernel on the device of its tensors, on PyTorch's current stream."""

    memory = "cuda"  # as torch calls the memory of AMD's GPUs

    def __init__(self, folder: Path, manifest: Mapping[str, Any]) -> None:
        self._variants = Variants(folder, manifest)
        self._arch: str = manifest["arch"]
        self._loaded: dict[tuple[int, str], LoadedKernels] = {}

    def launch(self, call: Call) -> None:
        """Launch and do not wait. Raises `DeviceUnavailableError` and `RunError`."""
        variant, sizes, grids = self._variants.choose(call)
        device = open_device(ordinal_of(call.device))
        self._on(device, variant).run(grids, [*call.slots], sizes)

    def _on(self, device: HipDevice, variant: Mapping[str, Any]) -> LoadedKernels:
        key = device.ordinal, variant["code"]
        if key not in self._loaded:
            if device.arch != self._arch:
                raise DeviceUnavailableError(
                    f"the kernel is for '{self._arch}', and '{device.name}' is a '{device.arch}'",
                    f"ship it for target 'hip:{device.arch}'",
                )
            launches = [LaunchFacts(each) for each in variant["launches"]]
            self._loaded[key] = LoadedKernels(device, self._variants.read(variant), launches)
        return self._loaded[key]


def load(folder: Path) -> Kernel:
    """The kernel of a folder."""
    manifest = read_manifest(folder)
    return Kernel(manifest, HipLauncher(folder, manifest))
