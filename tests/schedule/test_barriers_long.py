"""Barriers of kernels of many statements."""

from __future__ import annotations

from typing import Any

import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench.compiler.schedule.thread_accesses import ThreadAccess
from tileworkbench.compiler.schedule.thread_conflicts import ThreadConflicts


@T.prim_func
def short(A: T.Tensor((64,), "float32")):
    C = T.empty((64,), "float32")
    with T.Kernel(1, threads=64):
        for i in T.Parallel(64):
            C[i] = A[i]
            C[i] = C[i] * 1.5
            C[i] = C[i] * 1.5
            C[i] = C[i] * 1.5
    return C


@T.prim_func
def long(A: T.Tensor((64,), "float32")):
    C = T.empty((64,), "float32")
    with T.Kernel(1, threads=64):
        for i in T.Parallel(64):
            C[i] = A[i]
            C[i] = C[i] * 1.5
            C[i] = C[i] * 1.5
            C[i] = C[i] * 1.5
            C[i] = C[i] * 1.5
            C[i] = C[i] * 1.5
            C[i] = C[i] * 1.5
            C[i] = C[i] * 1.5
            C[i] = C[i] * 1.5
            C[i] = C[i] * 1.5
            C[i] = C[i] * 1.5
            C[i] = C[i] * 1.5
            C[i] = C[i] * 1.5
    return C


def compared(monkeypatch: pytest.MonkeyPatch, kernel: Any) -> int:
    """How many pairs of accesses are compared for the barriers of a kernel."""
    plain = ThreadConflicts.conflicts
    pairs: list[tuple[ThreadAccess, ThreadAccess]] = []

    def noted(self: ThreadConflicts, a: ThreadAccess, b: ThreadAccess) -> bool:
        pairs.append((a, b))
        return plain(self, a, b)

    with monkeypatch.context() as patched:
        patched.setattr(ThreadConflicts, "conflicts", noted)
        tw.compile(kernel, target="sim:sm_80")
    return len(pairs)


def test_accesses_that_meet_the_same_others_are_compared_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TILEWORKBENCH_DISABLE_CACHE", "1")
    few, many = compared(monkeypatch, short), compared(monkeypatch, long)
    assert 0 < few < many <= 6 * few  # four times the statements: all pairs are sixteen times
