"""How threads share a loop: every iteration and replica once, by the thread that owns it."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as hs

from tests.tiers import examples
from tileworkbench.compiler.diagnostics import LayoutError
from tileworkbench.compiler.layout.atoms import WarpGrid, block_a, block_c, mma_a, mma_c
from tileworkbench.compiler.layout.fragment import Fragment
from tileworkbench.compiler.layout.layout import Layout
from tileworkbench.compiler.layout.maps import evaluate_sum
from tileworkbench.compiler.lower.threads.partition import partition
from tileworkbench.compiler.lower.threads.plan import plan_loop


def check(loop: Fragment, threads: int) -> None:
    """Compare the iterations of all threads with the fragment's table."""
    found = partition(loop, threads)
    seen = np.zeros((*loop.shape, loop.replicate), int)
    for thread in range(threads):
        number = thread - found.base
        digits = [
            (number // g.divisor % g.capacity if g.capacity else number // g.divisor, g.extent)
            for g in found.guards
        ]
        if number < 0 or any(digit >= extent for digit, extent in digits):
            continue
        for steps in product(*map(range, found.box[:-1])):
            index = [int(evaluate_sum(found.box, total, [*steps, number])) for total in found.sums]
            outside = [d for d, at in enumerate(index) if at >= seen.shape[d]]
            if outside:
                assert set(outside) <= set(found.bounded)
                continue
            assert loop.thread_of(*index[:-1], rep=index[-1]) == thread
            seen[tuple(index)] += 1
    assert (seen == 1).all()


@settings(max_examples=examples(60), deadline=None)
@given(
    hs.lists(hs.integers(1, 12), min_size=1, max_size=3),
    hs.sampled_from([1, 2, 4]),
    hs.sampled_from([32, 48, 64, 96]),
    hs.booleans(),
    hs.integers(0, 2),
)
def test_plans_cover_every_iteration_once(
    extents: list[int], vector: int, threads: int, replicate: bool, fast: int
) -> None:
    at = fast % len(extents)
    extents[at] *= vector
    check(plan_loop(tuple(extents), vector, threads, replicate, at), threads)


@pytest.mark.parametrize(
    ("loop", "threads"),
    [
        (block_c(WarpGrid(64, 32, 2, 2), mma_c()), 128),
        (block_a(WarpGrid(32, 32, 2, 2), 16, mma_a(16)), 128),
        (block_c(WarpGrid(32, 32, 2, 1), mma_c()) @ Layout((32,), lambda i: (i, 5)), 64),
        (Fragment((16,), lambda i: (31 - 2 * i, 0)), 32),
        (Fragment((4, 8), lambda i, j: (j ^ i, i)), 8),
        (Fragment((6,), lambda i: (8 + i, 0)), 32),
        (Fragment.fully_replicated((3, 5), 32), 32),
    ],
    ids=["accumulator", "operand", "column", "backwards", "xor", "later threads", "everywhere"],
)
def test_any_fragment_can_be_a_loop(loop: Fragment, threads: int) -> None:
    check(loop, threads)


def test_a_table_cannot_be_shared() -> None:
    loop = Fragment((5,), lambda i: ((i * i) % 7, i))
    with pytest.raises(LayoutError) as caught:
        partition(loop, 32)
    assert caught.value.message == (
        "the threads of this loop cannot be told by a formula: its layout is a table"
    )


def test_a_loop_over_too_many_threads() -> None:
    with pytest.raises(LayoutError) as caught:
        partition(Fragment((64,), lambda i: (i, 0)), 32)
    assert caught.value.message == "a loop over more threads than the 32 of the block"


def test_a_loop_whose_iterations_share_a_slot() -> None:
    with pytest.raises(LayoutError) as caught:
        partition(Fragment((4, 4), lambda i, j: (i, 0)), 32)
    assert caught.value.message == (
        "the threads cannot share a loop with the layout '(i, j) -> thread i, slot 0'"
    )
