"""Kernels whose threads and blocks do not wait for each other as they must, with one planted bug
each: `(kernel, reference, inputs)` by the name of the bug. The line that is wrong ends in the
comment BUG.
"""

from __future__ import annotations

import numpy as np

import tileworkbench as tw
import tileworkbench.language as T
from tests.api.wrong_kernels import WHOLE, Array, Case

LINES = T.Tensor((4, 64), "float32")


@tw.jit
def missing_barrier(A: WHOLE):
    B = T.empty((64, 64), "float32")
    with T.Kernel(1, threads=256):
        tile = T.alloc_shared((64, 64), "float32")
        loaded = T.alloc_barrier(128)
        with T.ws(0):
            T.copy(A, tile)
            T.mbarrier_arrive(loaded)
        with T.ws(1):
            T.copy(tile, B)  # BUG
    return B


@tw.jit
def missing_grid_barrier(A: WHOLE):
    B = T.empty((64, 64), "float32")
    row = T.empty((64,), "float32")
    with T.Kernel(2, threads=32) as bx:
        for j in T.Parallel(32):
            row[bx * 32 + j] = A[0, bx * 32 + j]
        for i, j in T.Parallel(32, 64):
            B[bx * 32 + i, j] = row[j] + A[bx * 32 + i, j]  # BUG
    return B, row


@tw.jit
def wrong_parity(A: LINES):
    B = T.empty((4, 64), "float32")
    with T.Kernel(1, threads=256):
        tile = T.alloc_shared((64,), "float32")
        full = T.alloc_barrier(128)
        free = T.alloc_barrier(128)
        with T.ws(0):
            for k in T.serial(4):
                T.mbarrier_wait_parity(free, k % 2 ^ 1)
                T.copy(A[k, :], tile)
                T.mbarrier_arrive(full)
        with T.ws(1):
            for k in T.serial(4):
                T.mbarrier_wait_parity(full, k % 2 ^ 1)  # BUG
                T.copy(tile, B[k, :])
                T.mbarrier_arrive(free)
    return B


@tw.jit
def reversed_handshake(A: LINES):
    B = T.empty((4, 64), "float32")
    with T.Kernel(1, threads=256):
        tile = T.alloc_shared((64,), "float32")
        full = T.alloc_barrier(128)
        free = T.alloc_barrier(128)
        with T.ws(0):
            for k in T.serial(4):
                T.mbarrier_wait_parity(free, k % 2)  # BUG
                T.copy(A[k, :], tile)
                T.mbarrier_arrive(full)
        with T.ws(1):
            for k in T.serial(4):
                T.mbarrier_wait_parity(full, k % 2)
                T.copy(tile, B[k, :])
                T.mbarrier_arrive(free)
    return B


@tw.jit
def use_before_wait(A: T.Tensor((2, 64), "float32")):
    B = T.empty((2, 64), "float32")
    with T.Kernel(1, threads=64):
        tiles = T.alloc_shared((2, 64), "float32")
        for k in T.serial(2):
            T.async_copy(A[k, :], tiles[k, :])
            T.ptx_commit_group()
        T.ptx_wait_group(1)
        T.copy(tiles, B)  # BUG
    return B


@tw.jit
def wrong_stage(A: LINES):
    B = T.empty((4, 64), "float32")
    with T.Kernel(1, threads=64):
        tiles = T.alloc_shared((2, 64), "float32")
        T.copy(A[0, :], tiles[0, :])
        for k in T.serial(4):
            if k < 3:
                T.copy(A[k + 1, :], tiles[(k + 1) % 2, :])
            T.copy(tiles[(k + 1) % 2, :], B[k, :])  # BUG
    return B


@tw.jit
def divergent_barrier(A: T.Tensor((64,), "float32")):
    B = T.empty((64,), "float32")
    with T.Kernel(1, threads=64):
        tile = T.alloc_shared((64,), "float32")
        tx = T.get_thread_binding()
        tile[tx] = A[tx]
        if tx < 32:
            T.sync_threads()  # BUG
            B[tx] = tile[63 - tx]
        else:
            B[tx] = tile[63 - tx]
    return B


@tw.jit
def split_k_without_atomic(A: WHOLE, B: WHOLE, C: WHOLE):
    with T.Kernel(2, threads=64) as bz:
        tile = T.alloc_fragment((64, 64), "float32")
        left = T.alloc_shared((64, 32), "float32")
        right = T.alloc_shared((32, 64), "float32")
        T.clear(tile)
        T.copy(A[0, bz * 32], left)
        T.copy(B[bz * 32, 0], right)
        T.gemm(left, right, tile)
        for i, j in T.Parallel(64, 64):
            C[i, j] += tile[i, j]  # BUG


def cases() -> dict[str, Case]:
    """By the kernel's name."""
    random = np.random.default_rng(0)
    square = random.uniform(1, 2, (64, 64)).astype(np.float32)
    other = random.uniform(1, 2, (64, 64)).astype(np.float32)
    line = np.arange(1, 65, dtype=np.float32)
    none = np.zeros((64, 64), np.float32)

    def same(a: Array) -> Array:
        return a

    return {
        "missing_barrier": (missing_barrier, same, (square,)),
        "missing_grid_barrier": (missing_grid_barrier, lambda a: (a[:1] + a, a[0]), (square,)),
        "wrong_parity": (wrong_parity, same, (square[:4],)),
        "reversed_handshake": (reversed_handshake, same, (square[:4],)),
        "use_before_wait": (use_before_wait, same, (square[:2],)),
        "wrong_stage": (wrong_stage, same, (square[:4],)),
        "divergent_barrier": (divergent_barrier, lambda a: a[::-1], (line,)),
        "split_k_without_atomic": (
            split_k_without_atomic,
            lambda a, b, c: c + a @ b,
            (square, other, none),
        ),
    }
