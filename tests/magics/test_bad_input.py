"""Bad input of every kind: an error that names the thing, and a session that goes on as before."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from IPython.core.getipython import get_ipython

from tests.magics.notebook import SCALE, SCALE_TEXT, Notebook, open_notebook
from tileworkbench.compiler.diagnostics import ArgumentError, TileError
from tileworkbench.viz.display import NAMES

KERNELS = f"""%%tile -q
import numpy, torch
x = torch.ones(64, 32)
kept = [1, 2]
{SCALE}
def write(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=32):
        for i in T.Parallel(64):
            B[i] = A[63 - i]

def strided(A: T.StridedTensor((64, 32), (64, 1), "float32")):
    B = T.empty((64, 32), "float32")
    with T.Kernel(1, threads=32):
        for i, j in T.Parallel(64, 32):
            B[i, j] = A[i, j]
    return B

M = T.dynamic("M")

@T.prim_func
def rows(A: T.Tensor((M, 8), "float32"), B: T.Tensor((M, 8), "float32"), n: T.int32):
    with T.Kernel(n, threads=32) as row:
        for j in T.Parallel(8):
            B[row, j] = A[row, j]

rows = tw.compile(rows)
"""


@pytest.fixture(scope="module")
def session() -> Iterator[Notebook]:
    with open_notebook() as opened:
        assert opened.run(KERNELS).text == ""
        assert_alive(opened)  # from here on `scale` has a compiled kernel
        yield opened


def assert_alive(notebook: Notebook) -> None:
    """The variables are what they were, and kernels still run."""
    alive = "kept, float(x.sum()), float(scale(x).sum())"
    assert notebook.value(alive) == ([1, 2], 2048.0, 4096.0)


# The arguments of a call


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (  # dtype
            "scale(x.double())",
            "'scale': 'A' has dtype 'float64', expected 'float32'\n"
            "hint: convert it with .to(torch.float32)",
        ),
        (  # rank
            "scale(torch.ones(64))",
            "'scale': 'A' has 1 dimension, expected 2: (64, 32)",
        ),
        (  # extent
            "scale(torch.ones(64, 33))",
            "'scale': dimension 1 of 'A' is 33, expected 32",
        ),
        (
            "rows(torch.ones(3, 8), torch.ones(4, 8), 1)",
            "'rows': dimension 0 of 'B' is 4, expected M = 3 as dimension 0 of 'A' says",
        ),
        (  # stride
            "scale(torch.ones(32, 64).T)",
            "'scale': 'A' has strides (1, 64), expected (32, 1)\n"
            "hint: pass a contiguous copy, or declare the parameter as T.StridedTensor",
        ),
        ("strided(x)", "'strided': 'A' has strides (32, 1), expected (64, 1)"),
        (  # device
            "scale(x.to('meta'))",
            "'scale': 'A' is on device 'meta', expected 'cpu'",
        ),
        (  # count
            "scale()",
            "'scale': missing a required argument: 'A'",
        ),
        ("scale(x, x)", "'scale' takes 1 argument (A), got 2"),
        ("scale.kernel()", "'scale' takes 1 argument (A), got 0"),
        (  # kind
            "scale('a')",
            "'scale': 'A' must be a tensor, not 'str'\n"
            "hint: a torch tensor, a numpy array, or anything with DLPack",
        ),
        (  # overlap
            "y = torch.ones(100); write(y[:64], y[10:74])",
            "'write': 'B' is written and overlaps 'A' in memory\n"
            "hint: pass tensors of their own, or compile with allow_alias=True",
        ),
        (
            "z = numpy.ones(64, 'f'); z.flags.writeable = False; write(z.copy(), z)",
            "'write': 'B' is read-only, but the kernel writes to it",
        ),
        (  # zero grid
            "rows(torch.ones(3, 8), torch.ones(3, 8), 0)",
            "'rows': the grid is empty, there is no block to run",
        ),
    ],
)
def test_a_call_that_does_not_fit(session: Notebook, call: str, message: str) -> None:
    done = session.run(call)
    assert done.text == f"ArgumentError: {message}"
    assert isinstance(done.error, ArgumentError) and isinstance(done.error, ValueError)
    assert_alive(session)


# The kernel


def kernel_of(*lines: str, grid: str = "1") -> str:
    """A cell with a kernel of those lines."""
    body = "".join(f"\n        {line}" for line in lines)
    return (
        "%%tile\ndef bad(A: T.Tensor((8,), 'float32'), I: T.Tensor((8,), 'int32')):\n"
        f"    with T.Kernel({grid}, threads=32) as bx:{body}\n"
    )


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        (  # a construct that is not supported
            kernel_of("T.tma_load()"),
            "UnsupportedError: 'T.tma_load' is not supported yet\n"
            "  --> {cell}, line 4\n"
            "4 | T.tma_load()\n"
            "  | ^^^^^^^^^^^^\n"
            "hint: T.tma_copy moves tiles, with a memory barrier that says when they have arrived",
        ),
        (
            kernel_of("with open('f') as f:", "    A[bx] = 1.0"),
            None,
        ),
        (
            kernel_of("class C: pass"),
            "TileSyntaxError: 'class' has no meaning in a kernel\n"
            "  --> {cell}, line 4\n"
            "4 | class C: pass\n"
            "  | ^^^^^^^^^^^^^\n"
            "hint: define the class outside the kernel",
        ),
        (  # out of range
            kernel_of("s = T.alloc_shared((8,), 'float32')", "s[9] = A[bx]"),
            "TileIndexError: index 9 is out of range for dimension 0 of 's', which has extent 8\n"
            "  --> {cell}, line 5\n"
            "5 | s[9] = A[bx]\n"
            "  | ^^^^",
        ),
    ],
)
def test_a_kernel_that_cannot_be_compiled(
    session: Notebook, cell: str, message: str | None
) -> None:
    done = session.run(cell)
    assert done.error is not None and "tileworkbench" not in done.text
    if message is not None:
        number = session.shell.execution_count - 1
        assert done.text == message.format(cell=f"Cell In[{number}]")
        assert isinstance(done.error, TileError)
    assert_alive(session)


def test_an_index_from_data_that_leaves_a_tile_is_an_error_of_the_call(session: Notebook) -> None:
    session.run(
        kernel_of(
            "s = T.alloc_shared((8,), 'float32')",
            "T.fill(s, 1.0)",
            "for i in T.Parallel(8):",
            "    s[I[i]] = 2.0",
            "for i in T.Parallel(8):",
            "    A[i] = s[I[i]]",
        )
    )
    session.run("i = torch.tensor([10**9, -1, 7, 2**31 - 1, 8, -(2**31), 0, 7]).int()")
    number = session.shell.execution_count - 2
    assert session.run("a = torch.zeros(8); bad(a, i)").text == (
        "OutOfBoundsError: index 1000000000 is out of range for dimension 0 of 's', which has "
        "extent 8\n"
        f"  --> Cell In[{number}], line 7\n"
        "7 | s[I[i]] = 2.0\n"
        "  | ^^^^^^^^^^^^^\n"
        "hint: guard the access with an 'if'"
    )
    assert session.run("bad(a, i.clamp(0, 7))").text == ""
    assert session.value("a.tolist()") == [2.0] * 8
    assert_alive(session)


def test_an_index_that_leaves_a_global_tensor_reads_zero_and_writes_nothing(
    session: Notebook,
) -> None:
    session.run(kernel_of("for i in T.Parallel(8):", "    I[i] = A[i + 4] + 2 * A[i - 4]"))
    assert session.run("i = torch.ones(8, dtype=torch.int32); bad(torch.ones(8), i)").text == ""
    assert session.value("i.tolist()") == [1] * 4 + [2] * 4
    session.run(kernel_of("for i in T.Parallel(8):", "    A[I[i]] = 2.0"))
    session.run("i = torch.tensor([10**9, -1, 7, 2**31 - 1, 8, -(2**31), 0, 7]).int()")
    assert session.run("a = torch.ones(8); bad(a, i)").text == ""
    assert session.value("a.tolist()") == [2.0] + [1.0] * 6 + [2.0]
    assert_alive(session)


def test_an_index_that_leaves_a_tile_is_found_by_the_simulator(session: Notebook) -> None:
    """And stops a call."""
    cell = kernel_of(
        "s = T.alloc_shared((8,), 'float32')",
        "for i in T.Parallel(8):",
        "    s[i + bx] = A[i]",
        grid="4",
    )
    assert session.run(cell).error is None
    number = session.shell.execution_count - 1
    session.run("i = torch.ones(8, dtype=torch.int32)")
    assert session.run("bad(torch.ones(8), i)").text == (
        "OutOfBoundsError: index 8 is out of range for dimension 0 of 's', which has extent 8\n"
        f"  --> Cell In[{number}], line 6\n"
        "6 | s[i + bx] = A[i]\n"
        "  | ^^^^^^^^^^^^^^^^\n"
        "hint: guard the access with an 'if'"
    )
    done = session.run("bad.kernel.simulate(torch.ones(8), i).report")
    assert done.text == (
        "OutOfBoundsError: 's[8]' is outside 's' of shape (8) in block (1)\n"
        f"  --> Cell In[{number}], line 6\n"
        "6 | s[i + bx] = A[i]\n"
        "  | ^^^^^^^^^^^^^^^^\n"
        "hint: only accesses of global tensors are masked; guard this one with an 'if'"
    )
    assert_alive(session)


# The API


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("tw.jit(3)", "TileTypeError: tw.jit decorates a function, not 'int'"),
        (
            "tw.jit(lambda A: A)",
            "TileSyntaxError: the source of '<lambda>' is not available: it is a lambda\n"
            "hint: define the kernel with 'def'; reload the module if its file has changed",
        ),
        (
            "tw.compile(scale)",
            "TileTypeError: tw.compile takes a T.prim_func, not 'Jit'\n"
            "hint: decorate a function with @T.prim_func, or use @tw.jit and its .compile()",
        ),
        (
            "scale.compile(Q=3)",
            "ArgumentError: 'scale' has no compile-time argument or constant 'Q'",
        ),
        ("lazy(1, 2)", "ArgumentError: 'lazy': too many positional arguments"),
        ("lazy([3])", "TileTypeError: 'lazy': an argument has no hash: unhashable type: 'list'"),
        (
            "lazy(3)",
            "TileTypeError: 'lazy' returned 'int', not a T.prim_func\n"
            "hint: a function under @tw.jit is a kernel itself or returns a T.prim_func",
        ),
        (
            "scale.kernel.passes['plan_scrach']",
            "ArgumentError: there is no pass 'plan_scrach'\nhint: did you mean 'plan_scratch'?",
        ),
        (
            "scale.kernel.simulate(x, stage='til')",
            None,
        ),
        (
            "scale.kernel.show('rooflin')",
            f"ArgumentError: 'rooflin' is not a view\nhint: choose one of {', '.join(NAMES)}",
        ),
        (
            "tw.roofline(scale.kernel)",
            "ArgumentError: 'scale' has not been measured\nhint: call its .bench(...) first",
        ),
        (
            "scale.kernel.check(lambda A: (A, A), x)",
            "ArgumentError: 'scale' has 1 output, the reference 2",
        ),
        (
            "scale.kernel.check(lambda A: A[:3], x)",
            "CheckError: output 'B' of 'scale' has shape (64, 32), the reference (3, 32)\n"
            "note: the simulator found nothing wrong: 2 blocks simulated\n"
            "hint: no element was compared: let the reference return an array of the same shape",
        ),
        ("scale.with_target('gpu').compile()", None),
        (
            "%tile bench rows",
            "ArgumentError: no inputs can be made up for 'A' of 'rows'\n"
            "hint: pass the arguments yourself: --args a,b in a cell, .check(reference, a, b) and "
            ".bench(a, b) of a kernel",
        ),
    ],
)
def test_wrong_uses_of_the_api(session: Notebook, call: str, message: str | None) -> None:
    session.run("@tw.jit\ndef lazy(n):\n    return n")
    done = session.run(call)
    assert isinstance(done.error, TileError)
    if message is not None:
        assert done.text == message
    assert "Traceback" not in done.text and "----> " not in done.text
    assert_alive(session)


# The machine


def test_a_cache_directory_that_cannot_be_written(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nothing is cached, and nothing else is different. (/proc is read-only for root as well.)"""
    (tmp_path / "file").write_text("")
    for place in ("/proc/tileworkbench", str(tmp_path / "file"), str(tmp_path / "file" / "below")):
        monkeypatch.setenv("TILEWORKBENCH_CACHE_DIR", place)
        notebook.run("%tile clear-cache")
        done = notebook.run(f"%%tile --check 'lambda A: A * 2'{SCALE}")
        assert done.text.endswith("| check ok>") and done.value.record.cached == ""


def test_cache_entries_cut_short(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """They are rebuilt, and then served again."""
    from tileworkbench.compiler.driver import clear_memory_cache

    monkeypatch.setenv("TILEWORKBENCH_CACHE_DIR", str(tmp_path / "cache"))
    cell = f"%%tile --check 'lambda A: A * 2'{SCALE}"
    seen = []
    for size in (None, 40, 0, None):
        for entry in (tmp_path / "cache").glob("*"):
            if size is not None:
                entry.write_bytes(entry.read_bytes()[:size])
        clear_memory_cache()
        done = notebook.run(cell)
        assert done.text.endswith("| check ok>")
        seen.append(done.value.record.cached)
    assert seen == ["", "", "", "disk"]


def test_without_llvmlite(tmp_path: Path) -> None:
    """Compiling says what to install; the simulator's inputs and the session stay usable."""
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\n"
        "sys.modules['llvmlite'] = None\n"
        "from tests.magics.notebook import SCALE, open_notebook\n"
        "with open_notebook() as notebook:\n"
        "    notebook.run('kept = 1')\n"
        "    print(notebook.run(f'%%tile{SCALE}').text)\n"
        "    print(notebook.value('kept'), notebook.value('scale'))\n"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        check=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    lines = done.stdout.splitlines()
    assert lines[0].startswith(
        "UnsupportedError: running kernels on the CPU needs llvmlite, which cannot be imported ("
    )
    assert lines[1:] == ["hint: pip install llvmlite", "1 <tw.jit scale: eager, 0 compiled>"]


def test_the_text_of_a_good_cell_after_all_that(session: Notebook) -> None:
    assert session.run(f"%%tile{SCALE}").text.endswith(SCALE_TEXT)


def test_a_notebook_that_ends_leaves_the_one_before(session: Notebook) -> None:
    """Tests of both kinds come in any order."""
    with open_notebook() as inner:
        assert get_ipython() is inner.shell
    assert get_ipython() is session.shell
