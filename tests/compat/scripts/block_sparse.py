"""A product that leaves out masked blocks, and attention over the blocks that a mask keeps."""

import tilelang
import tilelang.language as T
import torch
from tilelang.autotuner import autotune


def get_configs():
    return [
        dict(
            block_M=32, block_N=32, block_K=k, num_stages=s, thread_num=128, enable_rasterization=r
        )
        for k, s, r in ((32, 1, True), (16, 2, False))
    ]


@autotune(configs=get_configs(), warmup=1, rep=1)
@tilelang.jit(out_idx=[-1])
def blocksparse_matmul(
    M,
    N,
    K,
    block_M=None,
    block_N=None,
    block_K=None,
    num_stages=None,
    thread_num=None,
    enable_rasterization=None,
    dtype=T.float16,
    accum_dtype=T.float32,
):
    mask_shape = (M // 32, N // 32, K // 32)

    @T.prim_func
    def block_sparse_matmul(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((K, N), dtype),
        BlockMask: T.Tensor(mask_shape, "bool"),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=thread_num) as (
            bx,
            by,
        ):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            C_local = T.alloc_fragment((block_M, block_N), accum_dtype)
            C_shared = T.alloc_shared((block_M, block_N), dtype)
            T.use_swizzle(panel_size=10, enable=enable_rasterization)
            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                if BlockMask[by, bx, k * block_K // 32]:
                    T.copy(A[by * block_M, k * block_K], A_shared)
                    T.copy(B[k * block_K, bx * block_N], B_shared)
                    T.gemm(A_shared, B_shared, C_local)
            T.copy(C_local, C_shared)
            T.copy(C_shared, C[by * block_M, bx * block_N])

    return block_sparse_matmul


@tilelang.jit(out_idx=[4], pass_configs={tilelang.PassConfigKey.TL_ENABLE_FAST_MATH: True})
def blocksparse_flashattn(batch, heads, seq_len, dim, downsample_len, is_causal):
    block_M = block_N = 32
    scale = (1.0 / dim) ** 0.5 * 1.44269504
    shape = [batch, heads, seq_len, dim]
    mask_shape = [batch, heads, downsample_len, downsample_len]
    dtype, accum_dtype = T.bfloat16, T.float32

    @T.macro
    def softmax(acc_s, acc_s_cast, scores_max, scores_max_prev, scores_scale, scores_sum, logsum):
        T.copy(scores_max, scores_max_prev)
        T.fill(scores_max, -T.infinity(accum_dtype))
        T.reduce_max(acc_s, scores_max, dim=1, clear=False)
        for i in T.Parallel(block_M):
            scores_scale[i] = T.exp2(scores_max_prev[i] * scale - scores_max[i] * scale)
        for i, j in T.Parallel(block_M, block_N):
            acc_s[i, j] = T.exp2(acc_s[i, j] * scale - scores_max[i] * scale)
        T.reduce_sum(acc_s, scores_sum, dim=1)
        for i in T.Parallel(block_M):
            logsum[i] = logsum[i] * scores_scale[i] + scores_sum[i]
        T.copy(acc_s, acc_s_cast)

    @T.prim_func
    def main(
        Q: T.Tensor(shape, dtype),
        K: T.Tensor(shape, dtype),
        V: T.Tensor(shape, dtype),
        BlockSparseMask: T.Tensor(mask_shape, "int8"),
        Output: T.Tensor(shape, dtype),
    ):
        with T.Kernel(T.ceildiv(seq_len, block_M), heads, batch, threads=128) as (bx, by, bz):
            Q_shared = T.alloc_shared([block_M, dim], dtype)
            K_shared = T.alloc_shared([block_N, dim], dtype)
            V_shared = T.alloc_shared([block_N, dim], dtype)
            O_shared = T.alloc_shared([block_M, dim], dtype)
            acc_s = T.alloc_fragment([block_M, block_N], accum_dtype)
            acc_s_cast = T.alloc_fragment([block_M, block_N], dtype)
            acc_o = T.alloc_fragment([block_M, dim], accum_dtype)
            scores_max = T.alloc_fragment([block_M], accum_dtype)
            scores_max_prev = T.alloc_fragment([block_M], accum_dtype)
            scores_scale = T.alloc_fragment([block_M], accum_dtype)
            scores_sum = T.alloc_fragment([block_M], accum_dtype)
            logsum = T.alloc_fragment([block_M], accum_dtype)
            block_mask = T.alloc_local([downsample_len], "int8")
            T.copy(Q[bz, by, bx * block_M : (bx + 1) * block_M, :], Q_shared)
            T.fill(acc_o, 0)
            T.fill(logsum, 0)
            T.fill(scores_max, -T.infinity(accum_dtype))
            for vj in T.serial(downsample_len):
                block_mask[vj] = BlockSparseMask[bz, by, bx, vj]
            loop_range = (
                T.min(T.ceildiv(seq_len, block_N), T.ceildiv((bx + 1) * block_M, block_N))
                if is_causal
                else T.ceildiv(seq_len, block_N)
            )
            for k in T.Pipelined(loop_range, num_stages=1):
                if block_mask[k] != 0:
                    T.copy(K[bz, by, k * block_N : (k + 1) * block_N, :], K_shared)
                    if is_causal:
                        past_len = 0
                        for i, j in T.Parallel(block_M, block_N):
                            acc_s[i, j] = T.if_then_else(
                                bx * block_M + i + past_len >= k * block_N + j,
                                0,
                                -T.infinity(acc_s.dtype),
                            )
                    else:
                        T.clear(acc_s)
                    T.gemm(Q_shared, K_shared, acc_s, transpose_B=True)
                    softmax(
                        acc_s,
                        acc_s_cast,
                        scores_max,
                        scores_max_prev,
                        scores_scale,
                        scores_sum,
                        logsum,
                    )
                    for i, j in T.Parallel(block_M, dim):
                        acc_o[i, j] *= scores_scale[i]
                    T.copy(V[bz, by, k * block_N : (k + 1) * block_N, :], V_shared)
                    T.gemm(acc_s_cast, V_shared, acc_o)
            for i, j in T.Parallel(block_M, dim):
                acc_o[i, j] /= logsum[i]
            T.copy(acc_o, O_shared)
            T.copy(O_shared, Output[bz, by, bx * block_M : (bx + 1) * block_M, :])

    return main


def main():
    M, N, K = 64, 96, 128
    a, b = torch.randn(M, K).half(), torch.randn(K, N).half()
    mask = torch.rand(M // 32, N // 32, K // 32) > 0.4
    config = get_configs()[0]
    kernel = blocksparse_matmul(M, N, K, **config)
    wide = mask.repeat_interleave(32, 0).repeat_interleave(32, 2)
    want = torch.stack(
        [(a.float() * wide[:, n // 32, :]) @ b[:, n].float() for n in range(N)], dim=1
    )
    torch.testing.assert_close(kernel(a, b, mask).float(), want, rtol=1e-2, atol=5e-2)

    batch, heads, length, dim = 1, 2, 128, 32
    q, k, v = (torch.randn(batch, heads, length, dim).bfloat16() for _ in range(3))
    blocks = length // 32
    keep = (torch.rand(batch, heads, blocks, blocks) > 0.5) | torch.eye(blocks, dtype=torch.bool)
    for causal in (False, True):
        kernel = blocksparse_flashattn(batch, heads, length, dim, blocks, causal)
        out = kernel(q, k, v, keep.to(torch.int8))
        full = keep.repeat_interleave(32, 2).repeat_interleave(32, 3)
        if causal:
            full = full & torch.ones(length, length, dtype=torch.bool).tril()
        want = torch.nn.functional.scaled_dot_product_attention(
            q.float(), k.float(), v.float(), attn_mask=full
        )
        torch.testing.assert_close(out.float(), want, rtol=2e-2, atol=2e-2)


if __name__ == "__main__":
    main()
