"""Constructs of the language that exist by name and are not supported yet: calling one says so, at
its line.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from tileworkbench.compiler.diagnostics import UnsupportedError

# Name -> what it does, by theme.
_MEMORY = {
    "Buffer": "A tensor parameter without a contract on strides.",
    "access_ptr": "A typed pointer to a tensor, for external calls.",
    "address_of": "The address of an element.",
    "alloc_barrier": "An array of memory barriers with their arrival counts.",
    "alloc_buffer": "A buffer of the underlying IR.",
    "alloc_cluster_barrier": "Memory barriers shared by a cluster of blocks.",
    "alloc_descriptor": "A descriptor of a matrix operand.",
    "alloc_tcgen05_instr_desc": "An instruction descriptor of tensor memory.",
    "alloc_tcgen05_smem_desc": "A shared-memory descriptor of tensor memory.",
    "alloc_tmem": "A tile in tensor memory.",
    "alloc_wgmma_desc": "A descriptor of a warp-group matrix operand.",
    "decl_buffer": "A buffer of the underlying IR.",
    "make_tensor": "A tensor over a raw address.",
    "match_buffer": "A buffer of the underlying IR.",
    "sblock": "A block of the underlying IR.",
}
_MOVEMENT = {
    "copy_cluster": "A copy to several blocks of a cluster.",
    "tma_copy": "A copy by the tensor memory accelerator, in two phases.",
}
_COMPUTE = {
    "dp4a": "The dot product of four 8-bit integers, added to a 32-bit one.",
    "gemm_sp": "A matrix product with a 2:4 sparse operand.",
    "mma_gemm_blockscaled": "A matrix product with scales per block.",
    **{
        f"warp_reduce_{kind}": "A reduction over the lanes of a warp."
        for kind in ("sum", "max", "min", "bitand", "bitor")
    },
}
_LOOPS = {
    "thread_binding": "A loop bound to the threads of the block.",
}
_ANNOTATIONS = {
    "annotate_compile_flags": "Flags for the target's compiler.",
    "annotate_pass_configs": "Options of compiler passes.",
    "annotate_ws_schedule": "A schedule of warp-specialised code.",
    "inline": "A method that is inlined.",
    "meta_class": "A class whose methods are inlined.",
    "ws_op": "An operator of a warp-specialised schedule.",
}
_VECTORS = {
    "Shuffle": "A vector of chosen lanes.",
    **{
        f"{name}2": "Arithmetic on a vector of two."
        for name in ("add", "sub", "mul", "fma", "max", "min", "abs")
    },
}
_DEBUGGING = {
    "CUDASourceCodeKernel": "A launch of CUDA source.",
    "attr": "An attribute of the underlying IR.",
    "call_extern": "A call of an external function.",
    "call_intrin": "A call of an intrinsic of the underlying IR.",
    "comm_reducer": "A commutative combination for an all-reduce.",
    "evaluate": "An expression evaluated for its effect.",
    "import_source": "Source text put in front of the kernel.",
    "rng_init": "The start of a random-number generator.",
    "rng_rand": "A random integer.",
    "rng_rand_float": "A random float.",
    "tvm_thread_allreduce": "A reduction over the threads of the block.",
}
_THREADS = {
    "ClusterKernel": "A launch of clusters of blocks.",
    "TensorCoreIntrinEmitter": "Matrix instructions, one by one.",
    "activemask": "The lanes that are active.",
    "all_sync": "Whether a condition holds in all lanes.",
    "any_sync": "Whether a condition holds in some lane.",
    "ballot": "The lanes in which a condition holds.",
    "ballot_sync": "The lanes in which a condition holds.",
    "barrier_arrive": "An arrival at a barrier.",
    "barrier_wait": "A wait at a barrier.",
    "block_rank_in_cluster": "The index of the block in its cluster.",
    "cluster_arrive": "An arrival at the barrier of a cluster.",
    "cluster_sync": "A barrier of a cluster.",
    "cluster_wait": "A wait at the barrier of a cluster.",
    "get_block_binding": "A block index.",
    "get_block_bindings": "The block indices.",
    "get_block_extent": "An extent of the grid.",
    "get_block_extents": "The extents of the grid.",
    "get_lane_idx": "The index of the thread in its warp.",
    "get_thread_binding": "A thread index.",
    "get_thread_bindings": "The thread indices.",
    "get_thread_extent": "An extent of the block.",
    "get_thread_extents": "The extents of the block.",
    "get_warp_group_idx": "The index of the thread's warp group.",
    "get_warp_idx": "The index of the thread's warp.",
    "get_warp_idx_sync": "The index of the thread's warp.",
    "match_all_sync": "Whether all lanes hold one value.",
    "match_any_sync": "The lanes that hold the same value.",
    "mbarrier_arrive": "An arrival at a memory barrier.",
    "mbarrier_expect_tx": "The bytes that a memory barrier waits for.",
    "mbarrier_wait_parity": "A wait for a phase of a memory barrier.",
    "named_barrier_arrive": "An arrival at a named barrier, without waiting.",
    "shfl_down": "A value of a higher lane.",
    "shfl_sync": "A value of a given lane.",
    "shfl_up": "A value of a lower lane.",
    "shfl_xor": "A value of the lane with some bits of its index flipped.",
    "shuffle_elect": "One elected thread.",
    "sync_grid": "A barrier of the whole grid.",
    "sync_threads": "A barrier of the block.",
    "sync_warp": "A barrier of the warp.",
    "syncthreads_and": "A barrier that combines a condition.",
    "syncthreads_count": "A barrier that counts a condition.",
    "syncthreads_or": "A barrier that combines a condition.",
    "tvm_storage_sync": "A barrier of the block.",
    "ws": "A block of code for some warp groups.",
}
UNSUPPORTED: dict[str, str] = {
    **_MEMORY,
    **_MOVEMENT,
    **_COMPUTE,
    **_LOOPS,
    **_ANNOTATIONS,
    **_VECTORS,
    **_DEBUGGING,
    **_THREADS,
}
# Families of names that belong to single instructions of GPUs.
PREFIXES = ("WS", "ldg", "lds", "mma_", "ptx_", "stg", "sts", "tcgen05_", "tma_", "wgmma_")


def unsupported(name: str, what: str) -> Callable[..., NoReturn]:
    """A function that raises `UnsupportedError` naming `T.<name>`."""

    def function(*_: Any, **__: Any) -> NoReturn:
        raise UnsupportedError(f"'T.{name}' is not supported yet")

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{what} Not supported yet: raises `UnsupportedError`."
    return function
