"""Loops that Python unrolls: the work of a trace grows with the number of copies, not faster.

Work is counted in executed lines of Python, which no other load of the machine changes.
"""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

import tileworkbench.language as T


def elements(copies: tuple[int, ...]) -> None:
    @T.prim_func
    def kernel(A: T.Tensor((8192,), "float32"), B: T.Tensor((8192,), "float32")):
        with T.Kernel(1, threads=128):
            for i in copies:
                B[i] = A[i] * 2.0 + 1.0


def names(copies: tuple[int, ...]) -> None:
    @T.prim_func
    def kernel(A: T.Tensor((8192,), "float32"), B: T.Tensor((8192,), "float32")):
        with T.Kernel(1, threads=128) as bx:
            for i in copies:
                x = A[i + bx] * 2.0
                y = x + 1.0
                B[i] = x * y


def branches(copies: tuple[int, ...]) -> None:
    @T.prim_func
    def kernel(A: T.Tensor((8192,), "float32"), B: T.Tensor((8192,), "float32")):
        with T.Kernel(1, threads=128) as bx:
            for i in copies:
                if bx > i:
                    B[i] = A[i]
                else:
                    B[i] = 1.0


def tiles(copies: tuple[int, ...]) -> None:
    @T.prim_func
    def kernel(A: T.Tensor((8192,), "float32"), B: T.Tensor((8192,), "float32")):
        with T.Kernel(1, threads=128):
            for i in copies:
                tile = T.alloc_shared((8,), "float32")
                T.copy(A[i * 8], tile)
                for j in T.Parallel(8):
                    tile[j] = tile[j] + 1.0
                T.copy(tile, B[i * 8])


def variables(copies: tuple[int, ...]) -> None:
    @T.prim_func
    def kernel(A: T.Tensor((8192,), "int32")):
        with T.Kernel(1, threads=128):
            for i in copies:
                v = T.alloc_var("int32", init=i)
                v += 1
                T.atomic_add(A[i], v)


@T.macro
def doubled(A, i):
    x = A[i] * 2.0
    A[i] = x


def macros(copies: tuple[int, ...]) -> None:
    @T.prim_func
    def kernel(A: T.Tensor((8192,), "float32")):
        with T.Kernel(1, threads=128):
            for i in copies:
                doubled(A, i)


def barriers(copies: tuple[int, ...]) -> None:
    @T.prim_func
    def kernel(A: T.Tensor((8192,), "float32")):
        with T.Kernel(1, threads=128):
            for i in copies:
                bar = T.alloc_barrier(128)
                T.mbarrier_arrive(bar)
                T.mbarrier_wait_parity(bar, 0)
                A[i] = 1.0


def lines(work: Callable[[], Any]) -> int:
    """How many lines of Python `work` executes."""
    count = 0

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    gc.collect()  # the end of what other tests have left is no work of this one
    gc.disable()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
        gc.enable()
    return count


KERNELS = [elements, names, branches, tiles, variables, macros, barriers]


@pytest.mark.parametrize("make", KERNELS, ids=lambda make: make.__name__)
def test_work_grows_with_the_number_of_copies(make: Callable[[tuple[int, ...]], None]) -> None:
    make(tuple(range(4)))  # what happens once has happened
    few, many = (lines(lambda: make(tuple(range(n)))) for n in (60, 240))  # noqa: B023
    assert many < 4.2 * few, (few, many)
