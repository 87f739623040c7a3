"""Symbolic extents on GPUs: sizes that no tile divides, sizes of zero, and how wide accesses are
where it is known what divides them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench.compiler.diagnostics import ArgumentError

TARGETS = ["sim:sm_80", pytest.param("ptx:sm_80", marks=pytest.mark.nvrtc)]


def product(whole_vectors: bool) -> Any:
    """`C = A @ B` of any shape; with `whole_vectors` of rows that 8 divides."""
    M, N, K = T.dynamic("M"), T.dynamic("N"), T.dynamic("K")

    @T.prim_func
    def product(
        A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N))
    ):
        if whole_vectors:
            T.assume(K % 8 == 0)
            T.assume(N % 8 == 0)
        with T.Kernel(T.ceildiv(N, 32), T.ceildiv(M, 32), threads=64) as (bx, by):
            a = T.alloc_shared((32, 32), "float16")
            b = T.alloc_shared((32, 32), "float16")
            c = T.alloc_fragment((32, 32), "float32")
            T.clear(c)
            for k in T.Pipelined(T.ceildiv(K, 32), num_stages=2):
                T.copy(A[by * 32, k * 32], a)
                T.copy(B[k * 32, bx * 32], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * 32, bx * 32])

    return product


def run(kernel: tw.Kernel, m: int, n: int, k: int) -> None:
    random = np.random.default_rng(m + n + k)
    a, b = random.standard_normal((m, k)), random.standard_normal((k, n))
    a, b, c = a.astype(np.float16), b.astype(np.float16), np.full((m, n), 7.0, np.float32)
    kernel(a, b, c)
    np.testing.assert_allclose(c, a.astype(np.float64) @ b.astype(np.float64), atol=1e-4)


@pytest.mark.parametrize("whole_vectors", [False, True])
@pytest.mark.parametrize("target", TARGETS)
def test_one_kernel_for_every_size(target: str, whole_vectors: bool) -> None:
    kernel = tw.compile(product(whole_vectors), target=target)
    sizes = [(33, 40, 48), (1, 8, 8), (64, 64, 64), (16, 16, 0)]
    for size in [*sizes, *([] if whole_vectors else [(35, 41, 7), (31, 1, 33)])]:
        run(kernel, *size)


def test_rows_of_any_length_are_read_by_element() -> None:
    source = tw.compile(product(False), target="sim:sm_80").source
    assert "cp_async" not in source and "float2" not in source
    assert "< M &&" in source and "< K ? A[" in source


def test_rows_of_whole_vectors_are_read_by_vector() -> None:
    """The last block is still cut: by vectors, none of which lies across the edge."""
    source = tw.compile(product(True), target="sim:sm_80").source
    assert "cp_async_16_or_zero(" in source and "cp_async_4" not in source
    assert "*(float2*)(&C[" in source and "< N) {" in source


@pytest.mark.parametrize("target", ["cpu", *TARGETS])
def test_what_a_kernel_assumes_is_checked(target: str) -> None:
    kernel = tw.compile(product(True), target=target)
    with pytest.raises(ArgumentError) as wrong:
        run(kernel, 16, 16, 7)
    assert wrong.value.message == "'product': the kernel assumes 'K % 8 == 0', and K = 7"


@pytest.mark.parametrize("target", ["cpu", *TARGETS])
def test_a_tensor_of_nothing(target: str) -> None:
    kernel = tw.compile(product(False), target=target)
    for size in ((0, 8, 16), (16, 0, 16)):
        with pytest.raises(ArgumentError) as wrong:
            run(kernel, *size)
        assert wrong.value.message == "'product': the grid is empty, there is no block to run"


@pytest.mark.parametrize("target", TARGETS)
def test_a_nest_of_symbolic_extent(target: str) -> None:
    n = T.dynamic("n")

    @T.prim_func
    def scale(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
        with T.Kernel(2, threads=32) as bx:
            for i in T.Parallel(n):
                if i % 2 == bx:
                    B[i] = A[i] * 2.0

    kernel = tw.compile(scale, target=target)
    for size in (0, 1, 31, 100):
        a, b = np.arange(size, dtype=np.float32), np.zeros(size, np.float32)
        kernel(a, b)
        np.testing.assert_array_equal(b, a * 2)
