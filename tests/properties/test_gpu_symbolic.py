"""Kernels with symbolic shapes on a GPU: whatever the sizes are, the code that a call takes
computes what numpy does, and is that for whole vectors exactly where rows are whole vectors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as hs

import tileworkbench as tw
import tileworkbench.language as T
from tests.tiers import examples

ROWS, COLUMNS = 16, 32


@dataclass(frozen=True)
class Case:
    """Tensors of `planes` matrices; which extents are symbols, their values, and how they move."""

    dtype: str
    planes: int
    symbolic: tuple[bool, bool]
    size: tuple[int, int]
    transposed: bool
    staged: bool


def extents() -> hs.SearchStrategy[int]:
    """As many multiples of 16 as other numbers."""
    return hs.one_of(hs.integers(1, 4).map(lambda n: 16 * n), hs.integers(1, 70))


cases = hs.builds(
    Case,
    dtype=hs.sampled_from(["float16", "float32", "int8"]),
    planes=hs.integers(1, 2),
    symbolic=hs.tuples(hs.booleans(), hs.booleans()),
    size=hs.tuples(extents(), extents()),
    transposed=hs.booleans(),
    staged=hs.booleans(),
)


def doubled(case: Case) -> Any:
    """``B = 2 * A``, transposed where that is asked for, through shared memory where `staged`."""
    names = (T.dynamic("m"), T.dynamic("n"))
    m, n = (
        name if symbolic else size
        for name, symbolic, size in zip(names, case.symbolic, case.size, strict=True)
    )
    dtype, planes, staged, transposed = case.dtype, case.planes, case.staged, case.transposed

    @T.prim_func
    def doubled(
        A: T.Tensor((planes, m, n), dtype),
        B: T.Tensor((planes, n, m) if transposed else (planes, m, n), dtype),
    ):
        with T.Kernel(T.ceildiv(n, COLUMNS), T.ceildiv(m, ROWS), planes, threads=64) as (x, y, z):
            tile = T.alloc_fragment((ROWS, COLUMNS), dtype)
            if staged:
                shared = T.alloc_shared((ROWS, COLUMNS), dtype)
                T.copy(A[z, y * ROWS, x * COLUMNS], shared)
                T.copy(shared, tile)
            else:
                T.copy(A[z, y * ROWS, x * COLUMNS], tile)
            for i, j in T.Parallel(ROWS, COLUMNS):
                tile[i, j] = tile[i, j] * 2
            if transposed:
                for j, i in T.Parallel(COLUMNS, ROWS):
                    if y * ROWS + i < m and x * COLUMNS + j < n:
                        B[z, x * COLUMNS + j, y * ROWS + i] = tile[i, j]
            else:
                T.copy(tile, B[z, y * ROWS, x * COLUMNS])

    return doubled


def check(case: Case, target: str) -> None:
    kernel = tw.compile(doubled(case), target=target)
    m, n = case.size
    a = np.random.default_rng(m * n).integers(-50, 50, (case.planes, m, n)).astype(case.dtype)
    expected = 2 * (a.transpose(0, 2, 1) if case.transposed else a)
    b = np.zeros(expected.shape, case.dtype)
    kernel(a, b)
    np.testing.assert_array_equal(b, expected)
    if kernel.variants:
        width = 16 // a.itemsize
        rows = [n, m] if case.transposed else [n]
        symbols = [case.symbolic[1], case.symbolic[0]][: len(rows)]
        whole = all(
            size % width == 0 for size, symbolic in zip(rows, symbols, strict=True) if symbolic
        )
        _, aligned = kernel.view().variants
        assert aligned.endswith(": taken by the last call") == whole


@settings(max_examples=examples(40))
@given(cases)
def test_simulated(case: Case) -> None:
    check(case, "sim:sm_80")


@pytest.mark.nvrtc
@settings(max_examples=examples(8))
@given(cases)
def test_executed_ptx(case: Case) -> None:
    check(case, "ptx:sm_80")
