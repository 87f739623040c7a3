"""Vectors of every second element and of repeated ones: values, and that nothing else is read."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tests.emit.tiles import GuardedTile
from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.compiler.emit.llvm.lane_access import lane_pattern, strided_starts
from tileworkbench.compiler.ir.build import add, binary, int_const, mul
from tileworkbench.compiler.ir.expr import Expr, Var
from tileworkbench.compiler.ir.printer import print_expr
from tileworkbench.compiler.ir.types import INT32

N = 40  # two whole vectors and narrower ones
DTYPES = ("float32", "bfloat16", "uint8")
LANE, BASE = Var("lane", INT32), Var("base", INT32)


@pytest.fixture(params=["cpu", "cpu:avx512", "cpu:avx2", "cpu:generic"])
def target(request: pytest.FixtureRequest) -> str:
    try:
        tw.compile(copy_kernel(2, 1, "float32", 0), target=request.param)
    except UnsupportedError as error:
        pytest.skip(error.message)
    return str(request.param)


def copy_kernel(repeat: int, stride: int, dtype: str, offset: int):
    """`Y[j] = X[j // repeat * stride + offset]` for the shortest X."""
    extent = (N - 1) // repeat * stride + offset + 1

    @T.prim_func
    def spaced(X: T.Tensor((extent,), dtype)):
        Y = T.empty((N,), dtype)
        with T.Kernel(1, threads=32):
            for j in T.Parallel(N):
                Y[j] = X[j // repeat * stride + offset]
        return Y

    return spaced


def guarded(values: np.ndarray, dtype: str) -> np.ndarray:
    """The values where no element may be read after the last."""
    tile = GuardedTile(values[None], dtype, padding=0)
    found = (ctypes.c_char * values.nbytes).from_address(tile.address)
    array = np.frombuffer(found, values.dtype)
    _kept.append(tile)
    return array


_kept: list[GuardedTile] = []


@pytest.mark.covering(2)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("repeat", "stride", "offset"),
    [
        *[(2, 1, 0), (4, 1, 0), (8, 1, 3), (64, 1, 0), (1, 2, 0), (1, 2, 1), (1, 4, 0), (1, 4, 3)],
        *[(1, 3, 1), (1, 50, 0)],
    ],
)
def test_values(target: str, dtype: str, repeat: int, stride: int, offset: int) -> None:
    kernel = tw.compile(copy_kernel(repeat, stride, dtype, offset), target=target)
    at = np.arange(N) // repeat * stride + offset
    numbers = np.arange(at[-1] + 1).astype(_numpy(dtype))
    np.testing.assert_array_equal(kernel(guarded(numbers, dtype)), numbers[at])


@pytest.mark.covering(2)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("stride", [2, 3, 50])
@pytest.mark.parametrize("limit", [N, 5])
def test_values_are_stored_apart(target: str, dtype: str, stride: int, limit: int) -> None:
    """`Y[j * stride]` takes sums, where j is small enough, and nothing else is written."""
    extent = (limit - 1) * stride + 1

    @T.prim_func
    def spread(
        A: T.Tensor((N,), dtype),
        B: T.Tensor((N,), dtype),
        C: T.Tensor((N,), dtype),
        D: T.Tensor((N,), dtype),
        Y: T.Tensor((extent,), dtype),
    ):
        with T.Kernel(1, threads=32):
            for j in T.Parallel(N):
                if j < limit:
                    Y[j * stride] = A[j] + B[j] + C[j] + D[j]

    kernel = tw.compile(spread, target=target)
    numbers = np.arange(1, N + 1).astype(_numpy(dtype))
    spaced = np.full(extent, 77)
    result = guarded(spaced.astype(_numpy(dtype)), dtype)
    kernel(numbers, numbers, numbers, numbers, result)
    spaced[::stride] = 4 * numbers[:limit]
    np.testing.assert_array_equal(result, spaced.astype(_numpy(dtype)))
    # Sums of vectors, whose lanes are stored.
    assert "extractelement" in kernel.source or limit < N
    assert "scatter" not in kernel.source or limit < N


def test_elements_apart_are_read_where_a_condition_holds(target: str) -> None:
    """One condition for all lanes of a vector; where it does not hold there is nothing to read."""
    m = T.dynamic("m")
    row = 3 * N - 2

    @T.prim_func
    def spaced(X: T.Tensor((m, row), "float32"), rows: T.Tensor((4,), "int32")):
        Y = T.empty((4, N), "float32")
        with T.Kernel(1, threads=32):
            for i, j in T.Parallel(4, N):
                Y[i, j] = T.if_then_else(rows[i] < m, X[rows[i], j * 3], T.float32(7))
        return Y

    kernel = tw.compile(spaced, target=target)
    numbers = np.arange(2 * row, dtype=np.float32)
    found = kernel(guarded(numbers, "float32").reshape(2, row), np.int32([1, 1 << 22, 0, 2]))
    expected = np.full((4, N), 7, np.float32)
    expected[[0, 2]] = numbers.reshape(2, row)[[1, 0], ::3]
    np.testing.assert_array_equal(found, expected)
    # LLVM may leave out what is not used: whether all is read tells the text before that.
    assert "gather" in kernel.source


def test_named_places_are_read_whole() -> None:
    @T.prim_func
    def spaced(X: T.Tensor((2, 2 * N + 1), "float32")):
        Y = T.empty((2, N), "float32")
        with T.Kernel(2, threads=32) as bx:
            for j in T.Parallel(N):
                column = 2 * (j + 0 * bx) + 1
                Y[bx, j] = X[bx, column]
        return Y

    kernel = tw.compile(spaced, target="cpu")
    x = np.arange(2 * (2 * N + 1), dtype=np.float32).reshape(2, -1)
    np.testing.assert_array_equal(kernel(x), x[:, 1::2])
    assert "shufflevector" in kernel.source
    assert "gather" not in kernel.source


def _numpy(dtype: str) -> np.dtype:
    import ml_dtypes

    return np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        (add(BASE, LANE), ("base", 1, 1)),
        (add(BASE, binary("floordiv", LANE, int_const(4))), ("base", 4, 1)),
        (add(mul(LANE, int_const(2)), BASE), ("base", 1, 2)),
        (mul(add(BASE, LANE), int_const(2)), ("base * 2", 1, 2)),
        (binary("mul", int_const(2), mul(LANE, int_const(2))), ("0", 1, 4)),
        (mul(binary("floordiv", LANE, int_const(4)), int_const(2)), None),
        (mul(LANE, BASE), None),
        (mul(LANE, int_const(-2)), None),
        (binary("floordiv", LANE, int_const(3)), None),
        (mul(LANE, int_const(3)), ("0", 1, 3)),
        (add(BASE, mul(LANE, int_const(16))), ("base", 1, 16)),
        (add(LANE, binary("floordiv", LANE, int_const(2))), None),
        (BASE, None),
    ],
)
def test_patterns(index: Expr, expected: tuple[str, int, int] | None) -> None:
    found = lane_pattern(index, LANE, 16)
    shown = None if found is None else (print_expr(found.base), found.repeat, found.stride)
    assert shown == expected


def test_strided_vectors_end_at_the_last_element() -> None:
    assert strided_starts(16, 2) == [0, 15]
    assert strided_starts(8, 4) == [0, 8, 16, 21]
