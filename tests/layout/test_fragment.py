"""Fragments: the primitives of the paper's Figure 6, projection (Figure 7), containment, text."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tileworkbench.compiler.diagnostics import LayoutError
from tileworkbench.compiler.layout import Fragment, Layout, contains
from tileworkbench.compiler.layout.atoms import (
    WarpGrid,
    block_a,
    block_c,
    mma_a,
    mma_c,
)
from tileworkbench.compiler.layout.maps import DigitMap, TableMap

FIGURE_7 = Fragment((4, 4), lambda i, j: (2 * i + j // 2, j % 2))


def owners(fragment: Fragment) -> dict[tuple[int, ...], tuple[frozenset[int], int]]:
    """Index -> (all threads that hold it, slot), from the tables."""
    threads, slots = fragment.table()
    return {
        index: (frozenset(threads[index].tolist()), int(slots[index]))
        for index in np.ndindex(*fragment.shape)
    }


@st.composite
def fragments(draw) -> Fragment:
    """A random spread of a small 2-d box over threads, slots and replicas."""
    factors = [draw(st.sampled_from([1, 2, 3, 4])) for _ in range(4)]
    shape = (factors[0] * factors[1], factors[2] * factors[3])
    order = draw(st.permutations(range(4)))
    on_thread = draw(st.lists(st.booleans(), min_size=4, max_size=4))
    replicate = draw(st.sampled_from([1, 2, 3]))
    swizzle = draw(st.booleans())

    def place(i, j, rep=0):
        digits = [i // factors[1], i % factors[1], j // factors[3], j % factors[3]]
        if swizzle and factors[1] == factors[3]:
            digits[3] = digits[3] ^ digits[1] if factors[1] != 3 else digits[3]
        thread, slot, threads, slots = rep, 0, replicate, 1
        for position in order:
            if on_thread[position]:
                thread = digits[position] * threads + thread
                threads *= factors[position]
            else:
                slot = digits[position] * slots + slot
                slots *= factors[position]
        return thread, slot

    return Fragment(shape, place, replicate)


repeats = st.tuples(st.integers(1, 3), st.integers(1, 3))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(fragments(), repeats, st.booleans(), st.booleans())
def test_repeat_agrees_with_its_definition(fragment, factors, on_thread, last_first):
    repeated = fragment.repeat(factors, on_thread, last_first)
    threads, slots = fragment.table()
    rows, columns = fragment.shape
    assert repeated.shape == (rows * factors[0], columns * factors[1])
    assert isinstance(repeated.mapping, DigitMap)
    i, j = np.indices(repeated.shape)
    outer, inner = (i // rows, j // columns) if last_first else (j // columns, i // rows)
    group = outer * factors[1 if last_first else 0] + inner
    expected_threads = threads[i % rows, j % columns] + (
        fragment.threads * group[..., None] if on_thread else 0
    )
    expected_slots = slots[i % rows, j % columns] + (0 if on_thread else fragment.slots * group)
    assert np.array_equal(repeated.table()[0], expected_threads)
    assert np.array_equal(repeated.table()[1], expected_slots)
    assert repeated.is_bijective == fragment.is_bijective


@settings(max_examples=60, deadline=None, derandomize=True)
@given(fragments(), st.integers(1, 3), st.integers(1, 3))
def test_replicate_and_condense_laws(fragment, copies, more):
    replicated = fragment.replicated(copies)
    threads, slots = fragment.table()
    expected = np.concatenate([threads + fragment.threads * n for n in range(copies)], -1)
    assert np.array_equal(replicated.table()[0], expected)
    assert np.array_equal(replicated.table()[1], slots)
    assert replicated.replicated(more) == fragment.replicated(copies * more)
    assert replicated.repeat((1, 1)) == replicated
    assert fragment.replicated(1) == fragment
    assert replicated.condense() == replicated
    idle = Fragment.from_map(
        Layout(
            (*fragment.shape, fragment.replicate * copies),
            lambda i, j, rep: fragment.evaluate(i, j, rep // copies),
        ).mapping
    )
    assert idle.condense() == fragment
    assert owners(idle) == owners(fragment)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(fragments())
def test_inverse_elements_and_text(fragment):
    assert Fragment.from_text(fragment.to_text()) == fragment
    assert pickle.loads(pickle.dumps(fragment)) == fragment
    if fragment.is_bijective:
        inverse = fragment.inverse()
        assert inverse.shape == (fragment.slots, fragment.threads)
        for index in np.ndindex(*fragment.mapping.shape):
            thread, slot = fragment.evaluate(*index)
            assert inverse(slot, thread) == index
    held = {
        (tuple(index), thread, slot)
        for thread in range(fragment.threads)
        for slot, index in enumerate(fragment.elements_of(thread).tolist())
        if index[0] >= 0
    }
    assert held == {
        (index, thread, slot)
        for index, (threads, slot) in owners(fragment).items()
        for thread in threads
    }


@settings(max_examples=100, deadline=None, derandomize=True)
@given(fragments(), fragments(), st.booleans())
def test_containment_agrees_with_owner_sets(small, large, same_slot):
    if small.shape != large.shape:
        large = small.replicated(2) if same_slot else Fragment.fully_replicated(small.shape, 4)
    mine, theirs = owners(small), owners(large)
    expected = all(
        mine[index][0] <= theirs[index][0] and (not same_slot or mine[index][1] == theirs[index][1])
        for index in mine
    )
    assert contains(small, large, same_slot=same_slot) == expected


@settings(max_examples=60, deadline=None, derandomize=True)
@given(fragments(), st.sampled_from(["i", "j", "i // 2", "j % 2", "(j, i)", "(i, j)", "0"]))
def test_projection_gives_each_reader_its_element(fragment, access_text):
    extents = {"i": fragment.shape[0], "j": fragment.shape[1]}
    if ("// 2" in access_text and extents["i"] % 2) or ("% 2" in access_text and extents["j"] % 2):
        return
    access = Layout(fragment.shape, eval(f"lambda i, j: {access_text}"))
    if isinstance(fragment.mapping, TableMap):
        return
    projected = fragment.project(access)
    assert contains(fragment, projected, None, access)
    held = owners(projected)
    needed: dict[tuple[int, ...], set[int]] = {}
    for index, (threads, _) in owners(fragment).items():
        needed.setdefault(access(*index), set()).update(threads)
    assert {index: set(threads) for index, (threads, _) in held.items()} == needed


def test_figure_6():
    """The m16k16 atom, repeated per warp to m32k16, over four warps to m128k16, replicated."""
    base = Fragment(
        (16, 16),
        lambda i, k: (4 * (i % 8) + k % 8 // 2, 4 * (k // 8) + 2 * (i // 8) + k % 2),
    )
    warp = base.repeat((2, 1))
    assert (warp.shape, warp.threads, warp.slots) == ((32, 16), 32, 16)
    assert str(warp) == (
        "(i, j) -> thread 4*(i%8) + j//2%4, slot 8*(i//16) + 4*(j//8) + 2*(i//8%2) + j%2"
    )
    block = warp.repeat_on_thread((4, 1))
    assert (block.shape, block.threads, block.slots) == ((128, 16), 128, 16)
    assert block.to_text() == (
        "Fragment((128, 16), lambda i, j: (32*(i//32) + 4*(i%8) + j//2%4, "
        "8*(i//16%2) + 4*(j//8) + 2*(i//8%2) + j%2))"
    )
    copied = block.replicated(2)
    assert (copied.replicate, copied.threads, copied.slots) == (2, 256, 16)
    assert str(copied) == (
        "(i, j, rep) -> thread 128*rep + 32*(i//32) + 4*(i%8) + j//2%4, "
        "slot 8*(i//16%2) + 4*(j//8) + 2*(i//8%2) + j%2"
    )
    assert copied == block_a(WarpGrid(128, 64, 4, 2), 16, mma_a(16))
    assert copied.is_bijective and contains(block, copied) and not contains(copied, block)


def test_figure_7_bias_per_row():
    bias = FIGURE_7.project(Layout((4, 4), lambda i, j: i))
    assert bias == Fragment((4,), lambda i, rep: (2 * i + rep, 0), replicate=2)
    assert [bias.thread_of(3, rep=rep) for rep in range(2)] == [6, 7]


def test_figure_7_bias_per_column():
    bias = FIGURE_7.project(Layout((4, 4), lambda i, j: j))
    assert bias == Fragment((4,), lambda j, rep: (2 * rep + j // 2, j % 2), replicate=4)
    assert bias.elements_of(5).tolist() == [[2], [3]]
    assert bias.to_text() == ("Fragment((4,), lambda i, rep: (2*rep + i//2, i%2), replicate=4)")


def test_projection_of_a_block_accumulator():
    c = block_c(WarpGrid(128, 64, 4, 2), mma_c())
    rows = c.project(Layout(c.shape, lambda i, j: i))
    assert str(rows) == (
        "(i, rep) -> thread 128*(rep//4) + 32*(i//32) + 4*(i%8) + rep%4, slot i//8%4"
    )
    groups = c.project(Layout(c.shape, lambda i, j: (i, j // 32)))
    assert (groups.shape, groups.replicate, groups.slots) == ((128, 2), 4, 4)
    scalar = c.project(Layout(c.shape, lambda i, j: 0))
    assert (scalar.shape, scalar.replicate, scalar.slots) == ((1,), 256, 1)


def test_default_slot_is_what_the_thread_leaves():
    fragment = Fragment.from_function((8, 8), lambda i, j: i // 2 * 4 + j // 2)
    assert fragment == Fragment((8, 8), lambda i, j: (i // 2 * 4 + j // 2, i % 2 * 2 + j % 2))
    slots = Fragment.from_function((8, 8), lambda i, j: i, lambda i, j: (j // 4, j % 4))
    assert slots == Fragment((8, 8), lambda i, j: (i, j))
    replicated = Fragment.from_function((8,), lambda i, rep: i // 4 + 2 * rep, replicate=2)
    assert replicated == Fragment((8,), lambda i, rep: (i // 4 + 2 * rep, i % 4), replicate=2)


def test_default_slot_of_a_table_counts_the_thread_s_elements():
    owner = [0, 1, 1, 0, 1, 0]
    fragment = Fragment.from_function((6,), lambda i: owner[i])
    assert [fragment.slot_of(i) for i in range(6)] == [0, 0, 1, 1, 2, 2]
    folded = Fragment.from_function((2, 2), lambda i, j: i + j)
    assert folded.is_injective and not folded.is_bijective


def test_fully_replicated_contains_everything_on_its_threads():
    everywhere = Fragment.fully_replicated((128, 64), 256)
    assert everywhere.is_fully_replicated
    assert str(everywhere) == "(i, j, rep) -> thread rep, slot 64*i + j"
    c = block_c(WarpGrid(128, 64, 4, 2), mma_c())
    assert not c.is_fully_replicated
    assert contains(c, everywhere) and not contains(everywhere, c)
    assert not contains(c, Fragment.fully_replicated((128, 64), 128))
    assert Fragment.fully_replicated((4,), 1).is_fully_replicated
    assert not FIGURE_7.is_fully_replicated


def test_containment_through_accesses():
    c = block_c(WarpGrid(64, 64, 2, 2), mma_c())
    by_row, by_column = (Layout(c.shape, lambda i, j: i), Layout(c.shape, lambda i, j: j))
    rows = c.project(by_row)
    assert contains(c, rows, None, by_row)
    assert contains(rows, c.project(by_row), by_row, by_row)
    assert not contains(c, rows, None, by_column)
    assert not contains(rows, c, by_row, None)
    assert contains(c, c, same_slot=True)
    transposed = c @ Layout(c.shape, lambda i, j: (j, i))
    assert not contains(c, transposed)


def test_containment_counts_the_thread_range():
    small = FIGURE_7.bind_thread_range(128, 128)
    assert contains(small, FIGURE_7.bind_thread_range(128, 8))
    assert not contains(small, FIGURE_7)
    assert contains(small, Fragment.fully_replicated((4, 4), 136))
    assert not contains(small, Fragment.fully_replicated((4, 4), 135))
    assert not contains(FIGURE_7, small)


def test_containment_of_uneven_sums():
    diagonal = Fragment((4, 4), lambda i, j: (i + j, i))
    assert contains(diagonal, Fragment.fully_replicated((4, 4), 7))
    assert not contains(diagonal, Fragment.fully_replicated((4, 4), 6))
    sums = Fragment(
        (2,), lambda i, rep: (rep % 2 * 2 + rep // 2 % 2 * 3 + rep // 4 * 4, 0), replicate=8
    )
    assert contains(Fragment((2,), lambda i: (5 * i, 0)), sums)
    assert not contains(Fragment((2,), lambda i: (8 * i, 0)), sums)
    reordered = Fragment((4,), lambda i, rep: (rep // 2 + rep % 2 * 8, 0), replicate=16)
    assert contains(Fragment((4,), lambda i: (4 * i, 0)), reordered)
    assert contains(Fragment((4,), lambda i: (3 * i, 0)), reordered)
    assert not contains(Fragment((4,), lambda i: (6 * i, 0)), reordered)
    swizzled = Fragment((8, 8), lambda i, j: (i ^ j, i))
    assert contains(swizzled, Fragment((8, 8), lambda i, j, rep: (i ^ rep, i), replicate=8))
    assert not contains(swizzled, Fragment((8, 8), lambda i, j, rep: (i + rep, i), replicate=4))


def test_containment_of_tables():
    owner = [0, 1, 1, 0, 1, 0]
    table = Fragment.from_function((6,), lambda i: owner[i])
    assert isinstance(table.mapping, TableMap)
    assert contains(table, table, same_slot=True)
    assert contains(table, Fragment.fully_replicated((6,), 2))
    assert not contains(Fragment.fully_replicated((6,), 2), table)
    assert Fragment.from_text(table.to_text()) == table
    assert str(table) == "(i) -> table of 6 entries"
    assert table.replicated(2).condense() == table.replicated(2)
    doubled = Fragment((6,), lambda i, rep: (owner[i] if rep >= 0 else 0, i), replicate=2)
    assert doubled.condense().replicate == 1
    uneven = Fragment((6,), lambda i, rep: (owner[i] + (2 if rep == 1 else 0), i), replicate=3)
    assert uneven.condense() == uneven


def test_compose_is_the_loop_over_the_fragment():
    loop = FIGURE_7 @ Layout((4, 2, 2), lambda i, a, b: (i, 2 * a + b))
    assert loop == Fragment((4, 2, 2), lambda i, a, b: (2 * i + a, b))
    broadcast = Fragment((4,), lambda i: (i, 0)) @ Layout((4, 4), lambda i, j: i)
    assert not broadcast.is_injective
    assert [broadcast.thread_of(2, j) for j in range(4)] == [2] * 4


def test_thread_range_is_part_of_the_fragment():
    bound = mma_c().bind_thread_range(32, 64)
    assert bound != mma_c()
    assert bound.thread_range == (32, 64)
    assert bound.to_text().endswith(", thread_range=(32, 64))")
    assert Fragment.from_text(bound.to_text()) == bound
    assert bound.repeat((2, 1)).thread_range == (32, 64)
    assert bound.project(Layout((16, 8), lambda i, j: i)).thread_range == (32, 64)


def test_fragments_of_different_shape_are_not_equal():
    assert Fragment((4,), lambda i: (i, 0)) != Fragment((4, 1), lambda i, j: (i, 0))
    assert Fragment((4,), lambda i: (i, 0)) != Fragment((5,), lambda i: (i, 0))
    assert Fragment((4,), lambda i: (i, 0)) == Fragment((4,), lambda i: (2 * (i // 2) + i % 2, 0))


C = Fragment((16, 16), lambda i, j: (4 * (i % 8) + j % 8 // 2, j // 8 * 4 + i // 8 * 2 + j % 2))
MESSAGES = [
    (
        lambda: Fragment((4,), lambda i: i),
        "A fragment's function must return a thread and a slot.",
    ),
    (
        lambda: Fragment((4,), lambda i, rep: (i, rep), replicate=2),
        "The slot of a fragment must not depend on the replica.",
    ),
    (
        lambda: Fragment.from_function((4,), lambda i: (i, i)),
        "A fragment's thread function must return one thread.",
    ),
    (
        lambda: Fragment((4,), lambda i: (i - 1, 0)),
        "Output 0 of the layout over '(4, 1)' is negative: it reaches -1.",
    ),
    (
        lambda: Fragment.from_text("Fragment((4,), lambda i: (i, 0), replicate='a')"),
        "The shape of a layout must be positive integers, not '(4, 'a')'.",
    ),
    (
        lambda: Fragment.from_text("Fragment((4,), lambda i: (i, 0), thread_range=4)"),
        "A thread range is a first thread and a number of threads, not '4'.",
    ),
    (
        lambda: Fragment.from_text("Fragment((4,), [(0, 0)], replicate=0)"),
        "The shape of a layout must be positive integers, not '(4, 0)'.",
    ),
    (lambda: C.repeat((2,)), "Cannot repeat a fragment of '(16, 16)' by '(2,)'."),
    (lambda: C.repeat((2, 0)), "Cannot repeat a fragment of '(16, 16)' by '(2, 0)'."),
    (
        lambda: C.thread_of(16, 0),
        "Index '(16, 0)' of replica 0 is outside the shape '(16, 16)' with 1 replicas.",
    ),
    (
        lambda: C.thread_of(1, 0, rep=1),
        "Index '(1, 0)' of replica 1 is outside the shape '(16, 16)' with 1 replicas.",
    ),
    (
        lambda: C.bind_thread_range(0, 31),
        "A fragment of 32 threads does not fit 31 threads from 0.",
    ),
    (
        lambda: C.bind_thread_range(0, 32).replicated(2),
        "A fragment of 64 threads does not fit 32 threads from 0.",
    ),
    (
        lambda: C.project(Layout((16, 8), lambda i, j: i)),
        "An access over '(16, 8)' does not fit the fragment's shape '(16, 16)'.",
    ),
    (
        lambda: C.project(Layout((16, 16), lambda i, j: i + 1)),
        "The layout from '(16, 16)' to '(17, 16)' is not a bijection, so it has no inverse.\n"
        "hint: Padding leaves holes, and replication or dropped digits repeat elements.",
    ),
    (
        lambda: contains(C, FIGURE_7),
        "Cannot compare fragments over different loops '(16, 16)' and '(4, 4)'.",
    ),
    (
        lambda: contains(
            Fragment((2048, 2048), lambda i, j: (i ^ j, j)),
            Fragment((2048, 2048), lambda i, j, rep: (i ^ rep, j), replicate=2048),
        ),
        "Cannot compare the owners of 4194304 elements with 1 and 2048 replicas: the digits do not "
        "decide.",
    ),
    (
        lambda: Fragment.from_text("Fragment((4,), lambda i: (i, 0), threads=3)"),
        "'Fragment((4,), lambda i: (i, 0), threads=3)' is not the text of a Fragment: it has an "
        "unknown keyword.",
    ),
]


@pytest.mark.parametrize(("action", "message"), MESSAGES, ids=range(len(MESSAGES)))
def test_messages(action, message):
    with pytest.raises(LayoutError) as error:
        action()
    assert str(error.value) == message
