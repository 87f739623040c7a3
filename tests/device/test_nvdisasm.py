"""Instructions of a device under the lines of a kernel, and what is said where nvdisasm is not."""

from __future__ import annotations

import re
import stat
from pathlib import Path

import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tests.capability import require
from tileworkbench.compiler.device.nvidia import nvdisasm, nvrtc
from tileworkbench.compiler.diagnostics import RunError, UnsupportedError


@pytest.fixture
def disassembler() -> None:
    require("nvrtc", nvrtc.missing_nvrtc() or nvdisasm.missing_nvdisasm())


@T.prim_func
def product(
    A: T.Tensor((32, 32), "float16"),
    B: T.Tensor((32, 32), "float16"),
    C: T.Tensor((32, 32), "float32"),
):
    with T.Kernel(1, threads=32):
        a = T.alloc_shared((32, 32), "float16")
        b = T.alloc_shared((32, 32), "float16")
        c = T.alloc_fragment((32, 32), "float32")
        T.clear(c)
        T.copy(A, a)
        T.copy(B, b)
        T.gemm(a, b, c)
        T.copy(c, C)


@pytest.mark.nvrtc
@pytest.mark.parametrize("target", ["sim:sm_80", "ptx:sm_90a"])
def test_instructions_stand_under_their_lines(disassembler: None, target: str) -> None:
    text = tw.compile(product, target=target).sass
    assert re.search(r"\.target\s+" + target[4:], text)
    place, under = "", {}
    for line in text.splitlines():
        if found := re.match(r"\s+// line \d+: (.*)", line):
            place = found[1]
        elif found := re.match(r"\s+/\*[0-9a-f]+\*/\s+(?:@!?U?P\d+\s+)?([A-Z]\w*)", line):
            under.setdefault(place, set()).add(found[1])
    assert {"HMMA", "LDSM"} <= under["T.gemm(a, b, c)"]
    # From sm_90 on the copy engine loads, and a memory barrier knows when it has. (ptxas gives the
    # second of two such copies the place of the first.)
    copied = {"LDG", "STS"} if target.endswith("sm_80") else {"UTMALDG", "SYNCS"}
    assert copied <= under["T.copy(A, a)"] and "STG" in under["T.copy(c, C)"]
    moved = copied - {"SYNCS"}  # a wait may stand among the loads of what it is for
    assert not moved & set().union(*(under[place] for place in under if "T.copy(" not in place))
    assert not any("HMMA" in names for place, names in under.items() if "gemm" not in place)
    assert "File" not in text  # no paths of this machine


@pytest.mark.nvrtc
def test_what_nvdisasm_refuses(disassembler: None) -> None:
    with pytest.raises(RunError) as caught:
        nvdisasm.disassemble(b"no ELF", "")
    assert str(caught.value).startswith("nvdisasm failed: nvdisasm fatal")


def test_a_missing_disassembler_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvdisasm, "_find", lambda: None)
    assert nvdisasm.missing_nvdisasm() == "the CUDA disassembler nvdisasm is not installed"
    with pytest.raises(UnsupportedError) as caught:
        nvdisasm.disassemble(b"", "")
    assert str(caught.value) == (
        "the CUDA disassembler nvdisasm is not installed\n"
        "hint: install it with 'pip install tileworkbench[cuda]'"
    )


def test_the_program_is_looked_for_in_wheels_then_on_the_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for folder in ("wheel", "path"):
        program = tmp_path / folder / "nvdisasm"
        program.parent.mkdir()
        program.write_text("#!/bin/sh\n")
        program.chmod(program.stat().st_mode | stat.S_IEXEC)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setattr(nvdisasm, "toolkit_directories", lambda kind: [])
    for wheels, found in (([tmp_path / "wheel"], "wheel"), ([], "path")):
        monkeypatch.setattr(nvdisasm, "wheel_directories", lambda kind, wheels=wheels: wheels)
        assert nvdisasm._find() == str(tmp_path / found / "nvdisasm")


@pytest.mark.parametrize("name", ["sass", "resources"])
def test_a_kernel_for_a_cpu_has_none(name: str) -> None:
    on_cpu, on_gpu = (tw.compile(product, target=target) for target in ("cpu", "sim:sm_80"))
    assert name in dir(on_gpu) and name not in dir(on_cpu)
    assert not hasattr(on_cpu, name) and "asm" in dir(on_cpu)
    with pytest.raises(AttributeError) as caught:
        getattr(on_cpu, name)
    assert str(caught.value) == (
        f"'product' is compiled for 'cpu', and only kernels for a GPU have '{name}': "
        "compile it for 'cuda:sm_80', 'ptx:sm_80' or 'sim:sm_80'"
    )


def test_a_jitted_kernel_has_what_its_compiled_one_has() -> None:
    @tw.jit(target="cpu")
    def jitted():  # type: ignore[no-untyped-def]
        return product

    with pytest.raises(AttributeError, match="only kernels for a GPU have 'sass'"):
        _ = jitted.sass


def test_names_that_ipython_completes() -> None:
    from IPython.core.completer import provisionalcompleter
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell()
    found = {}
    for target in ("cpu", "sim:sm_80"):
        shell.user_ns["k"] = tw.compile(product, target=target)
        with provisionalcompleter():
            found[target] = {each.text.strip(".") for each in shell.Completer.completions("k.s", 3)}
    assert found["sim:sm_80"] - found["cpu"] == {"sass"} and "source" in found["cpu"]


def test_changes_of_place() -> None:
    """The last place of several is the outermost; functions before the first comment have none."""
    source = "int f() {\n  // line 3: a\n  x;\n}\nint g() {\n  y;\n  // line 4: b\n  z;"
    text = """.text.g:
\t//## File "/tmp/g.cu", line 6
        /*0000*/ A ;
\t//## File "/tmp/g.cu", line 3 inlined at "/tmp/g.cu", line 8
\t//## File "/tmp/g.cu", line 8
        /*0010*/ B ;
.L_x_0:
        /*0020*/ C ;
\t//## File "/tmp/g.cu", line 3
        /*0030*/ D ;"""
    assert list(nvdisasm._with_comments(text, nvdisasm.comments_above(source))) == [
        ".text.g:",
        "        /*0000*/ A ;",
        "        // line 4: b",
        "        /*0010*/ B ;",
        ".L_x_0:",
        "        /*0020*/ C ;",
        "        // line 3: a",
        "        /*0030*/ D ;",
    ]
