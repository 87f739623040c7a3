"""`%%tile ir` and `%%tile src`: cells with what became of a kernel."""

from __future__ import annotations

import pytest

from tests.magics.notebook import SCALE, Notebook

CELL = "%%tile -q" + SCALE


def next_cell(notebook: Notebook) -> str:
    """The cell that a command has made."""
    return str(notebook.shell.rl_next_input)


def test_the_ir_goes_into_a_cell_and_back(notebook: Notebook) -> None:
    notebook.run(CELL)
    assert notebook.run("%tile ir scale --after check_accesses").error is None
    cell = next_cell(notebook)
    assert cell.startswith("%%tile ir scale --after check_accesses\n@T.program(stage=")
    edited = cell.replace("* 2.0", "* 4.0").replace("check_accesses\n", "check_accesses -o four\n")
    done = notebook.run(edited)
    assert done.error is None
    assert notebook.value("four").passes["edited"].changed
    notebook.run("import torch; x = torch.ones(64, 32)")
    assert notebook.value("float(four(x)[0, 0])") == 4.0
    assert notebook.value("float(scale(x)[0, 0])") == 2.0
    assert done.value is notebook.value("four")


def test_a_wrong_ir_is_an_error_at_the_line_of_the_cell(notebook: Notebook) -> None:
    notebook.run(CELL)
    notebook.run("%tile ir scale --after 0")
    cell = next_cell(notebook)
    assert cell.startswith("%%tile ir scale --after 0\n")
    lines = cell.splitlines()
    number = next(at for at, line in enumerate(lines, 1) if "* 2.0" in line)
    error = notebook.run(cell.replace("* 2.0", "* 2")).error
    text = lines[number - 1].strip().replace("* 2.0", "* 2")
    assert str(error) == (
        "malformed IR at stage 'tile': 'mul' of 'float32' and 'int32' in "
        f"'{text}'\n  --> Cell In[4], line {number}\n{number} | {text}\n"
        f"{' ' * len(str(number))} | {'^' * len(text)}"
    )


def test_the_code_goes_into_a_cell_and_back(notebook: Notebook) -> None:
    notebook.run(CELL)
    assert notebook.run("%tile src scale").error is None
    cell = next_cell(notebook)
    assert cell.startswith("%%tile src scale\n")
    done = notebook.run(cell.replace("%%tile src scale\n", "%%tile src scale -o same\n"))
    assert done.error is None
    assert done.text.startswith(
        "scale with this code ran in a process of its own: its results are the same"
    )
    assert notebook.value("same").source == notebook.value("scale.kernel.source")
    broken = notebook.run(cell + "oops\n").error
    number = len(cell.splitlines()) + 1
    assert str(broken).startswith(
        "the edited code of 'scale' does not compile: expected top-level entity\n"
        f"  --> Cell In[5], line {number}\n{number} | oops"
    )


def test_no_cell_with_code_that_nothing_would_run(notebook: Notebook) -> None:
    notebook.run(CELL.replace("%%tile", "%%tile -t sim:sm_80", 1))
    error = notebook.run("%tile src scale").error
    assert str(error).startswith("'sim:sm_80' runs the lowered program, not its CUDA text\n")


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("%%tile ir scale\nx", "after which pass? '%%tile ir scale --after PASS'"),
        ("%%tile ir\nx", "which kernel? '%%tile ir NAME'"),
        (
            "%%tile ir scale --after 1\n ",
            "the cell is empty: '%tile ir scale --after 1' makes one with the text",
        ),
        ("%%tile src scale\n ", "the cell is empty: '%tile src scale' makes one with the text"),
        ("%%tile src nothing\nx", "'nothing' is not a kernel; one of scale"),
        (
            "%%tile src scale --run x\nx",
            "'--run' is a flag of '%%tile', '%%tile src' has --args, --seconds, -o, --output, -q, "
            "--quiet, -h, --help",
        ),
        ("%%tile src scale --arg x\nx", "there is no flag '--arg'; did you mean '--args'?"),
        ("%%tile src scale --seconds no\nx", "'--seconds': 'no' is not a number of seconds"),
        ("%%tile src scale --args 1/0\nx", "'--args 1/0' has no value: division by zero"),
        ("%tile ir scale", "%tile ir takes a kernel and --after PASS"),
        ("%tile src", "%tile src takes a kernel"),
    ],
)
def test_what_a_line_lacks(notebook: Notebook, cell: str, expected: str) -> None:
    notebook.run(CELL)
    assert str(notebook.run(cell).error) == expected


def test_help_of_the_forms(notebook: Notebook) -> None:
    for form, flag in (("ir", "--after PASS"), ("src", "--seconds S")):
        text = notebook.run(f"%%tile {form} -h\n.").text
        assert text.startswith(f"usage: %%tile {form}") and flag in text
