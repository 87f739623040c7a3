"""Dynamic extents: one compiled kernel for every size, and facts that make its code simpler."""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tests.differential.harness import check_everywhere, equals, random_array
from tileworkbench.compiler.diagnostics import ArgumentError, DeviceAssertError, RunError
from tileworkbench.compiler.driver import lower_program, resolve_target
from tileworkbench.compiler.ir.expr import Load
from tileworkbench.compiler.ir.rewrite import walk
from tileworkbench.compiler.ir.stmt import If, Store
from tileworkbench.compiler.sim import simulate


def scaled(whole_tiles):
    M, N = T.dynamic("M, N")

    @T.prim_func
    def kernel(A: T.Tensor((M, N), "float32"), s: T.float32):
        B = T.empty((M, N), "float32")
        if whole_tiles:
            T.assume(M % 8 == 0)
            T.assume(N % 32 == 0)
        with T.Kernel(T.ceildiv(N, 32), T.ceildiv(M, 8), threads=32) as (bx, by):
            S = T.alloc_fragment((8, 32), "float32")
            T.copy(A[by * 8, bx * 32], S)
            for i, j in T.Parallel(8, 32):
                S[i, j] = S[i, j] * s
            T.copy(S, B[by * 8, bx * 32])
        return B

    return kernel


def guards(kernel):
    """Conditions that are tested at run time in the code of a kernel."""
    final = lower_program(kernel.program, resolve_target("cpu"))[-1].program
    return sum(
        isinstance(found, If) or (isinstance(found, Load | Store) and found.predicate is not None)
        for found in walk(final)
    )


@pytest.mark.parametrize("shape", [(16, 64), (8, 32), (13, 70), (1, 1), (5, 32)])
def test_every_size_with_one_kernel(shape):
    a = random_array(shape, "float32")
    expected = equals(B=a * np.float32(3))
    check_everywhere(scaled(False), {"A": a, "s": 3.0}, expected)
    if shape[0] % 8 == shape[1] % 32 == 0:
        check_everywhere(scaled(True), {"A": a, "s": 3.0}, expected)


def test_facts_remove_the_guards():
    assert guards(scaled(True)) == 0 < guards(scaled(False))


def test_facts_are_checked_before_a_launch():
    run = tw.compile(scaled(True), target="cpu")
    a = random_array((16, 64), "float32")
    np.testing.assert_array_equal(run(a, 2.0), a * 2)
    for shape, message in (
        ((12, 64), "'kernel': the kernel assumes 'M % 8 == 0', and M = 12"),
        ((16, 63), "'kernel': the kernel assumes 'N % 32 == 0', and N = 63"),
    ):
        with pytest.raises(ArgumentError) as wrong:
            run(np.zeros(shape, np.float32), 1.0)
        assert wrong.value.message == message


def test_facts_that_only_a_block_knows_are_checked_there():
    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32"), n: T.int32):
        with T.Kernel(2, threads=32) as bx:
            T.assume(n > bx * 4)
            first = A[bx]
            T.assume(first >= 0)
            for i in T.Parallel(4):
                A[bx * 4 + i] = n

    run = tw.compile(kernel, target="cpu")
    run(np.zeros(8, np.int32), 5)
    for a, n in ((np.zeros(8, np.int32), 4), (np.full(8, -1, np.int32), 5)):
        with pytest.raises(DeviceAssertError) as wrong:
            run(a, n)
        assert wrong.value.message.startswith("'kernel': device assertion failed: an assumption of")
        with pytest.raises(RunError):
            simulate(kernel.program, {"A": a, "n": n})
