"""`%tile examples`: a cell for each kernel of the library, which works as it is."""

from __future__ import annotations

import pytest

from tests.magics.notebook import Notebook, open_notebook
from tileworkbench import kernels
from tileworkbench.viz.magics.examples import EXAMPLES


def inserted(notebook: Notebook, line: str) -> str:
    """The cell that a command puts below."""
    done = notebook.run(line)
    assert done.error is None and not done.out
    payload = notebook.shell.payload_manager.read_payload()
    return payload[-1]["text"] if payload else notebook.shell.rl_next_input


def test_there_is_one_for_each_kernel_of_the_library(notebook: Notebook) -> None:
    assert sorted(EXAMPLES) == sorted(kernels.__all__)
    first, *rows = notebook.run("%tile examples").out.splitlines()
    assert first == "'%tile examples NAME' makes a cell of one of these:"
    assert [row.split()[0] for row in rows] == list(EXAMPLES)
    assert "gemv                      `y = A @ x`." in rows


def test_an_unknown_name_is_refused(notebook: Notebook) -> None:
    done = notebook.run("%tile examples matmull")
    assert str(done.error) == "'matmull' is no kernel of the library; did you mean 'matmul'?"


def works(notebook: Notebook, name: str) -> None:
    text = inserted(notebook, f"%tile examples {name}")
    assert f"def {name}(" in text and "Extent" not in text and "compared_with" not in text
    done = notebook.run(text)
    assert done.error is None, done.text
    assert f"<TileKernel {name}[" in done.text
    assert done.text.endswith("| check ok>") == ("--check" in text.partition("\n")[0])
    assert isinstance(done.value, notebook.value("tw").Kernel)


@pytest.mark.parametrize("name", ["add", "dequant_gemv", "flash_attention"])
def test_an_example_works_as_it_is(notebook: Notebook, name: str) -> None:
    works(notebook, name)


@pytest.mark.slow
def test_every_example_works_as_it_is() -> None:
    with open_notebook() as notebook:
        for name in EXAMPLES:
            works(notebook, name)
