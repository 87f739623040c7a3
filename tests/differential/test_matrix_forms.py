"""Products of sparse and of scaled operands, against dense references."""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

import ml_dtypes
import numpy as np
import pytest

import tileworkbench.language as T
from tests.differential.harness import check_everywhere, equals, storage
from tests.tolerances import assert_contraction


def compress(dense, item):
    """The stored elements of a 2:4 sparse matrix and their positions."""
    rows, columns = dense.shape
    groups = dense.reshape(rows, columns // 4, 4)
    positions = np.sort(np.argsort(groups == 0, axis=-1, kind="stable")[..., :2], axis=-1)
    kept = np.take_along_axis(groups, positions, axis=-1).reshape(rows, columns // 2)
    codes = (positions[..., 0] | positions[..., 1] << 2).astype(np.uint64)
    per = np.dtype(item).itemsize * 2
    codes = codes.reshape(rows, -1, per) << (4 * np.arange(per, dtype=np.uint64))
    return kept, codes.sum(-1).astype(f"uint{8 * np.dtype(item).itemsize}").view(item)


def sparse_matrix(shape, dtype, rng):
    dense = rng.integers(-4, 5, shape).astype(np.float32)
    order = rng.random((shape[0], shape[1] // 4, 4)).argsort(-1)
    return np.where(order.reshape(shape) < 2, dense, 0).astype(storage(dtype))


@pytest.mark.parametrize(
    ("dtype", "item", "transposed"),
    [("float16", "int16", False), ("int8", "int32", False), ("bfloat16", "uint8", True)],
)
def test_two_of_four(dtype, item, transposed):
    rng = np.random.default_rng(5)
    m, n, k = 32, 32, 64
    dense = sparse_matrix((m, k), dtype, rng)
    a, e = compress(dense, item)
    b = rng.integers(-4, 5, (k, n)).astype(storage(dtype))
    total = "int32" if "int" in dtype else "float32"
    if transposed:
        a, e = np.ascontiguousarray(a.T), np.ascontiguousarray(e.T)

    @T.prim_func
    def kernel(A: T.Tensor(a.shape, dtype), E: T.Tensor(e.shape, item), B: T.Tensor((k, n), dtype)):
        C = T.empty((m, n), total)
        with T.Kernel(1, threads=128):
            X = T.alloc_shared(a.shape, dtype)
            Y = T.alloc_shared((k, n), dtype)
            S = T.alloc_shared(e.shape, item)
            acc = T.alloc_fragment((m, n), total)
            T.fill(acc, 3)
            T.copy(A, X)
            T.copy(B, Y)
            T.copy(E, S)
            for step in T.serial(2):
                T.gemm_sp(
                    X, S, Y, acc, transpose_A=transposed, transpose_E=transposed,
                    clear_accum=step == 0,
                )  # fmt: skip
            T.copy(acc, C)
        return C

    exact = dense.astype(np.float64) @ b.astype(np.float64) * 2
    check_everywhere(kernel, {"A": a, "E": e, "B": b}, equals(C=exact.astype(total)))


def test_one_of_two():
    rng = np.random.default_rng(6)
    dense = rng.integers(-4, 5, (16, 64)).astype(np.float32)
    second = rng.random((16, 32)) < 0.5
    pairs = dense.reshape(16, 32, 2)
    pairs[second, 0], pairs[~second, 1] = 0, 0
    a = np.where(second, pairs[..., 1], pairs[..., 0])
    codes = np.where(second, 0b1110, 0b0100).reshape(16, 4, 8).astype(np.uint32)
    e = (codes << (4 * np.arange(8, dtype=np.uint32))).sum(-1, dtype=np.uint32)
    b = rng.integers(-4, 5, (16, 64)).astype(np.float32)

    @T.prim_func
    def kernel(
        A: T.Tensor((16, 32), "float32"), E: T.Tensor((16, 4), "uint32"),
        B: T.Tensor((16, 64), "float32"),
    ):  # fmt: skip
        C = T.empty((16, 16), "float32")
        with T.Kernel(1, threads=32):
            X = T.alloc_fragment((16, 32), "float32")
            Y = T.alloc_shared((16, 64), "float32")
            S = T.alloc_shared((16, 4), "uint32")
            acc = T.alloc_fragment((16, 16), "float32")
            T.copy(A, X)
            T.copy(B, Y)
            T.copy(E, S)
            T.gemm_sp(X, S, Y, acc, transpose_B=True, clear_accum=True)
            T.copy(acc, C)
        return C

    check_everywhere(kernel, {"A": a, "E": e, "B": b}, equals(C=dense @ b.T))


def test_scales_of_blocks():
    rng = np.random.default_rng(7)
    m, n, k, step = 32, 16, 128, 64
    a, b = (rng.integers(-4, 5, (r, k)).astype(ml_dtypes.float8_e4m3fn) for r in (m, n))
    exponents = rng.integers(124, 130, (m, 4)).astype(np.uint8)
    words = exponents.view(np.uint32)[:, 0].copy()
    scales = rng.integers(1, 5, (n, 8)).astype(np.float32)

    @T.prim_func
    def kernel(
        A: T.Tensor((m, k), "float8_e4m3fn"), B: T.Tensor((n, k), "float8_e4m3fn"),
        U: T.Tensor((m,), "uint32"), V: T.Tensor((n, 8), "float32"),
    ):  # fmt: skip
        C = T.empty((m, n), "float32")
        with T.Kernel(1, threads=128):
            X = T.alloc_shared((m, step), "float8_e4m3fn")
            Y = T.alloc_shared((n, step), "float8_e4m3fn")
            SX = T.alloc_shared((m,), "uint32")
            SY = T.alloc_shared((n, 8), "float32")
            acc = T.alloc_fragment((m, n), "float32")
            T.clear(acc)
            T.copy(U, SX)
            T.copy(V, SY)
            for s in T.serial(k // step):
                T.copy(A[0, s * step], X)
                T.copy(B[0, s * step], Y)
                T.gemm_blockscaled(
                    X, Y, acc, SX, SY, transpose_B=True, k_start=s * step,
                    sf_a_granularity_k=32, sf_b_granularity_k=16,
                )  # fmt: skip
            T.copy(acc, C)
        return C

    left = a.astype(np.float32) * np.repeat(2.0 ** (exponents.astype(np.float32) - 127), 32, 1)
    right = b.astype(np.float32) * np.repeat(scales, 16, 1)
    check = lambda arrays: assert_contraction(arrays["C"], left, right.T)  # noqa: E731
    check_everywhere(kernel, {"A": a, "B": b, "U": words, "V": scales}, check)


def test_four_bit_floats_with_scales():
    rng = np.random.default_rng(8)
    m, n, k = 16, 16, 64
    a, b = (rng.integers(0, 256, (r, k // 2)).astype(np.uint8) for r in (m, n))
    u = rng.integers(1, 9, (m, 4)).astype(ml_dtypes.float8_e4m3fn)
    v = np.array(rng.integers(126, 130, (n, 4)), np.uint8).view(ml_dtypes.float8_e8m0fnu)

    @T.prim_func
    def kernel(
        A: T.Tensor((m, k), "float4_e2m1fn"), B: T.Tensor((n, k), "float4_e2m1fn"),
        U: T.Tensor((m, 4), "float8_e4m3fn"), V: T.Tensor((n, 4), "float8_e8m0fnu"),
    ):  # fmt: skip
        C = T.empty((m, n), "float32")
        with T.Kernel(1, threads=32):
            X = T.alloc_shared((m, k), "float4_e2m1fn")
            Y = T.alloc_shared((n, k), "float4_e2m1fn")
            SX = T.alloc_shared((m, 4), "float8_e4m3fn")
            SY = T.alloc_shared((n, 4), "float8_e8m0fnu")
            acc = T.alloc_fragment((m, n), "float32")
            T.copy(A, X)
            T.copy(B, Y)
            T.copy(U, SX)
            T.copy(V, SY)
            T.mma_gemm_blockscaled(
                X, Y, acc, SX, SY, transpose_B=True, clear_accum=True, k_start=0,
                sf_a_granularity_k=16, sf_b_granularity_k=16,
            )  # fmt: skip
            T.copy(acc, C)
        return C

    def unpacked(packed):
        halves = np.stack([packed & 15, packed >> 4], -1).reshape(len(packed), -1)
        return halves.view(ml_dtypes.float4_e2m1fn).astype(np.float32)

    left = unpacked(a) * np.repeat(u.astype(np.float32), 16, 1)
    right = unpacked(b) * np.repeat(v.astype(np.float32), 16, 1)
    check = lambda arrays: assert_contraction(arrays["C"], left, right.T)  # noqa: E731
    check_everywhere(kernel, {"A": a, "B": b, "U": u, "V": v}, check)
