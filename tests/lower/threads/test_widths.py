"""Why an access is not wider."""

from __future__ import annotations

from typing import Any

import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench.compiler.ir.program import Stage
from tileworkbench.compiler.lower.threads.widths import Widths
from tileworkbench.compiler.target import parse_target


def reasons(kernel: tw.Kernel) -> dict[str, tuple[int, str]]:
    """(bytes, why not twice as many) of the accesses to each tensor."""
    planned = [s.program for s in kernel.record.snapshots if s.program.stage is Stage.PLANNED]
    widths = Widths(planned[0], parse_target(kernel.target))
    counts = [found.count for found in kernel.requests]
    return {
        count.buffer: (count.width, widths.why_not_wider(count.site, count.buffer, count.width))
        for count in counts
    }


def copied(
    rows: int, columns: Any, source: str = "float16", goal: str = "float16", **options: Any
) -> dict[str, tuple[int, str]]:
    @tw.jit(target="sim:sm_80")
    def copy(A):
        A: T.Tensor((rows, columns), source)
        B = T.empty((rows, columns), goal)
        with T.Kernel(1, threads=128) as _:
            tile = T.alloc_fragment((rows, 64), source)
            T.copy(A[0, 0], tile, **options)
            T.copy(tile, B[0, 0])
        return B

    return reasons(copy.compile())


def test_the_widest() -> None:
    assert copied(64, 64)["A"] == (16, "a thread accesses at most 16 bytes at once")


def test_rows_that_are_not_aligned() -> None:
    reason = "rows of 'A' begin every 130 elements, which is no multiple of 4"
    assert copied(64, 130)["A"] == (4, reason)


def test_the_user_asks() -> None:
    assert copied(64, 64, coalesced_width=2)["A"] == (4, "'coalesced_width=2' asks for it")


def test_too_few_elements() -> None:
    assert copied(4, 64)["A"] == (4, "then only 64 of the 128 threads would have work")


def parallel(body: Any) -> dict[str, tuple[int, str]]:
    @tw.jit(target="sim:sm_80")
    def kernel(A):
        A: T.Tensor((256, 64), "float16")
        B = T.empty((256, 64), "float32")
        with T.Kernel(1, threads=128) as _:
            for i, j in T.Parallel(256, 64):
                B[i, j] = body(A, i, j)
        return B

    return reasons(kernel.compile())


@pytest.mark.parametrize(
    ("body", "width", "reason"),
    [
        (
            lambda A, i, j: A[i, j],
            8,
            "'B', which goes with it, has 4 elements in 16 bytes",
        ),
        (
            lambda A, i, j: A[i, 63 - j],
            2,
            "no 2 neighbours of 'A' are taken from a multiple of 2 on",
        ),
        (
            lambda A, i, j: A[i, (j + 1) % 64],
            2,
            "the index of 'A' is not known to step from neighbour to neighbour",
        ),
        (lambda A, i, j: A[i, 0], 2, "neighbouring iterations take the same element of 'A'"),
    ],
)
def test_what_neighbouring_iterations_take(body: Any, width: int, reason: str) -> None:
    assert parallel(body)["A"] == (width, reason)


def test_rows_of_unknown_length() -> None:
    @tw.jit(target="sim:sm_80")
    def scaled(A):
        M, N = T.dynamic("M, N")
        A: T.Tensor((M, N), "float32")
        B = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(M, 64), threads=128) as by:
            for i, j in T.Parallel(64, 64):
                B[by * 64 + i, j] = A[by * 64 + i, j] * 2.0
        return B

    kernel = scaled.compile()
    assert reasons(kernel)["A"] == (
        4, "rows of 'A' begin every 'N' elements, not known to be a multiple of 2"
    )  # fmt: skip
    assert {reasons(variant)["A"][0] for variant in kernel.variants} == {16}


def test_layouts() -> None:
    @tw.jit(target="sim:sm_80")
    def tiled(A):
        A: T.Tensor((64, 64), "float16")
        B = T.empty((64, 64), "float16")
        with T.Kernel(1, threads=128) as _:
            S = T.alloc_shared((64, 64), "float16")
            T.annotate_layout({S: lambda i, j: (i * 64 + (j ^ 2),)})
            T.copy(A, S)
            T.copy(S, B)
        return B

    found = reasons(tiled.compile())
    expected = (4, "the layout of 'S' keeps no 4 neighbours together")
    assert found == {"A": expected, "S": expected, "B": expected}


def test_the_threads_of_an_accumulator() -> None:
    from tests.viz.tiled import compiled

    found = reasons(compiled("mm"))
    assert found["C"] == (8, "the layout of 'C_local' gives a thread no 4 neighbours in a row")
    assert found["A"][0] == 16


def test_single_threads_of_the_kernel() -> None:
    @tw.jit(target="sim:sm_80")
    def plain(A):
        A: T.Tensor((128,), "float32")
        with T.Kernel(1, threads=128) as _:
            t = T.get_thread_binding()
            A[t] = A[t] + 1.0

    assert reasons(plain.compile())["A"] == (4, "")
