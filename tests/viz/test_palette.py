"""Colours of numbers, each by its definition."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tileworkbench.viz.model.palette import (
    CATEGORIES,
    EMPTY,
    PALETTE,
    SEQUENCE,
    category_colours,
    sequence_colours,
)


def colour(values: np.ndarray) -> list[tuple[int, ...]]:
    return [tuple(map(int, rgb)) for rgb in values]


def test_the_first_eight_categories_are_the_hues() -> None:
    assert colour(category_colours(np.arange(8))) == list(CATEGORIES)


@pytest.mark.parametrize(("group", "shade"), [(1, 0.17), (2, 0.34), (3, 0.51), (4, 0.0)])
def test_each_further_group_is_a_shade_whiter(group: int, shade: float) -> None:
    expected = [tuple(int(c + (255 - c) * shade) for c in hue) for hue in CATEGORIES]
    assert colour(category_colours(8 * group + np.arange(8))) == expected


def test_only_negative_numbers_are_empty() -> None:
    values = np.array([[-1, 0], [-9, 8]])
    assert colour(category_colours(values)[:, 0]) == [EMPTY, EMPTY]
    assert colour(category_colours(values)[:, 1]) != [EMPTY, EMPTY]
    assert colour(sequence_colours(values, 8)[:, 0]) == [EMPTY, EMPTY]
    assert colour(sequence_colours(values, 8)[:, 1]) == [SEQUENCE[0], SEQUENCE[-1]]


def test_a_sequence_goes_from_stop_to_stop() -> None:
    """Ten steps over five parts: every second number is a stop, the others lie half-way."""
    found = colour(sequence_colours(np.arange(11), 10))
    assert found[::2] == list(SEQUENCE)
    assert found[1::2] == [
        tuple((a + b) // 2 for a, b in zip(low, high, strict=True))
        for low, high in itertools.pairwise(SEQUENCE)
    ]


def test_a_sequence_ends_at_its_top() -> None:
    assert colour(sequence_colours(np.array([10, 11, 99]), 10)) == [SEQUENCE[-1]] * 3
    assert colour(sequence_colours(np.array([0, 1]), 1)) == [SEQUENCE[0], SEQUENCE[-1]]
    assert colour(sequence_colours(np.array([0, 1]), 0)) == [SEQUENCE[0]] * 2


def test_the_browser_has_the_same_numbers() -> None:
    assert [tuple(hue) for hue in PALETTE["categories"]] == list(CATEGORIES)
    assert [tuple(stop) for stop in PALETTE["sequence"]] == list(SEQUENCE)
    assert (tuple(PALETTE["empty"]), PALETTE["shade"]) == (EMPTY, 0.17)
