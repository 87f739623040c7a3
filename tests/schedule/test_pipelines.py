"""The order between iterations of a pipelined loop, held against executing it step by step."""

from __future__ import annotations

from itertools import permutations, product

import pytest

from tileworkbench.compiler.analysis.dataflow import Effects
from tileworkbench.compiler.ir.build import int_const
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.ir.stmt import Seq
from tileworkbench.compiler.ir.types import FLOAT32
from tileworkbench.compiler.schedule.pipelines import Item, Schedule

TILE = Buffer("S", FLOAT32, (int_const(4),), "shared")
NOTHING = frozenset()
ITERATIONS = 6


def items(orders: tuple[int, ...], stages: tuple[int, ...]) -> list[Item]:
    """Statement 0 writes the tile, the others read it."""
    effects = [Effects(NOTHING, frozenset({TILE})), *[Effects(frozenset({TILE}), NOTHING)] * 2]
    rows = zip(orders, stages, effects, strict=True)
    return [Item(Seq(()), order, stage, effect) for order, stage, effect in rows]


def executed(found: list[Item]) -> list[tuple[int, int]]:
    """(statement, iteration) in the order in which the loop executes them."""
    times = [
        ((k + item.stage, item.order), (at, k))
        for at, item in enumerate(found)
        for k in range(ITERATIONS)
    ]
    return [instance for _, instance in sorted(times)]


SCHEDULES = [
    (order, stage) for order in permutations(range(3)) for stage in product(range(3), repeat=3)
]


@pytest.mark.parametrize("order", sorted(set(order for order, _ in SCHEDULES)))
def test_one_statement_comes_before_another(order):
    for stage in product(range(3), repeat=3):
        found = items(order, stage)
        trace = executed(found)
        for a, b, ahead in product(range(3), range(3), range(3)):
            if (a, 0) != (b, ahead):
                before = trace.index((a, 0)) < trace.index((b, ahead))
                assert found[a].comes_before(found[b], ahead) == before


@pytest.mark.parametrize("order", sorted(set(order for order, _ in SCHEDULES)))
def test_a_tile_has_the_fewest_versions_in_which_nothing_is_lost(order):
    for stage in product(range(3), repeat=3):
        found = items(order, stage)
        if not all(found[0].comes_before(reader) for reader in found[1:]):
            continue  # a schedule against the dependence is refused
        schedule = Schedule.__new__(Schedule)
        schedule.items = sorted(found, key=lambda item: item.order)
        _, number = schedule.lives()[TILE]
        assert keeps(executed(found), number)
        assert number == 1 or not keeps(executed(found), number - 1)


def keeps(trace: list[tuple[int, int]], versions: int) -> bool:
    """Whether each read meets what its own iteration wrote, in a ring of so many versions."""
    held: dict[int, int] = {}
    for statement, k in trace:
        if statement == 0:
            held[k % versions] = k
        elif held.get(k % versions) != k:
            return False
    return True
