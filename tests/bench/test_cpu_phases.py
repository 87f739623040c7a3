"""Which loops of a block wait for memory by themselves."""

from __future__ import annotations

from typing import Any

import pytest

import tileworkbench as tw
from tileworkbench import kernels
from tileworkbench.bench.cpu_phases import Phase, phases
from tileworkbench.bench.cpu_work import grids


def found(program: Any) -> list[Phase]:
    lowered = tw.compile(program, target="cpu").record.snapshots[-1].program
    return [phase for grid in grids(lowered) for phase in phases(grid.loop, dict(grid.env))]


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


def test_products_and_single_loops_go_on_in_the_next_block() -> None:
    assert found(kernels.matmul(256, 256, 256)) == []
    assert found(kernels.add(256, 4096, block_M=8, block_N=1024)) == []


def test_what_waits_is_told_with_its_level_and_adds_to_the_work() -> None:
    kernel = tw.compile(kernels.online_softmax(512, 8192, block_M=16, block_N=2048), target="cpu")
    predicted = kernel.stats.predicted
    assert predicted.waiting_us > 0
    assert "waiting" in str(predicted)
    assert kernel.causes.total_us == pytest.approx(predicted.total_us)
