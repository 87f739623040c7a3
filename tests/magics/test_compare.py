"""Comparisons in a notebook: versions of a cell, several targets."""

from __future__ import annotations

from tests.magics.notebook import Notebook
from tileworkbench.viz.magics.ledger import NAMES, VERSIONS, Ledger, ledger_of

CELL = """
def add(A: T.Tensor((256,), "float32"), B: T.Tensor((256,), "float32")):
    with T.Kernel(256 // {block}, threads=32) as bx:
        for i in T.Parallel({block}):
            B[bx * {block} + i] = A[bx * {block} + i] + 1.0
"""


def test_two_versions_of_a_cell(notebook: Notebook) -> None:
    notebook.run(f"%%tile -q{CELL.format(block=64)}")
    assert notebook.run("%tile compare add").text == (
        "UsageError: there is one version of 'add': name another kernel"
    )
    notebook.run(f"%%tile -q{CELL.format(block=64)}")  # the same: no version of its own
    notebook.run(f"%%tile -q{CELL.format(block=128)}")
    found = notebook.run("%tile compare add").value
    facts = {fact.label: fact.values for fact in found.views["card"].differences}
    assert facts["grid"] == ("4", "2")
    assert "+    with T.Kernel(256 // 128, threads=32) as bx:" in found.source_diff.splitlines()


def test_the_baseline_is_the_version_before(notebook: Notebook) -> None:
    first = notebook.run(f"%%tile --baseline prev{CELL.format(block=64)}")
    assert first.text.splitlines()[-1] == (
        "UsageError: '--baseline prev': this is the first version of 'add'"
    )
    done = notebook.run(f"%%tile --baseline prev{CELL.format(block=32)}")
    assert "<compare add version 1 | add version 2 | " in done.text
    notebook.run("%%tile -q" + CELL.format(block=16).replace("def add", "def other"))
    done = notebook.run(f"%%tile --baseline other{CELL.format(block=32)}")
    assert "<compare other | add | " in done.text


def test_one_cell_for_several_targets(notebook: Notebook) -> None:
    done = notebook.run(f"%%tile -t cpu,sim:sm_80,sim:sm_90{CELL.format(block=64)}")
    assert "<compare add cpu | add sim:sm_80 | add sim:sm_90 | " in done.text


def test_each_target_has_its_own_passes_to_switch_off(notebook: Notebook) -> None:
    flags = "-t cpu,sim:sm_80 --disable fuse_loops,plan_pipelines"
    done = notebook.run(f"%%tile {flags}{CELL.format(block=64)}")
    assert done.text.splitlines()[:2] == [
        "'--disable plan_pipelines': cpu has no such pass",
        "'--disable fuse_loops': sim:sm_80 has no such pass",
    ]
    assert "<compare add cpu | add sim:sm_80 | " in done.text
    notebook.run(f"%%tile -q {flags}{CELL.format(block=64)}")
    off = "[each.name for each in add.kernel.passes if each.disabled]"
    assert notebook.run(off).text.endswith(": ['fuse_loops']")
    done = notebook.run(f"%%tile -t cpu,sim:sm_80 --disable nonsense{CELL.format(block=64)}")
    assert "TileValueError: 'nonsense' is not a pass of 'cpu" in done.text
    done = notebook.run(f"%%tile -t cpu --disable plan_pipelines{CELL.format(block=64)}")
    assert "'plan_pipelines' is not a pass of 'cpu" in done.text


def test_a_target_that_refuses_the_kernel_is_a_line(notebook: Notebook) -> None:
    big = (
        CELL.format(block=64)
        .replace(
            "        for i",
            "        s = T.alloc_shared((30000,), 'float32')\n"
            "        T.fill(s, 0.0)\n        for i",
        )
        .replace("+ 1.0", "+ s[i]")
    )
    done = notebook.run(f"%%tile -t sim:sm_80,sim:sm_75{big}")
    assert done.text.startswith("sim:sm_75: ResourceError: the block needs 120064 bytes of shared")


def test_a_compiled_kernel_has_its_target(notebook: Notebook) -> None:
    made = CELL.format(block=64).replace("def add", "@tw.jit\ndef add") + "\nadd = add.compile()"
    done = notebook.run(f"%%tile add -t cpu,sim:sm_80{made}")
    assert done.text.splitlines()[-1] == (
        "UsageError: '-t sim:sm_80': 'add' is compiled already; give one target"
    )


def test_the_ledger_has_limits(notebook: Notebook) -> None:
    ledger = Ledger()
    for number in range(VERSIONS + 5):
        assert ledger.add("k", "", f"text {number}", None).number == number + 1  # type: ignore[arg-type]
    assert len(ledger.versions("k")) == VERSIONS
    for number in range(NAMES):
        ledger.add(f"k{number}", "", "", None)  # type: ignore[arg-type]
    assert len(ledger.names()) == NAMES and ledger.versions("k") == ()
    assert ledger_of(notebook.shell) is ledger_of(notebook.shell)
