"""Digit maps: canonical form, agreement with tables, fallback, and the algebra of layouts."""

from __future__ import annotations

import pickle
import subprocess
import sys
from itertools import combinations, product
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tileworkbench.compiler.diagnostics import LayoutError
from tileworkbench.compiler.layout import Digit, Layout, Term
from tileworkbench.compiler.layout.maps import DigitMap, TableMap

SHAPES = st.lists(st.sampled_from([1, 2, 3, 4, 6, 8, 10, 12, 16]), min_size=1, max_size=3)
FACTORS = st.sampled_from([1, 2, 3, 4, 5, 8])


@st.composite
def formulas(draw, rank: int, depth: int = 3) -> str:
    """Source text of random index arithmetic on x[0] .. x[rank-1] without negative values."""
    if depth == 0 or draw(st.integers(0, 4)) == 0:
        return draw(st.sampled_from([f"x[{d}]" for d in range(rank)]))
    left = draw(formulas(rank, depth - 1))
    kind = draw(st.sampled_from(["+", "*", "//", "%", "^", "^", "+c"]))
    if kind in ("*", "//", "%"):
        return f"({left} {kind} {draw(FACTORS)})"
    if kind == "+c":
        return f"({left} + {draw(st.integers(0, 9))})"
    return f"({left} {kind} {draw(formulas(rank, depth - 1))})"


@st.composite
def layouts(draw) -> tuple[Layout, str]:
    """A random layout together with the formulas it was traced from."""
    shape = draw(SHAPES)
    outputs = draw(st.lists(formulas(len(shape)), min_size=1, max_size=2))
    source = f"({', '.join(outputs)},)"
    function = eval(f"lambda *x: {source}")
    return Layout(shape, function), source


def tabulate(shape: tuple[int, ...], source: str) -> np.ndarray:
    x = np.indices(shape)
    table = np.empty((*shape, len(eval(source))), np.int64)
    for output, values in enumerate(eval(source)):
        table[..., output] = values
    return table


@settings(max_examples=300, deadline=None, derandomize=True)
@given(layouts())
def test_tracing_agrees_with_arrays_and_is_canonical(case):
    layout, source = case
    table = tabulate(layout.shape, source)
    assert np.array_equal(layout.table(linear=False), table)
    assert Layout.from_table(table) == layout
    assert layout.output_shape == tuple(table.reshape(-1, table.shape[-1]).max(0) + 1)
    assert Layout.from_text(layout.to_text()) == layout
    distinct = len(np.unique(layout.table()))
    assert layout.is_injective == (distinct == layout.size)
    assert layout.is_bijective == (distinct == layout.size == prod(layout.output_shape))
    if layout.is_bijective:
        assert layout.inverse() @ layout == Layout.identity(layout.shape)
        assert layout @ layout.inverse() == Layout.identity(layout.output_shape)
        assert layout.inverse().inverse() == layout
    for index in [(0,) * layout.rank, tuple(extent - 1 for extent in layout.shape)]:
        assert layout(*index) == tuple(table[index])
        assert layout.offset(*index) == layout.table()[index]


CHAIN = [
    "* 2",
    "* 3",
    "// 2",
    "// 3",
    "// 4",
    "% 2",
    "% 3",
    "% 4",
    "% 6",
    "+ 1",
    "+ 6",
    "^ 1",
    "^ 5",
]


@pytest.mark.parametrize("extent", [8, 10, 12])
def test_all_short_chains_of_operations(extent):
    x = np.arange(extent)
    for operations in product(CHAIN, repeat=3):
        source = "x"
        for operation in operations:
            source = f"({source} {operation})"
        function = eval(f"lambda x: {source}")
        assert np.array_equal(Layout((extent,), function).table(linear=False)[:, 0], function(x)), (
            source
        )


PARTS = [
    "i",
    "j",
    "i // 2",
    "i % 4",
    "j % 3",
    "2 * i",
    "3 * j",
    "i + 1",
    "8 * j",
    "j // 4",
    "7 - j",
]
LAST = ["{} // 2", "{} % 4", "{} ^ i", "3 * {}", "({}) ^ (2 * j)"]


@pytest.mark.parametrize("shape", [(8, 8), (12, 8)], ids=str)
def test_all_short_sums_and_xors(shape):
    i, j = np.indices(shape)
    for left, right in combinations(PARTS, 2):
        for last in LAST:
            for sign in "+^":
                source = last.format(f"(({left}) {sign} ({right}))")
                function = eval(f"lambda i, j: {source}")
                layout = Layout(shape, function)
                table = layout.table(linear=False)
                assert np.array_equal(table[..., 0], function(i, j)), source
                assert Layout.from_table(table) == layout, source
                assert Layout.from_text(layout.to_text()) == layout, source


def test_xor_with_negative_operands():
    layout = Layout((8, 8), lambda i, j: ((i - 4) ^ j) + 8)
    assert layout.table().tolist() == [[((i - 4) ^ j) + 8 for j in range(8)] for i in range(8)]


def test_xor_beside_digits_that_straddle_its_bits():
    layout = Layout((24, 8), lambda i, j: i % 12 * 8 + (i % 8 ^ j))
    assert isinstance(layout.mapping, TableMap)
    assert Layout.from_table(layout.table(linear=False)) == layout


@settings(max_examples=100, deadline=None, derandomize=True)
@given(layouts())
def test_contiguity_agrees_with_the_table(case):
    layout, _ = case
    table = layout.table()
    runs = [
        run
        for run in range(1, layout.shape[-1] + 1)
        if all(
            (
                table[..., start : start + run]
                == table[..., start : start + 1]
                + np.arange(run)[: table[..., start : start + run].shape[-1]]
            ).all()
            for start in range(0, layout.shape[-1], run)
        )
    ]
    assert layout.contiguity() == max(runs)
    width = layout.vector_width(4)
    assert layout.contiguity() % width == 0
    assert not (table[..., ::width] % width).any()


@st.composite
def permutations(draw, size: int = 96) -> tuple[tuple[int, ...], list[int]]:
    factors = draw(st.permutations([2, 2, 2, 2, 2, 3]))
    return tuple(factors), draw(st.permutations(range(6)))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(permutations(), permutations(), permutations())
def test_composition_is_associative(one, two, three):
    first, second, third = (digit_permutation(*case) for case in (one, two, three))
    assert (first @ second) @ third == first @ (second @ third)
    assert (first @ second).inverse() == second.inverse() @ first.inverse()
    assert np.array_equal((first @ second).table(), first.table()[second.table()])


def digit_permutation(factors: tuple[int, ...], order: list[int]) -> Layout:
    """The bijection of 96 points that writes the digits of its index in another order."""

    def place(x):
        digits = []
        for factor in factors:
            digits.append(x % factor)
            x = x // factor
        offset, stride = 0, 1
        for position in order:
            offset = digits[position] * stride + offset
            stride *= factors[position]
        return offset

    return Layout((96,), place)


def test_digit_permutations_are_never_tabulated():
    layout = digit_permutation((2, 3, 2, 2, 2, 2), [5, 0, 3, 1, 2, 4])
    assert isinstance(layout.mapping, DigitMap)
    assert isinstance(layout.inverse().mapping, DigitMap)


def test_equal_maps_are_equal_however_written():
    written = [
        Layout((32, 64), lambda i, j: i * 64 + j),
        Layout((32, 64), lambda i, j: i // 8 * 512 + i % 8 * 64 + j // 2 * 2 + j % 2),
        Layout((32, 64), lambda i, j: (i * 64 + j) // 16 * 16 + (i * 64 + j) % 16),
        Layout((32, 64), lambda i, j: (i ^ 0) * 64 ^ j),
        Layout((32, 64), lambda i, j: (i ^ j ^ j) * 64 + (j & 7) + (j >> 3 << 3)),
        Layout.row_major((32, 64)),
        Layout.from_table(np.arange(2048).reshape(32, 64, 1)),
    ]
    assert len(set(written)) == 1
    assert written[0].digits == ((Term((Digit(0, 1, 32),), 64), Term((Digit(1, 1, 64),), 1)),)


def test_layouts_of_different_shape_are_not_equal():
    assert Layout.row_major((4, 4)) != Layout.row_major((4, 5))
    assert Layout.row_major((16,)) != Layout.row_major((4, 4))
    assert Layout.row_major((1, 16)) != Layout.row_major((16,))
    assert Layout((4,), lambda i: i) != Layout((4,), lambda i: (i, 0))


def test_xor_of_a_digit_is_structural():
    layout = Layout((128, 32), lambda i, j: (i // 8, j ^ (i % 8)))
    assert str(layout) == "(i, j) -> (i//8, 8*(j//8) + (i%8 ^ j%8))"
    assert layout.digits == (
        (Term((Digit(0, 8, 16),), 1),),
        (Term((Digit(1, 8, 4),), 8), Term((Digit(0, 1, 8), Digit(1, 1, 8)), 1)),
    )


def test_tables_keep_what_digits_cannot_say():
    squares = Layout((7,), lambda i: i * i % 7 + (i == 3))
    assert isinstance(squares.mapping, TableMap)
    assert squares.digits is None
    assert str(squares) == "(i) -> table of 7 entries"
    assert squares.to_text() == "Layout((7,), [(0,), (1,), (4,), (3,), (2,), (4,), (1,)])"
    assert squares.table().tolist() == [0, 1, 4, 3, 2, 4, 1]
    assert hash(squares) == hash(Layout.from_text(squares.to_text()))
    assert pickle.loads(pickle.dumps(squares)) == squares
    shuffled = [3, 0, 2, 1, 4]
    permuted = Layout((5,), lambda i: shuffled[i])
    assert permuted.inverse().table().tolist() == [1, 3, 2, 0, 4]
    assert (permuted.inverse() @ permuted) == Layout.identity((5,))


def test_branches_on_indices_are_seen():
    layout = Layout((8, 8), lambda i, j: j if i == 3 else i)
    assert layout.table()[3].tolist() == list(range(8))
    assert layout.table()[5].tolist() == [5] * 8


def test_pickle_round_trip():
    layout = Layout.swizzled((64, 64), 16, 128)
    assert pickle.loads(pickle.dumps(layout)) == layout


def test_large_domains_are_decided_structurally():
    shape = (4096, 4096)
    assert Layout.swizzled(shape, 16, 128).is_bijective
    assert Layout.padded(shape, 4104).is_injective
    assert not Layout.padded(shape, 4104).is_bijective
    assert not Layout(shape, lambda i, j: i * 2048 + j % 2048).is_injective
    assert Layout.panels(shape, 1, 16).inverse().inverse() == Layout.panels(shape, 1, 16)


def test_padding_is_injective_and_has_no_inverse():
    layout = Layout.padded((16, 24), 32)
    assert layout.is_injective and not layout.is_bijective
    assert layout.output_shape == (15 * 32 + 24,)
    assert layout.offset(2, 3) == 67
    with pytest.raises(LayoutError) as error:
        layout.inverse()
    assert str(error.value) == (
        "The layout from '(16, 24)' to '(504,)' is not a bijection, so it has no inverse.\n"
        "hint: Padding leaves holes, and replication or dropped digits repeat elements."
    )


def test_what_only_looks_like_a_bijection_has_no_inverse():
    for layout in (
        Layout((2, 2, 2), lambda i, j, k: i + j + 5 * k),
        Layout((10,), lambda i: (i % 4, i // 4)),
        Layout((4, 4), lambda i, j: 4 * i + j + 1),
        Layout((4, 4), lambda i, j: (i, i ^ j, j)),
    ):
        assert not layout.is_bijective
        with pytest.raises(LayoutError, match="is not a bijection"):
            layout.inverse()
    assert Layout((4, 4), lambda i, j: (i, i ^ j)).inverse() == Layout(
        (4, 4), lambda i, j: (i, i ^ j)
    )
    assert not Layout((1024, 1024, 2), lambda i, j, k: i + j).is_injective
    with pytest.raises(LayoutError, match="too many for a table"):
        _ = Layout((1024, 1024), lambda i, j: (i + j, j)).is_injective


def test_partial_top_digits_have_exact_extents():
    layout = Layout((10,), lambda i: i // 4 + i % 4 * 3)
    assert layout.output_shape == (max(i // 4 + i % 4 * 3 for i in range(10)) + 1,)
    flipped = Layout((10,), lambda i: 20 - (i // 4 * 5 + i % 4))
    assert flipped.table().tolist() == [20 - (i // 4 * 5 + i % 4) for i in range(10)]


def test_repeat_expand_reshape_restrict():
    layout = Layout.swizzled((16, 64), 16, 128)
    table = layout.table()
    assert layout.repeat(0, 3)(37, 5) == (2, table[5, 5])
    assert layout.repeat(1, 2)(3, 70) == (1, table[3, 6])
    assert layout.expand((4,))(3, 9, 10) == (3, table[9, 10])
    assert layout.expand(()) is layout
    assert np.array_equal(layout.reshape((4, 256)).table(), table.reshape(4, 256))
    assert layout.reshape((1024,)).reshape((16, 64)) == layout
    part = layout.restrict((8, 32), (8, 32))
    assert np.array_equal(part.table(), table[8:, 32:])
    assert part.digits is not None
    assert np.array_equal(layout.restrict((3, 5), (7, 9)).table(), table[3:10, 5:14])


def test_recast_keeps_the_bytes():
    layout = Layout.swizzled((16, 64), 16, 128)
    halves = layout.recast(16, 8)
    assert halves == Layout.swizzled((16, 128), 8, 128)
    assert halves.recast(8, 16) == layout
    assert layout.recast(16, 128) == Layout((16, 8), lambda i, j: i * 8 + (i % 8 ^ j))
    with pytest.raises(LayoutError) as error:
        layout.recast(16, 256)
    assert str(error.value) == (
        "Cannot view 16-bit elements of the layout as 256 bits: groups of 16 neighbours are not "
        "contiguous and aligned."
    )


def test_contiguity_and_vector_width():
    assert Layout.row_major((16, 64)).contiguity() == 64
    assert Layout.column_major((16, 64)).contiguity() == 1
    swizzled = Layout.swizzled((16, 64), 16, 128)
    assert swizzled.contiguity() == 8
    assert [swizzled.vector_width(limit) for limit in (1, 4, 8, 16)] == [1, 4, 8, 8]
    assert Layout.padded((16, 24), 28).vector_width(8) == 4
    assert Layout((4, 8), lambda i, j: i * 8 + j + 1).vector_width(8) == 1
    crossed = Layout((8, 16), lambda i, j: j + 64 * (j // 4 ^ i % 4))
    assert crossed.contiguity() == 4 and crossed.vector_width(8) == 4


def test_panels_are_the_packed_operands():
    b = np.arange(8 * 32).reshape(8, 32)
    packed = np.empty(b.size, int)
    packed[Layout.panels(b.shape, 1, 16).table()] = b
    assert np.array_equal(packed.reshape(2, 8, 16), b.reshape(8, 2, 16).transpose(1, 0, 2))
    a = np.arange(12 * 8).reshape(12, 8)
    packed = np.empty(a.size, int)
    packed[Layout.panels(a.shape, 0, 6).table()] = a
    assert np.array_equal(packed.reshape(2, 8, 6), a.reshape(2, 6, 8).transpose(0, 2, 1))
    packed = np.empty(b.size, int)
    packed[Layout.panels(b.shape, 1, 16, interleave=4).table()] = b
    expected = b.reshape(2, 4, 2, 16).transpose(2, 0, 3, 1)
    assert np.array_equal(packed.reshape(2, 2, 16, 4), expected)
    ragged = Layout.panels((8, 20), 1, 16)
    assert ragged.is_injective and ragged(3, 17) == (8 * 16 + 3 * 16 + 1,)


def test_column_major_and_names_beyond_six():
    assert str(Layout.column_major((4, 5, 6))) == "(i, j, k) -> 20*k + 4*j + i"
    wide = Layout.row_major((2,) * 7)
    assert str(wide) == (
        "(x0, x1, x2, x3, x4, x5, x6) -> 64*x0 + 32*x1 + 16*x2 + 8*x3 + 4*x4 + 2*x5 + x6"
    )
    assert Layout.from_text(wide.to_text()) == wide


def test_evaluate_accepts_arrays():
    layout = Layout((128, 32), lambda i, j: (i // 8, j ^ (i % 8)))
    i, j = np.array([5, 99]), np.array([7, 30])
    assert [out.tolist() for out in layout.evaluate(i, j)] == [[0, 12], [2, 29]]


def test_to_text_is_python_like():
    layout = Layout((128, 32), lambda i, j: (j // 16 * 2048 + i * 16 + j % 16,))
    assert repr(layout) == ("Layout((128, 32), lambda i, j: (2048*(j//16) + 16*i + j%16,))")
    reverse = Layout((8,), lambda i: 7 - i)
    assert reverse.to_text() == "Layout((8,), lambda i: (7 - i,))"
    assert Layout.from_text("Layout((8,), lambda i: 7 - i)") == reverse
    assert Layout((3,), lambda i: 0).to_text() == "Layout((3,), lambda i: (0,))"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Layout((8,), lambda i: f(i))", "'f(i)' is not index arithmetic"),
        ("Layout((8,), lambda i: __import__('os'))", "'__import__('os')' is not index arithmetic"),
        ("Layout((8,), lambda i: i ** 2)", "'i ** 2' is not index arithmetic"),
        ("Layout((8,), lambda i: j)", "'j' is not index arithmetic"),
        ("Layout((8,), lambda i: 1.5)", "'1.5' is not index arithmetic"),
        ("Layout((8,)", "it is not an expression"),
        ("Fragment((8,), lambda i: i)", "it is not 'Layout(shape, map)'"),
        ("Layout((8,), lambda i: i, replicate=2)", "it has an unknown keyword"),
        ("Layout(n, lambda i: i)", "its shape, table and keywords must be literals"),
        ("Layout((8,), lambda i, j: i)", "its function takes 2 indices, not 1"),
    ],
)
def test_malformed_text_is_refused(text, reason):
    with pytest.raises(LayoutError) as error:
        Layout.from_text(text)
    assert str(error.value) == f"'{text}' is not the text of a Layout: {reason}."


MESSAGES = [
    (lambda: Layout((), lambda: 0), "The shape of a layout must be positive integers, not '()'."),
    (
        lambda: Layout((4, 0), lambda i, j: i),
        "The shape of a layout must be positive integers, not '(4, 0)'.",
    ),
    (
        lambda: Layout((4, 2.5), lambda i, j: i),
        "The shape of a layout must be positive integers, not '(4, 2.5)'.",
    ),
    (
        lambda: Layout((8,), lambda i: i - 3),
        "Output 0 of the layout over '(8,)' is negative: it reaches -3.",
    ),
    (
        lambda: Layout((5,), lambda i: (i, (i * i % 5) - 2)),
        "Output 1 of the layout over '(5,)' is negative: it reaches -2.",
    ),
    (
        lambda: Layout((8,), lambda i: i / 2),
        "A layout's function must return integers.\nhint: Divide with '//', not '/'.",
    ),
    (
        lambda: Layout((8, 8), lambda i, j: (i, j and (8, 8))),
        "A layout's function must return integers.\nhint: Divide with '//', not '/'.",
    ),
    (lambda: Layout((8,), lambda i: ()), "A layout's function must return at least one index."),
    (
        lambda: Layout((8,), lambda i: (i, i) if i == 2 else i),
        "A layout's function must return equally many indices everywhere.",
    ),
    (
        lambda: Layout((8,), lambda i: i // 0),
        "The function of a layout failed: divide by zero encountered in floor_divide.",
    ),
    (
        lambda: Layout((1024, 1024), lambda i, j: i * i + j),
        "A layout over '(1024, 1024)' is not a map of digits, and its 1048576 points are too many "
        "for a table (at most 262144).\n"
        "hint: Write it with '+', '*', '//', '%' and '^' and divisors that divide one another.",
    ),
    (lambda: Layout.padded((4, 8), 7), "A row of 8 elements does not fit a pitch of 7."),
    (
        lambda: Layout.swizzled((64, 64), 16, 96),
        "A swizzle is 32, 64 or 128 bytes wide, not '96'.",
    ),
    (lambda: Layout.swizzled((64,), 16, 64), "Cannot swizzle '(64,)' of 16-bit elements."),
    (
        lambda: Layout.swizzled((64, 40), 16, 128),
        "A 128-byte swizzle of 16-bit elements takes rows of a multiple of 64 elements, not 40.\n"
        "hint: Use a narrower swizzle or a padded layout.",
    ),
    (
        lambda: Layout.panels((4, 4, 4), 0, 4),
        "Cannot pack '(4, 4, 4)' along dimension 0 in panels of 4 x 1.",
    ),
    (
        lambda: Layout.row_major((4, 4))(4, 0),
        "Index '(4, 0)' is outside the shape '(4, 4)'.",
    ),
    (lambda: Layout.row_major((4, 4))(1), "Index '(1,)' is outside the shape '(4, 4)'."),
    (
        lambda: Layout.row_major((4, 4)).offset(0, -1),
        "Index '(0, -1)' is outside the shape '(4, 4)'.",
    ),
    (
        lambda: Layout.row_major((4,)) @ Layout.row_major((8,)),
        "Cannot compose: the inner layout reaches '(8,)', outside the outer layout's shape '(4,)'.",
    ),
    (
        lambda: Layout.row_major((4, 4)).reshape((3, 5)),
        "Cannot reshape '(4, 4)' to '(3, 5)': the sizes differ.",
    ),
    (
        lambda: Layout.row_major((4, 4)).restrict((2, 2), (3, 2)),
        "'(3, 2)' at '(2, 2)' is not a box inside '(4, 4)'.",
    ),
    (
        lambda: Layout.row_major((4, 4)).repeat(2, 2),
        "Cannot repeat dimension 2 of '(4, 4)' 2 times.",
    ),
    (
        lambda: Layout.from_text("Layout((4,), [(0,), (1,)])"),
        "A table over '(4,)' needs 4 equal rows, not 2.",
    ),
    (
        lambda: Layout((5,), lambda i: i * i).evaluate("i"),
        "A tabulated layout has no formula to evaluate on expressions.",
    ),
]


@pytest.mark.parametrize(("action", "message"), MESSAGES, ids=range(len(MESSAGES)))
def test_messages(action, message):
    with pytest.raises(LayoutError) as error:
        action()
    assert str(error.value) == message


def test_digits_need_no_numpy():
    program = (
        "import sys\n"
        "from tileworkbench.compiler.layout import Layout, Fragment, contains\n"
        "from tileworkbench.compiler.layout.atoms import WarpGrid, block_c, mma_c\n"
        "layout = Layout.swizzled((64, 64), 16, 128)\n"
        "assert layout.inverse().inverse() == layout and layout.is_bijective\n"
        "c = block_c(WarpGrid(128, 128, 2, 2), mma_c())\n"
        "assert c.inverse().is_bijective and contains(c, c)\n"
        "c.project(Layout(c.shape, lambda i, j: j))\n"
        "assert 'numpy' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
