"""The playground: what is read, what an operation makes of it, and what stands for it elsewhere."""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tileworkbench as tw
import tileworkbench.language as T
from tests.viz.sanitiser import problems
from tileworkbench.compiler.diagnostics import ArgumentError, LayoutError
from tileworkbench.compiler.layout import Fragment, Layout
from tileworkbench.compiler.layout.atoms import mma_c
from tileworkbench.compiler.layout.operations import OPERATIONS
from tileworkbench.viz.model.bundle import OUTPUT_BYTES
from tileworkbench.viz.model.playground import menu, play_html, play_model
from tileworkbench.viz.model.typed_layout import ELEMENT_LIMIT, read_layout

NAMES = {"T": T, "Layout": Layout, "mine": Layout.row_major((4, 4))}
FORMS = (
    "hint: Type one: (4,(2,2)):(2,(1,8)), Sw<3,3,3> o (8,64):(64,1), mma.m16n8k16.f16 A, or "
    "T.Layout((8, 8), lambda i, j: (i, i ^ j))"
)


def unpack(packed: dict[str, Any]) -> np.ndarray:
    return np.frombuffer(b64decode(packed["data"]), f"<{packed['type']}")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(4,4):(4,1)", Layout.row_major((4, 4))),
        (" mine ", Layout.row_major((4, 4))),
        ("mine @ mine.inverse()", Layout.identity((16,))),
        ("T.Layout((4, 4), lambda i, j: 4 * i + j)", Layout.row_major((4, 4))),
        ("Sw<3,3,3> o (8,64):(64,1)", Layout.swizzled((8, 64), 16, 128)),
        ("<3,3,3> o Layout.row_major((8, 64))", Layout.swizzled((8, 64), 16, 128)),
        ("'(8,8):(8,1)'", Layout.row_major((8, 8))),
        ("Sw<3,3,3>", read_layout("Sw<3,3,3> o (8,64):(64,1)", NAMES)),
        ("<2, 3, -3>", read_layout("Sw<2,3,-3> o (4,64):(64,1)", NAMES)),
        ("mma.m16n8k16.f16 C", mma_c()),
        ("'(8,8):(8,1)'", Layout.row_major((8, 8))),
        ("Sw<3,3,3>", Layout.swizzled((8, 64), 16, 128)),
        ("<3, 4, -4>", read_layout("Sw<3,4,-4> o (8,256):(256,1)", NAMES)),
    ],
)
def test_every_form_is_read(text: str, expected: Layout | Fragment) -> None:
    assert read_layout(text, NAMES) == expected


WRONG = [
    ("", f"There is no layout yet.\n{FORMS}"),
    (
        "T.Layout((8, 8), lambda i, j: (i, j + k))",
        """\
NameError: name 'k' is not defined
  --> <layout>, line 1
1 | T.Layout((8, 8), lambda i, j: (i, j + k))
  |                                       ^""",
    ),
    (
        "  größe(mine",
        """\
'(' was never closed
  --> <layout>, line 1
1 | größe(mine
  |      ^""",
    ),
    (
        "T.Layout((4,), lambda i: i - 3)",
        """\
Output 0 of the layout over '(4,)' is negative: it reaches -3.
  --> <layout>, line 1
1 | T.Layout((4,), lambda i: i - 3)
  | ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^""",
    ),
    (
        "1 + 1",
        f"""\
This is 'int', and no layout.
  --> <layout>, line 1
1 | 1 + 1
  | ^^^^^
{FORMS}""",
    ),
    (
        "(4,(2,2):(2,(1,8))",
        """\
Here ',' or ')' should stand.
  --> <layout>, line 1
1 | (4,(2,2):(2,(1,8))
  |         ^""",
    ),
    (
        "mma.m16n8k17.f16",
        """\
There is no instruction 'mma.m16n8k17.f16' here.
  --> <layout>, line 1
1 | mma.m16n8k17.f16
  | ^^^^^^^^^^^^^^^^
hint: Near it: mma.m16n8k16.f16, mma.m16n8k16.bf16, mma.m16n8k8.f16""",
    ),
    (
        "Sw<3,3,3> o ldmatrix.x4",
        """\
A swizzle is for offsets, and a fragment has none.
  --> <layout>, line 1
1 | Sw<3,3,3> o ldmatrix.x4
  | ^^^^^^^^^^^""",
    ),
    (
        "Sw<3,3,3> o",
        """\
A swizzle stands before a layout.
  --> <layout>, line 1
1 | Sw<3,3,3> o
  | ^^^^^^^^^^^
hint: Sw<3,3,3> o (8,64):(64,1)""",
    ),
    ("(300,300)", "This has 90000 elements, and at most 65536 are shown."),
    ("Layout((4, 2), lambda i, j: i << 40)", "This reaches beyond offset 2147483647."),
    ("Sw<3,3,3> o (9000,9000)", "This has 81000000 elements, and at most 65536 are shown."),
    ("Sw<3,3,30>", "This has 17179869184 elements, and at most 65536 are shown."),
    (
        "'(4,(2,2):(2,(1,8))'",
        """\
Here ',' or ')' should stand.
  --> <layout>, line 1
1 | (4,(2,2):(2,(1,8)) 
  |         ^""",
    ),
    ("1" * 3000, "A layout has 3000 characters, and 2000 are read."),
]


@pytest.mark.parametrize(("text", "message"), WRONG, ids=[text[:20] for text, _ in WRONG])
def test_a_wrong_text_shows_its_place(text: str, message: str) -> None:
    with pytest.raises(LayoutError) as caught:
        read_layout(text, NAMES)
    assert str(caught.value) == message


OTHERS = [
    ("complement", "x", "These are to be numbers from 1 to 2147483647."),
    ("complement", "0", "These are to be numbers from 1 to 2147483647."),
    ("complement", "1, 2", "One number is wanted here."),
    ("swizzle", "3", "A swizzle has three numbers: <bits, base, shift>."),
    ("swizzle", "<3,3,3> o 8", "A swizzle is three numbers: <bits, base, shift>."),
    ("repeat", "9" * 9 + ", 1", "This has 15999999984 elements, and at most 65536 are shown."),
]


@pytest.mark.parametrize(("operation", "other", "message"), OTHERS)
def test_a_wrong_second_input(operation: str, other: str, message: str) -> None:
    with pytest.raises(LayoutError) as caught:
        tw.playground("(4,4)", operation, other)
    assert caught.value.message == message


def test_the_same_layout_in_other_words_and_its_code() -> None:
    for made in (
        tw.playground("(4,4):(4,1)", "compose", "T.Layout((4, 4), lambda i, j: (j, i))"),
        tw.playground(Layout.row_major((4, 4)), "compose", Layout((4, 4), lambda i, j: (j, i))),
    ):
        assert made.result == Layout.column_major((4, 4))
        assert made.code == "T.Layout((4, 4), lambda i, j: (4*j + i,))"
    table = Layout((60, 60), lambda i, j: i * j % 59)
    made = tw.playground(table)  # no text is short enough: it has a name
    assert made.layout is made.result is table and made.code == ""
    assert tw.playground("(4,4)", "repeat", (2, 1)).result.shape == (8, 4)
    assert tw.playground("(4,4)", "complement", 32).result == tw.playground("2:16").result


@pytest.mark.parametrize("name", OPERATIONS)
def test_evaluating_the_code_gives_the_result_of_every_operation(name: str) -> None:
    operation = OPERATIONS[name]
    layout = "(4,(2,2)):(2,(1,8))" if operation.of_layouts else "mma.m16n8k16.f16 A"
    if name == "fragment":
        layout = "((4,8),(2,2)):((32,1),(16,8))"
    made = tw.playground(layout, name, operation.example)
    assert made.code and eval(made.code, {"T": T}) == made.result
    for sheet in play_model(content(layout, name, operation.example), NAMES).values():
        space: dict[str, Any] = {}
        exec(sheet["cell"], space)
        assert str(space["layout"]) == sheet["text"]


def test_the_code_is_taken_by_a_kernel() -> None:
    layout = eval(tw.playground("Sw<3,3,3> o (8,64):(64,1)").code, {"T": T})

    @T.prim_func
    def kernel(A: T.Tensor((8, 64), "float16"), B: T.Tensor((8, 64), "float16")):
        with T.Kernel(1, threads=32):
            tile = T.alloc_shared((8, 64), "float16")
            T.annotate_layout({tile: layout})
            T.copy(A, tile)
            T.copy(tile, B)

    view = tw.compile(kernel, target="sim:sm_80").view()
    assert {buffer.name: buffer.layout for buffer in view.layouts}["tile"] == layout
    table = play_model(content("T.Layout((8, 8), lambda i, j: i * j % 61)"), NAMES)["layout"]
    assert table["cell"].endswith("# It has no formula, which kernels need.\n")


def content(layout: str, operation: str = "", other: str = "", **more: Any) -> dict[str, Any]:
    """What the browser sends."""
    return {"layout": layout, "operation": operation, "other": other, **more}


def test_the_browser_gets_sheets_and_what_is_wrong() -> None:
    found = play_model(content("(4,8):(8,1)", "compose", "(2,2):(1,2)", element_bytes=4), NAMES)
    assert json.loads(json.dumps(found)) == found
    assert list(found) == ["layout", "other", "result"]
    assert unpack(found["layout"]["address"]).tolist() == list(range(32))
    assert (found["layout"]["element_bytes"], found["layout"]["outputs"]) == (4, [32])
    assert found["result"]["cute"] == "(2,2):(8,16)"
    assert found["result"]["name"] == "compose(A, B)"

    found = play_model(content("(4,8", "compose", "(2,2)"), NAMES)
    place = {"message": "This parenthesis is not closed.", "hint": "", "start": 0, "end": 1}
    assert found == {"layout": {"problem": place}}
    found = play_model(content("(4,8)", "compose", "64:1"), NAMES)
    assert list(found) == ["layout", "other", "result"]
    assert found["result"]["problem"]["start"] == -1
    assert found["result"]["problem"]["message"] == (
        "Cannot compose: the inner layout reaches 63, and the outer one has 32 elements."
    )
    found = play_model(content("(4,8)", "turn"), NAMES)
    assert found["other"]["problem"]["message"] == "'turn' is no operation on layouts."


def test_a_slice_of_a_layout_with_more_dimensions() -> None:
    found = play_model(content("(2,3,4):(12,4,1)", lead={"layout": [1]}), NAMES)["layout"]
    assert found["lead"] == [1]
    assert unpack(found["address"]).tolist() == list(range(12, 24))


def test_everything_that_is_offered_is_read() -> None:
    for text in menu()["examples"]:
        assert read_layout(text, NAMES).size <= ELEMENT_LIMIT


def test_saved_and_in_a_terminal() -> None:
    made = tw.playground("(4,(2,2)):(2,(1,8))", "complement", 64)
    bundle, _ = made._repr_mimebundle_()
    html = bundle["text/html"]
    assert problems(play_html(made.sheets, 2)) == []
    assert len(html) < OUTPUT_BYTES
    for text in ("(4,(2,2)):(2,(1,8))", "complement(A, 64)", "T.Layout((4,), lambda i: (16*i,))"):
        assert text in html
    assert str(made) == bundle["text/plain"] == EXPECTED
    assert repr(made) == (
        "<Layout A 4x4 | 2 contiguous, bijective> complement(A, 64) = "
        "<Layout 4 | 1 contiguous, injective>"
    )
    fragment = str(tw.playground("mma.m16n8k16.f16 C"))
    assert " 7 28:0 28:1 29:0 29:1 30:0 30:1 31:0 31:1" in fragment
    assert str(tw.playground("(2,17,18)")).count("…") == 18


def test_a_saved_notebook_stays_small() -> None:
    noise = Layout.from_table(np.random.default_rng(1).integers(0, 2**20, (256, 256, 1)))
    made = tw.playground(noise, "swizzle", "<3,3,3>")
    html = made._repr_mimebundle_()[0]["text/html"]
    assert len(html) < OUTPUT_BYTES
    assert "swizzle(A, &lt;3,3,3&gt;): a picture of it would be too large for a notebook" in html
    small = tw.playground(noise, "compose", "(8,8)")._repr_mimebundle_()[0]["text/html"]
    assert small.count("<img") == 2 and "A: a picture of it would be too large" in small


EXPECTED = """\
A = (4,(2,2)):(2,(1,8))
    (4,(2,2)):(2,(1,8))
    (i, j) -> 8*(j//2) + 2*i + j%2
    2 contiguous, bijective
      0 1  2  3
    0 0 1  8  9
    1 2 3 10 11
    2 4 5 12 13
    3 6 7 14 15

complement(A, 64)
    4:16
    (i) -> 16*i
    1 contiguous, injective
      0  1  2  3
    0 0 16 32 48

T.Layout((4,), lambda i: (16*i,))"""


def test_plain_data() -> None:
    made = tw.playground("(2,2):(1,2)", "inverse").to_dict()
    assert made["operation"] == "inverse"
    assert [sheet["label"] for sheet in made["sheets"]] == ["A", "inverse(A)"]
    assert made["sheets"][0]["offsets"] == [[0, 2], [1, 3]]
    fragment = tw.playground("mma.m16n8k16.f16 C").to_dict()["sheets"][0]
    assert fragment["slots"][8][1] == 3 and fragment["threads"][8][1] == [0]
    assert json.dumps(made)


def test_names_are_text_and_never_markup() -> None:
    made = tw.playground("T.Layout((4,), lambda i: i) if '<b>&' else 0", "repeat", "2")
    html = made._repr_mimebundle_()[0]["text/html"]
    assert "<b>&" not in html and "&lt;b&gt;&amp;" in html


def test_wrong_calls() -> None:
    with pytest.raises(ArgumentError) as caught:
        tw.playground(3.5)
    assert str(caught.value) == (
        "a playground shows layouts and their texts, not 'float'\n"
        "hint: pass a layout, or a text: (4,(2,2)):(2,(1,8)), Sw<3,3,3> o (8,64):(64,1), "
        "mma.m16n8k16.f16 A, or T.Layout((8, 8), lambda i, j: (i, i ^ j))"
    )
    with pytest.raises(ArgumentError) as caught:
        tw.playground("8", element_bytes=3)
    assert str(caught.value) == "element_bytes is 1, 2, 4, 8 or 16, not '3'"
    with pytest.raises(LayoutError) as wrong:
        tw.playground("8", "turn")
    assert str(wrong.value) == (
        "'turn' is no operation on layouts.\nhint: One of compose, inverse, right_inverse, "
        "left_inverse, complement, coalesce, divide, product, blocked_product, raked_product, "
        "fragment, swizzle, repeat, repeat_on_thread, replicate"
    )


PIECES = ("(", ")", ",", ":", "4", "2", "(2,2)", "0", "99999999999", " o ", "<3,0,3>", "Sw", "-1")
WORDS = ("mma.m16n8k16.f16", "ldmatrix.x4", " A", "_", "x", "T.Layout(", "lambda i: i", "é", "\n")


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    st.lists(st.sampled_from(PIECES + WORDS), max_size=9).map("".join),
    st.sampled_from(["", "unknown", *OPERATIONS]),
    st.lists(st.sampled_from(PIECES), max_size=5).map("".join),
)
def test_whatever_is_typed_is_answered(layout: str, operation: str, other: str) -> None:
    """With sheets, or with what is wrong at a place that the text has."""
    found = play_model(content(layout, operation, other), {"T": T})
    assert json.dumps(found)
    for part, shown in found.items():
        wrong = shown.get("problem")
        if wrong:
            text = {"layout": layout, "other": other}.get(part, "")
            assert wrong["message"]
            assert -1 <= wrong["start"] <= max(len(text), 1)
