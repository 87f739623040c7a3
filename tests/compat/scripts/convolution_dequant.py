"""A convolution by gathered tiles, and a product with weights packed two to a byte."""

import tilelang
import tilelang.language as T
import torch


@tilelang.jit(out_idx=[2])
def convolution(N, C, H, W, F, K, S, D, P, block_M=32, block_N=32, block_K=16):
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
            for step in T.Pipelined(T.ceildiv(K * K * C, block_K), num_stages=2):
                for i, j in T.Parallel(block_M, block_K):
                    k = step * block_K + j
                    m = by * block_M + i
                    h = m % (OH * OW) // OW * S + k // (K * C) * D - P
                    w = m % OW * S + k // C % K * D - P
                    inside = (h >= 0) and (w >= 0) and (h < H) and (w < W) and (k < K * K * C)
                    data_shared[i, j] = T.if_then_else(inside, data[m // (OH * OW), h, w, k % C], 0)
                T.copy(kernel_flat[step * block_K, bx * block_N], kernel_shared)
                T.gemm(data_shared, kernel_shared, out_local)
            T.copy(out_local, out_flat[by * block_M, bx * block_N])

    return main


@tilelang.jit(out_idx=[-1])
def dequant_matmul(M, N, K, block_M=32, block_N=32, block_K=32):
    @T.prim_func
    def main(
        A: T.Tensor((M, K), T.float16),
        B: T.Tensor((N, K // 2), T.uint8),
        C: T.Tensor((M, N), T.float32),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), T.float16)
            B_shared = T.alloc_shared((block_N, block_K // 2), T.uint8)
            B_local = T.alloc_fragment((block_N, block_K // 2), T.uint8)
            B_values = T.alloc_fragment((block_N, block_K), T.float16)
            B_wide = T.alloc_shared((block_N, block_K), T.float16)
            C_local = T.alloc_fragment((block_M, block_N), T.float32)
            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=1):
                T.copy(A[by * block_M, k * block_K], A_shared)
                T.copy(B[bx * block_N, k * block_K // 2], B_shared)
                T.copy(B_shared, B_local)
                for i, j in T.Parallel(block_N, block_K):
                    nibble = (B_local[i, j // 2] >> ((j % 2) * 4).astype(T.uint8)) & T.uint8(15)
                    B_values[i, j] = nibble.astype(T.float16) - T.float16(8)
                T.copy(B_values, B_wide)
                T.gemm(A_shared, B_wide, C_local, transpose_B=True)
            T.copy(C_local, C[by * block_M, bx * block_N])

    return main


def main():
    x, w = torch.randn(2, 9, 11, 8), torch.randn(3, 3, 8, 20)
    out = convolution(2, 8, 9, 11, 20, 3, 2, 1, 1)(x, w)
    expected = torch.nn.functional.conv2d(
        x.permute(0, 3, 1, 2), w.permute(3, 2, 0, 1), stride=2, padding=1
    ).permute(0, 2, 3, 1)
    torch.testing.assert_close(out, expected, rtol=1e-3, atol=1e-3)

    a = torch.randn(40, 64).half()
    b = torch.randint(0, 256, (48, 32), dtype=torch.uint8)
    wide = torch.stack((b & 15, b >> 4), dim=-1).reshape(48, 64).float() - 8
    torch.testing.assert_close(
        dequant_matmul(40, 48, 64)(a, b), a.float() @ wide.T, rtol=1e-2, atol=1e-1
    )


if __name__ == "__main__":
    main()
