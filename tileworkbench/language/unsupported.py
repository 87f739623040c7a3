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
# What the language has no function for, and what to write instead.
INSTEAD: dict[str, str] = {
    "gelu": "0.5 * x * (1.0 + T.erf(x * 0.70710678))",
    "silu": "x * T.sigmoid(x)",
    "swish": "x * T.sigmoid(x)",
    "relu": "T.max(x, 0)",
    "leaky_relu": "T.if_then_else(x > 0, x, slope * x)",
    "elu": "T.if_then_else(x > 0, x, T.exp(x) - 1.0)",
    "softplus": "T.log1p(T.exp(x))",
    "softmax": "T.reduce_max, T.exp and T.reduce_sum of a fragment, as tileworkbench.kernels does",
    "mean": "T.reduce_sum divided by the number of elements",
    "sum": "T.reduce_sum of a fragment",
    "where": "T.if_then_else(condition, x, y)",
    "select": "T.if_then_else(condition, x, y)",
    "matmul": "T.gemm of tiles in shared memory",
    "dot": "T.gemm of tiles in shared memory",
    "load": "T.copy of a region, or A[i, j]",
    "store": "T.copy to a region, or A[i, j] = x",
    "zeros": "T.alloc_fragment or T.alloc_shared, then T.clear",
    "full": "T.alloc_fragment or T.alloc_shared, then T.fill",
    "arange": "the variable of T.Parallel",
    "range": "T.serial",
    "program_id": "the variables of T.Kernel",
    "square": "x * x",
    "log_sigmoid": "T.log(T.sigmoid(x))",
    "maximum": "T.max(x, y)",
    "minimum": "T.min(x, y)",
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
