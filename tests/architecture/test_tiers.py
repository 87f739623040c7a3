"""What the fast tier leaves out of a test's cases: none that others do not stand for."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product
from types import SimpleNamespace
from typing import Any

import pytest

from tests import tiers


class Case:
    """A case as pytest has it, of a test with three axes; two parameters share the last one."""

    AXES = ("dtype", ["rows"], "m,n")

    def __init__(self, strength: int, dtype: str, rows: int, sizes: tuple[int, int]) -> None:
        m, n = sizes
        self.nodeid = f"tests/test_x.py::test_x[{dtype}-{rows}-{m}-{n}]"
        self.callspec = SimpleNamespace(params={"dtype": dtype, "rows": rows, "m": m, "n": n})
        self.marks = [pytest.mark.covering(strength).mark]
        self.marks += [pytest.mark.parametrize(axis, []).mark for axis in self.AXES]
        self.values = (dtype, rows, sizes)

    def iter_markers(self, name: str) -> Iterator[pytest.Mark]:
        return (mark for mark in self.marks if mark.name == name)

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return next(self.iter_markers(name), None)


def cases(strength: int) -> list[Any]:
    sizes = [(1, 1), (1, 2), (2, 2), (2, 1)]
    return [Case(strength, *each) for each in product(("f", "i"), (3, 5, 7), sizes)]


@pytest.mark.parametrize(("strength", "most"), [(1, 4), (2, 14), (3, 24)])
def test_every_combination_stays(strength: int, most: int) -> None:
    all_cases = cases(strength)
    out = tiers.left_out(all_cases)
    kept = [case for case in all_cases if case not in out]
    assert len(kept) <= most

    def found(of: list[Any]) -> set[Any]:
        return {each for case in of for each in combinations(enumerate(case.values), strength)}

    assert found(kept) == found(all_cases)


def test_values_stay_about_equally_often() -> None:
    all_cases = cases(1)
    out = tiers.left_out(all_cases)
    assert [c.values[0] for c in all_cases if c not in out].count("f") == 2


def test_only_cases_with_the_mark_are_left_out_and_slow_ones_are_so_anyway() -> None:
    slow, *others = cases(1)
    slow.marks.append(pytest.mark.slow.mark)
    assert slow not in tiers.left_out([slow, *others])
    for case in others:
        case.marks = [mark for mark in case.marks if mark.name != "covering"]
    assert tiers.left_out([slow, *others]) == []
