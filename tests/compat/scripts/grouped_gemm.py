"""Products of a batch of groups of different heights: forward by a search for the group, and the
gradient of the weights.
"""

import argparse
import math

import tilelang
import tilelang.language as T
import torch


@tilelang.jit(out_idx=[2], pass_configs={"tl.disable_tma_lower": True})
def grouped_gemm(
    sizes, K, N, block_M, block_N, block_K, num_stages=2, threads=128, dtype="float16"
):
    count, total = len(sizes), sum(sizes)
    blocks_m = sum((size + block_M - 1) // block_M for size in sizes)
    accum_dtype = "float32"

    @T.prim_func
    def kernel(
        A: T.Tensor([total, K], dtype),
        B: T.Tensor([count, K, N], dtype),
        C: T.Tensor([total, N], dtype),
        batch_sizes: T.Tensor([count], "int32"),
        batch_offsets: T.Tensor([count], "int32"),
        batch_padded_offsets: T.Tensor([count], "int32"),
    ):
        with T.Kernel(blocks_m, T.ceildiv(N, block_N), threads=threads) as (bx, by):
            A_shared = T.alloc_shared([block_M, block_K], dtype)
            B_shared = T.alloc_shared([block_K, block_N], dtype)
            C_local = T.alloc_fragment([block_M, block_N], accum_dtype)
            group = T.alloc_local([1], "int32")
            size = T.alloc_local([1], "int32")
            m_padded = bx * block_M
            group[0] = 0
            for i in range(count):
                in_group = m_padded >= batch_padded_offsets[i]
                group[0] = T.if_then_else(in_group, i, group[0])
            size[0] = batch_sizes[group[0]]
            m_start = m_padded - batch_padded_offsets[group[0]] + batch_offsets[group[0]]
            rows = T.max(
                0,
                T.min(block_M, size[0] + batch_padded_offsets[group[0]] - m_padded),
            )
            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                T.copy(A[m_start : m_start + block_M, k * block_K : (k + 1) * block_K], A_shared)
                T.copy(
                    B[
                        group[0],
                        k * block_K : (k + 1) * block_K,
                        by * block_N : (by + 1) * block_N,
                    ],
                    B_shared,
                )
                T.gemm(A_shared, B_shared, C_local)
            for i, j in T.Parallel(block_M, block_N):
                if i < rows:
                    C[m_start + i, by * block_N + j] = C_local[i, j]

    return kernel


@tilelang.jit(out_idx=[2])
def grouped_gemm_backward(total, count, M, N, block_M, block_N, block_K, dtype="float16"):
    @T.prim_func
    def kernel(
        A: T.Tensor([total, M], dtype),
        B: T.Tensor([total, N], dtype),
        C: T.Tensor([count, M, N], dtype),
        batch_sizes: T.Tensor([count], "int32"),
        batch_offsets: T.Tensor([count], "int32"),
    ):
        with T.Kernel(T.ceildiv(M, block_M), T.ceildiv(N, block_N), count, threads=128) as (
            bx,
            by,
            bz,
        ):
            A_shared = T.alloc_shared([block_K, block_M], dtype)
            B_shared = T.alloc_shared([block_K, block_N], dtype)
            C_local = T.alloc_fragment([block_M, block_N], "float32")
            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(batch_sizes[bz], block_K), num_stages=2):
                for i, j in T.Parallel(block_K, block_M):
                    A_shared[i, j] = T.if_then_else(
                        k * block_K + i < batch_sizes[bz],
                        A[batch_offsets[bz] + k * block_K + i, bx * block_M + j],
                        0,
                    )
                for i, j in T.Parallel(block_K, block_N):
                    B_shared[i, j] = T.if_then_else(
                        k * block_K + i < batch_sizes[bz],
                        B[batch_offsets[bz] + k * block_K + i, by * block_N + j],
                        0,
                    )
                T.gemm(A_shared, B_shared, C_local, transpose_A=True)
            T.copy(C_local, C[bz, bx * block_M, by * block_N])

    return kernel


def offsets(sizes, block):
    starts, padded = [0], [0]
    for size in sizes[:-1]:
        starts.append(starts[-1] + size)
        padded.append(padded[-1] + math.ceil(size / block) * block)
    return torch.tensor(starts, dtype=torch.int32), torch.tensor(padded, dtype=torch.int32)


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_sizes", type=str, default="33,64,5")
    parser.add_argument("--K", type=int, default=64)
    parser.add_argument("--M", type=int, default=48)
    args = parser.parse_args(argv)
    sizes = [int(x) for x in args.batch_sizes.split(",")]
    starts, padded = offsets(sizes, 32)
    a = torch.randn(sum(sizes), args.K).half()
    b = torch.randn(len(sizes), args.K, args.M).half()
    lengths = torch.tensor(sizes, dtype=torch.int32)
    kernel = grouped_gemm(tuple(sizes), args.K, args.M, 32, 32, 32)
    out = kernel(a, b, lengths, starts, padded)
    parts = torch.split(a.float(), sizes)
    want = torch.cat([part @ b[i].float() for i, part in enumerate(parts)])
    torch.testing.assert_close(out.float(), want, rtol=0.01, atol=0.05)

    grad = torch.randn(sum(sizes), args.M).half()
    kernel = grouped_gemm_backward(sum(sizes), len(sizes), args.K, args.M, 32, 32, 32)
    out = kernel(a, grad, lengths, starts)
    pairs = zip(parts, torch.split(grad.float(), sizes), strict=True)
    want = torch.stack([x.T @ g for x, g in pairs])
    torch.testing.assert_close(out.float(), want, rtol=0.01, atol=0.1)


if __name__ == "__main__":
    main([])
