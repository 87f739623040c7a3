"""Products that the model has not been fitted to."""

from __future__ import annotations

from typing import Any

import tileworkbench.language as T
from cost.case import Case


def gated_unit(M: int, N: int, K: int, block_M: int, block_N: int, block_K: int) -> Any:
    """`(1 - z) * tanh(X @ W[2] + r * (H @ U[2])) + z * H`, r and z the sigmoids of `X @ W[i] + H @
    U[i]` for i = 0 and 1, of X (M, K), H (M, N), W (3, K, N) and U (3, N, N), float32 (a GRU).
    """

    @T.prim_func
    def gated_unit(
        X: T.Tensor((M, K), "float32"),
        H: T.Tensor((M, N), "float32"),
        W: T.Tensor((3, K, N), "float32"),
        U: T.Tensor((3, N, N), "float32"),
    ):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            left = T.alloc_shared((block_M, block_K), "float32")
            right = T.alloc_shared((block_K, block_N), "float32")
            reset = T.alloc_fragment((block_M, block_N), "float32")
            kept = T.alloc_fragment((block_M, block_N), "float32")
            new = T.alloc_fragment((block_M, block_N), "float32")
            old = T.alloc_fragment((block_M, block_N), "float32")
            for each in (reset, kept, new, old):
                T.clear(each)
            for k in T.serial(T.ceildiv(K, block_K)):
                T.copy(X[by * block_M, k * block_K], left)
                for gate, total in enumerate((reset, kept, new)):
                    T.copy(W[gate, k * block_K, bx * block_N], right)
                    T.gemm(left, right, total)
            for k in T.serial(T.ceildiv(N, block_K)):
                T.copy(H[by * block_M, k * block_K], left)
                for gate, total in enumerate((reset, kept, old)):
                    T.copy(U[gate, k * block_K, bx * block_N], right)
                    T.gemm(left, right, total)
            for i, j in T.Parallel(block_M, block_N):
                row, column = by * block_M + i, bx * block_N + j
                made = T.tanh(new[i, j] + T.sigmoid(reset[i, j]) * old[i, j])
                Y[row, column] = made + T.sigmoid(kept[i, j]) * (H[row, column] - made)
        return Y

    return gated_unit


def basis_layer(M: int, N: int, K: int, G: int, block_M: int, block_N: int, block_K: int) -> Any:
    """`sum(exp(-(X - c[g])**2) @ W[g] for g in range(G))` of X (M, K) and W (G, K, N), bfloat16,
    and c (G,), float32, as float32 (M, N): a layer that learns functions of each input.
    """

    @T.prim_func
    def basis_layer(
        X: T.Tensor((M, K), "bfloat16"),
        c: T.Tensor((G,), "float32"),
        W: T.Tensor((G, K, N), "bfloat16"),
    ):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            basis = T.alloc_shared((block_M, block_K), "bfloat16")
            weights = T.alloc_shared((block_K, block_N), "bfloat16")
            total = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(total)
            for k, g in T.grid(T.ceildiv(K, block_K), G):
                for i, j in T.Parallel(block_M, block_K):
                    x = T.cast(X[by * block_M + i, k * block_K + j], "float32")
                    basis[i, j] = T.exp(-(x - c[g]) * (x - c[g]))
                T.copy(W[g, k * block_K, bx * block_N], weights)
                T.gemm(basis, weights, total)
            T.copy(total, Y[by * block_M, bx * block_N])
        return Y

    return basis_layer


def rotated_bytes(M: int, D: int, block_M: int, block_K: int) -> Any:
    """The rows of `X @ R` of X (M, D) and R (D, D), float16, as int8 with a scale of `max(|x|) /
    127` each, (M,), float32.
    """

    @T.prim_func
    def rotated_bytes(X: T.Tensor((M, D), "float16"), R: T.Tensor((D, D), "float16")):
        Q, scale = T.empty((M, D), "int8"), T.empty((M,), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            rows = T.alloc_shared((block_M, block_K), "float16")
            turn = T.alloc_shared((block_K, D), "float16")
            total = T.alloc_fragment((block_M, D), "float32")
            most = T.alloc_fragment((block_M,), "float32")
            T.clear(total)
            for k in T.serial(T.ceildiv(D, block_K)):
                T.copy(X[bx * block_M, k * block_K], rows)
                T.copy(R[k * block_K, 0], turn)
                T.gemm(rows, turn, total)
            T.reduce_absmax(total, most, dim=1)
            for i in T.Parallel(block_M):
                scale[bx * block_M + i] = most[i] / 127.0
                most[i] = 127.0 / most[i]
            for i, j in T.Parallel(block_M, D):
                Q[bx * block_M + i, j] = T.cast(T.round(total[i, j] * most[i]), "int8")
        return Q, scale

    return rotated_bytes


CASES: tuple[Case, ...] = (
    Case(
        "gated unit 50x240x120",
        gated_unit,
        {"M": 50, "N": 240, "K": 120},
        {"block_M": (1, 5, 50), "block_N": (8, 48, 240), "block_K": (8, 40, 120)},
    ),
    Case(
        "layer of bases 100x180x72, 8 of each, bfloat16",
        basis_layer,
        {"M": 100, "N": 180, "K": 72, "G": 8},
        {"block_M": (1, 10, 100), "block_N": (12, 60, 180), "block_K": (8, 24, 72)},
    ),
    Case(
        "turned rows to int8 800x120, float16",
        rotated_bytes,
        {"M": 800, "D": 120},
        {"block_M": (1, 8, 40, 200, 800), "block_K": (8, 24, 60, 120)},
    ),
)
