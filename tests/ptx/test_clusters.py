"""Clusters from their PTX: what kernels compute, and what is found where the text is changed."""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

import re

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench.compiler.diagnostics import ArgumentError, DeadlockError, RaceError, RunError
from tileworkbench.compiler.driver import compile_program
from tileworkbench.compiler.ir.parser import parse
from tileworkbench.compiler.sim.ptx import PtxProgram

pytestmark = pytest.mark.nvrtc


@T.prim_func
def ring(A: T.Tensor((8, 32), "float32"), B: T.Tensor((8, 32), "float32")):
    with T.ClusterKernel(8, cluster_dims=4, threads=64) as bx:
        rank = T.block_rank_in_cluster()
        mine = T.alloc_shared((32,), "float32")
        theirs = T.alloc_shared((32,), "float32")
        for i in T.Parallel(32):
            mine[i] = A[bx, i]
        for hop in T.serial(3):
            T.cluster_sync()
            T.copy_cluster(mine, theirs, dst_block=(rank + 1) % 4)
            T.cluster_sync()
            for i in T.Parallel(32):
                mine[i] += theirs[i]
        for i in T.Parallel(32):
            B[bx, i] = mine[i]


@T.prim_func
def sender(A: T.Tensor((128,), "float32"), B: T.Tensor((128,), "float32")):
    with T.Kernel(2, threads=128, cluster_dims=(2, 1, 1)) as bx:
        sent = T.alloc_shared((128,), "float32")
        got = T.alloc_shared((128,), "float32")
        bars = T.alloc_cluster_barrier([1])
        for i in T.Parallel(128):
            sent[i] = A[i]
        T.fill(got, 0.0)
        T.cluster_arrive()
        T.cluster_wait()
        if bx == 0:
            T.copy_cluster(sent, got, dst_block=1, remote_barrier=bars[0])
        if bx == 1:
            T.mbarrier_wait_parity(bars[0], 0)
            T.copy(got, B)
        T.cluster_sync()


def test_a_ring_of_four_blocks() -> None:
    kernel = tw.compile(ring, target="ptx:sm_90")
    a = np.arange(256, dtype=np.float32).reshape(8, 32)
    b = np.zeros_like(a)
    kernel(a, b)
    expected = a.reshape(2, 4, 32)
    for _ in range(3):
        expected = expected + np.roll(expected, 1, axis=1)
    assert np.array_equal(b, expected.reshape(8, 32))
    assert [launch.cluster for launch in kernel.compiled.module.launches] == [(4,)]


READ = """
@T.program(stage="tile")
def reader(A: T.Tensor((2, 32), "float32"), B: T.Tensor((2, 32), "float32")):
    with T.Kernel(2, threads=32, cluster=(2,)) as bx:
        S = T.alloc_shared((32,), "float32")
        T.copy(A[bx:bx + 1, 0:32], S[0:32])
        T.cluster_sync()
        S_peer = T.peer(S, 1 - bx)
        T.copy(S_peer[0:32], B[bx:bx + 1, 0:32])
        T.cluster_sync()
"""


@pytest.mark.parametrize("target", ["sim:sm_90", "ptx:sm_90"])
def test_a_tile_of_another_block_is_read(target: str) -> None:
    a, b = np.arange(64, dtype=np.float32).reshape(2, 32), np.zeros((2, 32), np.float32)
    compile_program(parse(READ), target)(a, b)
    assert np.array_equal(b, a[::-1])


def run(*changes: tuple[str, str]) -> bool:
    """Run `sender` from its PTX with these first occurrences replaced; whether it is right."""
    text = tw.compile(sender, target="ptx:sm_90").asm
    for old, new in changes:
        text, count = re.subn(old, new, text, count=1)
        assert count, old
    program = PtxProgram.parse(text)
    a, b = np.arange(128, dtype=np.float32), np.zeros(128, np.float32)
    program.launch("sender", (2,), (128,), [a, b], 2048, cluster=(2,))
    return bool(np.array_equal(a, b))


ARRIVE, WAIT = "barrier.cluster.arrive;", "barrier.cluster.wait;"
MISTAKES: dict[str, tuple[list[tuple[str, str]], type[RunError], str]] = {
    "a block that may not have begun": (
        [(ARRIVE, ""), (WAIT, "")],
        RaceError,
        "thread (0, 0, 0) of block (0, 0, 0) uses shared memory of block 1 of its cluster, which "
        "may not have begun",
    ),
    "an arrival that orders nothing": (
        [(ARRIVE, "barrier.cluster.arrive.relaxed;")],
        RaceError,
        "thread (0, 0, 0) of block (0, 0, 0) uses shared memory of block 1 of its cluster, which "
        "may not have begun",
    ),
    "a second arrival": (
        [(ARRIVE, ARRIVE + ARRIVE)],
        RunError,
        "thread (0, 0, 0) of block (0, 0, 0) arrives twice without waiting at the barrier of its "
        "cluster: ",
    ),
    "a wait alone": (
        [(ARRIVE, "")],
        RunError,
        "thread (0, 0, 0) of block (0, 0, 0) waits and has not arrived at the barrier of its "
        "cluster: ",
    ),
    "a signal for threads of one block": (
        [("arrive.release.cluster.shared::cluster", "arrive.release.cta.shared::cluster")],
        RaceError,
        "which thread 0 of block 0 of the cluster wrote with no synchronisation between",
    ),
    "a wait for threads of one block": (
        [("parity.acquire.cluster", "parity.acquire.cta")],
        RaceError,
        "which thread 0 of block 0 of the cluster wrote with no synchronisation between",
    ),
}


def test_a_copy_to_another_block() -> None:
    assert run()


@pytest.mark.parametrize("name", MISTAKES)
def test_what_is_found(name: str) -> None:
    changes, kind, sentence = MISTAKES[name]
    with pytest.raises(RunError) as caught:
        run(*changes)
    assert isinstance(caught.value, kind) and sentence in str(caught.value)


def test_a_block_that_has_ended() -> None:
    with pytest.raises(RaceError) as caught:
        run((r"(setp.ne.s32[^;]*, 1;)", r"exit; \1"))  # the receiver waits for nothing
    place = str(caught.value).partition("ended: ")[2].partition("\n")[0]
    assert str(caught.value) == (
        "thread (0, 0, 0) of block (0, 0, 0) uses shared memory of block 1 of its cluster, which "
        f"has ended: {place}\n"
        "hint: let all blocks wait at 'barrier.cluster' first, and before they end"
    )


def test_a_rank_that_the_cluster_lacks() -> None:
    with pytest.raises(RunError) as caught:
        run((r"mapa.u64 (%rd\d+), (%rd\d+), (%r\d+);", r"mapa.u64 \1, \2, 7;"))
    assert str(caught.value).startswith(
        "thread (0, 0, 0) of block (0, 0, 0) names block 7 of a cluster of 2: "
    )


def test_a_grid_without_whole_clusters() -> None:
    program = PtxProgram.parse(tw.compile(ring, target="ptx:sm_90").asm)
    a = np.zeros((8, 32), np.float32)
    with pytest.raises(ArgumentError) as caught:
        program.launch("ring", (6,), (64,), [a, a.copy()], 1024, cluster=(4,))
    assert caught.value.message == "a grid of (6, 1, 1) blocks is not made of clusters of (4, 1, 1)"


def test_only_the_clusters_of_some_blocks() -> None:
    program = PtxProgram.parse(tw.compile(ring, target="ptx:sm_90").asm)
    a, b = np.ones((8, 32), np.float32), np.zeros((8, 32), np.float32)
    program.launch("ring", (8,), (64,), [a, b], 1024, cluster=(4,), blocks=[5])
    assert (b[:4] == 0).all() and (b[4:] == 8).all()


def test_who_never_arrives() -> None:
    with pytest.raises(DeadlockError, match="for 128 threads of its cluster"):
        run((r"st.global.f32[^;]*;", "bar.sync 1, 256;"))
