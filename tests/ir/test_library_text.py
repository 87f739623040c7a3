"""The IR of every kernel of the library after every pass reads back as itself."""

from __future__ import annotations

import ast

import pytest

from tests.kernels.test_gpu import CASES
from tileworkbench.compiler.driver import lower_program, resolve_target
from tileworkbench.compiler.ir.parser import parse
from tileworkbench.compiler.ir.printer import print_lines, print_program
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.stmt import Seq
from tileworkbench.compiler.ir.verify import verify


def programs(name: str, target: str) -> list[Program]:
    """The front end's program, and those that passes have changed."""
    program = CASES[name]()[0].program
    snapshots = lower_program(program, resolve_target(target))
    return [program, *(found.program for found in snapshots if found.changed)]


@pytest.mark.covering(1)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("target", ["cpu", "sim:sm_80"])
def test_every_stage_reads_back_as_itself(name: str, target: str) -> None:
    for program in programs(name, target):
        text = print_program(program)
        again = parse(text)
        assert again == program
        assert print_program(again) == text
        verify(again)


@pytest.mark.parametrize("target", ["cpu", "sim:sm_80"])
def test_statements_know_their_lines(target: str) -> None:
    """Each statement's site is the line that it was read from, and so is that of its text."""
    for program in programs("flash_attention", target):
        text = print_program(program)
        again = parse(text, "<cell>")
        lines = text.splitlines()
        for number, line in enumerate(print_lines(again), 1):
            if line.site and line.text.strip() not in ("else:", "pass"):
                assert again.sites[line.site].line == number
        for stmt in statements(again.body):
            if not isinstance(stmt, Seq):
                span = again.span(stmt.site)
                assert span is not None and span.file == "<cell>"
                found = lines[span.line - 1][span.column : span.end_column]
                assert found and found == found.strip()
                ast.parse(f"{found}\n" if found[-1] != ":" else f"{found}\n    pass\n")
