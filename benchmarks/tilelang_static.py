"""TileLang's CUDA text for rows of gpu_static.py, which runs this with the interpreter that has
TileLang: ``tilelang_static.py FOLDER ARCH...``. No GPU is needed.
"""

import json
import math
import sys
from pathlib import Path

import tilelang
import tilelang.language as T

SIZE, HEADS = 4096, 16


def product(tile, threads, dtype="float16", transposed=False):
    m, n, k = tile
    total, out = ("int32", "int32") if dtype == "int8" else ("float32", dtype)
    out = "float32" if dtype == "float8_e4m3" else out
    shape_b, box_b = ((SIZE, SIZE), (n, k)) if transposed else ((SIZE, SIZE), (k, n))

    @T.prim_func
    def matmul(
        A: T.Tensor((SIZE, SIZE), dtype),
        B: T.Tensor(shape_b, dtype),
        C: T.Tensor((SIZE, SIZE), out),
    ):
        with T.Kernel(SIZE // n, SIZE // m, threads=threads) as (bx, by):
            A_shared = T.alloc_shared((m, k), dtype)
            B_shared = T.alloc_shared(box_b, dtype)
            C_local = T.alloc_fragment((m, n), total)
            T.clear(C_local)
            for ko in T.Pipelined(SIZE // k, num_stages=3):
                T.copy(A[by * m, ko * k], A_shared)
                if transposed:
                    T.copy(B[bx * n, ko * k], B_shared)
                else:
                    T.copy(B[ko * k, bx * n], B_shared)
                T.gemm(A_shared, B_shared, C_local, transpose_B=transposed)
            T.copy(C_local, C[by * m, bx * n])

    return matmul


def attended(dim, m, n, threads):
    shape, scale = (1, SIZE, HEADS, dim), 1.44269504 / math.sqrt(dim)

    @T.prim_func
    def attention(
        Q: T.Tensor(shape, "float16"),
        K: T.Tensor(shape, "float16"),
        V: T.Tensor(shape, "float16"),
        O: T.Tensor(shape, "float16"),  # noqa: E741
    ):
        with T.Kernel(SIZE // m, HEADS, 1, threads=threads) as (bx, h, b):
            Q_shared = T.alloc_shared((m, dim), "float16")
            K_shared = T.alloc_shared((n, dim), "float16")
            V_shared = T.alloc_shared((n, dim), "float16")
            S = T.alloc_fragment((m, n), "float32")
            P = T.alloc_fragment((m, n), "float16")
            total = T.alloc_fragment((m, dim), "float32")
            top = T.alloc_fragment((m,), "float32")
            before = T.alloc_fragment((m,), "float32")
            rescale = T.alloc_fragment((m,), "float32")
            part = T.alloc_fragment((m,), "float32")
            weight = T.alloc_fragment((m,), "float32")
            T.copy(Q[b, bx * m : (bx + 1) * m, h, :], Q_shared)
            T.fill(total, 0)
            T.fill(weight, 0)
            T.fill(top, -T.infinity("float32"))
            for k in T.Pipelined(SIZE // n, num_stages=2):
                T.copy(K[b, k * n : (k + 1) * n, h, :], K_shared)
                T.clear(S)
                T.gemm(Q_shared, K_shared, S, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                T.copy(top, before)
                T.reduce_max(S, top, dim=1, clear=False)
                for i in T.Parallel(m):
                    rescale[i] = T.exp2(before[i] * scale - top[i] * scale)
                for i, j in T.Parallel(m, n):
                    S[i, j] = T.exp2(S[i, j] * scale - top[i] * scale)
                T.reduce_sum(S, part, dim=1)
                for i in T.Parallel(m):
                    weight[i] = weight[i] * rescale[i] + part[i]
                T.copy(S, P)
                for i, j in T.Parallel(m, dim):
                    total[i, j] *= rescale[i]
                T.copy(V[b, k * n : (k + 1) * n, h, :], V_shared)
                T.gemm(P, V_shared, total, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(m, dim):
                total[i, j] /= weight[i]
            T.copy(total, O[b, bx * m : (bx + 1) * m, h, :])

    return attention


def softmax():
    @T.prim_func
    def softmax(X: T.Tensor((SIZE, SIZE), "float16"), Y: T.Tensor((SIZE, SIZE), "float16")):
        with T.Kernel(SIZE, threads=128) as bx:
            row = T.alloc_fragment((1, SIZE), "float32")
            top = T.alloc_fragment((1,), "float32")
            total = T.alloc_fragment((1,), "float32")
            T.copy(X[bx : bx + 1, :], row)
            T.reduce_max(row, top, dim=1)
            for i, j in T.Parallel(1, SIZE):
                row[i, j] = T.exp(row[i, j] - top[i])
            T.reduce_sum(row, total, dim=1)
            for i, j in T.Parallel(1, SIZE):
                row[i, j] = row[i, j] / total[i]
            T.copy(row, Y[bx : bx + 1, :])

    return softmax


ROWS = {
    "matmul fp16 128x128x32, 128 threads": lambda: product((128, 128, 32), 128),
    "matmul fp16 128x128x64, 128 threads": lambda: product((128, 128, 64), 128),
    "matmul fp16 128x256x64, 256 threads": lambda: product((128, 256, 64), 256),
    "matmul int8 128x128x64, 128 threads": lambda: product((128, 128, 64), 128, "int8"),
    "matmul int8, B transposed": lambda: product((128, 128, 64), 128, "int8", True),
    "matmul fp8, B transposed": lambda: product((128, 128, 64), 128, "float8_e4m3", True),
    "attention D=64 128x128, 256 threads": lambda: attended(64, 128, 128, 256),
    "attention D=128 128x128, 256 threads": lambda: attended(128, 128, 128, 256),
    "attention D=128 128x64, 128 threads": lambda: attended(128, 128, 64, 128),
    "softmax, rows of 4096": softmax,
}


def main():
    folder, archs = Path(sys.argv[1]), sys.argv[2:]
    kernels = []
    for row, make in ROWS.items():
        for arch in archs:
            try:
                with tilelang.tvm.target.Target({"kind": "cuda", "arch": arch}) as target:
                    artifact = tilelang.lower(
                        make(),
                        target=target,
                        enable_host_codegen=False,
                        enable_device_compile=False,
                    )
            except Exception as error:  # a row less; the table shows that it is missing
                print(f"TileLang, {row}, {arch}: {error!r}"[:300], file=sys.stderr)
                continue
            name = f"{len(kernels)}.cu"
            # What TileLang puts above its text where NVRTC compiles it.
            head = "#include <tl_templates/cuda/nvrtc_std.h>\n"
            (folder / name).write_text(head + str(artifact.kernel_source))
            (function,) = artifact.device_mod.functions.values()
            taken = {
                "shared": int(function.attrs.get("dyn_shared_memory_buf", 0)),
                "threads": int(function.attrs["thread_extent"]["threadIdx.x"]),
            }
            kernels.append({"row": row, "arch": arch, "file": name, **taken})
    root = Path(tilelang.__file__).parent
    headers = root.parent / "nvidia/cu13/include"  # of nvidia-cuda-runtime, -cccl and -crt
    includes = [root / "src", root / "3rdparty/cutlass/include", headers, headers / "cccl"]
    found = {
        "kernels": kernels,
        "includes": [str(path) for path in includes],
        "options": ["-default-device"],
        "version": tilelang.__version__,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
