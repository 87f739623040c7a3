"""Executes PTX with numpy: what NVRTC writes for a GPU runs, checked, where there is none."""

from __future__ import annotations

from tileworkbench.compiler.sim.ptx.errors import (
    DivergenceError,
    MisalignedAccessError,
    PtxSyntaxError,
    UninitializedReadError,
)
from tileworkbench.compiler.sim.ptx.launch import AccessReport, PtxProgram, PtxRun

__all__ = [
    "AccessReport",
    "DivergenceError",
    "MisalignedAccessError",
    "PtxProgram",
    "PtxRun",
    "PtxSyntaxError",
    "UninitializedReadError",
]
