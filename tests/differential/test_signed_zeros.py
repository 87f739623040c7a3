"""The maximum of two zeros is +0 and the minimum -0, whichever comes first, on every executor."""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

import numpy as np
import pytest

import tileworkbench.language as T
from tests.differential.harness import (
    ALL_LEVELS,
    check_everywhere,
    check_on_threads,
    run_native,
    storage,
)

DTYPES = ["float64", "float32", "float16", "bfloat16", "float8_e5m2"]
NAN = float("nan")
# Every pair of these, so that each comes first and second, in vectors of any width.
VALUES = [0.0, -0.0, NAN, 1.0, -1.0, -3.0]


def pairs(dtype):
    a, b = np.meshgrid(np.array(VALUES), np.array(VALUES), indexing="ij")
    return a.reshape(-1).astype(storage(dtype)), b.reshape(-1).astype(storage(dtype))


def larger(a, b, axis=None):
    """Two values, or all along `axis`: NaN is ignored and +0 is greater than -0."""
    if axis is None:
        a, axis = np.stack([a, b]), 0
    found, plus = np.fmax.reduce(a, axis=axis), ((a == 0) & ~np.signbit(a)).any(axis=axis)
    return np.where(found == 0, np.where(plus, 0.0, -0.0), found)


def smaller(a, b=None, axis=None):
    return -larger(-a, None if b is None else -b, axis)


def same_bits(**expected):
    """The tensors have these values, zeros with their sign."""

    def check(arrays):
        for name, value in expected.items():
            found = np.asarray(arrays[name]).astype(np.float64)
            np.testing.assert_array_equal(found, value, err_msg=name)
            zeros = value == 0
            np.testing.assert_array_equal(
                np.signbit(found[zeros]), np.signbit(value[zeros]), err_msg=f"signs of {name}"
            )

    return check


def check_all(kernel, arguments, check, levels=ALL_LEVELS):
    check_everywhere(kernel, arguments, check, levels)
    check_on_threads(kernel, arguments, check)


def elements(dtype):
    a, b = pairs(dtype)

    @T.prim_func
    def kernel(A: T.Tensor((36,), dtype), B: T.Tensor((36,), dtype)):
        C = T.empty((36,), dtype)
        D = T.empty((36,), dtype)
        E = T.empty((36,), dtype)
        F = T.empty((36,), dtype)
        with T.Kernel(1, threads=64):
            for i in T.Parallel(36):
                C[i] = T.max(A[i], B[i])
                D[i] = T.min(A[i], B[i])
            for i in T.serial(36):
                E[i] = T.max(A[i], B[i])
                F[i] = T.min(A[i], B[i])
        return C, D, E, F

    a, b = (x.astype(np.float64) for x in (a, b))
    high, low = larger(a, b), smaller(a, b)
    return (
        kernel,
        dict(zip("AB", pairs(dtype), strict=True)),
        same_bits(C=high, D=low, E=high, F=low),
    )


def rows(dtype):
    """Rows of zeros of which one has the other sign, of negative numbers before and after."""
    rng = np.random.default_rng(3)
    a = np.where(np.arange(12)[:, None] % 2 == 0, -0.0, 0.0) * np.ones((12, 64))
    for row, place in enumerate(rng.integers(0, 64, 12)):
        a[row, place] = -a[row, place]
    a[8:, ::3] = [[-2], [-2], [2], [2]]
    a[4:6, ::2] = NAN
    a = a.astype(storage(dtype))

    @T.prim_func
    def kernel(A: T.Tensor((12, 64), dtype)):
        High, Low = T.empty((12,), dtype), T.empty((12,), dtype)
        Up, Down = T.empty((64,), dtype), T.empty((64,), dtype)
        Scan = T.empty((12, 64), dtype)
        with T.Kernel(1, threads=64):
            s, scan = T.alloc_shared((12, 64), dtype), T.alloc_shared((12, 64), dtype)
            x = T.alloc_fragment((12, 64), dtype)
            high, low = T.alloc_fragment((12,), dtype), T.alloc_fragment((12,), dtype)
            up, down = T.alloc_fragment((64,), dtype), T.alloc_fragment((64,), dtype)
            T.copy(A, s)
            T.copy(A, x)
            T.reduce_max(x, high, dim=1)
            T.reduce_min(x, low, dim=1)
            T.reduce_max(x, up, dim=0)
            T.reduce_min(x, down, dim=0)
            T.cummax(s, scan, dim=1)
            T.copy(high, High)
            T.copy(low, Low)
            T.copy(up, Up)
            T.copy(down, Down)
            T.copy(scan, Scan)
        return High, Low, Up, Down, Scan

    wide = a.astype(np.float64)
    scan = np.stack([larger(wide[:, : j + 1], None, 1) for j in range(64)], axis=1)
    check = same_bits(
        High=larger(wide, None, 1),
        Low=smaller(wide, None, 1),
        Up=larger(wide, None, 0),
        Down=smaller(wide, None, 0),
        Scan=scan,
    )
    return kernel, {"A": a}, check


@pytest.mark.parametrize("dtype", DTYPES)
def test_elements(dtype):
    check_all(*elements(dtype))


@pytest.mark.parametrize("dtype", DTYPES[:-1])
def test_reductions_and_scans(dtype):
    check_all(*rows(dtype))


@pytest.mark.nvrtc
@pytest.mark.parametrize("make", [elements, rows])
def test_executed_ptx(make):
    kernel, arguments, check = make("float32")
    check(run_native(kernel.program, arguments, "ptx:sm_80"))


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_atomic_updates_reducers_and_warps(dtype):
    a = np.array([[-0.0] * 31 + [0.0], [0.0] * 31 + [-0.0], [-0.0] * 32]).astype(storage(dtype))
    wide = "float64" if dtype == "float64" else "float32"

    @T.prim_func
    def kernel(A: T.Tensor((3, 32), dtype), B: T.Tensor((3, 2), dtype)):
        C = T.empty((3, 2), dtype)
        D = T.empty((3, 2), dtype)
        E = T.empty((3, 2), wide)
        with T.Kernel(3, threads=32) as bx:
            tx = T.get_thread_binding()
            s = T.alloc_shared((2,), dtype)
            high = T.alloc_reducer((1,), dtype, op="max")
            low = T.alloc_reducer((1,), dtype, op="min")
            s[0] = -1
            s[1] = 1
            T.reducer_init(high)
            T.reducer_init(low)
            for i in T.Parallel(32):
                T.atomic_max(B[bx, 0], A[bx, i])
                T.atomic_min(B[bx, 1], A[bx, i])
                T.atomic_max(s[0], A[bx, i])
                T.atomic_min(s[1], A[bx, i])
                T.reducer_update(high[0], A[bx, i])
                T.reducer_update(low[0], A[bx, i])
            T.copy(s, C[bx, 0])
            T.finalize_reducer(high, D[bx, 0:1])
            T.finalize_reducer(low, D[bx, 1:2])
            most = T.warp_reduce_max(T.cast(A[bx, tx], wide))
            least = T.warp_reduce_min(T.cast(A[bx, tx], wide))
            if tx == 0:
                E[bx, 0] = most
                E[bx, 1] = least
        return C, D, E

    ends = np.array([[0.0, -0.0], [0.0, -0.0], [-0.0, -0.0]])
    b = np.array([[-0.0, 0.0]] * 3)
    check = same_bits(B=ends, C=ends, D=ends, E=ends)
    check_all(kernel, {"A": a, "B": b.astype(storage(dtype))}, check)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_maxima_that_keep_nan_and_limits(dtype):
    a = np.array([[-0.0] * 7 + [0.0], [0.0] * 7 + [-0.0]] * 2).astype(storage(dtype))
    a[2:, 3] = NAN

    @T.prim_func
    def kernel(A: T.Tensor((4, 8), dtype)):
        High, Low = T.empty((4,), dtype), T.empty((4,), dtype)
        C = T.empty((4, 8), dtype)
        with T.Kernel(1, threads=32):
            x = T.alloc_fragment((4, 8), dtype)
            high, low = T.alloc_fragment((4,), dtype), T.alloc_fragment((4,), dtype)
            T.copy(A, x)
            T.reduce_max(x, high, dim=1, nan_propagate=True)
            T.reduce_min(x, low, dim=1, nan_propagate=True)
            T.copy(high, High)
            T.copy(low, Low)
            for i, j in T.Parallel(4, 8):
                C[i, j] = T.max(T.min(x[i, j], -0.0), -0.0) if i < 2 else T.clamp(x[i, j], 0.0, 1.0)
        return High, Low, C

    c = np.full((4, 8), -0.0)
    c[2:] = np.where(np.isnan(a[2:]), NAN, 0.0)
    check = same_bits(High=np.array([0, 0, NAN, NAN]), Low=np.array([-0.0, -0.0, NAN, NAN]), C=c)
    check_all(kernel, {"A": a}, check)


@pytest.mark.parametrize("bits", [0x7F800001, 0xFFBFFFFF])
def test_signalling_nan_is_ignored(bits):
    """An instruction that orders zeros returns a signalling NaN: it must not meet one."""
    a = np.array([1, -2, 3, -0.0] * 40, np.float32).reshape(2, 80)
    a.view(np.uint32)[:, ::7] = bits

    @T.prim_func
    def kernel(A: T.Tensor((2, 80), "float32")):
        B, C = T.empty((2,), "float32"), T.empty((2, 80), "float32")
        with T.Kernel(2, threads=32) as bx:
            x, high = T.alloc_fragment((1, 80), "float32"), T.alloc_fragment((1,), "float32")
            T.copy(A[bx, 0], x)
            T.reduce_max(x, high, dim=1)
            B[bx] = high[0]
            for j in T.Parallel(80):
                C[bx, j] = T.max(A[bx, j], 2.5)
        return B, C

    check_all(kernel, {"A": a}, same_bits(B=np.array([3.0, 3.0]), C=np.fmax(a, 2.5).astype(float)))


def test_numbers_known_while_tracing():
    for a, b in ((0.0, -0.0), (-0.0, 0.0)):
        assert not np.signbit(T.max(a, b))
        assert np.signbit(T.min(a, b))
    assert T.max(NAN, 1) == T.max(1, NAN) == T.min(NAN, 1) == T.min(1, NAN) == 1
    assert (T.max(2, 3), T.min(2, 3)) == (3, 2)
