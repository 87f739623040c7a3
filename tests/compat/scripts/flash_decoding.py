"""Decoding with grouped heads: parts of a cache in parallel, then their combination; masked."""

import tilelang
import tilelang.language as T
import torch
import torch.nn.functional as F


@tilelang.jit(out_idx=[6], pass_configs={"tl.enable_fast_math": True})
def flashattn(batch, heads, groups, seqlen_kv, dim, block_N=32, block_H=16, num_split=4):
    scale = (1.0 / dim) ** 0.5 * 1.44269504
    shape_q = [batch, heads, dim]
    shape_k = [batch, seqlen_kv, groups, dim]
    part_shape = [batch, heads, num_split, dim]
    dtype, accum_dtype = T.float16, T.float32
    kv_group_num = heads // groups
    valid_block_H = min(block_H, kv_group_num)

    @T.macro
    def flash_attn_split(Q, K, V, mask, glse, Output_partial):
        with T.Kernel(batch, heads // valid_block_H, num_split, threads=128) as (bx, by, bz):
            Q_shared = T.alloc_shared([block_H, dim], dtype)
            K_shared = T.alloc_shared([block_N, dim], dtype)
            V_shared = T.alloc_shared([block_N, dim], dtype)
            O_shared = T.alloc_shared([valid_block_H, dim], dtype)
            acc_s = T.alloc_fragment([block_H, block_N], accum_dtype)
            acc_s_cast = T.alloc_fragment([block_H, block_N], dtype)
            mask_local = T.alloc_fragment([block_N], "uint8")
            acc_o = T.alloc_fragment([block_H, dim], accum_dtype)
            scores_max = T.alloc_fragment([block_H], accum_dtype)
            scores_max_prev = T.alloc_fragment([block_H], accum_dtype)
            scores_scale = T.alloc_fragment([block_H], accum_dtype)
            scores_sum = T.alloc_fragment([block_H], accum_dtype)
            logsum = T.alloc_fragment([block_H], accum_dtype)
            bid = bx
            hid = by
            sid = bz
            cur_kv_head = hid // (kv_group_num // valid_block_H)
            T.copy(Q[bid, hid * valid_block_H : hid * valid_block_H + block_H, :], Q_shared)
            T.fill(acc_o, 0)
            T.fill(logsum, 0)
            T.fill(scores_max, -T.infinity(accum_dtype))
            for k in T.Pipelined(T.ceildiv((seqlen_kv // num_split), block_N), num_stages=2):
                first = (seqlen_kv // num_split) * sid + k * block_N
                T.copy(K[bid, first : first + block_N, cur_kv_head, :], K_shared)
                T.copy(mask[bid, first : first + block_N, cur_kv_head], mask_local)
                T.clear(acc_s)
                T.gemm(
                    Q_shared, K_shared, acc_s, transpose_B=True, policy=T.GemmWarpPolicy.FullRow
                )
                for i, j in T.Parallel(block_H, block_N):
                    acc_s[i, j] = T.if_then_else(
                        (mask_local[j] != 0) & (first + j < seqlen_kv // num_split * (sid + 1)),
                        acc_s[i, j],
                        -T.infinity(accum_dtype),
                    )
                T.copy(scores_max, scores_max_prev)
                T.fill(scores_max, -T.infinity(accum_dtype))
                T.reduce_max(acc_s, scores_max, dim=1, clear=False)
                for i in T.Parallel(block_H):
                    scores_max[i] = T.max(scores_max[i], scores_max_prev[i])
                for i in T.Parallel(block_H):
                    scores_scale[i] = T.exp2(scores_max_prev[i] * scale - scores_max[i] * scale)
                for i, j in T.Parallel(block_H, block_N):
                    acc_s[i, j] = T.exp2(acc_s[i, j] * scale - scores_max[i] * scale)
                T.reduce_sum(acc_s, scores_sum, dim=1)
                for i in T.Parallel(block_H):
                    logsum[i] = logsum[i] * scores_scale[i] + scores_sum[i]
                T.copy(acc_s, acc_s_cast)
                for i, j in T.Parallel(block_H, dim):
                    acc_o[i, j] *= scores_scale[i]
                T.copy(V[bid, first : first + block_N, cur_kv_head, :], V_shared)
                T.gemm(acc_s_cast, V_shared, acc_o, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(block_H, dim):
                acc_o[i, j] /= logsum[i]
            for i in T.Parallel(block_H):
                logsum[i] = T.log2(logsum[i]) + scores_max[i] * scale
            for i in T.Parallel(block_H):
                if i < valid_block_H:
                    glse[bid, hid * valid_block_H + i, sid] = logsum[i]
            T.copy(acc_o[:valid_block_H, :], O_shared)
            T.copy(
                O_shared,
                Output_partial[bid, hid * valid_block_H : (hid + 1) * valid_block_H, sid, :],
            )

    @T.macro
    def combine(glse, Output_partial, Output):
        with T.Kernel(heads, batch, threads=128) as (by, bz):
            po_local = T.alloc_fragment([dim], dtype)
            o_accum_local = T.alloc_fragment([dim], accum_dtype)
            lse_local = T.alloc_fragment([num_split], accum_dtype)
            lse_max_local = T.alloc_fragment([1], accum_dtype)
            lse_logsum_local = T.alloc_var(accum_dtype)
            scale_local = T.alloc_var(accum_dtype)
            lse_logsum_local = 0.0
            T.clear(o_accum_local)
            for k in T.Parallel(num_split):
                lse_local[k] = glse[bz, by, k]
            T.reduce_max(lse_local, lse_max_local, dim=0, clear=True)
            for k in T.serial(num_split):
                lse_logsum_local += T.exp2(glse[bz, by, k] - lse_max_local[0])
            lse_logsum_local = T.log2(lse_logsum_local) + lse_max_local[0]
            for k in T.serial(num_split):
                for i in T.Parallel(dim):
                    po_local[i] = Output_partial[bz, by, k, i]
                scale_local = T.exp2(glse[bz, by, k] - lse_logsum_local)
                for i in T.Parallel(dim):
                    o_accum_local[i] += po_local[i] * scale_local
            for i in T.Parallel(dim):
                Output[bz, by, i] = o_accum_local[i]

    @T.prim_func
    def flashattn_gqa_decode_split(
        Q: T.Tensor(shape_q, dtype),
        K: T.Tensor(shape_k, dtype),
        V: T.Tensor(shape_k, dtype),
        mask: T.Tensor([batch, seqlen_kv, groups], "uint8"),
        glse: T.Tensor([batch, heads, num_split], dtype),
        Output_partial: T.Tensor(part_shape, dtype),
        Output: T.Tensor(shape_q, dtype),
    ):
        flash_attn_split(Q, K, V, mask, glse, Output_partial)
        combine(glse, Output_partial, Output)

    return flashattn_gqa_decode_split


def ref_program(query, key, value, mask):
    groups = key.shape[2]
    q = query.float().unflatten(1, (groups, -1))
    scores = torch.einsum("bghd,bsgd->bghs", q, key.float()) / query.shape[-1] ** 0.5
    scores = scores.masked_fill(mask.permute(0, 2, 1)[:, :, None] == 0, float("-inf"))
    attention = F.softmax(scores, dim=-1)
    return torch.einsum("bghs,bsgd->bghd", attention, value.float()).flatten(1, 2)


def main(batch=2, heads=16, groups=4, kv_seqlen=256, dim=32):
    q = torch.randn(batch, heads, dim).half()
    k, v = (torch.randn(batch, kv_seqlen, groups, dim).half() for _ in range(2))
    mask = torch.randint(0, 2, (batch, kv_seqlen, groups)).to(torch.uint8)
    split = 4
    glse = torch.empty(batch, heads, split).half()
    partial = torch.empty(batch, heads, split, dim).half()
    kernel = flashattn(batch, heads, groups, kv_seqlen, dim, num_split=split)
    o = kernel(q, k, v, mask, glse, partial)
    torch.testing.assert_close(o.float(), ref_program(q, k, v, mask), rtol=0.02, atol=0.02)


if __name__ == "__main__":
    main()
