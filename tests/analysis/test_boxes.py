"""Copies that the copy engine does not take are warned of at their line.

A case of `boxes.txt` is a kernel and its warnings, nothing where it has none. After a deliberate
change, `python -m tests.analysis.test_boxes` rewrites the expected texts.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.analysis.test_hazards import warnings_of
from tests.frontend.golden import Case, read_cases

FILE = Path(__file__).parent / "boxes.txt"


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in read_cases(FILE)])
def test_warnings(case: Case) -> None:
    assert warnings_of(case.source) == case.expected.lstrip("\n")


if __name__ == "__main__":
    found = [replace(case, expected=warnings_of(case.source)) for case in read_cases(FILE)]
    FILE.write_text("\n".join(case.text for case in found), encoding="utf-8")
