"""How device functions are written."""

from __future__ import annotations


def function(signature: str, body: str) -> str:
    """The definition of a device function."""
    return f"__device__ inline {signature} {{\n{body}\n}}"
