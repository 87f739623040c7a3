"""What the time model takes from a program, on a machine of round numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench.bench import cpu_work
from tileworkbench.bench.ceilings import LEVELS, TYPES
from tileworkbench.bench.memory_rates import LOAD, assumed_memory
from tileworkbench.bench.operation_rates import USUAL, OperationRates, assumed_rates
from tileworkbench.bench.points import PEAK, Ceiling, Machine
from tileworkbench.bench.tensor_time import part_of_both
from tileworkbench.bench.time_model import Prediction, norm, predict_time, share_alone
from tileworkbench.compiler.device.host import processor, threads
from tileworkbench.compiler.device.host.processor import CacheSizes
from tileworkbench.compiler.diagnostics import ArgumentError
from tileworkbench.kernels import add, flash_attention, matmul, online_softmax, softmax

# 100 GFLOP/s of every type on one thread, and 100 GB/s from every level.
PEAKS = [Ceiling(name, 100.0 * n, "GFLOP/s", n) for name in TYPES for n in (1, 2)]
RATES = [Ceiling(name, 100.0 * n, "GB/s", n) for name in LEVELS for n in (1, 2)]
MACHINE = Machine("Round, 2 cores", (*RATES, *PEAKS), "by hand")


def predict(factory, *args, threads: int = 1, **options) -> Prediction:
    kernel = tw.compile(factory(*args, **options))
    return predict_time(kernel.stats.lowered, MACHINE, threads)


def test_a_product_takes_its_operations_at_the_peak() -> None:
    found = predict(matmul, 512, 512, 512)
    arithmetic = 2 * 512**3 / 100e3
    assert arithmetic < found.compute_us < 1.25 * arithmetic
    assert 0 < found.packing_us < 0.2 * arithmetic
    assert found.total_us > found.compute_us + found.packing_us


def test_cores_take_as_long_as_they_usually_do() -> None:
    """Not memory, whose usual rates are measured."""
    lowered = tw.compile(softmax(256, 1024)).stats.lowered
    rates = assumed_rates(0.3)
    slow = OperationRates({**rates.vector_ns, USUAL: 1.5})
    best, usual = (predict_time(lowered, MACHINE, 1, "", each) for each in (rates, slow))
    assert usual.compute_us == pytest.approx(1.5 * best.compute_us)
    assert usual.memory_us == pytest.approx(best.memory_us)


def test_busy_cores_may_be_slower_than_one() -> None:
    """As where two threads share a core: its peak is that of both."""
    shared = [
        replace(each, value=each.value / 2) if each.unit == PEAK and each.threads == 2 else each
        for each in MACHINE.ceilings
    ]
    lowered = tw.compile(matmul(512, 512, 512)).stats.lowered
    alone, together = (
        predict_time(lowered, replace(MACHINE, ceilings=ceilings), 2).compute_us
        for ceilings in (MACHINE.ceilings, tuple(shared))
    )
    assert together == pytest.approx(2 * alone)


def test_twice_the_depth_takes_twice_the_time() -> None:
    short, long = (predict(matmul, 256, 256, k) for k in (512, 1024))
    assert 1.9 < long.compute_us / short.compute_us < 2.1


def test_a_call_takes_longer_the_more_tensors_it_checks_and_makes() -> None:
    few, many = predict(softmax, 8, 64), predict(add, 8, 64)
    assert many.overhead_us > few.overhead_us + 0.5
    assert few.overhead_us > 5


def test_an_elementwise_kernel_moves_each_byte_once(monkeypatch: pytest.MonkeyPatch) -> None:
    # Three tensors of 4 MiB fill the last cache in part; those of servers may hold them.
    sizes = CacheSizes(l1=32 << 10, l2=1 << 20, l3=16 << 20)
    monkeypatch.setattr(processor, "cache_sizes", lambda: sizes)
    found = predict(add, 1024, 1024)
    # What is stored to is fetched first; caches give lines back meanwhile.
    one = 4 * 1024**2 / 100e3
    both = found.memory_us["L3"] + found.memory_us["DRAM"]
    assert both == pytest.approx((1 + 1 + 2) * one, rel=0.01)
    assert found.packing_us == 0 and found.threads == 1


def test_more_threads_share_the_blocks() -> None:
    one, two = (predict(matmul, 512, 512, 512, threads=n) for n in (1, 2))
    assert two.threads == 2
    assert two.compute_us == pytest.approx(one.compute_us / 2)
    assert two.overhead_us > one.overhead_us - 1


def test_a_short_launch_stays_on_its_callers_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a call decides it."""
    monkeypatch.setattr(threads, "get_num_threads", lambda: 2)
    tiles = {"block_M": 32, "block_N": 32, "block_K": 32}
    short, long = (tw.compile(matmul(n, n, n, **tiles)) for n in (64, 512))
    assert predict_time(short.stats.lowered, MACHINE, 2).threads == 2  # it has blocks for both
    assert short.stats.predicted.threads == 1
    assert long.stats.predicted.threads == 2


def test_a_causal_kernel_does_about_half() -> None:
    shape = (1, 2, 1024, 1024, 64)
    whole, half = (predict(flash_attention, *shape, causal=flag) for flag in (False, True))
    assert 0.45 < half.compute_us / whole.compute_us < 0.65


def test_large_outputs_cost_their_pages() -> None:
    small, large = (predict(add, n, 4096) for n in (1024, 4096))
    assert large.overhead_us - small.overhead_us > 4096 * 4096 * 4 * 0.1 / 1e3


def test_symbolic_shapes_have_no_prediction() -> None:
    kernel = tw.compile(add(T.dynamic("M"), 64))
    with pytest.raises(ArgumentError) as caught:
        predict_time(kernel.stats.lowered, MACHINE, 1)
    assert caught.value.message == "the time of 'add' is not known before a call"


def test_blocks_that_stand_for_a_grid_are_spread() -> None:
    assert cpu_work.spread(5) == (0, 1, 2, 3, 4)
    found = cpu_work.spread(1024)
    assert len(found) == 12 and sum(found) / 12 == pytest.approx(512, rel=0.2)
    assert len({number % 8 for number in found}) > 4


def test_text() -> None:
    found = Prediction(100.0, 5.0, {"L3": 0.0, "DRAM": 20.0}, 6.0, 2)
    assert found.total_us == pytest.approx((105.0**2 + 20.0**2) ** (1 / 2) + 6)
    assert str(found) == "112.9 µs (compute 100, packing 5, DRAM 20, overhead 6)"
    alone = replace(found, alone_us=55.0)
    assert alone.total_us == pytest.approx((50.0**2 + 20.0**2) ** (1 / 2) + 55 + 6)


def test_lines_share_what_the_code_takes() -> None:
    """The parts of all lines add up to the prediction, however slow a function is said to be."""
    lowered = tw.compile(softmax(64, 1024)).stats.lowered
    usual = assumed_rates(1.0)
    slow = OperationRates({**usual.vector_ns, "exp": 100.0})
    found = [predict_time(lowered, MACHINE, 2, "", rates) for rates in (usual, slow)]
    exps = []
    for each in found:
        assert each.causes.total_us == pytest.approx(each.total_us)
        exps.append(sum(p.time_us for p in each.causes.parts if "exp" in p.finding))
    assert found[0].compute_us == pytest.approx(found[1].compute_us)
    assert 0 < exps[0] < exps[1]


def test_what_no_tensor_goes_on_beside_comes_on_top() -> None:
    """A row is copied into a tile, and then looked at again and again; sums of two are one loop."""
    tiles = predict(softmax, 512, 4096, block_M=1)
    work = tiles.compute_us + tiles.tiles_us
    assert 0.3 * work < tiles.alone_us < work
    assert predict(add, 512, 4096).alone_us < 0.05 * predict(add, 512, 4096).compute_us


def test_work_that_overlaps_with_nothing() -> None:
    for alone in (0.0, 0.3, 1.0):
        total = norm(8.0 * (1 - alone), 2.0, 5.0) + 8.0 * alone
        assert share_alone(8.0, (2.0, 5.0), total) == pytest.approx(alone, abs=1e-6)


def test_the_second_cache_is_busy_beside_what_lies_behind_it() -> None:
    """In the prediction and in its causes: a row in pieces, which its tile is read again from."""
    found = predict(online_softmax, 64, 8192, block_M=4, block_N=128)
    assert found.memory_us["L2"] > 0 and found.memory_us["L3"] > 0
    assert found.causes.total_us == pytest.approx(found.total_us, rel=1e-6)
    simple = Prediction(8.0, 0.0, {"L2": 3.0, "L3": 4.0, "DRAM": 1.0}, 0.0, 1)
    assert simple.total_us == pytest.approx(norm(8.0, 3.0, 5.0))


def test_what_one_loop_loads_and_stores() -> None:
    """Of 60 bytes of tensors those of loops that do both; of tensors that nobody moves all."""
    pieces = [
        (1.0, {"%p0": 10.0, "%p1": 20.0}),
        (1.0, {}),
        (1.0, {"%p0": 12.0}),
        (1.0, {"%p1": 18.0}),
    ]
    assert part_of_both(pieces, {"%p1"}) == 0.5
    assert part_of_both(pieces, set()) == part_of_both(pieces, {"%p0", "%p1"}) == 0.0
    assert part_of_both([], {"%p1"}) == 1.0


def test_rows_that_are_loaded_and_stored_wait_at_the_same_time() -> None:
    """Narrow columns that are copied take less than reading them and writing them; not so much less
    where one loop reads whole columns, and the next one writes them.
    """

    def columns(reads: bool, writes: bool, turns: bool = False):
        @T.prim_func
        def kernel(X: T.Tensor((2048, 1024), "float32")):
            Y = T.empty((2048, 1024), "float32")
            with T.Kernel(1024 // 16) as bx:
                tile = T.alloc_shared((2048 if turns else 16, 16), "float32")
                most = T.alloc_fragment((16,), "float32")
                T.clear(tile)
                if turns:
                    T.copy(X[0, bx * 16], tile)
                    T.reduce_max(tile, most, dim=0)
                    for i, j in T.Parallel(2048, 16):
                        Y[i, bx * 16 + j] = tile[i, j] - most[j]
                else:
                    for k in T.serial(2048 // 16):
                        if reads:
                            T.copy(X[k * 16, bx * 16], tile)
                        if writes:
                            T.copy(tile, Y[k * 16, bx * 16])
            return Y

        return kernel

    def memory_us(*how: bool) -> float:
        lowered = tw.compile(columns(*how), target="cpu").stats.lowered
        return sum(predict_time(lowered, MACHINE, 1).memory_us.values())

    stored, both = memory_us(False, True), memory_us(True, True)
    lines = 2048 * 1024 // 16
    loaded = lines * assumed_memory().run_ns("L3", LOAD, 1, crowded=1.0) / 1e3
    assert max(stored, loaded) < both < 0.95 * (stored + loaded)
    assert memory_us(True, True, True) > 1.05 * both
