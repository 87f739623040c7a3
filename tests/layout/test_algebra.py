"""The algebra of CuTe: its laws by brute force on random small layouts, and its documentation."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tileworkbench.compiler.diagnostics import LayoutError
from tileworkbench.compiler.layout import Layout, atoms
from tileworkbench.compiler.layout import algebra as cute
from tileworkbench.compiler.layout.algebra import extent_of
from tileworkbench.compiler.layout.cute import cute_text, parse_cute

Modes = list[list[tuple[int, int]]]


@st.composite
def modes(draw, most: int = 3, strides=(0, 1, 2, 3, 4, 5, 8, 12, 16)) -> Modes:
    """Extents and strides of each mode of a layout."""
    pair = st.tuples(st.sampled_from([1, 2, 3, 4]), st.sampled_from(strides))
    return draw(st.lists(st.lists(pair, min_size=1, max_size=2), min_size=1, max_size=most))


@st.composite
def injective_modes(draw) -> Modes:
    """The same, each stride a multiple of what the strides before it reach; shuffled."""
    pairs, reached = [], 1
    for extent in draw(st.lists(st.sampled_from([2, 3, 4]), min_size=1, max_size=3)):
        reached *= draw(st.sampled_from([1, 1, 2, 3]))
        pairs.append((extent, reached))
        reached *= extent
    return [[pair] for pair in draw(st.permutations(pairs))]


def text(given: Modes) -> str:
    """The layout as CuTe writes it."""
    sides = (
        ",".join(f"({','.join(str(pair[side]) for pair in mode)})" for mode in given)
        for side in (0, 1)
    )
    return ":".join(f"({side})" for side in sides)


def offsets(given: Modes) -> list[int]:
    """All offsets in CuTe's order, by the definition: the first mode and digit fastest."""
    pairs = [pair for mode in given for pair in mode]
    indices = product(*(range(extent) for extent, _ in reversed(pairs)))
    strides = [stride for _, stride in reversed(pairs)]
    return [sum(i * d for i, d in zip(index, strides, strict=True)) for index in indices]


def flat(layout: Layout) -> list[int]:
    """All offsets of one of ours in the same order."""
    return layout.table().reshape(-1, order="F").tolist()


def refused(call: Callable[[], Layout]) -> bool:
    """Whether the operation is not defined."""
    try:
        call()
    except LayoutError:
        return True
    return False


many = settings(max_examples=100, deadline=None, derandomize=True)


@many
@given(modes())
def test_a_text_is_its_offsets_and_is_written_back(given_modes):
    layout = parse_cute(text(given_modes))
    assert flat(layout) == offsets(given_modes)
    assert layout.shape == tuple(prod(e for e, _ in mode) for mode in given_modes)
    assert parse_cute(cute_text(layout)) == layout
    assert flat(cute.coalesce(layout)) == offsets(given_modes)
    assert cute.coalesce(layout).rank == 1


@many
@given(modes(), modes())
def test_composition(outer, inner):
    one, other = offsets(outer), offsets(inner)
    made = lambda: cute.composition(parse_cute(text(outer)), parse_cute(text(inner)))  # noqa: E731
    if max(other) >= len(one):
        assert refused(made)
    else:
        assert flat(made()) == [one[position] for position in other]
        assert made().shape == parse_cute(text(inner)).shape


def is_complement(layout: list[int], rest: list[int], extent: int) -> bool:
    """CuTe's definition: disjoint, rising, and together they fill `extent` and not much more."""
    places = {a + b for a in layout for b in rest}
    disjoint = len(places) == len(set(layout)) * len(rest)
    filled = set(range(extent)) <= places
    short = len(places) < extent + 2 * (max(layout) + 1)
    return disjoint and rest == sorted(rest) and rest[0] == 0 and filled and short


@many
@given(injective_modes(), st.integers(1, 60))
def test_complement(given_modes, extent):
    layout = parse_cute(text(given_modes))
    assert is_complement(offsets(given_modes), flat(cute.complement(layout, extent)), extent)
    rest = cute.complement(layout)
    assert is_complement(offsets(given_modes), flat(rest), extent_of(layout))


@many
@given(modes(most=2))
def test_a_complement_is_one_or_is_refused(given_modes):
    layout, extent = parse_cute(text(given_modes)), max(offsets(given_modes)) + 1
    try:
        rest = cute.complement(layout)
    except LayoutError:
        # None exists: a rising one is found place by place, or not at all.
        assert greedy_complement(offsets(given_modes), extent) is None
    else:
        assert is_complement(offsets(given_modes), flat(rest), extent)


def greedy_complement(layout: list[int], extent: int) -> list[int] | None:
    """Start a copy at the first free place, again and again; None where copies overlap."""
    taken: set[int] = set()
    starts = []
    for place in range(extent):
        if place not in taken:
            copy = {place + offset for offset in layout}
            if copy & taken:
                return None
            starts.append(place)
            taken |= copy
    return starts


@many
@given(modes())
def test_right_inverse(given_modes):
    layout, places = parse_cute(text(given_modes)), offsets(given_modes)
    inverse = flat(cute.right_inverse(layout))
    assert [places[position] for position in inverse] == list(range(len(inverse)))
    assert len(inverse) not in places


@many
@given(modes())
def test_left_inverse(given_modes):
    layout, places = parse_cute(text(given_modes)), offsets(given_modes)
    if len(set(places)) < len(places) or refused(lambda: cute.complement(layout)):
        assert refused(lambda: cute.left_inverse(layout))
        return
    inverse = flat(cute.left_inverse(layout))
    assert [inverse[place] for place in places] == list(range(len(places)))
    assert sorted(inverse) == list(range(len(inverse)))


@many
@given(injective_modes())
def test_inverses_of_a_bijection_are_the_inverse(given_modes):
    layout = cute.coalesce(parse_cute(text(given_modes)))
    assume(layout.is_bijective)
    assert cute.right_inverse(layout) == cute.left_inverse(layout) == layout.inverse()


@many
@given(modes(), injective_modes())
def test_divide_goes_through_a_layout_tile_by_tile(given_modes, tile):
    layout = parse_cute(text(given_modes))
    size = len(offsets(tile))
    try:
        divided = cute.logical_divide(layout, parse_cute(text(tile)))
    except LayoutError:
        fits = greedy_complement(offsets(tile), layout.size)
        assert fits is None or max(fits) + max(offsets(tile)) >= layout.size
        return
    whole, within = offsets(given_modes), offsets(tile)
    rows = divided.table()
    assert divided.shape[0] == size
    starts = flat(cute.complement(parse_cute(text(tile)), layout.size))
    for copy, start in enumerate(starts):
        assert rows[:, copy].tolist() == [whole[start + offset] for offset in within]


@many
@given(injective_modes(), injective_modes())
def test_products_are_copies_of_the_block(block, tiler):
    one, other = parse_cute(text(block)), parse_cute(text(tiler))
    starts = flat(cute.complement(one, one.size * extent_of(other)))
    copies = [[starts[place] + offset for offset in offsets(block)] for place in offsets(tiler)]
    assert cute.logical_product(one, other).table().T.tolist() == copies
    everything = sorted(place for copy in copies for place in copy)
    for made in (cute.blocked_product(one, other), cute.raked_product(one, other)):
        assert sorted(flat(made)) == everything
        rank = max(one.rank, other.rank)
        inner = one.shape + (1,) * (rank - one.rank)
        outer = other.shape + (1,) * (rank - other.rank)
        assert made.shape == tuple(a * b for a, b in zip(inner, outer, strict=True))
    blocked, raked = cute.blocked_product(one, other), cute.raked_product(one, other)
    for index in np.ndindex(*inner):
        for copy in np.ndindex(*outer):
            place = one.offset(*index[: one.rank]) + starts[other.offset(*copy[: other.rank])]
            pairs = list(zip(index, copy, inner, outer, strict=True))
            assert blocked.offset(*(i + c * a for i, c, a, _ in pairs)) == place
            assert raked.offset(*(c + i * b for i, c, _, b in pairs)) == place


@many
@given(modes(), st.integers(0, 3), st.integers(0, 4), st.integers(-5, 5))
def test_swizzle(given_modes, bits, base, shift):
    layout = parse_cute(text(given_modes))
    if abs(shift) < bits:
        assert refused(lambda: cute.swizzle(layout, bits, base, shift))
        return
    made = cute.swizzle(layout, bits, base, shift)
    mask = ((1 << bits) - 1) << (base + max(0, shift))
    expected = [
        o ^ ((o & mask) >> shift if shift >= 0 else (o & mask) << -shift)
        for o in offsets(given_modes)
    ]
    assert flat(made) == expected
    assert cute.swizzle(made, bits, base, shift) == cute.swizzle(
        parse_cute(text(given_modes)), 0, 0, 0
    )  # it undoes itself


def test_the_swizzles_of_tma_are_those_of_cute():
    for width, bits in ((32, 1), (64, 2), (128, 3)):
        plain = parse_cute(f"(64,{width // 2}):({width // 2},1)")
        made = cute.swizzle(plain, bits, 3, 3)
        assert made == Layout.swizzled((64, width // 2), 16, width)
        assert cute_text(made) == f"Sw<{bits},3,3> o (64,{width // 2}):({width // 2},1)"


# "CuTe Layout Algebra": the examples, as the documentation gives them.
EXAMPLES = [
    ("composition", "(6,2):(8,2)", "(4,3):(3,1)", "((2,2),3):((24,2),8)"),
    ("composition", "20:2", "(5,4):(4,1)", "(5,4):(8,2)"),
    ("composition", "(10,2):(16,4)", "(5,4):(1,5)", "(5,(2,2)):(16,(80,4))"),
    ("complement", "4:1", 24, "6:4"),
    ("complement", "6:4", 24, "4:1"),
    ("complement", "(4,6):(1,4)", 24, "1:0"),
    ("complement", "4:2", 24, "(2,3):(1,8)"),
    ("complement", "(2,4):(1,6)", 24, "3:2"),
    ("complement", "(2,2):(1,6)", 24, "(3,2):(2,12)"),
    ("logical_divide", "(4,2,3):(2,1,8)", "4:2", "((2,2),(2,3)):((4,1),(2,8))"),
    ("logical_product", "(2,2):(4,1)", "6:1", "((2,2),(2,3)):((4,1),(2,8))"),
    ("logical_product", "(2,2):(4,1)", "(4,2):(2,1)", "((2,2),(4,2)):((4,1),(8,2))"),
    ("blocked_product", "(2,5):(5,1)", "(3,4):(1,3)", "((2,3),(5,4)):((5,10),(1,30))"),
    ("raked_product", "(2,5):(5,1)", "(3,4):(1,3)", "((3,2),(4,5)):((10,5),(30,1))"),
]


@pytest.mark.parametrize(("name", "first", "second", "expected"), EXAMPLES)
def test_examples_of_the_documentation(name, first, second, expected):
    other = parse_cute(second) if isinstance(second, str) else second
    made = getattr(cute, name)(parse_cute(first), other)
    wanted = parse_cute(expected)
    if name == "complement":
        wanted = cute.coalesce(wanted)
    assert made == wanted
    assert cute.coalesce(made) == cute.coalesce(wanted)


# The thread-value layouts of CUTLASS's `mma_traits_sm80.hpp`, against our own atoms.
THREAD_VALUES = [
    ("((4,8),(2,2)):((32,1),(16,8))", (16, 8), atoms.mma_c()),
    ("((4,8),(2,2,2)):((32,1),(16,8,128))", (16, 16), atoms.mma_a(16)),
    ("((4,8),(2,2)):((16,1),(8,64))", (8, 16), atoms.mma_b(16)),
]


@pytest.mark.parametrize(("given_text", "tile", "fragment"), THREAD_VALUES)
def test_thread_value_layouts_are_our_fragments(given_text, tile, fragment):
    assert cute.fragment_of(parse_cute(given_text), tile) == fragment


def test_xor_is_no_hindrance():
    swizzled = Layout.swizzled((8, 64), 16, 128)
    assert cute.complement(swizzled, 1024) == parse_cute("2:512")
    assert cute.left_inverse(swizzled) == cute.right_inverse(swizzled)
    assert flat(cute.composition(cute.coalesce(swizzled), cute.right_inverse(swizzled))) == list(
        range(512)
    )
    halves = cute.logical_divide(swizzled, parse_cute("256:1"))
    assert halves.shape == (256, 2)
    assert cute.swizzle(swizzled, 3, 3, 3) == Layout.row_major((8, 64))


WRONG = [
    (
        lambda a: cute.fragment_of(a("32:1"), (4, 8)),
        "A thread-value layout has 2 indices, not 1.",
    ),
    (
        lambda a: cute.fragment_of(a("(4,8):(1,8)"), (4, 8)),
        "The layout's 32 threads and values do not name each of the tile's 32 elements once.",
    ),
    (
        lambda a: cute.composition(a("4:1"), a("3:2")),
        "Cannot compose: the inner layout reaches 4, and the outer one has 4 elements.",
    ),
    (
        lambda a: cute.complement(a("4:1"), 0),
        "A complement fills 1 element or more, not 0.",
    ),
    (
        lambda a: cute.complement(a("(2,2):(1,3)")),
        "The layout has no complement: stride 3 is no multiple of 2, so copies of it leave gaps.",
    ),
    (
        lambda a: cute.complement(a("(3,2):(1,2)")),
        None,
    ),
    (
        lambda a: cute.complement(Layout((3,), lambda i: i * (i + 1) // 2)),
        "The layout has no complement: its 3 offsets have no regular strides, so copies of it "
        "leave gaps.",
    ),
    (
        lambda a: cute.left_inverse(a("(2,4):(0,1)")),
        "The layout has no left inverse: two elements share a place.",
    ),
    (
        lambda a: cute.right_inverse(Layout((4,), lambda i: i + 1)),
        "The layout has no right inverse: no element is at offset 0.",
    ),
    (
        lambda a: cute.swizzle(a("64:1"), 3, 0, 2),
        "<3, 0, 2> is no swizzle: bits and base are 0 or more, and the shift is at least as far as "
        "there are bits.",
    ),
    (
        lambda a: cute.swizzle(a("64:1"), 8, 8, 16),
        "<8, 8, 16> is too wide: a swizzle touches the lowest 31 bits.",
    ),
]


@pytest.mark.parametrize(("call", "message"), WRONG)
def test_what_is_not_defined_says_why(call, message):
    if message is None:  # offsets 0 to 4, in one piece
        assert call(parse_cute) == parse_cute("1:0")
        return
    with pytest.raises(LayoutError) as caught:
        call(parse_cute)
    assert caught.value.message == message
