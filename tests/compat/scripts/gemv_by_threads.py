"""A matrix times a vector with the threads written out: parts of a row per thread, combined by an
atomic addition, by a reduction over the block, or by exchanges within a warp.
"""

import tilelang.language as T
import torch
from tilelang import jit


@jit(out_idx=[-1])
def naive_splitk_gemv(N, K, BLOCK_N, BLOCK_K, dtype=T.float16, accum_dtype=T.float32):
    @T.prim_func
    def main(A: T.Tensor((K,), dtype), B: T.Tensor((N, K), dtype), C: T.Tensor((N,), dtype)):
        with T.Kernel(T.ceildiv(N, BLOCK_N), threads=(BLOCK_N, BLOCK_K)) as bn:
            tn = T.get_thread_binding(0)
            tk = T.get_thread_binding(1)
            A_local = T.alloc_local((1,), dtype)
            B_local = T.alloc_local((1,), dtype)
            C_accum = T.alloc_local((1,), accum_dtype)
            C_shared = T.alloc_shared((BLOCK_N,), accum_dtype)
            if tk == 0:
                C_shared[tn] = 0
            T.clear(C_accum)
            for bk in T.serial(T.ceildiv(K, BLOCK_K)):
                A_local[0] = A[bk * BLOCK_K + tk]
                B_local[0] = B[bn * BLOCK_N + tn, bk * BLOCK_K + tk]
                C_accum[0] += A_local[0].astype(accum_dtype) * B_local[0].astype(accum_dtype)
            T.atomic_add(C_shared[tn], C_accum[0])
            if tk == 0:
                C[bn * BLOCK_N + tn] = C_shared[tn]

    return main


@jit(out_idx=[-1])
def splitk_gemv_vectorized_tvm(
    N, K, BLOCK_N, reduce_threads, dtype=T.float16, accum_dtype=T.float32
):
    MAX_TRANSACTION_SIZE_IN_BITS = 128
    TILE_K = MAX_TRANSACTION_SIZE_IN_BITS // dtype.bits
    BLOCK_K = reduce_threads * TILE_K

    @T.prim_func
    def main(A: T.Tensor((K,), dtype), B: T.Tensor((N, K), dtype), C: T.Tensor((N,), dtype)):
        with T.Kernel(T.ceildiv(N, BLOCK_N), threads=(BLOCK_N, reduce_threads)) as bn:
            tn = T.get_thread_binding(0)
            tk = T.get_thread_binding(1)
            A_local = T.alloc_local((TILE_K,), dtype)
            B_local = T.alloc_local((TILE_K,), dtype)
            C_accum = T.alloc_local((1,), accum_dtype)
            T.clear(C_accum)
            for bk in T.serial(T.ceildiv(K, BLOCK_K)):
                for k in T.vectorized(TILE_K):
                    A_local[k] = A[bk * BLOCK_K + tk * TILE_K + k]
                    B_local[k] = B[bn * BLOCK_N + tn, bk * BLOCK_K + tk * TILE_K + k]
                for k in T.serial(TILE_K):
                    C_accum[0] += A_local[k].astype(accum_dtype) * B_local[k].astype(accum_dtype)
            C_reduced = T.alloc_local((1,), accum_dtype)
            with T.attr(
                T.comm_reducer(lambda x, y: x + y, [T.Cast(accum_dtype, 0)]),
                "reduce_scope",
                T.reinterpret(T.uint64(0), dtype="handle"),
            ):
                T.evaluate(
                    T.tvm_thread_allreduce(
                        T.uint32(1), C_accum[0], True, C_reduced[0], tk, dtype="handle"
                    )
                )
            C[bn * BLOCK_N + tn] = C_reduced[0]

    return main


@jit(out_idx=[-1])
def warp_gemv(N, K, dtype=T.float16, accum_dtype=T.float32):
    @T.prim_func
    def main(A: T.Tensor((K,), dtype), B: T.Tensor((N, K), dtype), C: T.Tensor((N,), dtype)):
        with T.Kernel(N, threads=32) as row:
            lane = T.get_thread_binding()
            total = T.alloc_var(accum_dtype)
            total = 0.0
            for k in T.serial(T.ceildiv(K, 32)):
                total += A[k * 32 + lane].astype(accum_dtype) * B[row, k * 32 + lane].astype(
                    accum_dtype
                )
            for step in T.serial(5):
                total += T.shfl_xor(total, 16 >> step)
            if lane == 0:
                C[row] = total

    return main


def main(N=64, K=256):
    a, b = torch.randn(K).half(), torch.randn(N, K).half()
    want = (b.float() @ a.float()).half()
    kernels = (
        naive_splitk_gemv(N, K, 16, 16),
        splitk_gemv_vectorized_tvm(N, K, 2, 32),
        warp_gemv(N, K),
    )
    for kernel in kernels:
        torch.testing.assert_close(kernel(a, b), want, rtol=1e-2, atol=1e-2)


if __name__ == "__main__":
    main()
