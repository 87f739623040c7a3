"""The simulator: executes a Program at any stage on numpy arrays, and is the definition of what it
means.
"""

from tileworkbench.compiler.sim.frame import SimOptions
from tileworkbench.compiler.sim.masked import Masked
from tileworkbench.compiler.sim.report import Finding, FindingKind, SimReport
from tileworkbench.compiler.sim.simulate import SimResult, simulate, solve_symbols

__all__ = [
    "Finding",
    "FindingKind",
    "Masked",
    "SimOptions",
    "SimReport",
    "SimResult",
    "simulate",
    "solve_symbols",
]
