"""Rows cut into groups and cast to 8-bit floats, and a product of blocks with such scales."""


import tilelang
import tilelang.language as T
import torch
from tilelang.utils.tensor import torch_assert_close


@tilelang.jit(out_idx=[1, 2])
def per_token_cast_to_fp8(M, N, blk_m):
    dtype = T.float32
    group_size = 128
    fp8_min = -448.0
    fp8_max = 448.0

    @T.prim_func
    def per_token_cast(
        X: T.Tensor((M, N), dtype),
        X_fp8: T.Tensor((M, N), T.float8_e4m3fn),
        X_amax: T.Tensor((M, T.ceildiv(N, group_size)), dtype),
    ):
        with T.Kernel(T.ceildiv(M, blk_m), T.ceildiv(N, group_size), threads=128) as (bx, by):
            row = bx
            row_g_id = by
            y_local = T.alloc_fragment((blk_m, group_size), dtype)
            y_amax_local = T.alloc_fragment((blk_m,), dtype)
            y_s_local = T.alloc_fragment((blk_m,), dtype)
            y_q_local = T.alloc_fragment((blk_m, group_size), dtype)
            y_q_local_fp8 = T.alloc_fragment((blk_m, group_size), T.float8_e4m3fn)
            T.annotate_layout(
                {
                    y_local: T.Fragment(
                        y_local.shape,
                        forward_thread_fn=lambda i, j: (i // (blk_m // 4)) * 32 + j % 32,
                    ),
                }
            )
            T.copy(
                X[
                    row * blk_m : (row + 1) * blk_m,
                    row_g_id * group_size : (row_g_id + 1) * group_size,
                ],
                y_local,
            )
            T.reduce_absmax(y_local, y_amax_local, dim=1)
            for i in T.Parallel(blk_m):
                y_amax_local[i] = T.max(y_amax_local[i], 1e-4)
                y_s_local[i] = y_amax_local[i] / fp8_max
            for i, j in T.Parallel(blk_m, group_size):
                y_q_local[i, j] = T.clamp(y_local[i, j] / y_s_local[i], fp8_min, fp8_max)
            T.copy(y_q_local, y_q_local_fp8)
            for i in T.Parallel(blk_m):
                X_amax[row * blk_m + i, row_g_id] = y_s_local[i]
            T.copy(
                y_q_local_fp8,
                X_fp8[
                    row * blk_m : (row + 1) * blk_m,
                    row_g_id * group_size : (row_g_id + 1) * group_size,
                ],
            )

    return per_token_cast


@tilelang.jit
def tl_gemm(M, N, K, block_N, in_dtype, out_dtype, accum_dtype):
    assert in_dtype in [T.float8_e4m3fn], "Currently only float8_e4m3 is supported"
    assert out_dtype in [T.bfloat16, T.float32]
    group_size = 128
    block_M = 32
    block_K = 128

    @T.prim_func
    def main(
        A: T.Tensor((M, K), in_dtype),
        B: T.Tensor((N, K), in_dtype),
        C: T.Tensor((M, N), out_dtype),
        scales_a: T.Tensor((M, T.ceildiv(K, group_size)), T.float32),
        scales_b: T.Tensor((T.ceildiv(N, group_size), T.ceildiv(K, group_size)), T.float32),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), in_dtype)
            B_shared = T.alloc_shared((block_N, block_K), in_dtype)
            C_shared = T.alloc_shared((block_M, block_N), out_dtype)
            Scale_C_shared = T.alloc_shared((block_M), T.float32)
            C_local = T.alloc_fragment((block_M, block_N), accum_dtype)
            C_local_accum = T.alloc_fragment((block_M, block_N), accum_dtype)
            T.use_swizzle(panel_size=10)
            T.clear(C_local)
            T.clear(C_local_accum)
            K_iters = T.ceildiv(K, block_K)
            for k in T.Pipelined(K_iters, num_stages=4):
                T.copy(A[by * block_M, k * block_K], A_shared)
                T.copy(B[bx * block_N, k * block_K], B_shared)
                Scale_B = scales_b[bx * block_N // group_size, k]
                for i in T.Parallel(block_M):
                    Scale_C_shared[i] = scales_a[by * block_M + i, k] * Scale_B
                T.gemm(A_shared, B_shared, C_local, transpose_B=True)
                for i, j in T.Parallel(block_M, block_N):
                    C_local_accum[i, j] += C_local[i, j] * Scale_C_shared[i]
                T.clear(C_local)
            T.copy(C_local_accum, C_shared)
            T.copy(C_shared, C[by * block_M, bx * block_N])

    return main


def ceildiv(a: int, b: int) -> int:
    return (a + b - 1) // b


def ref_per_token_cast(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    m, n = x.shape
    padded = torch.nn.functional.pad(x, (0, ceildiv(n, 128) * 128 - n))
    groups = padded.view(m, -1, 128)
    amax = groups.abs().float().amax(dim=2).view(m, -1).clamp(1e-4)
    scaled = (groups * (448.0 / amax.unsqueeze(2))).to(torch.float8_e4m3fn)
    return scaled.view(m, -1)[:, :n].contiguous(), (amax / 448.0).view(m, -1)


def per_block_cast(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    blocks = x.view(x.shape[0] // 128, 128, -1, 128)
    amax = blocks.abs().amax(dim=(1, 3)).clamp(1e-4)
    scaled = (blocks * (448.0 / amax)[:, None, :, None]).to(torch.float8_e4m3fn)
    return scaled.view_as(x), amax / 448.0


def main(M=64, N=256, K=256):
    x, w = torch.randn(M, K), torch.randn(N, K)
    quantise = per_token_cast_to_fp8(M, K, 8)
    x_fp8, x_scale = quantise(x)
    ref_fp8, ref_scale = ref_per_token_cast(x)
    torch_assert_close(x_fp8.to(torch.float32), ref_fp8.to(torch.float32), rtol=0.1, atol=0.1)
    torch_assert_close(x_scale, ref_scale, rtol=1e-5, atol=1e-8)

    w_fp8, w_scale = per_block_cast(w)
    c = torch.empty(M, N, dtype=torch.bfloat16)
    tl_gemm(M, N, K, 64, T.float8_e4m3fn, T.bfloat16, T.float32)(x_fp8, w_fp8, c, x_scale, w_scale)
    wide_x = (x_fp8.float().view(M, -1, 128) * x_scale[..., None]).view(M, K)
    wide_w = w_fp8.float().view(N // 128, 128, -1, 128) * w_scale[:, None, :, None]
    torch_assert_close(c.float(), wide_x @ wide_w.view(N, K).T, rtol=1e-2, atol=1e-1)


if __name__ == "__main__":
    main()
