"""A device for every test of this folder, or a skip that says what is missing."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.capability import require
from tileworkbench.compiler.device.nvidia.driver import missing_device, open_device
from tileworkbench.compiler.device.nvidia.nvrtc import missing_nvrtc
from tileworkbench.compiler.target import ARCHITECTURES


@dataclass(frozen=True)
class Gpu:
    """Where kernels run: the target that they are compiled for and torch's name of the device."""

    target: str
    device: str = "cuda"


def missing() -> str | None:
    """One sentence saying what is not there, or None."""
    found = missing_device() or missing_nvrtc()
    if found is not None:
        return found
    import torch

    if not torch.cuda.is_available():
        return "PyTorch is built without CUDA"
    arch = open_device().arch
    return None if arch in ARCHITECTURES else f"there is no target for the device's '{arch}'"


@pytest.fixture(scope="session")
def gpu() -> Gpu:
    """The first device, with its own architecture as the target."""
    require("gpu", missing())
    return Gpu(f"cuda:{open_device().arch}")
