"""Host scalars, classes whose methods are inlined, empty loops, and blocks of one thread."""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

import numpy as np
import pytest

import tileworkbench.language as T
from tests.differential.harness import check_everywhere, check_executors, equals, run_native
from tileworkbench.compiler.diagnostics import DeviceAssertError


def test_a_block_of_one_thread_updates_memory():
    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32"), C: T.Tensor((2,), "int32")):
        with T.Kernel(1, threads=1):
            A[0], A[1] = A[1], A[0]
            A[2] = A[3] = 9
            A[4] += 5
            for i in T.serial(3):
                T.atomic_add(C[0], i)
            C[1] = T.atomic_max(A[6], 100, return_prev=True)

    a = np.arange(8, dtype=np.int32)
    expected = np.array([1, 0, 9, 9, 9, 5, 100, 7], np.int32)
    arguments = {"A": a, "C": np.array([10, 0], np.int32)}
    check_everywhere(kernel, arguments, equals(A=expected, C=np.array([13, 6], np.int32)))


def test_scalars_of_the_host_size_the_grid():
    M = T.dynamic("M")

    @T.prim_func
    def kernel(A: T.Tensor((M,), "float32"), n: T.int32, s: T.float32):
        blocks = T.ceildiv(M, 4)
        width = n * 2
        with T.Kernel(blocks, width, threads=4) as (bx, by):
            for i in T.Parallel(4):
                if by == width - 1:
                    A[bx * 4 + i] = blocks + s

    arguments = {"A": np.zeros(10, np.float32), "n": 2, "s": 0.5}
    check_everywhere(kernel, arguments, equals(A=np.full(10, 3.5, np.float32)))


@pytest.mark.parametrize("n", [0, 1, 2, 9])
def test_launches_under_conditions_of_the_host(n):
    """Also a grid that would be empty where the condition does not hold."""

    @T.prim_func
    def kernel(A: T.Tensor((16,), "int32"), n: T.int32):
        half = n // 2
        assert n < 100, "too large"
        for start in range(0, 16, 8):
            with T.Kernel(2, threads=32) as bx:
                for i in T.Parallel(4):
                    A[start + bx * 4 + i] = n
        if n > 0:
            with T.Kernel(n, threads=32) as bx:
                tile = T.alloc_shared((1,), "int32")
                T.fill(tile, half + bx)
                T.copy(tile, A[bx])
            if half > 2:
                with T.Kernel(1, threads=32):
                    A[15] = 7
        elif half == 0:
            with T.Kernel(half + 1, threads=32):
                A[14] = -1
        else:
            with T.Kernel(half, threads=32):
                A[13] = -2

    expected = np.full(16, n, np.int32)
    expected[:n] = n // 2 + np.arange(n)
    expected[15] = 7 if n // 2 > 2 else n
    expected[14] = n if n > 0 else -1
    check_executors(kernel, {"A": np.zeros(16, np.int32), "n": n}, equals(A=expected))


def test_an_assertion_of_the_host():
    @T.prim_func
    def kernel(A: T.Tensor((16,), "int32"), n: T.int32):
        assert n < 100, "too large"
        if n < 50:
            with T.Kernel(2, threads=32):
                T.clear(A)

    for target in ("cpu", "sim:sm_80"):
        with pytest.raises(DeviceAssertError, match="too large"):
            run_native(kernel.program, {"A": np.ones(16, np.int32), "n": 100}, target)


@T.meta_class
class Counter:
    """State of a kernel that methods advance."""

    def __init__(self, step):
        self.step = step
        self.count = T.alloc_var("int32", 0)

    @T.inline
    def advance(self, limit):
        if self.count < limit:
            self.count += self.step
        else:
            self.count = 0


def test_methods_are_inlined():
    @T.prim_func
    def kernel(A: T.Tensor((2, 8), "int32")):
        with T.Kernel(2, threads=32) as bx:
            counter = Counter(3)
            for i in T.serial(8):
                counter.advance(7 + bx)
                A[bx, i] = counter.count

    rows = [[3, 6, 9, 0, 3, 6, 9, 0], [3, 6, 9, 0, 3, 6, 9, 0]]
    check_everywhere(kernel, {"A": np.zeros((2, 8), np.int32)}, equals(A=np.array(rows, np.int32)))


def test_loops_without_iterations():
    N = T.dynamic("N")

    @T.prim_func
    def kernel(A: T.Tensor((N, 4), "float32"), B: T.Tensor((4,), "float32")):
        with T.Kernel(1, threads=32):
            total = T.alloc_fragment((4,), "float32")
            T.clear(total)
            for i in T.Parallel(0):
                total[i] = 1.0
            for _ in T.serial(3, 1):
                B[0] = 5.0
            for k in T.Pipelined(N, num_stages=2):
                for j in T.Parallel(4):
                    total[j] += A[k, j]
            T.copy(total, B)

    for rows in (0, 3):
        a = np.ones((rows, 4), np.float32)
        arguments = {"A": a, "B": np.ones(4, np.float32)}
        check_everywhere(kernel, arguments, equals(B=np.full(4, rows, np.float32)))
