"""A product by two groups of warps: one brings tiles into shared memory, the other multiplies."""

import tilelang
import tilelang.language as T
import torch


@tilelang.jit(out_idx=[2])
def matmul_warp_specialized(
    M, N, K, block_M, block_N, block_K, dtype="float16", accum_dtype="float32"
):
    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((K, N), dtype),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=256) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            C_local = T.alloc_fragment((block_M, block_N), accum_dtype)
            data_is_ready = T.alloc_barrier(arrive_count=128)
            compute_is_done = T.alloc_barrier(arrive_count=128)
            with T.ws(0):
                T.clear(C_local)
            for ko in range(T.ceildiv(K, block_K)):
                with T.ws(1):
                    T.barrier_wait(compute_is_done, (ko + 1) % 2)
                    T.copy(A[by * block_M, ko * block_K], A_shared)
                    T.copy(B[ko * block_K, bx * block_N], B_shared)
                    T.barrier_arrive(data_is_ready)
                with T.ws(0):
                    T.barrier_wait(data_is_ready, ko % 2)
                    T.gemm(A_shared, B_shared, C_local)
                    T.barrier_arrive(compute_is_done)
            with T.ws(0):
                T.copy(C_local, C[by * block_M, bx * block_N])

    return main


@tilelang.jit(out_idx=[2])
def matmul_two_stages(M, N, K, block_M, block_N, block_K, dtype="float16", accum_dtype="float32"):
    num_stages = 2

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((K, N), dtype),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=256) as (bx, by):
            A_shared = T.alloc_shared((num_stages, block_M, block_K), dtype)
            B_shared = T.alloc_shared((num_stages, block_K, block_N), dtype)
            C_local = T.alloc_fragment((block_M, block_N), accum_dtype)
            full = T.alloc_barrier([128] * num_stages)
            empty = T.alloc_barrier([128] * num_stages)
            tx = T.get_thread_binding()
            if tx < 128:
                T.clear(C_local)
                for ko in range(T.ceildiv(K, block_K)):
                    T.mbarrier_wait_parity(full[ko % num_stages], ko // num_stages % 2)
                    T.gemm(
                        A_shared[ko % num_stages, :, :], B_shared[ko % num_stages, :, :], C_local
                    )
                    T.mbarrier_arrive(empty[ko % num_stages])
                T.copy(C_local, C[by * block_M, bx * block_N])
            else:
                for ko in range(T.ceildiv(K, block_K)):
                    T.mbarrier_wait_parity(empty[ko % num_stages], (ko // num_stages + 1) % 2)
                    T.copy(A[by * block_M, ko * block_K], A_shared[ko % num_stages, :, :])
                    T.copy(B[ko * block_K, bx * block_N], B_shared[ko % num_stages, :, :])
                    T.mbarrier_arrive(full[ko % num_stages])

    return main


def main(M=64, N=96, K=160):
    a, b = torch.randn(M, K).half(), torch.randn(K, N).half()
    for make in (matmul_warp_specialized, matmul_two_stages):
        kernel = make(M, N, K, 32, 32, 32)
        torch.testing.assert_close(kernel(a, b), a @ b, rtol=1e-2, atol=1e-2)


if __name__ == "__main__":
    main()
