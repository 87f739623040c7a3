"""Loops that pick registers by their variable leave no array in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tests.capability import require
from tileworkbench.compiler.device.nvidia.nvrtc import missing_nvrtc

SHAPE = (32, 32)


def columns(body: Any, dtype: str) -> Any:
    """A kernel whose `body(s, F)` folds the columns of a fragment into `s`."""
    run = T.macro(body)

    @T.prim_func
    def main(A: T.Tensor(SHAPE, dtype), B: T.Tensor((32,), "float32")):
        with T.Kernel(1, threads=32):
            F = T.alloc_fragment(SHAPE, dtype)
            s = T.alloc_fragment((32,), "float32")
            T.copy(A, F)
            T.clear(s)
            run(s, F)
            T.copy(s, B)

    return main


def every_column(s, F):
    for k in T.serial(32):
        for i in T.Parallel(32):
            s[i] = s[i] * 0.5 + F[i, k]


def backwards(s, F):
    for k in T.serial(31, -1, -1):
        for i in T.Parallel(32):
            s[i] = s[i] * 0.5 + F[i, k]


def a_ring_of_columns(s, F):
    for k in T.serial(1024):
        for i in T.Parallel(32):
            s[i] = s[i] * 0.5 + F[i, k % 32]


def two_loops(s, F):
    for k in T.serial(4):
        for j in T.serial(8):
            for i in T.Parallel(32):
                s[i] = s[i] * 0.5 + F[i, k * 8 + j]


def a_triangle(s, F):
    for k in T.serial(8):
        for j in T.serial(k, 8):
            for i in T.Parallel(32):
                s[i] = s[i] * 0.5 + F[i, k * 4 + j // 2]


def some_columns(s, F):
    for k in T.serial(32):
        if k == 20:
            break
        for i in T.Parallel(32):
            s[i] = s[i] * 0.5 + F[i, k]


def updates(s, F):
    for k in T.serial(32):
        for i in T.Parallel(32):
            F[i, k] = F[i, k] * 2 + 1
            s[i] = s[i] * 0.5 + F[i, k]


BODIES = (every_column, backwards, a_ring_of_columns, two_loops, a_triangle, some_columns, updates)


@pytest.mark.covering(1)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_fragments_stay_in_registers(body: Any, dtype: str) -> None:
    require("nvrtc", missing_nvrtc())
    kernel = tw.compile(columns(body, dtype), target="ptx:sm_80")
    (found,) = kernel.stats.resources
    assert (found.stack_bytes, found.spill_store_bytes, found.spill_load_bytes) == (0, 0, 0)
    a = np.random.default_rng(0).standard_normal(SHAPE).astype(dtype)
    results = []
    for target in ("ptx:sm_80", "sim:sm_80", "cpu"):
        results.append(np.zeros(32, np.float32))
        tw.compile(columns(body, dtype), target=target)(a.copy(), results[-1])
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_allclose(results[0], results[2], rtol=1e-6)  # FMA contraction


def test_a_ring_of_registers_for_any_number_of_steps() -> None:
    """The last eight elements of each row, summed at the end."""
    require("nvrtc", missing_nvrtc())

    @T.prim_func
    def main(A: T.Tensor((64, T.dynamic("n")), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            x = T.alloc_local((8,), "float32")
            for k in T.serial(8):
                x[k] = 0.0
            for k in T.serial(A.shape[1]):
                x[k % 8] = A[tx, k] + x[k % 8] * 0.5
            B[tx] = x[0] + x[1] + x[2] + x[3] + x[4] + x[5] + x[6] + x[7]

    kernel = tw.compile(main, target="ptx:sm_80")
    for n in (0, 5, 8, 21):
        a = np.random.default_rng(n).integers(-8, 8, (64, n)).astype(np.float32)
        ring = np.zeros((64, 8))
        for k in range(n):
            ring[:, k % 8] = a[:, k] + ring[:, k % 8] * 0.5
        for target in ("ptx:sm_80", "sim:sm_80"):
            b = np.zeros(64, np.float32)
            tw.compile(main, target=target)(a, b)
            np.testing.assert_allclose(b, ring.sum(1), rtol=1e-6)
    assert all(found.stack_bytes == 0 for found in kernel.stats.resources)


def test_arrays_of_a_thread_stay_in_registers() -> None:
    require("nvrtc", missing_nvrtc())

    @T.prim_func
    def main(A: T.Tensor((64, 32), "float32"), B: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            x = T.alloc_local((32,), "float32")
            T.copy(A[tx, 0:32], x)
            for k in T.serial(64):
                B[tx, k] = x[31 - k % 32]

    kernel = tw.compile(main, target="ptx:sm_80")
    assert kernel.stats.resources[0].stack_bytes == 0
    a = np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32)
    b = np.zeros((64, 64), np.float32)
    kernel(a, b)
    np.testing.assert_array_equal(b, np.hstack([a[:, ::-1], a[:, ::-1]]))


@pytest.mark.parametrize(("extent", "threads"), [(64, 64), (64, 128), (32, 32), (16, 32)])
def test_rows_are_not_replicated_for_the_sake_of_memory(extent: int, threads: int) -> None:
    """Several threads to a row would store in whole lines, but need up to 1024 registers and an
    index of the thread's own into them.
    """
    require("nvrtc", missing_nvrtc())
    shape = (extent, extent)

    @T.prim_func
    def main(A: T.Tensor(shape, "float32"), B: T.Tensor(shape, "float32")):
        with T.Kernel(1, threads=threads):
            F = T.alloc_fragment(shape, "float32")
            s = T.alloc_fragment((extent,), "float32")
            T.copy(A, F)
            T.clear(s)
            for k in T.serial(extent):
                for i in T.Parallel(extent):
                    s[i] = s[i] * 0.5 + F[i, k]
            for i, j in T.Parallel(extent, extent):
                B[i, j] = s[i] + F[i, j]

    (found,) = tw.compile(main, target="ptx:sm_80").stats.resources
    assert found.stack_bytes == 0
