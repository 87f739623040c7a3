"""Nests without a dimension that memory likes: vectors whose lanes are stored by themselves where
much is computed, single iterations where little is.
"""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tests.differential.harness import check_everywhere, equals, random_array


def pixels(rows, columns):
    """Three bytes of each pixel, of one number for two of them."""

    @T.prim_func
    def kernel(
        X: T.Tensor((rows, columns // 2), "uint8"), Z: T.Tensor((rows, columns, 3), "uint8")
    ):
        with T.Kernel(rows) as by:
            for j in T.Parallel(columns):
                x = T.cast(X[by, j // 2], "int32")
                Z[by, j, 0] = T.cast(T.clamp((298 * x + 409 * (x - 90) + j) >> 8, 0, 255), "uint8")
                Z[by, j, 1] = T.cast(T.clamp((298 * x - 100 * x + 3 * j) >> 8, 0, 255), "uint8")
                Z[by, j, 2] = T.cast(T.clamp((516 * x - 208 * j) >> 8, 0, 255), "uint8")

    return kernel


@pytest.mark.covering(1)
@pytest.mark.parametrize("columns", [6, 46, 128])
def test_pixels_of_three_bytes(columns):
    x = random_array((3, columns // 2), "uint8")
    wide, j = np.repeat(x, 2, axis=1).astype(np.int32), np.arange(columns, dtype=np.int32)
    numbers = (
        298 * wide + 409 * (wide - 90) + j,
        298 * wide - 100 * wide + 3 * j,
        516 * wide - 208 * j,
    )
    expected = np.stack([np.clip(n >> 8, 0, 255) for n in numbers], -1).astype(np.uint8)
    given = {"X": x, "Z": np.zeros_like(expected)}
    check_everywhere(pixels(3, columns), given, equals(Z=expected))


def test_much_is_computed_in_vectors_and_little_one_by_one():
    @T.prim_func
    def moved(X: T.Tensor((256,), "float32"), at: T.Tensor((256,), "int32")):
        Y = T.empty((256,), "float32")
        with T.Kernel(1):
            for j in T.Parallel(256):
                Y[at[j]] = X[at[255 - j]]
        return Y

    def vectors(kernel):
        return str(tw.compile(kernel, target="cpu").stats.lowered).count("T.vectorized")

    assert vectors(pixels(3, 128)) > 0
    assert vectors(moved) == 0
