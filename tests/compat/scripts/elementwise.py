"""An eager kernel in the style of scripts that pass tensors and tile sizes to one function."""

import argparse

import tilelang
import tilelang.language as T
import torch


@tilelang.jit
def scaled_sum(A, B, block_M: int = 32, block_N: int = 32, threads: int = 128):
    M, N = T.const("M, N")
    A: T.Tensor[[M, N], T.float32]
    B: T.Tensor[[M, N], T.float32]
    C = T.empty((M, N), T.float32)
    with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
        A_shared = T.alloc_shared((block_M, block_N), T.float32)
        B_shared = T.alloc_shared((block_M, block_N), T.float32)
        C_local = T.alloc_fragment((block_M, block_N), T.float32)
        T.copy(A[by * block_M, bx * block_N], A_shared)
        T.copy(B[by * block_M, bx * block_N], B_shared)
        for i, j in T.Parallel(block_M, block_N):
            C_local[i, j] = A_shared[i, j] * 2.0 + B_shared[i, j]
        T.copy(C_local, C[by * block_M, bx * block_N])
    return C


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--m", type=int, default=70)
    parser.add_argument("--n", type=int, default=45)
    args = parser.parse_args(argv or [])
    a, b = torch.randn(args.m, args.n), torch.randn(args.m, args.n)
    torch.testing.assert_close(scaled_sum(a, b), a * 2 + b)
    torch.testing.assert_close(scaled_sum(a, b, block_M=16, threads=64), a * 2 + b)


if __name__ == "__main__":
    main()
