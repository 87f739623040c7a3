"""Row-wise kernels, whose blocks have fewer rows on a processor than their tiles."""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import tileworkbench as tw
import tileworkbench.language as T
from tests.differential.harness import check_everywhere, equals, random_array
from tileworkbench.kernels import softmax

F32 = "float32"


def in_pieces(m, n, rows, columns):
    """Sums of weighted rows, piece by piece, under a diagonal."""

    @T.prim_func
    def in_pieces(X: T.Tensor((m, n), F32), w: T.Tensor((n,), F32), c: T.Tensor((m,), F32)):
        S = T.empty((m,), F32)
        with T.Kernel(T.ceildiv(m, rows), threads=64) as bx:
            tile = T.alloc_shared((rows, columns), F32)
            weights = T.alloc_fragment((columns,), F32)
            total = T.alloc_fragment((rows,), F32)
            T.fill(total, 1.0)
            first = bx * rows
            for k in T.Pipelined(T.ceildiv(n, columns), num_stages=2):
                T.copy(X[first, k * columns], tile)
                T.copy(w[k * columns], weights)
                for i, j in T.Parallel(rows, columns):
                    below = first + i >= k * columns + j
                    tile[i, j] = T.if_then_else(below, tile[i, j] * weights[j], 0.0)
                T.reduce_sum(tile, total, dim=1, clear=False)
            for i in T.Parallel(rows):
                if first + i < m:
                    S[first + i] = total[i] * c[first + i]
        return S

    return in_pieces


def scanned(m, n, rows):
    """Running sums of bytes, two tiles deep in a tensor of batches."""

    @T.prim_func
    def scanned(X: T.Tensor((3, m, n), "int32"), Y: T.Tensor((3, m, n), "int32")):
        with T.Kernel(3, T.ceildiv(m, rows), threads=64) as (batch, by):
            tile = T.alloc_fragment((rows, n), "int32")
            T.copy(X[batch, by * rows : by * rows + rows, 0:n], tile)
            T.cumsum(tile, dim=1, reverse=True)
            T.copy(tile, Y[batch, by * rows : by * rows + rows, 0:n])

    return scanned


def close(**expected: Any) -> Callable[[dict[str, Any]], None]:
    def check(found: dict[str, Any]) -> None:
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=2e-5, atol=1e-6)

    return check


@pytest.mark.covering(1)
@pytest.mark.parametrize("size", [(3, 150), (33, 200)])
@pytest.mark.parametrize("static", [False, True])
def test_rows_after_every_pass(size, static):
    m, n = size
    x = random_array(size, F32)
    expected = torch.softmax(torch.from_numpy(x), 1).numpy()
    given = {"X": x, "Y": np.zeros_like(x)}
    kernel = softmax(m if static else T.dynamic("m"), n, block_M=16)
    assert tw.compile(kernel, target="cpu").passes["split_rows"].changed
    check_everywhere(kernel, given, close(Y=expected))


@pytest.mark.covering(1)
@pytest.mark.parametrize("size", [(3, 150), (65, 200)])
def test_pieces_after_every_pass(size):
    m, n = size
    x, w, c = random_array(size, F32), random_array((n,), F32, seed=1), random_array((m,), F32)
    expected = (1 + (np.tril(x) * w).sum(1)) * c
    kernel = in_pieces(m, n, 32, 128)
    assert tw.compile(kernel, target="cpu").passes["split_rows"].changed
    check_everywhere(
        kernel, {"X": x, "w": w, "c": c, "S": np.zeros(m, np.float32)}, close(S=expected)
    )


def test_scans_after_every_pass():
    x = random_array((3, 20, 200), "int32") % 100
    expected = np.flip(np.cumsum(np.flip(x, 2), 2), 2)
    kernel = scanned(20, 200, 16)
    assert tw.compile(kernel, target="cpu").passes["split_rows"].changed
    check_everywhere(kernel, {"X": x, "Y": np.zeros_like(x)}, equals(Y=expected.astype(np.int32)))


@pytest.mark.parametrize(("rows", "n"), [*itertools.product((4, 16, 64), (8, 100, 256))])
def test_every_bit_is_as_with_all_rows(rows, n):
    for m in (1, 3, 64, 130):
        x = torch.from_numpy(random_array((m, n), F32))
        w, c = torch.from_numpy(random_array((n,), F32, seed=1)), torch.ones(m)
        for made, args in (
            (softmax(m, n, block_M=rows), (x,)),
            (in_pieces(m, n, rows, 64), (x, w, c)),
        ):
            few, all_rows = (
                tw.compile(made, target="cpu", disable=without)(*args)
                for without in ((), ("split_rows",))
            )
            assert torch.equal(few, all_rows)


def test_one_row_of_a_tall_tile_is_one_block():
    kernel = tw.compile(softmax(1, 1024, block_M=64, threads=64), target="cpu")
    assert "with T.Kernel(1, threads=64)" in str(kernel.passes["split_rows"].program)
