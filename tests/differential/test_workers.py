"""Persistent workers, workspaces, questions about tiles, and unfolded images."""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

import numpy as np
import pytest

import tileworkbench.language as T
from tests.differential.harness import check_everywhere, equals, random_array


@pytest.mark.parametrize(
    ("domain", "workers", "group"),
    [((7,), 3, 2), ((5, 6), 4, 4), ((3, 2, 5), 7, 3), ((2, 3), 9, 8)],
)
def test_workers_visit_every_tile_once(domain, workers, group):
    @T.prim_func
    def kernel(C: T.Tensor(domain, "int32"), R: T.Tensor(domain, "int32")):
        with T.Kernel(workers, threads=32) as bx:
            seen = T.alloc_var("int32", 0)
            for places in T.Persistent(list(domain), workers, bx, group_size=group):
                where = places if isinstance(places, tuple) else (places,)
                for _ in T.Parallel(1):
                    T.atomic_add(C[where], 1)
                R[where] = bx + 100 * seen
                seen += 1

    order = np.zeros(domain, np.int32)
    size = max(1, min(group, domain[-1]))
    radices = [-(-domain[-1] // size), *domain[:-1], size]
    for number in range(int(np.prod(radices))):
        digits = np.unravel_index(number, radices)
        place = (*digits[1:-1], digits[0] * size + digits[-1])
        if place[-1] < domain[-1]:
            # A worker counts the tiles it has seen, not its waves.
            order[place] = number % workers

    def check(arrays):
        assert (arrays["C"] == 1).all()
        np.testing.assert_array_equal(arrays["R"] % 100, order)

    zeros = np.zeros(domain, np.int32)
    check_everywhere(kernel, {"C": zeros, "R": zeros.copy()}, check)


@pytest.mark.parametrize(
    ("swizzle", "column_major", "workers"), [(1, True, 4), (2, True, None), (3, False, 5)]
)
def test_a_scheduler_hands_out_every_tile_once(swizzle, column_major, workers):
    m, n, blocks = 5, 7, workers or 3

    @T.prim_func
    def kernel(R: T.Tensor((m, n), "int32"), P: T.Tensor((m * n, 2), "int32")):
        with T.Kernel(blocks, threads=32) as bx:
            tiles = T.PersistentTileScheduler(m, n, workers, swizzle, column_major)
            tiles.init(bx)
            while tiles.valid():
                R[tiles.m_idx, tiles.n_idx] = tiles.linear_idx * 100 + tiles.current_iter
                row, column = tiles.coord(tiles.linear_idx)
                P[tiles.linear_idx, 0] = row
                P[tiles.linear_idx, 1] = column
                tiles.next_tile()

    order, places = np.zeros((m, n), np.int32), np.zeros((m * n, 2), np.int32)
    primary, secondary = (m, n) if column_major else (n, m)
    for number in range(m * n):
        panel = number // (primary * swizzle)
        width = max(1, min(swizzle, secondary - panel * swizzle))
        rest = number - panel * primary * swizzle
        place = rest // width, panel * swizzle + rest % width
        place = place if column_major else place[::-1]
        order[place] = number * 100 + number // blocks
        places[number] = place
    arguments = {"R": np.zeros_like(order), "P": np.zeros_like(places)}
    check_everywhere(kernel, arguments, equals(R=order, P=places))


def test_a_workspace_lives_from_one_launch_to_the_next():
    a = random_array((40, 16), "float32").round()

    @T.prim_func
    def kernel(A: T.Tensor((T.dynamic("m"), 16), "float32")):
        B = T.empty((16,), "float32")
        m = A.shape[0]
        partial = T.alloc_global((T.ceildiv(m, 8), 16), "float32")
        with T.Kernel(T.ceildiv(m, 8), threads=32) as bx:
            tile = T.alloc_fragment((8, 16), "float32")
            total = T.alloc_fragment((16,), "float32")
            T.copy(A[bx * 8, 0], tile)
            T.reduce_sum(tile, total, dim=0)
            T.copy(total, partial[bx, 0])
        with T.Kernel(1, threads=32) as bx:
            for j in T.Parallel(16):
                B[j] = 0.0
                for i in T.serial(T.ceildiv(m, 8)):
                    B[j] += partial[i, j]
        return B

    check_everywhere(kernel, {"A": a}, equals(B=a.sum(axis=0)))


@pytest.mark.parametrize("alloc", [T.alloc_shared, T.alloc_fragment])
def test_some_and_all_elements(alloc):
    a = (random_array((6, 5), "int32") % 3 == 0).astype(np.int32)
    a[2], a[3], a[4] = 0, 7, 0
    a[4, 4] = -1

    @T.prim_func
    def kernel(A: T.Tensor((6, 5), "int32")):
        R = T.empty((6, 4), "int32")
        with T.Kernel(6, threads=32) as bx:
            S = alloc((5,), "int32")
            T.copy(A[bx, 0:5], S)
            some = T.any_of(S)
            R[bx, 0] = T.if_then_else(some, 1, 0)
            R[bx, 1] = T.if_then_else(T.all_of(S), 1, 0)
            if T.any_of(A[bx, 1:4]):
                R[bx, 2] = 1
            else:
                R[bx, 2] = 0
            R[bx, 3] = T.cast(T.any_of(A), "int32")
        return R

    expected = np.stack(
        [a.any(1), a.all(1), a[:, 1:4].any(1), np.ones(6, np.bool_)], axis=1
    ).astype(np.int32)
    check_everywhere(kernel, {"A": a}, equals(R=expected))


@pytest.mark.parametrize(
    ("size", "stride", "dilation", "pad"), [(3, 1, 1, 1), (3, 2, 2, 2), (1, 1, 1, 0)]
)
def test_unfolded_image(size, stride, dilation, pad):
    n, h, w, c, f = 2, 9, 8, 4, 16
    a = random_array((n, h, w, c), "float32").round()
    kernel_ = random_array((size * size * c, f), "float32").round()
    oh = (h + 2 * pad - dilation * (size - 1) - 1) // stride + 1
    ow = (w + 2 * pad - dilation * (size - 1) - 1) // stride + 1
    rows, depth = n * oh * ow, size * size * c

    @T.prim_func
    def kernel(A: T.Tensor((n, h, w, c), "float32"), K: T.Tensor((depth, f), "float32")):
        C = T.empty((rows, f), "float32")
        with T.Kernel(T.ceildiv(rows, 16), threads=32) as bx:
            T.annotate_safe_value({A: 3.0})
            X = T.alloc_shared((16, 8), "float32")
            Y = T.alloc_shared((8, f), "float32")
            acc = T.alloc_fragment((16, f), "float32")
            T.clear(acc)
            for k in T.Pipelined(T.ceildiv(depth, 8)):
                T.im2col(A, X, bx, k, size, stride, dilation, pad)
                T.copy(K[k * 8, 0], Y)
                T.gemm(X, Y, acc)
            T.copy(acc, C[bx * 16, 0])
        return C

    padded = np.zeros((n, h + 2 * pad, w + 2 * pad, c), np.float32)
    padded[:, pad : pad + h, pad : pad + w] = a
    unfolded = np.stack(
        [
            padded[:, y * dilation :, x * dilation :][
                :, : (oh - 1) * stride + 1 : stride, : (ow - 1) * stride + 1 : stride
            ]
            for y in range(size)
            for x in range(size)
        ],
        axis=3,
    ).reshape(rows, depth)
    check_everywhere(kernel, {"A": a, "K": kernel_}, equals(C=unfolded @ kernel_))
