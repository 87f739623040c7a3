"""One compiled product for every size, a variant per pass configuration, and an eager kernel."""

import tilelang
import tilelang.language as T
import torch

tilelang.disable_cache()


@tilelang.jit(
    pass_configs={
        tilelang.PassConfigKey.TL_DISABLE_DYNAMIC_TAIL_SPLIT: True,
        tilelang.PassConfigKey.TL_DYNAMIC_ALIGNMENT: 8,
    }
)
def matmul_dynamic(
    block_M,
    block_N,
    block_K,
    trans_A,
    trans_B,
    in_dtype,
    out_dtype,
    accum_dtype,
    num_stages,
    threads,
):
    M = T.dynamic("m")
    N = T.dynamic("n")
    K = T.dynamic("k")
    A_shape = (K, M) if trans_A else (M, K)
    B_shape = (N, K) if trans_B else (K, N)
    A_shared_shape = (block_K, block_M) if trans_A else (block_M, block_K)
    B_shared_shape = (block_N, block_K) if trans_B else (block_K, block_N)

    @T.prim_func
    def dynamic_matmul(
        A: T.Tensor(A_shape, in_dtype),
        B: T.Tensor(B_shape, in_dtype),
        C: T.Tensor((M, N), out_dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            A_shared = T.alloc_shared(A_shared_shape, in_dtype)
            B_shared = T.alloc_shared(B_shared_shape, in_dtype)
            C_local = T.alloc_fragment((block_M, block_N), accum_dtype)
            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                if trans_A:
                    T.copy(A[k * block_K, by * block_M], A_shared)
                else:
                    T.copy(A[by * block_M, k * block_K], A_shared)
                if trans_B:
                    T.copy(B[bx * block_N, k * block_K], B_shared)
                else:
                    T.copy(B[k * block_K, bx * block_N], B_shared)
                T.gemm(A_shared, B_shared, C_local, trans_A, trans_B)
            T.copy(C_local, C[by * block_M, bx * block_N])

    return dynamic_matmul


@tilelang.jit
def add_relu(A, B, block: int = 32):
    M, N = T.const("M, N")
    A: T.Tensor[[M, N], T.float32]
    B: T.Tensor[[M, N], T.float32]
    C = T.empty((M, N), T.float32)
    with T.Kernel(T.ceildiv(N, block), T.ceildiv(M, block), threads=128) as (bx, by):
        for i, j in T.Parallel(block, block):
            value = A[by * block + i, bx * block + j] + B[by * block + i, bx * block + j]
            C[by * block + i, bx * block + j] = T.max(value, 0.0)
    return C


def main():
    for trans_A, trans_B in ((False, False), (True, False), (False, True)):
        kernel = matmul_dynamic(
            32, 32, 16, trans_A, trans_B, "float16", "float32", "float32", 2, 128
        )
        for M, N, K in ((64, 64, 64), (33, 70, 25), (1, 5, 7)):
            a, b = torch.randn(M, K).half(), torch.randn(K, N).half()
            c = torch.empty(M, N)
            kernel(a.T.contiguous() if trans_A else a, b.T.contiguous() if trans_B else b, c)
            torch.testing.assert_close(c, a.float() @ b.float(), rtol=1e-2, atol=1e-2)
    profiler = kernel.get_profiler(tensor_supply_type=tilelang.TensorSupplyType.Normal)
    latency = profiler.do_bench(
        warmup=1, rep=1, dynamic_symbolic_constraints={"m": 32, "n": 32, "k": 32}
    )
    assert latency > 0
    a, b = torch.randn(50, 70), torch.randn(50, 70)
    torch.testing.assert_close(add_relu(a, b), torch.relu(a + b))
    kernel = add_relu.compile(M=50, N=70, block=16)
    torch.testing.assert_close(kernel(a, b), torch.relu(a + b))


if __name__ == "__main__":
    main()
