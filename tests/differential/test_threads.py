"""Kernels written for single threads: numpy = the simulator at every stage = native code."""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

import numpy as np
import pytest

import tileworkbench.language as T
from tests.differential.harness import check_everywhere, equals, random_array, run_native
from tileworkbench.compiler.diagnostics import DeadlockError
from tileworkbench.compiler.driver import lower_program, resolve_target
from tileworkbench.compiler.sim import simulate

SMALL = random_array((512,), "int32", 3) % 1000


def close(**expected):
    """The tensors are these up to the order of float32 sums."""

    def check(arrays):
        for name, value in expected.items():
            np.testing.assert_allclose(arrays[name], value, rtol=1e-5, atol=1e-5, err_msg=name)

    return check


def test_every_thread_executes_a_scalar_atomic():
    @T.prim_func
    def kernel(A: T.Tensor((2,), "int32"), B: T.Tensor((1,), "float32")):
        with T.Kernel(3, threads=96) as bx:
            T.atomic_add(A[0], 1)
            T.atomic_max(A[1], bx)
            T.atomic_add(B[0], 0.5)

    arguments = {"A": np.zeros(2, np.int32), "B": np.zeros(1, np.float32)}
    expected = {"A": np.array([288, 2], np.int32), "B": np.array([144], np.float32)}
    check_everywhere(kernel, arguments, equals(**expected))


def test_block_reduction_by_shuffles_and_shared_memory():
    @T.prim_func
    def kernel(A: T.Tensor((4, 256), "float32"), B: T.Tensor((4,), "float32")):
        with T.Kernel(4, threads=256) as bx:
            tx = T.get_thread_binding()
            partial = T.alloc_shared((8,), "float32")
            v = T.alloc_var("float32")
            v = A[bx, tx]
            for i in T.unroll(5):
                v += T.shfl_xor(v, 16 >> i)
            if tx % 32 == 0:
                partial[tx // 32] = v
            T.sync_threads()
            if tx < 32:
                v = T.if_then_else(tx < 8, partial[tx % 8], 0.0)
                for i in T.unroll(3):
                    v += T.shfl_down(v, 4 >> i)
                if tx == 0:
                    B[bx] = v

    a = random_array((4, 256), "float32")
    check_everywhere(
        kernel, {"A": a, "B": np.zeros(4, np.float32)}, close(B=a.astype(np.float64).sum(1))
    )


def test_prefix_scan_with_two_buffers():
    @T.prim_func
    def kernel(A: T.Tensor((512,), "int32"), B: T.Tensor((512,), "int32")):
        with T.Kernel(2, threads=256) as bx:
            tx = T.get_thread_binding()
            S = T.alloc_shared((2, 256), "int32")
            S[0, tx] = A[bx * 256 + tx]
            T.sync_threads()
            for step in range(8):
                x = S[step % 2, tx]
                if tx >= (1 << step):
                    S[(step + 1) % 2, tx] = x + S[step % 2, tx - (1 << step)]
                else:
                    S[(step + 1) % 2, tx] = x
                T.sync_threads()
            B[bx * 256 + tx] = S[0, tx]

    expected = SMALL.reshape(2, 256).cumsum(1).astype(np.int32).reshape(512)
    check_everywhere(kernel, {"A": SMALL, "B": np.zeros(512, np.int32)}, equals(B=expected))


def test_warp_scan_by_shuffles_up():
    @T.prim_func
    def kernel(A: T.Tensor((512,), "int32"), B: T.Tensor((512,), "int32")):
        with T.Kernel(4, threads=128) as bx:
            tx = T.get_thread_binding()
            lane = T.get_lane_idx()
            v = T.alloc_var("int32")
            v = A[bx * 128 + tx]
            for i in T.serial(5):
                other = T.shfl_up(v, 1 << i)
                if lane >= (1 << i):
                    v += other
            B[bx * 128 + tx] = v

    expected = SMALL.reshape(16, 32).cumsum(1).astype(np.int32).reshape(512)
    check_everywhere(kernel, {"A": SMALL, "B": np.zeros(512, np.int32)}, equals(B=expected))


def test_histogram_in_shared_memory():
    @T.prim_func
    def kernel(A: T.Tensor((500,), "int32"), H: T.Tensor((16,), "int32")):
        with T.Kernel(2, threads=128) as bx:
            tx = T.get_thread_binding()
            S = T.alloc_shared((16,), "int32")
            if tx < 16:
                S[tx] = 0
            T.sync_threads()
            for k in T.serial(2):
                i = bx * 256 + k * 128 + tx
                if i < 500:
                    T.atomic_add(S[A[i] % 16], 1)
            T.sync_threads()
            if tx < 16:
                T.atomic_add(H[tx], S[tx])

    a = SMALL[:500].copy()
    expected = np.bincount(a % 16, minlength=16).astype(np.int32)
    check_everywhere(kernel, {"A": a, "H": np.zeros(16, np.int32)}, equals(H=expected))


def test_transpose_through_shared_memory():
    @T.prim_func
    def kernel(A: T.Tensor((70, 90), "float32"), B: T.Tensor((90, 70), "float32")):
        with T.Kernel(3, 3, threads=(32, 8)) as (bx, by):
            tx, ty = T.get_thread_binding(0), T.get_thread_binding(1)
            S = T.alloc_shared((32, 33), "float32")
            for j in T.serial(4):
                S[ty + j * 8, tx] = A[by * 32 + ty + j * 8, bx * 32 + tx]
            T.sync_threads()
            for j in T.serial(4):
                B[bx * 32 + ty + j * 8, by * 32 + tx] = S[tx, ty + j * 8]

    a = random_array((70, 90), "float32")
    check_everywhere(kernel, {"A": a, "B": np.zeros((90, 70), np.float32)}, equals(B=a.T.copy()))


def test_matrix_product_by_threads():
    @T.prim_func
    def kernel(
        A: T.Tensor((40, 48), "float32"),
        B: T.Tensor((48, 24), "float32"),
        C: T.Tensor((40, 24), "float32"),
    ):
        with T.Kernel(2, 3, threads=(16, 16)) as (bx, by):
            tx, ty, _ = T.get_thread_bindings()
            As = T.alloc_shared((16, 16), "float32")
            Bs = T.alloc_shared((16, 16), "float32")
            acc = T.alloc_var("float32", init=0.0)
            for k in range(3):
                As[ty, tx] = A[by * 16 + ty, k * 16 + tx]
                Bs[ty, tx] = B[k * 16 + ty, bx * 16 + tx]
                T.sync_threads()
                for i in range(16):
                    acc += As[ty, i] * Bs[i, tx]
                T.sync_threads()
            C[by * 16 + ty, bx * 16 + tx] = acc

    a, b = random_array((40, 48), "float32"), random_array((48, 24), "float32")
    arguments = {"A": a, "B": b, "C": np.zeros((40, 24), np.float32)}
    check_everywhere(kernel, arguments, close(C=a.astype(np.float64) @ b))


def test_compaction_by_ballot_and_match():
    @T.prim_func
    def kernel(
        A: T.Tensor((128,), "int32"), B: T.Tensor((128,), "int32"), M: T.Tensor((128,), "int32")
    ):
        with T.Kernel(1, threads=128) as bx:
            tx = T.get_thread_binding()
            lane, warp = T.get_lane_idx(), T.get_warp_idx()
            counts = T.alloc_shared((4,), "int32")
            keep = A[tx] % 3 == 0
            votes = T.ballot(keep)
            below = T.popcount(votes & ((T.uint64(1) << T.cast(lane, "uint64")) - T.uint64(1)))
            if lane == 0:
                counts[warp] = T.cast(T.popcount(votes), "int32")
            T.sync_threads()
            start = T.alloc_var("int32", init=0)
            for w in range(warp):
                start += counts[w]
            if keep:
                B[start + T.cast(below, "int32")] = A[tx]
            same = T.match_any_sync(A[tx] % 5)
            M[tx] = T.cast(T.popcount(same), "int32")

    a = SMALL[:128].copy()
    kept = a[a % 3 == 0]
    b = np.zeros(128, np.int32)
    expected = b.copy()
    expected[: len(kept)] = kept
    groups = (a % 5).reshape(4, 32)
    same = (groups[:, :, None] == groups[:, None, :]).sum(2).astype(np.int32).reshape(128)
    arguments = {"A": a, "B": b, "M": np.zeros(128, np.int32)}
    check_everywhere(kernel, arguments, equals(B=expected, M=same))


def test_bitonic_sort():
    @T.prim_func
    def kernel(A: T.Tensor((2, 128), "int32")):
        with T.Kernel(2, threads=128) as bx:
            tx = T.get_thread_binding()
            S = T.alloc_shared((128,), "int32")
            S[tx] = A[bx, tx]
            T.sync_threads()
            for a in range(7):
                for b in range(a + 1):
                    other = tx ^ (1 << (a - b))
                    if other > tx:
                        ascending = (tx & (2 << a)) == 0
                        x = S[tx]
                        y = S[other]
                        if (x > y) == ascending:
                            S[tx] = y
                            S[other] = x
                    T.sync_threads()
            A[bx, tx] = S[tx]

    a = SMALL[:256].reshape(2, 128).copy()
    check_everywhere(kernel, {"A": a}, equals(A=np.sort(a, 1)))


def test_loops_that_threads_leave_early():
    @T.prim_func
    def kernel(A: T.Tensor((64,), "int32"), B: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64) as bx:
            tx = T.get_thread_binding()
            n = T.alloc_var("int32")
            steps = T.alloc_var("int32", init=0)
            n = A[tx]
            while n != 1:
                n = T.if_then_else(n % 2 == 0, n // 2, 3 * n + 1)
                steps += 1
                if steps >= 50:
                    break
            B[tx] = steps

    a = np.abs(SMALL[:64]) + 1
    expected = []
    for n in a.tolist():
        steps = 0
        while n != 1:
            n = n // 2 if n % 2 == 0 else 3 * n + 1
            steps += 1
            if steps >= 50:
                break
        expected.append(steps)
    arguments = {"A": a, "B": np.zeros(64, np.int32)}
    check_everywhere(kernel, arguments, equals(B=np.array(expected, np.int32)))


def test_exchanges_in_a_loop_that_threads_leave_early():
    @T.prim_func
    def kernel(A: T.Tensor((64,), "int32"), B: T.Tensor((64, 2), "int32")):
        with T.Kernel(1, threads=64) as bx:
            tx = T.get_thread_binding()
            left = T.alloc_var("int32")
            left = A[tx]
            rounds = T.alloc_var("int32", init=0)
            company = T.alloc_var("int32", init=0)
            while left > 0:
                company += T.cast(T.popcount(T.activemask()), "int32")
                if left == 7:
                    break
                left -= 1
                rounds += 1
            B[tx, 0] = rounds
            B[tx, 1] = company

    a = (np.abs(SMALL[:64]) % 12).astype(np.int32)
    last = np.where(a >= 7, a - 7, a)  # completed rounds
    turns = np.where(a >= 7, last + 1, last)
    expected = np.zeros((64, 2), np.int32)
    expected[:, 0] = last
    for t in range(64):
        warp = turns[t // 32 * 32 : t // 32 * 32 + 32]
        expected[t, 1] = sum(int((warp > r).sum()) for r in range(turns[t]))
    check_everywhere(kernel, {"A": a, "B": np.zeros((64, 2), np.int32)}, equals(B=expected))


def test_common_values_inside_a_branch_that_some_threads_take():
    @T.prim_func
    def kernel(A: T.Tensor((64,), "int32"), n: T.int32, B: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64) as bx:
            tx = T.get_thread_binding()
            if A[tx // 32 * 32] > 0:
                third = 300 // n
                more = third + 2
                x = T.shfl_xor(A[tx], 1)
                B[tx] = x * more

    a = SMALL[:64].copy()
    a[0], a[32] = 5, -5
    swapped = a[np.arange(64) ^ 1] * (300 // 7 + 2)
    expected = np.where(np.arange(64) < 32, swapped, 0).astype(np.int32)
    check_everywhere(kernel, {"A": a, "n": 7, "B": np.zeros(64, np.int32)}, equals(B=expected))


def test_votes_of_the_block():
    @T.prim_func
    def kernel(A: T.Tensor((100,), "int32"), B: T.Tensor((100, 5), "int32")):
        with T.Kernel(1, threads=100) as bx:
            tx = T.get_thread_binding()
            B[tx, 0] = T.syncthreads_count(A[tx] > 0)
            B[tx, 1] = T.syncthreads_and(A[tx] > 0)
            B[tx, 2] = T.syncthreads_or(A[tx] > 900)
            B[tx, 3] = T.any_sync(A[tx] > 990)
            B[tx, 4] = T.all_sync(A[tx] > -900, mask=0xF)

    a = SMALL[:100].copy()
    expected = np.zeros((100, 5), np.int32)
    expected[:, 0], expected[:, 1] = (a > 0).sum(), (a > 0).all()
    expected[:, 2] = (a > 900).any()
    for t in range(100):
        warp = a[t // 32 * 32 : t // 32 * 32 + 32]
        expected[t, 3], expected[t, 4] = (warp > 990).any(), (warp[:4] > -900).all()
    check_everywhere(kernel, {"A": a, "B": np.zeros((100, 5), np.int32)}, equals(B=expected))


@pytest.mark.parametrize("kind", ["sum", "max", "min", "bitand", "bitor"])
def test_reductions_over_a_warp(kind):
    reduce = getattr(T, f"warp_reduce_{kind}")

    @T.prim_func
    def kernel(A: T.Tensor((64,), "int32"), B: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64) as bx:
            tx = T.get_thread_binding()
            B[tx] = reduce(A[tx])

    a = SMALL[:64].copy()
    combine = {
        **{"sum": np.add, "max": np.maximum, "min": np.minimum},
        **{"bitand": np.bitwise_and, "bitor": np.bitwise_or},
    }[kind]
    expected = combine.reduce(a.reshape(2, 32), axis=1).astype(np.int32).repeat(32)
    check_everywhere(kernel, {"A": a, "B": np.zeros(64, np.int32)}, equals(B=expected))


def test_every_shuffle_with_segments():
    @T.prim_func
    def kernel(A: T.Tensor((64,), "int32"), B: T.Tensor((64, 4), "int32")):
        with T.Kernel(1, threads=64) as bx:
            tx = T.get_thread_binding()
            B[tx, 0] = T.shfl_sync(A[tx], 3, width=8)
            B[tx, 1] = T.shfl_xor(A[tx], 5, width=16)
            B[tx, 2] = T.shfl_up(A[tx], 2, width=8)
            B[tx, 3] = T.shfl_down(A[tx], 3, width=4)

    a = SMALL[:64].copy()
    expected = np.zeros((64, 4), np.int32)
    for t in range(64):
        expected[t, 0] = a[t // 8 * 8 + 3]
        expected[t, 1] = a[t ^ 5]
        expected[t, 2] = a[t - 2] if t % 8 >= 2 else a[t]
        expected[t, 3] = a[t + 3] if t % 4 < 1 else a[t]
    check_everywhere(kernel, {"A": a, "B": np.zeros((64, 4), np.int32)}, equals(B=expected))


def test_tile_operators_for_some_threads_work_on_the_whole_tile():
    @T.prim_func
    def kernel(A: T.Tensor((4, 256), "float32"), B: T.Tensor((4, 256), "float32")):
        with T.Kernel(4, threads=256) as bx:
            tx = T.get_thread_binding()
            S = T.alloc_shared((256,), "float32")
            T.clear(S)
            if tx < 128:
                T.copy(A[bx, :], S)
                for i in T.Parallel(256):
                    S[i] = S[i] * 2.0
            if T.get_warp_group_idx() == 2:
                T.clear(S)
            T.copy(S, B[bx, :])

    a = random_array((4, 256), "float32")
    arguments = {"A": a, "B": np.zeros((4, 256), np.float32)}
    check_everywhere(kernel, arguments, equals(B=a * 2))


def test_arrays_of_each_thread():
    @T.prim_func
    def kernel(A: T.Tensor((64, 4), "float32"), B: T.Tensor((64, 4), "float32")):
        with T.Kernel(1, threads=64) as bx:
            tx = T.get_thread_binding()
            mine = T.alloc_local((4,), "float32")
            total = T.alloc_var("float32", init=0.0)
            T.copy(A[tx, :], mine)
            for i in range(4):
                total += mine[i]
            T.sync_threads()
            for i in range(4):
                mine[i] = mine[i] - T.shfl_xor(total, 1)
            T.copy(mine, B[tx, :])

    a = (random_array((64, 4), "int32") % 64).astype(np.float32)
    expected = a - a.sum(1)[np.arange(64) ^ 1][:, None]
    arguments = {"A": a, "B": np.zeros((64, 4), np.float32)}
    check_everywhere(kernel, arguments, equals(B=expected))


def test_reductions_of_each_thread():
    @T.prim_func
    def kernel(A: T.Tensor((64, 2, 4), "int32"), B: T.Tensor((64, 3, 2), "int32")):
        with T.Kernel(1, threads=64) as bx:
            tx = T.get_thread_binding()
            mine = T.alloc_local((2, 4), "int32")
            result = T.alloc_local((2,), "int32")
            T.copy(A[tx, :, :], mine)
            T.reduce_max(mine, result, dim=1)
            T.copy(result, B[tx, 0, :])
            T.reduce_abssum(mine, result, dim=1)
            T.copy(result, B[tx, 1, :])
            T.reduce_min(mine, result, dim=1, clear=False)
            T.copy(result, B[tx, 2, :])

    a = random_array((64, 2, 4), "int32") % 1000
    expected = np.stack([a.max(2), np.abs(a).sum(2), np.minimum(a.min(2), np.abs(a).sum(2))], 1)
    arguments = {"A": a, "B": np.zeros((64, 3, 2), np.int32)}
    check_everywhere(kernel, arguments, equals(B=expected.astype(np.int32)))


def test_an_all_reduce_over_the_threads_along_x():
    @T.prim_func
    def kernel(A: T.Tensor((4, 32), "int32"), B: T.Tensor((4, 32), "int32")):
        with T.Kernel(1, threads=(32, 4)) as bx:
            tx, ty = T.get_thread_binding(0), T.get_thread_binding(1)
            total = T.alloc_local((1,), "int32")
            with T.attr(
                T.comm_reducer(lambda x, y: x + y, [T.int32(0)]),
                "reduce_scope",
                T.reinterpret(T.uint64(0), "handle"),
            ):
                T.evaluate(T.tvm_thread_allreduce(T.uint32(1), A[ty, tx], tx < 30, total[0], tx))
            B[ty, tx] = total[0]

    a = SMALL[:128].reshape(4, 32).copy()
    expected = a[:, :30].sum(1).astype(np.int32).repeat(32).reshape(4, 32)
    check_everywhere(kernel, {"A": a, "B": np.zeros((4, 32), np.int32)}, equals(B=expected))


def test_previous_values_of_atomics_are_different_for_each_thread():
    @T.prim_func
    def kernel(N: T.Tensor((1,), "int32"), B: T.Tensor((96,), "int32")):
        with T.Kernel(1, threads=96) as bx:
            place = T.atomic_add(N[0], 1, return_prev=True)
            B[place] = place * 2

    arguments = {"N": np.zeros(1, np.int32), "B": np.zeros(96, np.int32)}
    expected = {"N": np.array([96], np.int32), "B": np.arange(96, dtype=np.int32) * 2}
    check_everywhere(kernel, arguments, equals(**expected))


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


def test_a_barrier_of_the_grid_ends_a_launch():
    @T.prim_func
    def kernel(A: T.Tensor((4, 64), "float32"), B: T.Tensor((4, 64), "float32")):
        with T.Kernel(4, threads=64) as bx:
            tx = T.get_thread_binding()
            W = T.alloc_shared((64,), "float32")
            other = (bx + 1) % 4
            T.copy(A[bx, :], W)
            B[bx, tx] = W[63 - tx] + 1.0
            T.sync_grid()
            A[bx, tx] = A[bx, tx] * 2.0
            T.sync_grid()
            T.copy(B[other, :], W)
            A[bx, tx] = A[bx, tx] + W[tx]

    a = random_array((4, 64), "float32")
    b = a[:, ::-1] + 1
    expected = a * 2 + b[[1, 2, 3, 0]]
    arguments = {"A": a, "B": np.zeros((4, 64), np.float32)}
    check_everywhere(kernel, arguments, close(A=expected, B=b))


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

    line = kernel.fn.__code__.co_firstlineno
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

    line = kernel.fn.__code__.co_firstlineno + 4
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
            T.mbarrier_arrive(bars[1])
            T.mbarrier_wait_parity(bars[0], 0)
            T.mbarrier_wait_parity(bars[1], 1)
            T.mbarrier_wait_parity(bars[1], 0)

    line = kernel.fn.__code__.co_firstlineno + 8
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
