"""`--check` and `--bench` in cells: the user's own inputs, what is said first, `--sanitize`."""

from __future__ import annotations

import pytest

import tileworkbench as tw
from tests.magics.notebook import SCALE, Notebook

RACY = """
def racy(A: T.Tensor((64,), "float32")):
    total = T.empty((1,), "float32")
    with T.Kernel(4, threads=32) as bx:
        for i in T.Parallel(16):
            total[0] = total[0] + A[bx * 16 + i]
    return total
"""
GATHER = """
def gather(X: T.Tensor((64,), "int32"), A: T.Tensor((8,), "float32"), n: T.int32):
    B = T.empty((64,), "float32")
    with T.Kernel(1, threads=32):
        for i in T.Parallel(64):
            B[i] = T.if_then_else(i < n, A[X[i]], 0.0)
    return B
"""
PLAIN = GATHER.replace("T.if_then_else(i < n, A[X[i]], 0.0)", "A[X[i]] * n")
ROWS = """
def rows(A, scale: T.float32):
    M, N = T.const("M N")
    A: T.Tensor[[M, N], T.float32]
    B = T.empty((M, N), T.float32)
    with T.Kernel(M, threads=32) as bx:
        for j in T.Parallel(N):
            B[bx, j] = A[bx, j] * scale
    return B
"""


def test_a_race_is_told_in_every_run_and_before_anything_else(notebook: Notebook) -> None:
    notebook.run("import torch")
    warning = "of different 'bx' write the same elements of 'total', with different values\n"
    for _ in range(4):
        text = notebook.run(f"%%tile --check torch.sum{RACY}").text
        assert text.startswith(f"warning: blocks {warning}")
        assert text.count(warning) == 1
        assert "\nRaceError: 'total[0]' in block (0), iterations (0) and (14): " in text


def test_the_users_own_inputs(notebook: Notebook) -> None:
    notebook.run("import torch; x = torch.arange(64).int() % 8; a = torch.randn(8)")
    reference = "'lambda x, a, n: torch.where(torch.arange(64) < n, a[x.long()], 0)'"
    done = notebook.run(f"%%tile -v --check {reference} --args x,a,40 --bench 1{GATHER}")
    assert done.error is None and "; 1 block simulated" in done.text
    assert done.value.view().bench is not None
    text = notebook.run(f"%%tile --check {reference}{GATHER}").text
    assert text == (
        "ArgumentError: no inputs can be made up for 'n' of 'gather'\n"
        "hint: pass the arguments yourself: --args a,b in a cell, .check(reference, a, b) and "
        ".bench(a, b) of a kernel"
    )


def test_inputs_say_the_shapes_of_a_function(notebook: Notebook) -> None:
    notebook.run("import torch; a = torch.randn(5, 70)")
    line = "%%tile -v --check 'lambda a, s: a * s' --args 'a, 2.5'"
    done = notebook.run(f"{line}{ROWS}")
    assert done.error is None
    assert "rows: agrees with lambda a, s: a * s" in done.text
    assert "rows[M=5,N=70]" in done.text


def test_inputs_that_cannot_be_evaluated(notebook: Notebook) -> None:
    assert notebook.run(f"%%tile --check abs --args nope{SCALE}").text == (
        "UsageError: '--args nope': name 'nope' is not defined"
    )


def test_a_reference_that_is_misspelt(notebook: Notebook) -> None:
    notebook.run("import torch")
    assert notebook.run(f"%%tile --check torch.matmull{SCALE}").text == (
        "UsageError: '--check torch.matmull': module 'torch' has no attribute 'matmull'; did you "
        "mean 'matmul'?"
    )
    assert notebook.run(f"%%tile --check torhc.abs{SCALE}").text == (
        "UsageError: '--check torhc.abs': name 'torhc' is not defined; did you mean 'torch'?"
    )


def test_sanitize_is_of_the_check_and_of_calls(notebook: Notebook) -> None:
    notebook.run("import torch; x = torch.full((64,), 300).int(); a = torch.randn(8)")
    reference = "'lambda x, a, n: torch.zeros(64)'"
    with pytest.warns(tw.TileWarning, match=r"'A\[300\]' is outside 'A' of shape \(8\) in block"):
        assert notebook.run(f"%%tile --check {reference} --args x,a,2{PLAIN}").error is None
    text = notebook.run(f"%%tile --sanitize --check {reference} --args x,a,2{PLAIN}").text
    assert text.startswith("OutOfBoundsError: 'A[300]' is outside 'A' of shape (8) in block (0), ")
    text = notebook.run("gather(x, a, 2)").text
    assert text.startswith("OutOfBoundsError: index 300 is out of range for dimension 0 of 'A'")
    text = notebook.run(f"%%tile --sanitize -t sim:sm_80 --run 'gather(x, a, 2)'{PLAIN}").text
    assert text.startswith("OutOfBoundsError: 'A[300]' is outside 'A' of shape (8) in block (0), ")


def test_what_to_do_next_uses_names_that_there_are(notebook: Notebook) -> None:
    cell = f"%%tile --check 'lambda A: A + 1'{SCALE}"
    hint = "hint: '%tile bisect scale' names the pass that broke it, if one did"
    assert notebook.run(cell).text.splitlines()[-1] == hint
    said, joined = notebook.run("%tile bisect scale").text.splitlines()
    assert said.endswith("stages agree")
    assert joined.startswith("2047 of 2048 elements of 'B' are wrong: nearly everywhere; ")
    assert joined.endswith(f"; wrong as written: {said}")
    cell = f"%%tile --check 'lambda A: A + 1'\n@T.prim_func{SCALE.replace('return B', '')}"
    cell = cell.replace('B = T.empty((64, 32), "float32")\n', "\n").replace(
        '"float32")):', '"float32"), B: T.Tensor((64, 32), "float32")):'
    )
    assert notebook.run(cell).text.splitlines()[-1] == (
        "hint: '-o K' and then '%tile bisect K' names the pass that broke it, if one did"
    )


@pytest.mark.nvrtc
def test_fast_math_is_the_cells(notebook: Notebook) -> None:
    """Of a T.prim_func and of a function, which it decorates or finds decorated."""
    body = """
    B = T.empty((64,), "float32")
    with T.Kernel(1, threads=64):
        for i in T.Parallel(64):
            B[i] = T.exp2(A[i])
    return B
"""
    plain = f'\ndef power(A: T.Tensor((64,), "float32")):{body}'
    for head in (plain, f"\n@T.prim_func{plain}", f'\n@tw.jit(target="ptx:sm_80"){plain}'):
        for flag in (True, False):
            line = f"%%tile -t ptx:sm_80{' --fast-math' * flag}"
            kernel = notebook.run(f"{line}{head}").value
            assert ("ex2.approx.ftz.f32" in kernel.asm) == flag
