"""A matrix times a vector, and a product whose contraction is split between blocks."""

import tilelang
import tilelang.language as T
import torch
from tilelang.profiler import do_bench


def gemv(N, K, BLOCK_N, BLOCK_K, dtype="float16", accum_dtype="float"):
    @T.prim_func
    def main(A: T.Tensor((K,), dtype), B: T.Tensor((N, K), dtype), C: T.Tensor((N,), dtype)):
        with T.Kernel(T.ceildiv(N, BLOCK_N), threads=BLOCK_N) as bn:
            A_shared = T.alloc_shared((BLOCK_K,), dtype)
            B_shared = T.alloc_shared((BLOCK_N, BLOCK_K), dtype)
            products = T.alloc_fragment((BLOCK_N, BLOCK_K), accum_dtype)
            total = T.alloc_fragment((BLOCK_N,), accum_dtype)
            T.clear(total)
            for bk in T.serial(T.ceildiv(K, BLOCK_K)):
                T.copy(A[bk * BLOCK_K], A_shared)
                T.copy(B[bn * BLOCK_N, bk * BLOCK_K], B_shared)
                for i, k in T.Parallel(BLOCK_N, BLOCK_K):
                    products[i, k] = A_shared[k].astype(accum_dtype) * B_shared[i, k].astype(
                        accum_dtype
                    )
                T.reduce_sum(products, total, dim=1, clear=False)
            T.copy(total, C[bn * BLOCK_N])

    return main


@tilelang.jit
def split_k(M, N, K, split, block=32):
    @T.prim_func
    def main(
        A: T.Tensor((M, K), T.float32),
        B: T.Tensor((N, K), T.float32),
        C: T.Tensor((M, N), T.float32),
    ):
        with T.Kernel(T.ceildiv(N, block), T.ceildiv(M, block), split, threads=128) as (bx, by, bz):
            A_shared = T.alloc_shared((block, block), T.float32)
            B_shared = T.alloc_shared((block, block), T.float32)
            C_local = T.alloc_fragment((block, block), T.float32)
            T.clear(C_local)
            for k in T.Pipelined(K // split // block, num_stages=0):
                start = bz * (K // split) + k * block
                T.copy(A[by * block, start], A_shared)
                T.copy(B[bx * block, start], B_shared)
                T.gemm(A_shared, B_shared, C_local, transpose_B=True)
            for i, j in T.Parallel(block, block):
                T.atomic_add(C[by * block + i, bx * block + j], C_local[i, j])

    return main


def main():
    kernel = tilelang.compile(gemv(200, 256, 64, 64), out_idx=-1)
    kernel.get_profiler().assert_allclose(
        lambda a, b: (b.float() @ a.float()).half(), atol=1e-2, rtol=1e-2
    )
    assert do_bench(kernel.run_once, warmup=1, rep=1) > 0

    a, b = torch.randn(64, 256), torch.randn(70, 256)
    c = torch.zeros(64, 70)
    split_k(64, 70, 256, split=4)(a, b, c)
    torch.testing.assert_close(c, a @ b.T, rtol=1e-3, atol=1e-3)


if __name__ == "__main__":
    main()
