"""Branches, loops and scalar variables, in blocks and in parallel loops."""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

import numpy as np
import pytest

import tileworkbench.language as T
from tests.differential.harness import (
    check_everywhere,
    check_executors,
    equals,
    random_array,
    run_native,
)
from tileworkbench.compiler.diagnostics import DeviceAssertError

N = 45
VALUES = (random_array((N,), "int32") % 23).astype(np.int32)


def test_branches_in_a_parallel_loop():
    @T.prim_func
    def kernel(A: T.Tensor((N,), "int32")):
        Out = T.empty((N,), "int32")
        with T.Kernel(T.ceildiv(N, 16), threads=128) as bx:
            for i in T.Parallel(16):
                if A[bx * 16 + i] > 5:
                    Out[bx * 16 + i] = A[bx * 16 + i] * 2
                elif A[bx * 16 + i] > 0:
                    Out[bx * 16 + i] = -A[bx * 16 + i]
                else:
                    Out[bx * 16 + i] = 7 if A[bx * 16 + i] % 2 == 0 else 9
        return Out

    low = np.where(VALUES % 2 == 0, 7, 9)
    expected = np.where(VALUES > 5, VALUES * 2, np.where(VALUES > 0, -VALUES, low)).astype(np.int32)
    check_everywhere(kernel, {"A": VALUES}, equals(Out=expected))


def test_one_element_for_the_lanes_that_a_condition_leaves():
    """The row is the same for all lanes, in range in a tile and perhaps outside in a tensor."""

    @T.prim_func
    def kernel(A: T.Tensor((N,), "int32"), Row: T.Tensor((8,), "int32")):
        Out = T.empty((8, 32), "int32")
        with T.Kernel(1, threads=128) as _:
            rows = T.alloc_fragment((8,), "int32")
            T.copy(Row, rows)
            for i, j in T.Parallel(8, 32):
                found = T.if_then_else(j % 3 == i % 3, A[Row[i]] + rows[i], -1)
                Out[i, j] = T.if_then_else(j > 40, A[Row[i]], found)
        return Out

    row = np.array([0, 44, 45, -3, 1000, 7, 2**30, 12], np.int32)
    inside = (row >= 0) & (row < N)
    value = np.where(inside, VALUES[np.where(inside, row, 0)], 0) + row
    i, j = np.indices((8, 32))
    expected = np.where(j % 3 == i % 3, value[:, None], -1).astype(np.int32)
    arguments = {"A": VALUES, "Row": row}
    check_everywhere(kernel, arguments, equals(Out=expected))


def test_a_serial_loop_in_a_parallel_one():
    @T.prim_func
    def kernel(A: T.Tensor((N, 7), "float32")):
        Out = T.empty((N,), "float32")
        with T.Kernel(T.ceildiv(N, 16), threads=128) as bx:
            total = T.alloc_fragment((16,), "float32")
            for i in T.Parallel(16):
                total[i] = 0.0
                for j in T.serial(7):
                    total[i] = total[i] + A[bx * 16 + i, j]
            for i in T.Parallel(16):
                if bx * 16 + i < N:
                    Out[bx * 16 + i] = total[i]
        return Out

    a = np.round(random_array((N, 7), "float32") * 16)
    check_everywhere(kernel, {"A": a}, equals(Out=a.sum(1)))


def test_a_while_loop_at_block_level():
    @T.prim_func
    def kernel(A: T.Tensor((N,), "int32")):
        Out = T.empty((N,), "int32")
        with T.Kernel(N, threads=128) as bx:
            n = T.alloc_var("int32", init=0)
            steps = T.alloc_var("int32", init=0)
            n = T.abs(A[bx]) + 1
            while n != 1:
                if n % 2 == 0:
                    n = n // 2
                else:
                    n = 3 * n + 1
                steps += 1
            Out[bx] = steps
        return Out

    expected = []
    for value in VALUES.tolist():
        n, steps = abs(value) + 1, 0
        while n != 1:
            n, steps = (n // 2 if n % 2 == 0 else 3 * n + 1), steps + 1
        expected.append(steps)
    check_everywhere(kernel, {"A": VALUES}, equals(Out=np.array(expected, np.int32)))


def test_break_and_continue():
    @T.prim_func
    def kernel(A: T.Tensor((N,), "int32")):
        Out = T.empty((N,), "int32")
        with T.Kernel(N, threads=128) as bx:
            total = T.alloc_var("int32", init=0)
            for j in T.serial(10):
                if j == A[bx]:
                    break
                if (j + bx) % 3 == 0:
                    continue
                for k in range(2):
                    if k == j:
                        break
                    total = total + j
            Out[bx] = total
        return Out

    expected = []
    for i, value in enumerate(VALUES.tolist()):
        total = 0
        for j in range(10):
            if j == value:
                break
            if (j + i) % 3 == 0:
                continue
            for k in range(2):
                if k == j:
                    break
                total += j
        expected.append(total)
    check_everywhere(kernel, {"A": VALUES}, equals(Out=np.array(expected, np.int32)))


@pytest.mark.parametrize("name", ["serial", "Serial", "unroll", "vectorized", "Pipelined"])
def test_kinds_of_loops(name):
    loop = getattr(T, name)

    @T.prim_func
    def kernel(A: T.Tensor((N,), "int32")):
        Out = T.empty((N,), "int32")
        with T.Kernel(N, threads=128) as bx:
            total = T.alloc_var("int32", init=1)
            for j in loop(3):
                total = total * 10 + j
            Out[bx] = total + A[bx]
        return Out

    check_everywhere(kernel, {"A": VALUES}, equals(Out=VALUES + 1012))


def test_loops_that_count_down_and_do_not_run():
    @T.prim_func
    def kernel(n: T.int32):
        Out = T.empty((8,), "int32")
        with T.Kernel(1, threads=128) as bx:
            count = T.alloc_var("int32", init=0)
            for j in range(7, -1, -1):
                Out[j] = count
                count += 1
            for j in range(5, n):
                Out[j] = -1
            for j in T.unroll(0, 8, 4):
                Out[j] = j
        return Out

    expected = np.array([0, 6, 5, 4, 4, 2, 1, 0], np.int32)
    check_everywhere(kernel, {"n": 3}, equals(Out=expected))


def test_a_let_keeps_its_value():
    @T.prim_func
    def kernel(A: T.Tensor((N,), "int32")):
        with T.Kernel(T.ceildiv(N, 16), threads=128) as bx:
            for i in T.Parallel(16):
                old = A[bx * 16 + i]
                A[bx * 16 + i] = old * 2
                A[bx * 16 + i] = A[bx * 16 + i] + old

    check_everywhere(kernel, {"A": VALUES}, equals(A=VALUES * 3))


def test_variables_are_swapped():
    @T.prim_func
    def kernel(A: T.Tensor((N,), "int32")):
        Out = T.empty((N,), "int32")
        with T.Kernel(N, threads=128) as bx:
            a = T.alloc_var("int32", init=0)
            b = T.alloc_var("int32", init=0)
            a = A[bx]
            b = bx
            for i in T.serial(A[bx] % 2):
                a, b = b, a
            Out[bx] = a * 100 + b
        return Out

    index = np.arange(N, dtype=np.int32)
    odd = VALUES % 2 == 1
    expected = np.where(odd, index * 100 + VALUES, VALUES * 100 + index).astype(np.int32)
    check_everywhere(kernel, {"A": VALUES}, equals(Out=expected))


def test_blocks_that_do_different_things():
    @T.prim_func
    def kernel(A: T.Tensor((4, 16), "float32")):
        B = T.empty((4, 16), "float32")
        with T.Kernel(4, threads=128) as bx:
            S = T.alloc_shared((16,), "float32")
            if bx % 2 == 0:
                T.copy(A[bx, :], S)
            else:
                T.fill(S, -1.0)
            T.copy(S, B[bx, :])
        return B

    a = random_array((4, 16), "float32")
    expected = a.copy()
    expected[1::2] = -1
    check_everywhere(kernel, {"A": a}, equals(B=expected))


def test_two_launches():
    @T.prim_func
    def kernel(A: T.Tensor((4, 16), "float32")):
        B = T.empty((4, 16), "float32")
        C = T.empty((16, 4), "float32")
        with T.Kernel(4, threads=128) as bx:
            for i in T.Parallel(16):
                B[bx, i] = A[bx, i] * 2.0
        with T.Kernel(16, threads=128) as bx:
            for i in T.Parallel(4):
                C[bx, i] = B[3 - i, bx]
        return C, B

    a = random_array((4, 16), "float32")
    check_everywhere(kernel, {"A": a}, equals(B=a * 2, C=(a * 2)[::-1].T.copy()))


@pytest.mark.parametrize("order", ["row", "column"])
def test_swizzled_blocks_cover_the_grid(order):
    @T.prim_func
    def kernel(A: T.Tensor((5, 7), "int32")):
        with T.Kernel(7, 5, threads=128) as (bx, by):
            T.use_swizzle(3, order=order)
            for i in T.Parallel(1):
                A[by, bx + i] = A[by, bx + i] * 2 + by * 10 + bx

    expected = np.add.outer(np.arange(5) * 10, np.arange(7)).astype(np.int32)
    check_everywhere(kernel, {"A": np.ones((5, 7), np.int32)}, equals(A=expected + 2))


def test_a_vectorized_loop():
    @T.prim_func
    def kernel(A: T.Tensor((4, 16), "float32")):
        B = T.empty((4, 16), "float32")
        with T.Kernel(4, threads=128) as bx:
            for i in T.vectorized(16):
                B[bx, i] = A[bx, 15 - i]
        return B

    a = random_array((4, 16), "float32")
    check_everywhere(kernel, {"A": a}, equals(B=a[:, ::-1].copy()))


def test_gathers_and_scatters():
    @T.prim_func
    def kernel(A: T.Tensor((N,), "float32"), Index: T.Tensor((N,), "int32")):
        Gathered = T.empty((N,), "float32")
        Scattered = T.empty((N,), "float32")
        with T.Kernel(T.ceildiv(N, 16), threads=128) as bx:
            for i in T.Parallel(16):
                if bx * 16 + i < N:
                    Gathered[bx * 16 + i] = A[Index[bx * 16 + i]]
                    Scattered[Index[bx * 16 + i]] = A[bx * 16 + i]
        return Gathered, Scattered

    a, index = (
        random_array((N,), "float32"),
        np.random.default_rng(0).permutation(N).astype(np.int32),
    )
    scattered = np.empty_like(a)
    scattered[index] = a
    check_everywhere(
        kernel, {"A": a, "Index": index}, equals(Gathered=a[index], Scattered=scattered)
    )


def test_indices_outside_are_masked():
    @T.prim_func
    def kernel(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, 16), threads=128) as bx:
            for i in T.Parallel(16):
                B[bx * 16 + i - 3] = A[bx * 16 + i - 1] + A[bx * 16 + i + 1]

    a = random_array((N,), "float32")
    padded = np.pad(a, 8)
    sums = np.array([padded[7 + i] + padded[9 + i] for i in range(48)], np.float32)
    check_everywhere(kernel, {"A": a, "B": np.zeros_like(a)}, equals(B=sums[3:48]))


def test_a_while_loop_in_a_parallel_one():
    @T.prim_func
    def kernel(A: T.Tensor((N,), "int32")):
        Out = T.empty((N,), "int32")
        with T.Kernel(T.ceildiv(N, 16), threads=128) as bx:
            for i in T.Parallel(16):
                n = T.alloc_var("int32", init=0)
                steps = T.alloc_var("int32", init=0)
                if bx * 16 + i < N:
                    n = T.abs(A[bx * 16 + i]) + 1
                    while n != 1:
                        n = n // 2 if n % 2 == 0 else 3 * n + 1
                        steps += 1
                    Out[bx * 16 + i] = steps
        return Out

    expected = []
    for value in VALUES.tolist():
        n, steps = abs(value) + 1, 0
        while n != 1:
            n, steps = (n // 2 if n % 2 == 0 else 3 * n + 1), steps + 1
        expected.append(steps)
    check_everywhere(kernel, {"A": VALUES}, equals(Out=np.array(expected, np.int32)))


def test_break_in_a_serial_loop_in_a_parallel_one():
    @T.prim_func
    def kernel(A: T.Tensor((20, 9), "int32")):
        Out = T.empty((20,), "int32")
        with T.Kernel(1, threads=128) as bx:
            first = T.alloc_fragment((20,), "int32")
            for i in T.Parallel(20):
                first[i] = -1
                for j in T.serial(9):
                    if A[i, j] % 3 == 0:
                        first[i] = j
                        break
            T.copy(first, Out)
        return Out

    a = random_array((20, 9), "int32")
    found = [next((j for j in range(9) if row[j] % 3 == 0), -1) for row in a]
    check_everywhere(kernel, {"A": a}, equals(Out=np.array(found, np.int32)))


def test_an_array_of_each_iteration():
    @T.prim_func
    def kernel(A: T.Tensor((20, 8), "float32")):
        Out = T.empty((20, 8), "float32")
        with T.Kernel(1, threads=128) as bx:
            for i in T.Parallel(20):
                row = T.alloc_local((8,), "float32")
                for j in T.serial(8):
                    row[j] = A[i, j] * 2.0
                for j in T.serial(8):
                    Out[i, j] = row[7 - j]
        return Out

    a = random_array((20, 8), "float32")
    check_everywhere(kernel, {"A": a}, equals(Out=(a * 2)[:, ::-1].copy()))


def test_several_stores_under_nested_conditions():
    @T.prim_func
    def kernel(A: T.Tensor((33,), "float32")):
        Out = T.empty((33,), "float32")
        Kind = T.empty((33,), "int32")
        with T.Kernel(1, threads=128) as bx:
            for i in T.Parallel(33):
                if A[i] > 0:
                    doubled = A[i] * 2
                    Out[i] = doubled
                    if A[i] > 1:
                        Kind[i] = 1
                    else:
                        Kind[i] = 2
                else:
                    Out[i] = -A[i]
                    Kind[i] = 3
        return Out, Kind

    a = random_array((33,), "float32")
    kind = np.where(a > 0, np.where(a > 1, 1, 2), 3).astype(np.int32)
    check_everywhere(kernel, {"A": a}, equals(Out=np.where(a > 0, a * 2, -a), Kind=kind))


def test_a_gather_by_indices_that_lie_anywhere():
    @T.prim_func
    def kernel(A: T.Tensor((33,), "float32"), Index: T.Tensor((33,), "int64")):
        Out = T.empty((33,), "float32")
        with T.Kernel(1, threads=128) as bx:
            for i in T.Parallel(33):
                Out[i] = A[Index[i]] + A[-1]
        return Out

    a, index = random_array((33,), "float32"), np.arange(33)[::-1].astype(np.int64)
    index[3], index[5], index[7] = 99, -4, 2**40
    inside = (index >= 0) & (index < 33)
    expected = np.where(inside, a[np.where(inside, index, 0)], np.float32(0)) + a[-1]
    check_everywhere(kernel, {"A": a, "Index": index}, equals(Out=expected))


def test_a_parallel_loop_of_unknown_extent():
    n = T.dynamic("n")

    @T.prim_func
    def kernel(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
        with T.Kernel(1, threads=128) as bx:
            for i in T.Parallel(n):
                B[i] = A[n - 1 - i]

    for extent in (0, 1, 7, 16, 33):
        a = random_array((extent,), "float32")
        given = {"A": a, "B": np.zeros(extent, np.float32)}
        check_everywhere(kernel, given, equals(B=a[::-1].copy()))


def test_a_parallel_loop_of_three_dimensions():
    @T.prim_func
    def kernel(A: T.Tensor((3, 4, 5), "float32")):
        Out = T.empty((5, 3, 4), "float32")
        with T.Kernel(1, threads=128) as bx:
            for i, j, k in T.Parallel(3, 4, 5):
                Out[k, i, j] = A[i, j, k]
        return Out

    a = random_array((3, 4, 5), "float32")
    check_everywhere(kernel, {"A": a}, equals(Out=a.transpose(2, 0, 1).copy()))


def test_a_variable_that_only_some_lanes_need():
    @T.prim_func
    def kernel(A: T.Tensor((64,), "int32"), B: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=128) as bx:
            v = T.alloc_var("int32", init=3)
            v = A[0] + 1
            for i in T.Parallel(64):
                B[i] = v if A[i] > 0 else A[63 - i]

    a = random_array((64,), "int32") % 100
    arguments = {"A": a, "B": np.zeros(64, np.int32)}
    check_everywhere(
        kernel, arguments, equals(B=np.where(a > 0, a[0] + 1, a[::-1]).astype(np.int32))
    )


def test_steps_that_are_known_at_run_time():
    @T.prim_func
    def kernel(A: T.Tensor((4, 40), "int32"), step: T.int32):
        with T.Kernel(4, threads=32) as bx:
            for i in range(0, 40, step + bx):
                A[bx, i] = i + 1
            for i in T.serial(39, bx * 10, -step):
                A[bx, i] = -i

    expected = np.zeros((4, 40), np.int32)
    for b in range(4):
        expected[b, 0 : 40 : 3 + b] = np.arange(0, 40, 3 + b) + 1
        for i in range(39, b * 10, -3):
            expected[b, i] = -i
    arguments = {"A": np.zeros((4, 40), np.int32), "step": 3}
    check_everywhere(kernel, arguments, equals(A=expected))
    with pytest.raises(DeviceAssertError, match="the step of a loop is 0"):
        run_native(kernel.program, {"A": np.zeros((4, 40), np.int32), "step": 0}, "cpu")


BOUNDS = (random_array((N,), "int32", 3) % 9).astype(np.int32)


def bounds_that_change():
    """What a bound was read from changes in the loop; a step may have either sign."""

    @T.prim_func
    def kernel(A: T.Tensor((N,), "int32")):
        Steps, Moving = T.empty((N,), "int32"), T.empty((N,), "int32")
        Last = T.empty((N,), "int32")
        with T.Kernel(1, threads=64) as bx:
            n, m = T.alloc_var("int32", 3), T.alloc_var("int32", 1)
            for i in T.Parallel(N):
                Steps[i] = 0
                for k in T.serial(A[i], -A[i], T.if_then_else(A[i] > 0, -1, 1)):
                    Steps[i] = Steps[i] * 3 + k
                Last[i] = A[i] + 4
                for k in T.serial(T.min(Last[i], 7)):
                    Last[i] = Last[i] + k
            for i in T.Parallel(N):
                Moving[i] = 0
            for k in T.serial(0, n, m):
                n = n + 1
                m = m + 1
                for i in T.Parallel(N):
                    Moving[i] = Moving[i] + k + n
        return Steps, Moving, Last

    steps, last = np.zeros(N, np.int32), BOUNDS + 4
    for i, a in enumerate(BOUNDS):
        for k in range(a, -a, -1 if a > 0 else 1):
            steps[i] = steps[i] * 3 + k
        last[i] += sum(range(min(last[i], 7)))
    moving = np.full(N, 4 + 1 + 5 + 2 + 6, np.int32)
    return kernel, {"A": BOUNDS}, equals(Steps=steps, Moving=moving, Last=last)


def test_bounds_are_fixed_on_entry():
    check_executors(*bounds_that_change())


@pytest.mark.nvrtc
def test_bounds_are_fixed_on_entry_in_executed_ptx():
    kernel, arguments, check = bounds_that_change()
    check(run_native(kernel.program, arguments, "ptx:sm_80"))


LAST = 2**31 - 1
LIMITS = [
    (LAST - 7, LAST, 3),
    (LAST - 6, LAST, 3),
    (-LAST - 1, -LAST + 6, 4),
    (-LAST + 7, -LAST - 1, -5),
    (0, LAST, 2**30),
    (-LAST - 1, LAST, LAST),
    (LAST, -LAST - 1, -LAST - 1),
    (3, 3, 2),
    (4, 3, 2),
]


def loops_to_the_limits(dtype):
    """Loops whose next value, after the last one, is beyond what their dtype holds."""
    scale = 1 if dtype == "int32" else 2**32

    bounds = [tuple(number * scale for number in row) for row in LIMITS]
    rows = len(bounds)

    @T.prim_func
    def kernel(Bounds: T.Tensor((rows, 3), dtype)):
        Known, Read = T.empty((rows, 4), dtype), T.empty((rows, 4), dtype)
        with T.Kernel(1, threads=32):
            n = T.alloc_var("int32")
            for i, j in T.Parallel(rows, 4):
                Known[i, j] = 0
                Read[i, j] = 0
            for row in T.serial(rows):
                n = 0
                for v in T.serial(Bounds[row, 0], Bounds[row, 1], Bounds[row, 2]):
                    Read[row, n] = v
                    n = n + 1
            for row, (_, _, step) in enumerate(bounds):
                n = 0
                for v in T.serial(Bounds[row, 0], Bounds[row, 1], step):
                    Known[row, n] = v
                    n = n + 1
        return Known, Read

    expected = np.zeros((rows, 4), dtype)
    for row, values in enumerate(range(*bound) for bound in bounds):
        expected[row, : len(values)] = values
    return kernel, {"Bounds": np.array(bounds, dtype)}, equals(Known=expected, Read=expected)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_loops_end_where_the_next_value_does_not_fit(dtype):
    check_executors(*loops_to_the_limits(dtype))


@pytest.mark.nvrtc
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_loops_end_where_the_next_value_does_not_fit_in_executed_ptx(dtype):
    kernel, arguments, check = loops_to_the_limits(dtype)
    check(run_native(kernel.program, arguments, "ptx:sm_80"))


BELOW_ONE = [(-3, -2), (-17, -20), (-40, 5), (3, -33), (4, 0), (0, 0)]


@pytest.mark.parametrize(("n", "m"), BELOW_ONE)
def test_extents_below_one_are_nothing(n, m):
    @T.prim_func
    def kernel(A: T.Tensor((4, 24), "float32"), n: T.int32, m: T.int32):
        B = T.empty((4, 24), "float32")
        with T.Kernel(1, threads=32):
            T.fill(B, 1)
            T.fill(B[0:n, 0:m], 2)
            T.copy(A[0:n, 0:m], B[1 : n + 1, 0:m])
            T.atomic_add(B[0:n, 0:m], A[0:n, 0:m])
            for i, j in T.Parallel(n, m):
                B[i, j] = 3
            for j in T.Parallel(n + m - 7):
                B[3, j] = 4
            for i in T.serial(m):
                for j in T.Parallel(n):
                    B[j, i] = 5
        return B

    a = random_array((4, 24), "float32")
    check_executors(kernel, {"A": a, "n": n, "m": m}, equals(B=np.ones((4, 24), np.float32)))


def test_a_condition_that_takes_statements_is_asked_before_every_iteration():
    @T.prim_func
    def kernel(A: T.Tensor((4, 8), "bool"), Count: T.Tensor((N,), "int32"), n: T.int32):
        Cleared = T.empty((4,), "int32")
        with T.Kernel(4, threads=32) as bx:
            c = T.alloc_var("int32", init=0)
            while T.any_of(A[bx, 0:8]):
                A[bx, c] = False
                c += 1
            Cleared[bx] = c
            if bx == 0:
                for i in T.Parallel(N):
                    while T.atomic_add(Count[i], 1, return_prev=True) < n + i:
                        if Count[i] % 2 == 1:
                            continue
                        if Count[i] > 20:
                            break
                        Count[i] = Count[i] + 2
        return Cleared

    a = (np.arange(32).reshape(4, 8) % np.array([3, 5, 9, 40])[:, None] == 1).astype(np.bool_)
    cleared = np.array([8 - row[::-1].argmax() if row.any() else 0 for row in a], np.int32)
    count = np.zeros(N, np.int32)
    for i in range(N):
        while True:
            count[i] += 1
            if not count[i] - 1 < 5 + i:
                break
            if count[i] % 2 == 1:
                continue
            if count[i] > 20:
                break
            count[i] += 2
    arguments = {"A": a, "Count": np.zeros_like(count), "n": 5}
    check_executors(kernel, arguments, equals(A=np.zeros_like(a), Count=count, Cleared=cleared))


def test_a_block_that_waits_for_the_one_before():
    @T.prim_func
    def kernel(Turn: T.Tensor((1,), "int32"), Order: T.Tensor((4,), "int32")):
        with T.Kernel(4, threads=32) as bx:
            while T.atomic_load(Turn[0]) != bx:
                pass
            Order[bx] = Turn[0] * 10
            T.atomic_store(Turn[0], bx + 1)

    arguments = {"Turn": np.zeros(1, np.int32), "Order": np.zeros(4, np.int32)}
    expected = {"Turn": np.array([4], np.int32), "Order": np.arange(0, 40, 10, np.int32)}
    check_everywhere(kernel, arguments, equals(**expected))
