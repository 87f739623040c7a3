"""Shapes in one kernel: common extents, patterns of broadcasts, and what they merge to."""

import random
from math import prod

import numpy as np
import pytest

from tileworkbench.pytorch.shapes import common_extents, merged, pattern_of


def cut(size: list[int], choose: random.Random) -> tuple[int, ...]:
    """Neighbours of `size` multiplied at random, with 1s between."""
    shape = [1] if choose.random() < 0.3 else []
    for extent in size:
        if shape and choose.random() < 0.5:
            shape[-1] *= extent
        else:
            shape.append(extent)
    return tuple(shape)


@pytest.mark.parametrize("seed", range(40))
def test_common_extents_make_both_shapes(seed: int) -> None:
    choose = random.Random(seed)
    size = [choose.choice((2, 3, 4, 5)) for _ in range(4)]
    a, b = cut(size, choose), cut(size, choose)
    fine = common_extents(a, b)
    assert fine is not None and prod(fine) == prod(a)
    for shape in (a, b):
        whole = pattern_of(shape, shape, fine)
        assert whole is not None and all(whole)


def test_shapes_that_cut_across_each_other() -> None:
    assert common_extents((4, 6), (6, 4)) is None
    assert common_extents((4, 6), (5, 5)) is None
    assert common_extents((64, 64), (2, 32, 64)) == (2, 32, 64)
    assert common_extents((1,), (1, 1)) == ()


@pytest.mark.parametrize("seed", range(40))
def test_a_pattern_says_where_a_broadcast_repeats(seed: int) -> None:
    choose = random.Random(seed)
    domain = tuple(choose.choice((2, 3, 4)) for _ in range(3))
    shape = tuple(choose.choice((1, extent)) for extent in domain)[choose.randrange(3) :]
    fine = common_extents(domain, domain)
    assert fine == domain
    pattern = pattern_of(shape, domain, fine)
    assert pattern is not None
    values = np.arange(prod(shape)).reshape(shape)
    held = [extent for extent, varies in zip(fine, pattern, strict=True) if varies]
    kept = values.reshape([e if v else 1 for e, v in zip(fine, pattern, strict=True)])
    assert np.array_equal(np.broadcast_to(kept, fine), np.broadcast_to(values, domain))
    assert prod(held) == values.size


def test_a_broadcast_along_a_part_of_an_extent_has_no_pattern() -> None:
    assert pattern_of((4, 1), (4, 6), (24,)) is None
    assert pattern_of((4, 1), (4, 6), (4, 6)) == (True, False)


def test_neighbours_that_nobody_tells_apart_are_merged() -> None:
    extents, patterns = merged((2, 3, 4, 5), [(True, True, True, True), (False, False, True, True)])
    assert extents == (6, 20) and patterns == [(True, True), (False, True)]
