"""Where NVIDIA's libraries, headers and programs are: wheels, then a CUDA toolkit."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

INSTALL = "install it with 'pip install tileworkbench[cuda]'"


def wheel_directories(kind: str) -> list[Path]:
    """The folders `kind` ("lib", "bin", "include") of NVIDIA's wheels, newest layout first."""
    spec = importlib.util.find_spec("nvidia")
    roots = list(spec.submodule_search_locations or ()) if spec is not None else []
    packages = ("cu13", "cu14", "cuda_nvrtc", "cuda_runtime")
    return [Path(root) / package / kind for root in roots for package in packages]


def toolkit_directories(kind: str) -> list[Path]:
    """The folders `kind` of toolkits that the environment names, and of the usual place."""
    named = (os.environ.get("CUDA_PATH"), os.environ.get("CUDA_HOME"), "/usr/local/cuda")
    return [Path(root) / kind for root in named if root]
