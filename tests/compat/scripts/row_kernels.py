"""Softmax with a running maximum, and RMS norm; a symbolic number of rows."""

import tilelang as tl
import tilelang.language as T
import torch
from tilelang.utils.tensor import torch_assert_close


@tl.jit(out_idx=[1])
def softmax(N, dtype=T.float32, BN=64):
    M = T.dynamic("m")
    scale = 1.44269504

    @T.prim_func
    def main(X: T.Tensor([M, N], dtype), Y: T.Tensor([M, N], dtype)):
        with T.Kernel(M, threads=128) as row:
            x = T.alloc_fragment([BN], dtype)
            y = T.alloc_fragment([BN], dtype)
            log_sum = T.alloc_fragment([1], T.float32)
            highest = T.alloc_fragment([1], T.float32)
            weights = T.alloc_fragment([BN], T.float32)
            part = T.alloc_fragment([1], T.float32)
            T.fill(log_sum, -T.infinity(T.float32))
            for n in T.Pipelined(T.ceildiv(N, BN), num_stages=2):
                T.copy(X[row, n * BN : (n + 1) * BN], x)
                T.reduce_max(x, highest, dim=0, clear=True)
                for j in T.Parallel(BN):
                    weights[j] = T.exp2(x[j] * scale - highest[0] * scale)
                T.reduce_sum(weights, part, dim=0, clear=True)
                log_sum[0] = highest[0] * scale + T.log2(
                    T.exp2(log_sum[0] - highest[0] * scale) + part[0]
                )
            for n in T.Pipelined(T.ceildiv(N, BN), num_stages=2):
                T.copy(X[row, n * BN : (n + 1) * BN], x)
                for j in T.Parallel(BN):
                    y[j] = T.exp2(x[j] * scale - log_sum[0])
                T.copy(y, Y[row, n * BN : (n + 1) * BN])

    return main


def rms_norm(M, N, block_M):
    @T.prim_func
    def main(A: T.Tensor((M, N), "float"), B: T.Tensor((M, N), "float")):
        with T.Kernel(T.ceildiv(M, block_M), threads=128) as bx:
            A_shared = T.alloc_shared((block_M, N), "float")
            squares = T.alloc_fragment((block_M, N), "float")
            values = T.alloc_fragment((block_M, N), "float")
            power = T.alloc_fragment((block_M,), "float")
            T.copy(A[bx * block_M : (bx + 1) * block_M, :], A_shared)
            T.copy(A_shared, values)
            for i, j in T.Parallel(block_M, N):
                squares[i, j] = values[i, j] * values[i, j]
            T.reduce_sum(squares, power, dim=1)
            for i in T.Parallel(block_M):
                power[i] = T.rsqrt(power[i] / N + 1e-12)
            for i, j in T.Parallel(block_M, N):
                values[i, j] *= power[i]
            T.copy(values, B[bx * block_M : (bx + 1) * block_M, :])

    return main


def main():
    kernel = softmax(256)
    for rows in (1, 9):
        x = torch.randn(rows, 256)
        torch_assert_close(kernel(x), torch.softmax(x, 1), rtol=1e-3, atol=1e-4)

    norm = tl.compile(rms_norm(50, 96, 8), out_idx=[-1], target="llvm")
    x = torch.randn(50, 96)
    expected = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-12)
    torch_assert_close(norm(x), expected, rtol=1e-3, atol=1e-4)
    assert not norm.record.warnings


if __name__ == "__main__":
    main()
