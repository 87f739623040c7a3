"""Kernels written for single threads: numpy = the simulator at every stage = native code."""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

import numpy as np
import pytest

import tileworkbench.language as T
from tests.differential.harness import check_everywhere, check_executors, equals, random_array

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


@pytest.mark.parametrize("width", [1, 2, 8, 16, 32])
def test_exchanges_beyond_a_segment(width):
    """T.shfl_xor also reads earlier segments of its warp (PTX ISA, shfl.sync)."""

    @T.prim_func
    def kernel(A: T.Tensor((64,), "int32")):
        B = T.empty((3, 64), "int32")
        with T.Kernel(1, threads=64) as bx:
            tx = T.get_thread_binding()
            for i, delta in enumerate((1, 4, 16)):
                B[i, tx] = T.shfl_xor(A[tx], delta, width=width)
        return B

    a = SMALL[:64].copy()
    threads = np.arange(64)
    last = threads // width * width + width - 1
    others = [threads ^ delta for delta in (1, 4, 16)]
    expected = np.array([a[np.where(other <= last, other, threads)] for other in others])
    check_everywhere(kernel, {"A": a}, equals(B=expected))


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


def test_what_blocks_keep_over_a_barrier_of_the_grid():
    n = T.dynamic("n")

    @T.prim_func
    def kernel(A: T.Tensor((n, 64), "float32"), S: T.Tensor((n,), "float32")):
        B = T.empty((n, 64), "float32")
        C = T.empty((n,), "float32")
        with T.Kernel(n, threads=64) as bx:
            tx = T.get_thread_binding()
            tile = T.alloc_shared((64,), "float32")
            x, total = T.alloc_fragment((64,), "float32"), T.alloc_fragment((1,), "float32")
            own, last = T.alloc_local((2,), "float32"), T.alloc_var("float32", init=1.0)
            T.copy(A[bx, :], tile)
            T.copy(tile, x)
            T.reduce_sum(x, total, dim=0)
            mine = A[bx, 63 - tx]
            own[0] = mine
            own[1] = mine * 2
            if tx > 3:
                last = mine + 1
            S[bx] = total[0]
            T.sync_grid()
            if tx == 0:
                S[bx] = S[bx] + 1
            T.sync_grid()
            other = S[(bx + 1) % n]
            B[bx, tx] = tile[tx] + mine + own[1] + last + other
            C[bx] = total[0]
        return B, C

    a = random_array((3, 64), "int32").astype(np.float32) % 16
    total, mine = a.sum(1), a[:, ::-1]
    last = np.where(np.arange(64) > 3, mine + 1, 1)
    b = a + 3 * mine + last + (total[[1, 2, 0]] + 1)[:, None]
    arguments = {"A": a, "S": np.zeros(3, np.float32)}
    check_executors(kernel, arguments, equals(B=b.astype(np.float32), C=total, S=total + 1))


@pytest.mark.parametrize("written", [False, True])
def test_scalars_named_in_a_branch_of_some_threads(written):
    """What they are read from may be written elsewhere: all threads of the branch have the same."""

    @T.prim_func
    def kernel(A: T.Tensor((64, 32), "float32"), R: T.Tensor((4,), "int32")):
        B = T.empty((3, 32), "float32")
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            s, r = T.alloc_shared((32,), "float32"), T.alloc_shared((32,), "float32")
            place = T.alloc_shared((4,), "int32")
            if tx < 4:
                place[tx] = R[tx]
            T.sync_threads()
            if tx < 32:
                row = place[1]
                T.copy(A[row, :], s)
            else:
                row = R[2] + 1
                T.copy(A[row, :], r)
            T.sync_threads()
            if tx < 32:
                first = s[0]
                B[0, tx] = s[tx] + first
                B[1, tx] = r[tx]
            if tx == 63:
                last = r[31]
                T.fill(B[2, :], last)
            if written and tx == 0:
                R[0] = 0
        return B

    a, places = random_array((64, 32), "float32"), np.array([9, 5, 7, 1], np.int32)
    b = np.stack([a[5] + a[5, 0], a[8], np.full(32, a[8, 31])])
    check_executors(kernel, {"A": a, "R": places}, equals(B=b))
