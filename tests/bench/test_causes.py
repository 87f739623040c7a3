"""Time by cause, and the line that the verdict names: kernels with one planted bottleneck each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tests.bench import bottlenecks
from tests.bench.test_time_model import MACHINE
from tileworkbench.bench import ceilings, operation_probes
from tileworkbench.bench.operation_rates import assumed_rates
from tileworkbench.bench.parts import Causes, Part
from tileworkbench.bench.points import Point, judge
from tileworkbench.bench.time_model import Prediction, predict_time
from tileworkbench.bench.timing import BenchResult
from tileworkbench.kernels import (
    flash_attention,
    gemv,
    histogram,
    layernorm,
    matmul,
    softmax,
)
from tileworkbench.workbench.kernel import Kernel


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceilings, "machine", lambda measure=False: MACHINE)
    monkeypatch.setattr(operation_probes, "operation_rates", lambda: assumed_rates(0.3))
    monkeypatch.setattr("tileworkbench.compiler.device.host.threads.get_num_threads", lambda: 2)


def compiled(name: str, target: str) -> Kernel:
    return tw.compile(getattr(bottlenecks, name)(), target=target)


def line(kernel: Kernel, number: int) -> str:
    """A line of the kernel's text."""
    return kernel.record.source.splitlines()[number - kernel.record.first_line].strip()


PLANTED = [
    ("scalar_loop", "cpu", "computes 1.05 M results one at a time"),
    ("transposed_halves", "cpu", "accesses 1.05 M elements one by one"),
    ("serial_sum", "cpu", "adds 1.05 M times to the same number"),
    ("long_functions", "cpu", "computes sin 1.05 M times, computes cos 1.05 M times"),
    ("division", "cpu", "divides 33.6 M times"),
    ("little_work", "cpu", "starts a launch, which costs"),
    ("one_block", "cpu", "launches 1 block for 2 cores, of which 50 % have nothing to do"),
    ("scalar_loop", "sim:sm_80", "waits 1.02 k times, one after the other, for an element"),
    ("transposed_reads", "sim:sm_80", "reads 'A' in 8.0 times the sectors it needs"),
    ("serial_sum", "sim:sm_80", "waits 1.02 k times, one after the other, for an element"),
    ("long_functions", "sim:sm_80", "computes sin 1.05 M times, computes cos 1.05 M times"),
    ("division", "sim:sm_80", "divides 33.6 M times"),
    ("little_work", "sim:sm_80", "starts a launch, which costs 3 µs"),
    ("one_block", "sim:sm_80", "launches 1 block for 108 multiprocessors, of which 99 %"),
    ("bank_conflicts", "sim:sm_80", "reads 'A_shared' with bank conflicts, 8.0 times"),
    ("bank_conflicts", "sim:sm_90a", "reads 'A_shared' with bank conflicts, 8.0 times"),
    (
        "nothing_ahead",
        "sim:sm_80",
        "waits for it and computes with it, one after the other, 128",
    ),
    ("nothing_ahead", "sim:sm_90a", "loads a tile, waits for it and computes with it"),
    ("large_product_in_series", "sim:sm_80", "one after the other, 256 times, with nothing"),
    ("large_product_in_series", "sim:sm_90a", "one after the other, 256 times, with nothing"),
    ("reloaded_weights", "sim:sm_80", "reads 'W' "),
    ("small_tiles", "sim:sm_80", "reads 'B' "),
    ("one_element", "sim:sm_80", "updates one element of 'C' 1.05 M times, one after the other"),
    ("one_element", "cpu", "computes 1.05 M results one at a time"),
]


@pytest.mark.parametrize(("name", "target", "finding"), PLANTED)
def test_the_verdict_names_the_planted_line(name: str, target: str, finding: str) -> None:
    kernel = compiled(name, target)
    causes = kernel.causes
    assert causes is not None
    found = causes.diagnose()
    assert line(kernel, found.line).endswith("# here"), found
    assert finding in found.sentence
    # What the card and the roofline say is the same.
    [point] = kernel.view(roofline=True).points
    shown = judge(point, MACHINE if target == "cpu" else kernel.view().machine)
    assert shown.line == found.line and finding in shown.next_step


@pytest.mark.parametrize("target", ["cpu", "sim:sm_80"])
def test_a_good_product_gets_no_advice(target: str) -> None:
    size = 1024 if target == "cpu" else 4608
    causes = tw.compile(matmul(size, size, size, "float16"), target=target).causes
    assert causes is not None
    found = causes.diagnose()
    assert found.remedy == "" and found.saved_us == 0.0
    assert found.sentence.startswith("Nothing is wasted that this model knows of.")
    assert "multiplies " in found.sentence and "vector" not in found.text


@pytest.mark.parametrize("target", ["sim:sm_80", "sim:sm_90a"])
def test_stages_are_the_remedy_for_tiles_in_series(target: str) -> None:
    """What the verdict advises ends what it found, and gives about the time it promised."""
    series, staged = (
        tw.compile(bottlenecks.large_product(stages), target=target).causes for stages in (1, 3)
    )
    assert series is not None and staged is not None
    found = series.diagnose()
    assert found.cause == "latency" and found.saved_us > 0.1 * series.total_us
    assert found.remedy.startswith("Write T.Pipelined(..., num_stages=3) for this loop")
    promised = series.total_us - found.saved_us
    assert promised == pytest.approx(staged.total_us, rel=0.15)
    assert "num_stages" not in staged.diagnose().text
    assert not [part for part in staged.parts if part.cause == "latency" and part.waste_us]


def test_a_kernel_at_its_roof_is_not_told_of_waste() -> None:
    causes = Causes((Part("compute", 10.0, "core", 3, "divides", 5.0, "Do not."),))
    assert causes.diagnose().remedy == "Do not."
    assert causes.diagnose(10.0, 2.0).remedy == "Do not."
    assert causes.diagnose(10.0, 9.5).remedy == ""


def test_parts_that_overlap_share_the_time() -> None:
    parts = (
        *(Part("compute", 2.0, "core", 1), Part("packing", 1.0, "core", 2)),
        *(Part("DRAM", 4.0, "memory", 2), Part("launch", 1.0)),
    )
    causes = Causes(parts)
    assert causes.total_us == pytest.approx(1 + 5)  # 3 and 4 at once
    assert sum(causes.by_cause().values()) == pytest.approx(6.0)
    assert list(causes.by_cause()) == ["DRAM", "compute", "launch", "packing"]
    wasteful = Causes((replace(parts[2], waste_us=4.0), *parts[:2], parts[3]))
    assert wasteful.saving_us(wasteful.parts[0]) == pytest.approx(2.0)


def test_a_remedy_for_several_parts_saves_them_all() -> None:
    parts = tuple(Part("idle", 3.0, uses, 1, "waits", 3.0, "More blocks.") for uses in "ab")
    causes = Causes((*parts, Part("launch", 1.0)))
    assert causes.saving_us(parts[0]) == pytest.approx(causes.total_us - 1.0)


@pytest.mark.parametrize(
    ("guard", "place", "finding"),
    [
        ("tx < 128", "0", "updates one element of 'C' 8.19 k times, one after the other"),
        ("tx == 0", "0", "updates one element of 'C' 64 times, one after the other"),
        ("tx % 32 == 0", "bx", "updates one element of 'C' 4 times in each block, one after"),
        ("tx < 128", "tx", ""),
        ("tx < 128", "A[tx]", ""),
    ],
)
def test_updates_of_one_element_follow_each_other(guard: str, place: str, finding: str) -> None:
    """By the threads that make them; other elements, and places from data, are not counted."""

    @T.prim_func
    def update(A: T.Tensor((128,), "int32"), C: T.Tensor((128,), "float32")):
        with T.Kernel(64, threads=128) as bx:
            tx = T.get_thread_binding()
            if eval(guard, {}, {"tx": tx}):
                T.atomic_add(C[eval(place, {}, {"tx": tx, "bx": bx, "A": A})], 1.0)

    causes = tw.compile(update, target="sim:sm_80").causes
    assert causes is not None
    found = [part.finding for part in causes.parts if part.cause == "atomics"]
    assert len(found) == bool(finding) and all(each.startswith(finding) for each in found)


def test_the_parts_add_up_to_the_prediction() -> None:
    kernel = tw.compile(matmul(512, 512, 512))
    causes = kernel.causes
    assert causes is not None
    assert causes.total_us == pytest.approx(kernel.stats.predicted.total_us)
    assert all(part.line for part in causes.parts)


def test_a_prediction_is_made_once_for_a_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Views ask several times; other threads or ceilings are another question."""
    made, threads = list[int](), 2

    def counted(program: Any, machine: Any, threads: int, *rest: Any) -> Prediction:
        made.append(threads)
        return predict_time(program, machine, threads, *rest)

    monkeypatch.setattr("tileworkbench.bench.time_model.predict_time", counted)
    name = "tileworkbench.compiler.device.host.threads.get_num_threads"
    monkeypatch.setattr(name, lambda: threads)
    kernel = tw.compile(matmul(512, 512, 512))
    assert kernel.causes == kernel.causes == kernel.stats.predicted.causes
    assert made == [2]
    threads = 1
    assert kernel.stats.predicted.threads == 1
    monkeypatch.setattr(ceilings, "machine", lambda measure=False: replace(MACHINE, ceilings=()))
    assert kernel.causes is not None
    assert made == [2, 1, 1]


def test_everything_as_plain_data() -> None:
    causes = compiled("bank_conflicts", "sim:sm_80").causes
    assert causes is not None
    data = causes.to_dict()
    assert data["model"] == "a model under published numbers, which no GPU has confirmed"
    assert sum(data["causes"].values()) == pytest.approx(data["total_us"])
    assert sum(part["share_us"] for part in data["parts"]) == pytest.approx(data["total_us"])
    assert {"cause", "line", "time_us", "waste_us"} <= set(data["parts"][0])
    assert str(causes).startswith("1.31 ms (wavefronts 994 µs, ")


def test_conflicts_cost_what_their_wavefronts_do() -> None:
    """32 banks a clock: the tile of A is read twice (two warps a row) by every block and step."""
    causes = compiled("bank_conflicts", "sim:sm_80").causes
    assert causes is not None
    parts = [part for part in causes.parts if part.cause == "wavefronts" and part.waste_us]
    [part] = [part for part in parts if "8.0 times" in part.finding]
    bytes_ = 2 * 128 * 64 * 2 * 64 * 1024 / 108
    assert part.time_us - part.waste_us == pytest.approx(bytes_ / 128 / 1.41e3)


@pytest.mark.parametrize("target", ["sim:sm_80", "sim:sm_90a"])
def test_copies_ahead_hide_the_latency(target: str) -> None:
    found = {}
    for stages in (1, 2, 4):
        made = matmul(1024, 1024, 1024, "float16", num_stages=stages)
        causes = tw.compile(made, target=target).causes
        assert causes is not None
        [found[stages]] = [part for part in causes.parts if part.cause == "latency" and part.line]
    assert "nothing loaded ahead" in found[1].finding and found[1].waste_us > 0
    assert found[2].finding == "loads 1 iteration ahead" and found[2].waste_us == 0
    assert found[4].finding == "loads 3 iterations ahead"
    assert found[4].time_us < found[2].time_us


def test_levels_hold_what_passes_through_them() -> None:
    kernel = compiled("transposed_reads", "sim:sm_80")
    # 4 MiB written; 4 MiB read, in 8 times the sectors.
    assert kernel.traffic == {"shared": 0.0, "L2": 36 * 2**20, "DRAM": 8 * 2**20}
    # The same on a CPU, where both tensors are in the level that holds 8 MiB; the tile that turns
    # one of them is in the innermost.
    on_cpu = compiled("transposed_reads", "cpu").traffic
    assert next(iter(on_cpu)) == "L1" and on_cpu.pop("L1") == 16 * 2**20
    assert set(on_cpu.values()) == {8 * 2**20}


def test_the_innermost_level_serves_tiles_too() -> None:
    traffic = tw.compile(matmul(256, 256, 256)).traffic
    assert traffic["L1"] > 2 * traffic["L2"] >= 2 * 3 * 256 * 256 * 4


def test_symbolic_shapes_have_no_prediction() -> None:
    for target in ("cpu", "sim:sm_80"):
        kernel = tw.compile(matmul(T.dynamic("m"), 64, 64, "float16"), target=target)
        assert kernel.causes is None and kernel.traffic == {}


def test_time_that_is_no_lines_is_named() -> None:
    causes = Causes((Part("compute", 1.0, "core", 3, "adds"), Part("fresh pages", 5.0, "", 0, "x")))
    assert causes.diagnose().sentence == (
        "Nothing is wasted that this model knows of. The largest part of the predicted time, "
        "83 %, is fresh pages, which x."
    )
    assert Causes(()).diagnose().sentence == "Nothing is known to take time."


@pytest.mark.covering(1)
@pytest.mark.parametrize("target", ["cpu", "sim:sm_86", "sim:sm_80", "sim:sm_90a"])
@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (flash_attention, (1, 4, 256, 256, 64)),
        (softmax, (256, 256)),
        (layernorm, (256, 256)),
        (gemv, (256, 256)),
        (histogram, (4096, 64)),
    ],
)
def test_kernels_of_the_library_have_causes(
    make: Callable[..., Any], shape: tuple[int, ...], target: str
) -> None:
    kernel = tw.compile(make(*shape), target=target)
    causes = kernel.causes
    assert causes is not None and 0 < causes.total_us < 1e6
    assert all(part.waste_us <= part.time_us * (1 + 1e-9) for part in causes.parts)
    assert all(causes.saving_us(part) >= -1e-9 for part in causes.parts)
    assert causes.diagnose().sentence.endswith(".")
    assert list(kernel.traffic)[-1] in ("L1", "L2", "L3", "DRAM")


def test_blocks_that_do_not_fill_the_last_round() -> None:
    kernel = tw.compile(flash_attention(1, 8, 1024, 1024, 64), target="sim:sm_80")
    found = kernel.causes and kernel.causes.diagnose()
    assert found and line(kernel, found.line).startswith("with T.Kernel(")
    assert (
        "launches 128 blocks for 108 multiprocessors, so that 41 % of their time is lost in the "
        "last of 2 rounds: without that"
    ) in found.sentence


def test_a_measured_gpu_kernel_keeps_its_prediction(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = tw.compile(matmul(256, 256, 256, "float16"), target="sim:sm_80")
    result = BenchResult("matmul", (0.5,), 1, flops=2.0 * 256**3, bytes_=3e5, dtype="float16")
    monkeypatch.setattr(kernel, "_bench", result)
    [point] = kernel.view().points
    assert (point.time_us, point.predicted) == (500.0, False)
    assert kernel.causes is not None and point.predicted_us == kernel.causes.total_us


def test_a_measured_kernel_is_told_what_the_model_explains() -> None:
    causes = Causes((Part("compute", 10.0, "core", 3, "divides"),))
    point = Point("k", 1e3, 1e3, 40.0, "float32", "DRAM", 1, predicted_us=10.0, causes=causes)
    verdict = judge(point, MACHINE)
    assert verdict.line == 3
    assert verdict.sentence.endswith("It took 40 µs; the model of this machine expects 10 µs.")
