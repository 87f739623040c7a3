"""Constructs of the language that exist by name and are not supported yet: calling one says so, at
its line, and what to write instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from tileworkbench.compiler.diagnostics import UnsupportedError

_COPIES = "T.tma_copy moves tiles, with a memory barrier that says when they have arrived"
_PRODUCTS = "T.gemm, T.wgmma_gemm and T.tcgen05_gemm multiply tiles"
_MEMORY = "T.alloc_buffer, T.view and T.make_tensor are tensors over memory"
_THREADS = "T.ws gives statements to groups of threads"
_BARRIERS = "T.alloc_barrier, T.mbarrier_arrive and T.mbarrier_wait_parity are memory barriers"

# Name -> what to write instead.
UNSUPPORTED: dict[str, str] = {
    "TensorCoreIntrinEmitter": _PRODUCTS,
    "alloc_descriptor": _PRODUCTS,
    "alloc_tcgen05_instr_desc": _PRODUCTS,
    "alloc_tcgen05_smem_desc": _PRODUCTS,
    "alloc_wgmma_desc": _PRODUCTS,
    "create_tma_descriptor": _COPIES,
    "decl_buffer": _MEMORY,
    "increase_descriptor_offset": _PRODUCTS,
    "initialize_tcgen05_descriptor": _PRODUCTS,
    "initialize_wgmma_descriptor": _PRODUCTS,
    "match_buffer": _MEMORY,
    "meta_var": "assign the value itself to a name",
    "thread_return": "guard the rest of the kernel's body with 'if'",
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
# Families of names that belong to single instructions of GPUs, the more special ones first.
PREFIXES: dict[str, str] = {
    "WS": _THREADS,
    "mma_": _PRODUCTS,
    "ptx_arrive": _BARRIERS,
    "ptx_cp_async": _COPIES,
    "ptx_fence_barrier": _BARRIERS,
    "ptx_init_barrier": _BARRIERS,
    "ptx_wait_barrier": _BARRIERS,
    "ptx_": _PRODUCTS,
    "tcgen05_": _PRODUCTS,
    "tma_": _COPIES,
    "wgmma_": _PRODUCTS,
}


def unsupported(name: str) -> Callable[..., NoReturn] | None:
    """A function that raises `UnsupportedError` naming `T.<name>`; None for a name that is none of
    these.
    """
    families = (instead for prefix, instead in PREFIXES.items() if name.startswith(prefix))
    instead = UNSUPPORTED.get(name) or next(families, None)
    if instead is None:
        return None

    def function(*_: Any, **__: Any) -> NoReturn:
        raise UnsupportedError(f"'T.{name}' is not supported yet", hint=instead)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Not supported yet: raises `UnsupportedError`. {instead}."
    return function
