"""TileLang's CPU target on the same product; run by cpu_gemm.py with TileLang's interpreter.

Its CPU target takes no fragments, so the accumulator is local, and it runs on one thread.
"""

from __future__ import annotations

import json
import time

import tilelang
import tilelang.language as T
import torch

SIZES = (512, 1024)
ROUNDS = 3
# Its own flags for the C compiler give less than 1 GFLOP/s.
FLAGS = ["-O3", "-march=native", "-ffast-math"]


def make_matmul(size: int, block_m: int = 128, block_n: int = 128, block_k: int = 32):
    @T.prim_func
    def matmul(
        A: T.Tensor((size, size), "float32"),
        B: T.Tensor((size, size), "float32"),
        C: T.Tensor((size, size), "float32"),
    ):
        with T.Kernel(T.ceildiv(size, block_n), T.ceildiv(size, block_m), threads=1) as (bx, by):
            A_local = T.alloc_local((block_m, block_k), "float32")
            B_local = T.alloc_local((block_k, block_n), "float32")
            C_local = T.alloc_local((block_m, block_n), "float32")
            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(size, block_k), num_stages=0):
                T.copy(A[by * block_m, k * block_k], A_local)
                T.copy(B[k * block_k, bx * block_n], B_local)
                T.gemm(A_local, B_local, C_local)
            T.copy(C_local, C[by * block_m, bx * block_n])

    return tilelang.compile(matmul, target="c", execution_backend="cython", compile_flags=FLAGS)


def measure(size: int) -> dict[str, object]:
    kernel = make_matmul(size)
    a, b, c = torch.randn(size, size), torch.randn(size, size), torch.empty(size, size)
    kernel(a, b, c)
    torch.testing.assert_close(c, a @ b, rtol=1e-3, atol=1e-2)
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        kernel(a, b, c)
        times.append(1e3 * (time.perf_counter() - start))
    return {"shape": (size, size, size), "threads": 1, "times": times}


if __name__ == "__main__":
    rows = [measure(size) for size in SIZES]
    how = f"target 'c' with {' '.join(FLAGS)}, T.gemm on local buffers, median of {ROUNDS} calls"
    print(json.dumps({"version": tilelang.__version__, "how": how, "rows": rows}))
