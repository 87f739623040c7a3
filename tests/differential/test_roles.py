"""Threads that wait for each other: roles, memory barriers, named barriers, deadlocks."""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tests.capability import require
from tests.differential.harness import (
    check_everywhere,
    check_executors,
    check_on_threads,
    equals,
    random_array,
    run_native,
)
from tests.differential.test_threads import SMALL, close
from tileworkbench.compiler.device.nvidia.nvrtc import missing_nvrtc
from tileworkbench.compiler.diagnostics import DeadlockError
from tileworkbench.compiler.driver import lower_program, resolve_target
from tileworkbench.compiler.sim import simulate


@pytest.mark.parametrize("consumer_first", [False, True])
def test_a_producer_and_a_consumer_of_tiles(consumer_first):
    @T.macro
    def produce(A, B, A_shared, B_shared, loaded, used):
        with T.ws(1):
            for k in range(8):
                T.mbarrier_wait_parity(used[k % 2], (k // 2) % 2 ^ 1)
                T.tma_copy(A[:, k * 16 : k * 16 + 16], A_shared[k % 2, :, :], barrier=loaded[k % 2])
                T.tma_copy(B[k * 16 : k * 16 + 16, :], B_shared[k % 2, :, :], barrier=loaded[k % 2])
                T.mbarrier_arrive(loaded[k % 2])

    @T.macro
    def consume(A_shared, B_shared, acc, loaded, used, C):
        with T.ws(0):
            T.clear(acc)
            for k in range(8):
                T.mbarrier_wait_parity(loaded[k % 2], (k // 2) % 2)
                T.gemm(A_shared[k % 2, :, :], B_shared[k % 2, :, :], acc)
                T.mbarrier_arrive(used[k % 2])
            T.copy(acc, C)

    @T.prim_func
    def kernel(
        A: T.Tensor((32, 128), "float32"),
        B: T.Tensor((128, 32), "float32"),
        C: T.Tensor((32, 32), "float32"),
    ):
        with T.Kernel(1, threads=256) as bx:
            A_shared = T.alloc_shared((2, 32, 16), "float32")
            B_shared = T.alloc_shared((2, 16, 32), "float32")
            acc = T.alloc_fragment((32, 32), "float32")
            loaded = T.alloc_barrier([128, 128])
            used = T.alloc_barrier([128, 128])
            if consumer_first:
                consume(A_shared, B_shared, acc, loaded, used, C)
                produce(A, B, A_shared, B_shared, loaded, used)
            else:
                produce(A, B, A_shared, B_shared, loaded, used)
                consume(A_shared, B_shared, acc, loaded, used, C)

    a, b = random_array((32, 128), "float32"), random_array((128, 32), "float32")
    arguments = {"A": a, "B": b, "C": np.zeros((32, 32), np.float32)}
    check_everywhere(kernel, arguments, close(C=a.astype(np.float64) @ b))


@pytest.mark.parametrize("between", ["store", "tile", "nothing"])
def test_code_of_all_threads_between_roles_that_wait_for_each_other(between):
    """No barrier of the block stands there: the first role never gets past it."""
    a = random_array((8, 64), "float32")

    @T.prim_func
    def kernel(
        A: T.Tensor((8, 64), "float32"),
        B: T.Tensor((8, 64), "float32"),
        C: T.Tensor((256,), "int32"),
    ):
        with T.Kernel(1, threads=256):
            tx = T.get_thread_binding()
            S = T.alloc_shared((2, 64), "float32")
            other = T.alloc_shared((256,), "int32")
            loaded = T.alloc_barrier([128, 128])
            used = T.alloc_barrier([128, 128])
            with T.ws(1):
                for k in range(8):
                    T.mbarrier_wait_parity(used[k % 2], (k // 2) % 2 ^ 1)
                    T.copy(A[k, :], S[k % 2, :])
                    T.mbarrier_arrive(loaded[k % 2])
            if between == "store":
                C[tx] = tx
            elif between == "tile":
                other[tx] = tx
                C[tx] = other[tx]
            with T.ws(0):
                for k in range(8):
                    T.mbarrier_wait_parity(loaded[k % 2], (k // 2) % 2)
                    T.copy(S[k % 2, :], B[k, :])
                    T.mbarrier_arrive(used[k % 2])

    numbers = np.arange(256, dtype=np.int32) * (between != "nothing")
    arguments = {"A": a, "B": np.zeros_like(a), "C": np.zeros(256, np.int32)}
    check_executors(kernel, arguments, equals(B=a, C=numbers))


@pytest.mark.parametrize(("stages", "order"), [(1, (0, 1, 2)), (2, (2, 1, 0)), (3, (1, 2, 0))])
def test_a_chain_of_three_roles(stages, order):
    steps = 7

    @T.macro
    def load(A, S, filled, taken):
        with T.ws(0):
            for k in range(steps):
                T.mbarrier_wait_parity(taken[k % stages], (k // stages) % 2 ^ 1)
                T.copy(A[k, :], S[k % stages, :])
                T.mbarrier_arrive(filled[k % stages])

    @T.macro
    def change(S, R, filled, taken, ready, free):
        with T.ws(1):
            tx = T.get_thread_binding() - 128
            best = T.alloc_var("int32", init=0)
            for k in range(steps):
                T.mbarrier_wait_parity(filled[k % stages], (k // stages) % 2)
                if tx < 64:
                    best = T.max(best, S[k % stages, tx])
                T.sync_threads(1, 128)
                if tx == 0:
                    T.mbarrier_arrive(taken[k % stages])
                T.mbarrier_wait_parity(free, k % 2 ^ 1)
                if tx < 64:
                    R[63 - tx] = best
                T.mbarrier_arrive(ready)

    @T.macro
    def write(R, B, ready, free):
        with T.ws(2):
            for k in range(steps):
                T.mbarrier_wait_parity(ready, k % 2)
                T.copy(R, B[k, :])
                T.mbarrier_arrive(free)

    @T.prim_func
    def kernel(A: T.Tensor((7, 64), "int32"), B: T.Tensor((7, 64), "int32")):
        with T.Kernel(1, threads=384) as bx:
            S = T.alloc_shared((stages, 64), "int32")
            R = T.alloc_shared((64,), "int32")
            filled = T.alloc_barrier([128] * stages)
            taken = T.alloc_barrier([1] * stages)
            ready = T.alloc_barrier(128)
            free = T.alloc_barrier(128)
            for role in order:
                if role == 0:
                    load(A, S, filled, taken)
                elif role == 1:
                    change(S, R, filled, taken, ready, free)
                else:
                    write(R, B, ready, free)

    a = SMALL[:448].reshape(7, 64).copy()
    expected = np.maximum(np.maximum.accumulate(a, 0), 0)[:, ::-1].astype(np.int32)
    check_everywhere(kernel, {"A": a, "B": np.zeros((7, 64), np.int32)}, equals(B=expected))


def small_products(count):
    """Factors whose products are exact, and the sum of these."""
    a, b = (random_array((count, 32, 32), "int8", seed) % 4 for seed in (1, 2))
    total = np.matmul(a.astype(np.float32), b.astype(np.float32)).sum(0)
    return {"A": a.astype(np.float16), "B": b.astype(np.float16)}, equals(C=total)


@pytest.mark.parametrize("product", [T.gemm, T.tcgen05_gemm])
def test_a_product_arrives_once_at_its_barrier(product):
    arguments, check = small_products(4)

    @T.prim_func
    def kernel(A: T.Tensor((4, 32, 32), "float16"), B: T.Tensor((4, 32, 32), "float16")):
        C = T.empty((32, 32), "float32")
        with T.Kernel(1, threads=128):
            left = T.alloc_shared((32, 32), "float16")
            right = T.alloc_shared((32, 32), "float16")
            acc = T.alloc_fragment((32, 32), "float32")
            done = T.alloc_barrier([3, 1])
            for k in T.serial(4):
                T.copy(A[k, :, :], left)
                T.copy(B[k, :, :], right)
                product(left, right, acc, clear_accum=k == 0, mbar=done[1])
                T.mbarrier_wait_parity(done[1], k % 2)
            T.copy(acc, C)
        return C

    check_everywhere(kernel, arguments, check)
    if product is T.gemm:  # there is no code for tensor memory
        check(run_native(kernel.program, arguments, "sim:sm_80"))


def test_a_product_frees_the_tiles_of_another_role():
    arguments, check = small_products(6)

    @T.prim_func
    def kernel(A: T.Tensor((6, 32, 32), "float16"), B: T.Tensor((6, 32, 32), "float16")):
        C = T.empty((32, 32), "float32")
        with T.Kernel(1, threads=256):
            left = T.alloc_shared((2, 32, 32), "float16")
            right = T.alloc_shared((2, 32, 32), "float16")
            acc = T.alloc_fragment((32, 32), "float32")
            loaded = T.alloc_barrier([128, 128])
            free = T.alloc_barrier([1, 1])
            with T.ws(0):
                for k in T.serial(6):
                    T.mbarrier_wait_parity(free[k % 2], (k // 2 + 1) % 2)
                    T.copy(A[k, :, :], left[k % 2, :, :])
                    T.copy(B[k, :, :], right[k % 2, :, :])
                    T.mbarrier_arrive(loaded[k % 2])
            with T.ws(1):
                T.clear(acc)
                for k in T.serial(6):
                    T.mbarrier_wait_parity(loaded[k % 2], k // 2 % 2)
                    T.gemm(left[k % 2, :, :], right[k % 2, :, :], acc, mbar=free[k % 2])
                T.copy(acc, C)
        return C

    check_everywhere(kernel, arguments, check)
    check(run_native(kernel.program, arguments, "sim:sm_80"))
    require("nvrtc", missing_nvrtc())
    check(run_native(kernel.program, arguments, "ptx:sm_80"))


def test_roles_inside_a_common_loop_with_state_of_their_own():
    @T.prim_func
    def kernel(A: T.Tensor((8, 64), "int32"), B: T.Tensor((8, 64), "int32")):
        with T.Kernel(1, threads=256) as bx:
            tx = T.get_thread_binding()
            S = T.alloc_shared((64,), "int32")
            full = T.alloc_barrier(128)
            empty = T.alloc_barrier(128)
            phase = T.alloc_var("int32", init=0)
            T.clear(S)
            for k in range(8):
                with T.ws(0):
                    T.mbarrier_wait_parity(full, phase)
                    if tx < 64:
                        B[k, tx] = S[tx] * 2
                    T.mbarrier_arrive(empty)
                    phase ^= 1
                with T.ws(1):
                    T.mbarrier_wait_parity(empty, phase ^ 1)
                    T.copy(A[k, :], S)
                    T.mbarrier_arrive(full)
                    phase ^= 1
            T.sync_threads()
            if tx == 255:
                B[0, 0] = -1

    a = SMALL.reshape(8, 64).copy()
    expected = a * 2
    expected[0, 0] = -1
    check_everywhere(kernel, {"A": a, "B": np.zeros((8, 64), np.int32)}, equals(B=expected))


def test_named_barriers_between_ranges_of_threads():
    @T.prim_func
    def kernel(A: T.Tensor((128,), "int32"), B: T.Tensor((128,), "int32")):
        with T.Kernel(1, threads=128) as bx:
            tx = T.get_thread_binding()
            S = T.alloc_shared((64,), "int32")
            if tx < 64:
                T.sync_threads(1, 128)
                B[tx] = S[63 - tx]
                T.sync_threads(2, 64)
                B[64 + tx] = B[63 - tx]
            else:
                S[tx - 64] = A[tx]
                T.named_barrier_arrive(1, 128)

    a = SMALL[:128].copy()
    expected = np.concatenate([a[:63:-1], a[64:]])
    check_everywhere(kernel, {"A": a, "B": np.zeros(128, np.int32)}, equals(B=expected))


def test_barriers_on_both_sides_of_a_branch():
    @T.prim_func
    def kernel(A: T.Tensor((128,), "int32")):
        with T.Kernel(1, threads=128) as bx:
            tx = T.get_thread_binding()
            S = T.alloc_shared((128,), "int32")
            if tx < 32:
                S[tx] = A[tx] + 1
                T.sync_threads()
            else:
                S[tx] = A[tx] + 2
                T.sync_threads()
            A[tx] = S[127 - tx]

    a = SMALL[:128].copy()
    expected = (a + np.where(np.arange(128) < 32, 1, 2)).astype(np.int32)[::-1].copy()
    found = run_native(kernel.program, {"A": a}, "cpu")  # the simulator warns of it
    equals(A=expected)(found)


def test_groups_that_wait_for_each_other_are_a_deadlock():
    @T.prim_func
    def kernel(A: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=256) as bx:
            first = T.alloc_barrier(128)
            second = T.alloc_barrier(128)
            with T.ws(0):
                T.mbarrier_wait_parity(first, 0)
                T.mbarrier_arrive(second)
            with T.ws(1):
                T.mbarrier_wait_parity(second, 0)
                T.mbarrier_arrive(first)

    line = kernel.source.first_line
    expected = (
        f"deadlock: threads 0 to 127 wait in line {line + 6} for 'first[0]'; "
        f"threads 128 to 255 wait in line {line + 9} for 'second[0]'"
    )
    check_deadlock(kernel, {"A": np.zeros(64, np.int32)}, expected)


def test_a_barrier_that_some_threads_never_reach_is_a_deadlock():
    @T.prim_func
    def kernel(A: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64) as bx:
            if T.get_thread_binding() < 32:
                T.sync_threads()

    line = kernel.source.first_line + 4
    expected = (
        f"deadlock: threads 0 to 31 wait in line {line} at barrier 0; "
        "threads 32 to 63 have finished"
    )
    check_deadlock(kernel, {"A": np.zeros(64, np.int32)}, expected)


def test_a_phase_that_nothing_completes_is_a_deadlock():
    @T.prim_func
    def kernel(A: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64) as bx:
            bars = T.alloc_barrier([64, 65])
            T.mbarrier_arrive(bars[0])
            for _ in T.serial(1):  # or it is known without running
                T.mbarrier_arrive(bars[1])
            T.mbarrier_wait_parity(bars[0], 0)
            T.mbarrier_wait_parity(bars[1], 1)
            T.mbarrier_wait_parity(bars[1], 0)

    line = kernel.source.first_line + 9
    expected = (
        f"deadlock: threads 0 to 63 wait in line {line} for 'bars[1]', whose phase nothing "
        "completes"
    )
    check_deadlock(kernel, {"A": np.zeros(64, np.int32)}, expected)


def check_deadlock(kernel, arguments, expected):
    """The native code raises `DeadlockError` with that message, and the split program does in the
    simulator.
    """
    with pytest.raises(DeadlockError) as caught:
        run_native(kernel.program, arguments, "cpu")
    assert caught.value.message == expected
    snapshots = lower_program(kernel.program, resolve_target("cpu"))
    split = next(found for found in snapshots if found.name == "split_threads")
    with pytest.raises(DeadlockError) as caught:
        simulate(split.program, arguments, signature=kernel.program)
    assert caught.value.message.startswith(expected)


def test_a_role_of_groups_that_are_not_neighbours():
    """Two producers around a consumer: all threads of both count, their tiles are filled once."""

    @T.prim_func
    def kernel(
        A: T.Tensor((6, 64), "float32"),
        B: T.Tensor((64,), "float32"),
        C: T.Tensor((384,), "int32"),
    ):
        with T.Kernel(1, threads=384) as bx:
            tx = T.get_thread_binding()
            S = T.alloc_shared((64,), "float32")
            filled = T.alloc_barrier([256])
            taken = T.alloc_barrier([128])
            count = T.alloc_var("int32")
            with T.ws(0, 2):
                row = T.alloc_shared((64,), "float32")
                for k in range(6):
                    count += k
                    T.mbarrier_wait_parity(taken[0], k % 2 ^ 1)
                    T.copy(A[k, :], row)
                    for i in T.Parallel(64):
                        S[i] = row[i] * 2
                    T.mbarrier_arrive(filled[0])
                C[tx] = count + T.cast(row[0], "int32")
            with T.ws(1):
                acc = T.alloc_fragment((64,), "float32")
                T.clear(acc)
                for k in range(6):
                    T.mbarrier_wait_parity(filled[0], k % 2)
                    for i in T.Parallel(64):
                        acc[i] += S[i]
                    T.mbarrier_arrive(taken[0])
                T.copy(acc, B)

    a = np.arange(384, dtype=np.float32).reshape(6, 64)
    expected = np.where(np.arange(384) // 128 == 1, 0, 15 + int(a[5, 0])).astype(np.int32)
    check = equals(B=2 * a.sum(0), C=expected)
    arguments = {"A": a, "B": np.zeros(64, np.float32), "C": np.zeros(384, np.int32)}
    check_everywhere(kernel, arguments, check)
    check(run_native(kernel.program, arguments, "sim:sm_80"))
    require("nvrtc", missing_nvrtc())
    check(run_native(kernel.program, arguments, "ptx:sm_80"))


def test_a_pipeline_of_groups_that_are_not_neighbours():
    @T.prim_func
    def kernel(
        A: T.Tensor((64, 128), "float16"),
        B: T.Tensor((128, 64), "float16"),
        C: T.Tensor((64, 64), "float32"),
        D: T.Tensor((512,), "int32"),
    ):
        with T.Kernel(1, threads=512) as bx:
            tx = T.get_thread_binding()
            sums = T.alloc_local((2,), "int32")
            sums[0] = 0
            with T.ws(0, 2, 3):
                A_shared = T.alloc_shared((64, 32), "float16")
                B_shared = T.alloc_shared((32, 64), "float16")
                acc = T.alloc_fragment((64, 64), "float32")
                T.clear(acc)
                for k in T.Pipelined(4, num_stages=2):
                    T.copy(A[0, k * 32], A_shared)
                    T.copy(B[k * 32, 0], B_shared)
                    T.gemm(A_shared, B_shared, acc)
                for k in T.Pipelined(4, num_stages=2):
                    T.copy(A[0, k * 32], A_shared)
                    sums[0] += T.cast(A_shared[0, 0], "int32")
                    if k % 2 == 0:
                        sums[0] += tx
                    else:
                        T.fill(A_shared, 1)
                        sums[0] += T.cast(A_shared[1, 0], "int32")
                T.copy(acc, C)
            D[tx] = sums[0]

    a = np.random.default_rng(3).integers(-3, 4, (64, 128)).astype(np.float16)
    b = np.random.default_rng(3).integers(-3, 4, (128, 64)).astype(np.float16)
    threads = np.arange(512)
    sums = int(a[0, ::32].astype(np.int32).sum()) + 2 * threads + 2
    d = np.where(threads // 128 == 1, 0, sums).astype(np.int32)
    check = equals(C=a.astype(np.float32) @ b, D=d)
    arguments = {"A": a, "B": b, "C": np.zeros((64, 64), np.float32), "D": np.zeros(512, np.int32)}
    check_everywhere(kernel, arguments, check)
    check(run_native(kernel.program, arguments, "sim:sm_80"))


@pytest.mark.nvrtc
def test_whole_warps_know_their_number_and_parted_lanes_are_not_asked():
    """A part of a warp, a role of whole warps behind it, and one in a loop: all write their own."""

    @T.prim_func
    def kernel(A: T.Tensor((160,), "int32"), C: T.Tensor((160,), "int32")):
        with T.Kernel(1, threads=160) as bx:
            tx = T.get_thread_binding()
            C[tx] = A[tx]
            if tx < 40:
                C[tx] = A[tx] * 2 + bx
            with T.ws(1):
                C[tx] = A[tx] * 3
            for k in T.serial(2):
                with T.ws(0):
                    if tx >= 64:
                        C[tx] = C[tx] + k + 7

    a = random_array((160,), "int32") % 100
    expected = a.copy()
    expected[:40] *= 2
    expected[128:] *= 3
    expected[64:128] += 15
    arguments = {"A": a, "C": np.zeros(160, np.int32)}
    check_on_threads(kernel, arguments, equals(C=expected))
    equals(C=expected)(run_native(kernel.program, arguments, "ptx:sm_80"))
    text = tw.compile(kernel, target="cuda:sm_80").source
    assert "warp_index >= 4 && warp_index < 5" in text  # threads 128 to 159
    assert "if (threadIdx.x < 128)" in text
