"""Line and word differences."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tileworkbench.viz.model.diff import Row, diff_lines, diff_words


def test_equal_texts_are_all_same() -> None:
    assert diff_lines(["a", "b"], ["a", "b"]) == [Row("same", 0, 0), Row("same", 1, 1)]


def test_like_lines_are_changed_and_unlike_ones_replaced() -> None:
    before = ["for i in T.serial(64):", "    x = 0", "end"]
    after = ["for i in T.vectorized(64):", "    call(other, things)", "end"]
    assert diff_lines(before, after) == [
        Row("changed", 0, 0, ((11, 17),), ((11, 21),)),
        Row("removed", 1, None),
        Row("added", None, 1),
        Row("same", 2, 2),
    ]


def test_a_moved_indentation_alone_marks_no_words() -> None:
    assert diff_lines(["x = 1"], ["    x = 1"]) == [Row("changed", 0, 0)]


def test_words_are_whole_identifiers() -> None:
    removed, added = diff_words("A_shared[i, j]", "A_local[i, j + 1]")
    assert removed == ((0, 8),)
    assert added == ((0, 7), (12, 16))


LINES = st.lists(st.sampled_from(["a b c", "a b d", "x(1)", "x(2)", "", "y"]), max_size=12)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(LINES, LINES)
def test_rows_hold_every_line_once_and_in_order(before: list[str], after: list[str]) -> None:
    rows = diff_lines(before, after)
    assert [row.before for row in rows if row.before is not None] == list(range(len(before)))
    assert [row.after for row in rows if row.after is not None] == list(range(len(after)))
    for row in rows:
        if row.kind == "same":
            assert row.before is not None and row.after is not None
            assert before[row.before] == after[row.after]
        assert (row.before is None) == (row.kind == "added")
        assert (row.after is None) == (row.kind == "removed")


def test_a_large_block_is_not_aligned_but_still_complete() -> None:
    before = [f"old {i}" for i in range(100)]
    after = [f"new {i}" for i in range(90)]
    rows = diff_lines(before, after)
    assert [row.kind for row in rows] == ["removed"] * 100 + ["added"] * 90
