"""The two products of Mamba-2's chunked scan (Dao and Gu, arXiv 2405.21060, section 6).

A sequence is cut into chunks. `chunk_state` makes what each chunk adds to the recurrent state;
`chunk_scan` makes the outputs from the state before a chunk and from the chunk itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tileworkbench.language as T
from tileworkbench.kernels.flash_attention import LOG2_E
from tileworkbench.kernels.page import TABLE, Extent, PrimFunc, compared_with

if TYPE_CHECKING:
    from torch import Tensor


def chunk_state_reference(b: Tensor, x: Tensor, dt: Tensor, decay: Tensor) -> Tensor:
    """The states in float64; see `chunk_state`."""
    import torch

    _, heads, chunks, length = dt.shape
    b = b.double().repeat_interleave(heads // b.shape[2], 2).unflatten(1, (chunks, length))
    x = x.double().unflatten(1, (chunks, length))
    weight = (decay[..., -1:] - decay).double().exp() * dt.double()
    return torch.einsum("bclhp,bclhn,bhcl->bchpn", x, b, weight)


@compared_with(chunk_state_reference)
def chunk_state(
    batch: Extent,
    chunks: int,
    chunk_size: int,
    heads: int,
    headdim: int,
    dstate: int,
    groups: int = 1,
    dtype: Any = T.float16,
    block_M: int = TABLE,
    block_N: int = TABLE,
    block_K: int = TABLE,
    num_stages: int = 2,
    threads: int = 128,
) -> PrimFunc:
    """`states[p, n] = sum over l of x[l, p] B[l, n] dt[l] exp(decay[last] - decay[l])` per chunk.

    B is (batch, seq, groups, dstate) and x (batch, seq, heads, headdim), of one float dtype, where
    seq = chunks * chunk_size; dt and decay (the running sum of dt * A within a chunk) are float32
    (batch, heads, chunks, chunk_size); states are float32 (batch, chunks, heads, headdim, dstate).
    """
    seq = chunks * chunk_size
    tiles_n = -(-dstate // block_N)

    @T.prim_func
    def chunk_state(
        B: T.Tensor((batch, seq, groups, dstate), dtype),
        x: T.Tensor((batch, seq, heads, headdim), dtype),
        dt: T.Tensor((batch, heads, chunks, chunk_size), T.float32),
        decay: T.Tensor((batch, heads, chunks, chunk_size), T.float32),
    ):
        states = T.empty((batch, chunks, heads, headdim, dstate), T.float32)
        with T.Kernel(
            T.ceildiv(headdim, block_M) * tiles_n, batch * chunks, heads, threads=threads
        ) as (tile, bc, h):
            x_shared = T.alloc_shared((block_K, block_M), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            weight = T.alloc_fragment((block_K,), T.float32)
            weighted = T.alloc_shared((block_K, block_M), dtype)
            states_local = T.alloc_fragment((block_M, block_N), T.float32)
            b = bc // chunks
            c = bc % chunks
            m = tile // tiles_n * block_M
            n = tile % tiles_n * block_N
            last = decay[b, h, c, chunk_size - 1]
            T.clear(states_local)
            for k in T.Pipelined(T.ceildiv(chunk_size, block_K), num_stages=num_stages):
                row = c * chunk_size + k * block_K
                T.copy(x[b, row : row + block_K, h, m : m + block_M], x_shared)
                T.copy(B[b, row : row + block_K, h // (heads // groups), n : n + block_N], B_shared)
                for i in T.Parallel(block_K):
                    # Beyond the chunk dt reads as 0 where it is the last one, not elsewhere.
                    step = k * block_K + i
                    weight[i] = T.if_then_else(
                        step < chunk_size,
                        T.exp2((last - decay[b, h, c, step]) * LOG2_E) * dt[b, h, c, step],
                        T.float32(0),
                    )
                for i, j in T.Parallel(block_K, block_M):
                    weighted[i, j] = x_shared[i, j] * weight[i]
                T.gemm(weighted, B_shared, states_local, transpose_A=True)
            T.copy(states_local, states[b, c, h, m : m + block_M, n : n + block_N])
        return states

    return chunk_state


def chunk_scan_reference(
    cb: Tensor, x: Tensor, dt: Tensor, decay: Tensor, c: Tensor, states: Tensor, d: Tensor
) -> Tensor:
    """The outputs in float64; see `chunk_scan`."""
    import torch

    _, heads, chunks, length = dt.shape
    c = c.double().repeat_interleave(heads // c.shape[2], 2).unflatten(1, (chunks, length))
    cb = cb.double().repeat_interleave(heads // cb.shape[2], 2)
    x, decay = x.double().unflatten(1, (chunks, length)), decay.double()
    span = decay[..., :, None] - decay[..., None, :]
    weight = (span.tril().exp() * dt.double()[..., None, :]).tril()
    within = torch.einsum("bchlk,bhclk,bckhp->bclhp", cb, weight, x)
    before = torch.einsum("bclhn,bchpn,bhcl->bclhp", c, states.double(), decay.exp())
    return (within + before + x * d.double()[:, None]).flatten(1, 2)


@compared_with(chunk_scan_reference)
def chunk_scan(
    batch: Extent,
    chunks: int,
    chunk_size: int,
    heads: int,
    headdim: int,
    dstate: int,
    groups: int = 1,
    dtype: Any = T.float16,
    block_M: int = TABLE,
    block_N: int = TABLE,
    block_K: int = TABLE,
    num_stages: int = 2,
    threads: int = 128,
) -> PrimFunc:
    """Outputs of a chunk from the state before it, from its own earlier steps, and directly.

    `Y[l, p] = exp(decay[l]) sum over n of C[l, n] states[p, n] + sum over k <= l of
    CB[l, k] exp(decay[l] - decay[k]) dt[k] x[k, p] + D x[l, p]`. CB (products of C and B) is
    (batch, chunks, groups, chunk_size, chunk_size), x and Y are (batch, seq, heads, headdim),
    C is (batch, seq, groups, dstate), states are (batch, chunks, heads, headdim, dstate), D is
    (heads,), all of `dtype`; dt and decay are float32 (batch, heads, chunks, chunk_size).
    """
    seq = chunks * chunk_size
    tiles_n = -(-headdim // block_N)

    @T.prim_func
    def chunk_scan(
        CB: T.Tensor((batch, chunks, groups, chunk_size, chunk_size), dtype),
        x: T.Tensor((batch, seq, heads, headdim), dtype),
        dt: T.Tensor((batch, heads, chunks, chunk_size), T.float32),
        decay: T.Tensor((batch, heads, chunks, chunk_size), T.float32),
        C: T.Tensor((batch, seq, groups, dstate), dtype),
        states: T.Tensor((batch, chunks, heads, headdim, dstate), dtype),
        D: T.Tensor((heads,), dtype),
    ):
        Y = T.empty((batch, seq, heads, headdim), dtype)
        with T.Kernel(
            T.ceildiv(chunk_size, block_M) * tiles_n, batch * chunks, heads, threads=threads
        ) as (tile, bc, h):
            C_shared = T.alloc_shared((block_M, dstate), dtype)
            states_shared = T.alloc_shared((block_N, dstate), dtype)
            CB_shared = T.alloc_shared((block_M, block_K), dtype)
            weighted = T.alloc_fragment((block_M, block_K), dtype)
            x_shared = T.alloc_shared((block_K, block_N), dtype)
            decay_m = T.alloc_fragment((block_M,), T.float32)
            decay_k = T.alloc_shared((block_K,), T.float32)
            dt_k = T.alloc_shared((block_K,), T.float32)
            Y_local = T.alloc_fragment((block_M, block_N), T.float32)
            b = bc // chunks
            c = bc % chunks
            g = h // (heads // groups)
            m = tile // tiles_n * block_M
            n = tile % tiles_n * block_N
            row = c * chunk_size + m
            T.copy(decay[b, h, c, m : m + block_M], decay_m)
            T.copy(C[b, row : row + block_M, g, :], C_shared)
            T.copy(states[b, c, h, n : n + block_N, :], states_shared)
            # Warps have whole rows: weights are then computed once, and not by several warps.
            rows = T.GemmWarpPolicy.FullRow
            T.gemm(
                C_shared, states_shared, Y_local, transpose_B=True, clear_accum=True, policy=rows
            )
            for i, j in T.Parallel(block_M, block_N):
                Y_local[i, j] *= T.exp2(decay_m[i] * LOG2_E)
            for k in T.Pipelined(
                T.ceildiv(T.min(m + block_M, chunk_size), block_K), num_stages=num_stages
            ):
                T.copy(CB[b, c, g, m : m + block_M, k * block_K : (k + 1) * block_K], CB_shared)
                T.copy(decay[b, h, c, k * block_K : (k + 1) * block_K], decay_k)
                T.copy(dt[b, h, c, k * block_K : (k + 1) * block_K], dt_k)
                for i, j in T.Parallel(block_M, block_K):
                    # Read in front of the condition: loads behind one are neither shared nor wide.
                    weight = CB_shared[i, j] * T.exp2((decay_m[i] - decay_k[j]) * LOG2_E) * dt_k[j]
                    weighted[i, j] = T.if_then_else(
                        (j <= m + i - k * block_K) & (j < chunk_size - k * block_K),
                        weight,
                        T.float32(0),
                    )
                first = c * chunk_size + k * block_K
                T.copy(x[b, first : first + block_K, h, n : n + block_N], x_shared)
                T.gemm(weighted, x_shared, Y_local, policy=rows)
            for i, j in T.Parallel(block_M, block_N):
                if m + i < chunk_size:
                    Y[b, row + i, h, n + j] = Y_local[i, j] + D[h] * x[b, row + i, h, n + j]
        return Y

    return chunk_scan
