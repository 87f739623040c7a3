"""Each term of the CPU's time model by itself: tiles, ports, chains. Nothing is timed."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tests.bench.as_written import lowered_as_written
from tests.bench.test_time_model import MACHINE
from tileworkbench.bench.cpu_ports import Ports
from tileworkbench.bench.cpu_reuse import Reused, kept
from tileworkbench.bench.cpu_traffic import holding_shares
from tileworkbench.bench.cpu_work import grids
from tileworkbench.bench.operation_probes import operation_probe
from tileworkbench.bench.operation_rates import (
    CHAIN,
    DIVISION,
    FORWARD,
    FUNCTIONS,
    LOAD,
    SIMPLE,
    STORE,
    OperationRates,
    assumed_rates,
)
from tileworkbench.bench.probes import ProbeRunner, host_isa
from tileworkbench.bench.time_model import Prediction, predict_time
from tileworkbench.compiler.device.host import processor
from tileworkbench.compiler.device.host.processor import CacheSizes
from tileworkbench.kernels import layernorm, matmul, rmsnorm, softmax

LEVELS = ("L1", "L2", "L3", "DRAM")


@pytest.fixture(autouse=True)
def caches(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = CacheSizes(l1=32 << 10, l2=1 << 20, l3=32 << 20)
    monkeypatch.setattr(processor, "cache_sizes", lambda: sizes)


def predict(made, threads: int = 1, rates: OperationRates | None = None) -> Prediction:
    return predict_time(lowered_as_written(made), MACHINE, threads, "", rates)


def misses(made, cache: float) -> float:
    (grid,) = grids(lowered_as_written(made))
    return sum(Reused(grid.loop, {}, cache).tile_misses().values())


def test_a_cache_keeps_less_the_more_lies_between() -> None:
    parts = [kept(between, 1000.0) for between in (0, 500, 700, 1000, 1500, 2000, 9000)]
    assert parts[:2] == [1.0, 1.0] and parts[-2:] == [0.0, 0.0]
    assert parts == sorted(parts, reverse=True)


def test_tiles_of_a_cache_that_holds_all_are_fetched_never() -> None:
    assert misses(softmax(64, 1024, block_M=4), 1 << 30) == pytest.approx(0, abs=1e-6)


def test_tiles_of_no_cache_are_fetched_by_every_pass() -> None:
    """By hand: with the maximum the tile is written, with the sum exp reads and writes it, the
    quotient reads it; what is written counts 1.3 times."""
    tile = 4 * 1024 * 4
    (grid,) = grids(lowered_as_written(softmax(64, 1024, block_M=4)))
    missed = Reused(grid.loop, {}, 1.0).whole.missed
    fetched = sum(bytes_ for (_, buffer), bytes_ in missed.items() if buffer.name == "X_local")
    assert fetched == pytest.approx((1.3 + 1 + 1.3 + 1) * tile, rel=0.01)


def bytes_of_tensors(made, cache: float) -> dict[str, float]:
    """What a block touches of tensors, and misses in a cache of so many bytes."""
    (grid,) = grids(lowered_as_written(made))
    whole, found = Reused(grid.loop, {}, cache).whole, dict[str, float]()
    for (_, buffer), bytes_ in whole.missed.items():
        if buffer.scope == "global":
            found[buffer.name] = found.get(buffer.name, 0.0) + bytes_
    return found


@pytest.mark.parametrize("columns", [16, 24, 40, 48])
def test_the_rest_of_a_row_is_no_part_of_it(columns: int) -> None:
    """Vectors, and a rest of other ones behind them, in rows of 4 KiB or the other way round."""

    @T.prim_func
    def scaled(X: T.Tensor((64, 1024), "float32")):
        Y = T.empty((64, 1024), "float32")
        with T.Kernel(1):
            for i, j in T.Parallel(64, columns):
                Y[63 - i, j] = 2.0 * X[i, j]
        return Y

    rows = 4.0 * 64 * columns
    (grid,) = grids(lowered_as_written(scaled))
    touched = Reused(grid.loop, {}, 1 << 20).whole.touched
    assert {buffer.name: bytes_ for buffer, bytes_ in touched.items()} == {"X": rows, "Y": rows}
    assert bytes_of_tensors(scaled, 1 << 20) == {"X": rows, "Y": pytest.approx(1.3 * rows)}


@pytest.mark.parametrize(("passes", "times"), [(6, 3), (1, 2)])
def test_rows_that_share_places_are_lost_before_their_turn(passes: int, times: int) -> None:
    """Sixteen rows, by each iteration of a loop or by two loops: they share one place of a first
    cache, which then keeps some at most, or have one each.
    """

    def missed(columns: int) -> float:
        @T.prim_func
        def sums(X: T.Tensor((16, columns), "float32")):
            Y = T.empty((16, 16), "float32")
            with T.Kernel(1):
                total = T.alloc_shared((16, 16), "float32")
                most = T.alloc_fragment((16,), "float32")
                T.clear(total)
                for t in T.serial(passes):
                    for i, j in T.Parallel(16, 16):
                        total[i, j] = T.exp(total[i, j]) + X[i, j]
                T.reduce_max(total, most, dim=0)
                for i, j in T.Parallel(16, 16):
                    Y[i, j] = most[j] if passes > 1 else most[j] - X[i, j]
            return Y

        return bytes_of_tensors(sums, 32 << 10)["X"]

    rows = 4.0 * 16 * 16
    assert missed(1040) == pytest.approx(rows)
    assert missed(1024) > 0.999 * times * rows


def test_larger_tiles_wait_longer() -> None:
    for make in (softmax, rmsnorm, layernorm):
        times = [predict(make(64, 1024, block_M=rows)).tiles_us for rows in (1, 4, 16)]
        assert times[0] < times[1] <= times[2]


def test_a_smaller_cache_is_never_better() -> None:
    made = layernorm(64, 2048, block_M=8)
    found = [misses(made, float(1 << size)) for size in range(10, 24)]
    assert found == sorted(found, reverse=True) and found[0] > found[-1]


def test_micro_kernels_fetch_ahead() -> None:
    found = predict(matmul(256, 256, 256, "float32", block_M=128, block_N=128, block_K=64))
    assert found.tiles_us < 0.05 * found.compute_us


def test_what_products_read_of_tensors_is_moved() -> None:
    """A where it lies, B to be packed; of blocks in a row of tiles, the next one has A still."""
    program = matmul(64, 256, 128, "float32", block_M=64, block_N=128)
    (grid,) = grids(lowered_as_written(program))
    assert grid.blocks == 2
    caches = ((64.0, {"A": 1, "B": 1}), (float(1 << 24), {"A": 1 / 2, "B": 1}))
    for cache, parts in caches:
        missed = Reused(grid.loop, {}, cache).tensor_misses()
        told = {buffer.name: part for (_, buffer), part in missed.items()}
        assert {name: told[name] for name in parts} == parts
    moved = {buffer.name: bytes_ for (_, buffer), bytes_ in grid.block.moved.items()}
    assert moved["B"] == 128 * 128 * 4 and moved["A"] <= 64 * 128 * 4


def test_what_is_loaded_and_stored_goes_both_ways() -> None:
    """A tensor that a statement changes in place is moved twice; a tile counts as one that is
    stored for the loads beside, as it leaves the cache both ways.
    """

    @T.prim_func
    def kernel(X: T.Tensor((64, 512), "float32"), Y: T.Tensor((64, 512), "float32")):
        with T.Kernel(64) as row:
            tile = T.alloc_shared((1024,), "float32")
            for j in T.Parallel(512):
                X[row, j] = X[row, j] + 1.0
            for j in T.serial(512):
                tile[j] = tile[j + 512] + Y[row, j]

    (grid,) = grids(lowered_as_written(kernel))
    moved = {buffer.name: bytes_ for (_, buffer), bytes_ in grid.block.moved.items()}
    assert moved == {"X": 2 * 512 * 4, "Y": 512 * 4}
    assert not grid.block.written  # X need not be fetched to be stored
    (fetched,) = Reused(grid.loop, {}, 1024.0).tile_misses().values()
    assert fetched == pytest.approx(2 * 1.3 * 512 * 4)


def test_single_elements_that_change_in_place_are_fetched_once() -> None:
    """Those of a tensor that is only stored count as stored."""

    @T.prim_func
    def kernel(X: T.Tensor((512, 64), "float32"), Y: T.Tensor((512, 64), "float32")):
        with T.Kernel(64) as column:
            for i in T.Parallel(512):
                X[i, column] = X[i, column] + 1.0
            for i in T.Parallel(512):
                Y[i, column] = 1.0

    (grid,) = grids(lowered_as_written(kernel))
    written = {buffer.name: bytes_ for (_, buffer), bytes_ in grid.block.written.items()}
    assert written == {"Y": 512 * 4}


def test_a_packed_tile_that_is_used_once_is_waited_for() -> None:
    """64 KiB of packed rows, written and read for one row of the product."""
    sizes = {"block_N": 128, "block_K": 128}
    one, many = (predict(matmul(64, 128, 128, "float32", block_M=m, **sizes)) for m in (1, 64))
    assert one.tiles_us > 0.3 * (one.compute_us + one.packing_us)
    assert many.tiles_us < 0.05 * many.compute_us


def test_tiles_from_behind_a_level_do_not_wait_for_it_as_well() -> None:
    """16 MiB, which no second cache holds: only the rate of the next level counts."""
    rows, columns = 1024, 4096

    @T.prim_func
    def turned(X: T.Tensor((rows, columns), "float32"), Y: T.Tensor((rows, columns), "float32")):
        with T.Kernel(1):
            tile = T.alloc_shared((rows, columns), "float32")
            T.copy(X, tile)
            for i, j in T.Parallel(rows, columns):
                Y[i, j] = tile[rows - 1 - i, j] + tile[i, j]

    lowered = tw.compile(turned, target="cpu").stats.lowered

    def tiles_us(level: str) -> float:
        slower = [
            replace(each, value=each.value / 4) if each.name == level else each
            for each in MACHINE.ceilings
        ]
        return predict_time(lowered, replace(MACHINE, ceilings=tuple(slower)), 1).tiles_us

    assert tiles_us("L2") == pytest.approx(tiles_us("none"), rel=0.02)
    assert tiles_us("L3") > 1.5 * tiles_us("none")


def test_levels_share_what_is_about_as_large_as_a_cache() -> None:
    assert holding_shares(20 << 10, 1, LEVELS) == {"L1": 1.0}
    assert holding_shares(64 << 20, 1, LEVELS) == {"DRAM": 1.0}
    half = holding_shares(16 << 20, 1, LEVELS)
    assert half["L3"] == pytest.approx(math.log(2) / math.log(3)) and sum(
        half.values()
    ) == pytest.approx(1)
    assert holding_shares(16 << 20, 1, LEVELS, kept_part=0.5) == {"L3": 1.0}
    # Two threads have two private caches, and one shared one.
    assert holding_shares(40 << 10, 2, LEVELS) == {"L1": 1.0}
    assert "DRAM" in holding_shares(30 << 20, 2, LEVELS)


def test_a_quotient_is_computed_beside_other_arithmetic() -> None:
    rates = assumed_rates(1.0)
    both, alone = Ports(rates), Ports(rates)
    for ports in (both, alone):
        ports.add(1, "exp", 1.0, "exp")
    both.add(1, DIVISION, 1.0, "division")
    assert both.time_ns == alone.time_ns == rates.of("exp")


def test_the_port_with_most_to_do_decides() -> None:
    rates = assumed_rates(1.0)
    ports = Ports(rates)
    for operation, registers in ((SIMPLE, 2), (LOAD, 3), (STORE, 1)):
        ports.add(1, operation, registers)
    assert ports.time_ns == pytest.approx(3 * rates.of(LOAD))
    ports.add(2, "exp", 1, "exp")
    assert ports.time_ns == pytest.approx(2 * rates.of(SIMPLE) + rates.of("exp"))
    assert sum(use.time_ns for use in ports.shares()) == pytest.approx(ports.time_ns)


def test_an_unknown_function_costs_one_that_is_known() -> None:
    rates = assumed_rates(1.0)
    assert rates.of("asinh") == rates.of("erf")


def test_a_reduction_waits_for_registers_only() -> None:
    """A row's sum is kept in vectors of registers; its chain has their latency, not memory's."""
    made = softmax(1, 1 << 16)
    usual = assumed_rates(1.0)
    slow = OperationRates({**usual.vector_ns, FORWARD: 1000.0})
    assert predict(made, 1, slow).compute_us == predict(made, 1, usual).compute_us
    slow = OperationRates({**usual.vector_ns, CHAIN: 1000.0})
    assert predict(made, 1, slow).compute_us > 2 * predict(made, 1, usual).compute_us


def test_division_by_a_power_of_two_is_a_product() -> None:
    def scaled(divisor: float):
        @T.prim_func
        def kernel(A: T.Tensor((64, 1024), "float32")):
            B = T.empty((64, 1024), "float32")
            with T.Kernel(64) as row:
                for i in T.Parallel(1024):
                    B[row, i] = A[row, i] / divisor
            return B

        return kernel

    assert predict(scaled(8.0)).compute_us < predict(scaled(7.0)).compute_us


def test_twice_the_blocks_take_twice_the_time() -> None:
    few, many = (predict(softmax(rows, 1024, block_M=4)) for rows in (64, 128))
    assert many.compute_us == pytest.approx(2 * few.compute_us)
    assert many.tiles_us == pytest.approx(2 * few.tiles_us)


@pytest.mark.parametrize(
    "name",
    [
        *("simple", "integer", "load", "store", "division", "access", "accumulated"),
        *("multiplied", "exp", "sin"),
    ],
)
def test_probes_of_operations_run(name: str) -> None:
    probe = operation_probe(name, host_isa())
    runner = ProbeRunner(probe, 1)
    runner.area(0).view("float32")[:] = 1.0
    before = runner.area(0).copy()
    runner.run(3)
    assert probe.work > 0
    assert (runner.area(0) != before).any() or name == "store"


def test_a_probe_of_a_function_stores_its_values() -> None:
    runner = ProbeRunner(operation_probe("exp", host_isa()), 1)
    area = runner.area(0).view("float32")
    area[:] = 1.0
    runner.run(8)
    count = 8 * host_isa().lanes(4)
    assert (area[:count] == 1.0).all()
    assert area[count : 2 * count] == pytest.approx(2.718281828, rel=1e-5)
    assert (area[2 * count :] == 1.0).all()


def test_the_forwarded_sum_counts_in_memory() -> None:
    runner = ProbeRunner(operation_probe(FORWARD, host_isa()), 1)
    area = runner.area(0).view("float32")
    area[:] = 1.0
    runner.run(10)
    assert area[0] == 11.0


def test_every_function_has_an_assumed_rate() -> None:
    assert set(FUNCTIONS) <= set(assumed_rates(1.0).vector_ns)
