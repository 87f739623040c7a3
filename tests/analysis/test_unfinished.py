"""Mistakes in waiting that the program alone proves, and that the simulator meets them.

A case of `waits.txt` is a kernel and its warnings, nothing where it has none. After a deliberate
change, `python -m tests.analysis.test_unfinished` rewrites the expected texts.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.analysis.test_hazards import warnings_of
from tests.frontend.golden import Case, program_of, read_cases
from tileworkbench.compiler.analysis.hazards import find_hazards
from tileworkbench.compiler.diagnostics import DeadlockError
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.sim import simulate

FILE = Path(__file__).parent / "waits.txt"
CASES = [pytest.param(case, id=case.name) for case in read_cases(FILE)]
USELESS = "this waits for"  # nothing, or copies that nobody started: no access is wrong


@pytest.mark.parametrize("case", CASES)
def test_warnings(case: Case) -> None:
    assert warnings_of(case.source) == case.expected.lstrip("\n")


@pytest.mark.parametrize("case", CASES)
def test_the_simulator_meets_what_was_proven(case: Case) -> None:
    program = program_of(case.source)
    arguments = {
        param.name: np.zeros(
            [const_int(extent) for extent in param.value.shape], str(param.value.dtype)
        )
        for param in program.params
    }
    notes = find_hazards(program)
    try:
        findings = simulate(program, arguments).report.findings
    except DeadlockError as error:
        assert [note.span.line for note in notes] == [error.span.line]
        return
    proven = {note.span.line for note in notes if not note.message.startswith(USELESS)}
    assert proven <= {finding.span.line for finding in findings}


if __name__ == "__main__":
    found = [replace(case, expected=warnings_of(case.source)) for case in read_cases(FILE)]
    FILE.write_text("\n".join(case.text for case in found), encoding="utf-8")
