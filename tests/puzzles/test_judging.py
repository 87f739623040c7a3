"""What a puzzle says about cells that are no answer, and that none of them harms the notebook."""

from __future__ import annotations

import signal
import threading

import pytest

from tests.magics.notebook import Notebook
from tileworkbench.puzzles import judge
from tileworkbench.puzzles.limit import time_limit
from tileworkbench.puzzles.task import find_task

ADD = find_task("01")
RELAY = find_task("13")
NONE = "there is no puzzle '{}'; they are 01 to 18: '%tile puzzle' lists them"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "SECONDS", 0.4)


def endless(head: str, before: str, answer: str) -> str:
    """An answer with a loop whose end never comes before one of its lines."""
    at = answer.index(before)
    start = answer.rindex("\n", 0, at) + 1
    indent = answer[start:at]
    lines = ["x = T.alloc_var('int32', 0)", "while x < 1:", "    x = x * 2"]
    return f"{head}\n{answer[:start]}" + "".join(f"{indent}{e}\n" for e in lines) + answer[start:]


def test_a_kernel_that_does_not_end_is_stopped(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judge, "SECONDS", 3.0)  # compiling comes before
    notebook.run("kept = 41")
    handler = signal.getsignal(signal.SIGINT)
    done = notebook.run(endless(ADD.head, "for i in", ADD.solution))
    where = [(9, "while x < 1:"), (10, "x = x * 2")]  # in turn
    assert done.text in [
        "RunError: puzzle 01, with N=128: this did not end within 3 s, and was stopped\n"
        f"  --> Cell In[{number(notebook)}], line {line}\n"
        f"{line} | {text}\n"
        f"{'':{len(str(line))}} | {'^' * len(text.rstrip(':'))}\n"
        "hint: does every loop come to its end? The notebook and its variables are as before"
        for line, text in where
    ]
    assert signal.getsignal(signal.SIGINT) == handler
    assert notebook.run("kept + 1").value == 42


def number(notebook: Notebook) -> int:
    """The number of the last cell."""
    return int(notebook.shell.execution_count) - 1


@pytest.mark.slow
def test_threads_that_do_not_end_are_stopped(notebook: Notebook) -> None:
    done = notebook.run(endless(RELAY.head, "for i, j in", RELAY.solution))
    assert "this did not end within 5 s, and was stopped" in done.text
    assert "| x = x * 2" in done.text or "| while x < 1:" in done.text


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("loop", "line"),
    [
        ("x = 0\nwhile True:\n    x += 1", "while True:"),
        ("import time\ntime.sleep(60)", "time.sleep(60)"),
    ],
)
def test_python_that_does_not_end_is_stopped(notebook: Notebook, loop: str, line: str) -> None:
    done = notebook.run(f"{ADD.head}\n{loop}\n{ADD.solution}")
    assert "RunError: this did not end within 0.4 s, and was stopped\n" in done.text
    assert f"| {line}" in done.text or "| x += 1" in done.text


@pytest.mark.usefixtures("impatient")
def test_a_loop_of_python_in_a_kernel_is_stopped(notebook: Notebook) -> None:
    answer = ADD.solution.replace('    N = T.const("N")', '    forever()\n    N = T.const("N")')
    notebook.run("def forever():\n    while True:\n        pass")
    done = notebook.run(f"{ADD.head}\n{answer}")
    assert "with N=128: this did not end within 0.4 s, and was stopped" in done.text
    assert "3 | forever()" in done.text


def test_while_true_in_a_kernel_is_refused_at_once(notebook: Notebook) -> None:
    answer = ADD.solution.replace("for i in T.Parallel(128):", "while True:\n            i = 0")
    done = notebook.run(f"{ADD.head}\n{answer}")
    assert "puzzle 01, with N=128: the condition of 'while' is known while compiling" in done.text
    assert "line 8\n8 | while True:" in done.text


@pytest.mark.slow
def test_five_seconds_are_the_limit(notebook: Notebook) -> None:
    done = notebook.run(f"{ADD.head}\nwhile True:\n    pass\n{ADD.solution}")
    assert "this did not end within 5 s, and was stopped" in done.text


def test_ctrl_c_is_what_it_was(notebook: Notebook) -> None:
    ctrl_c = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)"
    done = notebook.run(f"{ADD.head}\n{ctrl_c}\nwhile True:\n    pass\n{ADD.solution}")
    assert isinstance(done.error, KeyboardInterrupt) and "did not end" not in done.text


def test_only_the_main_thread_is_interrupted() -> None:
    caught: list[Exception] = []

    def run() -> None:
        try:
            with time_limit(1.0, "<cell>"):
                pass
        except Exception as error:
            caught.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert str(caught[0]) == (
        "a puzzle is judged in the main thread, and this cell runs in another one\n"
        "hint: run it in the notebook itself, not in a subshell or a thread"
    )


def test_another_signature(notebook: Notebook) -> None:
    done = notebook.run(ADD.head + "\n" + ADD.solution.replace("add(A, B)", "add(A, B, C)"))
    assert done.text == (
        "ArgumentError: puzzle 01 calls 'def add(A, B)', and this is 'def add(A, B, C)'\n"
        f"  --> Cell In[{number(notebook)}], line 2\n"
        "2 | def add(A, B, C):\n"
        "  | ^^^^^^^^^^^^^^^^^\n"
        "hint: keep the first line of the skeleton: '%tile puzzle 01' makes a new cell of it"
    )
    more = ADD.solution.replace("add(A, B)", "plus(A, B, size=128)").replace("128", "size")
    assert notebook.run(f"{ADD.head}\n{more.replace('size=size', 'size=128')}").error is None


def test_a_function_that_makes_a_kernel(notebook: Notebook) -> None:
    answer = """
def add(A, B):
    @T.prim_func
    def inner(A: T.Tensor((8,), "float32"), B: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32):
            T.copy(A, B)
    return inner
"""
    done = notebook.run(f"{ADD.head}{answer}")
    assert "and this is 'def add(A, B)', which makes a T.prim_func" in done.text


def test_what_is_returned_is_compared(notebook: Notebook) -> None:
    done = notebook.run(ADD.head + "\n" + ADD.solution.replace("    return C\n", ""))
    assert "puzzle 01, with N=128: " in done.text and done.error is not None


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("%%tile puzzle 01\n  \n", "the cell is empty: '%tile puzzle 01' makes one with the "
         "skeleton"),
        ("%%tile puzzle 1\nx = 1", "the cell defines no kernel: a function that uses T.Kernel"),
        ("%%tile puzzle 77\nx = 1", NONE.format("77")),
        ("%%tile puzzle one\nx = 1", NONE.format("one")),
        ("%%tile puzzle\nx = 1", "which puzzle? '%%tile puzzle 03'; '%tile puzzle' lists them"),
        ("%%tile puzzle 01 02\nx = 1", "one kernel name is enough; '02' is too many"),
        ("%tile puzzle 99", NONE.format("99")),
        ("%tile hint", "which puzzle? '%tile hint 03'; '%tile puzzle' lists them"),
        ("%tile hint 01 4", "there are hints 1 to 3, not '4'"),
        ("%tile solution 01 02", "which puzzle? '%tile solution 03'; '%tile puzzle' lists them"),
    ],
)  # fmt: skip
def test_lines_that_are_wrong(notebook: Notebook, cell: str, message: str) -> None:
    assert str(notebook.run(cell).error) == message


def test_errors_of_python_are_shown_as_of_any_cell(notebook: Notebook) -> None:
    done = notebook.run(f"{ADD.head}\n{ADD.solution}\nundefined_name\n")
    assert isinstance(done.error, NameError) and "undefined_name" in done.text
    assert "limit.py" not in done.text and "puzzles.py" not in done.text
    syntax = notebook.run(f"{ADD.head}\ndef add(A, B)\n")
    assert isinstance(syntax.error, SyntaxError)


def test_the_name_is_bound_for_views(notebook: Notebook) -> None:
    notebook.run(f"{ADD.head}\n{ADD.solution}")
    assert notebook.run("add.compile(N=129).show('card')").error is None
    decorated = f"@tw.jit\n{RELAY.solution}"
    assert notebook.run(f"{RELAY.head}\n{decorated}").error is None
    assert notebook.value("double").target == "sim:sm_80"


def test_help(notebook: Notebook) -> None:
    assert "usage: %%tile puzzle" in notebook.run("%%tile puzzle -h\nx = 1").out
