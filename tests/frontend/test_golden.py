"""Each construct against its golden text:

`programs/` for what is traced, `diagnostics/` for what is rejected.
"""

from __future__ import annotations

import pytest

from tests.frontend.golden import FOLDER, Case, output_of, read_cases

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
