"""Planted mistakes of threads are found on waves of 64: races, bounds, undefined values,
divergence and deadlocks.
"""

# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tests.sim.threads import threads
from tileworkbench.compiler.diagnostics import DeadlockError, DivergenceError, OutOfBoundsError
from tileworkbench.compiler.sim import SimResult, simulate

SHARED = 'S = T.alloc_shared((128,), "int32", offset=0)\n'


def run(body: str, count: int = 128) -> SimResult:
    made = threads("B: (128,) int32", body, count, target="sim:gfx942")
    return simulate(made, {"B": np.zeros(128, np.int32)})


def test_waves_are_ordered_by_a_barrier_of_the_block() -> None:
    found = run(f"{SHARED}S[tx] = tx\nT.sync_threads()\nB[tx] = S[127 - tx]")
    assert found.report.ok
    assert found.arrays["B"].tolist() == list(range(127, -1, -1))


@pytest.mark.parametrize("between", ["pass", "T.sync_warp(T.uint32(4294967295))"])
def test_without_one_another_wave_is_in_a_race(between: str) -> None:
    report = run(f"{SHARED}S[tx] = tx\n{between}\nB[tx] = S[127 - tx]").report
    assert {finding.buffer for finding in report.races} == {"S"}


WARP = "T.sync_warp(T.uint32(4294967295))"


@pytest.mark.parametrize(("distance", "ok"), [(1, True), (32, True), (64, False)])
def test_a_warp_barrier_orders_the_whole_wave(distance: int, ok: bool) -> None:
    """Both of its warps, which execute it together."""
    found = run(f"{SHARED}S[tx] = tx\n{WARP}\nB[tx] = S[tx ^ {distance}]")
    assert found.report.ok == ok
    if ok:
        assert found.arrays["B"].tolist() == [tx ^ distance for tx in range(128)]


def test_half_a_wave_does_not_wait_for_the_other() -> None:
    body = f"if tx < 32:\n    S[tx] = tx\n    {WARP}\n    B[tx] = S[31 - tx]"
    assert run(SHARED + body).report.ok


@pytest.mark.parametrize(("distance", "barriers"), [(1, 0), (32, 0), (64, 1)])
def test_a_barrier_of_the_block_is_added_for_another_wave_alone(
    distance: int, barriers: int
) -> None:
    @T.prim_func
    def kernel(A: T.Tensor((128,), "int32"), B: T.Tensor((128,), "int32")):
        with T.Kernel(1, threads=128):
            tx = T.get_thread_binding()
            s = T.alloc_shared((128,), "int32")
            s[tx] = A[tx]
            T.sync_warp()
            B[tx] = s[tx ^ distance]

    made = tw.compile(kernel, target="sim:gfx942")
    calls = [line.strip() for line in made.source.splitlines() if line.startswith("  sync_")]
    assert calls == ["sync_wave();", *["sync_block();"] * barriers]
    given, found = np.arange(128, dtype=np.int32), np.zeros(128, np.int32)
    made(given, found)
    assert found.tolist() == [tx ^ distance for tx in range(128)]


def test_what_lies_behind_a_barrier_is_unordered_with_the_next_write() -> None:
    loop = "for k in T.serial(2):\n    S[tx] = k\n    T.sync_threads()\n    B[tx] = S[127 - tx]"
    assert run(SHARED + loop).report.races
    assert run(SHARED + loop + "\n    T.sync_threads()").report.ok


def test_lds_begins_undefined() -> None:
    report = run(f"{SHARED}if tx < 64:\n    S[tx] = tx\nT.sync_threads()\nB[tx] = S[tx]").report
    (found,) = report.uninitialised
    assert (found.buffer, found.count) == ("S", 64)


@pytest.mark.parametrize("body", ["B[tx + 1] = 1", f"{SHARED}S[tx + 1] = tx"])
def test_a_place_outside(body: str) -> None:
    with pytest.raises(OutOfBoundsError) as caught:
        run(body)
    assert "thread 127" in caught.value.message


@pytest.mark.parametrize(("first", "waiting"), [(64, "0-63"), (32, "0-31")])
def test_a_barrier_that_one_wave_or_half_of_one_does_not_reach(first: int, waiting: str) -> None:
    with pytest.raises(DeadlockError) as caught:
        run(f"if tx < {first}:\n    T.sync_threads()\nB[tx] = 1")
    assert caught.value.message.startswith(
        f"block (0) waits for ever: threads {waiting} wait at barrier 0, where {first} of 128"
    )


def test_a_shuffle_that_some_lanes_do_not_reach() -> None:
    with pytest.raises(DivergenceError) as caught:
        run("if tx < 40:\n    y = T.shfl(tx, 3)\n    B[tx] = y")
    assert caught.value.message == (
        "'shfl' is executed by 8 of the 32 threads of warp 1 that must take part in block (0)"
    )
