"""The fewest words for where wrong elements are, on patterns made by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tileworkbench.viz.model.error_patterns import describe_places, describe_values

ROWS, COLUMNS = np.indices((64, 64))
BLOCKS = ROWS // 32 * 2 + COLUMNS // 32
THREADS = ROWS * 64 % 128 + COLUMNS
REGISTERS = ROWS // 2
OWNERS = {"block": BLOCKS, "thread": THREADS, "register": REGISTERS}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (ROWS >= 0, "everywhere"),
        ((ROWS > 0) | (COLUMNS > 0), "nearly everywhere"),
        ((ROWS == 3) & (COLUMNS == 5), "only at [3, 5]"),
        (ROWS == 63, "all in the last row"),
        (COLUMNS == 0, "all in the first column"),
        ((ROWS >= 10) & (ROWS < 14), "all in rows 10-13"),
        (ROWS % 16 == 15, "all in rows whose number modulo 16 is 15"),
        ((ROWS == 63) | (COLUMNS == 63), "all in the last row or column"),
        ((ROWS % 63 == 0) | (COLUMNS % 63 == 0), "all in the border"),
        (ROWS == COLUMNS, "all in the diagonal"),
        (ROWS < COLUMNS, "all in the triangle above the diagonal"),
        ((ROWS > COLUMNS) & (ROWS >= 32), "all in the triangle below the diagonal and rows 32-63"),
    ],
)
def test_places(wrong: np.ndarray, said: str) -> None:
    assert describe_places(wrong, {}, ()) == said


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (BLOCKS == 2, "all in rows 32-63 and columns 0-31, by block 2"),
        (BLOCKS % 2 == 1, "all in columns 32-63, by blocks with x = 1"),
        (REGISTERS == 7, "all in rows 14-15, by register 7"),
    ],
)
def test_places_and_their_owners(wrong: np.ndarray, said: str) -> None:
    assert describe_places(wrong, OWNERS, (2, 2)) == said


def test_owners_are_named_where_places_are_scattered() -> None:
    random = np.random.default_rng(0)
    threads = random.permutation(64 * 64).reshape(64, 64) % 128
    wrong = (threads // 32 == 1) & (threads % 32 >= 16)
    assert describe_places(wrong, {"thread": threads}, (1,)) == "all in lanes 16-31 of warp 1"
    wrong &= random.random((64, 64)) < 0.5
    within = int(((threads // 32 == 1) & (threads % 32 >= 16)).sum())
    assert describe_places(wrong, {"thread": threads}, (1,)) == (
        f"all in lanes 16-31 of warp 1, where {int(wrong.sum())} of {within} elements are wrong"
    )


def test_no_pattern_is_said_to_be_none() -> None:
    wrong = np.random.default_rng(1).random((64, 64)) < 0.3
    assert describe_places(wrong, {}, ()) == f"scattered, {int(wrong.sum())} of 4096 elements"


def test_unknown_owners_are_not_named() -> None:
    nobody = {name: np.full((64, 64), -1) for name in OWNERS}
    assert describe_places(ROWS == 3, nobody, (2, 2)) == "all in row 3"


@pytest.mark.parametrize(
    ("got", "want", "said"),
    [
        ([np.nan, np.nan], [1, 2], "all are NaN"),
        ([np.inf, -np.inf], [1, 2], "all are infinite"),
        ([0, 0], [1, 2], "all are 0"),
        ([2, 4], [1, 2], "each is 2 times what is expected"),
        ([3, 4], [1, 2], "each is 2 too large"),
        ([1, 2], [2, 3], "each is 1 too small"),
        ([0.999, 2.004, 500], [1, 2, 501], ""),
        ([1, 2], [np.nan, 3], "the reference is NaN in 1 of them"),
        ([1, 5], [2, 3], ""),
        ([np.nan], [1], "it is NaN"),
    ],
)
def test_values(got: list[float], want: list[float], said: str) -> None:
    arrays = np.array(got, np.float64), np.array(want, np.float64)
    assert describe_values(*arrays, np.ones(len(got), np.bool_)) == said
