"""Data that threads exchange around memory barriers: a wait orders what came before arrivals."""

import numpy as np
import pytest

import tileworkbench.language as T
from tests.differential.harness import check_everywhere, check_on_threads, equals, run_native
from tileworkbench.compiler.device.nvidia.nvrtc import missing_nvrtc
from tileworkbench.compiler.driver import lower_program, resolve_target
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.simt import Barrier

X = np.arange(64, dtype=np.int32)


def barriers(kernel):
    """How many barriers of all threads the compiler has put, without the one behind the
    initialisation of memory barriers.
    """
    lowered = lower_program(kernel.program, resolve_target("sim:sm_80"))[-1].program
    return sum(isinstance(stmt, Barrier) for stmt in statements(lowered.body)) - 1


def check(kernel, arguments, expected):
    """Right and without a race on tiles, on a CPU, on simulated threads, and from the PTX."""
    check_everywhere(kernel, arguments, equals(B=expected), ("native",))
    check_on_threads(kernel, arguments, equals(B=expected))
    if missing_nvrtc() is None:
        equals(B=expected)(run_native(kernel.program, arguments, "ptx:sm_80"))


# What each thread does in turn, and how many barriers it takes beside the memory barrier.
ORDERS = {
    "write arrive wait read": 0,
    "write arrive again wait read": 0,
    "arrive write wait read": 1,
    "arrive wait write read": 1,
    "write arrive read wait": 1,
    "write arrive wait read arrive wait write": 0,
    "write arrive wait read arrive write wait": 1,
    "write arrive wait arrive read wait write": 1,
    "write arrive wait arrive read write wait read": 2,
}


@pytest.mark.parametrize("order", ORDERS)
def test_an_access_an_arrival_and_a_wait(order):
    @T.prim_func
    def kernel(A: T.Tensor((64,), "int32"), B: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64) as bx:
            tx = T.get_thread_binding()
            S = T.alloc_shared((64,), "int32")
            bars = T.alloc_barrier([64])
            v = T.alloc_var("int32", init=1)
            parity = 0
            for step in order.split():
                if step == "write":
                    S[tx] = A[tx] * v
                elif step == "read":
                    v = v + S[63 - tx]
                elif step == "again":
                    A[tx] = A[tx] + 1
                elif step == "arrive":
                    T.barrier_arrive(bars[0])
                else:
                    T.barrier_wait(bars[0], parity)
                    parity = 1 - parity
            B[tx] = v

    a, v, shared = X.copy(), np.ones(64, np.int32), X
    for step in order.split():
        if step == "write":
            shared = a * v
        elif step == "read":
            v = v + shared[::-1]
        elif step == "again":
            a = a + 1
    check(kernel, {"A": X, "B": np.zeros(64, np.int32)}, v)
    assert barriers(kernel) == ORDERS[order]


def test_each_iteration_waits_for_its_own_arrival():
    @T.prim_func
    def kernel(A: T.Tensor((5, 64), "int32"), B: T.Tensor((5, 64), "int32"), n: T.int32):
        with T.Kernel(1, threads=64) as bx:
            tx = T.get_thread_binding()
            S = T.alloc_shared((2, 64), "int32")
            full = T.alloc_barrier([64, 64])
            for k in T.serial(n):
                S[k % 2, tx] = A[k, tx]
                T.barrier_arrive(full[k % 2])
                T.barrier_wait(full[k % 2], k // 2 % 2)
                B[k, tx] = S[k % 2, 63 - tx]

    a = np.arange(320, dtype=np.int32).reshape(5, 64)
    check(kernel, {"A": a, "B": np.zeros_like(a), "n": 5}, a[:, ::-1])


def test_an_arrival_of_some_threads_orders_what_they_did():
    """Half of the threads write and arrive; the others, and their own reads, come after."""

    @T.prim_func
    def kernel(A: T.Tensor((64,), "int32"), B: T.Tensor((128,), "int32")):
        with T.Kernel(1, threads=128) as bx:
            tx = T.get_thread_binding()
            S = T.alloc_shared((64,), "int32")
            bars = T.alloc_barrier([64])
            if tx < 64:
                S[tx] = A[tx]
                T.barrier_arrive(bars[0])
            T.barrier_wait(bars[0], 0)
            B[tx] = S[(127 - tx) % 64]

    expected = np.concatenate([X[::-1], X[::-1]])
    check(kernel, {"A": X, "B": np.zeros(128, np.int32)}, expected)
    assert barriers(kernel) == 0


@pytest.mark.parametrize("count", [1, 2])
def test_an_arrival_of_one_thread_does_not_speak_for_others(count):
    @T.prim_func
    def kernel(A: T.Tensor((64,), "int32"), B: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64) as bx:
            tx = T.get_thread_binding()
            S = T.alloc_shared((64,), "int32")
            bars = T.alloc_barrier([count])
            S[tx] = A[tx]
            if tx % (64 // count) == 0:
                T.barrier_arrive(bars[0])
            T.barrier_wait(bars[0], 0)
            B[tx] = S[63 - tx]

    check(kernel, {"A": X, "B": np.zeros(64, np.int32)}, X[::-1])
    assert barriers(kernel) == 1


def test_a_wait_at_another_barrier_orders_nothing():
    @T.prim_func
    def kernel(A: T.Tensor((64,), "int32"), B: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64) as bx:
            tx = T.get_thread_binding()
            S = T.alloc_shared((64,), "int32")
            bars = T.alloc_barrier([64, 64])
            T.barrier_arrive(bars[1])
            S[tx] = A[tx]
            T.barrier_arrive(bars[0])
            T.barrier_wait(bars[1], 0)
            B[tx] = S[63 - tx]
            T.barrier_wait(bars[0], 0)

    check(kernel, {"A": X, "B": np.zeros(64, np.int32)}, X[::-1])
    assert barriers(kernel) == 1


def test_a_wait_under_a_condition_is_not_surely_there():
    @T.prim_func
    def kernel(A: T.Tensor((64,), "int32"), B: T.Tensor((64,), "int32"), waits: T.int32):
        with T.Kernel(1, threads=64) as bx:
            tx = T.get_thread_binding()
            S = T.alloc_shared((64,), "int32")
            bars = T.alloc_barrier([64])
            S[tx] = A[tx]
            T.barrier_arrive(bars[0])
            if waits == 1:
                T.barrier_wait(bars[0], 0)
            B[tx] = S[63 - tx]

    for waits in (0, 1):
        check(kernel, {"A": X, "B": np.zeros(64, np.int32), "waits": waits}, X[::-1])


def test_roles_that_wait_for_each_other_exchange_data_of_their_own():
    """Before the roles, and within one of them."""

    @T.prim_func
    def kernel(A: T.Tensor((128,), "int32"), B: T.Tensor((128,), "int32")):
        with T.Kernel(1, threads=128) as bx:
            tx = T.get_thread_binding()
            S = T.alloc_shared((128,), "int32")
            R = T.alloc_shared((64,), "int32")
            bars = T.alloc_barrier([64])
            S[tx] = A[tx]
            if tx < 64:
                R[tx] = S[127 - tx]
                T.barrier_arrive(bars[0])
                B[tx] = S[tx] + R[63 - tx]
            else:
                T.barrier_wait(bars[0], 0)
                S[tx] = R[127 - tx]
                B[tx] = S[191 - tx]

    a = np.arange(128, dtype=np.int32)
    swapped = a[:63:-1]  # what the first role has put into R
    expected = np.concatenate([a[:64] + swapped[::-1], swapped])
    check(kernel, {"A": a, "B": np.zeros(128, np.int32)}, expected)


@pytest.mark.parametrize("bound", ["known", "argument"])
@pytest.mark.parametrize("distance", [1, 2, 3])
def test_data_of_earlier_iterations_in_a_ring(distance, bound):
    @T.prim_func
    def kernel(A: T.Tensor((8, 64), "int32"), B: T.Tensor((8, 64), "int32"), n: T.int32):
        with T.Kernel(1, threads=64) as bx:
            tx = T.get_thread_binding()
            S = T.alloc_shared((4, 64), "int32")
            for i in T.serial(4):
                S[i, tx] = 0
            for k in T.serial(8 if bound == "known" else n):
                S[k % 4, tx] = A[k, tx]
                B[k, tx] = S[(k + 4 - distance) % 4, 63 - tx]

    a = np.arange(512, dtype=np.int32).reshape(8, 64)
    expected = np.zeros_like(a)
    expected[distance:] = a[: 8 - distance, ::-1]
    check(kernel, {"A": a, "B": np.zeros_like(a), "n": 8}, expected)


def test_data_of_earlier_iterations_in_rows():
    @T.prim_func
    def kernel(A: T.Tensor((8, 64), "int32"), B: T.Tensor((8, 64), "int32"), n: T.int32):
        with T.Kernel(1, threads=64) as bx:
            tx = T.get_thread_binding()
            S = T.alloc_shared((11, 64), "int32")
            for i in T.serial(11):
                S[i, tx] = 0
            for k in T.serial(n):
                S[k + 3, tx] = A[k, tx]
                B[k, tx] = S[k, 63 - tx]

    a = np.arange(512, dtype=np.int32).reshape(8, 64)
    expected = np.zeros_like(a)
    expected[3:] = a[:5, ::-1]
    check(kernel, {"A": a, "B": np.zeros_like(a), "n": 8}, expected)


@pytest.mark.parametrize("form", ["branch", "loop"])
def test_a_barrier_that_may_not_be_reached_orders_nothing(form):
    @T.prim_func
    def kernel(A: T.Tensor((64,), "int32"), B: T.Tensor((64,), "int32"), n: T.int32):
        with T.Kernel(1, threads=64) as bx:
            tx = T.get_thread_binding()
            S = T.alloc_shared((64,), "int32")
            S[tx] = A[tx]
            if form == "branch":
                if n > 0:
                    T.sync_threads()
            else:
                for _ in T.serial(n):
                    T.sync_threads()
            B[tx] = S[63 - tx]

    for n in (0, 1):
        check(kernel, {"A": X, "B": np.zeros(64, np.int32), "n": n}, X[::-1])
