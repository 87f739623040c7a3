"""Weights of 4 bits in groups with a scale and a zero point each; bits of 2 in whole numbers."""

import tilelang.language as T
import torch
from tilelang import par_compile


def matmul_w4a16(M, N, K, group, dtype="float16", block_M=16, block_N=32, block_K=32):
    num_elems_per_byte = 2

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((N, K // num_elems_per_byte), "uint8"),
        Scale: T.Tensor((N, K // group), dtype),
        Zeros: T.Tensor((N, K // group), dtype),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_N, block_K // num_elems_per_byte), "uint8")
            B_local = T.alloc_fragment((block_N, block_K // num_elems_per_byte), "uint8")
            B_dequantize_local = T.alloc_fragment((block_N, block_K), dtype)
            B_dequantize_shared = T.alloc_shared((block_N, block_K), dtype)
            C_local = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(C_local)
            for ko in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
                T.copy(A[by * block_M, ko * block_K], A_shared)
                T.copy(B[bx * block_N, ko * block_K // num_elems_per_byte], B_shared)
                T.copy(B_shared, B_local)
                for i, j in T.Parallel(block_N, block_K):
                    code = (B_local[i, j // 2] >> (4 * (j % 2))) & 0xF
                    column = (ko * block_K + j) // group
                    B_dequantize_local[i, j] = (
                        T.cast(code, dtype) - Zeros[bx * block_N + i, column]
                    ) * Scale[bx * block_N + i, column]
                T.copy(B_dequantize_local, B_dequantize_shared)
                T.gemm(A_shared, B_dequantize_shared, C_local, transpose_B=True)
            T.copy(C_local, C[by * block_M, bx * block_N])

    return main


def matmul_w2a8(M, N, K, block_M=16, block_N=32, block_K=32):
    @T.macro
    def unpack(packed, values):
        for i, j in T.Parallel(block_N, block_K):
            bits = (packed[i, j // 4] >> (2 * (j % 4))).astype("int8") & T.int8(3)
            values[i, j] = bits - T.int8(2)

    @T.prim_func
    def main(
        A: T.Tensor((M, K), "int8"),
        B: T.Tensor((N, K // 4), "uint8"),
        C: T.Tensor((M, N), "int32"),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), "int8")
            B_packed = T.alloc_shared((block_N, block_K // 4), "uint8")
            B_shared = T.alloc_shared((block_N, block_K), "int8")
            C_local = T.alloc_fragment((block_M, block_N), "int32")
            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
                T.copy(A[by * block_M, k * block_K], A_shared)
                T.copy(B[bx * block_N, k * block_K // 4], B_packed)
                unpack(B_packed, B_shared)
                T.gemm(A_shared, B_shared, C_local, transpose_B=True)
            T.copy(C_local, C[by * block_M, bx * block_N])

    return main


def main(M=20, N=64, K=128, group=32):
    w4, w2 = par_compile([matmul_w4a16(M, N, K, group), matmul_w2a8(M, N, K)], out_idx=[-1])

    a = torch.randn(M, K).half()
    codes = torch.randint(0, 16, (N, K), dtype=torch.uint8)
    packed = codes[:, ::2] | codes[:, 1::2] << 4
    scale = (torch.rand(N, K // group) / 8).half()
    zeros = torch.randint(6, 10, (N, K // group)).half()
    wide = codes.float().unflatten(1, (-1, group)) - zeros.float()[..., None]
    wide = (wide * scale.float()[..., None]).flatten(1)
    profiler = w4.get_profiler()
    profiler.assert_allclose(
        lambda *_: (a.float() @ wide.T).half(), input_tensors=[a, packed, scale, zeros]
    )

    a = torch.randint(-128, 128, (M, K), dtype=torch.int8)
    codes = torch.randint(0, 4, (N, K), dtype=torch.uint8)
    packed = sum(codes[:, i::4] << 2 * i for i in range(4)).to(torch.uint8)
    assert torch.equal(w2(a, packed), (a.int() @ (codes.int() - 2).T).int())


if __name__ == "__main__":
    main()
