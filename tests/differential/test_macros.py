"""Macros: arguments by value and by reference, results, names of their own, calls inside calls."""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

import numpy as np
import pytest

import tileworkbench.language as T
from tests.differential.cases import F32, I32, Case, Cases, small
from tests.differential.harness import equals

case = Cases()


@T.macro
def swap(a: T.Ref, b: T.Ref):
    kept = T.alloc_var(F32, 0)
    kept = a
    a = b
    b = kept


@T.macro
def add_to(x: T.Ref[T.float32], value):
    x += value


@T.macro
def add_below(x: T.Ref, count):
    for i in T.serial(count):
        add_to(x, i)
    if count > 2:
        add_to(x, 100)


@T.macro
def product(x, y=3, *rest, more=1):
    total = x * y
    for term in rest:
        total = total + term
    return total + more, x


@case
def elements_and_variables_by_reference() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((12,), F32), n: T.int32):
        with T.Kernel(1, threads=1):
            v, at = T.alloc_var(F32, 1), T.alloc_var(I32, 3)
            own = T.alloc_local((4,), F32)
            T.fill(own, 2)
            swap(v, A[0])
            swap(A[n], A[n + 1])
            add_below(A[at], 4)
            add_below(own[2], 2)
            add_to(v, own[2])
            A[8] = v
            for k in T.serial(2):
                if k > 0:
                    add_to(A[9 + k], k + at)

    a = small(12)
    expected = a.copy()
    expected[0], expected[3] = 1, a[3] + 106
    expected[[5, 6]] = a[[6, 5]]
    expected[8], expected[10] = a[0] + 3, a[10] + 4
    return kernel, {"A": a, "n": 5}, equals(A=expected)


@case
def results_inside_loops_and_branches() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((8,), F32), B: T.Tensor((8,), F32)):
        with T.Kernel(1, threads=1):
            for k in T.serial(4):
                x, y = product(A[k], 2, 5, A[k + 1], more=k)
                B[k] = x + y
                if k > 1:
                    B[k + 4] = product(A[k])[0]
                else:
                    B[k + 4] = y

    a = small(8)
    k = np.arange(4)
    first = a[:4] * 3 + 5 + a[1:5] + k
    second = np.where(k > 1, a[:4] * 3 + 1, a[:4])
    expected = np.concatenate([first, second]).astype(F32)
    return kernel, {"A": a, "B": np.zeros(8, F32)}, equals(B=expected)


@case
def tiles_made_and_filled_by_macros() -> Case:
    @T.macro
    def loaded(source):
        tile = T.alloc_shared(source.shape, source.dtype)
        T.copy(source, tile)
        return tile, source

    @T.prim_func
    def kernel(A: T.Tensor((3, 64), F32), B: T.Tensor((3, 64), F32)):
        with T.Kernel(1, threads=32):
            for row in T.serial(3):
                tile, _ = loaded(A[row, :])
                for j in T.Parallel(64):
                    B[row, j] = tile[0, 63 - j]

    a = small(3, 64)
    return kernel, {"A": a, "B": np.zeros((3, 64), F32)}, equals(B=a[:, ::-1].copy())


@case
def a_macro_that_calls_itself() -> Case:
    @T.macro
    def count_down(A, n):
        if n > 0:
            A[n] = n
            count_down(A, n - 1)

    @T.prim_func
    def kernel(A: T.Tensor((8,), F32)):
        with T.Kernel(1, threads=1):
            count_down(A, 5)

    a = small(8)
    expected = np.concatenate([a[:1], np.arange(1, 6, dtype=F32), a[6:]])
    return kernel, {"A": a}, equals(A=expected)


@pytest.mark.parametrize("name", case)
def test_results(name):
    case.check(name)


@pytest.mark.nvrtc
@pytest.mark.parametrize("name", case)
def test_executed_ptx(name):
    case.check_ptx(name)
