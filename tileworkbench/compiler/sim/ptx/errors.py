"""What can go wrong while PTX runs, and how a place in it is named."""

from __future__ import annotations

from tileworkbench.compiler.diagnostics import RunError, TileValueError, UnsupportedError
from tileworkbench.compiler.sim.ptx.module import Instruction


class PtxSyntaxError(TileValueError):
    """The text is not PTX as this parser knows it."""


class MisalignedAccessError(RunError):
    """An address that is no multiple of what the access needs."""


class UninitializedReadError(RunError):
    """A read of shared memory that nobody has written."""


class DivergenceError(RunError):
    """An instruction that a whole warp must execute together, executed by a part of it."""


def locate(instruction: Instruction) -> str:
    """``PTX line 12 (source line 3): 'ld.global.u32 ...'``."""
    source = f" (source line {instruction.source_line})" if instruction.source_line else ""
    return f"'{instruction.text}' at PTX line {instruction.line}{source}"


def unsupported(instruction: Instruction, detail: str = "") -> UnsupportedError:
    """The error for an instruction, or a form of it, that the interpreter does not execute."""
    form = f" ({detail})" if detail else ""
    return UnsupportedError(
        f"the PTX interpreter does not execute '{instruction.name}'{form}: {locate(instruction)}"
    )
