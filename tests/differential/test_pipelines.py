"""Pipelined loops: few or no iterations, bounds and indices that blocks compute, conditions, loops
inside and after each other, several groups of copies. Results are those of a serial loop.
"""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

from typing import Any

import numpy as np
import pytest

import tileworkbench.language as T
from tests.differential.cases import F16, F32, I32, Case, Cases, small
from tests.differential.harness import check_executors, check_on_threads, equals

case = Cases()


def matmul(k: int, stages: int, dtype: str = F16) -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((32, k), dtype), B: T.Tensor((k, 32), dtype)):
        C = T.empty((32, 32), F32)
        with T.Kernel(1, threads=64) as bx:
            a, b = T.alloc_shared((32, 16), dtype), T.alloc_shared((16, 32), dtype)
            c = T.alloc_fragment((32, 32), F32)
            T.clear(c)
            for ko in T.Pipelined(T.ceildiv(k, 16), num_stages=stages):
                T.copy(A[0, ko * 16], a)
                T.copy(B[ko * 16, 0], b)
                T.gemm(a, b, c)
            T.copy(c, C)
        return C

    a, b = small(32, k, dtype=dtype), small(k, 32, dtype=dtype)
    return kernel, {"A": a, "B": b}, equals(C=a.astype(F32) @ b.astype(F32))


@pytest.mark.parametrize("stages", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("k", [16, 17, 32, 48, 63, 80])
def test_fewer_iterations_than_stages_as_many_and_more(k, stages):
    kernel, arguments, check = matmul(k, stages)
    check_on_threads(kernel, arguments, check)


@pytest.mark.parametrize("stages", [0, 2, 4])
def test_any_number_of_iterations_with_one_kernel(stages):
    K = T.dynamic("K")

    @T.prim_func
    def kernel(A: T.Tensor((32, K), F16), B: T.Tensor((K, 32), F16), C: T.Tensor((32, 32), F32)):
        with T.Kernel(1, threads=64) as bx:
            a, b = T.alloc_shared((32, 16), F16), T.alloc_shared((16, 32), F16)
            c = T.alloc_fragment((32, 32), F32)
            for i, j in T.Parallel(32, 32):
                c[i, j] = C[i, j] * 2.0
            for ko in T.Pipelined(T.ceildiv(K, 16), num_stages=stages):
                T.copy(A[0, ko * 16], a)
                T.copy(B[ko * 16, 0], b)
                T.gemm(a, b, c)
            T.copy(c, C)

    for k in (0, 1, 16, 17, 48, 100):
        a, b, c = small(32, k, dtype=F16), small(k, 32, dtype=F16), small(32, 32)
        check = equals(C=a.astype(F32) @ b.astype(F32) + 2 * c)
        check_executors(kernel, {"A": a, "B": b, "C": c}, check)


@case
def bounds_that_depend_on_the_block_and_may_leave_nothing() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((64, 16), F32), First: T.Tensor((4,), I32)):
        C = T.empty((4, 16), F32)
        with T.Kernel(4, threads=32) as bx:
            a, c = T.alloc_shared((8, 16), F32), T.alloc_fragment((16,), F32)
            r = T.alloc_fragment((16,), F32)
            T.clear(c)
            for k in T.Pipelined(First[bx], bx * 2 + 1, num_stages=3):
                T.copy(A[k * 8, 0], a)
                T.reduce_sum(a, r, dim=0)
                for j in T.Parallel(16):
                    c[j] = c[j] + r[j] * (k + 1)
            T.copy(c, C[bx, 0])
        return C

    a, first = small(64, 16), np.array([0, 3, 9, 2], I32)
    sums = a.reshape(8, 8, 16).sum(1) * np.arange(1, 9, dtype=F32)[:, None]
    expected = np.stack([sums[first[b] : 2 * b + 1].sum(0) for b in range(4)])
    return kernel, {"A": a, "First": first}, equals(C=expected)


@case
def blocks_left_out_by_a_mask() -> Case:
    @T.prim_func
    def kernel(
        A: T.Tensor((32, 96), F16), B: T.Tensor((96, 32), F16), Mask: T.Tensor((2, 6), "bool")
    ):
        C = T.empty((2, 32, 32), F32)
        with T.Kernel(2, threads=64) as bx:
            a, b = T.alloc_shared((32, 16), F16), T.alloc_shared((16, 32), F16)
            c = T.alloc_fragment((32, 32), F32)
            T.clear(c)
            for k in T.Pipelined(6, num_stages=3):
                if Mask[bx, k]:
                    T.copy(A[0, k * 16], a)
                    T.copy(B[k * 16, 0], b)
                    T.gemm(a, b, c)
            T.copy(c, C[bx, 0, 0])
        return C

    a, b = small(32, 96, dtype=F16), small(96, 32, dtype=F16)
    mask = np.array([[1, 0, 0, 1, 1, 0], [0, 0, 0, 0, 0, 1]], bool)
    wide = [a.astype(F32), b.astype(F32)]
    kept = np.repeat(mask, 16, 1)
    expected = np.stack([(wide[0] * row) @ wide[1] for row in kept])
    return kernel, {"A": a, "B": b, "Mask": mask}, equals(C=expected)


@case
def places_to_copy_are_read_in_the_loop() -> Case:
    """Two levels: a list of pages, and a table of where they are."""

    @T.prim_func
    def kernel(A: T.Tensor((64, 16), F16), Ids: T.Tensor((5,), I32), Pages: T.Tensor((8,), I32)):
        C = T.empty((8, 16), F32)
        with T.Kernel(1, threads=32) as bx:
            a, c = T.alloc_shared((8, 16), F16), T.alloc_fragment((8, 16), F32)
            T.clear(c)
            for k in T.Pipelined(5, num_stages=3):
                page = Ids[k]
                row = Pages[page] * 8
                T.copy(A[row, 0], a)
                for i, j in T.Parallel(8, 16):
                    c[i, j] = c[i, j] * 2.0 + a[i, j] * (page + 1)
            T.copy(c, C)
        return C

    a, ids = small(64, 16, dtype=F16), np.array([3, 0, 7, 7, 2], I32)
    pages = np.array([5, 1, 6, 2, 0, 7, 3, 4], I32)
    expected = np.zeros((8, 16), F32)
    for page in ids:
        rows = a[pages[page] * 8 : pages[page] * 8 + 8].astype(F32)
        expected = expected * 2 + rows * np.float32(page + 1)
    return kernel, {"A": a, "Ids": ids, "Pages": pages}, equals(C=expected)


@case
def nothing_in_the_loop_reads_what_it_copies() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((64, 16), F32)):
        C = T.empty((8, 16), F32)
        with T.Kernel(1, threads=32) as bx:
            a = T.alloc_shared((8, 16), F32)
            for k in T.Pipelined(8, num_stages=3):
                T.copy(A[k * 8, 0], a)
            T.copy(a, C)
        return C

    a = small(64, 16)
    return kernel, {"A": a}, equals(C=a[56:])


@case
def atomic_updates_stay_in_their_iteration() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((64, 16), F32), Count: T.Tensor((1,), I32), Seen: T.Tensor((8,), I32)):
        C = T.empty((16,), F32)
        with T.Kernel(1, threads=1) as bx:
            a, c = T.alloc_shared((8, 16), F32), T.alloc_fragment((16,), F32)
            r = T.alloc_fragment((16,), F32)
            T.clear(c)
            for k in T.Pipelined(8, num_stages=2):
                T.copy(A[k * 8, 0], a)
                Seen[k] = T.atomic_load(Count[0])
                T.reduce_sum(a, r, dim=0)
                for j in T.Parallel(16):
                    c[j] = c[j] + r[j]
                T.atomic_add(Count[0], k)
            T.copy(c, C)
        return C

    a, count, seen = small(64, 16), np.zeros(1, I32), np.zeros(8, I32)
    before = np.array([0, 0, 1, 3, 6, 10, 15, 21], I32)
    check = equals(C=a.sum(0), Count=np.array([28], I32), Seen=before)
    return kernel, {"A": a, "Count": count, "Seen": seen}, check


@case
def packed_weights_are_unpacked_in_the_loop() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((32, 96), F16), B: T.Tensor((32, 48), "uint8")):
        C = T.empty((32, 32), F32)
        with T.Kernel(1, threads=64) as bx:
            a, packed = T.alloc_shared((32, 32), F16), T.alloc_shared((32, 16), "uint8")
            codes, b = T.alloc_fragment((32, 16), "uint8"), T.alloc_fragment((32, 32), F16)
            unpacked = T.alloc_shared((32, 32), F16)
            c = T.alloc_fragment((32, 32), F32)
            T.clear(c)
            for k in T.Pipelined(3, num_stages=3):
                T.copy(A[0, k * 32], a)
                T.copy(B[0, k * 16], packed)
                T.copy(packed, codes)
                for i, j in T.Parallel(32, 32):
                    b[i, j] = T.cast((codes[i, j // 2] >> (j % 2 * 4)) & 15, F16) - 8
                T.copy(b, unpacked)
                T.gemm(a, unpacked, c, transpose_B=True)
            T.copy(c, C)
        return C

    a, b = small(32, 96, dtype=F16), small(32, 48, dtype="uint8", low=0, high=256)
    codes = np.stack([b & 15, b >> 4], 2).reshape(32, 96).astype(F32) - 8
    return kernel, {"A": a, "B": b}, equals(C=a.astype(F32) @ codes.T)


@case
def tiles_in_versions_by_hand() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((40, 16), F32)):
        C = T.empty((8, 16), F32)
        with T.Kernel(1, threads=32) as bx:
            a, c = T.alloc_shared((2, 8, 16), F32), T.alloc_fragment((8, 16), F32)
            T.clear(c)
            T.copy(A[0:8, 0:16], a[0, :, :])
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[k * 8 + 8 : k * 8 + 16, 0:16], a[(k + 1) % 2, :, :])
                for i, j in T.Parallel(8, 16):
                    c[i, j] = c[i, j] * 2.0 + a[k % 2, 7 - i, j]
            T.copy(c, C)
        return C

    a = small(40, 16)
    expected = np.zeros((8, 16), F32)
    for k in range(4):
        expected = expected * 2 + a[k * 8 : k * 8 + 8][::-1]
    return kernel, {"A": a}, equals(C=expected)


@case
def an_iteration_reads_what_the_one_before_left_in_shared_memory() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((40, 16), F32)):
        C = T.empty((40, 16), F32)
        with T.Kernel(1, threads=32) as bx:
            a, s = T.alloc_shared((8, 16), F32), T.alloc_shared((8, 16), F32)
            T.clear(s)
            for k in T.Pipelined(5, num_stages=3):
                T.copy(A[k * 8, 0], a)
                for i, j in T.Parallel(8, 16):
                    C[k * 8 + i, j] = s[7 - i, 15 - j] + a[7 - i, j]
                for i, j in T.Parallel(8, 16):
                    s[i, j] = a[i, 15 - j] - s[i, j]
        return C

    a = small(40, 16)
    expected, s = np.zeros((40, 16), F32), np.zeros((8, 16), F32)
    for k in range(5):
        tile = a[k * 8 : k * 8 + 8]
        expected[k * 8 : k * 8 + 8] = s[::-1, ::-1] + tile[::-1]
        s = tile[:, ::-1] - s
    return kernel, {"A": a}, equals(C=expected)


@case
def the_tile_of_the_iteration_before_is_kept_by_name() -> Case:
    """What a copy replaces is read before it: the copy may not run ahead."""

    @T.prim_func
    def kernel(A: T.Tensor((40, 16), F32)):
        C = T.empty((40, 16), F32)
        with T.Kernel(1, threads=32) as bx:
            a = T.alloc_shared((8, 16), F32)
            T.clear(a)
            for k in T.Pipelined(5, num_stages=3):
                for i, j in T.Parallel(8, 16):
                    C[k * 8 + i, j] = a[7 - i, j]
                T.copy(A[k * 8, 0], a)
        return C

    a = small(40, 16)
    expected = np.zeros((40, 16), F32)
    for k in range(1, 5):
        expected[k * 8 : k * 8 + 8] = a[k * 8 - 8 : k * 8][::-1]
    return kernel, {"A": a}, equals(C=expected)


@case
def two_copies_fill_the_halves_of_a_tile() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((32, 64), F16), B: T.Tensor((32, 64), F16)):
        C = T.empty((32, 32), F32)
        with T.Kernel(1, threads=64) as bx:
            s, c = T.alloc_shared((32, 32), F16), T.alloc_fragment((32, 32), F32)
            T.clear(c)
            for k in T.Pipelined(4, num_stages=3):
                T.copy(A[0:32, k * 16 : k * 16 + 16], s[0:32, 0:16])
                T.copy(B[0:32, k * 16 : k * 16 + 16], s[0:32, 16:32])
                T.gemm(s, s, c, transpose_B=True)
            T.copy(c, C)
        return C

    a, b = small(32, 64, dtype=F16), small(32, 64, dtype=F16, seed=1)
    wide = [a.astype(F32), b.astype(F32)]
    return kernel, {"A": a, "B": b}, equals(C=wide[0] @ wide[0].T + wide[1] @ wide[1].T)


def scheduled(order: Any, stage: Any, group: Any) -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((32, 80), F16), B: T.Tensor((80, 32), F16)):
        C = T.empty((32, 32), F32)
        with T.Kernel(1, threads=64) as bx:
            a, b = T.alloc_shared((32, 16), F16), T.alloc_shared((16, 32), F16)
            c = T.alloc_fragment((32, 32), F32)
            T.clear(c)
            for k in T.Pipelined(5, order=order, stage=stage, group=group):
                T.copy(A[0, k * 16], a)
                T.copy(B[k * 16, 0], b)
                T.gemm(a, b, c)
            T.copy(c, C)
        return C

    a, b = small(32, 80, dtype=F16), small(80, 32, dtype=F16)
    return kernel, {"A": a, "B": b}, equals(C=a.astype(F32) @ b.astype(F32))


@pytest.mark.parametrize(
    ("order", "stage", "group"),
    [
        ([0, 1, 2], [0, 0, 2], [[0, 1], [2]]),
        ([1, 0, 2], [0, 0, 1], [[0], [1], [2]]),
        ([0, 2, 1], [0, 0, 3], None),
        ([1, 2, 0], [0, 0, 1], [[0, 1], [2]]),
        ([2, 1, 0], [0, 1, 2], None),
        ([0, 1, 2], [0, 0, 0], None),
    ],
)
def test_schedules_of_the_user(order, stage, group):
    check_executors(*scheduled(order, stage, group))


@case
def a_loop_that_starts_late() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((32, 112), F16)):
        C = T.empty((32, 32), F32)
        with T.Kernel(1, threads=64) as bx:
            s, c = T.alloc_shared((32, 16), F16), T.alloc_fragment((32, 32), F32)
            T.clear(c)
            for k in T.Pipelined(2, 7, num_stages=3):
                T.copy(A[0, k * 16], s)
                T.gemm(s, s, c, transpose_B=True)
            T.copy(c, C)
        return C

    a = small(32, 112, dtype=F16)
    late = a[:, 32:].astype(F32)
    return kernel, {"A": a}, equals(C=late @ late.T)


@case
def pipelines_inside_a_pipeline() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((3, 8, 16), F32), B: T.Tensor((3, 5, 16), F32)):
        C = T.empty((3, 8, 16), F32)
        with T.Kernel(1, threads=32) as bx:
            a, b = T.alloc_shared((8, 16), F32), T.alloc_shared((16,), F32)
            c = T.alloc_fragment((8, 16), F32)
            for i in T.Pipelined(3, num_stages=2):
                T.copy(A[i, :, :], a)
                T.copy(a, c)
                for k in T.Pipelined(5, num_stages=3):
                    T.copy(B[i, k, :], b)
                    for x, y in T.Parallel(8, 16):
                        c[x, y] = c[x, y] + b[15 - y] * a[7 - x, y]
                T.copy(c, C[i, :, :])
        return C

    a, b = small(3, 8, 16), small(3, 5, 16)
    expected = a + a[:, ::-1] * b.sum(1)[:, None, ::-1]
    return kernel, {"A": a, "B": b}, equals(C=expected)


@case
def two_pipelines_use_the_same_tiles() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((32, 48), F16), B: T.Tensor((32, 80), F16)):
        C = T.empty((32, 32), F32)
        with T.Kernel(1, threads=64) as bx:
            s, c = T.alloc_shared((32, 16), F16), T.alloc_fragment((32, 32), F32)
            T.clear(c)
            for k in T.Pipelined(3, num_stages=2):
                T.copy(A[0, k * 16], s)
                T.gemm(s, s, c, transpose_B=True)
            for k in T.Pipelined(5, num_stages=3):
                T.copy(B[0, k * 16], s)
                T.gemm(s, s, c, transpose_B=True)
            T.copy(c, C)
        return C

    a, b = small(32, 48, dtype=F16), small(32, 80, dtype=F16)
    wide = [a.astype(F32), b.astype(F32)]
    return kernel, {"A": a, "B": b}, equals(C=wide[0] @ wide[0].T + wide[1] @ wide[1].T)


@case
def a_pipeline_runs_again_for_each_tile_of_a_block() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((96, 64), F16)):
        C = T.empty((96, 32), F32)
        with T.Kernel(1, threads=64) as bx:
            s, c = T.alloc_shared((32, 16), F16), T.alloc_fragment((32, 32), F32)
            for tile in T.serial(3):
                T.clear(c)
                for k in T.Pipelined(4 - tile, num_stages=3):
                    T.copy(A[tile * 32, k * 16], s)
                    T.gemm(s, s, c, transpose_B=True)
                T.copy(c, C[tile * 32, 0])
        return C

    a = small(96, 64, dtype=F16)
    wide = a.astype(F32).reshape(3, 32, 64)
    parts = [wide[t][:, : (4 - t) * 16] for t in range(3)]
    return kernel, {"A": a}, equals(C=np.concatenate([part @ part.T for part in parts]))


@case
def tiles_are_last_read_at_different_places() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((40, 16), F32), B: T.Tensor((40, 16), F32)):
        C = T.empty((8, 16), F32)
        with T.Kernel(1, threads=32) as bx:
            a, b = T.alloc_shared((8, 16), F32), T.alloc_shared((8, 16), F32)
            c, m = T.alloc_fragment((8, 16), F32), T.alloc_fragment((8,), F32)
            T.clear(c)
            for k in T.Pipelined(5, num_stages=2):
                T.copy(A[k * 8, 0], a)
                T.reduce_max(a, m, dim=1)
                T.copy(B[k * 8, 0], b)
                for i, j in T.Parallel(8, 16):
                    c[i, j] = c[i, j] + b[7 - i, j] * m[i]
            T.copy(c, C)
        return C

    a, b = small(40, 16), small(40, 16, seed=1)
    tiles = zip(a.reshape(5, 8, 16), b.reshape(5, 8, 16), strict=True)
    expected = sum(y[::-1] * x.max(1)[:, None] for x, y in tiles)
    return kernel, {"A": a, "B": b}, equals(C=expected)


@case
def one_of_the_copies_cannot_be_asynchronous() -> Case:
    """Odd rows of 16-bit elements, and elements that are converted."""

    @T.prim_func
    def kernel(A: T.Tensor((32, 77), F16), B: T.Tensor((80, 32), F32), D: T.Tensor((80, 32), F16)):
        C = T.empty((32, 32), F32)
        with T.Kernel(1, threads=64) as bx:
            a, b = T.alloc_shared((32, 16), F16), T.alloc_shared((16, 32), F16)
            d, c = T.alloc_shared((16, 32), F16), T.alloc_fragment((32, 32), F32)
            T.clear(c)
            for k in T.Pipelined(5, num_stages=3):
                T.copy(A[0, k * 16], a)
                T.copy(B[k * 16, 0], b)
                T.copy(D[k * 16, 0], d)
                T.gemm(a, b, c)
                T.gemm(a, d, c)
            T.copy(c, C)
        return C

    a, b, d = small(32, 77, dtype=F16), small(80, 32), small(80, 32, dtype=F16)
    expected = a.astype(F32) @ (b + d.astype(F32))[:77]
    return kernel, {"A": a, "B": b, "D": d}, equals(C=expected)


@case
def what_lies_outside_has_another_value_than_zero() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((10, 40), F32)):
        C = T.empty((16, 16), F32)
        with T.Kernel(1, threads=32) as bx:
            T.annotate_safe_value({A: 2.0})
            a, c = T.alloc_shared((16, 16), F32), T.alloc_fragment((16, 16), F32)
            T.clear(c)
            for k in T.Pipelined(3, num_stages=3):
                T.copy(A[0, k * 16], a)
                for i, j in T.Parallel(16, 16):
                    c[i, j] = c[i, j] * 2.0 + a[15 - i, j]
            T.copy(c, C)
        return C

    a = small(10, 40)
    full = np.full((16, 48), 2, F32)
    full[:10, :40] = a
    expected = np.zeros((16, 16), F32)
    for k in range(3):
        expected = expected * 2 + full[::-1, k * 16 : k * 16 + 16]
    return kernel, {"A": a}, equals(C=expected)


@case
def a_condition_in_the_loop_reads_a_tile_of_the_pipeline() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((40, 16), F32)):
        C = T.empty((8, 16), F32)
        with T.Kernel(1, threads=32) as bx:
            a, c = T.alloc_shared((8, 16), F32), T.alloc_fragment((8, 16), F32)
            T.clear(c)
            for k in T.Pipelined(5, num_stages=3):
                T.copy(A[k * 8, 0], a)
                if a[0, 0] > 0.0:
                    for i, j in T.Parallel(8, 16):
                        c[i, j] = c[i, j] * 2.0 + a[7 - i, j]
                elif k % 2 == 0:
                    for i, j in T.Parallel(8, 16):
                        c[i, j] = c[i, j] - a[i, 15 - j]
            T.copy(c, C)
        return C

    a = small(40, 16)
    a[::8, 0] = [1, -1, 2, 0, -2]
    expected = np.zeros((8, 16), F32)
    for k, tile in enumerate(a.reshape(5, 8, 16)):
        if tile[0, 0] > 0:
            expected = expected * 2 + tile[::-1]
        elif k % 2 == 0:
            expected = expected - tile[:, ::-1]
    return kernel, {"A": a}, equals(C=expected)


@case
def a_scalar_carries_over_the_iterations() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((40, 16), F32), Next: T.Tensor((5,), I32)):
        C = T.empty((8, 16), F32)
        with T.Kernel(1, threads=32) as bx:
            a, c = T.alloc_shared((8, 16), F32), T.alloc_fragment((8, 16), F32)
            at = T.alloc_var(I32, 1)
            T.clear(c)
            for k in T.Pipelined(4, num_stages=3):
                T.copy(A[at * 8, 0], a)
                for i, j in T.Parallel(8, 16):
                    c[i, j] = c[i, j] * 2.0 + a[7 - i, j]
                at = Next[at]
            T.copy(c, C)
        return C

    a, following = small(40, 16), np.array([4, 3, 1, 0, 2], I32)
    expected, at = np.zeros((8, 16), F32), 1
    for _ in range(4):
        expected = expected * 2 + a[at * 8 : at * 8 + 8][::-1]
        at = following[at]
    return kernel, {"A": a, "Next": following}, equals(C=expected)


@case
def the_loop_writes_what_it_copies() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((40, 16), F32)):
        with T.Kernel(1, threads=32) as bx:
            a = T.alloc_shared((8, 16), F32)
            for k in T.Pipelined(4, num_stages=3):
                T.copy(A[k * 8, 0], a)
                for i, j in T.Parallel(8, 16):
                    A[k * 8 + 8 + i, j] = A[k * 8 + 8 + i, j] + a[7 - i, j]

    a = small(40, 16)
    expected = a.copy()
    for k in range(4):
        expected[k * 8 + 8 : k * 8 + 16] += expected[k * 8 : k * 8 + 8][::-1]
    return kernel, {"A": a}, equals(A=expected)


@case
def a_view_inside_the_loop_of_what_is_copied() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((40, 16), F32)):
        C = T.empty((16, 8), F32)
        with T.Kernel(1, threads=32) as bx:
            a, c = T.alloc_shared((8, 16), F32), T.alloc_fragment((16, 8), F32)
            T.clear(c)
            for k in T.Pipelined(5, num_stages=3):
                T.copy(A[k * 8, 0], a)
                view = T.reshape(a, (16, 8))
                for i, j in T.Parallel(16, 8):
                    c[i, j] = c[i, j] * 2.0 + view[15 - i, j]
            T.copy(c, C)
        return C

    a = small(40, 16)
    expected = np.zeros((16, 8), F32)
    for tile in a.reshape(5, 16, 8):
        expected = expected * 2 + tile[::-1]
    return kernel, {"A": a}, equals(C=expected)


@case
def a_view_in_front_of_the_loop_of_what_is_copied() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((40, 16), F32)):
        C = T.empty((16, 8), F32)
        with T.Kernel(1, threads=32) as bx:
            a, c = T.alloc_shared((8, 16), F32), T.alloc_fragment((16, 8), F32)
            view = T.reshape(a, (16, 8))
            T.clear(c)
            for k in T.Pipelined(5, num_stages=3):
                T.copy(A[k * 8, 0], a)
                for i, j in T.Parallel(16, 8):
                    c[i, j] = c[i, j] * 2.0 + view[15 - i, j]
            T.copy(c, C)
        return C

    a = small(40, 16)
    expected = np.zeros((16, 8), F32)
    for tile in a.reshape(5, 16, 8):
        expected = expected * 2 + tile[::-1]
    return kernel, {"A": a}, equals(C=expected)


@case
def a_pipeline_and_a_serial_loop_use_the_same_tile() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((40, 16), F32)):
        C = T.empty((8, 16), F32)
        with T.Kernel(1, threads=32) as bx:
            a, c = T.alloc_shared((8, 16), F32), T.alloc_fragment((8, 16), F32)
            T.clear(c)
            for k in T.Pipelined(3, num_stages=3):
                T.copy(A[k * 8, 0], a)
                for i, j in T.Parallel(8, 16):
                    c[i, j] = c[i, j] * 2.0 + a[7 - i, j]
            for k in T.Pipelined(3, 5, num_stages=1):
                T.copy(A[k * 8, 0], a)
                for i, j in T.Parallel(8, 16):
                    c[i, j] = c[i, j] * 2.0 + a[7 - i, j]
            T.copy(c, C)
        return C

    a = small(40, 16)
    expected = np.zeros((8, 16), F32)
    for tile in a.reshape(5, 8, 16):
        expected = expected * 2 + tile[::-1]
    return kernel, {"A": a}, equals(C=expected)


@case
def a_scheduled_loop_copies_inside_a_scheduled_loop() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((3, 8, 16), F32), B: T.Tensor((3, 5, 16), F32)):
        C = T.empty((3, 16), F32)
        with T.Kernel(1, threads=32) as bx:
            a, b = T.alloc_shared((8, 16), F32), T.alloc_shared((16,), F32)
            s, r = T.alloc_shared((16,), F32), T.alloc_fragment((16,), F32)
            for i in T.Pipelined(3, order=[0, 1, 2, 3, 4], stage=[0, 0, 0, 1, 1]):
                T.copy(A[i, :, :], a)
                T.clear(s)
                for k in T.Pipelined(5, num_stages=3):
                    T.copy(B[i, k, :], b)
                    for x in T.Parallel(16):
                        s[x] = s[x] + b[15 - x] * (k + 1)
                T.reduce_sum(a, r, dim=0)
                for x in T.Parallel(16):
                    C[i, x] = r[x] + s[15 - x]
        return C

    a, b = small(3, 8, 16), small(3, 5, 16)
    weighted = (b * np.arange(1, 6, dtype=F32)[:, None]).sum(1)
    return kernel, {"A": a, "B": b}, equals(C=a.sum(1) + weighted)


@pytest.mark.parametrize("name", case)
def test_results(name):
    case.check(name)


@pytest.mark.nvrtc
@pytest.mark.parametrize("name", case)
def test_executed_ptx(name):
    case.check_ptx(name)
