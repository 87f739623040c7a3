"""Runs of lines in pages apart: what is measured of them, and which rows of a kernel are such."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tests.bench.as_written import lowered_as_written
from tests.bench.test_time_model import MACHINE
from tileworkbench import kernels
from tileworkbench.bench import measured_once, tensor_time
from tileworkbench.bench import memory_rates as memory_rates_module
from tileworkbench.bench.cpu_runs import Near, Rows, _rows, near_of, rows_ns, rows_of
from tileworkbench.bench.cpu_work import grids
from tileworkbench.bench.measured_once import MeasuredOnce
from tileworkbench.bench.memory_rates import (
    COPY,
    FETCH,
    KINDS,
    LOAD,
    RUNS,
    SHARED,
    STORE,
    MemoryRates,
    Runs,
    assumed_memory,
    kept_part,
    memory_rates,
    remembered,
    run_probe,
)
from tileworkbench.bench.points import BANDWIDTH
from tileworkbench.bench.probes import ProbeRunner, host_isa
from tileworkbench.bench.time_model import predict_time
from tileworkbench.compiler.device.host import processor
from tileworkbench.compiler.device.host.processor import CacheSizes
from tileworkbench.compiler.device.host.threads import set_num_threads

SIZE = 64 * 4096.0  # bytes of the matrix of most tests
CACHES = CacheSizes(l1=32 << 10, l2=1 << 20, l3=32 << 20)
RATES = assumed_memory()


def test_runs_between_those_measured_lie_between_them() -> None:
    times = [RATES.run_ns("L3", LOAD, lines) for lines in range(1, 130)]
    assert times == sorted(times)
    assert [times[lines - 1] for lines in RUNS] == pytest.approx(RATES.runs_ns["L3 load"])
    assert times[127] == pytest.approx(2 * times[63])
    assert RATES.run_ns("L3", STORE, 1) > RATES.run_ns("L3", LOAD, 1)
    assert RATES.run_ns("L1", LOAD, 8) == pytest.approx(0, abs=0.01)


def test_a_cache_of_others_keeps_less() -> None:
    """Half of its size is served whole, half, or not at all."""
    assert kept_part(1.0, {0.5: 1.0}, 5.0) == 0.5
    assert kept_part(1.0, {0.5: 3.0}, 5.0) == 0.25
    assert kept_part(1.0, {0.5: 5.0}, 5.0) == pytest.approx(0.5**4)
    assert kept_part(5.0, {0.5: 5.0}, 5.0) == 1 / 3  # no difference, so nothing is known
    # The one in the middle counts.
    parts_ns = {0.5: 1.0, 0.625: 5.0, 0.75: 3.0}
    assert kept_part(1.0, parts_ns, 5.0) == pytest.approx(0.5)
    assert kept_part(1.0, {**parts_ns, 0.5: 3.0}, 5.0) == pytest.approx(0.25)


@pytest.mark.parametrize(("lines", "pitch"), [(64, 4096), (1, 8512), (2, 8512), (16, 8512)])
def test_a_probe_reads_its_runs(lines: int, pitch: int) -> None:
    """Pages in a row, or four rows of 133 lines; the area has ones, and zeros that are not read,
    where a run does not fit any more.
    """
    size = (4 if lines < 64 else 8) * pitch
    memory = np.zeros(size + (1 << 16), np.uint8)
    runner = ProbeRunner(run_probe(Runs(LOAD, lines, size, pitch), host_isa()), 1, memory=memory)
    start = -memory.ctypes.data % 4096
    area = memory[start : start + size].view(np.float32)
    read = np.zeros(size // 4, bool).reshape(size // pitch, -1)
    read[:, : pitch // 64 // lines * lines * 16] = True
    area[:] = read.reshape(-1)
    runner.run(3)
    lanes = host_isa().lanes(4)
    assert area[:lanes].sum() == 3 * read.sum()


@pytest.mark.parametrize(("lines", "rows_at_once"), [(1, 4), (2, 2), (4, 1), (16, 1)])
def test_no_line_of_a_probe_waits_for_the_sum_of_the_last(lines: int, rows_at_once: int) -> None:
    """As many lines as there are sums are loaded at a time, and each is added to its own."""
    text = run_probe(Runs(LOAD, lines, 1 << 16), host_isa()).ir_text
    vectors = 64 // (4 * host_isa().lanes(4)) * lines * rows_at_once
    assert len(re.findall(r"= load <", text)) == vectors
    sums = re.findall(r"(%\w+) = fadd <\d+ x float> (%\w+), %\w+", text)[:4]
    assert {made for made, _ in sums}.isdisjoint(total for _, total in sums)


def test_a_probe_stores_to_its_runs() -> None:
    pitch = 133 * 64
    size = 4 * pitch
    memory = np.zeros(size + (1 << 16), np.uint8)
    ProbeRunner(run_probe(Runs(STORE, 4, size, pitch), host_isa()), 1, memory=memory).run(1)
    start = -memory.ctypes.data % 4096
    area = memory[start : start + size].view(np.float32).reshape(4, -1)
    assert (area[:, : 132 * 16] == 1).all() and not area[:, 132 * 16 :].any()


def test_a_probe_copies_rows_behind_them() -> None:
    size = 4 * 4096
    memory = np.zeros(2 * size + (1 << 16), np.uint8)
    start = -memory.ctypes.data % 4096
    memory[start : start + size] = np.arange(size, dtype=np.uint32).astype(np.uint8)
    ProbeRunner(run_probe(Runs(COPY, 64, size, 4096), host_isa()), 1, memory=memory).run(1)
    copied = memory[start + size + 5 * 64 :][:size]
    np.testing.assert_array_equal(copied, memory[start : start + size])


def test_what_is_stored_whole_may_not_be_fetched_first() -> None:
    """A copy tells, which takes two lines' time then, and three otherwise."""
    rates = replace(RATES, row_ns={"L3": 1.0, "DRAM": 4.0}, copy_ns={"L3": 2.5, "DRAM": 7.0})
    assert RATES.stored("L3") == 2.0
    assert (rates.stored("L3"), rates.stored("DRAM")) == (1.5, 1.0)
    assert replace(rates, copy_ns={"L3": 9.0}).stored("L3") == 2.0


def test_a_probe_of_one_column_fetches_rows_before_it_loads_them() -> None:
    """Of eight rows it loads a line each; eight kilobytes of lines lie between both, or four."""
    runs = Runs(FETCH, 1, 8 * 4160, 4160, columns=1)
    assert (runs.rows, runs.in_a_row) == (8, 1)
    memory = np.zeros(runs.size + (1 << 16), np.uint8)
    probe = run_probe(runs, host_isa())
    runner = ProbeRunner(probe, 1, memory=memory)
    start = -memory.ctypes.data % 4096
    area = memory[start : start + runs.size].view(np.float32).reshape(8, -1)
    area[:, :32] = 1  # two lines of each row
    runner.run(2)
    assert area[0, : host_isa().lanes(4)].sum() == 2 * 8 * 16
    (ahead,) = set(re.findall(r"getelementptr i8, ptr %\w+, i64 (\d{6})", probe.ir_text))
    assert int(ahead) == (4096 if host_isa().near_rows else 8192) // 64 * 4160
    assert "prefetch" not in run_probe(replace(runs, kind=LOAD), host_isa()).ir_text


def test_how_many_pages_are_remembered() -> None:
    """Halfway between what accesses to few take and to many."""
    assert remembered({512: 1.0, 1024: 1.0, 2048: 1.0, 4096: 9.0, 8192: 9.0}) == pytest.approx(
        2048 * 2**0.5
    )
    assert remembered({512: 1.0, 1024: 5.0, 2048: 9.0}) == pytest.approx(1024)
    assert remembered({512: 1.0, 1024: 1.0}) == 512.0  # all alike: walks cost nothing anyway


def test_accesses_to_pages_that_are_not_remembered_walk() -> None:
    rates = MemoryRates({}, 0.4, pages=1000.0, walk_ns={LOAD: 8.0, STORE: 2.0})
    times = [rates.walked_ns(LOAD, 100.0, 50.0, pages) for pages in (0, 600, 900, 1400, 9000)]
    both = math.hypot(100, 400)
    assert times[:2] == [100.0] * 2 and 100 < times[2] < both
    assert times[3:] == [pytest.approx(both)] * 2
    # What waits longer anyway waits hardly longer.
    assert rates.walked_ns(STORE, 500.0, 50.0, 9000) == pytest.approx(math.hypot(500, 100))
    assert rates.walked_ns(FETCH, 100.0, 50.0, 9000) == 100.0


def test_the_rates_of_this_machine_are_positive_and_longer_runs_take_longer() -> None:
    rates = memory_rates()
    for times in rates.runs_ns.values():
        assert all(time_ns > 0 for time_ns in times)
    assert rates.runs_ns["DRAM load"][-1] > rates.runs_ns["DRAM load"][0]
    assert 0 < rates.kept_part <= 0.75
    assert rates.walk_ns.keys() == set(KINDS) and min(rates.walk_ns.values()) > 0
    assert 512 <= rates.pages <= 11584
    for level, line_ns in rates.row_ns.items():  # of which a page has as many as the longest run
        assert 1 / 8 < line_ns * RUNS[-1] / rates.runs_ns[f"{level} load"][-1] < 2


def columns(block_M: int, block_N: int, columns_in_all: int = 1024) -> Any:
    """Sums of the columns of a matrix of 64 rows, of 4 KiB if not said otherwise."""

    @T.prim_func
    def kernel(X: T.Tensor((64, columns_in_all), "float32")):
        y = T.empty((columns_in_all,), "float32")
        with T.Kernel(columns_in_all // block_N) as bx:
            tile = T.alloc_fragment((block_M, block_N), "float32")
            total = T.alloc_fragment((block_N,), "float32")
            T.clear(total)
            for k in T.serial(64 // block_M):
                T.copy(X[k * block_M, bx * block_N], tile)
                T.reduce_sum(tile, total, dim=0, clear=False)
            T.copy(total, y[bx * block_N])
        return y

    return kernel


def rows(made: Any) -> dict[str, Rows]:
    (grid,) = grids(lowered_as_written(made))
    return {buffer.name: each for buffer, each in rows_of(grid, CACHES.l2).items()}


def test_rows_that_a_block_walks() -> None:
    """A column of tiles; the next block goes on in its rows."""
    assert rows(columns(16, 16))["X"] == Rows(64, 64.0, 4096, 64, size=SIZE)
    strip = 8 * 4.0 * host_isa().lanes(4)
    # Strip by strip of a tile: the next one goes on in the same rows.
    assert rows(columns(16, 1024))["X"] == Rows(16, strip, 4096, 16, size=SIZE)
    softmax = rows(kernels.softmax(64, 1024, block_M=4))
    assert softmax["X"].count == 1
    pieces = rows(kernels.online_softmax(64, 8192, block_M=4, block_N=128))["X"]
    assert replace(pieces, size=0.0) == Rows(4, 512.0, 32768, 4)
    (grid,) = grids(lowered_as_written(columns(16, 16)))
    (x,) = (buffer for buffer in rows_of(grid, CACHES.l2) if buffer.name == "X")
    assert rows_of(grid, CACHES.l2, {x})[x].fetched


def test_rows_go_on_with_the_next_block_or_one_soon_after() -> None:
    """Blocks go down the rows first; the next column comes after eight of them."""

    @T.prim_func
    def kernel(X: T.Tensor((512, 2048), "float32")):
        Y = T.empty((512, 2048), "float32")
        with T.Kernel(8, 128) as (by, bx):
            tile = T.alloc_fragment((64, 16), "float32")
            T.copy(X[by * 64, bx * 16], tile)
            T.copy(tile, Y[by * 64, bx * 16])
        return Y

    (grid,) = grids(lowered_as_written(kernel))

    def x_of(cache: float) -> Rows:
        return next(each for b, each in rows_of(grid, cache).items() if b.name == "X")

    assert (x_of(1 << 20).count, x_of(1 << 20).back) == (64, 512)
    # Until then a small cache has given up what eight blocks touched.
    assert not x_of(8 * 2 * 4096 - 1).back


def test_elements_that_lie_near_are_a_run_however_far_names_are() -> None:
    """Every second element of rows, under names, of a vector's width and a rest: nine taps come
    back to the same rows.
    """

    @T.prim_func
    def pool(X: T.Tensor((64, 2048), "float32")):
        Y = T.empty((8, 40), "float32")
        with T.Kernel(1):
            for down, along in T.grid(3, 3):
                for i, j in T.Parallel(8, 40):
                    row, column = 2 * i + down, 2 * j + along
                    Y[i, j] = T.max(Y[i, j], X[row, column])
        return Y

    found = rows(pool)["X"]
    assert (found.count, found.pitch, found.back) == (8, 2 * 2048 * 4, 8)
    assert 4 * (2 * 31 + 1) <= found.run <= 4 * (2 * 39 + 3)


def test_caches_give_up_what_many_rows_have_touched() -> None:
    several, many = (Rows(count, 64.0, 8256, count) for count in (64, 1 << 15))
    near = [near_of(each, [each], CACHES.l1, CACHES.l2) for each in (several, many)]
    assert [(each.first, each.second) for each in near] == [(1.0, 1.0), (0.0, 0.0)]
    # Rows of different tensors count together, those with as many in between as lie there.
    half, soon = Rows(1 << 13, 64.0, 8256, 1 << 13), Rows(1 << 10, 64.0, 8256, 1 << 13)
    together = [
        near_of(half, [half, *[other] * count], CACHES.l1, CACHES.l2).second
        for other, count in ((half, 0), (soon, 1), (half, 1), (half, 3))
    ]
    assert together == sorted(together, reverse=True) and together[0] > together[-1] == 0.0
    assert near_of(soon, [soon], CACHES.l1, CACHES.l2).second == together[0]


def test_pages_that_are_accessed_until_the_loops_are_back() -> None:
    wide, narrow = Rows(64, 64.0, 8256, 512, size=1 << 22), Rows(64, 64.0, 1032, size=1 << 22)
    assert near_of(wide, [wide, narrow], CACHES.l1, CACHES.l2).pages == 512 + 64 * 1032 / 4096
    # Rows to which no loop comes back are in pages that all of the call is between.
    assert near_of(narrow, [wide, narrow], CACHES.l1, CACHES.l2).pages == 2 * 1024
    rates = replace(RATES, pages=1000.0, walk_ns={LOAD: 100.0})
    for pages, walks in ((500.0, 0), (5000.0, 1)):
        near = Near(1.0, pages=pages)
        time_ns = rows_ns(wide, 64 << 10, 500.0, rates, "L3", False, near)
        runs_ns = 1024 * RATES.run_ns("L3", LOAD, 1)
        assert time_ns == pytest.approx(math.hypot(runs_ns, walks * 1024 * 100.0))
        # Four of them stand in one page.
        time_ns = rows_ns(replace(narrow, back=64), 64 << 10, 500.0, rates, "L3", False, near)
        assert not walks or time_ns > 1024 * 100.0 * 1032 / 4096


def test_runs_of_crowded_rows_lie_between_both_kinds() -> None:
    rows = Rows(64, 64.0, 8192, 64)
    runs = [1024 * RATES.run_ns(f"L3{places}", LOAD, 1) for places in ("", SHARED)]
    for crowded in (0.0, 0.25, 1.0):
        near = Near(1.0, crowded=0.5, far_crowded=crowded)
        time_ns = rows_ns(rows, 64 << 10, 0.0, RATES, "L3", False, near)
        assert time_ns == pytest.approx(runs[0] + crowded * (runs[1] - runs[0]))
    # Never faster, whatever was measured.
    odd = replace(RATES, runs_ns=RATES.runs_ns | {f"L3{SHARED} load": (0.1,) * len(RUNS)})
    near = Near(1.0, crowded=1.0, far_crowded=1.0)
    assert rows_ns(rows, 64 << 10, 0.0, odd, "L3", False, near) == pytest.approx(runs[0])
    # Lines of the second cache need fewer rows for that.
    assert near_of(rows, [rows], CACHES.l1, CACHES.l2).far_crowded == pytest.approx(1 / 2)
    assert near_of(rows, [rows], CACHES.l1, CACHES.l2).crowded == 1.0
    second = [1024 * RATES.run_ns(f"L2{places}", LOAD, 1) for places in ("", SHARED)]
    near = Near(1.0, crowded=0.5)
    time_ns = rows_ns(rows, 64 << 10, 0.0, RATES, "L2", False, near)
    assert time_ns == pytest.approx(sum(second) / 2)


def test_rows_that_are_powers_of_two_apart_share_few_places() -> None:
    odd, even = (Rows(256, 64.0, pitch, 256) for pitch in (8256, 8192))
    assert odd.pressure(1 << 20, 256) == 256 * 64  # a line in each of 256 places
    assert even.pressure(1 << 20, 256) == 256 * 64 * 2048 / 16  # in each of 16 places 16 lines
    half = even.pressure(1 << 20, 64)  # in each of 16 places four of the eight that fit
    assert half == pytest.approx(64 * 64 + 3 / 7 * ((1 << 20) / 2 - 64 * 64))
    assert near_of(odd, [odd], CACHES.l1, 1 << 20).second == 1.0
    assert near_of(even, [even], CACHES.l1, 1 << 20).second == 0.0


@pytest.mark.parametrize(
    ("pitch", "count", "crowded"),
    [
        *[(8192, count, crowded) for count, crowded in ((8, 0), (16, 1 / 3), (64, 1), (512, 1))],
        *[(4096, 32, 2 / 3), (2048, 32, 1 / 3), (2048, 128, 1), (3072, 64, 1 / 12)],
        *[(3072, 256, 1 / 4), (2560, 1024, 0), (4160, 1024, 0), (4104, 1024, 0), (0, 64, 1)],
    ],
)
def test_rows_a_page_apart_crowd_a_place_of_the_first_cache(
    pitch: int, count: int, crowded: float
) -> None:
    """A place has room for eight lines; eight times as many come in as slowly as any."""
    assert Rows(count, 64.0, pitch, count).crowded(CACHES.l1) == pytest.approx(crowded)


def test_rows_to_which_no_loop_comes_back_begin_anew() -> None:
    near = Near(1.0)
    short, long = (Rows(8, run, 16384) for run in (64.0, 8192.0))
    found = [rows_ns(each, 64 << 10, 500.0, RATES, "DRAM", True, near) for each in (short, long)]
    assert found == [pytest.approx(1024 * RATES.run_ns("DRAM", STORE, 1)), 500.0]
    # No faster than in a row.
    assert rows_ns(short, 64 << 10, 1e6, RATES, "DRAM", True, near) >= 1e6
    # Half a line each: every row is a line of its own.
    half = rows_ns(replace(short, run=32.0), 64 << 10, 0.0, RATES, "L3", False, near)
    assert half == pytest.approx(2048 * RATES.run_ns("L3", LOAD, 1))
    # What the kernel fetches itself takes as long as lines in a row, and the rest of a line.
    fetched = replace(short, run=32.0, back=8, fetched=True)
    assert rows_ns(fetched, 64 << 10, 5e5, RATES, "DRAM", False, near) == 5e5


@pytest.mark.parametrize(("first", "second"), [(0.0, 1.0), (0.5, 0.25), (1.0, 0.0)])
def test_the_rest_of_a_line_is_in_a_cache_or_comes_again(first: float, second: float) -> None:
    eighths = Rows(64, 8.0, 4160, 64)
    near = Near(first, second)
    whole, eighth = (
        rows_ns(each, 64 << 10, 500.0, RATES, "L3", False, near)
        for each in (replace(eighths, run=64.0), eighths)
    )
    there, again = (7 * 1024 * RATES.run_ns(level, LOAD, 1) for level in ("L2", "L3"))
    more_ns = (1 - first) * (second * there + (1 - second) * again)
    assert eighth - whole == pytest.approx(more_ns)


def test_short_runs_that_begin_anywhere_touch_two_lines_at_times() -> None:
    """Runs of 32 bytes begin where four bytes may, in rows of 1028 bytes."""
    assert Rows(64, 32.0, 4160, 64).lines == 1.0
    assert Rows(64, 32.0, 4164, 64).lines == (32 + 60) / 64
    near = Near(0.0)
    even, odd = (
        rows_ns(Rows(64, 32.0, pitch, 64), 64 << 10, 0.0, RATES, "L3", False, near)
        for pitch in (4160, 4164)
    )
    assert odd - even == pytest.approx(2048 * (32 - 4) / 64 * RATES.run_ns("L2", LOAD, 1))


def test_data_in_a_row_take_what_they_usually_do() -> None:
    rates = MemoryRates({}, 0.4, {"L3": 0.8})
    assert rates.usual("L3", 100.0) == pytest.approx(1.25)
    assert rates.usual("L3", 50.0) == rates.usual("DRAM", 100.0) == 1.0


def test_narrow_columns_take_longer_than_strips() -> None:
    narrow, wide = (
        predict_time(tw.compile(columns(16, n), target="cpu").stats.lowered, MACHINE, 1)
        for n in (16, 1024)
    )
    assert sum(narrow.memory_us.values()) > 1.5 * sum(wide.memory_us.values())


def test_what_was_measured_is_kept_and_a_broken_file_is_measured_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept_bytes: dict[str, bytes] = {}

    class Cache:
        def get(self, key: str) -> bytes | None:
            return kept_bytes.get(key)

        def put(self, key: str, data: bytes) -> bool:
            kept_bytes[key] = data
            return True

    measured: list[int] = []
    monkeypatch.setattr(measured_once, "default_cache", Cache)
    names = frozenset(("a", "b"))
    numbers = {"a": 1.0, "b": 2.0}
    once = MeasuredOnce("test", 1, names, lambda: measured.append(1) or numbers, dict)
    assert once.get() == once.get() == numbers and len(measured) == 1
    once.forget()
    assert once.get() == numbers and len(measured) == 1
    set_num_threads(1023)  # what one thread takes is known
    try:
        assert once.get() == numbers and len(measured) == 1
    finally:
        set_num_threads(None)
    for broken in (b"{", b"[]", b'{"a": 1.0}', b'{"a": 1.0, "b": -2.0}', b'{"a": 1.0, "b": "x"}'):
        once.forget()
        kept_bytes.update(dict.fromkeys(kept_bytes, broken))
        assert once.get() == numbers
    assert len(measured) == 6


def test_vectors_down_columns_are_turned() -> None:
    """Sixteen rows of 64 columns, whichever of both is the vector."""
    moves = [(1, 64), (4096, 16)]
    assert _rows(moves, [], 4) == _rows(moves[::-1], [], 4)
    assert _rows(moves, [], 4) == Rows(16, 256, 16384)


def test_rows_that_are_shifted_are_those_of_all_shifts() -> None:
    """Windows of eight rows go down sixteen and come back to most of them; pieces of 23 rows, each
    twenty further on, are one long way down.
    """
    window = [(1, 16), (1024, 16), (1024, 8)]
    assert _rows(window, [], 4) == Rows(16 + 7, 64, 4096, back=16)
    pieces = [(1, 16), (1024, 23), (20 * 1024, 50)]
    assert _rows(pieces, [], 4) == Rows(23 + 20 * 49, 64, 4096)


def test_no_more_pages_than_a_tensor_has() -> None:
    """Of rows of which each is counted for every piece of its columns."""
    assert Rows(11520, 32.0, 5760, 11520, size=768 * 5760.0).pages(11520) == 1080.0


def test_single_elements_down_rows_are_as_many_rows() -> None:
    """The last element of each piece of eight; the rows of a narrow matrix."""
    assert _rows([(1240, 60), (8, 150)], [], 4, is_vector=False) == Rows(60, 4, 4960, 60)
    assert _rows([(8, 100)], [], 4) == Rows(100, 4, 32)


def test_quotients_and_remainders_come_back() -> None:
    """Pixels of three planes are interleaved: of each plane a run of them is read."""

    @T.prim_func
    def kernel(X: T.Tensor((48, 400), "float32")):
        Y = T.empty((16, 1200), "float32")
        with T.Kernel(16) as by:
            for j in T.Parallel(1200):
                Y[by, j] = X[3 * by + j % 3, j // 3]
        return Y

    # A row of 400, but for its last few.
    assert rows(kernel)["X"].count == 1
    assert 4 * 300 < rows(kernel)["X"].run <= 4 * 1200


def test_the_rest_of_a_row_is_part_of_it() -> None:
    """Forty columns are a piece of two or four vectors and one of eight columns: the next block
    begins behind both.
    """
    assert rows(columns(64, 40, columns_in_all=1000))["X"].back == 64


@pytest.mark.parametrize("piece", [9, 10, 200])
def test_rests_of_pieces_are_no_rows_of_their_own(piece: int) -> None:
    """Rows of 1800 in pieces of a vector and one or two elements, or of many vectors and a rest:
    the next piece begins behind the rest.
    """

    @T.prim_func
    def sums(X: T.Tensor((96, 1800), "float32")):
        y = T.empty((96,), "float32")
        with T.Kernel(1):
            part = T.alloc_shared((96, piece), "float32")
            total = T.alloc_fragment((96,), "float32")
            T.clear(total)
            for k in T.serial(1800 // piece):
                T.copy(X[0, k * piece], part)
                for n in T.serial(piece):
                    for i in T.Parallel(96):
                        total[i] = total[i] + part[i, n]
            T.copy(total, y[0])
        return y

    found = rows(sums)["X"]
    assert (found.count, found.pitch, found.back) == (96, 7200, 96)
    assert piece - 8 <= found.run / 4 <= piece


def test_what_lies_between_near_rows_is_fetched_with_them() -> None:
    """In vain if it is lost until it is its turn: two lines behind a run, or all that there are."""
    near, far = (Rows(64, 64.0, pitch, 64) for pitch in (960, 1088))
    assert rows_ns(far, 1 << 16, 500.0, RATES, "L3", False, Near(1.0)) > 500.0
    for second, times in ((1.0, 1.0), (0.5, 2.0), (0.0, 3.0)):
        time_ns = rows_ns(near, 1 << 16, 500.0, RATES, "L3", False, Near(1.0, second))
        assert time_ns == times * 500.0
    dense = replace(near, run=640.0)
    time_ns = rows_ns(dense, 1 << 16, 500.0, RATES, "L3", False, Near(1.0, 0.0))
    assert time_ns == 500.0 * (1 + 2 / 10)
    assert near.pressure(1 << 20, 64) == pytest.approx(64 * 960, rel=0.02)


def test_runs_of_the_second_cache_take_longer_than_data_in_a_row() -> None:
    rows = Rows(64, 64.0, 1088, 64)
    run_ns = 1024 * RATES.run_ns("L2", LOAD, 1)
    for straight_ns in (0.5 * run_ns, 2 * run_ns):
        time_ns = rows_ns(rows, 1 << 16, straight_ns, RATES, "L2", False, Near(1.0))
        assert time_ns == max(straight_ns, run_ns)


def test_runs_are_measured_with_rows_that_share_places_and_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In pages that a core remembers; walks with one line in each of more than that."""
    measured: list[Runs] = []

    def usual(walks: Any, memory: Any) -> list[float]:
        measured.extend(walks)
        return [float(each.size) for each in walks]

    monkeypatch.setattr(memory_rates_module, "_usual_ns", usual)
    monkeypatch.setattr(memory_rates_module, "touched_memory", lambda size: np.zeros(0, np.uint8))
    monkeypatch.setattr(processor, "cache_sizes", lambda: CACHES)
    memory_rates_module.measure_memory()
    runs = [each for each in measured if each.pitch > 4160]
    assert {each.pitch % 4096 for each in runs} == {0, 320}
    for size in (CACHES.l2 // 2, CACHES.l3 // 4, 4 * CACHES.l3):
        of_level = [each for each in runs if each.size == size]
        # Loads and stores of both kinds of rows, and rows apart that are fetched ahead.
        assert len(of_level) == 5 * len(RUNS) and all(each.rows <= 1024 for each in of_level)
    walks = [each for each in measured if each.columns == 1]
    assert {each.kind for each in walks if each.rows > 11000} == set(KINDS)


@pytest.mark.parametrize("l3", [0, 3 << 20, 8 << 20, 12 << 20, 256 << 20])
def test_what_is_measured_lies_in_the_memory_for_it(
    monkeypatch: pytest.MonkeyPatch, l3: int
) -> None:
    """Of a processor with a small last cache as well: else a prediction ends the process."""
    rooms, ends = list[int](), [0]

    def usual(walks: Any, memory: Any) -> list[float]:
        ends.extend(each.rows * each.pitch for each in walks)
        return [float(each.size) for each in walks]

    monkeypatch.setattr(memory_rates_module, "_usual_ns", usual)
    monkeypatch.setattr(memory_rates_module, "touched_memory", rooms.append)
    caches = CacheSizes(l1=32 << 10, l2=256 << 10, l3=l3)
    monkeypatch.setattr(processor, "cache_sizes", lambda: caches)
    memory_rates_module.measure_memory()
    assert max(ends) + 4096 <= rooms[0]  # which begins at a page


def memory_us(kernel: tw.Kernel, memory: MemoryRates = RATES) -> float:
    predicted = predict_time(kernel.stats.lowered, MACHINE, 1, memory=memory)
    return sum(predicted.memory_us.values())


def test_data_that_usually_take_twice_as_long_are_predicted_so() -> None:
    kernel = tw.compile(kernels.softmax(4096, 1024), target="cpu")
    gb_s = {level: MACHINE.find(level, BANDWIDTH, 1) for level in ("L3", "DRAM")}
    twice = {level: 2 * 64 / each.value for level, each in gb_s.items() if each}
    slow = MemoryRates(RATES.runs_ns, RATES.kept_part, twice)
    assert memory_us(kernel, slow) == pytest.approx(2 * memory_us(kernel), rel=0.05)


def test_rows_that_the_kernel_fetches_are_predicted_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    @T.prim_func
    def kernel(X: T.Tensor((8192, 2048), "float32")):
        y = T.empty((2048,), "float32")
        with T.Kernel(128) as bx:
            total = T.alloc_fragment((16,), "float32")
            T.clear(total)
            for k in T.serial(8192):
                for j in T.Parallel(16):
                    total[j] = total[j] + X[k, bx * 16 + j]
            T.copy(total, y[bx * 16])
        return y

    made = tw.compile(kernel, target="cpu")
    fetched = memory_us(made)
    monkeypatch.setattr(tensor_time, "fetched_loads", lambda *_: {})
    assert fetched < 0.7 * memory_us(made)
