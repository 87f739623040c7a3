"""Tab completes flags, values, views and kernels, through IPython's own completer."""

from __future__ import annotations

import pytest
from IPython.core.completer import provisionalcompleter

from tests.magics.notebook import SCALE, Notebook, avx_levels, open_notebook
from tileworkbench.compiler.device.nvidia.nvrtc import missing_nvrtc
from tileworkbench.viz.magics.grammar import COMMANDS, VIEWS, flags


def completed(notebook: Notebook, text: str, body: str = "") -> list[str]:
    """What the line may read after a completion at the end of `text`."""
    with provisionalcompleter():
        found = list(notebook.shell.Completer.completions(text + body, len(text)))
    return [text[: each.start] + each.text for each in found]


def test_flags(notebook: Notebook) -> None:
    assert completed(notebook, "%%tile --") == [
        f"%%tile {flag}" for flag in flags() if flag.startswith("--")
    ]
    assert completed(notebook, "%%tile mm --ro") == ["%%tile mm --roofline"]
    assert completed(notebook, "%%tile mm -D M=4 -") == [f"%%tile mm -D M=4 {f}" for f in flags()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%%tile -t cpu:a", [f"%%tile -t cpu:{each}" for each in avx_levels()]),
        ("%%tile --target sim:sm_9", ["%%tile --target sim:sm_90", "%%tile --target sim:sm_90a"]),
        ("%%tile -t cuda:sm_8", [f"%%tile -t cuda:sm_{each}" for each in (80, 86, 89)]),
        ("%%tile -t gfx", []),
        ("%%tile -t hip", []),
        ("%%tile --target=cpu:g", ["%%tile --target=cpu:generic"]),
        ("%%tile --show pa", ["%%tile --show passes"]),
        ("%%tile --show=card,l", ["%%tile --show=card,layouts"]),
        ("%%tile --show card,passes,co", ["%%tile --show card,passes,code"]),
        ("%tile ta", ["%tile targets"]),
        ("%tile clear", ["%tile clear-cache"]),
        ("%tile peaks --", ["%tile peaks --measure"]),
        ("%tile hint 17", ["%tile hint 17"]),
        ("%%tile puzzle 0", [f"%%tile puzzle 0{each}" for each in range(1, 10)]),
        ("%tile examples flash_d", ["%tile examples flash_decoding"]),
        ("x = %tile be", ["x = %tile bench"]),
    ],
)
def test_values_and_commands(notebook: Notebook, text: str, expected: list[str]) -> None:
    assert completed(notebook, text) == expected


def test_everything_that_may_follow(notebook: Notebook) -> None:
    assert completed(notebook, "%tile ") == [f"%tile {command}" for command in COMMANDS]
    assert completed(notebook, "%%tile --show ") == [f"%%tile --show {view}" for view in VIEWS]
    assert completed(notebook, "%%tile ") == [f"%%tile {flag}" for flag in flags()]


def test_every_target_that_is_offered_works(notebook: Notebook) -> None:
    offered = [text.split()[-1] for text in completed(notebook, "%%tile -t ")]
    assert offered[:2] == ["auto", "cpu"]
    assert {"sim:sm_80", "cuda:sm_80"} < set(offered)
    assert ("ptx:sm_80" in offered) == (missing_nvrtc() is None)
    kinds = {target.partition(":")[0]: target for target in offered}
    for target in (*kinds.values(), *(each for each in offered if each.startswith("cpu"))):
        assert notebook.run(f"%%tile -t {target}{SCALE}").error is None


def test_kernels_of_the_session_and_of_the_cell(notebook: Notebook) -> None:
    notebook.run(f"%%tile -q -o kept{SCALE}")
    assert completed(notebook, "%tile show ") == ["%tile show scale", "%tile show kept"]
    assert completed(notebook, "%tile bench k") == ["%tile bench kept"]
    assert completed(notebook, "%tile show scale pi") == ["%tile show scale pipeline"]
    assert completed(notebook, "%%tile sc") == ["%%tile scale"]
    assert completed(notebook, "%%tile new", "\ndef new_kernel(A): ...\n") == ["%%tile new_kernel"]


def test_other_lines_of_a_cell(notebook: Notebook) -> None:
    assert completed(notebook, "x = 1\n%tile pe") == ["x = 1\n%tile peaks"]
    assert completed(notebook, "\n%%tile --chec") == ["\n%%tile --check"]
    assert "%%tile mm\n--check" not in completed(notebook, "%%tile mm\n--che")
    assert completed(notebook, "x = 1\n%%tile --chec") != ["x = 1\n%%tile --check"]
    assert completed(notebook, "# %tile pe") != ["# %tile peaks"]


def test_names_of_the_users_own_after_flags_that_take_them(notebook: Notebook) -> None:
    notebook.run("import math; reference_of_mine = abs")
    for before in ("%%tile --check ", "%%tile -D X=", "%%tile --run=", "%tile bench k "):
        assert completed(notebook, f"{before}reference_o") == [f"{before}reference_of_mine"]
    assert completed(notebook, "%%tile --check math.cb") == ["%%tile --check math.cbrt"]
    assert completed(notebook, "%%tile -D X=3*math.ta") == [
        "%%tile -D X=3*math.tan",
        "%%tile -D X=3*math.tanh",
        "%%tile -D X=3*math.tau",
    ]


def test_the_older_interface(notebook: Notebook) -> None:
    """What ipykernel asks for when experimental completions are off."""
    with pytest.warns(PendingDeprecationWarning):
        text, matches = notebook.shell.complete("", "%%tile --roo", 12)
    assert (text, matches) == ("--roo", ["--roofline"])


def test_a_kernel_answers_while_the_line_is_not_finished(notebook: Notebook) -> None:
    assert completed(notebook, "%%tile --run 'x = 1 --ch") != []
    assert completed(notebook, "%til") == ["%tile"] or "%tile" in completed(notebook, "%til")


def test_passes_of_a_kernel_after_which_its_ir_is_edited(notebook: Notebook) -> None:
    notebook.run(f"%%tile -q -o k{SCALE}")
    names = notebook.value("[each.name for each in k.record.snapshots]")
    assert (
        completed(notebook, "%tile ir k --after infer_l")
        == [f"%tile ir k --after {name}" for name in names if name.startswith("infer_l")]
        != []
    )
    assert completed(notebook, "%%tile ir k --a") == ["%%tile ir k --after"]


def test_names_are_known_before_any_cell_ran() -> None:
    """`tw` and `T` complete right after `%load_ext`, in a cell of the magic and in any other."""
    with open_notebook() as fresh:
        assert completed(fresh, "T.alloc_fra") == ["T.alloc_fragment"]
        text = "%%tile\ndef copy(A):\n    T.alloc_sha"
        assert completed(fresh, text) == [text.replace("alloc_sha", "alloc_shared")]
        assert completed(fresh, "tw.playg") == ["tw.playground"]
        assert fresh.run("%who").text == "Interactive namespace is empty."


def test_names_of_the_user_are_kept() -> None:
    with open_notebook(extension=False) as fresh:
        fresh.run("T = 5")
        fresh.run("%load_ext tileworkbench")
        assert fresh.value("T") == 5 and fresh.value("tw").__name__ == "tileworkbench"
