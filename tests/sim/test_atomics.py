"""Atomic accesses in the simulator: in parallel loops, by every thread, outside tensors."""

from __future__ import annotations

import numpy as np
import pytest

from tests.sim.kernels import block, program
from tileworkbench.compiler.sim import FindingKind, simulate

N = np.array([5, 7], np.int32)


def test_each_iteration_updates_once_and_sees_what_was_there_before() -> None:
    text = block("""
        for i in T.Parallel(4):
            old = T.atomic_add(N[0], i)
            P[i] = old
    """)
    result = simulate(
        program("N: (2,) int32; P: (4,) int32", text), {"N": N, "P": np.zeros(4, np.int32)}
    )
    assert result.report.ok
    assert result.arrays["N"].tolist() == [11, 7]
    assert result.arrays["P"].tolist() == [5, 5, 6, 8]


@pytest.mark.parametrize(
    ("call", "value"),
    [
        ("T.atomic_add(N[0], 2)", 5 + 2 * 128),
        ("T.atomic_max(N[0], 9)", 9),
        ("T.atomic_store(N[0], 9)", 9),
    ],
)
def test_outside_parallel_every_thread_updates(call: str, value: int) -> None:
    assert simulate(program("N: (2,) int32", block(call)), {"N": N}).arrays["N"].tolist() == [
        value,
        7,
    ]


def test_lanes_that_are_masked_or_outside_do_nothing() -> None:
    text = block("""
        for i in T.Parallel(4):
            if i != 1:
                old = T.atomic_add(N[i], 1)
                P[i] = old
    """)
    made = program("N: (2,) int32; P: (4,) int32", text, safe_values={"N": -1})
    result = simulate(made, {"N": N, "P": np.zeros(4, np.int32)})
    assert result.arrays["N"].tolist() == [6, 7]
    assert result.arrays["P"].tolist() == [5, 0, -1, -1]


@pytest.mark.parametrize(("before", "ok"), [("S[0] = 1", True), ("pass", False)])
def test_an_update_of_memory_that_was_never_written_is_found(before: str, ok: bool) -> None:
    text = block(
        f'S = T.alloc_shared((2,), "int32")\n{before}\n'
        "for i in T.Parallel(4):\n    T.atomic_add(S[0], i)"
    )
    report = simulate(program("N: (2,) int32", text), {"N": N}).report
    assert report.ok == ok
    assert [found.kind for found in report.findings] == [] if ok else [FindingKind.UNINITIALISED]
