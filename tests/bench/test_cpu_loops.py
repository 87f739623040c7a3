"""What the iterations of a loop lose to each other in the CPU's time model. Nothing is timed."""

from __future__ import annotations

from typing import Any

import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tests.bench.as_written import lowered_as_written
from tests.bench.test_time_model import MACHINE
from tileworkbench.bench.cpu_ports import Piece, Ports, overlap, waits
from tileworkbench.bench.cpu_work import grids
from tileworkbench.bench.operation_rates import (
    CHAIN,
    FORWARD,
    LOAD,
    STORE,
    OperationRates,
    assumed_rates,
)
from tileworkbench.bench.probes import host_isa
from tileworkbench.bench.time_model import Prediction, predict_time
from tileworkbench.compiler.device.host import processor
from tileworkbench.compiler.device.host.processor import CacheSizes

RATES = assumed_rates(1.0)


@pytest.fixture(autouse=True)
def caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caches of which the innermost has 8 ways."""
    sizes = CacheSizes(l1=32 << 10, l2=1 << 20, l3=32 << 20)
    monkeypatch.setattr(processor, "cache_sizes", lambda: sizes)


def running_sums(M: int, N: int, block_M: int, by_hand: bool = False, summed: bool = True) -> Any:
    """Sums along rows, a row after the other; `by_hand` the rows of a block go side by side, and
    unless `summed` they are only copied.
    """

    @T.prim_func
    def kernel(X: T.Tensor((M, N), "float32")):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            tile = T.alloc_fragment((block_M, N), "float32")
            T.copy(X[bx * block_M, 0], tile)
            if not summed:
                pass
            elif by_hand:
                for k in T.serial(N - 1):
                    for i in T.Parallel(block_M):
                        tile[i, k + 1] = tile[i, k] + tile[i, k + 1]
            else:
                T.cumsum(tile, dim=1)
            T.copy(tile, Y[bx * block_M, 0])
        return Y

    return kernel


def predict(made: Any, rates: OperationRates = RATES) -> Prediction:
    return predict_time(lowered_as_written(made), MACHINE, 1, "", rates)


def sums_us(rows: int, by_hand: bool) -> float:
    """What the sums of 64 rows of 1024 take beside the copies, which depend on vectors."""
    both, copies = (
        predict(running_sums(64, 1024, rows, by_hand, summed)).compute_us
        for summed in (True, False)
    )
    return both - copies


def test_a_scan_waits_for_the_element_before() -> None:
    """In a register; by hand it goes through memory once in each iteration of a loop that LLVM
    unrolls as much as it does for this processor."""
    in_register, in_memory = (64 * 1023 * RATES.of(chain) / 1e3 for chain in (CHAIN, FORWARD))
    assert sums_us(1, by_hand=False) == pytest.approx(in_register, rel=0.1)
    assert 1.05 * in_register < sums_us(1, by_hand=True) < in_memory / 1.8


def test_rows_of_a_scan_follow_each_other() -> None:
    one, four = (predict(running_sums(64, 1024, rows)).compute_us for rows in (1, 4))
    assert four == pytest.approx(one, rel=0.05)


def test_rows_that_go_side_by_side_wait_together() -> None:
    one, four = (sums_us(rows, by_hand=True) for rows in (1, 4))
    assert one / 4 < four < 0.6 * one


def test_short_loops_go_on_side_by_side_and_long_ones_do_not() -> None:
    """Two vectors are stored while four are loaded; a loop of 1000 ends before the next begins."""
    stores, loads = Ports(RATES), Ports(RATES)
    stores.add(0, STORE, 2)
    loads.add(0, LOAD, 4)
    apart = stores.time_ns + loads.time_ns
    short = [Piece(stores, 1.0), Piece(loads, 1.0)]
    overlap(short, 1.0)
    assert max(stores.time_ns, loads.time_ns) < apart
    assert time_of(short) == pytest.approx(max(stores.time_ns, loads.time_ns))
    long = [Piece(stores, 1000.0), Piece(loads, 1000.0)]
    overlap(long, 1.0)
    assert 0.97 * 1000 * apart < time_of(long) < 1000 * apart


def test_a_chain_goes_on_beside_other_loops() -> None:
    loads = Ports(RATES)
    loads.add(0, LOAD, 4)
    pieces = [Piece(loads, 1.0), Piece(waits(RATES, 0, 2 * loads.time_ns), 1.0)]
    overlap(pieces, 1.0)
    assert time_of(pieces) == pytest.approx(2 * loads.time_ns)


def time_of(pieces: list[Piece]) -> float:
    return sum(each.scale * each.times * each.ports.time_ns for each in pieces)


def neighbours(columns: int) -> Any:
    """Sums of an element and the one so many columns beside it, rows of 1026."""

    @T.prim_func
    def kernel(X: T.Tensor((1024, 1026), "float32")):
        Y = T.empty((1024, 512), "float32")
        with T.Kernel(1024) as row:
            for j in T.Parallel(512):
                Y[row, j] = X[row, j] + X[row, j + columns]
        return Y

    return kernel


def test_neighbours_are_fetched_once() -> None:
    """Elements half a row further on are not what an iteration before has loaded."""

    def bytes_of(columns: int) -> float:
        (grid,) = grids(tw.compile(neighbours(columns)).stats.lowered)
        moved = grid.block.moved.items()
        return sum(bytes_ for (_, buffer), bytes_ in moved if buffer.name == "X")

    for columns in (1, 16, 64, 512):
        assert bytes_of(columns) == (512 + columns) * 4
    assert bytes_of(640) == 2 * 512 * 4


def taps(places: list[tuple[int, int]], stride: int, block: int) -> Any:
    """Y (128, 512), sums of the elements of X that lie at `places` from every `stride`-th."""

    @T.prim_func
    def kernel(X: T.Tensor((128 * stride + 2, 512 * stride + 2), "float32")):
        Y = T.empty((128, 512), "float32")
        with T.Kernel(128 // block) as by:
            for i, j in T.Parallel(block, 512):
                row, column = (by * block + i) * stride, j * stride
                Y[by * block + i, j] = sum(X[row + a, column + b] for a, b in places)
        return Y

    return kernel


@pytest.mark.parametrize("block", [1, 8])
@pytest.mark.parametrize(
    ("places", "stride", "elements"),
    [
        ([(1, 1), (1, 0), (1, 2), (0, 1), (2, 1)], 1, 512),  # a cross
        ([(0, 1), (1, 1), (2, 1)], 1, 512),
        ([(0, 0), (0, 1), (1, 0), (1, 1)], 2, 2 * 1024),
        ([(2, 0), (0, 0)], 2, 512),
    ],
)
def test_a_row_of_neighbours_is_fetched_once(
    places: list[tuple[int, int]],
    stride: int,
    elements: int,
    block: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a row before, or a block, has loaded is in the first cache. Rows without a place in
    common are all fetched.
    """
    sizes = CacheSizes(l1=1 << 20, l2=1 << 22, l3=32 << 20)
    monkeypatch.setattr(processor, "cache_sizes", lambda: sizes)
    (grid,) = grids(lowered_as_written(taps(places, stride, block)))
    moved = grid.block.moved.items()
    all_ = sum(bytes_ for (_, buffer), bytes_ in moved if buffer.name == "X")
    assert all_ == pytest.approx(block * elements * 4, rel=0.03)


def test_a_block_at_an_edge_stands_for_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The row above the first one is that row itself."""
    sizes = CacheSizes(l1=1 << 20, l2=1 << 22, l3=32 << 20)
    monkeypatch.setattr(processor, "cache_sizes", lambda: sizes)

    @T.prim_func
    def kernel(X: T.Tensor((128, 512), "float32"), Y: T.Tensor((128, 512), "float32")):
        with T.Kernel(128) as row:
            for j in T.Parallel(512):
                Y[row, j] = X[T.max(row - 1, 0), j] + X[row, j]

    (grid,) = grids(lowered_as_written(kernel))
    moved = grid.block.moved.items()
    all_ = sum(bytes_ for (_, buffer), bytes_ in moved if buffer.name == "X")
    assert all_ == pytest.approx(512 * 4, rel=0.03)


def test_a_loop_does_not_come_to_what_lies_behind_its_end() -> None:
    """Two halves of a short row: no iteration loads what another one has."""
    columns = 2 * host_isa().lanes(4)

    @T.prim_func
    def kernel(X: T.Tensor((64, 2 * columns), "float32")):
        Y = T.empty((64, columns), "float32")
        with T.Kernel(64) as row:
            for j in T.Parallel(columns):
                Y[row, j] = X[row, j] + X[row, j + columns]
        return Y

    (grid,) = grids(lowered_as_written(kernel))
    moved = sum(
        bytes_ * grid.blocks
        for (_, buffer), bytes_ in grid.block.moved.items()
        if buffer.name == "X"
    )
    assert moved == 64 * 2 * columns * 4


def test_what_a_loop_inside_another_loads_again_is_in_the_cache() -> None:
    """A row that 16 rows of a tile use is fetched once a block, one that is used 64 KiB later is
    not.
    """

    def bytes_of(columns: int) -> float:
        @T.prim_func
        def kernel(X: T.Tensor((32, columns), "float32")):
            Y = T.empty((16, columns), "float32")
            with T.Kernel(1):
                tile = T.alloc_fragment((16, columns), "float32")
                T.clear(tile)
                for k in T.serial(32):
                    for i, j in T.Parallel(16, columns):
                        tile[i, j] = tile[i, j] + X[k, j]
                T.copy(tile, Y[0, 0])
            return Y

        # Usually the inner loop would go outside.
        made = tw.compile(kernel, disable=("interchange_loops",))
        (grid,) = grids(made.stats.lowered)
        moved = grid.block.moved.items()
        return sum(bytes_ for (_, buffer), bytes_ in moved if buffer.name == "X")

    assert bytes_of(64) == 32 * 64 * 4
    assert bytes_of(1 << 15) == 16 * 32 * 4 * (1 << 15)


def doubled(rows: int, columns: int) -> Any:
    """A block for each row of a matrix, through a tile."""

    @T.prim_func
    def kernel(X: T.Tensor((rows, columns), "float32")):
        Y = T.empty((rows, columns), "float32")
        with T.Kernel(rows) as row:
            tile = T.alloc_fragment((columns,), "float32")
            T.copy(X[row, 0], tile)
            for j in T.Parallel(columns):
                Y[row, j] = tile[j] * 2.0
        return Y

    return kernel


def test_the_end_of_a_short_loop_is_foreseen() -> None:
    lanes = host_isa().lanes(4)

    def ends_ns(vectors: int) -> float:
        (grid,) = grids(tw.compile(doubled(4, vectors * lanes)).stats.lowered)
        return sum(each.time_ns for (_, kind), each in grid.block.spent.items() if kind == "loop")

    assert ends_ns(4) == 0 < ends_ns(64)


def test_a_block_costs_some_cycles() -> None:
    def overhead_us(rows: int) -> float:
        lowered = tw.compile(doubled(rows, host_isa().lanes(4))).stats.lowered
        return predict_time(lowered, MACHINE, 1).overhead_us

    assert 0.5 < (overhead_us(65537) - overhead_us(1)) * 1e3 / 65536 < 4  # nanoseconds
