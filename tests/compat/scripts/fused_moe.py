"""A mixture of experts: routed tokens go through gate, up and down projections of their expert."""

import math

import tilelang
import tilelang.language as T
import torch
import torch.nn as nn
from tilelang.autotuner import *  # noqa: F403


@tilelang.jit(pass_configs={"tl.disable_tma_lower": True, "tl.disable_warp_specialized": True})
def moe_forward_routed(
    d_hidden,
    d_expert,
    n_routed_experts,
    group_sum,
    group_count,
    block_token=16,
    block_dhidden=32,
    block_dexpert=32,
    threads=128,
    num_stages=1,
):
    scale = 1.44269504  # log2(e)
    dtype = "float16"
    accum_type = "float32"
    M = math.ceil(group_sum / block_token) + group_count

    @T.prim_func
    def kernel(
        input: T.Tensor((group_sum, d_hidden), dtype),
        gate_W: T.Tensor((n_routed_experts, d_expert, d_hidden), dtype),
        up_W: T.Tensor((n_routed_experts, d_expert, d_hidden), dtype),
        down_W: T.Tensor((n_routed_experts, d_hidden, d_expert), dtype),
        weights: T.Tensor((group_sum,), dtype),
        group_sizes: T.Tensor((group_count,), "int32"),
        group_offsets: T.Tensor((group_count,), "int32"),
        group_padded_offsets: T.Tensor((group_count,), "int32"),
        group_idx_for_bx: T.Tensor((M,), "int32"),
        up_logits: T.Tensor((group_sum, d_expert), dtype),
        output: T.Tensor((group_sum, d_hidden), dtype),
    ):
        with T.Kernel(M, T.ceildiv(d_expert, block_dexpert), threads=threads) as (bx, by):
            input_shared = T.alloc_fragment((block_token, block_dhidden), dtype=dtype)
            gate_shared = T.alloc_shared((block_dexpert, block_dhidden), dtype=dtype)
            up_shared = T.alloc_shared((block_dexpert, block_dhidden), dtype=dtype)
            gate_local = T.alloc_fragment((block_token, block_dexpert), dtype=accum_type)
            up_local = T.alloc_fragment((block_token, block_dexpert), dtype=accum_type)
            cur_group_idx = T.alloc_local([1], "int32")
            cur_group_size = T.alloc_local([1], "int32")
            T.use_swizzle(10, enable=True)
            m_start_padded = bx * block_token
            cur_group_idx[0] = group_idx_for_bx[bx]
            cur_group_size[0] = group_sizes[cur_group_idx[0]]
            m_start = (
                m_start_padded
                - group_padded_offsets[cur_group_idx[0]]
                + group_offsets[cur_group_idx[0]]
            )
            actual_rows = T.max(
                0,
                T.min(
                    block_token,
                    cur_group_size[0] - (m_start_padded - group_padded_offsets[cur_group_idx[0]]),
                ),
            )
            T.clear(gate_local)
            T.clear(up_local)
            for k in T.Pipelined(T.ceildiv(d_hidden, block_dhidden), num_stages=num_stages):
                T.copy(
                    input[
                        m_start : m_start + block_token,
                        k * block_dhidden : (k + 1) * block_dhidden,
                    ],
                    input_shared,
                    coalesced_width=4,
                )
                T.copy(
                    gate_W[
                        cur_group_idx[0],
                        by * block_dexpert : (by + 1) * block_dexpert,
                        k * block_dhidden : (k + 1) * block_dhidden,
                    ],
                    gate_shared,
                )
                T.gemm(input_shared, gate_shared, gate_local, k_pack=1, transpose_B=True)
                T.copy(
                    up_W[
                        cur_group_idx[0],
                        by * block_dexpert : (by + 1) * block_dexpert,
                        k * block_dhidden : (k + 1) * block_dhidden,
                    ],
                    up_shared,
                )
                T.gemm(input_shared, up_shared, up_local, k_pack=1, transpose_B=True)
            for i, j in T.Parallel(block_token, block_dexpert):
                gate_local[i, j] = gate_local[i, j] * (
                    1.0 / (1.0 + T.exp2(-gate_local[i, j] * scale))
                )
                up_local[i, j] = up_local[i, j] * gate_local[i, j]
            for i, j in T.Parallel(block_token, block_dexpert):
                if i < actual_rows:
                    up_logits[m_start + i, by * block_dexpert + j] = up_local[i, j]

        with T.Kernel(M, T.ceildiv(d_hidden, block_dhidden), threads=threads) as (bx, by):
            up_shared = T.alloc_fragment((block_token, block_dexpert), dtype=dtype)
            down_shared = T.alloc_shared((block_dhidden, block_dexpert), dtype=dtype)
            out_local = T.alloc_fragment((block_token, block_dhidden), dtype=accum_type)
            cur_group_idx = T.alloc_local([1], "int32")
            cur_group_size = T.alloc_local([1], "int32")
            m_start_padded = bx * block_token
            cur_group_idx[0] = group_idx_for_bx[bx]
            cur_group_size[0] = group_sizes[cur_group_idx[0]]
            m_start = (
                m_start_padded
                - group_padded_offsets[cur_group_idx[0]]
                + group_offsets[cur_group_idx[0]]
            )
            actual_rows = T.max(
                0,
                T.min(
                    block_token,
                    cur_group_size[0] - (m_start_padded - group_padded_offsets[cur_group_idx[0]]),
                ),
            )
            T.clear(out_local)
            for k in T.Pipelined(T.ceildiv(d_expert, block_dexpert), num_stages=num_stages):
                T.copy(
                    up_logits[
                        m_start : m_start + block_token,
                        k * block_dexpert : (k + 1) * block_dexpert,
                    ],
                    up_shared,
                )
                T.copy(
                    down_W[
                        cur_group_idx[0],
                        by * block_dhidden : (by + 1) * block_dhidden,
                        k * block_dexpert : (k + 1) * block_dexpert,
                    ],
                    down_shared,
                )
                T.gemm(up_shared, down_shared, out_local, k_pack=1, transpose_B=True)
            for i, j in T.Parallel(block_token, block_dhidden):
                if i < actual_rows:
                    output[m_start + i, by * block_dhidden + j] = (
                        out_local[i, j] * weights[m_start + i]
                    )

    return kernel


class Expert(nn.Module):
    def __init__(self, config: dict, gate, up, down):
        super().__init__()
        self.gate, self.up, self.down = gate, up, down

    def forward(self, x):
        hidden = nn.functional.silu(x @ self.gate.T) * (x @ self.up.T)
        return hidden @ self.down.T


def main(d_hidden=64, d_expert=48, experts=4, tokens=24, top_k=2, block_token=16):
    torch.manual_seed(81394)
    config = {"d_hidden": d_hidden, "d_expert": d_expert}
    x = torch.randn(tokens, d_hidden).half()
    gate = (torch.randn(experts, d_expert, d_hidden) / 8).half()
    up = (torch.randn(experts, d_expert, d_hidden) / 8).half()
    down = (torch.randn(experts, d_hidden, d_expert) / 8).half()
    scores = torch.randn(tokens, experts).softmax(-1)
    weights, chosen = scores.topk(top_k, dim=-1)

    flat = chosen.reshape(-1)
    order = flat.argsort(stable=True)
    token_of = order // top_k
    counts = torch.bincount(flat, minlength=experts)
    starts = counts.cumsum(0) - counts
    padded_counts = (counts + block_token) // block_token * block_token
    padded = padded_counts.cumsum(0) - padded_counts
    total = tokens * top_k
    blocks = math.ceil(total / block_token) + experts
    group_of = [int((padded <= b * block_token).nonzero().max()) for b in range(blocks)]
    logits = torch.empty(total, d_expert).half()
    out = torch.empty(total, d_hidden).half()
    kernel = moe_forward_routed(d_hidden, d_expert, experts, total, experts)
    kernel(
        x[token_of],
        gate,
        up,
        down,
        weights.reshape(-1)[order].half(),
        counts.int(),
        starts.int(),
        padded.int(),
        torch.tensor(group_of, dtype=torch.int32),
        logits,
        out,
    )
    result = torch.zeros(tokens, d_hidden).index_add(0, token_of, out.float())

    modules = [
        Expert(config, gate[e].float(), up[e].float(), down[e].float()) for e in range(experts)
    ]
    want = torch.zeros(tokens, d_hidden)
    for e, module in enumerate(modules):
        rows, slot = (chosen == e).nonzero(as_tuple=True)
        want[rows] += module(x[rows].float()) * weights[rows, slot, None]
    torch.testing.assert_close(result, want, rtol=1e-2, atol=1e-2)


if __name__ == "__main__":
    main()
