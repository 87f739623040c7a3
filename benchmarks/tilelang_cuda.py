"""TileLang's way to CUDA text for the same kernels; run by compile_latency.py with the interpreter
that has TileLang. No GPU is needed.
"""

import json
import math
import time

start = time.perf_counter()
import tilelang  # noqa: E402
import tilelang.language as T  # noqa: E402

imported = 1e3 * (time.perf_counter() - start)
SIZE, DIM, HEADS, BLOCK = 1024, 64, 8, 64


def make_matmul():
    @T.prim_func
    def matmul(
        A: T.Tensor((SIZE, SIZE), "float16"),
        B: T.Tensor((SIZE, SIZE), "float16"),
        C: T.Tensor((SIZE, SIZE), "float32"),
    ):
        with T.Kernel(SIZE // 128, SIZE // 128, threads=128) as (bx, by):
            A_shared = T.alloc_shared((128, 32), "float16")
            B_shared = T.alloc_shared((32, 128), "float16")
            C_local = T.alloc_fragment((128, 128), "float32")
            T.clear(C_local)
            for k in T.Pipelined(SIZE // 32, num_stages=3):
                T.copy(A[by * 128, k * 32], A_shared)
                T.copy(B[k * 32, bx * 128], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            T.copy(C_local, C[by * 128, bx * 128])

    return matmul


def make_attention():
    shape, scale = (1, SIZE, HEADS, DIM), 1.44269504 / math.sqrt(DIM)

    @T.prim_func
    def attention(
        Q: T.Tensor(shape, "float16"),
        K: T.Tensor(shape, "float16"),
        V: T.Tensor(shape, "float16"),
        O: T.Tensor(shape, "float16"),  # noqa: E741
    ):
        with T.Kernel(SIZE // BLOCK, HEADS, 1, threads=128) as (bx, h, b):
            Q_shared = T.alloc_shared((BLOCK, DIM), "float16")
            K_shared = T.alloc_shared((BLOCK, DIM), "float16")
            V_shared = T.alloc_shared((BLOCK, DIM), "float16")
            S = T.alloc_fragment((BLOCK, BLOCK), "float32")
            P = T.alloc_fragment((BLOCK, BLOCK), "float16")
            total = T.alloc_fragment((BLOCK, DIM), "float32")
            top = T.alloc_fragment((BLOCK,), "float32")
            before = T.alloc_fragment((BLOCK,), "float32")
            rescale = T.alloc_fragment((BLOCK,), "float32")
            part = T.alloc_fragment((BLOCK,), "float32")
            weight = T.alloc_fragment((BLOCK,), "float32")
            T.copy(Q[b, bx * BLOCK : (bx + 1) * BLOCK, h, :], Q_shared)
            T.fill(total, 0)
            T.fill(weight, 0)
            T.fill(top, -T.infinity("float32"))
            for k in T.Pipelined(SIZE // BLOCK, num_stages=2):
                T.copy(K[b, k * BLOCK : (k + 1) * BLOCK, h, :], K_shared)
                T.clear(S)
                policy = T.GemmWarpPolicy.FullRow
                T.gemm(Q_shared, K_shared, S, transpose_B=True, policy=policy)
                T.copy(top, before)
                T.reduce_max(S, top, dim=1, clear=False)
                for i in T.Parallel(BLOCK):
                    rescale[i] = T.exp2(before[i] * scale - top[i] * scale)
                for i, j in T.Parallel(BLOCK, BLOCK):
                    S[i, j] = T.exp2(S[i, j] * scale - top[i] * scale)
                T.reduce_sum(S, part, dim=1)
                for i in T.Parallel(BLOCK):
                    weight[i] = weight[i] * rescale[i] + part[i]
                T.copy(S, P)
                for i, j in T.Parallel(BLOCK, DIM):
                    total[i, j] *= rescale[i]
                T.copy(V[b, k * BLOCK : (k + 1) * BLOCK, h, :], V_shared)
                T.gemm(P, V_shared, total, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(BLOCK, DIM):
                total[i, j] /= weight[i]
            T.copy(total, O[b, bx * BLOCK : (bx + 1) * BLOCK, h, :])

    return attention


def lowered_ms(make, arch="sm_80") -> float:
    """Tracing and lowering to CUDA text."""
    begin = time.perf_counter()
    with tilelang.tvm.target.Target({"kind": "cuda", "arch": arch}) as target:
        artifact = tilelang.lower(
            make(), target=target, enable_host_codegen=False, enable_device_compile=False
        )
    taken = 1e3 * (time.perf_counter() - begin)
    if "__global__" not in str(artifact.kernel_source):
        raise RuntimeError("no CUDA text came out")
    return taken


if __name__ == "__main__":
    found = {
        "TileLang: import": imported,
        "TileLang, sm_80: matmul to CUDA text, first in the process": lowered_ms(make_matmul),
        "TileLang, sm_80: matmul to CUDA text, again": lowered_ms(make_matmul),
        "TileLang, sm_80: attention to CUDA text": lowered_ms(make_attention),
        "TileLang, sm_90a: matmul to CUDA text": lowered_ms(make_matmul, "sm_90a"),
        "TileLang, sm_90a: attention to CUDA text": lowered_ms(make_attention, "sm_90a"),
        "version": tilelang.__version__,
    }
    print(json.dumps(found))
