"""Operations by name, and layouts as the expressions that a kernel's author writes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

import tileworkbench.language as T
from tests.layout.test_digits import layouts
from tileworkbench.compiler.diagnostics import LayoutError
from tileworkbench.compiler.layout import Fragment, Layout
from tileworkbench.compiler.layout.atoms import mma_a, mma_c, wgmma_c
from tileworkbench.compiler.layout.cute import parse_cute
from tileworkbench.compiler.layout.expression import layout_expression
from tileworkbench.compiler.layout.operations import OPERATIONS, Takes, apply_operation

ROWS = parse_cute("(4,8):(8,1)")
ATOM = mma_c()
INPUTS = {
    Takes.NOTHING: None,
    Takes.LAYOUT: parse_cute("4:1"),
    Takes.NUMBER: 2,
    Takes.SIZE: 64,
    Takes.NUMBERS: (2, 1),
    Takes.SWIZZLE: (2, 0, 3),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_has_a_result(name: str) -> None:
    """On a layout, on a fragment, or it says that it is not for one of them."""
    operation = OPERATIONS[name]
    other = INPUTS[operation.takes]
    layout = parse_cute("(16,2):(1,16)") if name == "fragment" else ROWS
    other = (8, 4) if name == "fragment" else other
    made = []
    for first, known in ((layout, operation.of_layouts), (ATOM, operation.of_fragments)):
        if isinstance(first, Fragment) and name == "compose":
            other = Layout((8, 16), lambda j, i: (i, j))
        if known:
            made.append(apply_operation(name, first, other))
            continue
        with pytest.raises(LayoutError, match="is not defined for a"):
            apply_operation(name, first, other)
    assert made and operation.makes and bool(operation.example) == bool(operation.takes.value)


def test_results_are_those_of_the_methods() -> None:
    assert apply_operation("repeat", ROWS, (1, 2)) == ROWS.repeat(1, 2)
    assert apply_operation("repeat", ROWS, (3, 2)) == ROWS.repeat(1, 2).repeat(0, 3)
    assert apply_operation("repeat", ATOM, (2, 1)) == ATOM.repeat((2, 1))
    assert apply_operation("repeat_on_thread", ATOM, (2, 1)) == ATOM.repeat_on_thread((2, 1))
    assert apply_operation("replicate", ATOM, 2) == ATOM.replicated(2)
    assert apply_operation("inverse", ATOM) == ATOM.inverse()
    pairs = Layout((8, 4), lambda i, j: (j, i))
    assert apply_operation("compose", ROWS, pairs) == ROWS @ pairs
    assert apply_operation("compose", ROWS, parse_cute("8:4")) == Layout((8,), lambda i: i)


WRONG = [
    (("coalesce", ATOM), "'coalesce' is not defined for a fragment."),
    (("replicate", ROWS, 2), "'replicate' is not defined for a layout."),
    (
        ("compose", ROWS, ATOM),
        "'compose' takes a layout as its second input, not a fragment.",
    ),
    (("repeat", ROWS, (2,)), "2 dimensions take 2 numbers."),
    (
        ("compose", Layout((8,), lambda i: i), Layout((2, 4), lambda i, j: (i, j))),
        "Cannot compose: the inner layout gives 2 indices, and the outer one takes 1.",
    ),
]


@pytest.mark.parametrize(("call", "message"), WRONG)
def test_what_is_not_defined_says_why(call: tuple, message: str) -> None:
    with pytest.raises(LayoutError) as caught:
        apply_operation(*call)
    assert caught.value.message == message


def read_back(layout: Layout | Fragment) -> object:
    return eval(layout_expression(layout), {"T": T})


@settings(max_examples=150, deadline=None, derandomize=True)
@given(layouts())
def test_the_expression_of_a_layout_gives_it_back(case) -> None:
    layout, _ = case
    assert read_back(layout) == layout


@pytest.mark.parametrize(
    "fragment",
    [
        mma_a(16),
        wgmma_c(64),
        mma_c().replicated(3),
        Fragment.fully_replicated((4, 3), 32),
        Fragment((3, 5), lambda i, j: (i * j % 7, i)),
        Fragment((3, 5), lambda i, j, rep: ((i * j + rep) % 7, i), replicate=2),
        Fragment((8,), lambda i, rep: (i, 0), replicate=2),
        mma_c().bind_thread_range(32, 64),
    ],
    ids=str,
)
def test_the_expression_of_a_fragment_gives_it_back(fragment: Fragment) -> None:
    assert read_back(fragment) == fragment


def test_a_long_table_has_no_expression() -> None:
    table = Layout((64, 64), lambda i, j: i * j % 61)
    assert layout_expression(table) == ""
    assert layout_expression(table.restrict((0, 0), (3, 2))) == (
        "T.Layout((3, 2), lambda i, j: ((0,), (0,), (0,), (1,), (0,), (2,))[2 * i + j])"
    )
