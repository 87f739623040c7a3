"""Vector values: loads and stores of several elements at once."""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

import numpy as np

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
