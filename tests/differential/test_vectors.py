"""Vector values: loads and stores of several elements at once."""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

import numpy as np
import pytest

import tileworkbench.language as T
from tests.differential.harness import check_everywhere, equals, random_array


def test_ramps_and_broadcasts():
    a = random_array((4, 64), "float32")

    @T.prim_func
    def kernel(A: T.Tensor((4, 64), "float32")):
        B = T.empty((4, 64), "float32")
        C = T.empty((4, 64), "int32")
        with T.Kernel(4, threads=32) as bx:
            S = T.alloc_shared((64,), "float32")
            S[0:32] = T.Broadcast(A[bx, 5], 32)
            S[T.Ramp(63, -1, 32)] = A[bx, T.Ramp(0, 2, 32)] * 2 + T.Broadcast(1, 32)
            T.copy(S, B[bx, 0:64])
            for i in T.Parallel(8):
                C[bx, i * 8 : i * 8 + 8] = T.Ramp(i, 3, 8) - A[bx, T.Ramp(i, 1, 8)].astype("int32")
        return B, C

    b = np.repeat(a[:, 5:6], 64, axis=1)
    b[:, 63:31:-1] = a[:, 0:64:2] * 2 + 1
    i, k = np.arange(8)[:, None], np.arange(8)
    c = (i + 3 * k - a[:, i + k].astype(np.int32)).reshape(4, 64).astype(np.int32)
    check_everywhere(kernel, {"A": a}, equals(B=b, C=c))


def test_a_named_vector_keeps_its_value():
    a = random_array((16,), "float32")

    @T.prim_func
    def kernel(A: T.Tensor((16,), "float32")):
        B = T.empty((16,), "float32")
        with T.Kernel(1, threads=32) as bx:
            S = T.alloc_shared((16,), "float32")
            T.copy(A, S)
            before = S[T.Ramp(0, 1, 16)]
            S[0:16] = T.Broadcast(0.0, 16)
            S[0:8] = T.Broadcast(1.0, 8)
            for i in T.Parallel(2):
                half = A[T.Ramp(i * 8, 1, 8)] + 1
                S[i * 8 : i * 8 + 8] = half * half
            B[0:16] = before - S[T.Ramp(15, -1, 16)]
        return B

    check_everywhere(kernel, {"A": a}, equals(B=a - ((a + 1) * (a + 1))[::-1]))


def test_lanes_outside_a_tensor_are_masked():
    a = random_array((10,), "int32")

    @T.prim_func
    def kernel(A: T.Tensor((10,), "int32"), B: T.Tensor((10,), "int32")):
        with T.Kernel(2, threads=32) as bx:
            B[T.Ramp(bx * 8, 1, 8)] = A[T.Ramp(bx * 8 + 4, 1, 8)]

    expected = np.append(a[4:], np.zeros(4, np.int32))
    check_everywhere(kernel, {"A": a, "B": np.ones(10, np.int32)}, equals(B=expected))


def test_vectors_from_scalars():
    a, b = random_array((32,), "float16"), random_array((32,), "float16", seed=1)

    @T.prim_func
    def kernel(A: T.Tensor((32,), "float16"), B: T.Tensor((32,), "float16")):
        C = T.empty((7, 32), "float16")
        D = T.empty((32,), "int32")
        with T.Kernel(1, threads=32):
            for i in T.Parallel(16):
                x, y = T.float16x2(A[2 * i], A[2 * i + 1]), B[T.Ramp(2 * i, 1, 2)]
                C[0, 2 * i : 2 * i + 2] = T.add2(x, y)
                C[1, 2 * i : 2 * i + 2] = T.sub2(x, y)
                C[2, 2 * i : 2 * i + 2] = T.mul2(x, y)
                C[3, 2 * i : 2 * i + 2] = T.fma2(x, y, T.float16x2(1.5))
                C[4, 2 * i : 2 * i + 2] = T.max2(x, y)
                C[5, 2 * i : 2 * i + 2] = T.min2(T.abs2(x), T.abs2(y))
                C[6, 2 * i : 2 * i + 2] = T.Shuffle([x, -y], [3, 0])
                D[2 * i : 2 * i + 2] = T.int32x2(x * 10 + y[1])
        return C, D

    def halves(values):
        return np.asarray(values, np.float32).astype(np.float16)

    x, y = a.astype(np.float32), b.astype(np.float32)
    swapped = np.stack([-b[1::2], a[0::2]], -1).reshape(-1)
    exact = a.astype(np.float64) * b.astype(np.float64) + 1.5
    c = [halves(x + y), halves(x - y), halves(x * y), exact.astype(np.float16)]
    c += [np.maximum(a, b), np.minimum(abs(a), abs(b)), swapped]
    d = halves(halves(x * 10).astype(np.float32) + np.repeat(y[1::2], 2)).astype(np.int32)
    check_everywhere(kernel, {"A": a, "B": b}, equals(C=np.array(c), D=d))


def test_accesses_of_several_bytes():
    a, h = random_array((64,), "float32"), random_array((64,), "float16")

    @T.prim_func
    def kernel(A: T.Tensor((64,), "float32"), H: T.Tensor((64,), "float16"), n: T.int32):
        B = T.empty((64,), "float32")
        U = T.empty((32,), "uint32")
        with T.Kernel(4, threads=32) as bx:
            S = T.alloc_shared((16,), "float16")
            for i in T.Parallel(4):
                B[bx * 16 + i * 4] = 0.0
                T.stg128(B[bx * 16 + i * 4], T.ldg128(A[bx * 16 + i * 4]))
            for i in T.Parallel(8):
                word = T.ldg32(H[bx * 16 + 2 * i], i != 3)
                T.sts32(S[2 * i], word)
                U[bx * 8 + i] = word
            for i in T.Parallel(2):
                T.stg64(H[bx * 16 + 4 * i], T.lds64(S[4 * i]), i < n)
                pair = T.reinterpret(T.lds128(S[8 * i]), "float16x8")
                T.stg256(B[bx * 16 + 8 * i], T.float32x8(pair) + T.ldg32(A[i]))
        return B, U

    u = h.view(np.uint32).copy()
    u[3::8] = 0
    s = u.view(np.float16)
    out = h.reshape(4, 4, 4).copy()
    out[:, 0] = s.reshape(4, 4, 4)[:, 0]
    first = a[:2].view(np.uint32).astype(np.float32)
    b = (s.astype(np.float32).reshape(4, 2, 8) + first[:, None]).reshape(-1)
    arguments = {"A": a, "H": h, "n": 1}
    check_everywhere(kernel, arguments, equals(H=out.reshape(-1), U=u, B=b))


def test_negative_indices_count_from_the_end():
    a = random_array((8,), "int32")

    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32"), B: T.Tensor((3, 4), "int32"), n: T.int32):
        with T.Kernel(1, threads=32):
            B[0, 0:4] = A[T.Ramp(-1, -2, 4)]
            B[1, 0:4] = A[T.Ramp(n, 1, 4)]
            B[2, T.Ramp(-4, 1, 4)] = A[T.Ramp(n + 2, 2, 4)]

    b = np.array([a[[7, 5, 3, 1]], a[[6, 7, 0, 1]], a[[0, 2, 4, 6]]])
    arguments = {"A": a, "B": np.zeros((3, 4), np.int32), "n": -2}
    check_everywhere(kernel, arguments, equals(B=b))


def test_a_vector_is_read_before_it_is_written():
    a = random_array((16,), "float32")

    @T.prim_func
    def kernel(A: T.Tensor((16,), "float32")):
        with T.Kernel(1, threads=1):
            A[0:15] = A[T.Ramp(1, 1, 15)]

    expected = np.append(a[1:], a[15])
    check_everywhere(kernel, {"A": a}, equals(A=expected))


def test_dot_products_of_four_bytes():
    a, b = random_array((8, 4), "int8"), random_array((8, 4), "int8", seed=1)

    @T.prim_func
    def kernel(A: T.Tensor((8, 4), "int8"), B: T.Tensor((8, 4), "int8")):
        C = T.empty((8,), "int32")
        E = T.empty((8,), "float32")
        with T.Kernel(1, threads=32):
            total = T.alloc_fragment((8,), "int32")
            for i in T.Parallel(8):
                total[i] = i
                T.dp4a(A[i, 0], B[i, 0], total[i])
                C[i] = total[i]
                E[i] = T.call_intrin("float32", "tir.floor", A[i, 0] / 4.0)
        return C, E

    c = np.arange(8) + (a.astype(np.int32) * b).sum(1)
    e = np.floor(a[:, 0] / np.float32(4)).astype(np.float32)
    check_everywhere(kernel, {"A": a, "B": b}, equals(C=c.astype(np.int32), E=e))


@pytest.mark.parametrize("alloc", [T.alloc_local, T.alloc_shared])
def test_tiles_of_vectors(alloc):
    a = random_array((4, 16), "float16")

    @T.prim_func
    def kernel(A: T.Tensor((4, 16), "float16")):
        B = T.empty((4, 16), "float16")
        C = T.empty((4, 2, 8), "float16")
        with T.Kernel(4, threads=1) as bx:
            X = alloc((2, 4), "float16x2")
            for i, j in T.grid(2, 4):
                X[i, j] = A[bx, T.Ramp(i * 8 + j * 2, 1, 2)]
            X[0, 1] += T.float16x2(1.0, 2.0)
            X[1, 3] = 5.0
            for i, j in T.grid(2, 4):
                B[bx, i * 8 + j * 2 : i * 8 + j * 2 + 2] = T.max2(X[i, j], -X[i, j])
            T.copy(T.reshape(X, (2, 8)), C[bx, 0:2, 0:8])
        return B, C

    x = a.copy()
    x[:, 2:4] += np.array([1, 2], np.float16)
    x[:, 14:] = 5
    check_everywhere(kernel, {"A": a}, equals(B=np.abs(x), C=x.reshape(4, 2, 8)))


def test_slices_stored_as_vectors():
    a = random_array((4, 16), "float32")

    @T.prim_func
    def kernel(A: T.Tensor((4, 16), "float32"), n: T.int32):
        B = T.empty((4, 8), "float16")
        with T.Kernel(1, threads=1):
            S = T.alloc_shared((16,), "float32")
            S[0:16] = A[1, :]
            B[0, 0:4] = A[n, n : n + 4]
            B[0, 4:8] = A[2, 13 + n : 17 + n]
            B[1, :] = S[8:16]
            S[0:8] = S[4:12]
            B[2, :] = S[0:8]
            B[3, 0:1] = A[3, 2:3]
            B[3, 1:8] = T.Broadcast(0.5, 7)
        return B

    expected = np.full((4, 8), 0.5, np.float16)
    expected[0] = np.concatenate([a[2, 2:6], a[2, 15:], np.zeros(3)])
    expected[1], expected[2], expected[3, 0] = a[1, 8:], a[1, 4:12], a[3, 2]
    check_everywhere(kernel, {"A": a, "n": 2}, equals(B=expected))
