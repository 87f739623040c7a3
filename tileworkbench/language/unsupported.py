"""Constructs of the language that exist by name and are not supported yet: calling one says so, at
its line.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from tileworkbench.compiler.diagnostics import UnsupportedError

# Name -> what it does, by theme.
_MEMORY = {
    "alloc_descriptor": "A descriptor of a matrix operand.",
    "alloc_tcgen05_instr_desc": "An instruction descriptor of tensor memory.",
    "alloc_tcgen05_smem_desc": "A shared-memory descriptor of tensor memory.",
    "alloc_wgmma_desc": "A descriptor of a warp-group matrix operand.",
    "decl_buffer": "A buffer of the underlying IR.",
    "match_buffer": "A buffer of the underlying IR.",
}
_THREADS = {
    "TensorCoreIntrinEmitter": "Matrix instructions, one by one.",
}
UNSUPPORTED: dict[str, str] = {
    **_MEMORY,
    **_THREADS,
}
# Families of names that belong to single instructions of GPUs.
PREFIXES = ("WS", "mma_", "ptx_", "tcgen05_", "tma_", "wgmma_")


def unsupported(name: str, what: str) -> Callable[..., NoReturn]:
    """A function that raises `UnsupportedError` naming `T.<name>`."""

    def function(*_: Any, **__: Any) -> NoReturn:
        raise UnsupportedError(f"'T.{name}' is not supported yet")

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{what} Not supported yet: raises `UnsupportedError`."
    return function
