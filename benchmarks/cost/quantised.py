"""Numbers of few bits: to and from them, and products with them."""

from __future__ import annotations

from typing import Any

import tileworkbench.language as T
from cost.case import ELEMENTS, ROWS, SMALL_PRODUCTS, Case
from tileworkbench import kernels


def quantise(M: int, N: int, block_M: int = 1) -> Any:
    """Rows of an (M, N) float32 matrix as int8 with a scale of `max(|x|) / 127` each."""

    @T.prim_func
    def quantise(X: T.Tensor((M, N), "float32")):
        Q = T.empty((M, N), "int8")
        scale = T.empty((M,), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            tile = T.alloc_fragment((block_M, N), "float32")
            most = T.alloc_fragment((block_M,), "float32")
            factor = T.alloc_fragment((block_M,), "float32")
            T.copy(X[bx * block_M, 0], tile)
            T.reduce_absmax(tile, most, dim=1)
            for i in T.Parallel(block_M):
                factor[i] = 127.0 / most[i]
                scale[bx * block_M + i] = most[i] / 127.0
            for i, j in T.Parallel(block_M, N):
                Q[bx * block_M + i, j] = T.cast(T.round(tile[i, j] * factor[i]), "int8")
        return Q, scale

    return quantise


def dequantise(M: int, N: int, block_M: int = 1, block_N: int = 512) -> Any:
    """`Y[i, j] = (Q[i, j] - zero[i]) * scale[i]`: int8 to float32, (M, N)."""

    @T.prim_func
    def dequantise(
        Q: T.Tensor((M, N), "int8"),
        scale: T.Tensor((M,), "float32"),
        zero: T.Tensor((M,), "float32"),
    ):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            for i, j in T.Parallel(block_M, block_N):
                row, column = by * block_M + i, bx * block_N + j
                Y[row, column] = (T.cast(Q[row, column], "float32") - zero[row]) * scale[row]
        return Y

    return dequantise


def scaled_bytes_product(M: int, N: int, K: int, block_M: int, block_N: int, block_K: int) -> Any:
    """`(s * A) @ B` of A (M, K) of int8, s (M,) and B (K, N) of float32."""

    @T.prim_func
    def scaled_bytes_product(
        A: T.Tensor((M, K), "int8"),
        s: T.Tensor((M,), "float32"),
        B: T.Tensor((K, N), "float32"),
    ):
        C = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            left = T.alloc_shared((block_M, block_K), "float32")
            right = T.alloc_shared((block_K, block_N), "float32")
            total = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(total)
            for k in T.serial(T.ceildiv(K, block_K)):
                for i, j in T.Parallel(block_M, block_K):
                    left[i, j] = T.cast(A[by * block_M + i, k * block_K + j], "float32")
                T.copy(B[k * block_K, bx * block_N], right)
                T.gemm(left, right, total)
            for i, j in T.Parallel(block_M, block_N):
                total[i, j] = total[i, j] * s[by * block_M + i]
            T.copy(total, C[by * block_M, bx * block_N])
        return C

    return scaled_bytes_product


def group_bytes(M: int, N: int, K: int, G: int, block_M: int, block_N: int, block_K: int) -> Any:
    """`X @ (Q * s).T`, X (M, K) float32, Q (N, K) int8, s (N, K // G) of G columns, float32."""

    @T.prim_func
    def group_bytes(
        X: T.Tensor((M, K), "float32"),
        Q: T.Tensor((N, K), "int8"),
        s: T.Tensor((N, K // G), "float32"),
    ):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            left = T.alloc_shared((block_M, block_K), "float32")
            right = T.alloc_shared((block_N, block_K), "float32")
            total = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(total)
            for k in T.serial(T.ceildiv(K, block_K)):
                T.copy(X[by * block_M, k * block_K], left)
                for i, j in T.Parallel(block_N, block_K):
                    row, column = bx * block_N + i, k * block_K + j
                    right[i, j] = T.cast(Q[row, column], "float32") * s[row, column // G]
                T.gemm(left, right, total, transpose_B=True)
            T.copy(total, Y[by * block_M, bx * block_N])
        return Y

    return group_bytes


def code_book(M: int, N: int, K: int, G: int, block_M: int, block_N: int, block_K: int) -> Any:
    """`X @ (book[Q] * s).T`, X (M, K) float32, Q (N, K) uint8 below 16, book (16,) and s (N, K //
    G) of groups of G columns, float32.
    """

    @T.prim_func
    def code_book(
        X: T.Tensor((M, K), "float32"),
        Q: T.Tensor((N, K), "uint8"),
        book: T.Tensor((16,), "float32"),
        s: T.Tensor((N, K // G), "float32"),
    ):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            left = T.alloc_shared((block_M, block_K), "float32")
            right = T.alloc_shared((block_N, block_K), "float32")
            total = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(total)
            for k in T.serial(T.ceildiv(K, block_K)):
                T.copy(X[by * block_M, k * block_K], left)
                for i, j in T.Parallel(block_N, block_K):
                    row, column = bx * block_N + i, k * block_K + j
                    code = T.cast(Q[row, column], "int32")
                    right[i, j] = book[code] * s[row, column // G]
                T.gemm(left, right, total, transpose_B=True)
            T.copy(total, Y[by * block_M, bx * block_N])
        return Y

    return code_book


def bytes_linear(M: int, N: int, K: int, block_M: int, block_N: int, block_K: int) -> Any:
    """`(A @ W.T) * s[:, None] * t + b` of A (M, K) and W (N, K), int8, s (M,), t and b (N,),
    float32, with sums in int32.
    """

    @T.prim_func
    def bytes_linear(
        A: T.Tensor((M, K), "int8"),
        W: T.Tensor((N, K), "int8"),
        s: T.Tensor((M,), "float32"),
        t: T.Tensor((N,), "float32"),
        b: T.Tensor((N,), "float32"),
    ):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            left = T.alloc_shared((block_M, block_K), "int8")
            right = T.alloc_shared((block_N, block_K), "int8")
            total = T.alloc_fragment((block_M, block_N), "int32")
            T.clear(total)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
                T.copy(A[by * block_M, k * block_K], left)
                T.copy(W[bx * block_N, k * block_K], right)
                T.gemm(left, right, total, transpose_B=True)
            for i, j in T.Parallel(block_M, block_N):
                row, column = by * block_M + i, bx * block_N + j
                value = T.cast(total[i, j], "float32") * s[row]
                Y[row, column] = value * t[column] + b[column]
        return Y

    return bytes_linear


def packed_groups(M: int, G: int, D: int, block_M: int, block_G: int) -> Any:
    """Each `X[i, g]` of X (M, G, D), float32, as codes of 4 bits, two in a byte, (M, G, D // 2),
    uint8, with the step between codes and the least element, (M, G), float32.
    """

    @T.prim_func
    def packed_groups(X: T.Tensor((M, G, D), "float32")):
        codes = T.empty((M, G, D // 2), "uint8")
        steps, offsets = T.empty((M, G), "float32"), T.empty((M, G), "float32")
        with T.Kernel(T.ceildiv(G, block_G), T.ceildiv(M, block_M)) as (bx, by):
            tile = T.alloc_fragment((block_M, block_G, D), "float32")
            least = T.alloc_fragment((block_M, block_G), "float32")
            most = T.alloc_fragment((block_M, block_G), "float32")
            T.copy(X[by * block_M, bx * block_G, 0], tile)
            T.reduce_min(tile, least, dim=2)
            T.reduce_max(tile, most, dim=2)
            for i, g in T.Parallel(block_M, block_G):
                extent = most[i, g] - least[i, g]
                steps[by * block_M + i, bx * block_G + g] = extent / 15.0
                offsets[by * block_M + i, bx * block_G + g] = least[i, g]
                most[i, g] = 15.0 / extent
            for i, g, d in T.Parallel(block_M, block_G, D // 2):
                first = T.round((tile[i, g, 2 * d] - least[i, g]) * most[i, g])
                second = T.round((tile[i, g, 2 * d + 1] - least[i, g]) * most[i, g])
                byte = T.cast(first, "int32") | T.cast(second, "int32") << 4
                codes[by * block_M + i, bx * block_G + g, d] = T.cast(byte, "uint8")
        return codes, steps, offsets

    return packed_groups


def small_floats(M: int, N: int, K: int, block_M: int, block_N: int, block_K: int) -> Any:
    """`(X @ W.T) * s` of X (M, K) and s (N,), float32, and W (N, K), whose bytes Q, uint8, are a
    sign, 4 bits of an exponent and 3 of a fraction; as float16 they are 256 times less.
    """

    @T.prim_func
    def small_floats(
        X: T.Tensor((M, K), "float32"), Q: T.Tensor((N, K), "uint8"), s: T.Tensor((N,), "float32")
    ):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            left = T.alloc_shared((block_M, block_K), "float32")
            right = T.alloc_shared((block_N, block_K), "float32")
            total = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(total)
            for k in T.serial(T.ceildiv(K, block_K)):
                T.copy(X[by * block_M, k * block_K], left)
                for i, j in T.Parallel(block_N, block_K):
                    code = T.cast(Q[bx * block_N + i, k * block_K + j], "int32")
                    bits = T.cast((code & 128) << 8 | (code & 127) << 7, "uint16")
                    right[i, j] = T.cast(T.reinterpret(bits, "float16"), "float32")
                T.gemm(left, right, total, transpose_B=True)
            for i, j in T.Parallel(block_M, block_N):
                column = bx * block_N + j
                Y[by * block_M + i, column] = total[i, j] * (256.0 * s[column])
        return Y

    return small_floats


def three_values(M: int, N: int, K: int, block_M: int, block_N: int, block_K: int) -> Any:
    """`(X @ W.T) * s` of X (M, K) and s (N,), float32, and W (N, K) of -1, 0 and 1, which are codes
    of 2 bits, four in a byte of Q (N, K // 4), uint8.
    """

    @T.prim_func
    def three_values(
        X: T.Tensor((M, K), "float32"),
        Q: T.Tensor((N, K // 4), "uint8"),
        s: T.Tensor((N,), "float32"),
    ):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            left = T.alloc_shared((block_M, block_K), "float32")
            right = T.alloc_shared((block_N, block_K), "float32")
            total = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(total)
            for k in T.serial(T.ceildiv(K, block_K)):
                T.copy(X[by * block_M, k * block_K], left)
                for i, j in T.Parallel(block_N, block_K):
                    byte = T.cast(Q[bx * block_N + i, (k * block_K + j) // 4], "int32")
                    right[i, j] = T.cast((byte >> j % 4 * 2 & 3) - 1, "float32")
                T.gemm(left, right, total, transpose_B=True)
            for i, j in T.Parallel(block_M, block_N):
                column = bx * block_N + j
                Y[by * block_M + i, column] = total[i, j] * s[column]
        return Y

    return three_values


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


def packed_signs(M: int, W: int, block_M: int, block_W: int) -> Any:
    """Bits `X[m, 32 * w + b] > t[32 * w + b]` of words (M, W), int32, and how many are set in each
    row, (M,), int32, of X (M, 32 * W), float16, and t (32 * W,), float32, in pieces.
    """

    @T.prim_func
    def packed_signs(X: T.Tensor((M, 32 * W), "float16"), t: T.Tensor((32 * W,), "float32")):
        words, count = T.empty((M, W), "int32"), T.empty((M,), "int32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            bits = T.alloc_fragment((block_M, block_W, 32), "int32")
            word = T.alloc_fragment((block_M, block_W), "int32")
            ones = T.alloc_fragment((block_M,), "int32")
            T.clear(ones)
            for k in T.serial(T.ceildiv(W, block_W)):
                for i, j, b in T.Parallel(block_M, block_W, 32):
                    column = (k * block_W + j) * 32 + b
                    is_above = T.cast(X[bx * block_M + i, column], "float32") > t[column]
                    bits[i, j, b] = T.cast(is_above, "int32") << b
                T.reduce_bitor(bits, word, dim=2)
                T.copy(word, words[bx * block_M, k * block_W])
                for i, j in T.Parallel(block_M, block_W):
                    word[i, j] = T.popcount(word[i, j])
                T.reduce_sum(word, ones, dim=1, clear=False)
            T.copy(ones, count[bx * block_M])
        return words, count

    return packed_signs


CASES = (
    Case(
        "int4 matmul 64x512x1024",
        kernels.dequant_matmul,
        {"M": 64, "N": 512, "K": 1024, "dtype": "float32"},
        SMALL_PRODUCTS,
    ),
    Case(
        "int4 gemv 2048x2048",
        kernels.dequant_gemv,
        {"N": 2048, "K": 2048, "dtype": "float32"},
        {"block_N": (1, 4, 16), "block_K": (32, 128, 512)},
    ),
    Case("rows to int8 1024x2048", quantise, {"M": 1024, "N": 2048}, {"block_M": ROWS}),
    Case("int8 to float32 1024x2048", dequantise, {"M": 1024, "N": 2048}, ELEMENTS),
    Case(
        "int8 times float32 128x384x512",
        scaled_bytes_product,
        {"M": 128, "N": 384, "K": 512},
        SMALL_PRODUCTS,
    ),
    Case(
        "int8 weights in groups 64x512x768",
        group_bytes,
        {"M": 64, "N": 512, "K": 768, "G": 128},
        SMALL_PRODUCTS,
    ),
    Case(
        "codes of 4 bits 48x640x960",
        code_book,
        {"M": 48, "N": 640, "K": 960, "G": 64},
        {"block_M": (1, 8, 48), "block_N": (8, 64, 640), "block_K": (16, 64, 320, 960)},
    ),
    Case(
        "int8 linear 48x256x2560",
        bytes_linear,
        {"M": 48, "N": 256, "K": 2560},
        {"block_M": (1, 4, 16, 48), "block_N": (8, 32, 256), "block_K": (16, 320, 2560)},
    ),
    Case(
        "groups to 4 bits 800x30x40",
        packed_groups,
        {"M": 800, "G": 30, "D": 40},
        {"block_M": (1, 800), "block_G": (1, 2, 3, 5, 6, 10, 15, 30)},
    ),
    Case(
        "floats of 8 bits 40x600x960",
        small_floats,
        {"M": 40, "N": 600, "K": 960},
        {"block_M": (1, 8, 40), "block_N": (8, 60, 600), "block_K": (16, 96, 960)},
    ),
    Case(
        "weights of 2 bits 36x540x960",
        three_values,
        {"M": 36, "N": 540, "K": 960},
        {"block_M": (1, 6, 36), "block_N": (6, 60, 540), "block_K": (16, 96, 960)},
    ),
    Case(
        "turned rows to int8 800x120, float16",
        rotated_bytes,
        {"M": 800, "D": 120},
        {"block_M": (1, 8, 40, 200, 800), "block_K": (8, 24, 60, 120)},
    ),
    Case(
        "packed signs 300x90 words, float16",
        packed_signs,
        {"M": 300, "W": 90},
        {"block_M": (1, 6, 50, 300), "block_W": (1, 9, 30, 90)},
    ),
)
