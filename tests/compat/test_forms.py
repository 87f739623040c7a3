"""Forms of kernels and of their compilation that TileLang's scripts use."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import tileworkbench as tw
from tileworkbench import compat

T: Any = None
tilelang: Any = None


@pytest.fixture(autouse=True)
def installed() -> Iterator[None]:
    global T, tilelang
    compat.install()
    tilelang, T = importlib.import_module("tilelang"), importlib.import_module("tilelang.language")
    yield
    compat.uninstall()


def test_a_kernel_is_made_by_its_class() -> None:
    @T.prim_func
    def main(A, B):
        A: T.Tensor((32,), "float32")
        B: T.Tensor((32,), "float32")
        with T.Kernel(1, threads=32):
            for i in T.Parallel(32):
                B[i] = A[i] + 1

    kernel = tilelang.JITKernel(main, out_idx=-1, target="cuda")
    assert isinstance(kernel, tilelang.JITKernel) and kernel.out_idx == [1]
    assert torch.equal(kernel(torch.zeros(32)), torch.ones(32))
    assert kernel.get_kernel_source(kernel_only=True) == kernel.get_kernel_source()
    assert "target 'cuda' was asked for" in kernel.warnings[0].message
    with pytest.raises(tw.TileTypeError, match=r"tw\.compile takes a T\.prim_func, not 'int'"):
        tilelang.JITKernel(3)


def test_a_function_without_a_launch_runs_once() -> None:
    @T.prim_func
    def main(A: T.Tensor((8,), "int32"), B: T.Tensor((8,), "int32"), C: T.Tensor((1,), "int32")):
        total = T.alloc_var("int32")
        if A[0] > 0:
            A[0] = 0
        if A[0] > 0:
            A[1] = 100
        for i in T.serial(8):
            B[i] = A[i] * 2
            total += A[i]
        for i in T.Parallel(8):
            A[i] += 1
        T.atomic_add(C[0], total)

    a, b, c = torch.arange(1, 9), torch.zeros(8), torch.zeros(1)
    a, b, c = (tensor.to(torch.int32) for tensor in (a, b, c))
    tilelang.compile(main, target="c")(a, b, c)
    assert b.tolist() == [0, 4, 6, 8, 10, 12, 14, 16]
    assert a.tolist() == [1, 3, 4, 5, 6, 7, 8, 9] and c.tolist() == [35]


def test_a_function_without_a_launch_returns_its_outputs() -> None:
    @T.prim_func
    def main(A):
        A: T.Tensor((4,), "float32")
        B = T.empty((4,), "float32")
        for i in T.serial(4):
            B[i] = A[i] + 1
        return B

    assert main.attrs["tilelang_out_idx"] == [-1]
    assert torch.equal(tilelang.compile(main)(torch.zeros(4)), torch.ones(4))


def test_errors_in_front_of_a_launch_and_without_one_are_those_of_the_text() -> None:
    with pytest.raises(tw.CompileError) as caught:

        @T.prim_func
        def main(A: T.Tensor((4,), "float32")):
            A[0] = 1.0
            with T.Kernel(1):
                A[1] = 2.0

    assert caught.value.message == "a store stands outside 'with T.Kernel(...)'"
    with pytest.raises(tw.CompileError) as caught:

        @T.prim_func
        def other(A: T.Tensor((4,), "float32")):
            for i in T.serial(4):
                A[i, 0] = 1.0

    assert caught.value.message.startswith("'A' has 1 dimension")


def test_a_macro_may_be_all_of_an_annotated_kernel() -> None:
    @T.macro
    def copy(A, B):
        M, N = A.shape
        assert B.shape[0] == M, "rows"
        with T.Kernel(T.ceildiv(M, 16), threads=32) as bx:
            for i, j in T.Parallel(16, N):
                B[bx * 16 + i, j] = A[bx * 16 + i, j]

    @tilelang.jit
    def static(A: T.Tensor[[64, 8], T.float32], B: T.Tensor[[64, 8], T.float32]):
        copy(A, B)

    @tilelang.jit
    def dynamic(A, B):
        M, N = T.dynamic("M"), T.const("N")
        A: T.Tensor[[M, N], T.float32]
        B: T.Tensor[[M, N], T.float32]
        copy(A, B)

    a = torch.randn(64, 8)
    for kernel in (static, dynamic):
        b = torch.empty(64, 8)
        kernel(a, b)
        assert torch.equal(a, b)
    spec = T.Tensor((64, 8))
    for made in tilelang.par_compile([each.get_tir(spec, spec) for each in (static, dynamic)]):
        b = torch.empty(64, 8)
        made(a, b)
        assert torch.equal(a, b)


def test_what_stands_for_arguments_while_compiling() -> None:
    @tilelang.jit
    def double(A: T.ptr, B: T.ptr, M: int, N: int, dtype: T.dtype, block: int = 8):
        A = T.make_tensor(A, (M, N), dtype)
        B = T.make_tensor(B, (M, N), dtype)
        with T.Kernel(M // block, threads=32) as bx:
            for i, j in T.Parallel(block, N):
                B[bx * block + i, j] = A[bx * block + i, j] * 2

    @tilelang.jit
    def ones(out):
        out: T.Tensor[(16, 16), T.float32]
        with T.Kernel(1, threads=32):
            T.fill(out, 1.0)

    dtypes = [T.float16, T.float32]
    configs = [{"A": T.ptr(), "B": T.ptr(), "M": 32, "N": 8, "dtype": d} for d in dtypes]
    for dtype, kernel in zip(dtypes, double.par_compile(configs), strict=True):
        a = torch.randn(32, 8).to(dtype.as_torch())
        b, c = torch.empty_like(a), torch.empty_like(a)
        kernel(a, b)
        double(a, c, 32, 8, dtype.as_torch())
        assert torch.equal(b, a * 2) and torch.equal(c, a * 2)
    out = torch.empty(16, 16)
    ones.compile(out=T.Tensor[(16, 16), T.float32])(out)
    assert torch.equal(out, torch.ones(16, 16))


def test_a_tuned_kernel_without_its_call() -> None:
    @tilelang.autotune(configs=[{"block": 8}], warmup=0, rep=0.1, do_not_specialize=["block"])
    @tilelang.jit
    def scale(A, block: int = 16):
        M = T.const("M")
        A: T.Tensor[[M], T.float32]
        B = T.empty((M,), T.float32)
        with T.Kernel(T.ceildiv(M, block), threads=32) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = A[bx * block + i] * 3
        return B

    a = torch.randn(64)
    kernel = scale.compile(a, block=16)
    assert isinstance(kernel, tilelang.JITKernel) and kernel.config == {"block": 8}
    assert torch.equal(kernel(a), a * 3)


def counted(target: Any, body: Any) -> list[int]:
    """What a launch of one block of 128 threads leaves in four counters."""
    inner = T.macro(body)

    @tilelang.jit(target=target, out_idx=None)
    def make():
        @T.prim_func
        def main(C: T.Tensor((4,), "int32")):
            with T.Kernel(1):
                inner(C)

        return main

    c = torch.zeros(4, dtype=torch.int32)
    make()(c)
    d = torch.zeros(4, dtype=torch.int32)
    tilelang.compile(make.get_tir(), target=target)(d)
    assert torch.equal(c, d)
    return c.tolist()


@pytest.mark.parametrize(
    ("target", "times"),
    [("c", 1), ("llvm", 1), ({"kind": "llvm"}, 1), ("cpu", 128), ("auto", 128), ("cuda", 128)],
    ids=str,
)
def test_blocks_of_c_and_llvm_have_no_threads(target: Any, times: int) -> None:
    def uniform(C):
        T.atomic_add(C[0], 1)
        T.sync_threads()
        for i in T.Parallel(3):
            T.atomic_add(C[1], 1)
        tile = T.alloc_shared((4,), "int32")
        T.clear(tile)
        for i in T.Parallel(4):
            tile[i] += 2
        T.atomic_add(C[2], tile[3])

    assert counted(target, uniform) == [times, 3, 2 * times, 0]


def test_a_current_target_has_the_same_rule() -> None:
    def uniform(C):
        T.atomic_add(C[0], 1)

    with importlib.import_module("tvm").target.Target("c"):
        assert counted("auto", uniform) == [1, 0, 0, 0]
    assert counted("auto", uniform) == [128, 0, 0, 0]


def test_threads_that_are_told_apart_stay() -> None:
    def named(C):
        tx = T.get_thread_binding()
        T.atomic_add(C[0], 1)
        if tx == 5:
            T.atomic_add(C[1], 1)

    def meeting(C):
        ready = T.alloc_barrier(128)
        T.barrier_arrive(ready)
        T.barrier_wait(ready, 0)
        T.atomic_add(C[0], 1)

    assert counted("c", named) == [128, 1, 0, 0]
    assert counted("c", meeting) == [128, 0, 0, 0]
