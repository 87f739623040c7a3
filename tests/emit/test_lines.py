"""LLVM IR names the line of the kernel that instructions belong to, and its cache does not care."""

from __future__ import annotations

import linecache
import re

import pytest

import tileworkbench as tw
from tileworkbench.compiler.device.host import kernel as host
from tileworkbench.compiler.emit.llvm.text import without_lines
from tileworkbench.viz.model.source import code_of_line, line_answer
from tileworkbench.workbench.kernel import Kernel

TEXT = """\
import tileworkbench.language as T

@T.prim_func
def scale(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=32):
        tile = T.alloc_shared((64,), "float32")
        T.copy(A, tile)
        for i in T.Parallel(64):
            B[i] = tile[i] * 3.0 + 1.0
"""


def compiled(file: str, lines_above: int = 0) -> Kernel:
    """The kernel, that many lines further down in its file."""
    text = "\n" * lines_above + TEXT
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    names: dict[str, object] = {}
    exec(compile(text, file, "exec"), names)
    return tw.compile(names["scale"], disable=("fuse_loops",))  # type: ignore[arg-type]


def test_instructions_stand_below_their_line() -> None:
    kernel = compiled("<lines of code>")
    product, copy = code_of_line(kernel.source, 9), code_of_line(kernel.source, 7)
    assert any("fmul" in line or "fma" in line for line in product)
    assert any("load" in line for line in copy) and not any("fmul" in line for line in copy)
    assert code_of_line(kernel.source, 3) == []
    assert line_answer(kernel.view(), {"line": 9})["code"] == product


def test_a_kernel_elsewhere_in_its_file_is_the_same_code(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []
    build = host.build_native

    def recorded(text: str, *args: object, **options: object) -> object:
        built.append(text)
        return build(text, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(host, "build_native", recorded)
    here, below = compiled("<here>"), compiled("<below>", 5)
    assert built[0] == built[1] == without_lines(here.source)
    assert "; line" not in built[0]
    numbers = [re.findall(r"; line (\d+)", each.source) for each in (here, below)]
    assert [int(each) + 5 for each in numbers[0]] == [int(each) for each in numbers[1]] != []
