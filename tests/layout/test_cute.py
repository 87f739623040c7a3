"""Texts of CuTe: what is read, and where what is not read is wrong."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from tests.layout.test_digits import layouts
from tileworkbench.compiler.diagnostics import LayoutError
from tileworkbench.compiler.layout import Fragment, Layout
from tileworkbench.compiler.layout.algebra import swizzle
from tileworkbench.compiler.layout.cute import (
    cute_text,
    looks_like_cute,
    parse_cute,
    parse_swizzle,
)


def test_forms_of_the_same_layout() -> None:
    expected = Layout((4, 4), lambda i, j: 2 * i + j % 2 + j // 2 * 8)
    for text in (
        "(4,(2,2)):(2,(1,8))",
        " ( 4 , (2, 2) ) : (2,(1,8)) ",
        "(_4,(_2,_2)):(_2,(_1,_8))",
    ):
        assert parse_cute(text) == expected
        assert looks_like_cute(text)
    assert cute_text(expected) == "(4,(2,2)):(2,(1,8))"
    assert parse_cute("xx(2,3)", start=2) == Layout.column_major((2, 3))
    assert parse_cute("6:2") == parse_cute("(6):(2)") == Layout((6,), lambda i: 2 * i)
    assert parse_cute("((2,2)):((1,4))").rank == 1 and parse_cute("(2,2):(1,4)").rank == 2
    assert not looks_like_cute("T.Layout((4,), lambda i: i)")


@settings(max_examples=200, deadline=None, derandomize=True)
@given(layouts())
def test_a_text_that_is_written_reads_back(case) -> None:
    layout, _ = case
    text = cute_text(layout)
    if text:
        found = parse_swizzle(text)
        plain = parse_cute(text, found[1] if found else 0)
        again = swizzle(plain, *found[0]) if found else plain
        assert np.array_equal(again.table(), layout.table())


def test_what_shapes_and_strides_cannot_say_has_no_text() -> None:
    assert cute_text(Layout((10,), lambda i: i // 4)) == ""
    assert cute_text(Layout((3, 5), lambda i, j: (i * j) % 7)) == ""
    assert cute_text(Layout((4,), lambda i: 3 - i)) == ""
    assert cute_text(Layout((8, 8), lambda i, j: (j, i))) == "(8,8):(1,8)"
    assert cute_text(Layout((4, 8), lambda i, j: 8 * i + (i ^ j))) == "Sw<2,0,3> o (4,8):(8,1)"


@pytest.mark.parametrize(
    ("text", "numbers", "rest"),
    [
        ("<3,4,3>", (3, 4, 3), ""),
        ("Sw<3, 4, -3> o (8,64)", (3, 4, -3), " (8,64)"),
        ("Swizzle<2,0,3> ∘ 0 ∘ 32:1", (2, 0, 3), " 32:1"),
        ("S<2,0,3> o 0 o T.Layout", (2, 0, 3), " T.Layout"),
    ],
)
def test_swizzles(text: str, numbers: tuple[int, int, int], rest: str) -> None:
    found = parse_swizzle(text)
    assert found is not None and found[0] == numbers and text[found[1] :] == rest
    assert parse_swizzle("(4,8):(8,1)") is None


WRONG = [
    ("", "Here a number or '(' should stand.", 0, 1),
    ("(4,", "This parenthesis is not closed.", 0, 1),
    ("(4 5)", "Here ',' or ')' should stand.", 3, 4),
    ("4:(1)", "The strides need the same parentheses as the shape.", 2, 3),
    ("(4,(2,2)):(2,1)", "The strides need the same parentheses as the shape.", 10, 11),
    ("(4,2):(2,1,8)", "The strides need the same parentheses as the shape.", 6, 7),
    ("99999999999", "Numbers go up to 2147483647.", 0, 11),
    ("(0,1)", "An extent is 1 or more.", 0, 5),
    ("4:1:1", "After the layout nothing else may stand.", 3, 4),
    ("-1", "Here a number or '(' should stand.", 0, 1),
    ("4: -1", "Here a number or '(' should stand.", 3, 4),
    ("()", "A tuple has one part or more.", 0, 2),
    ("(70000,70000)", "The layout reaches beyond 2147483647.", 0, 1),
    ("4:2000000000", "The layout reaches beyond 2147483647.", 0, 1),
    ("(" * 17 + "1", "More than 16 parentheses stand in one another.", 16, 17),
    ("(" * 100_000, "A layout has 100000 characters, and 2000 are read.", None, None),
    ("(١,2)", "Here a number or '(' should stand.", 1, 2),
]


@pytest.mark.parametrize(("text", "message", "start", "end"), WRONG, ids=lambda x: str(x)[:20])
def test_wrong_texts_name_their_place(text, message, start, end) -> None:
    with pytest.raises(LayoutError) as caught:
        parse_cute(text)
    assert caught.value.message == message
    span = caught.value.span
    assert (span and span.column, span and span.end_column) == (start, end)


@pytest.mark.parametrize(
    ("text", "message", "start"),
    [
        ("Sw<3,4> o 8", "A swizzle has three numbers: <bits, base, shift>.", 3),
        ("<a,b,c> o 8", "A swizzle has three numbers: <bits, base, shift>.", 1),
        ("<3,4,3> (8,64)", "Between a swizzle and its layout stands 'o'.", 7),
    ],
)
def test_wrong_swizzles_name_their_place(text: str, message: str, start: int) -> None:
    with pytest.raises(LayoutError) as caught:
        parse_swizzle(text)
    assert caught.value.message == message
    assert caught.value.span is not None and caught.value.span.column == start


def test_a_fragment_is_no_layout_of_cute() -> None:
    assert not looks_like_cute(Fragment((4,), lambda i: (i, 0)).to_text())
