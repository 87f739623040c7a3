"""Where threads hold the elements of tiles: replicas, annotations, views, versions, and products
in every arrangement, with the same results on every executor.
"""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

from itertools import product
from typing import Any

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tests.differential.cases import F16, F32, I32, Case, Cases, small
from tests.differential.harness import check_executors, equals, storage
from tileworkbench.compiler.diagnostics import LayoutError

case = Cases()


@case
def a_scale_per_group_of_columns_of_a_product() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((64, 32), F16), B: T.Tensor((32, 64), F16), D: T.Tensor((64, 2), F32)):
        C = T.empty((64, 64), F32)
        with T.Kernel(1, threads=128) as bx:
            a, b = T.alloc_shared((64, 32), F16), T.alloc_shared((32, 64), F16)
            d, c = T.alloc_fragment((64, 2), F32), T.alloc_fragment((64, 64), F32)
            T.copy(A, a)
            T.copy(B, b)
            T.copy(D, d)
            T.gemm(a, b, c, clear_accum=True)
            for i, j in T.Parallel(64, 64):
                c[i, j] = c[i, j] * d[i, j // 32]
            T.copy(c, C)
        return C

    a, b, d = small(64, 32, dtype=F16), small(32, 64, dtype=F16), small(64, 2)
    expected = (a.astype(F32) @ b.astype(F32)) * d.repeat(32, 1)
    return kernel, {"A": a, "B": b, "D": d}, equals(C=expected)


@case
def a_bias_per_row_and_per_column_of_a_product() -> Case:
    @T.prim_func
    def kernel(
        A: T.Tensor((64, 32), F16),
        B: T.Tensor((32, 64), F16),
        R: T.Tensor((64,), F32),
        K: T.Tensor((64,), F32),
    ):
        C = T.empty((64, 64), F32)
        with T.Kernel(1, threads=128) as bx:
            a, b = T.alloc_shared((64, 32), F16), T.alloc_shared((32, 64), F16)
            r, k = T.alloc_fragment((64,), F32), T.alloc_fragment((64,), F32)
            c = T.alloc_fragment((64, 64), F32)
            T.copy(A, a)
            T.copy(B, b)
            T.copy(R, r)
            T.copy(K, k)
            T.gemm(a, b, c, clear_accum=True)
            for i, j in T.Parallel(64, 64):
                c[i, j] = c[i, j] + r[i] + 2.0 * k[j]
            T.copy(c, C)
        return C

    a, b, r, k = small(64, 32, dtype=F16), small(32, 64, dtype=F16), small(64), small(64, seed=1)
    expected = a.astype(F32) @ b.astype(F32) + r[:, None] + 2 * k
    return kernel, {"A": a, "B": b, "R": r, "K": k}, equals(C=expected)


@case
def a_result_of_a_reduction_is_replaced_by_a_nest_of_another_shape() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((16, 64), F32)):
        B = T.empty((16,), F32)
        C = T.empty((4, 4), F32)
        with T.Kernel(1, threads=128) as bx:
            a, r = T.alloc_fragment((16, 64), F32), T.alloc_fragment((16,), F32)
            T.copy(A, a)
            T.reduce_sum(a, r, dim=1)
            T.copy(r, B)
            for i, j in T.Parallel(4, 4):
                r[i * 4 + j] = r[i * 4 + j] * 2.0 + j
            for i, j in T.Parallel(4, 4):
                C[i, j] = r[i * 4 + j]
        return B, C

    a = small(16, 64)
    total = a.sum(1)
    return kernel, {"A": a}, equals(B=total, C=total.reshape(4, 4) * 2 + np.arange(4, dtype=F32))


@case
def three_dimensions_are_reduced_one_after_another() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((3, 8, 32), F32)):
        B, C, D = T.empty((3, 8), F32), T.empty((3,), F32), T.empty((8, 32), F32)
        with T.Kernel(1, threads=128) as bx:
            a, b = T.alloc_fragment((3, 8, 32), F32), T.alloc_fragment((3, 8), F32)
            c, d = T.alloc_fragment((3,), F32), T.alloc_fragment((8, 32), F32)
            T.copy(A, a)
            T.reduce_sum(a, b, dim=2)
            T.reduce_max(b, c, dim=1)
            T.reduce_min(a, d, dim=0)
            T.copy(b, B)
            T.copy(c, C)
            T.copy(d, D)
        return B, C, D

    a = small(3, 8, 32)
    return kernel, {"A": a}, equals(B=a.sum(2), C=a.sum(2).max(1), D=a.min(0))


@case
def one_row_is_reduced_by_all_threads() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((1, 100), F32)):
        B = T.empty((1, 100), F32)
        with T.Kernel(1, threads=128) as bx:
            a, m = T.alloc_fragment((1, 100), F32), T.alloc_fragment((1,), F32)
            T.copy(A, a)
            T.reduce_max(a, m, dim=1)
            for i, j in T.Parallel(1, 100):
                a[i, j] = a[i, j] - m[i]
            T.copy(a, B)
        return B

    a = small(1, 100, high=90)
    return kernel, {"A": a}, equals(B=a - a.max())


@case
def replicas_store_and_add_once() -> Case:
    """Rows of a product are in many threads; a store and an atomic update happen once each."""

    @T.prim_func
    def kernel(A: T.Tensor((64, 32), F16), Once: T.Tensor((64,), F32), Rows: T.Tensor((64,), F32)):
        C = T.empty((64,), F32)
        with T.Kernel(1, threads=128) as bx:
            a, s = T.alloc_shared((64, 32), F16), T.alloc_shared((64,), F32)
            c, r = T.alloc_fragment((64, 64), F32), T.alloc_fragment((64,), F32)
            T.copy(A, a)
            T.gemm(a, a, c, transpose_B=True, clear_accum=True)
            T.reduce_sum(c, r, dim=1)
            T.fill(s, 1.0)
            for i in T.Parallel(64):
                T.atomic_add(Once[i], r[i])
            for i in T.Parallel(64):
                T.atomic_add(s[i], r[i])
            for i in T.Parallel(64):
                Rows[i] = Rows[i] + r[i]
            T.copy(s, C)
        return C

    a, once, rows = small(64, 32, dtype=F16), small(64), small(64, seed=1)
    r = (a.astype(F32) @ a.astype(F32).T).sum(1)
    arguments = {"A": a, "Once": once, "Rows": rows}
    return kernel, arguments, equals(Once=once + r, Rows=rows + r, C=r + 1)


@case
def replicas_store_in_serial_loops_outside_and_inside_the_nest() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((64, 64), F32), B: T.Tensor((3, 64), F32), C: T.Tensor((64, 3), F32)):
        with T.Kernel(1, threads=128) as bx:
            a, r = T.alloc_fragment((64, 64), F32), T.alloc_fragment((64,), F32)
            T.copy(A, a)
            T.reduce_sum(a, r, dim=1)
            for k in T.serial(3):
                for i in T.Parallel(64):
                    B[k, i] = B[k, i] + r[i] * (k + 1)
            for i in T.Parallel(64):
                for k in T.serial(3):
                    C[i, k] = C[i, k] + r[i]

    a, b, c = small(64, 64), small(3, 64), small(64, 3)
    r = a.sum(1)
    factors = np.arange(1, 4, dtype=F32)[:, None]
    return kernel, {"A": a, "B": b, "C": c}, equals(B=b + r * factors, C=c + r[:, None])


@case
def a_small_nest_reads_single_elements_in_a_serial_loop() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((16,), F32)):
        B = T.empty((16, 4), F32)
        with T.Kernel(1, threads=128) as bx:
            f = T.alloc_fragment((16,), F32)
            T.copy(A, f)
            for i in T.serial(16):
                for j in T.Parallel(4):
                    B[i, j] = f[i] + j
        return B

    a = small(16)
    return kernel, {"A": a}, equals(B=a[:, None] + np.arange(4, dtype=F32))


@case
def a_fragment_is_read_only_by_conditions_and_assertions() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((4,), F32), B: T.Tensor((64,), F32)):
        with T.Kernel(1, threads=128) as bx:
            f, g = T.alloc_fragment((4,), F32), T.alloc_fragment((1,), F32)
            T.copy(A, f)
            T.copy(A[1:2], g)
            T.device_assert(g[0] < 100.0, "small")
            for i in T.Parallel(64):
                if f[i % 4] > 0.0:
                    B[i] = 1.0
            if g[0] > 5.0:
                for i in T.Parallel(64):
                    B[i] = B[i] + 4.0

    a = np.array([3, 7, -1, 0], F32)
    b = np.zeros(64, F32)
    return kernel, {"A": a, "B": b}, equals(B=(a[np.arange(64) % 4] > 0) + np.full(64, 4, F32))


@case
def a_name_hides_a_fragment() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((64, 64), F32)):
        B = T.empty((64, 64), F32)
        with T.Kernel(1, threads=128) as bx:
            a, m = T.alloc_fragment((64, 64), F32), T.alloc_fragment((64,), F32)
            top = T.alloc_fragment((1,), F32)
            T.copy(A, a)
            T.reduce_max(a, m, dim=1)
            T.reduce_max(m, top, dim=0)
            limit = top[0] * 2.0
            for i, j in T.Parallel(64, 64):
                row = m[i]
                x = a[i, j] - row
                a[i, j] = x + limit
            T.copy(a, B)
        return B

    a = small(64, 64, high=50)
    return kernel, {"A": a}, equals(B=a - a.max(1)[:, None] + 2 * a.max())


@case
def one_element_is_reduced_to_and_read_by_all_threads() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((200,), F32)):
        B = T.empty((200,), F32)
        with T.Kernel(2, threads=128) as bx:
            a, s = T.alloc_fragment((200,), F32), T.alloc_fragment((1,), F32)
            T.copy(A, a)
            T.reduce_sum(a, s)
            scale = 1.0 + s[0]
            for i in T.Parallel(100):
                B[bx * 100 + i] = A[bx * 100 + i] * scale + s[0]
        return B

    a = small(200)
    return kernel, {"A": a}, equals(B=a * (1 + a.sum()) + a.sum())


@case
def padded_rows_and_swizzles_chosen_by_hand() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((32, 64), F16), B: T.Tensor((64, 32), F16)):
        C = T.empty((32, 32), F32)
        D = T.empty((64, 32), F16)
        with T.Kernel(1, threads=64) as bx:
            a, b = T.alloc_shared((32, 64), F16), T.alloc_shared((64, 32), F16)
            t = T.alloc_shared((32, 64), F16)
            c = T.alloc_fragment((32, 32), F32)
            T.annotate_layout({
                a: T.Layout((32, 64), lambda i, j: i * 72 + j),
                b: T.make_swizzled_layout(b),
                t: T.Layout((32, 64), lambda i, j: i * 65 + j),
            })  # fmt: skip
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, b, c, clear_accum=True)
            T.copy(c, C)
            T.copy(a, t)
            for i, j in T.Parallel(64, 32):
                D[i, j] = t[j, i]
        return C, D

    a, b = small(32, 64, dtype=F16), small(64, 32, dtype=F16)
    return kernel, {"A": a, "B": b}, equals(C=a.astype(F32) @ b.astype(F32), D=a.T.copy())


@case
def a_view_of_an_annotated_tile_sees_its_bytes() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((32, 32), F32)):
        Narrow = T.empty((32, 128), "uint8")
        Wide = T.empty((32, 16), "int64")
        Rows = T.empty((16, 64), F32)
        with T.Kernel(1, threads=64) as bx:
            s = T.alloc_shared((32, 32), F32)
            T.annotate_layout({s: T.make_swizzled_layout(s)})
            narrow = T.view(s, (32, 128), "uint8")
            wide = T.view(s, (32, 16), "int64")
            rows = T.reshape(s, (16, 64))
            T.copy(A, s)
            T.copy(narrow, Narrow)
            T.copy(wide, Wide)
            T.copy(rows, Rows)
        return Narrow, Wide, Rows

    a = small(32, 32)
    views = {"Narrow": a.view("uint8"), "Wide": a.view("int64"), "Rows": a.reshape(16, 64)}
    return kernel, {"A": a}, equals(**views)


@case
def a_view_writes_an_annotated_tile() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((32, 64), "uint8")):
        B = T.empty((32, 32), F16)
        with T.Kernel(1, threads=64) as bx:
            s = T.alloc_shared((32, 32), F16)
            T.annotate_layout({s: T.make_swizzled_layout(s)})
            T.copy(A, T.view(s, (32, 64), "uint8"))
            T.copy(s, B)
        return B

    b = small(32, 32, dtype=F16)
    return kernel, {"A": b.view("uint8")}, equals(B=b)


def attention(first: Any, second: Any, dtype: str) -> Case:
    @T.prim_func
    def kernel(
        Q: T.Tensor((64, 32), dtype), K: T.Tensor((64, 32), dtype), V: T.Tensor((64, 32), dtype)
    ):
        C = T.empty((64, 32), F32)
        with T.Kernel(1, threads=128) as bx:
            q, k = T.alloc_shared((64, 32), dtype), T.alloc_shared((64, 32), dtype)
            v = T.alloc_shared((64, 32), dtype)
            s, p = T.alloc_fragment((64, 64), F32), T.alloc_fragment((64, 64), dtype)
            c = T.alloc_fragment((64, 32), F32)
            T.copy(Q, q)
            T.copy(K, k)
            T.copy(V, v)
            T.gemm(q, k, s, transpose_B=True, clear_accum=True, policy=first)
            for i, j in T.Parallel(64, 64):
                s[i, j] = T.min(T.max(s[i, j], -7.0), 7.0)
            T.copy(s, p)
            T.gemm(p, v, c, clear_accum=True, policy=second)
            T.copy(c, C)
        return C

    q, k, v = (small(64, 32, seed=n).astype(storage(dtype)) for n in range(3))
    wide = [x.astype(F32) for x in (q, k, v)]
    expected = (wide[0] @ wide[1].T).clip(-7, 7) @ wide[2]
    return kernel, {"Q": q, "K": k, "V": v}, equals(C=expected)


FULL_ROW = T.GemmWarpPolicy.FullRow
OTHERS = [T.GemmWarpPolicy.Square, T.GemmWarpPolicy.FullCol]


@pytest.mark.parametrize("dtype", [F16, "bfloat16"])
def test_a_product_of_a_product(dtype):
    check_executors(*attention(FULL_ROW, FULL_ROW, dtype))


SQUARE, FULL_COLUMN = OTHERS


@pytest.mark.parametrize("first", [FULL_ROW, SQUARE])
def test_products_that_may_choose_are_shared_by_rows(first):
    check_executors(*attention(first, SQUARE, F16))


@pytest.mark.parametrize(
    ("first", "second"),
    [(FULL_ROW, FULL_COLUMN), (SQUARE, FULL_COLUMN), *((FULL_COLUMN, each) for each in OTHERS)],
)
def test_warps_without_whole_rows_cannot_take_a_product_as_operand(first, second):
    with pytest.raises(LayoutError) as caught:
        tw.compile(attention(first, second, F16)[0], target="sim:sm_80")
    assert caught.value.message.startswith("'T.copy' cannot be spread over threads: ")
    assert "shared memory" in caught.value.hint


@case
def tiles_in_versions_by_hand() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((32, 96), F16), B: T.Tensor((96, 32), F16)):
        C = T.empty((32, 32), F32)
        with T.Kernel(1, threads=64) as bx:
            a = T.alloc_shared((2, 32, 32), F16)
            b = T.alloc_shared((2, 1, 32, 32), F16)
            c = T.alloc_fragment((32, 32), F32)
            T.clear(c)
            for k in T.serial(3):
                T.copy(A[0:32, k * 32 : k * 32 + 32], a[k % 2, :, :])
                T.copy(B[k * 32 : k * 32 + 32, 0:32], b[k % 2, 0, :, :])
                T.gemm(a[k % 2, :, :], b[k % 2, 0, :, :], c)
            T.copy(c, C)
        return C

    a, b = small(32, 96, dtype=F16), small(96, 32, dtype=F16)
    return kernel, {"A": a, "B": b}, equals(C=a.astype(F32) @ b.astype(F32))


@case
def nests_inside_each_other_are_one() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((32, 64), F32)):
        B = T.empty((32, 64), F32)
        with T.Kernel(1, threads=128) as bx:
            a, r = T.alloc_fragment((32, 64), F32), T.alloc_fragment((32,), F32)
            layout = T.Fragment(
                (32, 64),
                forward_thread_fn=lambda i, j: i * 4 + j // 16,
                forward_index_fn=lambda i, j: j % 16,
            )
            T.copy(A, a)
            T.reduce_max(a, r, dim=1)
            for i, j in T.Parallel(32, 64, loop_layout=layout):
                a[i, j] = a[i, j] - r[i]
            for i in T.Parallel(32):
                for j in T.Parallel(64):
                    B[i, j] = a[i, j] + r[i] * 2.0
        return B

    a = small(32, 64)
    return kernel, {"A": a}, equals(B=a + a.max(1)[:, None])


@case
def four_threads_per_row_that_do_not_divide_the_work() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((1024,), F32), B: T.Tensor((7, 100), F32)):
        C, D = T.empty((1024,), F32), T.empty((7,), F32)
        with T.Kernel(1, threads=384) as bx:
            a, s = T.alloc_fragment((1024,), F32), T.alloc_shared((1024,), F32)
            b, d = T.alloc_fragment((7, 100), F32), T.alloc_fragment((7,), F32)
            T.copy(A, s)
            T.copy(s, a)
            for i in T.Parallel(1024):
                a[i] = a[i] + s[1023 - i]
            T.copy(a, C)
            T.copy(B, b)
            T.reduce_sum(b, d, dim=1)
            T.copy(d, D)
        return C, D

    a, b = small(1024), small(7, 100)
    return kernel, {"A": a, "B": b}, equals(C=a + a[::-1], D=b.sum(1))


@pytest.mark.parametrize("name", case)
def test_results(name):
    case.check(name)


@pytest.mark.nvrtc
@pytest.mark.parametrize("name", case)
def test_executed_ptx(name):
    case.check_ptx(name)


@pytest.mark.covering(1)
@pytest.mark.parametrize(
    ("scopes", "transposed"),
    [*product(("rs", "sr", "rr"), product((False, True), repeat=2))],
)
@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_operands_in_registers_in_every_orientation(dtype, scopes, transposed):
    result = I32 if dtype == "int8" else F32
    left = (32, 64) if transposed[0] else (64, 32)
    right = (48, 32) if transposed[1] else (32, 48)
    place = {"r": T.alloc_fragment, "s": T.alloc_shared}

    @T.prim_func
    def kernel(A: T.Tensor(left, dtype), B: T.Tensor(right, dtype)):
        C = T.empty((64, 48), result)
        with T.Kernel(1, threads=64) as bx:
            a, b = place[scopes[0]](left, dtype), place[scopes[1]](right, dtype)
            c = T.alloc_fragment((64, 48), result)
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, b, c, transpose_A=transposed[0], transpose_B=transposed[1], clear_accum=True)
            T.copy(c, C)
        return C

    a, b = small(*left, dtype=dtype), small(*right, dtype=dtype)
    wide = [x.astype(result) for x in (a, b)]
    expected = (wide[0].T if transposed[0] else wide[0]) @ (wide[1].T if transposed[1] else wide[1])
    check_executors(kernel, {"A": a, "B": b}, equals(C=expected))


@pytest.mark.parametrize("n", [40, 72, 96, 160])
def test_products_whose_columns_no_power_of_two_divides(n):
    @T.prim_func
    def kernel(A: T.Tensor((64, 32), F16), B: T.Tensor((n, 32), F16)):
        C = T.empty((64, n), F32)
        with T.Kernel(1, threads=128) as bx:
            a, b = T.alloc_shared((64, 32), F16), T.alloc_shared((n, 32), F16)
            c = T.alloc_fragment((64, n), F32)
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, b, c, transpose_B=True, clear_accum=True)
            T.copy(c, C)
        return C

    a, b = small(64, 32, dtype=F16), small(n, 32, dtype=F16)
    expected = a.astype(F32) @ b.astype(F32).T
    check_executors(kernel, {"A": a, "B": b}, equals(C=expected))


def test_shared_memory_is_as_large_as_its_layout():
    """Padding counts, and only as far as elements lie."""

    def shared_bytes(columns: int) -> int:
        @T.prim_func
        def kernel(A: T.Tensor((32, 32), F32), B: T.Tensor((32, 32), F32)):
            with T.Kernel(1, threads=32) as bx:
                s = T.alloc_shared((32, 32), F32)
                T.annotate_layout({s: T.Layout((32, 32), lambda i, j: i * columns + j)})
                T.copy(A, s)
                for i, j in T.Parallel(32, 32):
                    B[i, j] = s[j, i]

        return tw.compile(kernel, target="sim:sm_80").stats.shared_bytes

    assert shared_bytes(32) == 32 * 32 * 4
    assert 31 * 33 * 4 + 128 <= shared_bytes(33) <= 32 * 33 * 4
