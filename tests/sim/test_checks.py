"""What the simulator finds in wrong kernels, each beside a kernel that is right and in which it
finds nothing.
"""

from __future__ import annotations

import pickle
from dataclasses import replace
from textwrap import indent

import numpy as np
import pytest

from tests.sim.kernels import block, program
from tileworkbench.compiler.diagnostics import OutOfBoundsError, Span
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.sim import FindingKind, SimOptions, SimReport, simulate

X = np.arange(16, dtype=np.float32)


def report(
    parameters: str, body: str, seed: int | None = None, **arguments: np.ndarray
) -> SimReport:
    return simulate(program(parameters, body), arguments, options=SimOptions(seed=seed)).report


# (name, body of one block over A and B of 16 floats, whether it races)
RACES = [
    ("every iteration its own element", "for i in T.Parallel(16):\n    B[i] = A[i]", False),
    ("all iterations one element", "for i in T.Parallel(16):\n    B[0] = A[i]", True),
    ("pairs of iterations one element", "for i in T.Parallel(16):\n    B[i // 2] = A[i]", True),
    (
        "only one iteration writes",
        "for i in T.Parallel(16):\n    if i == 3:\n        B[0] = A[i]",
        False,
    ),
    (
        "two iterations write",
        "for i in T.Parallel(16):\n    if i == 3 or i == 9:\n        B[0] = A[i]",
        True,
    ),
    ("a reversal into another tensor", "for i in T.Parallel(16):\n    B[i] = A[15 - i]", False),
    ("a reversal in place", "for i in T.Parallel(16):\n    B[i] = B[15 - i]", True),
    ("reads its own element", "for i in T.Parallel(16):\n    B[i] = B[i] + 1.0", False),
    ("reads its neighbour", "for i in T.Parallel(15):\n    B[i] = B[i + 1]", True),
    (
        "reads the neighbour, then writes in another statement",
        "for i in T.Parallel(15):\n    x = B[i + 1]\n    B[i] = x",
        True,
    ),
    (
        "all read what one writes",
        "for i in T.Parallel(16):\n    x = B[0]\n    if i == 2:\n        B[0] = x",
        True,
    ),
    (
        "one loop after another",
        "for i in T.Parallel(16):\n    B[i] = A[i]\nfor j in T.Parallel(16):\n    B[15 - j] = A[j]",
        False,
    ),
    (
        "one iteration twice",
        "for i in T.Parallel(16):\n    B[i] = A[i]\n    B[i] = A[i] * 2.0",
        False,
    ),
    ("a serial loop", "for i in T.serial(16):\n    B[0] = B[0] + A[i]", False),
    (
        "a serial loop inside",
        "for i in T.Parallel(4):\n    for j in T.serial(4):\n        B[i * 4 + j] = A[j]",
        False,
    ),
    (
        "a serial loop inside that overlaps",
        "for i in T.Parallel(4):\n    for j in T.serial(4):\n        B[i + j] = A[j]",
        True,
    ),
    ("two dimensions", "for i, j in T.Parallel(4, 4):\n    B[i * 4 + j] = A[j]", False),
    ("one of two dimensions", "for i, j in T.Parallel(4, 4):\n    B[j] = A[i]", True),
    ("one of two dimensions, of extent 1", "for i, j in T.Parallel(1, 4):\n    B[j] = A[i]", False),
    ("one iteration", "for i in T.Parallel(1):\n    B[0] = B[1]\n    B[1] = B[0]", False),
]


@pytest.mark.parametrize(
    ("body", "races"), [row[1:] for row in RACES], ids=[row[0] for row in RACES]
)
def test_races_in_a_parallel_loop(body: str, races: bool) -> None:
    found = report("A: (16,) float32; B: (16,) float32", block(body), A=X, B=X)
    assert bool(found.races) == races, str(found)
    assert found.ok != races


@pytest.mark.parametrize("scope", ["shared", "fragment"])
def test_races_in_tiles(scope: str) -> None:
    body = f"""
    S = T.alloc_{scope}((16,), "float32")
    T.copy(A, S)
    for i in T.Parallel(15):
        S[i] = S[i + %d]
    T.copy(S, B)
    """
    assert report("A: (16,) float32; B: (16,) float32", block(body % 0), A=X, B=X).ok
    found = report("A: (16,) float32; B: (16,) float32", block(body % 1), A=X, B=X)
    assert [finding.buffer for finding in found.races] == ["S"]
    assert found.races[0].detail == "one iteration of a parallel loop reads what another one writes"


# A thread's own memory, which iterations share only by accident.
PRIVATE = [
    ("written first", "v[()] = A[i]\n    B[i] = v[()]", False),
    ("carried on", "v[()] = v[()] + A[i]\n    B[i] = v[()]", True),
    ("only read", "B[i] = v[()]", False),
    (
        "written first where it is read",
        "if i < 4:\n        v[()] = A[i]\n    B[i] = v[()] if i < 4 else 0.0",
        False,
    ),
    (
        "read where another iteration has written",
        "if i < 4:\n        v[()] = A[i]\n    B[i] = v[()]",
        True,
    ),
]


@pytest.mark.parametrize(
    ("body", "races"), [row[1:] for row in PRIVATE], ids=[row[0] for row in PRIVATE]
)
def test_races_through_thread_private_memory(body: str, races: bool) -> None:
    text = f'v = T.alloc_var("float32", 2.0)\nfor i in T.Parallel(16):\n    {body}'
    found = report("A: (16,) float32; B: (16,) float32", block(text), A=X, B=X)
    assert bool(found.races) == races, str(found)


def test_thread_private_memory_that_a_loop_indexes_is_one_tile() -> None:
    body = """
    S = T.alloc_local((16,), "float32")
    for i in T.Parallel(16):
        j = 15 - i
        S[j] = A[i]
    for k in T.Parallel(16):
        B[k] = S[k]
    """
    made = program("A: (16,) float32; B: (16,) float32", block(body))
    result = simulate(made, {"A": X, "B": X})
    assert result.report.ok
    np.testing.assert_array_equal(result.arrays["B"], X[::-1])


BLOCKS = [
    ("own elements", "B[bx * 4] = A[bx]", False),
    ("one element", "B[0] = A[bx]", True),
    ("disjoint copies", "T.copy(A[bx * 4:bx * 4 + 4], B[bx * 4:bx * 4 + 4])", False),
    ("overlapping copies", "T.copy(A[bx * 4:bx * 4 + 4], B[bx * 3:bx * 3 + 4])", True),
    ("overlapping parallel loops", "for i in T.Parallel(4):\n    B[bx * 2 + i] = A[i]", True),
    (
        "a region of its own",
        "for i in T.Parallel(4):\n    B[bx * 4 + i] = B[bx * 4 + i] + 1.0",
        False,
    ),
]


@pytest.mark.parametrize(
    ("body", "races"), [row[1:] for row in BLOCKS], ids=[row[0] for row in BLOCKS]
)
@pytest.mark.parametrize("seed", [None, 5])
def test_races_between_blocks(body: str, races: bool, seed: int | None) -> None:
    text = "with T.Kernel(4, threads=128) as bx:\n" + indent(body, "    ")
    found = report("A: (16,) float32; B: (16,) float32", text, seed, A=X, B=X)
    assert bool(found.races) == races, str(found)
    assert all(finding.detail == "two blocks write this element" for finding in found.races)


def test_a_block_that_reads_what_another_one_wrote() -> None:
    text = "with T.Kernel(4, threads=128) as bx:\n    B[bx + 1] = B[bx] + 1.0"
    found = report("B: (16,) float32", text, B=X)
    assert [finding.detail for finding in found.races] == [
        "one block reads what another one writes"
    ]
    text = """
    with T.Kernel(3, threads=128) as bx:
        T.copy(B[bx * 4:bx * 4 + 4], B[bx * 4 + 4:bx * 4 + 4 + 4])
    """
    found = report("B: (16,) float32", text, B=X)
    assert [finding.detail for finding in found.races] == [
        "one block reads what another one writes"
    ]


def test_a_race_has_a_value_all_the_same() -> None:
    made = program(
        "A: (16,) float32; B: (16,) float32", block("for i in T.Parallel(16):\n    B[0] = A[i]")
    )
    assert simulate(made, {"A": X, "B": X}).arrays["B"][0] == 15.0
    off = simulate(made, {"A": X, "B": X}, options=SimOptions(races=False))
    assert off.report.ok and off.arrays["B"][0] == 15.0


# Out of bounds ----------------------------------------------------------

OUTSIDE = [
    ("load in a parallel loop", "for i in T.Parallel(8):\n    B[i] = S[i + 1]", (8,)),
    ("store in a parallel loop", "for i in T.Parallel(9):\n    S[i] = 1.0", (8,)),
    ("negative index", "for i in T.Parallel(8):\n    B[i] = S[i - 2]", (-2,)),
    ("single load", "B[0] = S[bx + 8]", (8,)),
    ("single store", "S[bx - 1] = 0.0", (-1,)),
    ("copy", "T.copy(S[bx + 4:bx + 4 + 8], B[0:8])", (8,)),
    ("fill", "T.fill(S[bx - 3:bx - 3 + 4], 0.0)", (-3,)),
]


@pytest.mark.parametrize(
    ("body", "index"), [row[1:] for row in OUTSIDE], ids=[row[0] for row in OUTSIDE]
)
def test_outside_a_tile_is_an_error(body: str, index: tuple[int, ...]) -> None:
    text = block('S = T.alloc_shared((8,), "float32")\nT.fill(S, 1.0)\n' + body)
    made = program("A: (16,) float32; B: (16,) float32", text)
    with pytest.raises(OutOfBoundsError) as caught:
        simulate(made, {"A": X, "B": X})
    assert caught.value.message == f"'S[{index[0]}]' is outside 'S' of shape (8) in block (0)"
    assert (
        caught.value.hint
        == "only accesses of global tensors are masked; guard this one with an 'if'"
    )
    recorded = simulate(
        made, {"A": X, "B": X}, options=SimOptions(stop_at_out_of_bounds=False)
    ).report
    assert [(found.buffer, found.index) for found in recorded.out_of_bounds] == [("S", index)]


INSIDE = [
    "for i in T.Parallel(8):\n    if i < 7:\n        B[i] = S[i + 1]",
    "for i in T.Parallel(9):\n    if i < 8:\n        S[i] = 1.0",
    "for i in T.Parallel(8):\n    B[i] = S[i - 2] if i >= 2 else 0.0",
    "if bx > 0:\n    B[0] = S[bx + 8]",
]


@pytest.mark.parametrize("body", INSIDE)
def test_a_guarded_access_of_a_tile_is_none(body: str) -> None:
    text = block('S = T.alloc_shared((8,), "float32")\nT.fill(S, 1.0)\n' + body)
    assert report("A: (16,) float32; B: (16,) float32", text, A=X, B=X).ok


def test_outside_a_global_tensor_loads_are_safe_and_stores_skipped() -> None:
    made = program(
        "A: (4, 4) float32; B: (5,) float32; C: (3, 6) float32",
        block("""
        for i in T.Parallel(8):
            B[i] = A[1, i - 2]
        for j in T.serial(3):
            B[j - 2] = A[j + 2, 0]
        T.copy(A[2:5, -1:5], C)
        """),
        safe_values={},
    )
    a = np.arange(1, 17, dtype=np.float32).reshape(4, 4)
    result = simulate(made, {"A": a, "B": np.zeros(5, "f"), "C": np.zeros((3, 6), "f")})
    assert result.arrays["B"].tolist() == [0.0, 0.0, 5.0, 6.0, 7.0]
    assert result.arrays["C"].tolist() == [[0, 9, 10, 11, 12, 0], [0, 13, 14, 15, 16, 0], [0] * 6]
    assert result.report.ok
    counts = {(found.access, found.buffer): found.count for found in result.report.masked}
    assert counts == {("load", "A"): 4 + 1 + 10, ("store", "B"): 3 + 2}


def test_the_safe_value_is_the_programs() -> None:
    made = program(
        "A: (4,) float32; B: (6,) float32",
        block("for i in T.Parallel(6):\n    B[i] = A[i]\nT.copy(A[3:5], B[4:6])"),
        safe_values={"A": -1.0},
    )
    result = simulate(made, {"A": X[:4], "B": X[:6]})
    assert result.arrays["B"].tolist() == [0, 1, 2, 3, 3, -1]


# Uninitialised reads ----------------------------------------------------------

UNWRITTEN = [
    ("written whole", "T.fill(S, 0.0)\nfor i in T.Parallel(8):\n    B[i] = S[i]", None),
    ("never written", "for i in T.Parallel(8):\n    B[i] = S[i]", (0,)),
    (
        "written in part",
        "for i in T.Parallel(5):\n    S[i] = A[i]\nfor j in T.Parallel(8):\n    B[j] = S[j]",
        (5,),
    ),
    (
        "read in part",
        "for i in T.Parallel(5):\n    S[i] = A[i]\nfor j in T.Parallel(5):\n    B[j] = S[j]",
        None,
    ),
    ("written by a region", "T.fill(S[0:4], 1.0)\nT.copy(S, B[0:8])", (4,)),
    ("written by regions", "T.fill(S[0:4], 1.0)\nT.fill(S[4:8], 1.0)\nT.copy(S, B[0:8])", None),
    ("one element", "S[3] = 1.0\nB[0] = S[3]\nB[1] = S[2]", (2,)),
    (
        "read only where written",
        "for i in T.Parallel(8):\n    if i < 3:\n        S[i] = A[i]\n"
        "    B[i] = S[i] if i < 3 else 0.0",
        None,
    ),
    ("reduced", 'M = T.alloc_shared((1,), "float32")\nT.reduce_sum(S, M, dim=0)', (0,)),
    (
        "reduced on top of nothing",
        'T.fill(S, 0.0)\nM = T.alloc_shared((1,), "float32")\n'
        "T.reduce_sum(S, M, dim=0, clear=False)",
        (0,),
    ),
]


@pytest.mark.parametrize(
    ("body", "index"), [row[1:] for row in UNWRITTEN], ids=[row[0] for row in UNWRITTEN]
)
def test_reads_before_writes(body: str, index: tuple[int, ...] | None) -> None:
    text = block('S = T.alloc_shared((8,), "float32")\n' + body)
    found = report("A: (16,) float32; B: (16,) float32", text, A=X, B=X)
    assert [finding.index for finding in found.uninitialised] == ([] if index is None else [index])
    assert found.ok == (index is None)


def test_memory_is_forgotten_between_blocks() -> None:
    text = """
    with T.Kernel(2, threads=128) as bx:
        S = T.alloc_shared((4,), "float32")
        if bx == 0:
            T.fill(S, 1.0)
        T.copy(S, B[bx * 4:bx * 4 + 4])
    """
    found = report("B: (16,) float32", text, B=X)
    assert [(finding.block, finding.count) for finding in found.uninitialised] == [((1,), 4)]


def test_unwritten_memory_is_poisoned() -> None:
    made = program(
        "A: (4,) float32; B: (4,) int32; C: (4,) uint8",
        block('S = T.alloc_local((4,), "int32")\nB[1] = S[0]'),
        outputs=["A", "B", "C"],
        returns=["A", "B", "C"],
    )
    a, b, c = simulate(made, {}).outputs
    assert np.isnan(a).all()
    assert b.view(np.uint32).tolist() == [0xCDCDCDCD] * 4
    assert c.tolist() == [0xCD] * 4


def test_an_output_read_before_it_is_written() -> None:
    body = block("T.copy(A, B)\nfor i in T.Parallel(16):\n    B[i] = B[i] * 2.0")
    assert simulate(
        program("A: (16,) float32; B: (16,) float32", body, outputs=["B"]), {"A": X}
    ).report.ok
    body = block("for i in T.Parallel(16):\n    B[i] = B[i] + A[i]")
    found = simulate(
        program("A: (16,) float32; B: (16,) float32", body, outputs=["B"]), {"A": X}
    ).report
    assert [(finding.buffer, finding.count) for finding in found.uninitialised] == [("B", 16)]


# The report ----------------------------------------------------------


def located(made: Program, tmp_path: object) -> Program:
    """`made` with every statement at line 2 of a file."""
    path = f"{tmp_path}/cell.py"
    with open(path, "w") as file:
        file.write("first\n    S[i] = A[i]\n")
    return replace(made, sites=(Span(path, 2, 4, 2, 15),))


def test_a_report_reads_well_and_survives_pickling(tmp_path: object) -> None:
    made = program(
        "A: (16,) float32; B: (4,) float32",
        block("""
        S = T.alloc_shared((8,), "float32")
        for i in T.Parallel(16):
            B[i // 4] = S[0] if i < 3 else A[i + 4]
        """),
    )
    found = simulate(located(made, tmp_path), {"A": X, "B": X[:4]}).report
    line = f"({tmp_path}/cell.py, line 2)"
    assert str(found) == "\n".join(
        [
            "not ok: 1 block simulated",
            "uninitialised reads:",
            f"  'S[0]' in block (0): read before it is written {line}, 3 times",
            "races:",
            "  'B[0]' in block (0), iterations (0) and (3): two iterations of one parallel loop "
            f"write this element {line}, 12 times",
            f"masked: A, {tmp_path}/cell.py, line 2, 4 of 13 elements",
        ]
    )
    assert pickle.loads(pickle.dumps(found)) == found
    assert [finding.kind for finding in found.findings] == [
        FindingKind.UNINITIALISED,
        FindingKind.RACE,
    ]


def test_an_error_shows_its_line(tmp_path: object) -> None:
    made = program("A: (16,) float32", block('S = T.alloc_shared((8,), "float32")\nS[9] = 1.0'))
    with pytest.raises(OutOfBoundsError) as caught:
        simulate(located(made, tmp_path), {"A": X})
    assert caught.value.render().splitlines() == [
        "OutOfBoundsError: 'S[9]' is outside 'S' of shape (8) in block (0)",
        f"  --> {tmp_path}/cell.py, line 2",
        "2 | S[i] = A[i]",
        "  | ^^^^^^^^^^^",
        "hint: only accesses of global tensors are masked; guard this one with an 'if'",
    ]


def test_a_clean_report_is_short() -> None:
    assert str(report("A: (16,) float32", block("pass"), A=X)) == "ok: 1 block simulated"
