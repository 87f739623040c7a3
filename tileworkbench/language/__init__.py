"""The language of kernels: ``import tileworkbench.language as T``.

A kernel is an ordinary Python function whose body is traced. Its parts are here: what parameters
are declared with and how launches are written (`functions`), memory (`memory`), atomic accesses
(`atomics`), threads and what they exchange (`threads`, `exchanges`, `barriers`, `clusters`,
`gathers`, `allreduce`), operators on tiles (`tile`, `matrix`, `convolution`, `predicates`,
`reducers`), loops (`loops`), scalar arithmetic (`math`, `rounding`, `bits`, `random`), vectors
(`vectors`), dtypes (`dtypes`), layouts (`layouts`), hints and checks (`hints`), printing
(`printing`), other languages (`extern`).
Constructs that are not supported yet exist too and say so when they are used.
"""

from __future__ import annotations

import builtins
import difflib
import functools
from types import FunctionType
from typing import Any

from tileworkbench.compiler.frontend.errors import placed_outside
from tileworkbench.language import allreduce as _allreduce
from tileworkbench.language import asynchronous as _asynchronous
from tileworkbench.language import atomics as _atomics
from tileworkbench.language import barriers as _barriers
from tileworkbench.language import bits as _bits
from tileworkbench.language import clusters as _clusters
from tileworkbench.language import convolution as _convolution
from tileworkbench.language import dtypes as _dtypes
from tileworkbench.language import exchanges as _exchanges
from tileworkbench.language import extern as _extern
from tileworkbench.language import functions as _functions
from tileworkbench.language import gathers as _gathers
from tileworkbench.language import hints as _hints
from tileworkbench.language import layouts as _layouts
from tileworkbench.language import loops as _loops
from tileworkbench.language import math as _math
from tileworkbench.language import matrix as _matrix
from tileworkbench.language import memory as _memory
from tileworkbench.language import predicates as _predicates
from tileworkbench.language import printing as _printing
from tileworkbench.language import random as _random
from tileworkbench.language import reducers as _reducers
from tileworkbench.language import rounding as _rounding
from tileworkbench.language import threads as _threads
from tileworkbench.language import tile as _tile
from tileworkbench.language import vectors as _vectors
from tileworkbench.language.unsupported import INSTEAD, UNSUPPORTED, unsupported

_SUPPORTED: dict[str, tuple[str, ...]] = {
    "functions": (
        *(
            "Buffer",
            "FragmentBuffer",
            "Kernel",
            "LocalBuffer",
            "Ref",
            "SharedBuffer",
            "StridedTensor",
            "Tensor",
        ),
        *("Var", "const", "dynamic", "empty", "inline", "macro", "meta_class", "prim_func"),
        "symbolic",
    ),
    "memory": (
        *("access_ptr", "address_of", "alloc_buffer", "alloc_fragment", "alloc_global"),
        *("alloc_local", "alloc_shared", "alloc_tmem", "alloc_var", "make_tensor", "reshape"),
        "view",
    ),
    "predicates": ("all_of", "any_of"),
    "reducers": ("alloc_reducer", "finalize_reducer", "reducer_init", "reducer_update"),
    "convolution": ("c2d_im2col", "im2col"),
    "layouts": ("Fragment", "Layout", "annotate_layout", "make_swizzled_layout"),
    "atomics": (
        *("atomic_add", "atomic_addx2", "atomic_addx4", "atomic_load", "atomic_max"),
        *("atomic_min", "atomic_or", "atomic_store"),
    ),
    "loops": (
        *(
            "Parallel",
            "Persistent",
            "PersistentTileScheduler",
            "Pipelined",
            "Serial",
            "Unroll",
            "Vectorized",
            "grid",
            "loop_break",
            "parallel",
            "serial",
            "unroll",
        ),
        "vectorized",
    ),
    "tile": (
        *(
            "GemmWarpPolicy",
            "clear",
            "copy",
            "cummax",
            "cumsum",
            "fill",
            "gemm",
            "reduce",
            "reduce_abssum",
        ),
        *(
            "reduce_absmax",
            "reduce_bitand",
            "reduce_bitor",
            "reduce_bitxor",
            "reduce_max",
            "reduce_min",
            "reduce_prod",
            "reduce_sum",
        ),
        "transpose",
    ),
    "math": (
        *(
            "And",
            "Not",
            "Or",
            "Select",
            "abs",
            "align_up",
            "atan",
            "bitwise_and",
            "bitwise_not",
            "bitwise_or",
        ),
        *(
            "bitwise_xor",
            "cdiv",
            "ceil",
            "ceildiv",
            "clamp",
            "copysign",
            "cos",
            "cosh",
            "erf",
            "exp",
            "exp10",
            "exp2",
            "fast_rcp",
        ),
        *(
            "floor",
            "floordiv",
            "floormod",
            "fma",
            "fmod",
        ),
        *(
            "if_then_else",
            "infinity",
            "isfinite",
            "isinf",
            "isnan",
            "likely",
        ),
        *(
            "log",
            "log10",
            "log1p",
            "log2",
            "max",
            "max_value",
            "min",
            "min_value",
            "nearbyint",
            "popcount",
            "pow",
        ),
        *(
            "reinterpret",
            "round",
            "rsqrt",
            "shift_left",
            "shift_right",
            "sigmoid",
            "sin",
            "sinh",
            "sqrt",
            "tan",
        ),
        *("tanh", "trunc", "truncdiv", "truncmod"),
    ),
    "hints": (
        *("annotate_compile_flags", "annotate_consumer_reg_alloc", "annotate_l2_hit_ratio"),
        *("annotate_min_blocks_per_sm", "annotate_pass_configs", "annotate_ws_schedule"),
        *("evaluate", "ws_op"),
        *(
            "annotate_producer_reg_dealloc",
            "annotate_restrict_buffers",
            "annotate_safe_value",
            "assume",
        ),
        *(
            "dec_max_nreg",
            "device_assert",
            "disable_warp_group_reg_alloc",
            "fence_proxy_async",
            "inc_max_nreg",
        ),
        *("no_set_max_nreg", "pdl_sync", "pdl_trigger", "set_max_nreg", "use_swizzle"),
    ),
    "printing": ("breakpoint", "print"),
    "extern": ("CUDASourceCodeKernel", "call_extern", "import_source"),
    "matrix": (
        *("gemm_blockscaled", "gemm_sp", "mma_gemm_blockscaled", "tcgen05_gemm_blockscaled"),
        "wgmma_gemm_sp",
    ),
    "rounding": (
        *("Cast", "cast", "ieee_add", "ieee_fdiv", "ieee_fmaf", "ieee_frcp", "ieee_frsqrt"),
        *("ieee_fsqrt", "ieee_mul", "ieee_sub"),
    ),
    "random": ("rng_init", "rng_rand", "rng_rand_float"),
    "vectors": (
        *("Broadcast", "Ramp", "Shuffle", "abs2", "add2", "call_intrin", "dp4a", "fma2", "max2"),
        *("min2", "mul2", "sub2"),
    ),
    "asynchronous": (
        *("async_copy", "cp_async_barrier_noinc", "ptx_commit_group", "ptx_cp_async"),
        *("ptx_wait_group", "tcgen05_gemm", "wait_wgmma", "warpgroup_arrive"),
        *("warpgroup_commit_batch", "warpgroup_fence_operand", "warpgroup_wait", "wgmma_gemm"),
    ),
    "threads": (
        *("get_block_binding", "get_block_bindings", "get_block_extent", "get_block_extents"),
        *("get_lane_idx", "get_thread_binding", "get_thread_bindings", "get_thread_extent"),
        *("get_thread_extents", "get_warp_group_idx", "get_warp_idx", "get_warp_idx_sync"),
        *("shuffle_elect", "thread_binding", "ws"),
    ),
    "exchanges": (
        *("activemask", "all_sync", "any_sync", "ballot", "ballot_sync", "match_all_sync"),
        *("match_any_sync", "shfl_down", "shfl_sync", "shfl_up", "shfl_xor"),
        *("syncthreads_and", "syncthreads_count", "syncthreads_or", "warp_reduce_bitand"),
        *("warp_reduce_bitor", "warp_reduce_max", "warp_reduce_min", "warp_reduce_sum"),
    ),
    "barriers": (
        *("alloc_barrier", "barrier_arrive", "barrier_wait", "mbarrier_arrive"),
        *("mbarrier_arrive_expect_tx", "mbarrier_expect_tx", "mbarrier_wait_parity"),
        *("named_barrier_arrive", "sync_grid", "sync_threads", "sync_warp", "tma_copy"),
        *("tma_store_arrive", "tma_store_wait", "tvm_storage_sync"),
    ),
    "clusters": (
        *("ClusterKernel", "alloc_cluster_barrier", "block_rank_in_cluster", "cluster_arrive"),
        *("cluster_arrive_relaxed", "cluster_sync", "cluster_wait", "copy_cluster"),
    ),
    "gathers": ("tma_gather4", "tma_gather4_bytes", "tma_scatter4"),
    "allreduce": ("attr", "comm_reducer", "tvm_thread_allreduce"),
    "dtypes": ("dtype", *_dtypes.SCALARS, *_dtypes.ALIASES),
}
_MODULES = {
    "allreduce": _allreduce,
    "barriers": _barriers,
    "clusters": _clusters,
    "exchanges": _exchanges,
    "gathers": _gathers,
    "threads": _threads,
    "functions": _functions,
    "memory": _memory,
    "atomics": _atomics,
    "predicates": _predicates,
    "printing": _printing,
    "extern": _extern,
    "matrix": _matrix,
    "rounding": _rounding,
    "random": _random,
    "vectors": _vectors,
    "asynchronous": _asynchronous,
    "reducers": _reducers,
    "convolution": _convolution,
    "layouts": _layouts,
    "loops": _loops,
    "tile": _tile,
    "math": _math,
    "hints": _hints,
    "dtypes": _dtypes,
}


def _public(value: Any) -> Any:
    """A function with its errors placed outside a trace too; anything else as it is."""
    return placed_outside(value) if isinstance(value, FunctionType) else value


_names: dict[str, Any] = {
    **{
        name: _public(getattr(_MODULES[module], name))
        for module, names in _SUPPORTED.items()
        for name in names
    },
    **_dtypes.VECTORS,
    **_math.FAST_FUNCTIONS,
    "clz": _public(_bits.clz),
    "__ffs": _public(_bits.ffs),
    "__fns": _public(_bits.fns),
    **{name: _public(function) for name, function in _vectors.ACCESSES.items()},
    **{name: unsupported(name) for name in UNSUPPORTED},
}
globals().update(_names)

# A star import leaves Python's own names alone.
__all__ = [
    name for name in sorted(_names) if not hasattr(builtins, name) and not name.startswith("_")
]


def __getattr__(name: str) -> Any:
    absent = unsupported(name)
    if absent is not None:
        return absent
    if name in INSTEAD:
        raise AttributeError(f"the language has no 'T.{name}'; write {INSTEAD[name]}")
    raise AttributeError(f"the language has no 'T.{name}'{_near(name)}")


@functools.cache  # tools ask every module for the same few names
def _near(name: str) -> str:
    matches = difflib.get_close_matches(name, _names, n=3)
    # An alias in other letters (T.parallel) says nothing new.
    near = list({match.lower(): match for match in reversed(matches)}.values())[::-1]
    return f"; did you mean {' or '.join(f'T.{match}' for match in near)}?" if near else ""


def __dir__() -> list[str]:
    return sorted({*globals(), *_names})
