"""Element-wise tiles of rows of any length, which a processor traverses as rows."""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tests.differential.harness import check_everywhere, equals, random_array

SIZES = [(1, 1), (3, 63), (64, 64), (65, 1024), (2, 1040), (70, 2051)]


def scaled(m, n, dtype):
    @T.prim_func
    def scaled(
        A: T.Tensor((m, n), dtype),
        c: T.Tensor((n,), dtype),
        B: T.Tensor((m, n), dtype),
    ):
        with T.Kernel(T.ceildiv(n, 64), T.ceildiv(m, 64), threads=128) as (bx, by):
            for i, j in T.Parallel(64, 64):
                column = bx * 64 + j
                B[by * 64 + i, column] = A[by * 64 + i, column] * c[column]

    return scaled


def arguments(m, n, dtype):
    a, c = random_array((m, n), dtype), random_array((n,), dtype, seed=1)
    return {"A": a, "c": c, "B": np.zeros_like(a)}, equals(B=a * c)


@pytest.mark.parametrize("dtype", ["float32", "int8", "bfloat16"])
def test_one_kernel_for_rows_of_every_length(dtype):
    kernel = tw.compile(scaled(T.dynamic("m"), T.dynamic("n"), dtype), target="cpu")
    assert kernel.passes["widen_blocks"].changed
    for size in SIZES:
        given, check = arguments(*size, dtype)
        kernel(*given.values())
        check(given)


@pytest.mark.covering(1)
@pytest.mark.parametrize("size", [(3, 100), (65, 1100)])
@pytest.mark.parametrize("static", [False, True])
def test_rows_after_every_pass(size, static):
    extents = size if static else (T.dynamic("m"), T.dynamic("n"))
    check_everywhere(scaled(*extents, "float32"), *arguments(*size, "float32"))


def test_what_happens_beyond_a_row_still_happens():
    """Iterations outside the tensors count too, where they are seen."""

    @T.prim_func
    def kernel(A: T.Tensor((4, 100), "int32"), S: T.Tensor((4,), "int32")):
        with T.Kernel(2, threads=64) as bx:
            for i, j in T.Parallel(4, 64):
                T.atomic_add(S[i], A[i, bx * 64 + j] + 1)

    a = random_array((4, 100), "int32") % 100
    check_everywhere(
        kernel, {"A": a, "S": np.zeros(4, np.int32)}, equals(S=(a.sum(1) + 128).astype(np.int32))
    )
