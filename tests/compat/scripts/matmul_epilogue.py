"""A product with bias and activation, asked for on a GPU; the tensors are on the CPU."""

import tilelang
import tilelang.language as T
import torch
from tilelang.layout import make_swizzled_layout


@tilelang.jit(
    out_idx=[-1],
    target="cuda",
    execution_backend="cython",
    pass_configs={tilelang.PassConfigKey.TL_DISABLE_WARP_SPECIALIZED: True, "tl.disable_tma": True},
)
def matmul(M, N, K, block_M, block_N, block_K, dtype=T.float16, accum_dtype=T.float32):
    @T.prim_func
    def gemm_relu(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((K, N), dtype),
        bias: T.Tensor((N,), accum_dtype),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            C_local = T.alloc_fragment((block_M, block_N), accum_dtype)
            T.annotate_layout(
                {A_shared: make_swizzled_layout(A_shared), B_shared: make_swizzled_layout(B_shared)}
            )
            T.use_swizzle(panel_size=10, enable=True)
            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=3):
                T.copy(A[by * block_M, k * block_K], A_shared)
                T.copy(B[k * block_K, bx * block_N], B_shared)
                T.gemm(A_shared, B_shared, C_local, policy=T.GemmWarpPolicy.Square)
            for i, j in T.Parallel(block_M, block_N):
                C_local[i, j] = T.max(C_local[i, j] + bias[bx * block_N + j], 0)
            T.copy(C_local, C[by * block_M, bx * block_N])

    return gemm_relu


def reference(a, b, bias):
    return torch.relu(a.float() @ b.float() + bias).half()


def main():
    kernel = matmul(160, 96, 128, 64, 32, 32)
    a, b, bias = torch.randn(160, 128).half(), torch.randn(128, 96).half(), torch.randn(96)
    torch.testing.assert_close(kernel(a, b, bias), reference(a, b, bias), rtol=1e-2, atol=1e-2)
    assert "target 'cuda'" in kernel.record.warnings[0].message
    assert len(kernel.get_kernel_source()) > 100

    profiler = kernel.get_profiler(tensor_supply_type=tilelang.TensorSupplyType.Normal)
    profiler.assert_allclose(reference, rtol=1e-2, atol=1e-2)
    assert profiler.do_bench(warmup=1, rep=1) > 0
    assert profiler.do_bench(reference, warmup=1, rep=1, backend="cupti") > 0


if __name__ == "__main__":
    main()
