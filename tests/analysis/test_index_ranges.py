"""The values of integer tensors that keep the indices made of them inside."""

from __future__ import annotations

import pytest

from tests.frontend.golden import program_of
from tileworkbench.compiler.analysis.index_ranges import IndexRange, index_ranges

# lines over I, J: (4, 8) int32, A: (100, 64) float32, B: (64,) float32
KERNELS = {
    "a gather": ("for i in T.Parallel(8):\n    B[i] = A[I[bx, i], i]", {"I": IndexRange(0, 99)}),
    "a scatter": (
        "for i in T.Parallel(8):\n    B[I[bx, i]] = A[0, i]",
        {"I": IndexRange(0, 63, distinct=True)},
    ),
    "an update": (
        "for i in T.Parallel(8):\n    T.atomic_add(B[I[bx, i]], 1.0)",
        {"I": IndexRange(0, 63)},
    ),
    "blocks of four": (
        "for i, j in T.Parallel(8, 4):\n    B[i] = B[I[bx, i] * 4 + j]",
        {"I": IndexRange(0, 15)},
    ),
    "counted from one": (
        "for i in T.Parallel(8):\n    B[i] = A[I[bx, i] - 1, i]",
        {"I": IndexRange(1, 100)},
    ),
    "through a tile and a name": (
        'S = T.alloc_shared((8,), "int32")\nT.copy(I[bx, 0:8], S)\n'
        "for i in T.Parallel(8):\n    j = S[i] + 3\n    B[i] = A[j, i]",
        {"I": IndexRange(0, 96)},
    ),
    "the corner of a region": (
        'S = T.alloc_shared((1, 64), "float32")\nT.copy(A[I[bx, 0], 0], S)\nB[bx] = S[0, 0]',
        {"I": IndexRange(0, 99)},
    ),
    "two parts of one index": (
        "for i in T.Parallel(8):\n    B[i] = A[I[bx, i] + J[bx, i], i]",
        {"I": IndexRange(0, 74), "J": IndexRange(0, 25)},
    ),
    "the length of a loop": (
        "for i in T.serial(I[bx, 0]):\n    B[i] = A[J[bx, 1], i]",
        {"I": IndexRange(0, 64), "J": IndexRange(0, 99)},
    ),
    "no index": ("for i in T.Parallel(8):\n    B[i] = I[bx, i]", {}),
    "values that the kernel writes": (
        "for i in T.Parallel(8):\n    I[bx, i] = i\n    B[i] = A[I[bx, i], i]",
        {},
    ),
}


@pytest.mark.parametrize(("body", "expected"), KERNELS.values(), ids=list(KERNELS))
def test_ranges(body: str, expected: dict[str, IndexRange]) -> None:
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    program = program_of(
        '@T.prim_func\ndef kernel(I: T.Tensor((4, 8), "int32"), J: T.Tensor((4, 8), "int32"), '
        'A: T.Tensor((100, 64), "float32"), B: T.Tensor((64,), "float32")):\n'
        f"    with T.Kernel(4, threads=64) as bx:\n{lines}"
    )
    assert index_ranges(program) == expected
