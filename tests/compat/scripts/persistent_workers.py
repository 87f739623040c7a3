"""Persistent workers, a histogram in shared memory, and a convolution by unfolding."""

import tilelang
import tilelang.language as T
import torch
from tilelang.carver.arch import driver


@tilelang.jit(out_idx=[-1])
def persistent_matmul(M, N, K, block=32):
    workers = driver.get_num_sms()

    @T.prim_func
    def main(
        A: T.Tensor((M, K), T.float32),
        B: T.Tensor((K, N), T.float32),
        C: T.Tensor((M, N), T.float32),
    ):
        with T.Kernel(workers, threads=128) as worker:
            A_shared = T.alloc_shared((block, block), T.float32)
            B_shared = T.alloc_shared((block, block), T.float32)
            C_local = T.alloc_fragment((block, block), T.float32)
            for bx, by in T.Persistent([T.ceildiv(M, block), T.ceildiv(N, block)], workers, worker):
                T.clear(C_local)
                for k in T.Pipelined(T.ceildiv(K, block), num_stages=2):
                    T.copy(A[bx * block, k * block], A_shared)
                    T.copy(B[k * block, by * block], B_shared)
                    T.gemm(A_shared, B_shared, C_local)
                T.copy(C_local, C[bx * block, by * block])

    return main


@tilelang.jit
def histogram(values, bins: int = 16, block: int = 64):
    N = T.const("N")
    values: T.Tensor[[N], T.int32]
    parts = T.empty((T.ceildiv(N, block), bins), T.int32)
    with T.Kernel(T.ceildiv(N, block), threads=64) as bx:
        counts = T.alloc_shared((bins,), T.int32)
        T.clear(counts)
        for i in T.Parallel(block):
            if bx * block + i < N:
                T.atomic_add(counts[values[bx * block + i]], 1)
        T.copy(counts, parts[bx, 0])
    return parts


@tilelang.jit(out_idx=[2])
def convolution(N, C, H, W, F, K, S, D, P, block_M=32, block_N=16, block_K=24):
    OH = (H + 2 * P - D * (K - 1) - 1) // S + 1
    OW = (W + 2 * P - D * (K - 1) - 1) // S + 1

    @T.prim_func
    def main(
        data: T.Tensor((N, H, W, C), T.float32),
        kernel: T.Tensor((K, K, C, F), T.float32),
        out: T.Tensor((N, OH, OW, F), T.float32),
    ):
        with T.Kernel(T.ceildiv(F, block_N), T.ceildiv(N * OH * OW, block_M), threads=128) as (
            bx,
            by,
        ):
            data_shared = T.alloc_shared((block_M, block_K), T.float32)
            kernel_shared = T.alloc_shared((block_K, block_N), T.float32)
            out_local = T.alloc_fragment((block_M, block_N), T.float32)
            kernel_flat = T.Tensor((K * K * C, F), T.float32, kernel.data)
            out_flat = T.Tensor((N * OH * OW, F), T.float32, out.data)
            T.clear(out_local)
            for step in T.Pipelined(T.ceildiv(K * K * C, block_K), num_stages=3):
                T.c2d_im2col(data, data_shared, by, step, K, S, D, P)
                T.copy(kernel_flat[step * block_K, bx * block_N], kernel_shared)
                T.gemm(data_shared, kernel_shared, out_local)
            T.copy(out_local, out_flat[by * block_M, bx * block_N])

    return main


def main():
    kernel = persistent_matmul(80, 100, 64)
    kernel.get_profiler().assert_allclose(lambda a, b: a @ b, rtol=1e-3, atol=1e-3)

    values = torch.randint(0, 16, (200,), dtype=torch.int32)
    assert torch.equal(histogram(values).sum(0), torch.bincount(values, minlength=16))

    x, w = torch.randn(2, 9, 11, 8), torch.randn(3, 3, 8, 20)
    out = convolution(2, 8, 9, 11, 20, 3, 2, 1, 1)(x, w)
    expected = torch.nn.functional.conv2d(
        x.permute(0, 3, 1, 2), w.permute(3, 2, 0, 1), stride=2, padding=1
    ).permute(0, 2, 3, 1)
    torch.testing.assert_close(out, expected, rtol=1e-3, atol=1e-3)


if __name__ == "__main__":
    main()
