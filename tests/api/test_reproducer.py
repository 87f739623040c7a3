"""`k.export`: the folder holds the whole compilation, and compiles again by itself."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench.compiler.ir.parser import parse


@tw.jit(out_idx=[-1])
def shift(block):
    N = T.dynamic("n")

    @T.prim_func
    def main(A: T.Tensor((N, 8), T.float16), s: T.int32, B: T.Tensor((N, 8), T.float16)):
        with T.Kernel(T.ceildiv(N, block), threads=32) as bx:
            for i, j in T.Parallel(block, 8):
                B[bx * block + i, j] = A[bx * block + i + s, j]

    return main


@tw.jit(out_idx=[-1])
def copy(N):
    @T.prim_func
    def main(A: T.Tensor((N, T.dynamic("m")), T.float32), B: T.Tensor((N, 4), T.float32)):
        with T.Kernel(1, threads=32) as bx:
            T.copy(A[0:N, 0:4], B)

    return main


def test_the_files_are_the_compilation(tmp_path: Path) -> None:
    kernel = shift(16)
    folder = kernel.export(tmp_path / "new" / "folder")
    assert folder == tmp_path / "new" / "folder"
    read = {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*.*")}
    assert read["source.py"] == kernel.record.source
    assert read["code.ll"] == kernel.source
    assert parse(read["program.txt"]) == kernel.program
    passes = {name: text for name, text in read.items() if name.startswith("passes/")}
    changed = [snapshot for snapshot in kernel.passes if snapshot.changed]
    assert [text for _, text in sorted(passes.items())] == [snapshot.ir for snapshot in changed]
    assert json.loads(read["parameters.json"]) == [
        {"name": "A", "dtype": "float16", "output": False, "shape": ["n", 8]},
        {"name": "s", "dtype": "int32", "output": False},
        {"name": "B", "dtype": "float16", "output": True, "shape": ["n", 8]},
    ]
    environment = json.loads(read["environment.json"])
    assert environment["target"] == "cpu"
    assert environment["constants"] == {"block": "16"}
    assert environment["packages"]["tileworkbench"] == tw.__version__


def test_a_kernel_for_a_gpu_leaves_the_text_of_each_variant(tmp_path: Path) -> None:
    for target, files in (("cpu", ["code.ll"]), ("sim:sm_80", ["code.cu", "code_1.cu"])):
        kernel = tw.compile(copy.fn(32), target=target)
        folder = kernel.export(tmp_path)
        assert sorted(path.name for path in folder.glob("code*")) == files
    assert (folder / "code.cu").read_text() == kernel.source
    (variant,) = kernel.variants
    assert (folder / "code_1.cu").read_text() == f"// where m % 4 == 0\n{variant.source}"


def test_it_compiles_and_runs_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = copy(6).export(tmp_path) / "reproduce.py"
    monkeypatch.setattr(sys, "argv", [str(script), "m=9"])
    runpy.run_path(str(script), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("<TileKernel main cpu grid=1 threads=32 ")
    assert lines[1].startswith("all ") and lines[1].endswith(" stages agree")
    monkeypatch.setattr(sys, "argv", [str(script)])
    with pytest.raises(tw.ArgumentError, match="the extent 'm' of 'A' of 'main' has no value"):
        runpy.run_path(str(script), run_name="__main__")


def test_it_runs_on_the_inputs_that_were_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = torch.arange(48, dtype=torch.float16).reshape(6, 8)
    script = shift(16).export(tmp_path, given[:4], 2) / "reproduce.py"
    monkeypatch.setattr(sys, "argv", [str(script)])
    ran = runpy.run_path(str(script), run_name="__main__")
    assert torch.equal(ran["inputs"][0], given[:4]) and ran["inputs"][1] == 2
    assert capsys.readouterr().out.rstrip().endswith(" stages agree")
    shift(16).export(tmp_path)
    assert not (tmp_path / "inputs.pt").exists()


def test_the_inputs_of_a_failed_check_are_exported(tmp_path: Path) -> None:
    kernel, given = shift(16), np.ones((4, 8), np.float16)
    with pytest.raises(tw.CheckError):
        kernel.check(lambda a, s: a * 2, given, 0)
    first, number = torch.load(kernel.export(tmp_path) / "inputs.pt", weights_only=True)
    assert number == 0 and torch.equal(first, torch.from_numpy(given))


def test_what_cannot_be_stored_leaves_the_folder_as_it_was(tmp_path: Path) -> None:
    with pytest.raises(tw.ArgumentError, match="an argument cannot be stored: "):
        shift(16).export(tmp_path / "new", object(), 1)
    assert not (tmp_path / "new").exists()


def test_a_second_export_replaces_the_first(tmp_path: Path) -> None:
    shift(16).export(tmp_path)
    stale = tmp_path / "passes" / "99_gone.txt"
    stale.write_text("")
    kept = tmp_path / "notes.txt"
    kept.write_text("mine")
    kernel = copy(6)
    kernel.export(tmp_path)
    assert not stale.exists() and kept.exists()
    assert parse((tmp_path / "program.txt").read_text()) == kernel.program


def test_a_file_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("mine")
    with pytest.raises(tw.ArgumentError) as caught:
        shift(16).export(path)
    assert str(caught.value) == f"'{path}' is a file\nhint: k.export writes a folder"
    assert path.read_text() == "mine"
