"""Retention, parallel over rows: a product with a decayed causal mask."""

import tilelang
import tilelang.language as T
import torch


@tilelang.jit(out_idx=[4])
def retention(batch, heads, seq_len, dim_qk, dim_v, block_M, block_N):
    qk_shape = [batch, seq_len, heads, dim_qk]
    v_shape = [batch, seq_len, heads, dim_v]
    dtype, accum_dtype = "float16", "float"

    @T.prim_func
    def main(
        Q: T.Tensor(qk_shape, dtype),
        K: T.Tensor(qk_shape, dtype),
        V: T.Tensor(v_shape, dtype),
        mask: T.Tensor([heads, seq_len, seq_len], dtype),
        Output: T.Tensor(v_shape, dtype),
    ):
        with T.Kernel(T.ceildiv(seq_len, block_M), heads, batch, threads=128 * 2) as (bx, by, bz):
            Q_shared = T.alloc_shared([block_M, dim_qk], dtype)
            K_shared = T.alloc_shared([block_N, dim_qk], dtype)
            V_shared = T.alloc_shared([block_N, dim_v], dtype)
            mask_shared = T.alloc_shared([block_M, block_N], dtype)
            acc_o_shared = T.alloc_shared([block_M, dim_v], dtype)
            mask_local = T.alloc_fragment([block_M, block_N], dtype)
            acc_s = T.alloc_fragment([block_M, block_N], accum_dtype)
            acc_s_cast = T.alloc_fragment([block_M, block_N], dtype)
            acc_s_shared = T.alloc_shared([block_M, block_N], dtype)
            acc_o = T.alloc_fragment([block_M, dim_v], accum_dtype)
            abs_sum = T.alloc_fragment([block_M], accum_dtype)
            r_wo_clamp = T.alloc_fragment([block_M], accum_dtype)
            r = T.alloc_fragment([block_M], accum_dtype)
            r_new = T.alloc_fragment([block_M], accum_dtype)
            T.annotate_layout(
                {
                    Q_shared: tilelang.layout.make_swizzled_layout(Q_shared),
                    K_shared: tilelang.layout.make_swizzled_layout(K_shared),
                    V_shared: tilelang.layout.make_swizzled_layout(V_shared),
                    acc_o_shared: tilelang.layout.make_swizzled_layout(acc_o_shared),
                }
            )
            T.copy(Q[bz, bx * block_M : (bx + 1) * block_M, by, :], Q_shared)
            T.clear(abs_sum)
            T.clear(r_wo_clamp)
            T.fill(r, 1.0)
            T.clear(acc_o)
            for k in T.Pipelined(T.ceildiv((bx + 1) * block_M, block_N), num_stages=1):
                T.copy(K[bz, k * block_N : (k + 1) * block_N, by, :], K_shared)
                T.clear(acc_s)
                T.gemm(
                    Q_shared, K_shared, acc_s, transpose_B=True, policy=T.GemmWarpPolicy.FullRow
                )
                T.copy(
                    mask[
                        by,
                        bx * block_M : (bx + 1) * block_M,
                        k * block_N : (k + 1) * block_N,
                    ],
                    mask_shared,
                )
                T.copy(mask_shared, mask_local)
                for i, j in T.Parallel(block_M, block_N):
                    acc_s[i, j] = acc_s[i, j] * mask_local[i, j]
                T.copy(acc_s, acc_s_shared)
                T.copy(acc_s_shared, acc_s_cast)
                T.reduce_abssum(acc_s, abs_sum, dim=1)
                for i in T.Parallel(block_M):
                    r_wo_clamp[i] += abs_sum[i]
                for i in T.Parallel(block_M):
                    r_new[i] = T.max(r_wo_clamp[i], 1.0)
                for i, j in T.Parallel(block_M, dim_v):
                    acc_o[i, j] = T.if_then_else(
                        k > 0, acc_o[i, j] * r[i] / r_new[i], acc_o[i, j]
                    )
                T.copy(r_new, r)
                for i, j in T.Parallel(block_M, block_N):
                    acc_s_cast[i, j] = acc_s_cast[i, j] / r_new[i]
                T.copy(V[bz, k * block_N : (k + 1) * block_N, by, :], V_shared)
                T.gemm(acc_s_cast, V_shared, acc_o, policy=T.GemmWarpPolicy.FullRow)
            T.copy(acc_o, acc_o_shared)
            T.copy(acc_o_shared, Output[bz, bx * block_M : (bx + 1) * block_M, by, :])

    return main


def ref_program(Q, K, V, mask):
    qk = torch.einsum("bqhd,bkhd->bhqk", Q.float(), K.float()) * mask.float()
    r = qk.abs().sum(dim=-1, keepdim=True).clamp(min=1.0)
    return torch.einsum("bhqk,bkhd->bqhd", qk / r, V.float())


def main(batch=1, heads=2, seq_len=96, dim_qk=32, dim_v=48):
    q, k = (torch.randn(batch, seq_len, heads, dim_qk).half() / 4 for _ in range(2))
    v = torch.randn(batch, seq_len, heads, dim_v).half()
    decay = 1 - torch.exp2(-5 - torch.arange(heads).float())
    distance = torch.arange(seq_len)[:, None] - torch.arange(seq_len)[None, :]
    mask = torch.where(distance >= 0, decay[:, None, None] ** distance.clamp(min=0), 0.0).half()
    out = retention(batch, heads, seq_len, dim_qk, dim_v, 32, 32)(q, k, v, mask)
    torch.testing.assert_close(out.float(), ref_program(q, k, v, mask), rtol=1e-2, atol=1e-2)


if __name__ == "__main__":
    main()
