"""The listings of the TileLang paper's appendix B (arXiv 2504.17577), as printed.

Free names are bound around them, and misprints mended where a comment says so.
"""

from __future__ import annotations

import pytest
import torch

import tileworkbench as tilelang
import tileworkbench.language as T
from tests.kernels.checks import compare, random
from tests.tolerances import assert_contraction
from tileworkbench.kernels import dequant_matmul, mla_decode

# fmt: off


def listing_1(M, N, K, dtype, block_M, block_N, block_K, threads):
    # Mended: the tensors' shapes, the parentheses of the tiles' shapes, dtypes.
    @tilelang.jit
    def Matmul(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(N // block_N, M // block_M,
            threads=threads) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            C_local = T.alloc_fragment((block_M, block_N), "float32")

            T.clear(C_local)
            for k in T.Pipelined(K // block_K, num_stages=2):
                T.copy(A[by * block_M, k * block_K], A_shared)
                T.copy(B[k * block_K, bx * block_N], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            T.copy(C_local, C[by * block_M, bx * block_N])

    return Matmul


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_listing_1(dtype):
    matmul = listing_1(96, 64, 48, dtype, 32, 32, 16, threads=128)
    a, b = random(96, 48, dtype=dtype), random(48, 64, dtype=dtype, seed=1)
    c = torch.full((96, 64), torch.nan, dtype=a.dtype)
    assert matmul(a, b, c) is None
    assert_contraction(c.numpy(), a.numpy(), b.numpy())


def _tir_packed_to_unsigned_convert(storage_type: str, storage_bits: int):
    """What listing 2 calls: element `pos` of `bits` bits in a packed value."""

    def convert(bits, value, pos, dtype):
        storage = T.cast(value, f"u{storage_type}{storage_bits}")
        mask = T.cast((1 << bits) - 1, storage.dtype)
        return T.cast((storage >> T.cast(pos * bits, storage.dtype)) & mask, dtype)

    return convert


def listing_2(M, N, K, block_M, block_N, block_K, num_stages, threads):
    num_bits, num_elems_per_byte = 4, 2
    in_dtype, out_dtype, accum_dtype, storage_dtype = "float16", "float16", "float32", "uint8"
    A_shape, B_shape = (M, K), (N, K // num_elems_per_byte)
    A_shared_shape = (block_M, block_K)
    B_shared_shape = (block_N, block_K // num_elems_per_byte)
    B_dequantize_shared_shape = (block_N, block_K)

    @tilelang.jit
    def matmul_fp16_fp4(
        A: T.Tensor(A_shape, in_dtype),
        B: T.Tensor(B_shape, storage_dtype),
        Ct: T.Tensor((N, M), out_dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            A_shared = T.alloc_shared(A_shared_shape, in_dtype)
            B_shared = T.alloc_shared(B_shared_shape, storage_dtype)
            B_local = T.alloc_fragment(B_shared_shape, storage_dtype)
            B_dequantize_local = T.alloc_fragment(B_dequantize_shared_shape, in_dtype)
            Ct_local = T.alloc_fragment((block_N, block_M), accum_dtype)

            T.clear(Ct_local)
            for k in T.Pipelined(
                T.ceildiv(K, block_K),
                num_stages=num_stages
            ):
                T.copy(A[by * block_M, k * block_K], A_shared)
                T.copy(B[bx * block_N, k * block_K // num_elems_per_byte], B_shared)
                T.copy(B_shared, B_local)
                for i, j in T.Parallel(block_N, block_K):
                    B_dequantize_local[i, j] = _tir_packed_to_unsigned_convert("int", 8)(
                        num_bits,
                        B_local[i, j // 2],
                        j % 2,
                        dtype=in_dtype,
                    )
                T.gemm(B_dequantize_local, A_shared, Ct_local, transpose_B=True)
            T.copy(Ct_local, Ct[bx * block_N, by * block_M])

    return matmul_fp16_fp4


def test_listing_2():
    matmul = listing_2(37, 45, 96, 16, 32, 32, num_stages=2, threads=128)
    a, b = random(37, 96, dtype="float16"), random(45, 48, dtype="uint8")
    ct = torch.full((45, 37), torch.nan, dtype=a.dtype)
    matmul(a, b, ct)
    one = torch.ones(45, 1, dtype=a.dtype)
    expected = dequant_matmul.reference(a, b, one, kind="uint4")
    compare(ct, expected.mT, 2000.0, 16, "float32")


def listing_3(batch, heads, kv_head_num, seqlen_kv, dim, pe_dim, block_N, block_H):
    dtype, accum_dtype = "float16", "float32"
    kv_group_num = heads // kv_head_num
    VALID_BLOCK_H = min(block_H, kv_group_num)
    scale = (1.0 / (dim + pe_dim)) ** 0.5 * 1.44269504

    # Mended: zeros and the letter O in the names.
    @tilelang.jit
    def flash_attn(
            Q: T.Tensor([batch, heads, dim], dtype),
            Q_pe: T.Tensor([batch, heads, pe_dim], dtype),
            KV: T.Tensor([batch, seqlen_kv, kv_head_num, dim], dtype),
            K_pe: T.Tensor([batch, seqlen_kv, kv_head_num, pe_dim], dtype),
            Output: T.Tensor([batch, heads, dim], dtype),
    ):
        with T.Kernel(batch, heads // min(block_H, kv_group_num), threads=256) as (bx, by):
            Q_shared = T.alloc_shared([block_H, dim], dtype)
            S_shared = T.alloc_shared([block_H, block_N], dtype)
            Q_pe_shared = T.alloc_shared([block_H, pe_dim], dtype)
            KV_shared = T.alloc_shared([block_N, dim], dtype)
            K_pe_shared = T.alloc_shared([block_N, pe_dim], dtype)
            O_shared = T.alloc_shared([block_H, dim], dtype)
            acc_s = T.alloc_fragment([block_H, block_N], accum_dtype)
            acc_o = T.alloc_fragment([block_H, dim], accum_dtype)
            scores_max = T.alloc_fragment([block_H], accum_dtype)
            scores_max_prev = T.alloc_fragment([block_H], accum_dtype)
            scores_scale = T.alloc_fragment([block_H], accum_dtype)
            scores_sum = T.alloc_fragment([block_H], accum_dtype)
            logsum = T.alloc_fragment([block_H], accum_dtype)

            cur_kv_head = by // (kv_group_num // block_H)
            T.use_swizzle(10)

            T.copy(Q[bx, by * VALID_BLOCK_H:(by + 1) * VALID_BLOCK_H, :], Q_shared)
            T.copy(Q_pe[bx, by * VALID_BLOCK_H:(by + 1) * VALID_BLOCK_H, :], Q_pe_shared)
            T.fill(acc_o, 0)
            T.fill(logsum, 0)
            T.fill(scores_max, -T.infinity(accum_dtype))

            loop_range = T.ceildiv(seqlen_kv, block_N)
            for k in T.Pipelined(loop_range, num_stages=2):
                T.copy(KV[bx, k * block_N:(k + 1) * block_N, cur_kv_head, :], KV_shared)
                T.copy(K_pe[bx, k * block_N:(k + 1) * block_N, cur_kv_head, :], K_pe_shared)
                T.clear(acc_s)
                T.gemm(
                    Q_shared, KV_shared, acc_s, transpose_B=True, policy=T.GemmWarpPolicy.FullCol)
                T.gemm(
                    Q_pe_shared,
                    K_pe_shared,
                    acc_s,
                    transpose_B=True,
                    policy=T.GemmWarpPolicy.FullCol)
                T.copy(scores_max, scores_max_prev)
                T.fill(scores_max, -T.infinity(accum_dtype))
                T.reduce_max(acc_s, scores_max, dim=1, clear=False)
                for i in T.Parallel(block_H):
                    scores_scale[i] = T.exp2(scores_max_prev[i] * scale - scores_max[i] * scale)
                for i, j in T.Parallel(block_H, block_N):
                    acc_s[i, j] = T.exp2(acc_s[i, j] * scale - scores_max[i] * scale)
                T.reduce_sum(acc_s, scores_sum, dim=1)
                T.copy(acc_s, S_shared)
                for i in T.Parallel(block_H):
                    logsum[i] = logsum[i] * scores_scale[i] + scores_sum[i]
                for i, j in T.Parallel(block_H, dim):
                    acc_o[i, j] *= scores_scale[i]
                T.gemm(S_shared, KV_shared, acc_o, policy=T.GemmWarpPolicy.FullCol)
            for i, j in T.Parallel(block_H, dim):
                acc_o[i, j] /= logsum[i]
            T.copy(acc_o, O_shared)
            T.copy(O_shared, Output[bx, by * VALID_BLOCK_H:(by + 1) * VALID_BLOCK_H, :])

    return flash_attn


@pytest.mark.parametrize(("heads", "kv_head_num"), [(32, 1), (32, 2)])
def test_listing_3(heads, kv_head_num):
    batch, seq, dim, pe_dim = 2, 96, 64, 16
    flash_attn = listing_3(batch, heads, kv_head_num, seq, dim, pe_dim, block_N=32, block_H=16)
    arguments = (
        random(batch, heads, dim, dtype="float16", seed=1),
        random(batch, heads, pe_dim, dtype="float16", seed=2),
        random(batch, seq, kv_head_num, dim, dtype="float16", seed=3),
        random(batch, seq, kv_head_num, pe_dim, dtype="float16", seed=4),
    )
    output = torch.full((batch, heads, dim), torch.nan, dtype=torch.float16)
    flash_attn(*arguments, output)
    compare(output, mla_decode.reference(*arguments), 4.0, 2, "float16")
    assert flash_attn.kernel.validate(*arguments, output).ok
