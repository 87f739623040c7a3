"""Products with norms, losses, sums or the largest of whole rows."""

from __future__ import annotations

from typing import Any

import tileworkbench.language as T
from cost.case import Case


def linear_norm(M: int, N: int, K: int, block_M: int, block_K: int) -> Any:
    """`layernorm(R + X @ W.T) * g + b`, X (M, K), W (N, K), R (M, N), g and b (N,), float32; a
    block has whole rows.
    """

    @T.prim_func
    def linear_norm(
        X: T.Tensor((M, K), "float32"),
        W: T.Tensor((N, K), "float32"),
        R: T.Tensor((M, N), "float32"),
        g: T.Tensor((N,), "float32"),
        b: T.Tensor((N,), "float32"),
    ):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            left = T.alloc_shared((block_M, block_K), "float32")
            right = T.alloc_shared((N, block_K), "float32")
            total = T.alloc_fragment((block_M, N), "float32")
            square = T.alloc_fragment((block_M, N), "float32")
            mean = T.alloc_fragment((block_M,), "float32")
            spread = T.alloc_fragment((block_M,), "float32")
            T.copy(R[bx * block_M, 0], total)
            for k in T.serial(T.ceildiv(K, block_K)):
                T.copy(X[bx * block_M, k * block_K], left)
                T.copy(W[0, k * block_K], right)
                T.gemm(left, right, total, transpose_B=True)
            T.reduce_sum(total, mean, dim=1)
            for i, j in T.Parallel(block_M, N):
                total[i, j] = total[i, j] - mean[i] / N
                square[i, j] = total[i, j] * total[i, j]
            T.reduce_sum(square, spread, dim=1)
            for i in T.Parallel(block_M):
                spread[i] = T.rsqrt(spread[i] / N + 1e-5)
            for i, j in T.Parallel(block_M, N):
                Y[bx * block_M + i, j] = total[i, j] * spread[i] * g[j] + b[j]
        return Y

    return linear_norm


def rms_linear(M: int, N: int, K: int, block_M: int, block_N: int, block_K: int) -> Any:
    """`(X / rms(X)) @ W.T` of X (M, K) and W (N, K), bfloat16: the squares of X are summed beside
    the product.
    """

    @T.prim_func
    def rms_linear(X: T.Tensor((M, K), "bfloat16"), W: T.Tensor((N, K), "bfloat16")):
        Y = T.empty((M, N), "bfloat16")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            x = T.alloc_shared((block_M, block_K), "bfloat16")
            w = T.alloc_shared((block_N, block_K), "bfloat16")
            square = T.alloc_fragment((block_M, block_K), "float32")
            squares = T.alloc_fragment((block_M,), "float32")
            total = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(squares)
            T.clear(total)
            for k in T.serial(T.ceildiv(K, block_K)):
                T.copy(X[by * block_M, k * block_K], x)
                T.copy(W[bx * block_N, k * block_K], w)
                T.gemm(x, w, total, transpose_B=True)
                for i, j in T.Parallel(block_M, block_K):
                    square[i, j] = T.cast(x[i, j], "float32") * T.cast(x[i, j], "float32")
                T.reduce_sum(square, squares, dim=1, clear=False)
            for i, j in T.Parallel(block_M, block_N):
                total[i, j] = total[i, j] * T.rsqrt(squares[i] / K + 1e-6)
            T.copy(total, Y[by * block_M, bx * block_N])
        return Y

    return rms_linear


def linear_entropy(M: int, N: int, K: int, block_M: int, block_N: int) -> Any:
    """Cross entropy of the rows of X @ W.T with y (M,), int32, of X (M, K) and W (N, K), bfloat16;
    the logits are made in pieces and never stored.
    """

    @T.prim_func
    def linear_entropy(
        X: T.Tensor((M, K), "bfloat16"), W: T.Tensor((N, K), "bfloat16"), y: T.Tensor((M,), "int32")
    ):
        loss = T.empty((M,), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            x = T.alloc_shared((block_M, K), "bfloat16")
            w = T.alloc_shared((block_N, K), "bfloat16")
            logits = T.alloc_fragment((block_M, block_N), "float32")
            product = T.alloc_fragment((block_M, K), "float32")
            most = T.alloc_fragment((block_M,), "float32")
            before = T.alloc_fragment((block_M,), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            wanted = T.alloc_fragment((block_M,), "float32")
            T.copy(X[bx * block_M, 0], x)
            T.fill(most, -1e30)
            T.clear(total)
            for n in T.serial(T.ceildiv(N, block_N)):
                T.copy(W[n * block_N, 0], w)
                T.gemm(x, w, logits, transpose_B=True, clear_accum=True)
                T.copy(most, before)
                T.reduce_max(logits, most, dim=1, clear=False)
                for i in T.Parallel(block_M):
                    total[i] = total[i] * T.exp(before[i] - most[i])
                for i, j in T.Parallel(block_M, block_N):
                    logits[i, j] = T.exp(logits[i, j] - most[i])
                T.reduce_sum(logits, total, dim=1, clear=False)
            for i, k in T.Parallel(block_M, K):
                weight = T.cast(W[y[bx * block_M + i], k], "float32")
                product[i, k] = T.cast(x[i, k], "float32") * weight
            T.reduce_sum(product, wanted, dim=1)
            for i in T.Parallel(block_M):
                loss[bx * block_M + i] = most[i] + T.log(total[i]) - wanted[i]
        return loss

    return linear_entropy


def two_experts(M: int, N: int, K: int, block_M: int, block_K: int) -> Any:
    """The places of the two largest of each row of `X @ W.T`, int32, and their softmax, of X (M, K)
    and W (N, K), float32.
    """

    @T.prim_func
    def two_experts(X: T.Tensor((M, K), "float32"), W: T.Tensor((N, K), "float32")):
        place, share = T.empty((M, 2), "int32"), T.empty((M, 2), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            left = T.alloc_shared((block_M, block_K), "float32")
            right = T.alloc_shared((N, block_K), "float32")
            total = T.alloc_fragment((block_M, N), "float32")
            column = T.alloc_fragment((block_M, N), "int32")
            most = T.alloc_fragment((2, block_M), "float32")
            first = T.alloc_fragment((2, block_M), "int32")
            value = T.alloc_fragment((block_M,), "float32")
            index = T.alloc_fragment((block_M,), "int32")
            T.clear(total)
            for k in T.serial(T.ceildiv(K, block_K)):
                T.copy(X[bx * block_M, k * block_K], left)
                T.copy(W[0, k * block_K], right)
                T.gemm(left, right, total, transpose_B=True)
            for n in T.serial(2):
                T.reduce_max(total, value, dim=1)
                for i, j in T.Parallel(block_M, N):
                    column[i, j] = T.if_then_else(total[i, j] == value[i], j, N)
                T.reduce_min(column, index, dim=1)
                for i, j in T.Parallel(block_M, N):
                    total[i, j] = T.if_then_else(j == index[i], -1e30, total[i, j])
                for i in T.Parallel(block_M):
                    most[n, i] = value[i]
                    first[n, i] = index[i]
            for i, n in T.Parallel(block_M, 2):
                place[bx * block_M + i, n] = first[n, i]
                share[bx * block_M + i, n] = T.sigmoid(most[n, i] - most[1 - n, i])
        return place, share

    return two_experts


def quadratic_forms(M: int, K: int, block_M: int, block_N: int, block_K: int) -> Any:
    """`x @ A @ x` of the rows x of X (M, K) with A (K, K), float32, some columns of A at a time."""

    @T.prim_func
    def quadratic_forms(X: T.Tensor((M, K), "float32"), A: T.Tensor((K, K), "float32")):
        y = T.empty((M,), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            left = T.alloc_shared((block_M, block_K), "float32")
            right = T.alloc_shared((block_K, block_N), "float32")
            total = T.alloc_fragment((block_M, block_N), "float32")
            form = T.alloc_fragment((block_M,), "float32")
            T.clear(form)
            for n in T.serial(T.ceildiv(K, block_N)):
                T.clear(total)
                for k in T.serial(T.ceildiv(K, block_K)):
                    T.copy(X[bx * block_M, k * block_K], left)
                    T.copy(A[k * block_K, n * block_N], right)
                    T.gemm(left, right, total)
                for i, j in T.Parallel(block_M, block_N):
                    total[i, j] = total[i, j] * X[bx * block_M + i, n * block_N + j]
                T.reduce_sum(total, form, dim=1, clear=False)
            T.copy(form, y[bx * block_M])
        return y

    return quadratic_forms


CASES = (
    Case(
        "linear and layer norm 512x256x320",
        linear_norm,
        {"M": 512, "N": 256, "K": 320},
        {"block_M": (1, 4, 16, 64, 512), "block_K": (8, 32, 80, 320)},
    ),
    Case(
        "rms norm and linear 224x512x640, bfloat16",
        rms_linear,
        {"M": 224, "N": 512, "K": 640},
        {"block_M": (1, 8, 32, 224), "block_N": (16, 128, 512), "block_K": (16, 128, 640)},
    ),
    Case(
        "linear and cross entropy 240x3000x120, bfloat16",
        linear_entropy,
        {"M": 240, "N": 3000, "K": 120},
        {"block_M": (1, 8, 40, 240), "block_N": (8, 40, 200, 1000, 3000)},
    ),
    Case(
        "two of 120 experts 640x768",
        two_experts,
        {"M": 640, "N": 120, "K": 768},
        {"block_M": (1, 4, 16, 80, 640), "block_K": (16, 96, 768)},
    ),
    Case(
        "quadratic forms of rows 500x360",
        quadratic_forms,
        {"M": 500, "K": 360},
        {"block_M": (1, 10, 100, 500), "block_N": (8, 60, 360), "block_K": (24, 360)},
    ),
)
