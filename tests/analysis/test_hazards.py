"""What a program certainly does wrong, as text; and that the simulator meets it at the same line.

A case of `hazards/*.txt` is a kernel and its warnings, nothing where it has none. After a
deliberate change, `python -m tests.analysis.test_hazards` rewrites the expected texts.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

from tests.frontend.golden import Case, program_of, read_cases
from tests.properties.programs import Sample, samples
from tests.tiers import examples
from tileworkbench.compiler.analysis.hazards import find_hazards
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.sim import SimOptions, simulate

FILES = sorted((Path(__file__).parent / "hazards").glob("*.txt"))
CASES = [
    pytest.param(case, id=f"{path.stem}-{case.name}") for path in FILES for case in read_cases(path)
]


def warnings_of(source: str) -> str:
    """The rendered warnings of the kernel in `source`."""
    return "".join(note.render("warning") + "\n" for note in find_hazards(program_of(source)))


@pytest.mark.parametrize("case", CASES)
def test_warnings(case: Case) -> None:
    assert warnings_of(case.source) == case.expected.lstrip("\n")


@pytest.mark.parametrize("case", CASES)
def test_the_simulator_meets_what_was_proven(case: Case) -> None:
    program = program_of(case.source)
    arguments = {
        param.name: (np.arange(np.prod(shape)) % 8).reshape(shape).astype(param.value.dtype)
        for param in program.params
        if isinstance(param.value, Buffer)
        for shape in [[const_int(extent) or 1 for extent in param.value.shape]]
    }
    options = SimOptions(stop_at_out_of_bounds=False)
    report = simulate(program, arguments, options=options).report
    met = {found.span.line for found in (*report.findings, *report.masked) if found.span}
    proven = {note.span.line for note in find_hazards(program) if note.span}
    assert proven <= met
    for finding in report.findings:
        assert finding.block and finding.index and finding.span


@settings(max_examples=examples(60))
@given(samples())
def test_programs_that_are_right_have_no_warnings(sample: Sample) -> None:
    assert not find_hazards(sample.program)


def update(path: Path) -> None:
    """Write what the cases of a file give now."""
    cases = [replace(case, expected=warnings_of(case.source)) for case in read_cases(path)]
    path.write_text("\n".join(case.text for case in cases), encoding="utf-8")


if __name__ == "__main__":
    for found in FILES:
        update(found)
