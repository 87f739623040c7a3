"""Shared memory between the threads of a block: tiles that are handed over under conditions and in
loops, counters, bytes that several tiles use in turn, reductions and scans through it.
"""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

from typing import Any

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tests.differential.cases import F16, F32, I32, Case, Cases, small
from tests.differential.harness import check_executors, check_on_threads, equals

case = Cases()


@case
def only_some_threads_read_what_all_wrote() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((128,), F32), B: T.Tensor((128,), F32)):
        with T.Kernel(1, threads=128) as bx:
            t = T.get_thread_binding()
            s = T.alloc_shared((128,), F32)
            s[t] = A[t]
            if t % 3 == 0:
                B[t] = s[127 - t]

    a, b = small(128), small(128, seed=1)
    third = np.arange(128) % 3 == 0
    return kernel, {"A": a, "B": b}, equals(B=np.where(third, a[::-1], b))


@case
def threads_write_by_turns_and_all_read() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((128,), F32)):
        B = T.empty((128,), F32)
        with T.Kernel(1, threads=128) as bx:
            t = T.get_thread_binding()
            s = T.alloc_shared((64,), F32)
            if t >= 64:
                s[t - 64] = A[t]
            if t < 32:
                s[63 - t] = A[t]
            B[t] = s[t // 2]
        return B

    a = small(128)
    s = a[64:].copy()
    s[32:] = a[:32][::-1]
    return kernel, {"A": a}, equals(B=s[np.arange(128) // 2])


@case
def conditions_that_are_the_same_for_a_block_hold_barriers() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((4, 128), F32), Flag: T.Tensor((4,), I32)):
        B = T.empty((4, 128), F32)
        with T.Kernel(4, threads=128) as bx:
            t = T.get_thread_binding()
            s = T.alloc_shared((128,), F32)
            if Flag[bx] > 0:
                s[t] = A[bx, t]
                B[bx, t] = s[127 - t]
                if bx % 2 == 0:
                    s[127 - t] = A[bx, t] + 1.0
                B[bx, t] = B[bx, t] + s[(t + 1) % 128]
            else:
                B[bx, t] = 0.0
        return B

    a, flag = small(4, 128), np.array([1, 1, 0, 5], I32)
    expected = np.zeros_like(a)
    for block in (0, 1, 3):
        s = a[block][::-1] + 1 if block % 2 == 0 else a[block]
        expected[block] = a[block][::-1] + np.roll(s, -1)
    return kernel, {"A": a, "Flag": flag}, equals(B=expected)


@case
def a_condition_on_shared_memory_sits_between_writes() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((128,), I32)):
        B = T.empty((128,), I32)
        with T.Kernel(1, threads=128) as bx:
            t = T.get_thread_binding()
            s = T.alloc_shared((128,), I32)
            s[t] = A[t]
            for k in T.serial(7):
                if s[0] % 2 == k % 2:
                    s[(t + 1) % 128] = k + t
                else:
                    s[127 - t] = 2 * t
            B[t] = s[t]
        return B

    a = small(128, dtype=I32, low=0, high=9)
    s, t = a.copy(), np.arange(128)
    for k in range(7):
        if s[0] % 2 == k % 2:
            s[(t + 1) % 128] = k + t
        else:
            s[127 - t] = 2 * t
    return kernel, {"A": a}, equals(B=s)


@case
def loops_go_on_while_shared_memory_says_so() -> Case:
    @T.prim_func
    def kernel(N: T.Tensor((1,), I32)):
        B = T.empty((128,), I32)
        with T.Kernel(1, threads=128) as bx:
            t = T.get_thread_binding()
            s, n = T.alloc_shared((1,), I32), T.alloc_var(I32, 0)
            if t == 0:
                s[0] = N[0]
            while s[0] < 12:
                n = n + s[0]
                if t == 5:
                    s[0] = s[0] + 1
                if s[0] % 2 == 0:
                    continue
                n = n + 100
                if s[0] == 7:
                    break
            B[t] = n
        return B

    total, value = 0, 2
    while value < 12:
        total, value = total + value, value + 1
        if value % 2:
            total += 100
            if value == 7:
                break
    return kernel, {"N": np.array([2], I32)}, equals(B=np.full(128, total, I32))


@case
def threads_decide_by_what_others_replace() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((128,), I32)):
        B = T.empty((128,), I32)
        with T.Kernel(1, threads=128) as bx:
            t = T.get_thread_binding()
            s = T.alloc_shared((128,), I32)
            s[t] = A[t]
            if s[127 - t] > 0:
                s[t] = s[t] + 10
            for k in T.serial(4):
                if s[t ^ (1 << k)] > s[t]:
                    s[t] = s[t] + k
            if t < 40 and s[127 - t] > 0:
                s[t] = s[t] + 1
            B[t] = s[127 - t]
        return B

    a, t = small(128, dtype=I32), np.arange(128)
    s = np.where(a[::-1] > 0, a + 10, a)
    for k in range(4):
        s = np.where(s[t ^ (1 << k)] > s, s + k, s)
    s = np.where((t < 40) & (s[::-1] > 0), s + 1, s)
    return kernel, {"A": a}, equals(B=s[::-1].copy())


@case
def the_second_condition_is_asked_before_the_branch_writes() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((128,), I32), G: T.Tensor((128,), I32)):
        B = T.empty((128,), I32)
        with T.Kernel(1, threads=128) as bx:
            t = T.get_thread_binding()
            s = T.alloc_shared((128,), I32)
            s[t] = A[t]
            if s[3] > 100:
                s[(t + 1) % 128] = 1
            elif s[4] > -100:
                s[(t + 5) % 128] = t
            if G[5] > -100:
                G[(t + 1) % 128] = t
            B[t] = s[t] + G[t]
        return B

    a, t = small(128, dtype=I32), np.arange(128, dtype=I32)
    written = np.roll(t, 1)
    return kernel, {"A": a, "G": a.copy()}, equals(B=np.roll(t, 5) + written, G=written)


@case
def bounds_of_a_loop_that_replaces_them() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((128,), I32)):
        B = T.empty((128,), I32)
        with T.Kernel(1, threads=128) as bx:
            t = T.get_thread_binding()
            s = T.alloc_shared((128,), I32)
            s[t] = T.abs(A[t]) + 1
            for k in T.serial(s[0], s[7] + 3):
                s[(t + k) % 128] = k
            B[t] = s[t]
        return B

    a = small(128, dtype=I32)
    s = abs(a) + 1
    last = s[7] + 2
    return kernel, {"A": a}, equals(B=np.full(128, last, I32) if last >= s[0] else s)


@case
def conditions_around_tile_operators_read_the_tile() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((128,), I32)):
        B = T.empty((128,), I32)
        with T.Kernel(1, threads=128) as bx:
            s = T.alloc_shared((128,), I32)
            T.copy(A, s)
            for k in T.serial(4):
                if s[5] > k - 100:
                    for i in T.Parallel(128):
                        s[i] = s[i] + k
                while s[7] < 10 * k:
                    for i in T.Parallel(128):
                        s[i] = s[i] + i + 1
            T.copy(s, B)
        return B

    a = small(128, dtype=I32)
    s = a.copy()
    for k in range(4):
        if s[5] > k - 100:
            s = s + k
        while s[7] < 10 * k:
            s = s + np.arange(1, 129, dtype=I32)
    return kernel, {"A": a}, equals(B=s)


@case
def threads_keep_rows_of_their_own_for_different_times() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((128,), I32)):
        B = T.empty((128,), I32)
        with T.Kernel(1, threads=128) as bx:
            t = T.get_thread_binding()
            s = T.alloc_shared((128, 9), I32)
            s[t, 0] = A[t]
            for k in T.serial(T.min(T.abs(A[t]), 7)):
                s[t, k + 1] = s[t, k] + k
            B[t] = s[t, T.min(T.abs(A[t]), 7)]
        return B

    a = small(128, dtype=I32, low=-9, high=10)
    n = np.minimum(abs(a), 7)
    return kernel, {"A": a}, equals(B=(a + n * (n - 1) // 2).astype(I32))


@case
def a_histogram_is_cleared_counted_and_read_in_a_loop() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((5, 256), I32)):
        B = T.empty((5, 16), I32)
        with T.Kernel(1, threads=64) as bx:
            s = T.alloc_shared((16,), I32)
            for k in T.serial(5):
                T.clear(s)
                for i in T.Parallel(256):
                    T.atomic_add(s[A[k, i]], 1)
                T.copy(s, B[k, 0:16])
        return B

    a = small(5, 256, dtype=I32, low=0, high=16)
    counts = np.stack([np.bincount(row, minlength=16) for row in a])
    return kernel, {"A": a}, equals(B=counts.astype(I32))


@case
def counters_of_threads_give_places() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((128,), I32), B: T.Tensor((128,), I32), N: T.Tensor((1,), I32)):
        with T.Kernel(1, threads=128) as bx:
            t = T.get_thread_binding()
            count = T.alloc_shared((1,), I32)
            seen = T.alloc_shared((128,), I32)
            if t == 0:
                count[0] = 0
            seen[t] = 0
            if A[t] > 0:
                place = T.atomic_add(count[0], 1, return_prev=True)
                seen[place] = 1
            B[t] = seen[t]
            if t == 0:
                N[0] = count[0]

    a = small(128, dtype=I32)
    n = int((a > 0).sum())
    filled = (np.arange(128) < n).astype(I32)
    arguments = {"A": a, "B": np.zeros(128, I32), "N": np.zeros(1, I32)}
    return kernel, arguments, equals(B=filled, N=np.array([n], I32))


@case
def tiles_of_different_types_use_the_same_bytes_in_turn() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((3, 32, 32), F32)):
        B, C = T.empty((3, 32, 32), F16), T.empty((3, 32, 32), "int8")
        with T.Kernel(1, threads=64) as bx:
            a, b = T.alloc_shared((32, 32), F32), T.alloc_shared((32, 32), F16)
            c = T.alloc_shared((32, 32), "int8")
            f, g = T.alloc_fragment((32, 32), F32), T.alloc_fragment((32, 32), F16)
            for k in T.serial(3):
                T.copy(A[k, :, :], a)
                for i, j in T.Parallel(32, 32):
                    f[i, j] = a[j, i]
                T.copy(f, b)
                for i, j in T.Parallel(32, 32):
                    g[i, j] = b[31 - i, j]
                T.copy(g, B[k, :, :])
                T.copy(g, c)
                for i, j in T.Parallel(32, 32):
                    C[k, i, j] = c[j, i]
        return B, C

    a = small(3, 32, 32)
    b = a.transpose(0, 2, 1)[:, ::-1].astype(F16)
    return kernel, {"A": a}, equals(B=b, C=b.transpose(0, 2, 1).astype("int8"))


@case
def reductions_borrow_memory_while_tiles_are_alive() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((4, 16, 100), F32)):
        B, C = T.empty((4, 16, 100), F32), T.empty((4, 100), F32)
        with T.Kernel(1, threads=128) as bx:
            s, f = T.alloc_shared((16, 100), F32), T.alloc_fragment((16, 100), F32)
            rows, columns = T.alloc_fragment((16,), F32), T.alloc_fragment((100,), F32)
            top = T.alloc_shared((16,), F32)
            for k in T.serial(4):
                T.copy(A[k, :, :], s)
                T.copy(s, f)
                T.reduce_sum(f, rows, dim=1)
                T.reduce_max(s, top, dim=1)
                T.reduce_sum(f, columns, dim=0)
                for i, j in T.Parallel(16, 100):
                    s[i, j] = s[i, j] * top[15 - i] + rows[i]
                T.copy(s, B[k, :, :])
                T.copy(columns, C[k, 0:100])
        return B, C

    a = small(4, 16, 100)
    b = a * a.max(2)[:, ::-1, None] + a.sum(2)[:, :, None]
    return kernel, {"A": a}, equals(B=b, C=a.sum(1))


@case
def rows_of_twelve_threads_are_reduced_apart() -> Case:
    """A product spreads rows over 12 threads of 96, of which 8 have columns."""

    @T.prim_func
    def kernel(A: T.Tensor((16, 32), "int64")):
        B, C = T.empty((16,), F32), T.empty((16, 32), F32)
        with T.Kernel(1, threads=96) as bx:
            f, r = T.alloc_fragment((16, 32), F16), T.alloc_shared((16,), F16)
            a, b = T.alloc_fragment((16, 3), "int8"), T.alloc_fragment((3, 32), "int8")
            c = T.alloc_fragment((16, 32), I32)
            T.copy(A, f)
            T.fill(r, 1.0)
            T.reduce_sum(f, r, dim=1, clear=False)
            T.copy(r, B)
            T.fill(a, 1)
            T.fill(b, 2)
            T.gemm(a, b, c, clear_accum=True)
            for i, j in T.Parallel(16, 32):
                f[i, j] = f[i, j] + T.cast(c[i, j], F16)
            T.copy(f, C)
        return B, C

    a = small(16, 32, dtype="int64")
    return kernel, {"A": a}, equals(B=(a.sum(1) + 1).astype(F32), C=(a + 6).astype(F32))


@case
def batches_of_rows_are_reduced_at_once() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((16, 64), F32)):
        B, C = T.empty((16,), F32), T.empty((64,), F32)
        with T.Kernel(1, threads=128) as bx:
            f = T.alloc_fragment((16, 64), F32)
            rows, columns = T.alloc_fragment((16,), F32), T.alloc_fragment((64,), F32)
            T.copy(A, f)
            T.reduce_sum(f, rows, dim=1, batch=2)
            T.reduce_max(f, columns, dim=0, batch=4)
            T.copy(rows, B)
            T.copy(columns, C)
        return B, C

    a = small(16, 64)
    return kernel, {"A": a}, equals(B=a.sum(1), C=a.max(0))


@pytest.mark.covering(1)
@pytest.mark.parametrize("threads", [32, 40, 64, 100, 128])
@pytest.mark.parametrize("shape", [(8, 7), (5, 33), (1, 64), (24, 4)])
def test_reductions_by_any_number_of_threads(threads, shape):
    rows, columns = shape

    @T.prim_func
    def kernel(A: T.Tensor(shape, F32)):
        B, C = T.empty((rows,), F32), T.empty((columns,), F32)
        with T.Kernel(1, threads=threads) as bx:
            f = T.alloc_fragment(shape, F32)
            r, c = T.alloc_fragment((rows,), F32), T.alloc_fragment((columns,), F32)
            T.copy(A, f)
            T.reduce_sum(f, r, dim=1)
            T.reduce_absmax(f, c, dim=0)
            T.copy(r, B)
            T.copy(c, C)
        return B, C

    a = small(*shape)
    check_executors(kernel, {"A": a}, equals(B=a.sum(1), C=np.abs(a).max(0)))


@case
def views_are_summed_up_along_rows_of_any_length() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((6, 35), F32)):
        B, C, D = T.empty((210,), F32), T.empty((14, 15), F32), T.empty((6, 35), F32)
        with T.Kernel(1, threads=64) as bx:
            a, b, d = (T.alloc_shared((6, 35), F32) for _ in range(3))
            T.copy(A, a)
            T.copy(A, b)
            T.copy(A, d)
            flat, wide = T.reshape(a, (210,)), T.reshape(b, (14, 15))
            T.cumsum(flat, dim=0, reverse=True)
            T.cumsum(wide, dim=1)
            T.cumsum(d, dim=0)
            T.copy(flat, B)
            T.copy(wide, C)
            T.copy(d, D)
        return B, C, D

    a = small(6, 35)
    backwards = np.cumsum(a.reshape(-1)[::-1], dtype=F32)[::-1]
    expected = {"B": backwards, "C": a.reshape(14, 15).cumsum(1), "D": a.cumsum(0)}
    return kernel, {"A": a}, equals(**expected)


@pytest.mark.covering(1)
@pytest.mark.parametrize("dtype", [F32, F16, I32, "int8"])
@pytest.mark.parametrize("sign", [1, -1])
def test_reductions_of_one_sign_start_from_the_right_value(dtype, sign):
    @T.prim_func
    def kernel(A: T.Tensor((8, 40), dtype)):
        B = T.empty((6, 8), dtype)
        with T.Kernel(1, threads=64) as bx:
            f, r = T.alloc_fragment((8, 40), dtype), T.alloc_fragment((8,), dtype)
            T.copy(A, f)
            T.reduce_max(f, r)
            T.copy(r, B[0, 0:8])
            T.reduce_min(f, r)
            T.copy(r, B[1, 0:8])
            T.reduce_absmax(f, r)
            T.copy(r, B[2, 0:8])
            T.reduce_abssum(f, r)
            T.copy(r, B[3, 0:8])
            T.fill(r, 1)
            T.reduce_max(f, r, clear=False)
            T.copy(r, B[4, 0:8])
            T.fill(r, 2)
            T.reduce_sum(f, r, clear=False)
            T.copy(r, B[5, 0:8])
        return B

    a = (small(8, 40, low=1, high=4) * sign).astype(dtype)
    kept = np.maximum(a.max(1), 1)
    sums = [abs(a).sum(1), a.sum(1) + 2]
    rows = [a.max(1), a.min(1), abs(a).max(1), sums[0], kept, sums[1]]
    check_executors(kernel, {"A": a}, equals(B=np.stack(rows).astype(dtype)))


@pytest.mark.parametrize("name", case)
def test_results(name):
    case.check(name)


@pytest.mark.nvrtc
@pytest.mark.parametrize("name", case)
def test_executed_ptx(name):
    case.check_ptx(name)


def barriers_of(kernel: Any, **arguments: Any) -> int:
    result = tw.compile(kernel, target="sim:sm_80").simulate(*arguments.values())
    assert result.report.ok
    return result.report.barriers


def test_threads_that_read_what_they_wrote_need_no_barrier():
    @T.prim_func
    def kernel(A: T.Tensor((128,), F32), B: T.Tensor((128,), F32)):
        with T.Kernel(1, threads=128) as bx:
            t = T.get_thread_binding()
            s = T.alloc_shared((128,), F32)
            s[t ^ 1] = A[t]
            if t % 2 == 0:
                s[t ^ 1] = s[t ^ 1] + 1.0
            B[t] = s[t ^ 1]

    assert barriers_of(kernel, A=small(128), B=small(128)) == 0


def test_one_barrier_serves_all_tiles_that_were_written_before_it():
    @T.prim_func
    def kernel(A: T.Tensor((128,), F32), B: T.Tensor((128,), F32)):
        with T.Kernel(1, threads=128) as bx:
            t = T.get_thread_binding()
            s, u = T.alloc_shared((128,), F32), T.alloc_shared((128,), F32)
            s[t] = A[t]
            u[t] = A[t] * 2.0
            B[t] = s[127 - t] + u[t ^ 1]

    assert barriers_of(kernel, A=small(128), B=small(128)) == 1


def test_the_lanes_of_a_warp_meet_without_the_block():
    @T.prim_func
    def kernel(A: T.Tensor((128,), I32), B: T.Tensor((128,), I32)):
        with T.Kernel(1, threads=128) as bx:
            t = T.get_thread_binding()
            s = T.alloc_shared((128,), I32)
            B[t] = 0
            if t < 64:
                s[t] = A[t]
                T.sync_warp()
                B[t] = s[t ^ 31]
            for k in T.serial(t // 32):
                T.sync_warp()
                s[t] = k + t
                T.sync_warp()
                B[t] = B[t] + s[t ^ 1]

    a, t = small(128, dtype=I32), np.arange(128)
    expected = np.where(t < 64, a[t ^ 31], 0)
    for k in range(4):
        expected = expected + np.where(t // 32 > k, k + (t ^ 1), 0)
    arguments = {"A": a, "B": np.zeros(128, I32)}
    check_on_threads(kernel, arguments, equals(B=expected.astype(I32)))
    assert barriers_of(kernel, **arguments) == 0


def in_a_branch(t: Any, s: Any, B: Any) -> None:
    if t < 40:
        s[t] = s[t] + 1
        B[t] = s[39 - t]


def in_a_branch_over_warps(t: Any, s: Any, B: Any) -> None:
    if t // 32 % 2 == 0:
        s[t] = s[t] + 1
        T.sync_warp()
        B[t] = s[t ^ 64]


def in_a_loop_of_different_length(t: Any, s: Any, B: Any) -> None:
    for k in T.serial(t // 32):
        x = s[127 - t]
        s[t] = x + k


def in_a_loop_that_some_leave(t: Any, s: Any, B: Any) -> None:
    for k in T.serial(5):
        x = s[(t + k) % 128]
        if x > 2:
            break
        s[t] = x + 1


WHOLE_WARPS = (
    "end the `if` before the data are read, or let its condition name whole warps in a row"
)
AT_ONCE = "end the loop before the data are read, or let all threads leave it at once"


@pytest.mark.parametrize(
    ("body", "hint"),
    [
        (in_a_branch, WHOLE_WARPS),
        (in_a_branch_over_warps, WHOLE_WARPS),
        (in_a_loop_of_different_length, AT_ONCE),
        (in_a_loop_that_some_leave, AT_ONCE),
    ],
)
def test_where_no_barrier_can_be_is_an_error(body, hint):
    exchange = T.macro(body)

    @T.prim_func
    def kernel(A: T.Tensor((128,), I32), B: T.Tensor((128,), I32)):
        with T.Kernel(1, threads=128) as bx:
            t = T.get_thread_binding()
            s = T.alloc_shared((128,), I32)
            s[t] = A[t]
            exchange(t, s, B)

    with pytest.raises(tw.UnsupportedError) as caught:
        tw.compile(kernel, target="sim:sm_80")
    assert caught.value.message == (
        "threads exchange data through memory under a condition that is not the same for all of "
        "them, where no barrier can be"
    )
    assert caught.value.hint == hint


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(("n", "threads"), [(16, 64), (8, 128), (64, 128), (64, 64)])
def test_one_of_the_threads_that_hold_an_element_stores(n, threads, dtype):
    """A fragment with fewer elements than threads is held several times: the others read nothing
    of what the one that stores writes."""

    @T.prim_func
    def kernel(
        A: T.Tensor((n,), dtype),
        B: T.Tensor((n,), dtype),
        C: T.Tensor((n,), dtype),
        D: T.Tensor((n,), "float32"),
    ):
        with T.Kernel(1, threads=threads):
            f, s = T.alloc_fragment((n,), dtype), T.alloc_shared((n,), dtype)
            t = T.alloc_shared((n,), "float32")
            T.copy(A, f)
            T.copy(B, s)
            T.clear(t)
            for i in T.Parallel(n):
                f[i] = f[i] + 1
                s[i] = s[i] * 2 + f[i]
            for i in T.Parallel(n):
                T.atomic_add(t[i], s[i] + f[i])
                f[i] = f[i] + 1
            T.copy(s, C)
            T.copy(t, D)

    a, b = (np.arange(n) % 5).astype(dtype), np.ones(n, dtype)
    c = b * 2 + a + 1
    given = {"A": a, "B": b, "C": np.zeros_like(c), "D": np.zeros(n, np.float32)}
    check_executors(kernel, given, equals(C=c, D=(c + a + 1).astype(np.float32)))
