"""What a report says of accesses outside tensors: which line, how many, where; and what raises."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tileworkbench as tw
from tests.frontend.golden import program_of
from tests.messages.test_calls import rendered
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.sim import Masked, SimOptions, SimReport, simulate

HEAD = (
    '@T.prim_func\ndef kernel(A: T.Tensor((4096,), "float32"), B: T.Tensor((4096,), "float32"), '
    'I: T.Tensor((64,), "int32"), C: T.Tensor((100, 70), "float32")):\n'
)


def kernel(body: str, grid: str = "32", names: str = "bx") -> Program:
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    return program_of(f"{HEAD}    with T.Kernel({grid}, threads=64) as {names}:\n{lines}")


def run(program: Program, **options: Any) -> SimReport:
    index = np.arange(64, dtype=np.int32)
    index[40] = 5000
    arrays = {
        "A": np.zeros(4096, "f"),
        "B": np.zeros(4096, "f"),
        "I": index,
        "C": np.zeros((100, 70), "f"),
    }
    return simulate(program, arrays, options=SimOptions(**options)).report


def only(program: Program) -> Masked:
    (found,) = run(program).masked
    return found


# (lines, grid, block indices, what is said, whether it is away from the borders)
PLACES = {
    "past the end": (
        "for i in T.Parallel(128):\n    B[bx * 128 + i] = A[bx * 128 + i + 1]",
        *("32", "bx"),
        "A, line 5, 1 of 4096 elements, in the last block only",
        False,
    ),
    "before the beginning": (
        "for i in T.Parallel(128):\n    B[bx * 128 + i] = A[bx * 128 + i - 2]",
        *("32", "bx"),
        "A, line 5, 2 of 4096 elements, in the first block only",
        False,
    ),
    "a wrong factor": (
        "for i in T.Parallel(128):\n    B[bx * 128 + i] = A[bx * 256 + i]",
        *("32", "bx"),
        "A, line 5, 2048 of 4096 elements, in 16 of 32 blocks, away from the borders",
        True,
    ),
    "a ragged tile along y": (
        'S = T.alloc_shared((32, 35), "float32")\nT.copy(C[by * 32, bx * 35], S)',
        *("2, 4", "(bx, by)"),
        "C, line 5, 1960 of 8960 elements, in the last blocks along y only",
        False,
    ),
    "ragged tiles along both": (
        'S = T.alloc_shared((32, 32), "float32")\nT.copy(C[by * 32, bx * 32], S)',
        *("3, 4", "(bx, by)"),
        "C, line 5, 5288 of 12288 elements, at the borders only",
        False,
    ),
    "a ragged loop": (
        'S = T.alloc_shared((25, 32), "float32")\nfor k in T.serial(3):\n'
        "    T.copy(C[bx * 25, k * 32], S)",
        *("4", "bx"),
        "C, line 6, 2600 of 9600 elements, in the last iteration of 'k' only",
        False,
    ),
    "a tile wider than a row": (
        'S = T.alloc_shared((1, 128), "float32")\nT.copy(C[bx, 0], S)',
        *("100", "bx"),
        "C, line 5, 5800 of 12800 elements, in all blocks, past the end of dimension 1",
        False,
    ),
    "a tile before every row": (
        "for i in T.Parallel(40):\n    B[bx * 40 + i] = C[bx, i - 2]",
        *("100", "bx"),
        "C, line 5, 200 of 4000 elements, in all blocks, before the start of dimension 1",
        False,
    ),
    "a tile taller than the tensor, ragged along the other side": (
        'S = T.alloc_shared((128, 32), "float32")\nT.copy(C[0, bx * 32], S)',
        *("3", "bx"),
        "C, line 5, 5288 of 12288 elements, in all blocks, past the end of dimension 0; in the "
        "last block only",
        False,
    ),
    "one block": (
        "for i in T.Parallel(2):\n    B[4095 + i] = 1.0",
        *("1", "bx"),
        "B, line 5, 1 of 2 elements",
        False,
    ),
}


@pytest.mark.parametrize("case", PLACES.values(), ids=list(PLACES))
def test_the_line_of_a_report(case: tuple[str, str, str, str, bool]) -> None:
    body, grid, names, text, away = case
    found = only(kernel(body, grid, names))
    assert (found.text, found.away) == (text, away)
    assert str(found) == "masked: " + text.replace("line", "kernel.py, line", 1)
    assert not found.from_data


SCATTER = "for i in T.Parallel(32):\n    B[I[bx * 32 + i]] = 1.0"
WARNING = (
    "'B[5000]' is outside 'B' of shape (4096) in block (1), iteration (8): nothing is stored; its "
    "index comes from data: ask in an 'if' whether it is inside, or give reads a value with "
    "T.annotate_safe_value"
)


def test_an_index_that_comes_from_data() -> None:
    found = only(kernel(SCATTER, "2"))
    assert found.from_data
    assert found.note().render("warning") == (
        f"warning: {WARNING}\n"
        "  --> kernel.py, line 5\n"
        "5 | B[I[bx * 32 + i]] = 1.0\n"
        "  | ^^^^^^^^^^^^^^^^^^^^^^^"
    )


def test_only_the_access_by_data_is_said_to_come_from_data() -> None:
    body = "for i in T.Parallel(32):\n    C[0, i] = A[I[bx * 32 + i]] + A[bx * 4080 + i]"
    found = run(kernel(body, "2")).masked
    assert [(each.from_data, each.count) for each in found] == [(True, 1), (False, 16)]


@pytest.mark.parametrize("kind", ["tile", "threads"])
def test_sanitize_makes_it_an_error(kind: str) -> None:
    body = SCATTER if kind == "tile" else "tx = T.get_thread_binding()\nB[I[tx]] = 1.0"
    program = kernel(body, "2" if kind == "tile" else "1")
    who = "block (1), iteration (8)" if kind == "tile" else "block (0), thread 40"
    line = "B[I[bx * 32 + i]] = 1.0" if kind == "tile" else "B[I[tx]] = 1.0"
    assert rendered(lambda: run(program, sanitize=True), tw.OutOfBoundsError) == (
        f"OutOfBoundsError: 'B[5000]' is outside 'B' of shape (4096) in {who}: nothing is stored\n"
        "  --> kernel.py, line 5\n"
        f"5 | {line}\n"
        f"  | {'^' * len(line)}\n"
        "hint: its index comes from data: ask in an 'if' whether it is inside, or give reads a "
        "value with T.annotate_safe_value"
    )


def test_sanitize_leaves_other_masked_accesses() -> None:
    body = "for i in T.Parallel(128):\n    B[bx * 128 + i] = A[bx * 128 + i + 1]"
    assert run(kernel(body), sanitize=True).ok


# Part of a run


def test_some_blocks_are_the_borders_and_some_between() -> None:
    body = "for i in T.Parallel(128):\n    B[bx * 128 + i] = A[bx * 128 + i + 1]"
    found = run(kernel(body), most_blocks=4)
    assert (found.blocks, found.extent) == (4, "4 of 32 blocks")
    assert str(found).startswith("ok: 4 of 32 blocks simulated\n")
    assert found.masked[0].text == "A, line 5, 1 of 512 elements, in the last block only"
    assert run(kernel(body), most_blocks=32).extent == "32 blocks"


def test_blocks_that_meet_are_found_among_four() -> None:
    body = "for i in T.Parallel(128):\n    B[bx * 64 + i] = A[bx] + bx"
    assert run(kernel(body), most_blocks=4).races


def test_nothing_comes_after_an_incomplete_launch() -> None:
    source = (
        f"{HEAD}    with T.Kernel(32, threads=64) as bx:\n        B[bx] = 1.0\n"
        "    with T.Kernel(1, threads=64) as bx:\n        A[0] = B[20]\n"
    )
    assert run(program_of(source), most_blocks=4).blocks == 4
    assert run(program_of(source)).blocks == 33


def test_blocks_that_wait_for_each_other_run_all_or_not_at_all() -> None:
    body = "tx = T.get_thread_binding()\nB[bx * 64 + tx] = 1.0\nT.sync_grid()\nA[bx] = B[0]"
    assert run(kernel(body, "6"), most_blocks=4).extent == "0 of 6 blocks"
    assert run(kernel(body, "3"), most_blocks=4).extent == "3 blocks"


@pytest.mark.parametrize("count", [0, 3, 10])
def test_a_run_ends_after_its_statements(count: int) -> None:
    found = run(kernel("B[bx] = 1.0\nA[bx] = 2.0"), most_statements=count)
    assert (found.timed_out, sum(found.executions)) == (True, count)


def test_a_run_that_needs_no_more_statements_is_whole() -> None:
    found = run(kernel("B[bx] = 1.0"), most_statements=1000)
    assert not found.timed_out and found.extent == "32 blocks"


def test_a_run_ends_after_its_time() -> None:
    body = "for k in T.serial(2000000000):\n    B[bx] = B[bx] + 1.0"
    found = run(kernel(body), seconds=0.05)
    assert found.extent == "1 of 32 blocks"
    assert found.timed_out and not run(kernel("B[bx] = 1.0"), seconds=60.0).timed_out
