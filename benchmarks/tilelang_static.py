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


def weighted():
    """(A @ W.T).T, for weights that come from registers are the first operand of a product."""
    m, n, k, group = 128, 128, 64, 128

    @T.prim_func
    def weighted(
        A: T.Tensor((SIZE, SIZE), "float16"),
        B: T.Tensor((SIZE, SIZE // 2), "uint8"),
        S: T.Tensor((SIZE, SIZE // group), "float16"),
        C: T.Tensor((SIZE, SIZE), "float16"),
    ):
        with T.Kernel(SIZE // n, SIZE // m, threads=128) as (bx, by):
            A_shared = T.alloc_shared((m, k), "float16")
            B_shared = T.alloc_shared((n, k // 2), "uint8")
            W_local = T.alloc_fragment((n, k), "float16")
            C_local = T.alloc_fragment((n, m), "float32")
            T.clear(C_local)
            for ko in T.Pipelined(SIZE // k, num_stages=2):
                T.copy(A[by * m, ko * k], A_shared)
                T.copy(B[bx * n, ko * k // 2], B_shared)
                for i, j in T.Parallel(n, k):
                    code = (B_shared[i, j // 2].astype("int32") >> (j % 2 * 4)) & 15
                    scale = S[bx * n + i, (ko * k + j) // group]
                    W_local[i, j] = ((code ^ 8) - 8).astype("float16") * scale
                T.gemm(W_local, A_shared, C_local, transpose_B=True)
            for i, j in T.Parallel(n, m):
                C[by * m + j, bx * n + i] = C_local[i, j]

    return weighted


def weighted_shared():
    m, n, k = 128, 128, 64

    @T.prim_func
    def weighted_shared(
        A: T.Tensor((SIZE, SIZE), "float16"),
        B: T.Tensor((SIZE, SIZE // 2), "uint8"),
        C: T.Tensor((SIZE, SIZE), "float16"),
    ):
        with T.Kernel(SIZE // n, SIZE // m, threads=128) as (bx, by):
            A_shared = T.alloc_shared((m, k), "float16")
            B_shared = T.alloc_shared((n, k // 2), "uint8")
            W_shared = T.alloc_shared((n, k), "float16")
            C_local = T.alloc_fragment((m, n), "float32")
            T.clear(C_local)
            for ko in T.Pipelined(SIZE // k, num_stages=2):
                T.copy(A[by * m, ko * k], A_shared)
                T.copy(B[bx * n, ko * k // 2], B_shared)
                for i, j in T.Parallel(n, k):
                    code = (B_shared[i, j // 2].astype("int32") >> (j % 2 * 4)) & 15
                    W_shared[i, j] = (code - 8).astype("float16")
                T.gemm(A_shared, W_shared, C_local, transpose_B=True)
            T.copy(C_local, C[by * m, bx * n])

    return weighted_shared


def decoded():
    """MLA: 64 of 128 query heads that share one key head, 32 keys for a step."""
    batch, heads, m, n, dim, turned = 16, 128, 64, 32, 512, 64
    scale = 1.44269504 / math.sqrt(dim + turned)

    @T.prim_func
    def decoded(
        Q: T.Tensor((batch, heads, dim), "float16"),
        Q_pe: T.Tensor((batch, heads, turned), "float16"),
        KV: T.Tensor((batch, SIZE, 1, dim), "float16"),
        K_pe: T.Tensor((batch, SIZE, 1, turned), "float16"),
        O: T.Tensor((batch, heads, dim), "float16"),  # noqa: E741
    ):
        with T.Kernel(batch, heads // m, threads=256) as (bx, by):
            Q_shared = T.alloc_shared((m, dim), "float16")
            Q_pe_shared = T.alloc_shared((m, turned), "float16")
            KV_shared = T.alloc_shared((n, dim), "float16")
            K_pe_shared = T.alloc_shared((n, turned), "float16")
            S_shared = T.alloc_shared((m, n), "float16")
            S = T.alloc_fragment((m, n), "float32")
            total = T.alloc_fragment((m, dim), "float32")
            top = T.alloc_fragment((m,), "float32")
            before = T.alloc_fragment((m,), "float32")
            rescale = T.alloc_fragment((m,), "float32")
            part = T.alloc_fragment((m,), "float32")
            weight = T.alloc_fragment((m,), "float32")
            T.use_swizzle(10)
            T.copy(Q[bx, by * m : (by + 1) * m, :], Q_shared)
            T.copy(Q_pe[bx, by * m : (by + 1) * m, :], Q_pe_shared)
            T.fill(total, 0)
            T.fill(weight, 0)
            T.fill(top, -T.infinity("float32"))
            for k in T.Pipelined(SIZE // n, num_stages=2):
                T.copy(KV[bx, k * n : (k + 1) * n, 0, :], KV_shared)
                T.copy(K_pe[bx, k * n : (k + 1) * n, 0, :], K_pe_shared)
                T.clear(S)
                by_columns = T.GemmWarpPolicy.FullCol
                T.gemm(Q_shared, KV_shared, S, transpose_B=True, policy=by_columns)
                T.gemm(Q_pe_shared, K_pe_shared, S, transpose_B=True, policy=by_columns)
                T.copy(top, before)
                T.reduce_max(S, top, dim=1, clear=False)
                for i in T.Parallel(m):
                    rescale[i] = T.exp2(before[i] * scale - top[i] * scale)
                for i, j in T.Parallel(m, n):
                    S[i, j] = T.exp2(S[i, j] * scale - top[i] * scale)
                T.reduce_sum(S, part, dim=1)
                T.copy(S, S_shared)
                for i in T.Parallel(m):
                    weight[i] = weight[i] * rescale[i] + part[i]
                for i, j in T.Parallel(m, dim):
                    total[i, j] *= rescale[i]
                T.gemm(S_shared, KV_shared, total, policy=by_columns)
            for i, j in T.Parallel(m, dim):
                total[i, j] /= weight[i]
            T.copy(total, O[bx, by * m : (by + 1) * m, :])

    return decoded


def scanned():
    """Mamba-2's chunk scan: 2 batches of 16 chunks of 256 steps, 64 heads of 64, states of 128."""
    batch, chunks, size, heads, dim, states_of, tile = 2, 16, 256, 64, 64, 128, 64

    @T.prim_func
    def scanned(
        CB: T.Tensor((batch, chunks, 1, size, size), "float16"),
        X: T.Tensor((batch, chunks * size, heads, dim), "float16"),
        dt: T.Tensor((batch, heads, chunks, size), "float32"),
        decay: T.Tensor((batch, heads, chunks, size), "float32"),
        C: T.Tensor((batch, chunks * size, 1, states_of), "float16"),
        states: T.Tensor((batch, chunks, heads, dim, states_of), "float16"),
        D: T.Tensor((heads,), "float16"),
        Y: T.Tensor((batch, chunks * size, heads, dim), "float16"),
    ):
        with T.Kernel(size // tile, batch * chunks, heads, threads=128) as (part, bc, h):
            C_shared = T.alloc_shared((tile, states_of), "float16")
            states_shared = T.alloc_shared((dim, states_of), "float16")
            CB_shared = T.alloc_shared((tile, tile), "float16")
            X_shared = T.alloc_shared((tile, dim), "float16")
            weighted = T.alloc_fragment((tile, tile), "float16")
            decay_m = T.alloc_fragment((tile,), "float32")
            decay_k = T.alloc_shared((tile,), "float32")
            dt_k = T.alloc_shared((tile,), "float32")
            total = T.alloc_fragment((tile, dim), "float32")
            b = bc // chunks
            c = bc % chunks
            m = part * tile
            row = c * size + m
            T.copy(decay[b, h, c, m : m + tile], decay_m)
            T.copy(C[b, row : row + tile, 0, :], C_shared)
            T.copy(states[b, c, h, :, :], states_shared)
            T.clear(total)
            by_rows = T.GemmWarpPolicy.FullRow
            T.gemm(C_shared, states_shared, total, transpose_B=True, policy=by_rows)
            for i, j in T.Parallel(tile, dim):
                total[i, j] *= T.exp2(decay_m[i] * 1.44269504)
            for k in T.Pipelined(part + 1, num_stages=2):
                T.copy(CB[b, c, 0, m : m + tile, k * tile : (k + 1) * tile], CB_shared)
                T.copy(decay[b, h, c, k * tile : (k + 1) * tile], decay_k)
                T.copy(dt[b, h, c, k * tile : (k + 1) * tile], dt_k)
                for i, j in T.Parallel(tile, tile):
                    grown = T.exp2((decay_m[i] - decay_k[j]) * 1.44269504)
                    weight = CB_shared[i, j].astype("float32") * grown * dt_k[j]
                    weighted[i, j] = T.if_then_else(k * tile + j <= m + i, weight, T.float32(0))
                first = c * size + k * tile
                T.copy(X[b, first : first + tile, h, :], X_shared)
                T.gemm(weighted, X_shared, total, policy=by_rows)
            for i, j in T.Parallel(tile, dim):
                Y[b, row + i, h, j] = total[i, j] + D[h] * X[b, row + i, h, j]

    return scanned


def rmsnorm():
    @T.prim_func
    def rmsnorm(
        X: T.Tensor((SIZE, SIZE), "float16"),
        W: T.Tensor((SIZE,), "float16"),
        Y: T.Tensor((SIZE, SIZE), "float16"),
    ):
        with T.Kernel(SIZE, threads=128) as bx:
            row = T.alloc_fragment((1, SIZE), "float32")
            squares = T.alloc_fragment((1, SIZE), "float32")
            scale = T.alloc_fragment((1,), "float32")
            T.copy(X[bx : bx + 1, :], row)
            for i, j in T.Parallel(1, SIZE):
                squares[i, j] = row[i, j] * row[i, j]
            T.reduce_sum(squares, scale, dim=1)
            for i in T.Parallel(1):
                scale[i] = T.rsqrt(scale[i] / SIZE + 1e-6)
            for i, j in T.Parallel(1, SIZE):
                row[i, j] = row[i, j] * scale[i] * W[j]
            T.copy(row, Y[bx : bx + 1, :])

    return rmsnorm


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
    "dequant int4 128x128x64, 128 threads": weighted,
    "the same, through shared memory, no scales": weighted_shared,
    "MLA decode": decoded,
    "chunk scan": scanned,
    "rmsnorm, rows of 4096": rmsnorm,
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
