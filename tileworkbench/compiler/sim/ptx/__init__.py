"""Executes PTX with numpy: what NVRTC writes for a GPU runs, checked, where there is none."""

from __future__ import annotations

from tileworkbench.compiler.sim.ptx.errors import (
    DivergenceError,
    MisalignedAccessError,
    PtxSyntaxError,
    UninitializedReadError,
)
from tileworkbench.compiler.sim.ptx.launch import AccessReport, PtxProgram, PtxRun
from tileworkbench.compiler.sim.ptx.tensormap import TensorMap

__all__ = [
    "AccessReport",
    "DivergenceError",
    "MisalignedAccessError",
    "PtxProgram",
    "PtxRun",
    "PtxSyntaxError",
    "TensorMap",
    "UninitializedReadError",
]
