"""Errors in a cell point at its lines, say what to do, and show nothing of our own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.magics.notebook import SCALE, Notebook, open_notebook
from tileworkbench.viz.display import NAMES
from tileworkbench.viz.magics.grammar import COMMANDS, VIEWS

# Python's own errors


@pytest.mark.parametrize(
    "body",
    [
        "def f(:\n    pass",
        "x = 1\n  y = 2",
        "if 1:\n\ty = 1\n        z = 2",
        "x = (1,\ny = 2",
        "return 1",
        "x = 'open",
        "f(**x, *y)",
    ],
)
@pytest.mark.parametrize("flags", ["", " -D x=1"])
def test_a_syntax_error_reads_as_in_plain_python(notebook: Notebook, body: str, flags: str) -> None:
    if flags and "x" not in body:
        body += "  # x"
    plain = notebook.run(f"#\n{body}")
    magic = notebook.run(f"%%tile{flags}\n{body}")
    assert plain.text and magic.text == plain.text.replace("In[2]", "In[3]")
    assert type(magic.error).__name__ == type(plain.error).__name__
    assert isinstance(magic.error, type(plain.error))


@pytest.mark.parametrize(
    "body",
    [
        "x = 1\nprint(nope)",
        "def g():\n    raise KeyError('k')\ng()",
        "x = 1\ntry:\n    x / 0\nexcept ZeroDivisionError:\n    {}[x]",
        "x = 1\nassert x == 2, 'two'",
        "import nosuch",
        "raise KeyboardInterrupt",
    ],
)
@pytest.mark.parametrize("flags", ["", " -D x=1"])
def test_an_exception_reads_as_in_plain_python(notebook: Notebook, body: str, flags: str) -> None:
    if flags and "x" not in body:
        body += "  # x"
    head = f"# %%tile{flags}"
    plain = notebook.run(f"{head}\n{body}")
    magic = notebook.run(f"{head[2:]}\n{body}")
    assert plain.text and magic.text == plain.text.replace("In[2]", "In[3]")
    assert type(magic.error) is type(plain.error)


def test_a_syntax_error_raised_by_running_code_begins_in_the_cell(notebook: Notebook) -> None:
    done = notebook.run("%%tile\nexec('1 +')")
    assert done.text == (
        "Traceback (most recent call last):\n"
        "\n"
        "  Cell In[2], line 2\n"
        "    exec('1 +')\n"
        "\n"
        "  File <string>:1\n"
        "    1 +\n"
        "       ^\n"
        "SyntaxError: invalid syntax"
    )


def test_syntax_errors_of_plain_cells_are_left_to_ipython() -> None:
    cells = ["1 +", "exec('1 +')", "import this_is_no_module", "  x = 1\n y = 2"]
    with open_notebook(extension=False) as bare:
        expected = [bare.run("pass")] + [bare.run(cell) for cell in cells]
    with open_notebook() as notebook:
        found = [notebook.run(cell) for cell in cells]
    assert [each.text for each in found] == [each.text for each in expected[1:]]


def test_a_handler_of_the_users_is_kept() -> None:
    with open_notebook(extension=False) as notebook:
        notebook.shell.set_custom_exc((KeyError,), lambda *args, **options: None)
        notebook.run("%load_ext tileworkbench")
        assert notebook.shell.custom_exceptions == (KeyError,)
        notebook.run("%unload_ext tileworkbench")
        assert notebook.shell.custom_exceptions == (KeyError,)


# Errors of kernels


def test_an_error_in_a_kernel_has_its_line_a_caret_and_a_hint(notebook: Notebook) -> None:
    cell = SCALE.replace("B[block * 32 + i, j]", "B[block * 32 + i]")
    assert notebook.run(f"%%tile{cell}").text == (
        "TileIndexError: 'B' has 2 dimensions and is indexed with 1 index\n"
        "  --> Cell In[2], line 6\n"
        "6 | B[block * 32 + i] = A[block * 32 + i, j] * 2.0\n"
        "  | ^^^^^^^^^^^^^^^^^\n"
        "hint: its shape is (64, 32); take whole dimensions with ':'"
    )


def test_a_tile_syntax_error_is_rendered_by_us(notebook: Notebook) -> None:
    done = notebook.run(f"%%tile -D R=64{SCALE.replace('return', 'yield').replace('64', 'R')}")
    assert done.text == (
        "TileSyntaxError: 'yield' has no meaning in a kernel\n"
        "  --> Cell In[2], line 7\n"
        "7 | yield B\n"
        "  | ^^^^^^^"
    )
    assert isinstance(done.error, SyntaxError)


def test_a_tile_syntax_error_of_a_plain_cell_too(notebook: Notebook) -> None:
    notebook.run("import tileworkbench as tw, tileworkbench.language as T")
    notebook.run(f"@tw.jit{SCALE.replace('return', 'yield')}")
    assert notebook.run("scale.compile()").text == (
        "TileSyntaxError: 'yield' has no meaning in a kernel\n"
        "  --> Cell In[3], line 7\n"
        "7 | yield B\n"
        "  | ^^^^^^^"
    )


def test_unicode_before_the_caret(notebook: Notebook) -> None:
    cell = SCALE.replace("block", "β").replace("B[β * 32 + i, j]", "B[β * 32 + i]")
    assert notebook.run(f"%%tile{cell}").text.splitlines()[2:4] == [
        "6 | B[β * 32 + i] = A[β * 32 + i, j] * 2.0",
        "  | ^^^^^^^^^^^^^",
    ]


def test_an_unknown_name_in_a_kernel_points_at_it(notebook: Notebook) -> None:
    assert notebook.run(f"%%tile{SCALE.replace('* 2.0', '* two')}").text == (
        "TileNameError: name 'two' is not defined\n"
        "  --> Cell In[2], line 6\n"
        "6 | B[block * 32 + i, j] = A[block * 32 + i, j] * two\n"
        "  |                                               ^^^"
    )


def test_an_unknown_name_of_the_language(notebook: Notebook) -> None:
    done = notebook.run(f"%%tile{SCALE.replace('T.Parallel', 'T.Paralel')}")
    assert "the language has no 'T.Paralel'; did you mean T.Parallel?" in done.text
    assert "tileworkbench" not in done.text


# Checks


def test_a_failed_check_raises_and_shows_nothing_of_ours(notebook: Notebook) -> None:
    done = notebook.run(f"%%tile --check 'lambda A: A * 3' -o k{SCALE}")
    pattern = (
        r"CheckError: 'scale' disagrees with the reference in \d+ of 2048 elements of 'B': first at"
        r" \[0, 0\], where it is -?[\d.]+ instead of -?[\d.]+; largest error [\d.]+ at \[\d+, \d+\]"
        r"; they are everywhere; the relative tolerance is 0\.0001, that of float32\n"
        r"note: the wrong elements: (nearly )?everywhere; each is 0\.667 times what is expected; "
        r"last written at line \d\n  --> .*, line \d\n\d \| .*\n +\| \^+\n"
        r"note: the simulator found nothing wrong: 2 blocks simulated\n"
        r"hint: '%tile bisect k' names the pass that broke it, if one did"
    )
    assert re.fullmatch(pattern, done.text)
    assert isinstance(done.error, AssertionError)
    assert notebook.value("k.name") == "scale"
    passed = notebook.run(f"%%tile --check 'lambda A: A * 2'{SCALE}")
    assert passed.text.endswith("check ok>")


def test_tolerances_are_those_of_the_line(notebook: Notebook) -> None:
    reference = "'lambda A: A * 2 + 0.01'"
    assert notebook.run(f"%%tile --check {reference}{SCALE}").error is not None
    assert notebook.run(f"%%tile --check {reference} --atol 0.1 --rtol 0{SCALE}").error is None


def test_an_error_in_the_reference_begins_at_the_flag(notebook: Notebook) -> None:
    text = notebook.run(f"%%tile --check 'lambda A: A + nope'{SCALE}").text
    assert "NameError: name 'nope' is not defined" in text
    assert "lambda *inputs: (lambda A: A + nope)(*inputs)" in text
    assert "tileworkbench" not in text and "run_cell_magic" not in text
    text = notebook.run(f"%%tile --check 'lambda x, y: x'{SCALE}").text
    assert text == (
        "ArgumentError: the reference is called with the 1 input of 'scale': missing a required "
        "argument: 'y'\nhint: let it take these arguments, and return what the kernel computes"
    )
    text = notebook.run(f"%%tile --check torch.matmul\nimport torch{SCALE}").text
    assert "\nTypeError: matmul() " in text
    assert text.splitlines()[-1].startswith("'torch.matmul' raised this, the reference of a check")
    assert "(torch.matmul)(*inputs)" in text and "validation.py" not in text


def test_an_error_in_run_begins_at_the_flag(notebook: Notebook) -> None:
    text = notebook.run(f"%%tile --run 'y = 1 / 0'{SCALE}").text
    assert "----> 1 y = 1 / 0\n" in text and "run_cell_magic" not in text


# The magic's line

USAGE = [
    ("%%tile --cehck x", "there is no flag '--cehck'; did you mean '--check'?"),
    ("%%tile --zzz", "there is no flag '--zzz'; see '%tile help'"),
    (
        "%%tile --from torch",
        "there is no flag '--from'; a cell of plain torch code begins with "
        "'%%tile torch --args x,w'",
    ),
    ("%%tile --sho=card", "there is no flag '--sho=card'; did you mean '--show'?"),
    ("%%tile a b", "one kernel name is enough; 'b' is too many"),
    ("%%tile 3a", "'3a' is not a kernel name"),
    ("%%tile scal", "'scal' is not a kernel of this cell; did you mean 'scale'?"),
    ("%%tile other", "'other' is not a kernel of this cell; one of scale"),
    ("%%tile --check", "'--check' needs a value; one with a dash first is '--check=VALUE'"),
    ("%%tile --check -x", "'--check' needs a value; one with a dash first is '--check=VALUE'"),
    ("%%tile --check 3", "'--check 3': 'int' is not callable"),
    ("%%tile --check no.such", "'--check no.such': name 'no' is not defined"),
    ("%%tile --check '", "the line ends before a closing '"),
    ("%%tile --run (1", "the line ends before a closing )"),
    ("%%tile --show roofle", "'roofle' is not a view; did you mean 'roofline'?"),
    ("%%tile --show xyz", f"'xyz' is not a view; one of {', '.join(VIEWS)}"),
    ("%%tile -t spu", "'spu' is not a target; did you mean 'cpu'?"),
    ("%%tile -t smi:sm_80", "'smi:sm_80' is not a target; did you mean 'sim:sm_80'?"),
    (
        "%%tile -t xyz",
        "'xyz' is not a target; one of auto, cpu, sim:sm_80, ptx:sm_80, cuda:sm_80",
    ),
    ("%%tile -D 3=4", "'-D 3=4' should read '-D NAME=VALUE'"),
    ("%%tile -D X", "'-D X' should read '-D NAME=VALUE'"),
    ("%%tile -D X=", "'-D X=' should read '-D NAME=VALUE'"),
    ("%%tile -D X=1 -D X=2", "'-D X' is given twice"),
    ("%%tile --disable a,", "'--disable a,': '' is not the name of a pass"),
    ("%%tile -D X=nope", "'-D X=nope': name 'nope' is not defined"),
    ("%%tile -D X=1+", "'-D X=1+': invalid syntax"),
    ("%%tile -D X=1/0", "'-D X=1/0': division by zero"),
    ("%%tile -D blok=1", "'-D blok' names nothing in the cell; did you mean 'block'?"),
    ("%%tile -D X=1", "'-D X' names nothing in the cell"),
    (
        "%%tile --bench mm",
        "'--bench': 'mm' is not a number of rounds (the kernel's name goes before the flags)",
    ),
    ("%%tile --rtol x", "'--rtol': 'x' is not a number"),
    ("%%tile --atol=-1", "'--atol': a tolerance cannot be -1"),
    ("%%tile -o 3", "'-o 3': '3' is not a name"),
]


@pytest.mark.parametrize(("line", "message"), USAGE)
def test_a_wrong_line_says_what_is_wrong(notebook: Notebook, line: str, message: str) -> None:
    done = notebook.run(f"{line}{SCALE}")
    assert done.text == f"UsageError: {message}"
    assert done.value is None


def test_a_page_needs_a_folder(notebook: Notebook, tmp_path: Path) -> None:
    file = tmp_path / "missing" / "x.html"
    assert notebook.run(f"%%tile --save {file}{SCALE}").text == (
        f"UsageError: '--save {file}': No such file or directory"
    )


def test_a_wrong_line_runs_nothing_of_the_cell(notebook: Notebook) -> None:
    for line in ("--cehck x", "-D X=nope", "-t xyz", "-t cpu:avx", "--show xyz"):
        notebook.run(f"%%tile {line}\nran = True{SCALE}")
    assert not {"ran", "scale"} & set(notebook.shell.user_ns)


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("%%tile\n   \n", "the cell is empty: write a kernel below %%tile (see '%tile examples')"),
        (
            "%%tile",
            "%%tile is a cell magic, but the cell body is empty. Did you mean the line magic %tile"
            " (single %)?",
        ),
        ("%%tile\n# nothing", "the cell defines no kernel: a function that uses T.Kernel"),
        ("%%tile mm\nx = 1", "'mm' is not a kernel of this cell; the cell defines none"),
    ],
)
def test_a_cell_without_a_kernel(notebook: Notebook, cell: str, message: str) -> None:
    assert notebook.run(cell).text == f"UsageError: {message}"


def test_flags_that_need_shapes_say_which(notebook: Notebook) -> None:
    cell = """
def double(A):
    M, N = T.const("M, N")
    A: T.Tensor((M, N), "float32")
    B = T.empty((M, N), "float32")
    with T.Kernel(M, threads=32) as row:
        for j in T.Parallel(N):
            B[row, j] = A[row, j] * 2.0
    return B
"""
    for flag in ("--check", "--bench", "--roofline", "--save"):
        value = " abs" if flag in ("--check", "--save") else ""
        assert notebook.run(f"%%tile {flag}{value}{cell}").text == (
            f"UsageError: {flag} needs the shapes of 'double': give -D M=... -D N=..., or its "
            "inputs with --args"
        )


def test_targets_that_cannot_be_compiled(notebook: Notebook) -> None:
    assert notebook.run(f"%%tile -t sim:gfx943{SCALE}").text == (
        "TileValueError: 'sim:gfx943' is not a target\n"
        "hint: near it: gfx942, gfx950, gfx90a; use 'cpu', 'cpu:avx2', 'cuda:<arch>', "
        "'hip:<arch>', 'sim:<arch>', 'ptx:<arch>' or 'emu:<arch>' with arch one of sm_75, sm_80, "
        "sm_86, sm_89, sm_90, sm_90a, sm_100, sm_120, gfx90a, gfx942, gfx950"
    )
    assert notebook.run(f"%%tile -t cpu:avx{SCALE}").text == (
        "TileValueError: 'cpu:avx' is not a target\n"
        "hint: use 'cpu', 'cpu:avx2', 'cuda:<arch>', 'hip:<arch>', 'sim:<arch>', 'ptx:<arch>' or "
        "'emu:<arch>' with arch one of sm_75, sm_80, sm_86, sm_89, sm_90, sm_90a, sm_100, sm_120, "
        "gfx90a, gfx942, gfx950"
    )


def test_an_error_leaves_the_namespace_as_it_was(notebook: Notebook) -> None:
    notebook.run("M = 'mine'")
    before = dict(notebook.shell.user_ns)
    for body in ("M + nope", "raise KeyboardInterrupt('M')", "def f(: M"):
        assert notebook.run(f"%%tile -D M=3\n{body}").error is not None
    changed = {
        name
        for name, value in notebook.shell.user_ns.items()
        if before.get(name) is not value and not name.startswith("_")
    }
    assert changed <= {"In", "Out", "T", "tw"} and notebook.value("M") == "mine"


# %tile


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("%tile shw", "'shw' is not a %tile command; did you mean 'show'?"),
        ("%tile zzz", f"'zzz' is not a %tile command; one of {', '.join(COMMANDS)}"),
        ("%tile show", "which kernel? (there is none yet: see '%tile examples')"),
        ("%tile show nope", "'nope' is not a kernel"),
        ("%tile peaks now", "%tile peaks takes --measure or nothing, not 'now'"),
        ("%tile bench 'x", "the line ends before a closing '"),
    ],
)
def test_a_wrong_command_says_what_is_wrong(notebook: Notebook, line: str, message: str) -> None:
    assert notebook.run(line).text == f"UsageError: {message}"


def test_commands_name_the_kernels_there_are(notebook: Notebook) -> None:
    notebook.run(f"%%tile -q{SCALE}")
    assert notebook.run("%tile bench").text == "UsageError: which kernel? One of scale"
    assert notebook.run("%tile show scal").text == (
        "UsageError: 'scal' is not a kernel; did you mean 'scale'?"
    )
    assert notebook.run("%tile bench scale nope").text == (
        "UsageError: 'nope': name 'nope' is not defined"
    )
    assert notebook.run("%tile show scale xyz").text == (
        f"ArgumentError: 'xyz' is not a view\nhint: choose one of {', '.join(NAMES)}"
    )
