"""What loops access and share, as counted from all addresses one by one."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tileworkbench as tw
import tileworkbench.language as T
from tests.tiers import examples
from tileworkbench.bench.cpu_extent import Extent
from tileworkbench.bench.cpu_traffic import serve
from tileworkbench.bench.cpu_work import grids
from tileworkbench.compiler.device.host import processor

ROW = 4096


@st.composite
def nests(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Strides and trips of the loops around a vector of 16, in any order: along a row, over rows,
    over shifted rows.
    """
    columns = draw(st.integers(1, 8))
    along = draw(st.sampled_from([4, 8, 16]))
    rows, shifted = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    return draw(st.permutations([(along, columns), (ROW, rows), (ROW, shifted)]))


def addresses(nest: list[tuple[int, int]]) -> set[int]:
    starts = itertools.product(*(range(0, stride * trips, stride) for stride, trips in nest))
    return {sum(start) + lane for start in starts for lane in range(16)}


@settings(max_examples=examples(100), deadline=None)
@given(nests(), st.integers(0, 8), st.sampled_from([0, 3, 16, 64]))
def test_sizes_and_common_parts_are_those_of_the_addresses(
    nest: list[tuple[int, int]], rows: int, columns: int
) -> None:
    extent = Extent(16)
    for stride, trips in nest:
        extent = extent.over(stride, trips)
    all_ = addresses(nest)
    assert extent.size == len(all_)
    shift = rows * ROW + columns
    shared = all_ & {address + shift for address in all_}
    assert extent.common(shift) == pytest.approx(len(shared) / len(all_))
    assert extent.common(-shift) == extent.common(shift)


@settings(max_examples=examples(200), deadline=None)
@example(2, True, -1, 0)
@example(3, True, 3, 0)
@given(st.integers(1, 4), st.booleans(), st.integers(-5, 5), st.sampled_from([0, 5, 16, 40]))
def test_rows_beside_others_are_the_addresses_of_both(
    rows: int, is_one: bool, further: int, columns: int
) -> None:
    """Or it is not told; a short gap in a row is filled, for lines are whole."""
    one = Extent(16).over(ROW, rows)
    other = Extent(16) if is_one else one
    apart = further * ROW + columns
    together = one.beside(apart, other, 0)
    mine, others = (addresses([(ROW, count)]) for count in (rows, 1 if is_one else rows))
    both = mine | {address + apart for address in others}
    assert together is None or together.size == len(both)
    if columns == 0 and (abs(further) <= 1 or rows == 1):
        assert together is not None
    assert Extent(16).beside(20, Extent(16), 4) == Extent(36)
    assert Extent(16, {ROW: 2}).beside(0, Extent(32), 0) is None  # a longer row than these


def test_rows_that_grow_together_are_one() -> None:
    assert Extent(16, {64: 2}).over(16, 32) == Extent(576)
    assert Extent(16, {64: 2, ROW: 3}).over(16, 4) == Extent(128, {ROW: 3})


def test_rows_further_apart_fill_the_ones_between() -> None:
    """Six rows, and the same again two further down: ten. Seven further down begin anew."""
    six = Extent(16).over(ROW, 6)
    assert six.over(2 * ROW, 3) == Extent(16, {ROW: 10})
    assert six.over(7 * ROW, 3) == Extent(16, {ROW: 6, 7 * ROW: 3})


def taps(columns: int) -> Any:
    """Sums of four rows after each other, a row a block."""

    @T.prim_func
    def kernel(X: T.Tensor((259, columns), "float32")):
        Y = T.empty((256, columns), "float32")
        with T.Kernel(256) as row:
            total = T.alloc_fragment((columns,), "float32")
            T.clear(total)
            for t in T.serial(4):
                for j in T.Parallel(columns):
                    total[j] = total[j] + X[row + t, j]
            T.copy(total, Y[row, 0])
        return Y

    return kernel


def test_rows_of_the_block_before_come_from_the_cache_that_still_has_them() -> None:
    def bytes_of(columns: int) -> tuple[float, float]:
        (grid,) = grids(tw.compile(taps(columns)).stats.lowered)
        near, far = (
            sum(bytes_ for (_, buffer), bytes_ in moved.items() if buffer.name == "X")
            for moved in (grid.block.moved, grid.block.far)
        )
        return near / columns / 4, far / columns / 4

    caches = processor.cache_sizes()
    assert bytes_of(64) == pytest.approx((1, 1), rel=0.02)  # one of four rows is new
    # Five rows are a block's, more than twice a cache.
    assert bytes_of(caches.l1 // 8) == pytest.approx((4, 1), rel=0.02)
    assert bytes_of(caches.l2 // 2) == pytest.approx((4, 4), rel=0.02)


def test_what_comes_from_behind_the_second_cache_once_is_served_by_it_again() -> None:
    (grid,) = grids(tw.compile(taps(processor.cache_sizes().l1 // 8)).stats.lowered)
    blocks = grid.blocks
    moved, far = (
        {key: bytes_ * blocks for key, bytes_ in each.items()}
        for each in (grid.block.moved, grid.block.far)
    )
    served = [each for each in serve(moved, far, 1, ("L1", "L2", "L3")) if each.buffer.name == "X"]
    again = sum(each.bytes_ for each in served if each.again)
    assert {each.level for each in served if each.again and each.bytes_ > again / 100} == {"L2"}
    assert again == pytest.approx(
        3 * sum(each.bytes_ for each in served if not each.again), rel=0.02
    )


def ways(rows: int, pitch: int, run: int, cache: int) -> dict[int, int]:
    """How many lines each place of a cache gets of rows, one line after the other."""
    lines = {at // 64 for row in range(rows) for at in range(row * pitch, row * pitch + run)}
    return Counter(line % (cache // 8 // 64) for line in lines)


@settings(max_examples=examples(60), deadline=None)
@given(
    st.integers(1, 300),
    st.one_of(
        st.integers(1, 3000).map(lambda quads: 4 * quads),
        st.sampled_from([2048, 3072, 4096, 12288]),
    ),
    st.sampled_from([4, 32, 64, 100, 512]),
)
def test_rows_take_as_much_of_a_cache_as_the_places_that_they_fill(
    rows: int, pitch: int, run: int
) -> None:
    """Between their lines, where these have a place each, and the cache, where one place is full
    that all of them are in; as many times as much as they are too many for it.
    """
    cache = 32 << 10
    takes = Extent(run // 4, {pitch // 4: rows}).pressure(4, cache)
    counts = ways(rows, max(pitch, 4), run, cache)
    own, mean = 64 * sum(counts.values()), sum(counts.values()) / len(counts)
    assert takes >= own * 0.999
    if mean <= 1:
        assert takes == pytest.approx(own)
    if mean >= 8:
        assert takes == pytest.approx(mean / 8 * cache)


def test_what_lies_in_one_row_takes_its_own_bytes() -> None:
    assert Extent(1000).pressure(2, 32 << 10) == 2000
    # Many rows are looked at in part: a thousand stand for all.
    many, some = (Extent(16, {1024: rows}).pressure(4, 1 << 20) for rows in (4096, 1024))
    assert many == pytest.approx(4 * some)
