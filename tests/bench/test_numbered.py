"""Numbers of instructions as lines: the code stays the same, and tells of what it was made."""

from __future__ import annotations

import re
from typing import Any

import pytest

import tileworkbench as tw
from tileworkbench.bench.llvm.instructions import parse_functions
from tileworkbench.bench.llvm.numbered import numbered
from tileworkbench.compiler.device.host.llvm import compile_assembly, optimized_text
from tileworkbench.kernels import flash_attention, gemv, matmul, softmax

PROGRAMS = [
    softmax(64, 1000, block_M=4),
    matmul(64, 64, 64, block_M=32, block_N=32, block_K=32),
    gemv(64, 2048, block_N=2, block_K=16),
    flash_attention(1, 1, 128, 128, 64, causal=True, block_M=64, block_N=64),
]


def instructions_of(assembly: str) -> list[str]:
    """The instructions, whatever their labels are."""
    lines = [line.split("#")[0].rstrip() for line in assembly.splitlines()]
    return [re.sub(r"L\w+", "label", line) for line in lines if re.match(r"\t[a-z]", line)]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_numbers_change_no_code(program: Any) -> None:
    text = optimized_text(tw.compile(program, target="cpu").source)
    with_numbers, without = (compile_assembly(each, None, ()) for each in (numbered(text), text))
    assert instructions_of(with_numbers) == instructions_of(without)
    assert "\t.loc\t" in with_numbers


TEXT = """define i32 @code(i32 %x) #0 {
entry:
  %y = add i32 %x, 1
  switch i32 %y, label %other [
    i32 1, label %one
    i32 2, label %other
  ]

one:                                              ; preds = %entry
  ; a remark
  ret i32 1

other:
  ret i32 %y
}

define void @next() {
  ret void
}

!llvm.module.flags = !{!0}
!0 = !{i32 1, !"wchar_size", i32 4}
"""


def test_each_instruction_of_a_function_has_its_number() -> None:
    places = dict(re.findall(r"(!\d+) = !DILocation\(line: (\d+),", numbered(TEXT)))
    lines = [
        (line.split()[0].rstrip(","), places[match[1]])
        for line in numbered(TEXT).splitlines()
        if line.startswith("  ") and (match := re.search(r", !dbg (!\d+)$", line))
    ]
    assert lines == [("%y", "1"), ("]", "2"), ("ret", "3"), ("ret", "4"), ("ret", "1")]


def test_numbers_are_those_of_what_is_parsed() -> None:
    names = [each.op for each in parse_functions(TEXT)["code"].instructions]
    assert names == ["add", "switch", "ret", "ret"]


def test_flags_of_a_module_stay() -> None:
    flags = next(line for line in numbered(TEXT).splitlines() if "llvm.module.flags" in line)
    assert flags.startswith("!llvm.module.flags = !{!0, !")
    assert "!llvm.module.flags" in numbered("define void @code() {\n  ret void\n}\n")
    compile_assembly(numbered(TEXT), None, ())
