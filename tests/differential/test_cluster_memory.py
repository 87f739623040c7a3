"""Blocks of a cluster that write to each other's shared memory and memory barriers."""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tileworkbench as tw
import tileworkbench.language as T
from tests import tiers
from tests.differential.harness import check_clusters, equals, random_array
from tileworkbench.compiler.diagnostics import (
    DeadlockError,
    DeviceAssertError,
    RunError,
)
from tileworkbench.compiler.ir.parser import parse
from tileworkbench.compiler.ir.printer import print_program
from tileworkbench.compiler.sim import simulate


def integers(*shape):
    """Small whole numbers, whose sums and products are exact."""
    return (random_array(shape, "int32") % 5).astype(np.float32)


def test_a_tile_goes_to_another_block():
    @T.prim_func
    def kernel(A: T.Tensor((128,), "float32"), B: T.Tensor((128,), "float32")):
        with T.Kernel(2, threads=128, cluster_dims=(2, 1, 1)) as pid:
            sent = T.alloc_shared((128,), "float32")
            got = T.alloc_shared((128,), "float32")
            bars = T.alloc_cluster_barrier([1])
            T.fill(sent, 0.0)
            T.fill(got, 0.0)
            T.cluster_sync()
            if pid == 0:
                for i in T.Parallel(128):
                    sent[i] = A[i]
                T.copy_cluster(sent, got, dst_block=1, remote_barrier=bars[0])
            if pid == 1:
                T.mbarrier_wait_parity(bars[0], 0)
                for i in T.Parallel(128):
                    B[i] = got[i]
            T.cluster_sync()

    assert parse(print_program(kernel.program)) == kernel.program
    a = integers(128)
    check_clusters(kernel, {"A": a, "B": np.zeros_like(a)}, equals(B=a))


@pytest.mark.parametrize("size", [1, 2, 4])
def test_a_ring(size):
    @T.prim_func
    def kernel(A: T.Tensor((8, 32), "float32"), B: T.Tensor((8, 32), "float32")):
        with T.ClusterKernel(8, cluster_dims=size, threads=64) as bx:
            rank = T.block_rank_in_cluster()
            mine = T.alloc_shared((32,), "float32")
            theirs = T.alloc_shared((32,), "float32")
            total = T.alloc_fragment((32,), "float32")
            T.copy(A[bx, :], mine)
            T.copy(mine, total)
            for hop in T.serial(size - 1):
                T.cluster_sync()
                T.copy_cluster(mine, theirs, dst_block=(rank + 1) % size)
                T.cluster_sync()
                T.copy(theirs, mine)
                for i in T.Parallel(32):
                    total[i] += mine[i]
            T.copy(total, B[bx, :])

    a = integers(8, 32)
    sums = np.repeat(a.reshape(8 // size, size, 32).sum(axis=1), size, axis=0)
    check_clusters(kernel, {"A": a, "B": np.zeros_like(a)}, equals(B=sums))


@pytest.mark.parametrize("barrier", [False, True])
def test_parts_of_a_product_meet_in_one_block(barrier):
    M, N, K, split = 32, 16, 64, 4

    @T.prim_func
    def kernel(A: T.Tensor((M, K), "float32"), B: T.Tensor((K, N), "float32")):
        C = T.empty((M, N), "float32")
        with T.ClusterKernel(split, M // 16, cluster_dims=(split, 1), threads=64) as (bz, by):
            rank = T.block_rank_in_cluster()
            a = T.alloc_shared((16, K // split), "float32")
            b = T.alloc_shared((K // split, N), "float32")
            own = T.alloc_fragment((16, N), "float32")
            part = T.alloc_shared((16, N), "float32")
            parts = T.alloc_shared((split, 16, N), "float32")
            bars = T.alloc_cluster_barrier(split - 1)
            T.copy(A[by * 16, bz * (K // split)], a)
            T.copy(B[bz * (K // split), 0], b)
            T.clear(own)
            T.gemm(a, b, own)
            T.copy(own, part)
            T.cluster_sync()
            if rank != 0:
                if barrier:
                    T.copy_cluster(part, parts[rank, :, :], dst_block=0, remote_barrier=bars[0])
                else:
                    T.copy_cluster(part, parts[rank, :, :], dst_block=0)
            if not barrier:
                T.cluster_sync()
            if rank == 0:
                if barrier:
                    T.mbarrier_wait_parity(bars[0], 0)
                for r in T.serial(1, split):
                    for i, j in T.Parallel(16, N):
                        own[i, j] += parts[r, i, j]
                T.copy(own, C[by * 16, 0])
            T.cluster_sync()
        return C

    a, b = integers(M, K), integers(K, N)
    check_clusters(kernel, {"A": a, "B": b}, equals(C=a @ b))


def test_a_row_that_blocks_share_is_normalised():
    rows, columns, blocks = 4, 256, 4
    width = columns // blocks

    @T.prim_func
    def kernel(X: T.Tensor((rows, columns), "float32")):
        Y = T.empty((rows, columns), "float32")
        with T.ClusterKernel(blocks, rows, cluster_dims=blocks, threads=64) as (bx, by):
            x = T.alloc_fragment((1, width), "float32")
            own = T.alloc_fragment((1,), "float32")
            told = T.alloc_shared((1,), "float32")
            most = T.alloc_shared((blocks,), "float32")
            sums = T.alloc_shared((blocks,), "float32")
            whole = T.alloc_fragment((1,), "float32")
            T.copy(X[by : by + 1, bx * width : (bx + 1) * width], x)
            T.cluster_sync()
            T.reduce_max(x, own, dim=1)
            T.copy(own, told)
            for rank in T.serial(blocks):
                T.copy_cluster(told, most[bx : bx + 1], dst_block=rank)
            T.cluster_sync()
            T.reduce_max(most, whole)
            for i, j in T.Parallel(1, width):
                x[i, j] = T.exp(x[i, j] - whole[0])
            T.reduce_sum(x, own, dim=1)
            T.copy(own, told)
            for rank in T.unroll(blocks):
                T.copy_cluster(told, sums[bx : bx + 1], dst_block=rank)
            T.cluster_sync()
            T.reduce_sum(sums, whole)
            for i, j in T.Parallel(1, width):
                Y[by + i, bx * width + j] = x[i, j] / whole[0]
        return Y

    x = random_array((rows, columns), "float32")
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    expected = powers / powers.sum(axis=1, keepdims=True)

    def check(arrays):
        np.testing.assert_allclose(arrays["Y"], expected, rtol=2e-5)

    check_clusters(kernel, {"X": x}, check)


@pytest.mark.parametrize("roles", [False, True])
def test_a_producer_and_a_consumer_in_two_blocks(roles):
    steps, stages = 5, 2

    @T.prim_func
    def kernel(A: T.Tensor((steps, 64), "int32"), B: T.Tensor((steps, 64), "int32")):
        with T.ClusterKernel(2, cluster_dims=2, threads=256) as bx:
            tile = T.alloc_shared((stages, 64), "int32")
            ring = T.alloc_shared((stages, 64), "int32")
            full = T.alloc_cluster_barrier([1] * stages)
            free = T.alloc_cluster_barrier([128 if roles else 256] * stages)
            T.cluster_sync()
            if roles:
                with T.ws(0):
                    if bx == 0:
                        for k in T.serial(steps):
                            T.mbarrier_wait_parity(free[k % stages], k // stages % 2 ^ 1)
                            T.copy(A[k, :], tile[k % stages, :])
                            T.copy_cluster(
                                tile[k % stages, :], ring[k % stages, :], dst_block=1,
                                remote_barrier=full[k % stages],
                            )  # fmt: skip
                with T.ws(1):
                    if bx == 1:
                        for k in T.serial(steps):
                            T.mbarrier_wait_parity(full[k % stages], k // stages % 2)
                            T.copy(ring[k % stages, :], B[k, :])
                            T.mbarrier_arrive(free[k % stages], 0)
            elif bx == 0:
                for k in T.serial(steps):
                    T.mbarrier_wait_parity(free[k % stages], k // stages % 2 ^ 1)
                    T.copy(A[k, :], tile[k % stages, :])
                    T.copy_cluster(
                        tile[k % stages, :], ring[k % stages, :], dst_block=1,
                        remote_barrier=full[k % stages],
                    )  # fmt: skip
            else:
                for k in T.serial(steps):
                    T.mbarrier_wait_parity(full[k % stages], k // stages % 2)
                    T.copy(ring[k % stages, :], B[k, :])
                    T.mbarrier_arrive(free[k % stages], cta_id=bx ^ 1)
            T.cluster_sync()

    a = random_array((steps, 64), "int32")
    check_clusters(kernel, {"A": a, "B": np.zeros_like(a)}, equals(B=a))


def test_threads_meet_within_their_block_of_a_cluster():
    @T.prim_func
    def kernel(A: T.Tensor((6, 64), "int32")):
        B = T.empty((6, 64), "int32")
        with T.ClusterKernel(2, 3, cluster_dims=(2, 1), threads=(32, 2)) as (bx, by):
            tx, ty = T.get_thread_binding(0), T.get_thread_binding(1)
            at = ty * 32 + tx
            own = T.alloc_shared((64,), "int32")
            theirs = T.alloc_shared((64,), "int32")
            last = T.alloc_local((1,), "int32")
            last[0] = T.shfl_xor(A[by * 2 + bx, at], 1)
            own[at] = last[0]
            T.sync_threads()
            own[63 - at] = own[63 - at] + at
            T.cluster_sync()
            T.copy_cluster(own, theirs, dst_block=1 - bx)
            T.cluster_sync()
            if ty == 1:
                T.sync_threads(3, 32)
            B[by * 2 + bx, at] = theirs[at] + last[0]
        return B

    a = random_array((6, 64), "int32") % 1000
    swapped = a.reshape(6, 32, 2)[:, :, ::-1].reshape(6, 64)
    own = swapped + np.arange(64)[::-1]
    expected = own.reshape(3, 2, 64)[:, ::-1].reshape(6, 64) + swapped
    check_clusters(kernel, {"A": a}, equals(B=expected.astype(np.int32)))


@pytest.mark.parametrize("limit", [1, 5, 9])
def test_clusters_that_take_ways_of_their_own(limit):
    @T.prim_func
    def kernel(A: T.Tensor((4, 32), "int32"), limit: T.int32):
        B = T.empty((4, 32), "int32")
        steps = T.empty((4,), "int32")
        with T.ClusterKernel(4, cluster_dims=2, threads=32) as bx:
            own = T.alloc_shared((32,), "int32")
            got = T.alloc_shared((32,), "int32")
            total = T.alloc_fragment((32,), "int32")
            n = T.alloc_var("int32", 0)
            T.copy(A[bx, :], own)
            T.clear(total)
            while n < 100:
                T.cluster_sync()
                T.copy_cluster(own, got, dst_block=1 - bx % 2)
                T.cluster_sync()
                for i in T.Parallel(32):
                    total[i] = total[i] + got[i] * (n + 1)
                    own[i] = own[i] + 1
                n += 1
                if n % 3 == 1:
                    continue
                if n * 2 > limit + bx // 2:
                    break
            if n > 2:
                for k in T.serial(2):
                    if k == 1:
                        T.cluster_sync()
                        T.copy_cluster(own, got, dst_block=1 - bx % 2)
                        T.cluster_sync()
            for i in T.Parallel(32):
                B[bx, i] = total[i] + got[i]
            steps[bx] = n
        return B, steps

    a = random_array((4, 32), "int32") % 10
    sums, counts = [], []
    for cluster, own in enumerate(a.reshape(2, 2, 32)):
        total, n = np.zeros_like(own), 0
        while n == 0 or n % 3 == 1 or n * 2 <= limit + cluster:
            got = own[::-1]
            total, own, n = total + got * (n + 1), own + 1, n + 1
        sums.append(total + (own[::-1] if n > 2 else got))
        counts += [n, n]
    check = equals(B=np.concatenate(sums), steps=np.array(counts, np.int32))
    check_clusters(kernel, {"A": a, "limit": limit}, check)


def test_votes_are_those_of_a_block():
    @T.prim_func
    def kernel(A: T.Tensor((4, 64), "int32")):
        B = T.empty((4, 3), "int32")
        with T.ClusterKernel(4, cluster_dims=2, threads=64) as bx:
            tx = T.get_thread_binding()
            own = T.alloc_shared((1,), "int32")
            got = T.alloc_shared((1,), "int32")
            count = T.syncthreads_count(A[bx, tx] > 0)
            some = T.syncthreads_or(A[bx, tx] > 8)
            own[0] = count
            T.cluster_sync()
            T.copy_cluster(own, got, dst_block=bx % 2 ^ 1)
            T.cluster_sync()
            B[bx, 0] = got[0]
            B[bx, 1] = count + some
            B[bx, 2] = T.syncthreads_and(A[bx, tx] >= -bx)
        return B

    a = random_array((4, 64), "int32") % 10 - 3
    a[1] = np.abs(a[1] % 7)
    count, some = (a > 0).sum(axis=1), (a > 8).any(axis=1)
    every = (a >= -np.arange(4)[:, None]).all(axis=1)
    expected = np.stack([count[[1, 0, 3, 2]], count + some, every], axis=1).astype(np.int32)
    check_clusters(kernel, {"A": a}, equals(B=expected))


def test_views_of_tiles_in_two_launches():
    n = T.dynamic("n")

    @T.prim_func
    def kernel(A: T.Tensor((n, 64), "float32")):
        with T.ClusterKernel(n, cluster_dims=2, threads=64) as bx:
            own = T.alloc_shared((64,), "float32")
            got = T.alloc_shared((8, 8), "float32")
            flat = T.reshape(got, (64,))
            T.copy(A[bx, :], own)
            T.cluster_sync()
            T.copy_cluster(own, flat, dst_block=bx % 2 ^ 1)
            T.cluster_sync()
            for i, j in T.Parallel(8, 8):
                A[bx, i * 8 + j] = got[i, j]
        with T.ClusterKernel(n, cluster_dims=2, threads=64) as bx:
            own = T.alloc_shared((64,), "float32")
            got = T.alloc_shared((64,), "float32")
            T.use_swizzle(2)
            T.copy(A[bx, :], own)
            T.cluster_sync()
            for i in T.Parallel(64):
                own[i] += bx
            T.copy_cluster(own, got, dst_block=1 - bx % 2)
            T.cluster_sync()
            T.copy(got, A[bx, :])

    a = integers(6, 64)
    expected = a + np.arange(6, dtype=np.float32)[[1, 0, 3, 2, 5, 4], None]
    check_clusters(kernel, {"A": a}, equals(A=expected))


def test_a_block_that_is_known_at_run_time():
    @T.prim_func
    def kernel(A: T.Tensor((4, 32), "int32"), to: T.Tensor((4,), "int32")):
        B = T.empty((4, 32), "int32")
        with T.ClusterKernel(4, cluster_dims=4, threads=32) as bx:
            own = T.alloc_shared((32,), "int32")
            got = T.alloc_shared((32,), "int32")
            bars = T.alloc_cluster_barrier(33)
            T.copy(A[bx, :], own)
            T.cluster_sync()
            T.copy_cluster(own, got, dst_block=to[bx], remote_barrier=bars)
            T.mbarrier_arrive(bars, to[bx])
            T.mbarrier_wait_parity(bars, 0)
            T.copy(got, B[bx, :])
            T.cluster_sync()
        return B

    a, to = random_array((4, 32), "int32"), np.array([2, 0, 3, 1], np.int32)
    expected = np.zeros_like(a)
    expected[to] = a
    check_clusters(kernel, {"A": a, "to": to}, equals(B=expected))
    with pytest.raises(RunError) as error:
        simulate(kernel.program, {"A": a, "to": to + 1})
    assert error.value.message.splitlines()[0] == "block 4 of a cluster of 4 does not exist"
    with pytest.raises(DeviceAssertError) as error:
        tw.compile(kernel)(a, to + 1)
    assert error.value.message.splitlines()[0] == (
        "'kernel': device assertion failed: the cluster of 4 blocks has no block of that rank"
    )


def swap(*, before=True, between=True, at_end=True):
    """Two blocks swap a row, with barriers of the cluster at three places."""

    @T.prim_func
    def kernel(A: T.Tensor((2, 32), "int32")):
        B = T.empty((2, 32), "int32")
        with T.ClusterKernel(2, cluster_dims=2, threads=32) as bx:
            own = T.alloc_shared((32,), "int32")
            got = T.alloc_shared((32,), "int32")
            bars = T.alloc_cluster_barrier(32)
            T.copy(A[bx, :], own)
            if before:
                T.cluster_sync()
            T.copy_cluster(own, got, dst_block=bx ^ 1)
            if between:
                T.cluster_sync()
            T.copy(got, B[bx, :])
            T.mbarrier_arrive(bars, bx ^ 1)
            if at_end:
                T.cluster_sync()
        return B

    return kernel.program


def test_memory_that_another_block_may_not_have_made():
    a = random_array((2, 32), "int32")
    assert simulate(swap(), {"A": a}).report.ok
    with pytest.raises(RunError) as error:
        simulate(swap(before=False), {"A": a})
    first, *_, last = error.value.render().splitlines()
    assert f"{first}\n{last}" == (
        "RunError: block 1 of the cluster may not have made 'got' yet, which block 0 uses\n"
        "hint: let the blocks wait for each other first, with T.cluster_sync()"
    )


def test_what_blocks_of_a_cluster_do_to_each_other_unordered():
    a = random_array((2, 32), "int32")
    found = simulate(swap(between=False), {"A": a}).report
    assert "one block of the cluster reads what another one writes, unordered by a barrier" in {
        race.detail for race in found.races
    }
    found = simulate(swap(at_end=False), {"A": a}).report
    assert {(race.buffer, race.detail) for race in found.races} == {
        ("bars", "belongs to a block that no barrier keeps from ending before this use of it")
    }


def test_two_blocks_write_to_one_place():
    @T.prim_func
    def kernel(A: T.Tensor((4, 32), "int32")):
        with T.ClusterKernel(4, cluster_dims=4, threads=32) as bx:
            own = T.alloc_shared((32,), "int32")
            got = T.alloc_shared((32,), "int32")
            T.copy(A[bx, :], own)
            T.cluster_sync()
            T.copy_cluster(own, got, dst_block=bx // 2)
            T.cluster_sync()
            if bx < 2:
                T.copy(got, A[bx, :])

    (race,) = simulate(kernel.program, {"A": random_array((4, 32), "int32")}).report.races
    assert race.buffer == "got"
    assert race.detail == "two blocks of the cluster write this element, unordered by a barrier"


def test_a_block_that_never_arrives():
    @T.prim_func
    def kernel(A: T.Tensor((4,), "int32")):
        with T.ClusterKernel(4, cluster_dims=2, threads=64) as bx:
            bars = T.alloc_cluster_barrier(64)
            T.cluster_sync()
            if bx == 1:
                T.mbarrier_arrive(bars, 0)
            T.mbarrier_wait_parity(bars, 0)
            T.cluster_sync()

    a = np.zeros(4, np.int32)
    with pytest.raises(DeadlockError) as error:
        simulate(kernel.program, {"A": a})
    assert error.value.message.startswith(
        "block (1) waits for ever: threads 0-63 wait for parity 0 of 'bars[0]', which lacks 64 of "
        "64 arrivals"
    )
    with pytest.raises(DeadlockError) as error:
        tw.compile(kernel)(a)
    first = error.value.message.splitlines()[0]
    assert first.startswith("deadlock: threads 0 to 63 of block 0 of the cluster wait in line")
    assert "threads 0 to 63 of block 1 of the cluster wait in line" in first
    assert first.endswith("for 'bars[0]'")


@settings(max_examples=tiers.examples(6), deadline=None)
@given(
    size=st.sampled_from([2, 3, 4]),
    rounds=st.lists(
        st.tuples(st.sampled_from(["shift", "all", "arrive"]), st.integers(0, 3)),
        min_size=1,
        max_size=4,
    ),
)
def test_exchanges_in_any_order(size, rounds):
    @T.prim_func
    def kernel(A: T.Tensor((2 * size, 32), "int32")):
        B = T.empty((2 * size, 32), "int32")
        with T.ClusterKernel(2 * size, cluster_dims=size, threads=32) as bx:
            rank = T.block_rank_in_cluster()
            own = T.alloc_shared((32,), "int32")
            got = T.alloc_shared((size, 32), "int32")
            bars = T.alloc_cluster_barrier([1] * len(rounds))
            T.copy(A[bx, :], own)
            T.fill(got, 0)
            T.cluster_sync()
            for number, (kind, by) in enumerate(rounds):
                if kind == "shift":
                    T.copy_cluster(own, got[by % size, :], dst_block=(rank + by) % size)
                    T.cluster_sync()
                elif kind == "all":
                    for to in T.serial(size):
                        T.copy_cluster(own, got[rank, :], dst_block=to)
                    T.cluster_sync()
                else:
                    to = (rank + by) % size
                    T.copy_cluster(own, got[0, :], dst_block=to, remote_barrier=bars[number])
                    T.mbarrier_wait_parity(bars[number], 0)
                    T.cluster_sync()  # the other block has what this one writes to next
                for i in T.Parallel(32):
                    for r in T.serial(size):
                        own[i] = own[i] * 3 + got[r, i]
                T.cluster_sync()
            T.copy(own, B[bx, :])
        return B

    a = random_array((2 * size, 32), "int32") % 100
    expected = []
    for own in a.reshape(2, size, 32):
        own, got = own.copy(), np.zeros((size, size, 32), np.int32)
        for kind, by in rounds:
            for rank in range(size):
                if kind == "all":
                    got[:, rank] = own[rank]
                else:
                    got[(rank + by) % size, by % size if kind == "shift" else 0] = own[rank]
            for r in range(size):
                own = own * 3 + got[:, r]
        expected.append(own)
    check_clusters(kernel, {"A": a}, equals(B=np.concatenate(expected)))
