"""How much tests do that can do more: less in `make test`, all in `make test-all`."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import combinations

import pytest

SLOW_TOO = False
"""Whether slow tests run as well; `tests/conftest.py` says so before it imports any test."""


def examples(count: int) -> int:
    """How many random examples a property has: `count`, in the fast tier half as many."""
    return count if SLOW_TOO else (count + 1) // 2


def left_out(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """The cases of tests marked `covering(strength)` that the fast tier spares.

    A test has an axis for each of its `parametrize`. Those cases stay that have between them every
    value of an axis (strength 1), or every pair of two axes' values (strength 2): a covering array,
    chosen greedily, with the values that were chosen least.
    """
    cases = defaultdict[str, list[pytest.Item]](list)
    for item in items:
        if item.get_closest_marker("covering") and not item.get_closest_marker("slow"):
            cases[item.nodeid.partition("[")[0]].append(item)
    return [item for each in cases.values() for item in _spare(each)]


def _spare(cases: list[pytest.Item]) -> list[pytest.Item]:
    """The cases of one test whose combinations of values others have as well."""
    (strength,) = next(mark.args for mark in cases[0].iter_markers("covering"))
    values = {case: _values(case) for case in cases}
    found = {case: set(combinations(each, strength)) for case, each in values.items()}
    missing, chosen = set().union(*found.values()), Counter[str]()
    while missing:
        best = max(
            found,
            key=lambda case: (len(missing & found[case]), -sum(chosen[v] for v in values[case])),
        )
        missing -= found.pop(best)
        chosen.update(values[best])
    return list(found)


def _values(case: pytest.Item) -> list[str]:
    """The value on each axis, with its name."""
    params = case.callspec.params  # type: ignore[attr-defined]
    axes = [mark.args[0] for mark in case.iter_markers("parametrize")]
    names = [axis.split(",") if isinstance(axis, str) else axis for axis in axes]
    return [str([(name, params[name.strip()]) for name in axis]) for axis in names]
