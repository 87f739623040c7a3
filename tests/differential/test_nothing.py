"""What is never executed may be anything, and tensors may have no elements."""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tests.differential.cases import F32, I32, Cases, small
from tests.differential.harness import equals
from tileworkbench.compiler.diagnostics import OutOfBoundsError

CASES = Cases()


@CASES
def a_branch_that_iterations_never_take():
    n = 8

    @T.prim_func
    def kernel(A: T.Tensor((n,), F32), B: T.Tensor((n,), F32)):
        with T.Kernel(1, threads=32):
            s = T.alloc_shared((n,), F32)
            x = T.alloc_shared((n,), F32)
            T.copy(A, x)
            T.clear(s)
            for part in T.unroll(2):
                for i in T.Parallel(8):
                    j = i + 8 * part
                    if j < n:
                        s[j] = x[j]
            for i in T.Parallel(8):
                j = i + 8
                if j < n:
                    s[j] = x[j]
                s[i] += T.if_then_else(j < n, x[j], 1)
                s[i] += x[i + 9] if i + 9 < n else 1
                if j < n and x[j] > 0:
                    s[i] = 0
            T.copy(s, B)

    return kernel, {"A": small(8), "B": np.zeros(8, F32)}, equals(B=small(8) + 2)


@CASES
def an_element_under_a_condition_on_an_argument():
    @T.prim_func
    def kernel(n: T.int32, A: T.Tensor((8,), F32), B: T.Tensor((8,), F32)):
        with T.Kernel(1, threads=32):
            s = T.alloc_shared((8,), F32)
            T.copy(A, s)
            for part in T.serial(1, 3):
                for i in T.Parallel(8):
                    if part * 8 + i < n:
                        s[part * 8 + i] = 0
            for i in T.Parallel(8):
                B[i] = T.if_then_else(i + 8 < n, s[i + 8], s[i])

    return kernel, {"n": 8, "A": small(8), "B": np.zeros(8, F32)}, equals(B=small(8))


@CASES
def a_product_over_nothing():
    @T.prim_func
    def kernel(A: T.Tensor((32, 0), F32), B: T.Tensor((0, 32), F32), C: T.Tensor((32, 32), F32)):
        with T.Kernel(1, threads=64):
            a = T.alloc_shared((32, 32), F32)
            b = T.alloc_shared((32, 32), F32)
            c = T.alloc_fragment((32, 32), F32)
            T.clear(c)
            for k in T.Pipelined(T.ceildiv(A.shape[1], 32), num_stages=2):
                T.copy(A[0, k * 32], a)
                T.copy(B[k * 32, 0], b)
                T.gemm(a, b, c)
            T.copy(c, C)

    arguments = {
        "A": np.zeros((32, 0), F32),
        "B": np.zeros((0, 32), F32),
        "C": np.ones((32, 32), F32),
    }
    return kernel, arguments, equals(C=np.zeros((32, 32), F32))


@CASES
def tensors_without_elements():
    @T.prim_func
    def kernel(A: T.Tensor((0,), I32), B: T.Tensor((8, 0), I32), C: T.Tensor((8,), I32)):
        D = T.empty((8, 0), I32)
        with T.Kernel(2, threads=32) as bx:
            s = T.alloc_shared((4,), I32)
            T.copy(A[bx * 4], s)
            T.copy(B, D)
            T.fill(B, 1)
            for i in T.serial(A.shape[0]):
                C[i + 9] = A[i]
            for i, j in T.Parallel(8, 0):
                B[i, j] = B[i, j] + 1
            for i in T.Parallel(4):
                D[bx, i] = 1
                C[bx * 4 + i] = s[i] + A[bx * 4 + i] + 5
        return D

    arguments = {"A": np.zeros(0, I32), "B": np.zeros((8, 0), I32), "C": np.zeros(8, I32)}
    return kernel, arguments, equals(C=np.full(8, 5, I32), D=np.zeros((8, 0), I32))


@pytest.mark.parametrize("name", CASES)
def test_results(name):
    CASES.check(name)


@pytest.mark.nvrtc
@pytest.mark.parametrize("name", CASES)
def test_executed_ptx(name):
    CASES.check_ptx(name)


def test_a_condition_that_holds_after_all_stops_the_kernel():
    kernel, arguments, _ = CASES["an_element_under_a_condition_on_an_argument"]()
    with pytest.raises(OutOfBoundsError, match="index 8 is out of range for dimension 0 of 's'"):
        tw.compile(kernel)(9, arguments["A"], arguments["B"])
