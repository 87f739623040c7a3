"""`--sweep` in a notebook."""

from __future__ import annotations

from tests.magics.notebook import Notebook

CELL = """
def add(A, N: int = 256, block: int = 64):
    A: T.Tensor[[N], T.float32]
    B = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, block), threads=32) as bx:
        for i in T.Parallel(block):
            B[bx * block + i] = A[bx * block + i] + 1.0
    return B
"""


def test_a_sweep_is_what_the_cell_shows(notebook: Notebook) -> None:
    done = notebook.run(f"%%tile -t sim:sm_80 -o found --sweep block=32,64 N=128{CELL}")
    text = "<sweep of add sim:sm_80 | block=32,64 N=128 | 2 points>"
    assert done.text == f"Out[2]: {text}"
    assert repr(notebook.shell.user_ns["found"]) == text
    assert notebook.run(f"%%tile -q -t sim:sm_80 --sweep block=32{CELL}").text == ""


def test_with_bench_it_measures(notebook: Notebook) -> None:
    found = notebook.run(f"%%tile --bench 2 --sweep block=32,64{CELL}").value
    assert all(point.time_us > 0 and not point.error for point in found.points)


def test_wrong_sweeps(notebook: Notebook) -> None:
    for flags, message in (
        ("--sweep block", "UsageError: '--sweep block' should read '--sweep NAME=V,V'"),
        ("--sweep block=1 block=2", "UsageError: '--sweep block' is given twice"),
        ("--sweep block=x", "UsageError: '--sweep block=x': name 'x' is not defined"),
        (
            "--sweep blok=1",
            "ArgumentError: 'blok' is no compile-time argument of 'add'",
        ),
    ):
        assert notebook.run(f"%%tile {flags}{CELL}").text == message
    made = CELL.replace("\ndef add", "\n@tw.jit\ndef add") + "\nadd = add.compile()"
    assert notebook.run(f"%%tile add --sweep block=32{made}").text == (
        "UsageError: '--sweep': 'add' is compiled already; sweep a function"
    )
