"""How device functions and inline PTX are written."""

from __future__ import annotations


def function(signature: str, body: str) -> str:
    """The definition of a device function."""
    return f"__device__ __forceinline__ {signature} {{\n{body}\n}}"


def asm(text: str, outputs: str = "", inputs: str = "", clobbers: str = "") -> str:
    """One line of inline PTX."""
    tail = f' : "{clobbers}"' if clobbers else ""
    return f'  asm volatile("{text}" : {outputs} : {inputs}{tail});'
