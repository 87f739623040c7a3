"""Codes of images and numbers: what makes them and what reads them."""

from __future__ import annotations

from typing import Any

import tileworkbench.language as T
from cost.case import Case


def unpacked_changes(M: int, N: int, block_M: int, block_N: int) -> Any:
    """Rows of whole numbers (M, N), int32, of their changes: codes of 5 bits after each other, (M,
    5 * N // 8 + 1), uint8, where 0, 1, 2, 3, ... are changes by 0, -1, 1, -2, ...
    """

    @T.prim_func
    def unpacked_changes(P: T.Tensor((M, 5 * N // 8 + 1), "uint8")):
        Y = T.empty((M, N), "int32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            change = T.alloc_fragment((block_M, block_N), "int32")
            part = T.alloc_fragment((block_M,), "int32")
            last = T.alloc_fragment((block_M,), "int32")
            T.clear(last)
            for k in T.serial(T.ceildiv(N, block_N)):
                for i, j in T.Parallel(block_M, block_N):
                    row, bit = bx * block_M + i, 5 * (k * block_N + j)
                    low = T.cast(P[row, bit // 8], "int32")
                    high = T.cast(P[row, bit // 8 + 1], "int32")
                    code = ((low | (high << 8)) >> (bit % 8)) & 31
                    change[i, j] = (code >> 1) ^ -(code & 1)
                T.reduce_sum(change, part, dim=1)
                T.cumsum(change, dim=1)
                for i, j in T.Parallel(block_M, block_N):
                    Y[bx * block_M + i, k * block_N + j] = last[i] + change[i, j]
                for i in T.Parallel(block_M):
                    last[i] = last[i] + part[i]
        return Y

    return unpacked_changes


def wavelet_bands(H: int, W: int, block_H: int, block_W: int) -> Any:
    """A step of the wavelets of JPEG 2000 (those without loss), in whole numbers along, then down,
    of X (2 * H + 3, 2 * W + 3), int16, two rows and columns of which are before and one after:
    planes (4, H, W), int16, smooth or with details along, then both with details down.
    """

    def halves(x: list[Any]) -> tuple[Any, Any]:
        before, after = x[1] - ((x[0] + x[2]) >> 1), x[3] - ((x[2] + x[4]) >> 1)
        return x[2] + ((before + after + 2) >> 2), after

    @T.prim_func
    def wavelet_bands(X: T.Tensor((2 * H + 3, 2 * W + 3), "int16")):
        Y = T.empty((4, H, W), "int16")
        with T.Kernel(T.ceildiv(W, block_W), T.ceildiv(H, block_H)) as (bx, by):
            lines = T.alloc_shared((2, 2 * block_H + 3, block_W), "int32")
            for i, j in T.Parallel(2 * block_H + 3, block_W):
                row, column = 2 * by * block_H + i, 2 * (bx * block_W + j)
                smooth, detail = halves([T.cast(X[row, column + t], "int32") for t in range(5)])
                lines[0, i, j] = smooth
                lines[1, i, j] = detail
            for q, i, j in T.Parallel(2, block_H, block_W):
                smooth, detail = halves([lines[q, 2 * i + t, j] for t in range(5)])
                row, column = by * block_H + i, bx * block_W + j
                Y[q, row, column] = T.cast(smooth, "int16")
                Y[2 + q, row, column] = T.cast(detail, "int16")
        return Y

    return wavelet_bands


def cosine_codes(H: int, W: int, block_H: int, block_W: int) -> Any:
    """`round(D @ (x - 128) @ D.T / q)`, cut to -128 ... 127, of the squares x of 8 x 8 pixels of X
    (H, 8, W, 8), uint8, as int8, with waves D and steps q (8, 8), float32 (JPEG).
    """

    @T.prim_func
    def cosine_codes(
        X: T.Tensor((H, 8, W, 8), "uint8"),
        D: T.Tensor((8, 8), "float32"),
        q: T.Tensor((8, 8), "float32"),
    ):
        Y = T.empty((H, 8, W, 8), "int8")
        with T.Kernel(T.ceildiv(W, block_W), T.ceildiv(H, block_H)) as (bx, by):
            pixels = T.alloc_shared((block_H, 8, block_W, 8), "float32")
            down = T.alloc_shared((block_H, 8, block_W, 8), "float32")
            along = T.alloc_fragment((block_H, 8, block_W, 8), "float32")
            for h, u, w, v in T.Parallel(block_H, 8, block_W, 8):
                pixel = X[by * block_H + h, u, bx * block_W + w, v]
                pixels[h, u, w, v] = T.cast(pixel, "float32") - 128.0
            T.clear(down)
            T.clear(along)
            for k in T.serial(8):
                for h, u, w, v in T.Parallel(block_H, 8, block_W, 8):
                    down[h, u, w, v] = down[h, u, w, v] + D[u, k] * pixels[h, k, w, v]
            for k in T.serial(8):
                for h, u, w, v in T.Parallel(block_H, 8, block_W, 8):
                    along[h, u, w, v] = along[h, u, w, v] + D[v, k] * down[h, u, w, k]
            for h, u, w, v in T.Parallel(block_H, 8, block_W, 8):
                code = T.clamp(T.round(along[h, u, w, v] / q[u, v]), -128.0, 127.0)
                Y[by * block_H + h, u, bx * block_W + w, v] = T.cast(code, "int8")
        return Y

    return cosine_codes


CASES = (
    Case(
        "changes of 5 bits 200x4000",
        unpacked_changes,
        {"M": 200, "N": 4000},
        {"block_M": (1, 10, 200), "block_N": (8, 40, 200, 4000)},
    ),
    Case(
        "bands of wavelets 300x400, int16",
        wavelet_bands,
        {"H": 300, "W": 400},
        {"block_H": (1, 10, 300), "block_W": (8, 40, 200, 400)},
    ),
    Case(
        "codes of cosines 30x40 squares of 8x8",
        cosine_codes,
        {"H": 30, "W": 40},
        {"block_H": (1, 5, 30), "block_W": (1, 2, 5, 40)},
    ),
)
