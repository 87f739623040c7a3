"""Elements outside a tile stop a kernel on a processor with their index, buffer and line."""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tests.differential.harness import random_array


def outside(kernel, *arguments):
    """The message of the error that stops a kernel, and the line of the kernel that it names."""
    with pytest.raises(tw.OutOfBoundsError) as caught:
        tw.compile(kernel, target="cpu")(*arguments)
    lines = str(caught.value).splitlines()
    return lines[0], lines[2].split("| ")[1]


def ramp(count, dtype="float32"):
    return np.arange(count).astype(dtype)


@T.prim_func
def scattered(A: T.Tensor((64,), "int32"), B: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=64):
        S = T.alloc_shared((64,), "float32")
        T.clear(S)
        for i in T.Parallel(64):
            S[A[i]] = 1.0
        T.copy(S, B)


@T.prim_func
def shifted(A: T.Tensor((64,), "float32"), n: T.int32, B: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=64):
        S = T.alloc_shared((64,), "float32")
        T.copy(A, S)
        for i in T.Parallel(64):
            B[i] = S[i + n] if i > 3 else -1.0


@T.prim_func
def counted(A: T.Tensor((64,), "int64"), B: T.Tensor((2, 8), "int32")):
    with T.Kernel(1, threads=64):
        S = T.alloc_shared((2, 8), "int32")
        T.clear(S)
        for i in T.Parallel(64):
            T.atomic_add(S[1, A[i]], 1)
        T.copy(S, B)


@T.prim_func
def private(n: T.int32, B: T.Tensor((32,), "int32")):
    with T.Kernel(1, threads=32):
        tx = T.get_thread_binding()
        own = T.alloc_local((4,), "int32")
        for k in T.serial(4):
            own[k] = tx
        own[n + tx // 16] = -1
        B[tx] = own[3]


@T.prim_func
def walked(A: T.Tensor((16,), "int32"), B: T.Tensor((1,), "int32")):
    with T.Kernel(1, threads=32):
        S = T.alloc_shared((16,), "int32")
        T.copy(A, S)
        at = T.alloc_var("int32", init=0)
        while S[at] != 0:
            at = at + S[at]
        B[0] = at


def test_stores_by_indices_from_memory():
    b = np.zeros(64, np.float32)
    tw.compile(scattered, target="cpu")(ramp(64, "int32")[::-1].copy(), b)
    assert (b == 1).all()
    a = ramp(64, "int32")
    a[[40, 50]] = [64, -7]
    message, line = outside(scattered, a, b)
    assert message == "index 64 is out of range for dimension 0 of 'S', which has extent 64"
    assert line == "S[A[i]] = 1.0"


@pytest.mark.parametrize("n", [-4, 0])
def test_loads_that_are_not_made_are_not_checked(n):
    a, b = random_array((64,), "float32"), np.zeros(64, np.float32)
    tw.compile(shifted, target="cpu")(a, n, b)
    np.testing.assert_array_equal(b, np.r_[[-1] * 4, a[4 + n : 64 + n]])


@pytest.mark.parametrize(("n", "index"), [(-5, -1), (5, 64), (2**31 - 1, -(2**31) + 3)])
def test_vectors_stop_at_their_first_lane_outside(n, index):
    message, _ = outside(shifted, ramp(64), n, np.zeros(64, np.float32))
    assert message == f"index {index} is out of range for dimension 0 of 'S', which has extent 64"


def test_atomic_updates_of_a_row():
    a, b = ramp(64, "int64") % 8, np.zeros((2, 8), np.int32)
    tw.compile(counted, target="cpu")(a, b)
    np.testing.assert_array_equal(b, [[0] * 8, [8] * 8])
    a[9] = 1 << 40
    message, line = outside(counted, a, b)
    assert message == f"index {1 << 40} is out of range for dimension 1 of 'S', which has extent 8"
    assert line == "T.atomic_add(S[1, A[i]], 1)"


def test_memory_of_single_threads():
    b = np.zeros(32, np.int32)
    tw.compile(private, target="cpu")(2, b)
    np.testing.assert_array_equal(b, np.r_[0:16, [-1] * 16])
    message, line = outside(private, 3, b)
    assert message == "index 4 is out of range for dimension 0 of 'own', which has extent 4"
    assert line == "own[n + tx // 16] = -1"


def test_conditions_of_loops():
    a, b = np.ones(16, np.int32), np.zeros(1, np.int32)
    a[11] = 0
    tw.compile(walked, target="cpu")(a, b)
    assert b[0] == 11
    a[11] = 1
    message, _ = outside(walked, a, b)
    assert message == "index 16 is out of range for dimension 0 of 'S', which has extent 16"


def test_the_simulator_finds_them_too():
    a = ramp(64, "int32")
    a[40] = 64
    kernel = tw.compile(scattered, target="cpu")
    with pytest.raises(tw.OutOfBoundsError, match=r"'S\[64\]' is outside 'S' of shape \(64\)"):
        kernel.simulate(a, np.zeros(64, np.float32), stage="tile")


def test_kernels_go_on_after_an_error():
    kernel = tw.compile(scattered, target="cpu")
    b = np.zeros(64, np.float32)
    for _ in range(3):
        with pytest.raises(tw.OutOfBoundsError):
            kernel(np.full(64, 99, np.int32), b)
        kernel(ramp(64, "int32"), b)
        assert (b == 1).all()
