"""What single expressions cost, and what blocks add up to. Nothing is timed."""

from __future__ import annotations

import pytest

import tileworkbench as tw
from tests.bench.as_written import lowered_as_written
from tileworkbench.bench.cpu_block import BlockWork
from tileworkbench.bench.cpu_terms import (
    bytes_of,
    function,
    is_innermost,
    is_power_of_two,
    is_product,
    moving_tiles,
    operations,
    value_of,
)
from tileworkbench.bench.cpu_work import grids, spread
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.build import add, binary, call, const
from tileworkbench.compiler.ir.expr import Buffer, Load, Var
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.types import FLOAT32, INT32
from tileworkbench.kernels import gemv, online_softmax, softmax

X, Y, COUNT = Var("x", FLOAT32), Var("y", FLOAT32), Var("i", INT32)


def test_a_sum_of_a_product_is_one_operation() -> None:
    product = binary("mul", X, Y)
    assert is_product(product) and operations(product) == 1
    assert operations(add(product, X)) == 1
    assert operations(add(X, Y)) == 1


def test_addresses_are_free() -> None:
    assert operations(add(binary("mul", COUNT, COUNT), COUNT)) == 0
    buffer = Buffer("a", FLOAT32, (const(8, INT32),), "global")
    assert operations(Load(buffer, (add(COUNT, COUNT),))) == 1
    assert bytes_of(buffer) == 32 and bytes_of(X) == 0


@pytest.mark.parametrize(
    ("divisor", "expected"), [(8.0, True), (0.25, True), (-2.0, True), (7.0, False), (0.0, False)]
)
def test_powers_of_two(divisor: float, expected: bool) -> None:
    assert is_power_of_two(const(divisor, FLOAT32)) is expected


def test_values_that_are_not_known() -> None:
    assert value_of(add(COUNT, COUNT), {"i": 3}) == 6
    assert value_of(add(COUNT, COUNT), {}) is None


def test_functions_that_take_one_instruction_have_no_name() -> None:
    assert function(call("exp", X)) == "exp"
    assert function(call("floor", X)) == "" and function(X) == ""


def test_loops_of_vectors_are_innermost() -> None:
    lowered = lowered_as_written(softmax(8, 1024, block_M=4))
    loops = [each for each in statements(lowered.body) if isinstance(each, st.For)]
    serial = [each for each in loops if each.kind is st.LoopKind.SERIAL]
    assert {is_innermost(each) for each in serial} == {True, False}
    assert not is_innermost(next(each for each in loops if each.kind is st.LoopKind.BLOCKS))


def test_blocks_of_a_grid_are_spread_over_all_of_it() -> None:
    assert spread(5) == (0, 1, 2, 3, 4)
    chosen = spread(1000)
    assert len(set(chosen)) == len(chosen) and min(chosen) < 100 and max(chosen) >= 900
    assert all(0 <= each < 1000 for each in chosen)


def test_the_mean_of_equal_blocks_is_one_of_them() -> None:
    one, four = BlockWork(), BlockWork()
    buffer = Buffer("a", FLOAT32, (const(8, INT32),), "global")
    for work, times in ((one, 1), (four, 4)):
        for _ in range(times):
            work.add(1, "arithmetic", 2.0, 0.5, 3.0)
            work.move(1, buffer, 32.0)
            work.write(1, buffer, 16.0)
    assert four.mean(4) == one
    assert one.moved == {(1, buffer): 32.0} and one.written == {(1, buffer): 16.0}


def test_times_of_a_block_add_up() -> None:
    (grid,) = grids(lowered_as_written(softmax(64, 1024, block_M=4)))
    spent = sum(each.time_ns for each in grid.block.spent.values())
    assert grid.block.total_ns == pytest.approx(spent) and grid.blocks == 16
    # A block reads its rows once and writes as much.
    assert sum(grid.block.moved.values()) == 2 * 4 * 1024 * 4
    assert sum(grid.block.written.values()) == 4 * 1024 * 4


def test_a_tile_that_is_one_vector_stays_in_a_register_unless_its_place_changes() -> None:
    """Sums of one row have one place; the loop over two rows moves theirs, as the maximum of a row
    has a place for each row."""

    def moving(program) -> set[str]:
        return {each.name for each in moving_tiles(tw.compile(program).stats.lowered.body)}

    assert "partial" not in moving(gemv(64, 2048, block_N=1, block_K=16))
    assert "partial" in moving(gemv(64, 2048, block_N=2, block_K=16))
    assert "row_max" in moving(online_softmax(64, 512, block_M=16, block_N=64))
