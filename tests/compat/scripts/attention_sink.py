"""Attention with a learned sink in each head's denominator, and a sliding window."""

import tilelang
import tilelang.language as T
import torch
from tilelang.layout import make_swizzled_layout
from tilelang.profiler import do_bench


@tilelang.jit(
    out_idx=[3],
    pass_configs={tilelang.PassConfigKey.TL_ENABLE_FAST_MATH: True},
    compile_flags=["-O3", "-DENABLE_BF16"],
)
def flashattn_sink(
    batch,
    heads,
    seq_q,
    seq_kv,
    dim,
    window_size: int | None = None,
    sm_scale=None,
    block_M=32,
    block_N=32,
    num_stages=1,
    threads=128,
    dtype: str = "bfloat16",
):
    if window_size is not None:
        assert window_size % block_N == 0, "window_size must be divisible by block_N"
    if sm_scale is None:
        sm_scale = (1.0 / dim) ** 0.5
    scale = sm_scale * 1.44269504
    q_shape, kv_shape = [batch, heads, seq_q, dim], [batch, heads, seq_kv, dim]
    accum_dtype = T.float32
    past_len = seq_kv - seq_q
    assert past_len >= 0, "seq_kv must be greater than or equal to seq_q"

    @T.macro
    def MMA0(K, Q_shared, K_shared, acc_s, k, bx, by, bz):
        T.copy(K[bz, by, k * block_N : (k + 1) * block_N, :], K_shared)
        for i, j in T.Parallel(block_M, block_N):
            q_idx = bx * block_M + i + past_len
            k_idx = k * block_N + j
            if window_size is not None:
                acc_s[i, j] = T.if_then_else(
                    q_idx >= k_idx and q_idx < k_idx + window_size, 0, -T.infinity(acc_s.dtype)
                )
            else:
                acc_s[i, j] = T.if_then_else(q_idx >= k_idx, 0, -T.infinity(acc_s.dtype))
        T.gemm(Q_shared, K_shared, acc_s, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)

    @T.macro
    def Softmax(acc_s, acc_s_cast, scores_max, scores_max_prev, scores_scale, scores_sum, logsum):
        T.copy(scores_max, scores_max_prev)
        T.fill(scores_max, -T.infinity(accum_dtype))
        T.reduce_max(acc_s, scores_max, dim=1, clear=False)
        for i in T.Parallel(block_M):
            scores_max[i] = T.max(scores_max[i], scores_max_prev[i])
        # a row that a window has emptied so far
        if window_size is not None:
            for i in T.Parallel(block_M):
                scores_max[i] = T.if_then_else(
                    scores_max[i] == -T.infinity(accum_dtype), 0, scores_max[i]
                )
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
        Q: T.Tensor(q_shape, dtype),
        K: T.Tensor(kv_shape, dtype),
        V: T.Tensor(kv_shape, dtype),
        Output: T.Tensor(q_shape, dtype),
        Sinks: T.Tensor([heads], dtype),
    ):
        with T.Kernel(T.ceildiv(seq_q, block_M), heads, batch, threads=threads) as (bx, by, bz):
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
            sinks = T.alloc_fragment([block_M], dtype)
            T.annotate_layout(
                {
                    tile: make_swizzled_layout(tile)
                    for tile in (Q_shared, K_shared, V_shared, O_shared)
                }
            )
            T.copy(Q[bz, by, bx * block_M : (bx + 1) * block_M, :], Q_shared)
            T.fill(acc_o, 0)
            T.fill(logsum, 0)
            T.fill(scores_max, -T.infinity(accum_dtype))
            for i in T.Parallel(block_M):
                sinks[i] = Sinks[by]
            end = T.min(
                T.ceildiv(seq_kv, block_N), T.ceildiv((bx + 1) * block_M + past_len, block_N)
            )
            start = (
                T.max(0, (bx * block_M + past_len - window_size) // block_N)
                if window_size is not None
                else 0
            )
            for k in T.Pipelined(start, end, num_stages=num_stages):
                MMA0(K, Q_shared, K_shared, acc_s, k, bx, by, bz)
                Softmax(
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
                T.gemm(acc_s_cast, V_shared, acc_o, policy=T.GemmWarpPolicy.FullRow)
            for i in T.Parallel(block_M):
                logsum[i] += T.exp2(sinks[i] * 1.44269504 - scores_max[i] * scale)
            for i, j in T.Parallel(block_M, dim):
                acc_o[i, j] /= logsum[i]
            T.copy(acc_o, O_shared)
            T.copy(O_shared, Output[bz, by, bx * block_M : (bx + 1) * block_M, :])

    return main


def ref_program(query, key, value, sinks, sliding_window=None):
    seq_q, seq_kv, dim = query.shape[2], key.shape[2], query.shape[3]
    scores = query.float() @ key.float().transpose(2, 3) / dim**0.5
    rows = torch.arange(seq_kv - seq_q, seq_kv)[:, None]
    columns = torch.arange(seq_kv)[None, :]
    hidden = columns > rows
    if sliding_window is not None:
        hidden |= columns <= rows - sliding_window
    scores = scores.masked_fill(hidden, float("-inf"))
    sink = sinks.float()[None, :, None, None].expand(*scores.shape[:3], 1)
    weights = torch.softmax(torch.cat([scores, sink], dim=-1), dim=-1)[..., :-1]
    return weights @ value.float()


def main(batch=1, heads=2, seq_q=64, seq_kv=128, dim=32):
    query = torch.randn(batch, heads, seq_q, dim).bfloat16()
    key, value = (torch.randn(batch, heads, seq_kv, dim).bfloat16() for _ in range(2))
    sinks = torch.randn(heads).bfloat16()
    for window in (None, 32):
        kernel = flashattn_sink(batch, heads, seq_q, seq_kv, dim, window)
        out = kernel(query, key, value, sinks)
        want = ref_program(query, key, value, sinks, window)
        torch.testing.assert_close(out.float(), want, rtol=2e-2, atol=2e-2)
    latency = do_bench(lambda: kernel(query, key, value, sinks), warmup=1, rep=1)
    assert latency > 0


if __name__ == "__main__":
    main()
