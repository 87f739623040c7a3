"""Numbers as people read them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tileworkbench.bench.units import rate_unit, told_apart


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (277.95123, 16.67204, ("278", "16.67")),
        (16.6720412, 16.6720395, ("16.6720412", "16.6720395")),
        (1.5, 1.5, ("1.5", "1.5")),
        (1234567, 1234568, ("1234567", "1234568")),
        (np.int8(-7), np.int8(8), ("-7", "8")),
        (2.0, math.nan, ("2", "nan")),
        (math.inf, 0.25, ("inf", "0.25")),
        (1e300, 1e-300, ("1e+300", "1e-300")),
        (
            np.float64(1 / 3),
            np.float64(1 / 3 + 1e-15),
            ("0.3333333333333333", "0.3333333333333343"),
        ),
    ],
)
def test_two_numbers_have_the_digits_that_tell_them_apart(
    one: float, other: float, expected: tuple[str, str]
) -> None:
    assert told_apart(one, other) == expected


def test_integers_have_operations_of_their_own() -> None:
    assert rate_unit(["int8", "uint8"]) == "GOP/s"
    assert rate_unit(["int8", "float32"]) == rate_unit([]) == "GFLOP/s"
