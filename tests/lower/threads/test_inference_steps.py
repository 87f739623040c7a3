"""The explanation of inferred layouts: each verdict, with a kernel that leads to it."""

from __future__ import annotations

import tileworkbench as tw
import tileworkbench.language as T
from tests.viz.tiled import conflicting
from tileworkbench.compiler.ir.decisions import Verdict
from tileworkbench.kernels import softmax
from tileworkbench.viz.model.layout_steps import layout_steps


@tw.jit(target="sim:sm_80")
def twice(A, B):
    A: T.Tensor((64, 64), "float16")
    B: T.Tensor((64, 64), "float16")
    C = T.empty((64, 64), "float32")
    with T.Kernel(1, threads=128):
        a = T.alloc_shared((64, 64), "float16")
        b = T.alloc_shared((64, 64), "float16")
        c = T.alloc_fragment((64, 64), "float32")
        T.copy(A, a)
        T.copy(B, b)
        T.clear(c)
        T.gemm(a, b, c)
        T.gemm(b, a, c)
        T.copy(c, C)
    return C


@tw.jit(target="sim:sm_80")
def mixed(A, B):
    A: T.Tensor((64, 64), "float16")
    B: T.Tensor((64, 64), "float32")
    C = T.empty((64, 64), "float16")
    D = T.empty((64, 64), "float32")
    with T.Kernel(1, threads=128):
        a = T.alloc_fragment((64, 64), "float16")
        b = T.alloc_fragment((64, 64), "float32")
        T.copy(A, a)
        T.copy(B, b)
        for i, j in T.Parallel(64, 64):
            b[i, j] = b[i, j] + T.cast(a[i, j], "float32")
        T.copy(a, C)
        T.copy(b, D)
    return C, D


@tw.jit(target="sim:sm_80")
def transposed(A):
    A: T.Tensor((64, 64), "float32")
    C = T.empty((64, 64), "float32")
    with T.Kernel(1, threads=128):
        a = T.alloc_fragment((64, 64), "float32")
        t = T.alloc_fragment((64, 64), "float32")
        m = T.alloc_fragment((64,), "float32")
        T.copy(A, a)
        T.reduce_max(a, m, dim=1)
        for i, j in T.Parallel(64, 64):
            t[i, j] = a[j, i] + m[i]
        T.copy(t, C)
    return C


def steps(kernel: tw.Kernel, *verdicts: Verdict) -> list[tuple[str, str, str]]:
    """Verdict, the line's code and the sentence of the steps with these verdicts."""
    wanted = [verdict.value for verdict in verdicts]
    every = layout_steps(kernel.record)
    return [
        (step["verdict"], step["code"], step["text"]) for step in every if step["verdict"] in wanted
    ]


def test_who_dictates_what_is_dictated_already_agrees() -> None:
    line = "T.gemm(b, a, c)"
    assert steps(twice.compile(), Verdict.AGREED) == [
        ("agreed", line, "T.gemm · c: holds the result of a matrix product"),
        ("agreed", line, "T.gemm · b: is operand A of a matrix product"),
        ("agreed", line, "T.gemm · a: is operand B of a matrix product"),
    ]


def test_a_wish_yields_to_what_the_user_says() -> None:
    found = steps(conflicting.compile(), Verdict.SET, Verdict.YIELDED)
    line = "T.gemm(A_shared, B_shared, C_local)"
    given = "A_shared: has a given layout (T.annotate_layout, or an earlier pass)"
    assert found[0] == ("set", "", given)
    assert [step for step in found if step[0] == "yielded"] == [
        ("yielded", line, "T.gemm · A_shared: is operand A of a matrix product"),
    ]


def test_what_costs_more_is_rejected_and_the_cheapest_chosen() -> None:
    cost = "choosing first it costs {} bytes of traffic and 64 registers a thread"
    assert steps(mixed.compile(), Verdict.REJECTED, Verdict.CHOSEN) == [
        ("rejected", "T.copy(A, a)", f"T.copy: {cost.format(81920)}, not 49152 and 64"),
        (
            "rejected",
            "for i, j in T.Parallel(64, 64):",
            f"T.Parallel: {cost.format(65536)}, not 49152 and 64",
        ),
        ("chosen", "T.copy(B, b)", f"T.copy: {cost.format(49152)}: nothing costs less"),
    ]


def test_of_equal_choices_the_first_is_taken() -> None:
    found = steps(
        tw.compile(softmax(128, 512), target="sim:sm_80"), Verdict.REJECTED, Verdict.CHOSEN
    )
    cost = "choosing first it costs 4096 bytes of traffic and 6 registers a thread"
    assert [(verdict, text) for verdict, _, text in found] == [
        ("rejected", f"T.Parallel: {cost}, no less than what comes before it"),
        ("chosen", f"T.copy: {cost}: nothing costs less"),
    ]


def test_a_choice_that_does_not_work_out_is_rejected_with_the_conflict() -> None:
    conflict = "some threads would read elements of 'm' that they do not hold"
    found = steps(transposed.compile(), Verdict.REJECTED, Verdict.CHOSEN)
    assert found[:3] == [
        ("rejected", "T.copy(A, a)", f"T.copy · m: {conflict}"),
        ("rejected", "T.reduce_max(a, m, dim=1)", f"T.reduce_max · m: {conflict}"),
        (
            "rejected",
            "for i, j in T.Parallel(64, 64):",
            "T.Parallel · m: 'm' already has another layout",
        ),
    ]
    assert [(verdict, code) for verdict, code, _ in found[3:]] == [("chosen", "T.copy(t, C)")]
