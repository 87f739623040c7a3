"""What a kernel is told that a target cannot execute, as text.

A case of `targets/*.txt` is a comment that names the target, a kernel, and the rendered error.
`python -m tests.messages.test_targets` fills in the texts that are still empty.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.frontend.golden import Case, program_of, read_cases
from tileworkbench.compiler.diagnostics import TileError
from tileworkbench.compiler.driver import compile_program, lower_program, resolve_target
from tileworkbench.compiler.emit.cuda.dialect import generate_cuda

FILES = sorted((Path(__file__).parent / "targets").glob("*.txt"))
CASES = [
    pytest.param(case, id=f"{path.stem}-{case.name}") for path in FILES for case in read_cases(path)
]


def output_of(source: str) -> str:
    """The error of compiling the kernel in `source` for the target in its first line."""
    target = resolve_target(source.splitlines()[0].removeprefix("# target: "))
    try:
        program = program_of(source)
        if target.kind == "cpu":
            compile_program(program, str(target))
        else:
            generate_cuda(lower_program(program, target)[-1].program, target)
    except TileError as error:
        return error.render() + "\n"
    return "compiled\n"


@pytest.mark.parametrize("case", CASES)
def test_message(case: Case) -> None:
    assert output_of(case.source) == case.expected


if __name__ == "__main__":
    for path in FILES:
        cases = [
            case
            if case.expected.strip()
            else replace(case, expected=output_of(case.source))
            for case in read_cases(path)
        ]
        path.write_text("\n".join(case.text for case in cases), encoding="utf-8")
