"""A device function that emitted kernels call, and how its text is put together."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Helper:
    """One device function, the helpers it calls, and the architecture it needs (80 is sm_80)."""

    text: str
    needs: tuple[str, ...] = ()
    arch: int = 70


def function(signature: str, body: str) -> str:
    """The definition of a device function."""
    return f"__device__ __forceinline__ {signature} {{\n{body}\n}}"


def asm(text: str, outputs: str = "", inputs: str = "", clobbers: str = "") -> str:
    """One line of inline PTX."""
    tail = f' : "{clobbers}"' if clobbers else ""
    return f'  asm volatile("{text}" : {outputs} : {inputs}{tail});'
