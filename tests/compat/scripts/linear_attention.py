"""Linear attention chunk by chunk with a state carried along, and its state-space form."""

import tilelang as tl
import tilelang.language as T
import torch


@tl.jit(out_idx=[3, 4], pass_configs={"tl.disable_tma_lower": True})
def tl_fused_chunk_fwd_kernel(B, S, H, DK, DV, dtype="float16", scale=None):
    if scale is None:
        scale = DK**-0.5
    accum_dtype = "float32"
    chunk_size = 32
    BK = BV = 32
    assert S % chunk_size == 0 and DK % BK == 0 and DV % BV == 0
    NK, NV, NT = tl.cdiv(DK, BK), tl.cdiv(DV, BV), tl.cdiv(S, chunk_size)

    @T.prim_func
    def fused_chunk_linear_attn_fwd(
        Q: T.Tensor([B, S, H, DK], dtype),
        K: T.Tensor([B, S, H, DK], dtype),
        V: T.Tensor([B, S, H, DV], dtype),
        O: T.Tensor([NK, B, S, H, DV], accum_dtype),  # noqa: E741
        final_state: T.Tensor([B, H, DK, DV], accum_dtype),
    ):
        with T.Kernel(NV, NK, B * H) as (i_v, i_k, i_bh):
            i_b = i_bh // H
            i_h = i_bh % H
            q = T.alloc_shared([chunk_size, BK], dtype)
            k = T.alloc_shared([chunk_size, BK], dtype)
            v = T.alloc_shared([chunk_size, BV], dtype)
            h = T.alloc_fragment([BK, BV], accum_dtype)
            h_shared = T.alloc_shared([BK, BV], dtype)
            s = T.alloc_fragment([chunk_size, chunk_size], accum_dtype)
            s_shared = T.alloc_shared([chunk_size, chunk_size], dtype)
            o = T.alloc_fragment([chunk_size, BV], accum_dtype)
            T.annotate_layout({s_shared: tl.layout.make_swizzled_layout(s_shared)})
            T.use_swizzle(10)
            T.clear(h)
            for i in T.Pipelined(0, NT):
                for row, col in T.Parallel(chunk_size, BK):
                    q[row, col] = (
                        Q[i_b, i * chunk_size + row, i_h, i_k * BK + col] * scale
                    )
                T.copy(
                    K[i_b, i * chunk_size : (i + 1) * chunk_size, i_h, i_k * BK : (i_k + 1) * BK], k
                )
                T.copy(
                    V[i_b, i * chunk_size : (i + 1) * chunk_size, i_h, i_v * BV : (i_v + 1) * BV], v
                )
                T.gemm(q, k, s, clear_accum=True, transpose_B=True)
                for row, col in T.Parallel(chunk_size, chunk_size):
                    s_shared[row, col] = T.if_then_else(row >= col, s[row, col], 0)
                T.gemm(s_shared, v, o, clear_accum=True)
                T.copy(h, h_shared)
                T.gemm(q, h_shared, o)
                T.gemm(k, v, h, transpose_A=True)
                for row, col in T.Parallel(chunk_size, BV):
                    O[i_k, i_b, i * chunk_size + row, i_h, i_v * BV + col] = o[row, col]
            T.copy(h, final_state[i_b, i_h, i_k * BK : (i_k + 1) * BK, i_v * BV : (i_v + 1) * BV])

    return fused_chunk_linear_attn_fwd


@tl.jit(out_idx=[4])
def chunk_state_fwd(
    batch, seqlen, chunk_size, ngroups, nheads, headdim, dstate, block_M, block_N, block_K
):
    dtype, accum_dtype = T.float16, T.float32
    nchunks = T.ceildiv(seqlen, chunk_size)
    p = 1.44269504

    @T.prim_func
    def main(
        B: T.Tensor((batch, seqlen, ngroups, dstate), dtype),
        x: T.Tensor((batch, seqlen, nheads, headdim), dtype),
        dt: T.Tensor((batch, nheads, nchunks, chunk_size), dtype),
        dA_cumsum: T.Tensor((batch, nheads, nchunks, chunk_size), dtype),
        Output: T.Tensor((batch, nchunks, nheads, headdim, dstate), dtype),
    ):
        with T.Kernel(
            nheads,
            T.ceildiv(headdim, block_M) * T.ceildiv(dstate, block_N),
            batch * nchunks,
            threads=128,
        ) as (bz, bx, by):
            x_shared = T.alloc_shared((block_K, block_M), dtype)
            x_local = T.alloc_fragment((block_K, block_M), dtype)
            xt_local = T.alloc_fragment((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            dt_shared = T.alloc_shared((block_K), dtype)
            dA_cumsum_shared = T.alloc_shared((block_K), dtype)
            acc_o = T.alloc_fragment((block_M, block_N), accum_dtype)
            acc_o_shared = T.alloc_shared((block_M, block_N), dtype)
            scale = T.alloc_fragment((block_K), accum_dtype)
            dA_cs_last = T.alloc_fragment((1), accum_dtype)
            dA_cumsum_local = T.alloc_fragment((block_K), accum_dtype)
            dt_local = T.alloc_fragment((block_K), accum_dtype)
            loop_range = T.ceildiv(chunk_size, block_K)
            batch_idx = by % batch
            chunk_idx = by // batch
            m_idx = bx // T.ceildiv(dstate, block_N)
            n_idx = bx % T.ceildiv(dstate, block_N)
            T.annotate_layout(
                {
                    x_shared: tl.layout.make_swizzled_layout(x_shared),
                    acc_o_shared: tl.layout.make_swizzled_layout(acc_o_shared),
                }
            )
            dA_cs_last[0] = dA_cumsum[batch_idx, bz, chunk_idx, chunk_size - 1]
            T.clear(acc_o)
            for k in T.Pipelined(loop_range, num_stages=4):
                rows = chunk_idx * chunk_size + k * block_K
                T.copy(
                    x[
                        batch_idx,
                        rows : rows + block_K,
                        bz,
                        m_idx * block_M : (m_idx + 1) * block_M,
                    ],
                    x_shared,
                )
                T.copy(
                    dA_cumsum[batch_idx, bz, chunk_idx, k * block_K : (k + 1) * block_K],
                    dA_cumsum_shared,
                )
                T.copy(dt[batch_idx, bz, chunk_idx, k * block_K : (k + 1) * block_K], dt_shared)
                T.copy(dA_cumsum_shared, dA_cumsum_local)
                T.copy(dt_shared, dt_local)
                for i in T.Parallel(block_K):
                    scale[i] = T.exp2(dA_cs_last[0] * p - dA_cumsum_local[i] * p) * dt_local[i]
                T.copy(x_shared, x_local)
                for i, j in T.Parallel(block_M, block_K):
                    xt_local[i, j] = x_local[j, i] * scale[j]
                T.copy(
                    B[
                        batch_idx,
                        rows : rows + block_K,
                        bz // (nheads // ngroups),
                        n_idx * block_N : (n_idx + 1) * block_N,
                    ],
                    B_shared,
                )
                T.gemm(xt_local, B_shared, acc_o)
            T.copy(acc_o, acc_o_shared)
            T.copy(
                acc_o_shared,
                Output[
                    batch_idx,
                    chunk_idx,
                    bz,
                    m_idx * block_M : (m_idx + 1) * block_M,
                    n_idx * block_N : (n_idx + 1) * block_N,
                ],
            )

    return main


def main(B=1, S=96, H=2, D=64):
    q, k, v = (torch.randn(B, S, H, D).half() / 4 for _ in range(3))
    o, state = tl_fused_chunk_fwd_kernel(B, S, H, D, D)(q, k, v)
    scores = torch.einsum("bqhd,bkhd->bhqk", q.float(), k.float()).tril() * D**-0.5
    want = torch.einsum("bhqk,bkhd->bqhd", scores, v.float())
    torch.testing.assert_close(o.sum(0), want, rtol=1e-2, atol=1e-2)
    want = torch.einsum("bshk,bshv->bhkv", k.float(), v.float())
    torch.testing.assert_close(state, want, rtol=1e-2, atol=1e-2)

    batch, chunk, groups, heads, headdim, dstate = 2, 32, 1, 2, 32, 16
    x = torch.randn(batch, S, heads, headdim).half()
    keys = torch.randn(batch, S, groups, dstate).half()
    dt = torch.rand(batch, heads, S // chunk, chunk).half()
    decay = -torch.rand(batch, heads, S // chunk, chunk).cumsum(-1).half()
    kernel = chunk_state_fwd(batch, S, chunk, groups, heads, headdim, dstate, 32, 16, 16)
    out = kernel(keys, x, dt, decay)
    scale = torch.exp(decay[..., -1:].float() - decay.float()) * dt.float()
    want = torch.einsum(
        "bcln,bhcl,bclhp->bchpn",
        keys[:, :, 0].float().unflatten(1, (-1, chunk)),
        scale,
        x.float().unflatten(1, (-1, chunk)),
    )
    torch.testing.assert_close(out.float(), want, rtol=2e-2, atol=2e-2)


if __name__ == "__main__":
    main()
