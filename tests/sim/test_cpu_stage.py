"""Flat programs of the CPU stage: vector loops, explicit vectors, predicates and scratch memory."""

from __future__ import annotations

import numpy as np
import pytest

from tests.sim.kernels import program
from tileworkbench.compiler.diagnostics import OutOfBoundsError
from tileworkbench.compiler.sim import SimOptions, simulate

X = np.arange(1, 17, dtype=np.float32)


def cpu(parameters: str, body: str, scratch: int = 0) -> object:
    lines = "\n".join("    " + line for line in body.strip("\n").splitlines())
    return program(
        parameters, f"for block in T.blocks(1):\n{lines}", stage="cpu", scratch_bytes=scratch
    )


def test_a_vector_loop_runs_statement_by_statement() -> None:
    # One by one, every element would become the first; as a vector they move by one.
    made = cpu("A: (16,) float32", "for i in T.vectorized(8):\n    A[i + 1] = A[i]")
    found = simulate(made, {"A": X}).arrays["A"]
    np.testing.assert_array_equal(found, [1, *X[:8], *X[9:]])


def test_lanes_of_a_vector_store_must_not_meet() -> None:
    made = cpu("A: (16,) float32", "for i in T.vectorized(8):\n    A[i // 2] = 1.0")
    assert [found.index for found in simulate(made, {"A": X}).report.races] == [(0,)]
    made = cpu("A: (16,) float32", "for i in T.vectorized(8):\n    A[i * 2] = 1.0")
    assert simulate(made, {"A": X}).report.ok


def test_predicates_mask_memory() -> None:
    body = """
for i in T.vectorized(8):
    T.store(A[i + 12], T.load(A[i + 12], i < 4, 7.0) * 2.0, i < 4)
"""
    found = simulate(cpu("A: (16,) float32", body), {"A": X})
    np.testing.assert_array_equal(found.arrays["A"], [*X[:12], *(X[12:] * 2)])
    assert found.report.ok and not found.report.masked


def test_the_value_of_a_masked_load_is_the_safe_one() -> None:
    body = """
for i in T.vectorized(8):
    A[i] = T.load(A[i + 12], i < 4, 7.0)
A[9] = T.load(A[99], A[8] > 99.0)
"""
    found = simulate(cpu("A: (16,) float32", body), {"A": X}).arrays["A"]
    assert found.tolist()[:10] == [13, 14, 15, 16, 7, 7, 7, 7, 9, 0]


def test_outside_a_global_buffer_is_an_error_without_a_predicate() -> None:
    made = cpu("A: (16,) float32", "for i in T.vectorized(8):\n    A[i] = A[i + 12]")
    with pytest.raises(OutOfBoundsError) as caught:
        simulate(made, {"A": X})
    assert caught.value.message == "'A[16]' is outside 'A' of shape (16) in block (0)"


def test_explicit_vectors() -> None:
    body = """
v = A[T.Ramp(0, 2, 8)] * T.Broadcast(A[1], 8)
A[T.Ramp(8, 1, 8)] = v
A[0] = T.lanes_sum(v)
A[1] = T.lanes_max(v)
A[2] = T.lanes_min(v)
"""
    found = simulate(cpu("A: (16,) float32", body), {"A": X})
    v = X[::2] * X[1]
    np.testing.assert_array_equal(found.arrays["A"], [v.sum(), v.max(), v.min(), *X[3:8], *v])
    assert found.report.ok


def test_an_explicit_vector_with_a_predicate() -> None:
    body = (
        "T.store(A[T.Ramp(12, 1, 8)], T.Broadcast(5.0, 8), T.Ramp(12, 1, 8) < T.Broadcast(16, 8))"
    )
    found = simulate(cpu("A: (16,) float32", body), {"A": X})
    np.testing.assert_array_equal(found.arrays["A"], [*X[:12], 5, 5, 5, 5])


def test_buffers_share_the_arena() -> None:
    body = """
S = T.alloc_shared((4,), "float32", offset=0)
R = T.alloc_shared((4,), "int32", offset=%d)
for i in T.serial(4):
    S[i] = A[i]
for j in T.serial(4):
    R[j] = 0
for k in T.serial(4):
    A[k + 4] = S[k]
"""
    found = simulate(cpu("A: (16,) float32", body % 16, 32), {"A": X})
    np.testing.assert_array_equal(found.arrays["A"][4:8], X[:4])
    found = simulate(cpu("A: (16,) float32", body % 0, 32), {"A": X})
    assert not found.arrays["A"][4:8].any()  # R lies on S


def test_memory_is_new_at_each_allocation() -> None:
    body = """
for i in T.serial(2):
    S = T.alloc_local((1,), "float32")
    if i == 0:
        S[0] = 1.0
    A[i] = S[0]
"""
    found = simulate(cpu("A: (16,) float32", body), {"A": X}, options=SimOptions())
    assert [(finding.buffer, finding.count) for finding in found.report.uninitialised] == [("S", 1)]
