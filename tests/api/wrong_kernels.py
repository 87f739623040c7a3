"""Kernels with one planted bug each: `(kernel, reference, inputs)` by the name of the bug. The line
that is wrong ends in the comment BUG.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tileworkbench as tw
import tileworkbench.language as T

Array = np.ndarray[Any, Any]
Case = tuple[Any, Callable[..., Array], tuple[Array, ...]]

WHOLE = T.Tensor((64, 64), "float32")


@tw.jit
def off_by_one(A: T.Tensor((64,), "float32")):
    B = T.empty((64,), "float32")
    with T.Kernel(2, threads=32) as bx:
        for i in T.Parallel(32):
            B[bx * 32 + i] = A[bx * 32 + i + 1]  # BUG
    return B


@tw.jit
def swapped_index(A: WHOLE):
    B = T.empty((64, 64), "float32")
    with T.Kernel(2, 2, threads=32) as (bx, by):
        for i, j in T.Parallel(32, 32):
            B[by * 32 + i, bx * 32 + j] = A[bx * 32 + j, by * 32 + i]  # BUG
    return B


@tw.jit
def wrong_mask(A: WHOLE):
    B = T.empty((64, 64), "float32")
    with T.Kernel(1, threads=32):
        for i, j in T.Parallel(64, 64):
            B[i, j] = T.if_then_else(j < 60, A[i, j], 0.0)  # BUG
    return B


@tw.jit
def wrong_scale(A: WHOLE):
    B = T.empty((64, 64), "float32")
    with T.Kernel(2, threads=64) as bx:
        tile = T.alloc_fragment((32, 64), "float32")
        T.copy(A[bx * 32, 0], tile)
        for i, j in T.Parallel(32, 64):
            tile[i, j] = tile[i, j] * 0.5  # BUG
        T.copy(tile, B[bx * 32, 0])
    return B


@tw.jit
def overflow(A: T.Tensor((64, 64), "float16")):
    B = T.empty((64, 64), "float16")
    with T.Kernel(1, threads=64):
        tile = T.alloc_fragment((64, 64), "float16")
        T.copy(A, tile)
        for i, j in T.Parallel(64, 64):
            tile[i, j] = tile[i, j] * tile[i, j] / T.cast(1000.0, "float16")  # BUG
        T.copy(tile, B)
    return B


@tw.jit
def stale_accumulator(A: WHOLE):
    B = T.empty((64, 64), "float32")
    with T.Kernel(1, threads=64):
        tile = T.alloc_fragment((32, 64), "float32")
        T.clear(tile)
        for half in T.serial(2):
            for i, j in T.Parallel(32, 64):
                tile[i, j] += A[half * 32 + i, j]  # BUG
            T.copy(tile, B[half * 32, 0])
    return B


@tw.jit
def missing_clear(A: WHOLE):
    B = T.empty((64, 64), "float32")
    with T.Kernel(1, threads=64):
        tile = T.alloc_fragment((64, 64), "float32")
        for _ in T.serial(2):
            for i, j in T.Parallel(64, 64):
                tile[i, j] += A[i, j]  # BUG
        T.copy(tile, B)
    return B


@tw.jit
def race(A: WHOLE):
    B = T.empty((64, 64), "float32")
    with T.Kernel(1, threads=64):
        for i, j in T.Parallel(64, 64):
            B[i, j // 2] = A[i, j]  # BUG
    return B


@tw.jit
def wrong_stride(A: WHOLE):
    B = T.empty((64, 64), "float32")
    with T.Kernel(2, threads=64) as bx:
        tile = T.alloc_fragment((32, 64), "float32")
        T.copy(A[bx * 16, 0], tile)  # BUG
        T.copy(tile, B[bx * 32, 0])
    return B


@tw.jit
def overlapping_blocks(A: WHOLE):
    B = T.empty((64, 64), "float32")
    with T.Kernel(2, threads=64) as bx:
        for i, j in T.Parallel(33, 64):
            if bx * 32 + i < 64:
                B[bx * 32 + i, j] = A[i, j]  # BUG
    return B


@tw.jit
def skipped_rows(A: WHOLE):
    B = T.empty((64, 64), "float32")
    with T.Kernel(2, threads=64) as bx:
        for i, j in T.Parallel(30, 64):
            B[bx * 32 + i, j] = A[bx * 32 + i, j]  # BUG
    return B


@tw.jit
def wrong_warp(A: T.Tensor((64,), "float32")):
    B = T.empty((64,), "float32")
    with T.Kernel(1, threads=64):
        tx = T.get_thread_binding()
        if tx < 48:
            B[tx] = A[tx]
        else:
            B[tx] = A[tx] + 1.0  # BUG
    return B


@tw.jit
def wrong_operand(A: WHOLE, B: WHOLE):
    C = T.empty((64, 64), "float32")
    with T.Kernel(1, threads=64):
        left = T.alloc_shared((64, 64), "float32")
        right = T.alloc_shared((64, 64), "float32")
        tile = T.alloc_fragment((64, 64), "float32")
        T.clear(tile)
        T.copy(A, left)
        T.copy(B, right)
        T.gemm(left, right, tile, transpose_B=True)  # BUG
        T.copy(tile, C)
    return C


@tw.jit
def wrong_axis(A: WHOLE):
    B = T.empty((64,), "float32")
    with T.Kernel(1, threads=64):
        tile = T.alloc_fragment((64, 64), "float32")
        total = T.alloc_fragment((64,), "float32")
        T.copy(A, tile)
        T.reduce_sum(tile, total, dim=0)  # BUG
        T.copy(total, B)
    return B


@tw.jit
def integer_overflow(A: T.Tensor((64, 64), "int8")):
    B = T.empty((64,), "int32")
    with T.Kernel(1, threads=64):
        tile = T.alloc_fragment((64, 64), "int8")
        total = T.alloc_fragment((64,), "int8")
        T.copy(A, tile)
        T.reduce_sum(tile, total, dim=1)  # BUG
        T.copy(total, B)
    return B


@tw.jit
def ragged_edge(A: T.Tensor((50, 64), "float32")):
    B = T.empty((50, 64), "float32")
    with T.Kernel(T.ceildiv(50, 16), threads=64) as bx:
        tile = T.alloc_shared((16, 64), "float32")
        T.copy(A[T.min(bx * 16, 34), 0], tile)  # BUG
        T.copy(tile, B[bx * 16, 0])
    return B


@tw.jit
def truncated(A: WHOLE):
    B = T.empty((64, 64), "float32")
    with T.Kernel(1, threads=64):
        tile = T.alloc_fragment((64, 64), "float32")
        for i, j in T.Parallel(64, 64):
            tile[i, j] = T.cast(T.cast(A[i, j], "int32"), "float32")  # BUG
        T.copy(tile, B)
    return B


def cases() -> dict[str, Case]:
    """By the kernel's name."""
    random = np.random.default_rng(0)
    square = random.uniform(1, 2, (64, 64)).astype(np.float32)
    other = random.uniform(1, 2, (64, 64)).astype(np.float32)
    line = np.arange(1, 65, dtype=np.float32)
    bytes_ = random.integers(1, 100, (64, 64)).astype(np.int8)
    half = random.uniform(250, 300, (64, 64)).astype(np.float16)

    def squared(a: Array) -> Array:
        wide = a.astype(np.float32)
        return np.asarray(wide * wide / 1000).astype(np.float16)

    def same(a: Array) -> Array:
        return a

    return {
        "off_by_one": (off_by_one, same, (line,)),
        "swapped_index": (swapped_index, same, (square,)),
        "wrong_mask": (wrong_mask, same, (square,)),
        "wrong_scale": (wrong_scale, lambda a: a * 2, (square,)),
        "overflow": (overflow, squared, (half,)),
        "stale_accumulator": (stale_accumulator, same, (square,)),
        "missing_clear": (missing_clear, lambda a: a + a, (square,)),
        "race": (race, same, (square,)),
        "wrong_stride": (wrong_stride, same, (square,)),
        "overlapping_blocks": (overlapping_blocks, same, (square,)),
        "skipped_rows": (skipped_rows, same, (square,)),
        "wrong_warp": (wrong_warp, same, (line,)),
        "wrong_operand": (wrong_operand, lambda a, b: a @ b, (square, other)),
        "wrong_axis": (wrong_axis, lambda a: a.sum(1), (square,)),
        "integer_overflow": (integer_overflow, lambda a: a.sum(1, dtype=np.int32), (bytes_,)),
        "ragged_edge": (ragged_edge, same, (square[:50],)),
        "truncated": (truncated, same, (square,)),
    }
