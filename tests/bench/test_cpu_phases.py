"""Which loops of a block wait for memory by themselves."""

from __future__ import annotations

from typing import Any

import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tests.bench.as_written import lowered_as_written
from tileworkbench import kernels
from tileworkbench.bench.cpu_phases import Phase, phases
from tileworkbench.bench.cpu_work import grids


def found(program: Any) -> list[Phase]:
    works = grids(lowered_as_written(program))
    return [phase for grid in works for phase in phases(grid.loop, dict(grid.env))]


def test_a_loop_that_moves_much_waits_alone() -> None:
    def alone(columns: int) -> float:
        return sum(phase.alone for phase in found(kernels.softmax(64, columns)))

    assert alone(128) == 0  # half a kilobyte
    assert 0 < alone(1024) < 1 and alone(1024) == pytest.approx(2 / 3)
    assert alone(4096) == 1


def test_rows_that_go_on_are_fetched_ahead_and_others_are_not() -> None:
    def first(block_m: int, block_n: int) -> float:
        program = kernels.online_softmax(64, 8192, block_M=block_m, block_N=block_n)
        loaded = [phase for phase in found(program) if phase.alone < 1]
        return min((phase.alone for phase in loaded), default=1.0)

    assert first(4, 64) == 1  # 1 KB: no phase but the loop of the second pass
    assert first(4, 128) == pytest.approx(1 / 3)
    assert first(16, 512) == 1


def test_rows_elsewhere_begin_with_a_page_and_long_ones_with_a_latency() -> None:
    """The first 24 lines of a row are under way together."""
    goes_on, long, short = (
        Phase(frozenset(), 1.0, run, jumps)
        for run, jumps in ((4096, False), (4096, True), (64, True))
    )
    assert goes_on.starts_ns("DRAM", 8192) == 0
    assert long.starts_ns("DRAM", 8192) == pytest.approx(2 * (1.8 + 110 * (1 - 24 / 64)))
    assert short.starts_ns("L3", 640) == pytest.approx(10 * 1.8)
    assert long.starts_ns("L2", 8192) == 0


def test_rows_in_other_pages_are_short_runs_and_rows_that_go_on_are_pages() -> None:
    @T.prim_func
    def columns(X: T.Tensor((64, 1024), "float32")):
        y = T.empty((1024,), "float32")
        with T.Kernel(64) as bx:
            tile = T.alloc_fragment((16, 16), "float32")
            total = T.alloc_fragment((16,), "float32")
            T.clear(total)
            for k in T.serial(4):
                T.copy(X[k * 16, bx * 16], tile)
                T.reduce_sum(tile, total, dim=0, clear=False)
            T.copy(total, y[bx * 16])
        return y

    assert {phase.run for phase in found(columns)} == {64}
    going_on = found(kernels.online_softmax(64, 8192, block_M=4, block_N=128))
    assert {phase.run for phase in going_on} == {4096}


def test_every_other_element_is_no_row_elsewhere() -> None:
    @T.prim_func
    def pairs(X: T.Tensor((64, 2048), "float32")):
        Y = T.empty((64, 1024), "float32")
        with T.Kernel(8) as by:
            for i, j in T.Parallel(8, 1024):
                row = by * 8 + i
                Y[row, j] = X[row, 2 * j] + X[row, 2 * j + 1]
        return Y

    assert found(pairs) == []


def test_a_loop_beside_which_others_do_little_goes_on_in_the_next_block() -> None:
    assert found(kernels.gemv(64, 2048, block_N=4, block_K=64)) == []
    assert found(kernels.softmax(64, 2048)) != []


def test_products_and_single_loops_go_on_in_the_next_block() -> None:
    assert found(kernels.matmul(256, 256, 256)) == []
    assert found(kernels.add(256, 4096, block_M=8, block_N=1024)) == []


def test_what_waits_is_told_with_its_level_and_adds_to_the_work() -> None:
    kernel = tw.compile(kernels.online_softmax(512, 8192, block_M=16, block_N=2048), target="cpu")
    predicted = kernel.stats.predicted
    assert predicted.waiting_us > 0
    assert "waiting" in str(predicted)
    assert kernel.causes.total_us == pytest.approx(predicted.total_us)
