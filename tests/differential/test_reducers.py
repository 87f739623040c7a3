"""Reducers: each iteration of T.Parallel contributes once, whatever the shape of the loop."""
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
    storage,
)

COMBINE = {
    "sum": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "bitand": np.bitwise_and,
    "bitor": np.bitwise_or,
    "bitxor": np.bitwise_xor,
}


@pytest.mark.parametrize(
    ("op", "dtype"),
    [
        ("sum", "float32"),
        ("sum", "float16"),
        ("max", "bfloat16"),
        ("min", "float64"),
        ("sum", "uint8"),
        *((op, "int32") for op in COMBINE),
        ("bitand", "uint16"),
    ],
)
def test_rows_and_columns(op, dtype):
    a = (random_array((24, 20), "int32") % 7).astype(storage(dtype))

    @T.prim_func
    def kernel(A: T.Tensor((24, 20), dtype)):
        R = T.empty((24,), dtype)
        C = T.empty((3, 20), dtype)
        with T.Kernel(3, threads=32) as bx:
            S = T.alloc_shared((8, 20), dtype)
            rows = T.alloc_reducer((8,), dtype, op)
            columns = T.alloc_reducer((20,), dtype, op=op)
            total = T.alloc_fragment((8,), dtype)
            T.copy(A[bx * 8, 0], S)
            T.reducer_init(rows)
            T.reducer_init(columns, 3)
            for i, j in T.Parallel(8, 20):
                T.reducer_update(rows[i], S[i, j])
                T.reducer_update(columns[j], S[i, j])
            T.finalize_reducer(rows, total)
            T.copy(total, R[bx * 8])
            T.finalize_reducer(columns, C[bx, 0:20])
        return R, C

    wide = a.astype(np.float64 if np.dtype(storage(dtype)).kind in "fV" else a.dtype)
    combine, three = COMBINE[op], wide.dtype.type(3)
    rows = combine.reduce(wide, axis=1, dtype=wide.dtype).astype(storage(dtype))
    columns = combine(combine.reduce(wide.reshape(3, 8, 20), axis=1, dtype=wide.dtype), three)
    check = equals(R=rows, C=columns.astype(storage(dtype)))
    check_everywhere(kernel, {"A": a}, check)
    check(run_native(kernel.program, {"A": a}, "sim:sm_80"))  # 20 of 32 threads have a part


def test_a_reducer_is_started_again_in_each_iteration():
    a = random_array((4, 64), "float32").round()

    @T.prim_func
    def kernel(A: T.Tensor((4, 64), "float32")):
        B = T.empty((4, 1), "float32")
        with T.Kernel(1, threads=32) as bx:
            acc = T.alloc_reducer(1, "float32")
            out = T.alloc_fragment(1, "float32")
            for k in T.serial(4):
                T.reducer_init(acc)
                for i in T.Parallel(64):
                    if i % 2 == 0:
                        T.reducer_update(acc[0], A[k, i])
                T.finalize_reducer(acc, out)
                T.copy(out, B[k, 0])
        return B

    check_everywhere(kernel, {"A": a}, equals(B=a[:, ::2].sum(axis=1, keepdims=True)))


UPDATES = {
    "sum": lambda old, x: x * 2 + old - 1,
    "max": lambda old, x: T.max(old, x),
    "min": lambda old, x: T.min(T.min(x, old), x + 1),
}


@pytest.mark.covering(2)
@pytest.mark.parametrize("replication", [None, "all"])
@pytest.mark.parametrize("dtype", ["float32", "int32", "float16"])
@pytest.mark.parametrize("op", UPDATES)
def test_the_older_form_is_written_as_a_fragment(op, dtype, replication):
    """Contributions meet in an element from all iterations; a second round begins anew."""
    a = np.random.default_rng(5).integers(-9, 10, (16, 64)).astype(dtype)

    @T.macro
    def contribute(acc, A, k):
        for i, j in T.Parallel(16, 32):
            if op == "sum" and A[i, k * 32 + j] > 3:
                acc[i] -= 5
            acc[i] = UPDATES[op](acc[i], A[i, k * 32 + j])

    @T.prim_func
    def kernel(A: T.Tensor((16, 64), dtype)):
        B = T.empty((2, 16), dtype)
        with T.Kernel(1, threads=32):
            acc = T.alloc_reducer(16, dtype, op=op, replication=replication)
            for row in T.serial(2):
                T.fill(acc, 0)
                for k in T.serial(2):
                    contribute(acc, A, k)
                T.finalize_reducer(acc)
                for i in T.Parallel(16):
                    B[row, i] = acc[i] + row
        return B

    expected = {
        "sum": (a * 2 - 1 - 5 * (a > 3)).sum(axis=1, dtype=np.float64),
        "max": np.maximum(a.max(axis=1), 0),
        "min": np.minimum(a.min(axis=1), 0),
    }[op]
    rows = np.stack([expected, expected + 1]).astype(dtype)
    check_executors(kernel, {"A": a}, equals(B=rows))


def test_a_branch_may_finish_what_began_before_it():
    a = random_array((4, 16, 8), "int32") % 100

    @T.prim_func
    def kernel(A: T.Tensor((4, 16, 8), "int32")):
        B = T.empty((4, 8), "int32")
        with T.Kernel(4, threads=32) as bx:
            acc = T.alloc_reducer(8, "int32")
            low = T.alloc_reducer(8, "int32", op="min")
            T.clear(acc)
            T.reducer_init(low)
            for i, j in T.Parallel(16, 8):
                acc[j] += A[bx, i, j]
                T.reducer_update(low[j], A[bx, i, j])
            if bx % 2 == 0:
                T.finalize_reducer(acc)
                for j in T.Parallel(8):
                    acc[j] = acc[j] - 1
                T.copy(acc, B[bx, 0])
                T.finalize_reducer(low, acc)
            else:
                T.finalize_reducer(low, B[bx, 0:8])
        return B

    b = a.min(axis=1)
    b[::2] = a.sum(axis=1)[::2] - 1
    check_executors(kernel, {"A": a}, equals(B=b))
