"""Which kernels may work in place."""

from __future__ import annotations

import pytest

import tileworkbench.language as T
from tileworkbench.compiler.analysis.elementwise import is_elementwise


@T.prim_func
def add(A: T.Tensor((300,), "float32"), B: T.Tensor((300,), "float32")):
    with T.Kernel(T.ceildiv(300, 128)) as b:
        for i in T.Parallel(128):
            x = A[b * 128 + i]
            B[b * 128 + i] = x * x + 1.0


@T.prim_func
def add_2d(A: T.Tensor((64, 96), "float32"), B: T.Tensor((64, 96), "float32")):
    with T.Kernel(3, 4) as (bx, by):
        for i, j in T.Parallel(16, 32):
            B[by * 16 + i, bx * 32 + j] = A[by * 16 + i, bx * 32 + j] * 2.0


m = T.dynamic("m")


@T.prim_func
def any_length(A: T.Tensor((m,), "float32"), B: T.Tensor((m,), "float32")):
    with T.Kernel(T.ceildiv(m, 128)) as b:
        for i in T.Parallel(128):
            B[b * 128 + i] = -A[b * 128 + i]


@T.prim_func
def shifted(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
    with T.Kernel(1) as b:
        for i in T.Parallel(63):
            B[i] = A[i + 1]


@T.prim_func
def overlapping_blocks(A: T.Tensor((300,), "float32"), B: T.Tensor((300,), "float32")):
    with T.Kernel(2) as b:
        for i in T.Parallel(128):
            B[b * 100 + i] = A[b * 100 + i] + 1.0


@T.prim_func
def twice(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
    with T.Kernel(2) as b:
        for i in T.Parallel(64):
            B[i] = A[i] + 1.0


@T.prim_func
def two_outputs(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32"), C: T.Tensor((64,), "float32")):  # fmt: skip # noqa: E501
    with T.Kernel(1) as b:
        for i in T.Parallel(64):
            B[i] = A[i] + 1.0
            C[i] = A[i] + 2.0


@T.prim_func
def through_a_tile(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
    with T.Kernel(1) as b:
        tile = T.alloc_fragment((64,), "float32")
        T.copy(A, tile)
        T.copy(tile, B)


@T.prim_func
def transposed(A: T.Tensor((8, 8), "float32"), B: T.Tensor((8, 8), "float32")):
    with T.Kernel(1) as b:
        for i, j in T.Parallel(8, 8):
            B[i, j] = A[j, i]


@pytest.mark.parametrize("kernel", [add, add_2d, any_length], ids=lambda k: k.name)
def test_in_place_is_safe(kernel) -> None:
    assert is_elementwise(kernel.program)


@pytest.mark.parametrize(
    "kernel",
    [shifted, overlapping_blocks, twice, two_outputs, through_a_tile, transposed],
    ids=lambda k: k.name,
)
def test_in_place_is_not_known_to_be_safe(kernel) -> None:
    assert not is_elementwise(kernel.program)
