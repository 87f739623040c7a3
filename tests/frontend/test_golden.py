"""Each construct against its golden text:

`programs/` for what is traced, `diagnostics/` for what is rejected.
"""

from __future__ import annotations

import pytest

from tests.frontend.golden import FOLDER, Case, output_of, program_of, read_cases
from tileworkbench.compiler.ir.parser import parse
from tileworkbench.compiler.ir.printer import print_program
from tileworkbench.compiler.ir.verify import verify

CASES = [
    pytest.param(case, id=f"{path.parent.name}-{path.stem}-{case.name}")
    for path in sorted(FOLDER.glob("*/*.txt"))
    for case in read_cases(path)
]


@pytest.mark.parametrize("case", CASES)
def test_golden_text(case: Case) -> None:
    assert output_of(case.source) == case.expected


def test_names_are_unique_within_a_file() -> None:
    for path in FOLDER.glob("*/*.txt"):
        names = [case.name for case in read_cases(path)]
        assert len(names) == len(set(names)), path.name


PROGRAMS = [case for case in CASES if "-programs-" in f"-{case.id}"]


@pytest.mark.parametrize("case", PROGRAMS)
def test_golden_program_is_legal_and_reads_back(case: Case) -> None:
    program = program_of(case.source)
    verify(program)
    assert print_program(parse(print_program(program))) == case.expected
    assert parse(print_program(program)) == program
