"""AMD's architectures; nothing is lowered for them yet.

Sources: CDNA2 and CDNA3 ISA documents, "Matrix Arithmetic Instructions" and "Data Share".
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from tileworkbench.compiler.layout.atoms import mfma_c, mfma_operand
from tileworkbench.compiler.machine.instructions import MatrixInstruction, Operand, Scope
from tileworkbench.compiler.machine.machine import Machine, SharedMemory


def _machine(name: str) -> Machine:
    return Machine(name, 64, SharedMemory(64 * 1024, reserved=0), matrices=tuple(_mfma()))


def _mfma() -> Iterator[MatrixInstruction]:
    """The products of 16-bit floats, the widest first."""
    for dtype in ("float16", "bfloat16"):
        for edge, depth in ((32, 8), (16, 16)):
            operand = Operand(dtype, partial(mfma_operand, edge, depth))
            result = Operand("float32", partial(mfma_c, edge))
            yield MatrixInstruction("mfma", Scope.WARP, edge, edge, depth, operand, operand, result)


MACHINES = {name: partial(_machine, name) for name in ("gfx90a", "gfx942")}
