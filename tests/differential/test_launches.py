"""Whole kernels and their arguments: empty and dead code, loops between blocks' indices, strides
and addresses known at run time, elements far from the start, text that is the same each time.
"""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch

import tileworkbench as tw
import tileworkbench.language as T
from tests.differential.cases import F16, F32, Case, Cases, small
from tests.differential.harness import equals

case = Cases()
TARGETS = ["cpu", "sim:sm_80", pytest.param("ptx:sm_80", marks=pytest.mark.nvrtc)]


@case
def a_kernel_that_does_nothing() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((64,), F32)):
        with T.Kernel(3, threads=32) as bx:
            pass

    a = small(64)
    return kernel, {"A": a}, equals(A=a)


@case
def code_that_nothing_comes_of() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((64,), F32)):
        with T.Kernel(1, threads=32) as bx:
            s, f = T.alloc_shared((64,), F32), T.alloc_fragment((64,), F32)
            unused = T.alloc_shared((64, 64), F32)
            T.copy(A, f)
            T.copy(f, s)
            x = A[3] * 2.0
            if bx > 5:
                T.fill(A, 7.0)
            for k in T.serial(0):
                T.fill(A, x)

    a = small(64)
    return kernel, {"A": a}, equals(A=a)


@case
def a_kernel_without_a_number_of_threads() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((64, 32), F32)):
        with T.Kernel(2) as bx:
            for i, j in T.Parallel(32, 32):
                A[bx * 32 + i, j] = A[bx * 32 + i, j] + bx + 1

    a = small(64, 32)
    return kernel, {"A": a}, equals(A=a + np.repeat([1, 2], 32)[:, None].astype(F32))


@case
def loops_between_the_block_and_another_loop() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((8, 64), F32)):
        B = T.empty((8, 64), F32)
        with T.Kernel(8, threads=32) as bx:
            s, f = T.alloc_shared((64,), F32), T.alloc_fragment((64,), F32)
            T.clear(f)
            for i in T.serial(bx + 1):
                for j in T.serial(i, bx + 1):
                    T.copy(A[j, :], s)
                    for x in T.Parallel(64):
                        f[x] = f[x] + s[63 - x] * (i + 1)
            T.copy(f, B[bx, :])
        return B

    a = small(8, 64)
    factors = np.cumsum(np.arange(1, 9, dtype=F32))
    return kernel, {"A": a}, equals(B=np.cumsum(a[:, ::-1] * factors[:, None], 0, dtype=F32))


@case
def extents_that_formulas_give() -> Case:
    M, N = T.dynamic("M, N")

    @T.prim_func
    def kernel(A: T.Tensor((M, N), F32), B: T.Tensor((M * N,), F32), S: T.Tensor((N // 4, M), F32)):
        with T.Kernel(M, threads=32) as bx:
            for j in T.Parallel(N):
                B[bx * N + j] = A[bx, j] * S[j // 4, bx]

    a, s = small(5, 24), small(6, 5, seed=1)
    expected = (a * np.repeat(s.T, 4, axis=1)).ravel()
    return kernel, {"A": a, "B": np.zeros(120, F32), "S": s}, equals(B=expected)


@case
def extents_that_scalars_give() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((64,), F32), n: T.int32, s: T.float32):
        B = T.empty((n, 2), F32)
        W = T.alloc_global((n + 1,), F32)
        with T.Kernel(1, threads=32):
            for i in T.Parallel(n):
                W[i] = A[i] * s
        with T.Kernel(n, threads=32) as bx:
            for j in T.Parallel(2):
                B[bx, j] = W[bx] + j
        return B

    a = small(64)
    expected = a[:7, None] * np.float32(0.5) + np.arange(2, dtype=F32)
    return kernel, {"A": a, "n": 7, "s": 0.5}, equals(B=expected)


@case
def a_stride_that_only_one_row_gives() -> Case:
    M, S = T.dynamic("M"), T.dynamic("S")

    @T.prim_func
    def kernel(A: T.StridedTensor((M, 64), (S, 1), F32), B: T.Tensor((M, 64), F32)):
        with T.Kernel(M, threads=32) as bx:
            T.copy(A[bx, :], B[bx, :])

    a = small(1, 77)[:, :64]
    return kernel, {"A": a, "B": np.zeros((1, 64), F32)}, equals(B=a)


@case
def a_tensor_with_strides_and_without_rows() -> Case:
    M, S = T.dynamic("M"), T.dynamic("S")

    @T.prim_func
    def kernel(A: T.StridedTensor((M, 64), (S, 1), F32), B: T.Tensor((64,), F32)):
        with T.Kernel(1, threads=32):
            T.copy(A[0, 0:64], B)

    a = small(3, 77)[:0, :64]
    return kernel, {"A": a, "B": small(64)}, equals(A=a, B=np.zeros(64, F32))


@case
def strides_that_leave_no_gap() -> Case:
    S = T.dynamic("S")

    @T.prim_func
    def kernel(A: T.StridedTensor((16, 64), (1, S), F32), B: T.Tensor((16, 64), F32)):
        with T.Kernel(1, threads=32) as bx:
            T.copy(A, B)

    a = small(64, 16).T
    return kernel, {"A": a, "B": np.zeros((16, 64), F32)}, equals(A=a, B=a)


@pytest.mark.parametrize("name", case)
def test_results(name):
    case.check(name)


@pytest.mark.nvrtc
@pytest.mark.parametrize("name", case)
def test_executed_ptx(name):
    case.check_ptx(name)


@pytest.mark.parametrize("target", TARGETS)
def test_strides_known_at_run_time(target):
    M, S = T.dynamic("M"), T.dynamic("S")

    @T.prim_func
    def kernel(A: T.StridedTensor((M, 64), (S, 1), F16), B: T.Tensor((M, 64), F16)):
        with T.Kernel(T.ceildiv(M, 16), threads=32) as bx:
            s = T.alloc_shared((16, 64), F16)
            T.copy(A[bx * 16, 0], s)
            for i, j in T.Parallel(16, 64):
                B[bx * 16 + i, j] = s[i, 63 - j]

    compiled = tw.compile(kernel, target=target)
    for stride in (64, 72, 77):
        a, b = small(37, stride, dtype=F16)[:, :64], np.zeros((37, 64), F16)
        compiled(a, b)
        np.testing.assert_array_equal(b, a[:, ::-1])


def one_more() -> Any:
    @T.prim_func
    def kernel(A: T.Tensor((64, 64), F16), B: T.Tensor((64, 64), F16)):
        with T.Kernel(1, threads=64) as bx:
            s = T.alloc_shared((64, 64), F16)
            T.copy(A, s)
            for i, j in T.Parallel(64, 64):
                B[i, j] = s[i, 63 - j] + T.float16(1)

    return kernel


@pytest.mark.parametrize("target", TARGETS)
def test_tensors_that_begin_anywhere(target):
    """Inside another tensor: by 16 bytes, as vectors need, or by less, which a GPU refuses."""
    kernel = tw.compile(one_more(), target=target)
    a, b = torch.arange(64 * 64 + 8).half() % 7, torch.zeros(64 * 64 + 8).half()
    for offset in (8, 1):
        x, y = (tensor[offset : offset + 64 * 64].view(64, 64) for tensor in (a, b))
        if offset == 1 and target != "cpu":
            with pytest.raises(tw.ArgumentError) as wrong:
                kernel(x, y)
            assert wrong.value.message == (
                "'kernel': 'A' begins at an address that is no multiple of 16"
            )
            continue
        kernel(x, y)
        assert torch.equal(y, x.flip(1) + 1)


@pytest.mark.parametrize("target", TARGETS)
def test_a_transposed_tensor_is_refused(target):
    kernel = tw.compile(one_more(), target=target)
    with pytest.raises(tw.ArgumentError) as wrong:
        kernel(torch.zeros(64, 64).half().t(), torch.zeros(64, 64).half())
    assert wrong.value.message == "'kernel': 'A' has strides (1, 64), expected (64, 1)"


def far(size: Any) -> Any:
    @T.prim_func
    def kernel(A: T.Tensor((size, size), "int8"), B: T.Tensor((4, 64), "int8")):
        with T.Kernel(4, threads=32) as bx:
            s = T.alloc_shared((1, 64), "int8")
            T.copy(A[bx * 20000 + 1000, 64], s)
            for j in T.Parallel(64):
                B[bx, j] = s[0, 63 - j] + A[bx * 20000 + 1000, size - 1 - j]

    return kernel


@pytest.mark.parametrize("dynamic", [False, True])
def test_elements_more_than_two_billion_from_the_start(dynamic):
    """On a processor executed, over memory that is hardly touched; on a GPU read off the text."""
    size, rows = 70_000, np.arange(4) * 20_000 + 1000
    kernel = far(T.dynamic("N") if dynamic else size)
    a, b = np.zeros((size, size), np.int8), np.zeros((4, 64), np.int8)
    a[rows, 64:128], a[rows, -64:] = small(4, 64), small(4, 64, seed=1)
    tw.compile(kernel)(a, b)
    np.testing.assert_array_equal(b, a[rows, 64:128][:, ::-1] + a[rows, -64:][:, ::-1])
    lines = tw.compile(kernel, target="sim:sm_80").source.splitlines()
    loads = [line for line in lines if "A[" in line and "//" not in line]
    assert len(loads) == 2 and all("(long long)" in line for line in loads)


TEXTS = """
import tileworkbench as tw, tileworkbench.kernels as kernels
for make in (kernels.matmul(256, 256, 256, "float16"),
             kernels.flash_attention(1, 2, 128, 128, 64, "float16", causal=True)):
    for target in ("cpu:generic", "sim:sm_80"):
        print(tw.compile(make, target=target).source)
"""


def test_the_text_does_not_depend_on_the_process():
    """Compiled kernels are cached by what they were made from."""
    texts = set()
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        run = [sys.executable, "-c", TEXTS]
        texts.add(subprocess.run(run, env=environment, capture_output=True, check=True).stdout)
    (text,) = texts
    assert text.count(b"__global__") == 2
