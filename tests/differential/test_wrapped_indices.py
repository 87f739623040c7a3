"""Indices whose arithmetic wraps around: an element is reached where the 32-bit result is in range,
and nothing outside a tensor is ever touched.
"""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tests.differential.harness import check_executors, equals
from tileworkbench.compiler.diagnostics import ArgumentError

N = 64  # iterations
LAST = 2**31 - 1

# Each for the language and, with numpy's operations on int32, for the reference.
INDICES = {
    "sum": lambda n, i, f: n + i,
    "multiple": lambda n, i, f: n * 4 + i,
    "product": lambda n, i, f: 5 - n * i,
    "parts": lambda n, i, f: n * 2 + n * i,
    "quotient": lambda n, i, f: (n + i) // 2,
    "minimum": lambda n, i, f: f.minimum(n + i, 20),
    "maximum": lambda n, i, f: f.maximum(n * 3 + i, 3) % 41,
    "widened": lambda n, i, f: f.wide(n * 2 + i) + 1,
}
NUMBERS = [2**30, 2**30 - 7, LAST, LAST - 31, 2**29 + 5, -(2**30), -LAST - 1, -(2**30) - 3, 0, 7]


class Language:
    minimum, maximum = staticmethod(T.min), staticmethod(T.max)

    @staticmethod
    def wide(value):
        return T.cast(value, "int64")


class Numpy:
    minimum, maximum = staticmethod(np.minimum), staticmethod(np.maximum)

    @staticmethod
    def wide(value):
        return value.astype(np.int64)


def reader(index, natural):
    """A kernel that reads and marks elements of tensors of known and of unknown size."""
    m = T.dynamic("m")

    @T.prim_func
    def kernel(
        A: T.Tensor((40,), "int32"),
        D: T.Tensor((m,), "int32"),
        Mark: T.Tensor((40,), "int32"),
        n: T.int32,
    ):
        Known, Unknown = T.empty((N,), "int32"), T.empty((N,), "int32")
        with T.Kernel(1, threads=32):
            if natural:
                T.assume(n >= 0)
            for i in T.Parallel(N):
                Known[i] = A[index(n, i, Language)]
            for i in T.Parallel(N):
                Unknown[i] = D[index(n, i, Language)]
            for i in T.serial(N):
                Mark[index(n, i, Language)] = 1
        return Known, Unknown

    return kernel


@pytest.mark.covering(1)
@pytest.mark.parametrize("natural", [False, True], ids=["any", "natural"])
@pytest.mark.parametrize("name", INDICES)
def test_elements(name, natural):
    index = INDICES[name]
    kernel = reader(index, natural)
    a, d = np.arange(1, 41, dtype=np.int32), np.arange(1, 51, dtype=np.int32)
    for n in [number for number in NUMBERS if number >= 0 or not natural]:
        with np.errstate(over="ignore"):
            places = index(np.full(N, n, np.int32), np.arange(N, dtype=np.int32), Numpy)
        marks = np.zeros(40, np.int32)
        marks[places[(places >= 0) & (places < 40)]] = 1
        known, unknown = (
            np.where((places >= 0) & (places < len(t)), t[places % len(t)], 0) for t in (a, d)
        )
        arguments = {"A": a, "D": d, "Mark": np.zeros(40, np.int32), "n": n}
        check_executors(kernel, arguments, equals(Known=known, Unknown=unknown, Mark=marks))


@pytest.mark.parametrize("n", NUMBERS)
def test_tiles(n):
    """Copies whose region begins beyond the largest index, or wraps around to the first."""

    @T.prim_func
    def kernel(A: T.Tensor((40, 40), "int32"), B: T.Tensor((40, 40), "int32"), n: T.int32):
        with T.Kernel(1, threads=32):
            tile = T.alloc_shared((16, 16), "int32")
            T.copy(A[n, n * 2], tile)
            T.copy(tile, B[n * 4, n - 3])

    a = np.arange(1600, dtype=np.int32).reshape(40, 40)
    step = np.arange(16, dtype=np.int32)

    def place(first):
        with np.errstate(over="ignore"):
            found = np.full(16, first & 0xFFFFFFFF, np.uint32).astype(np.int32) + step
        return found, (found >= 0) & (found < 40)

    (rows, row_inside), (cols, col_inside) = place(n), place(n * 2)
    inside = row_inside[:, None] & col_inside
    tile = np.where(inside, a[(rows % 40)[:, None], cols % 40], 0)
    (rows, row_inside), (cols, col_inside) = place(n * 4), place(n - 3)
    b = np.zeros((40, 40), np.int32)
    b[np.ix_(rows[row_inside], cols[col_inside])] = tile[np.ix_(row_inside, col_inside)]
    check_executors(kernel, {"A": a, "B": np.zeros_like(b), "n": n}, equals(B=b))


def test_loops_up_to_the_largest_index():
    @T.prim_func
    def kernel(Out: T.Tensor((64,), "int32"), n: T.int32):
        with T.Kernel(1, threads=32):
            for v in T.serial(LAST - 40, n):
                Out[v + 10] = 1
                Out[(v + 100) // 3 + (1 << 29)] = 2
                Out[v - (LAST - 40)] = 3

    out = np.zeros(64, np.int32)
    out[:40] = 3
    check_executors(kernel, {"Out": np.zeros_like(out), "n": LAST}, equals(Out=out))


def test_a_size_that_indices_cannot_reach_past():
    m, stride = T.dynamic("m, stride")

    @T.prim_func
    def kernel(A: T.StridedTensor((m,), (stride,), "int32")):
        Out = T.empty((1,), "int32")
        with T.Kernel(1, threads=32):
            Out[0] = A[m - 1]
        return Out

    compiled = tw.compile(kernel, target="cpu")
    largest = LAST - 2**20
    a = np.lib.stride_tricks.as_strided(np.array([5], np.int32), (largest,), (0,))
    assert compiled(a).tolist() == [5]
    a = np.lib.stride_tricks.as_strided(np.array([5], np.int32), (largest + 1,), (0,))
    with pytest.raises(ArgumentError) as error:
        compiled(a)
    assert str(error.value) == (
        "'kernel': dimension 0 of 'A' is 2146435072, and an 'int32' symbol is at most 2146435071\n"
        "hint: declare it with 64 bits, as in T.dynamic('m', 'int64')"
    )
