"""What is told of software pipelines: operations, order, predicted times, traces, files."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tests.kernels.test_gpu import CASES
from tests.sim.pipelines import attention, launched_twice, meeting, product, repeated, roles
from tests.sim.trace_format import faults, read_trace_file
from tileworkbench.bench.points import BANDWIDTH, PEAK
from tileworkbench.bench.published import product_peak, published
from tileworkbench.compiler.diagnostics import ArgumentError, UnsupportedError
from tileworkbench.compiler.machine.rates import rates_of
from tileworkbench.compiler.machine.tables import ARCHITECTURES
from tileworkbench.compiler.sim.pipeline import walk
from tileworkbench.compiler.sim.pipeline.build import find_pipelines
from tileworkbench.compiler.sim.pipeline.model import Event, Pipeline
from tileworkbench.compiler.sim.pipeline.trace import Trace
from tileworkbench.kernels import flash_attention, matmul

BY_THREADS = "through registers"


def events_of(pipeline: Pipeline, kind: str, line: int | None = None) -> list[Event]:
    return [
        event
        for event in pipeline.events
        if pipeline.operations[event.operation].kind == kind
        and line in (None, pipeline.operations[event.operation].line)
    ]


def test_operations_have_lines_bytes_and_how_far_ahead_they_run() -> None:
    pipeline = product().pipeline
    copies = [each for each in pipeline.operations if each.kind == "copy"]
    assert [(c.buffers, c.how, c.bytes_, c.ahead) for c in copies] == [
        (("A_shared",), "cp.async", 128 * 32 * 2, 2),
        (("B_shared",), "cp.async", 32 * 128 * 2, 2),
    ]
    (gemm,) = [each for each in pipeline.operations if each.kind == "product"]
    assert gemm.flops == 2 * 128 * 128 * 32 and gemm.text.startswith("T.gemm(") and gemm.ahead == 0
    assert gemm.line == copies[1].line + 1
    last = pipeline.operations[-1]
    assert (last.kind, last.bytes_, last.loop) == ("store", 128 * 128 * 4, -1)


def test_every_iteration_copies_multiplies_and_waits_once() -> None:
    pipeline = product().pipeline
    (loop,) = pipeline.loops
    assert (loop.iterations, loop.num_stages, loop.skipped) == (8, 3, 0)
    lines = {each.line for each in pipeline.operations if each.kind == "copy"}
    for line in lines:
        copies = events_of(pipeline, "copy", line)
        assert [event.iteration for event in copies] == list(range(8))
        assert [event.slots[0][1] for event in copies] == [0, 1, 2, 0, 1, 2, 0, 1]
        assert [event.phase for event in copies[:3]] == ["prologue"] * 2 + ["prologue"]
    products = events_of(pipeline, "product")
    assert [event.iteration for event in products] == list(range(8))
    assert [event.phase for event in products] == ["steady"] * 5 + ["epilogue"] * 3


def test_a_product_begins_after_its_copies_have_landed_and_their_buffers_are_kept_until_then() -> (
    None
):
    pipeline = product().pipeline
    products = {event.iteration: event for event in events_of(pipeline, "product")}
    for copy in events_of(pipeline, "copy"):
        assert products[copy.iteration].start >= copy.landed >= copy.end
        assert copy.released == products[copy.iteration].end
    by_slot = defaultdict(list)
    for copy in events_of(pipeline, "copy"):
        by_slot[copy.slots[0]].append(copy)
    for copies in by_slot.values():
        for before, after in pairwise(copies):
            assert after.start >= before.released  # never filled while it is read


def test_a_wait_names_the_copies_that_it_waits_for() -> None:
    pipeline = product().pipeline
    for wait in events_of(pipeline, "wait"):
        awaited = [pipeline.events[at] for at in wait.waits_for]
        assert all(event.landed <= wait.end for event in awaited)
        if pipeline.operations[wait.operation].how == "copies":
            assert {event.iteration for event in awaited} == {wait.iteration}
            assert len(awaited) == 2


def test_predicted_times_follow_the_rates() -> None:
    rates = rates_of("sm_80")
    assert rates is not None
    pipeline = product().pipeline
    first = events_of(pipeline, "product")[0]
    assert first.end - first.start == pytest.approx(2 * 128 * 128 * 32 / rates.flops["float16"])
    # 256 x 256 tensors are read twice each, C is written once: 0.5 MiB of 0.75 MiB.
    fresh = (2 * 2 + 4) / (2 * 2 * 2 + 4)
    copies = events_of(pipeline, "copy")
    apart = copies[1].landed - copies[0].landed
    assert apart == pytest.approx(8192 * fresh / rates.memory_bytes)
    under_way = copies[0].landed - copies[0].start
    assert under_way == pytest.approx(8192 * fresh / rates.memory_bytes + rates.latency)
    (loop,) = pipeline.loops
    assert dict(loop.busy)["products"] == pytest.approx(512 / loop.period)
    assert loop.limit == "copies from global memory"


def test_more_stages_help_until_something_is_busy_all_the_time() -> None:
    periods = {choice.num_stages: choice for choice in product(3, size=1024).what_if_stages()}
    assert periods[2].period > 1.2 * periods[3].period
    assert periods[4].period == pytest.approx(periods[3].period, rel=0.01)
    assert [number for number, each in periods.items() if each.chosen] == [3]


@pytest.mark.parametrize(
    ("stages", "target"),
    [(2, "sim:sm_80"), (3, "sim:sm_80"), (4, "sim:sm_80"), (4, "sim:gfx942")],
)
def test_the_formula_of_other_stages_is_what_lowering_gives(stages: int, target: str) -> None:
    """`SharedMemory.stages` is computed; each number is lowered here and must be the same."""
    shared = product(stages, target).shared_memory
    assert shared is not None
    computed = dict(shared.stages)
    lowered = {each.num_stages: each for each in product(stages, target).what_if_stages()}
    assert lowered[stages].shared_bytes == shared.bytes_
    for number in (each for each in lowered if 1 < each < 7 and not lowered[each].problem):
        assert computed[number] == lowered[number].shared_bytes


def test_stages_that_do_not_fit_say_so() -> None:
    choices = product(3, "sim:sm_75", 256).what_if_stages((3, 6))
    assert choices[0].problem == "" and choices[0].blocks == 2
    assert choices[1].problem == (
        "the block needs 81920 bytes of shared memory, 'sm_75' has 65536: 'A_shared' 40960, "
        "'B_shared' 40960"
    )


@pytest.mark.parametrize(("target", "how"), [("sim:sm_80", BY_THREADS), ("sim:sm_90", "TMA")])
def test_roles_work_in_one_pipeline(target: str, how: str) -> None:
    pipeline = roles(target).pipeline
    assert pipeline.roles == ("role of threads 0-127", "role of threads 128-255")
    (loop,) = pipeline.loops
    assert (loop.iterations, loop.num_stages) == (8, 2)
    copies, products = events_of(pipeline, "copy"), events_of(pipeline, "product")
    assert {pipeline.operations[event.operation].how for event in copies} == {how}
    assert {pipeline.operations[event.operation].bytes_ for event in copies} == {64 * 32 * 2}
    assert [event.iteration for event in products] == list(range(8))
    # Copies of an iteration run while the one before is multiplied.
    assert copies[2].start < products[0].end <= copies[4].start
    waits = [event.reason for event in events_of(pipeline, "wait") if event.iteration == 2]
    assert "phase 0 of used[0]" in waits and "phase 1 of loaded[0]" in waits


def test_of_a_long_loop_the_middle_is_left_out() -> None:
    pipeline = product(3, size=4096).pipeline
    (loop,) = pipeline.loops
    assert loop.iterations == 128 and loop.skipped == 78
    seen = [event.iteration for event in events_of(pipeline, "product")]
    assert seen[:24] == list(range(24)) and seen[24:] == list(range(102, 128))
    slots = {event.iteration: event.slots[0][1] for event in events_of(pipeline, "product")}
    assert all(stage == iteration % 3 for iteration, stage in slots.items())


def test_the_longer_the_code_the_fewer_turns_are_looked_at(monkeypatch: Any) -> None:
    monkeypatch.setattr(walk, "MOST_VISITS", 1)
    kernel = product(3, size=4096)
    (found,) = find_pipelines(kernel.record, rates_of("sm_80"), 1.0)
    (loop,) = found.loops
    assert loop.skipped == 120 and loop.period > 0  # 8 of 128 turns are left


def test_targets_that_share_their_lowering_share_the_pipeline() -> None:
    assert product(3, "ptx:sm_80").pipeline.events == product().pipeline.events


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        (
            lambda: product(3, "cpu"),
            "on a CPU one worker runs the iterations of a loop one after another; num_stages is "
            "for GPUs",
        ),
        (
            lambda: product(1),
            "num_stages of the loop on line {line} is 1; copies run ahead with 2 or more",
        ),
        (lambda: plain(), "no loop is T.Pipelined, or waits for copies of its own"),
        (
            lambda: nothing_ahead(),
            "loop 'k' is not pipelined: no copy from global to shared memory can run ahead",
        ),
    ],
)
def test_a_kernel_without_a_pipeline_says_why(kernel: Any, reason: str) -> None:
    pipeline = kernel().pipeline
    expected = reason.format(line=product().pipeline.loops[0].line)
    assert (pipeline.missing, pipeline.events) == (expected, ())
    assert str(pipeline).endswith(f"no pipeline: {expected}")


def plain() -> tw.Kernel:
    @T.prim_func
    def double(A: T.Tensor((128,), "float32"), B: T.Tensor((128,), "float32")):  # type: ignore[valid-type]
        with T.Kernel(1, threads=128):
            for i in T.Parallel(128):
                B[i] = A[i] * 2

    return tw.compile(double, target="sim:sm_80")


def nothing_ahead() -> tw.Kernel:
    @T.prim_func
    def add(A: T.Tensor((4, 128), "float32"), B: T.Tensor((4, 128), "float32")):  # type: ignore[valid-type]
        with T.Kernel(1, threads=128):
            for k in T.Pipelined(4, num_stages=2):
                for i in T.Parallel(128):
                    B[k, i] = A[k, i] + 1

    return tw.compile(add, target="sim:sm_80")


def test_without_rates_there_is_an_order_and_it_says_so() -> None:
    pipeline = product(3, "sim:sm_100").pipeline
    assert pipeline.unit == "steps" and pipeline.loops[0].limit == "not known without rates"
    assert any("are not known here" in text for text in pipeline.assumptions)
    assert len(events_of(pipeline, "product")) == 8


@pytest.mark.parametrize("arch", [a for a in ARCHITECTURES if rates_of(a) is not None])
def test_rates_agree_with_published_peaks(arch: str) -> None:
    rates, machine = rates_of(arch), published(arch)
    assert rates is not None and machine is not None
    assert machine.name.startswith(rates.product)
    cycles = rates.multiprocessors * rates.clock_mhz / 1e3  # in a microsecond, of all
    bandwidth = machine.find("DRAM", BANDWIDTH)
    assert bandwidth is not None
    assert rates.memory_bytes * cycles == pytest.approx(bandwidth.value, rel=0.02)
    for dtype, rate in rates.flops.items():
        names = [each.name for each in machine.ceilings if each.unit == PEAK]
        peak = machine.find(product_peak(dtype, names), PEAK)
        assert peak is not None and rate * cycles == pytest.approx(peak.value, rel=0.1)


# Traces


def three_stages(target: str) -> tw.Kernel:
    return product(3, target)


def order_of(pipeline: Pipeline) -> dict[str, list[tuple[Any, ...]]]:
    found = defaultdict(list)
    for event in pipeline.events:
        each = pipeline.operations[event.operation]
        if each.how != "registers":  # which no statement waits for
            found[each.role].append((each.kind, each.how, each.line))
    return found


def simulated_order(trace: Trace) -> dict[str, list[tuple[Any, ...]]]:
    found = defaultdict(list)
    for event in trace.events:
        found[event.role].append((event.kind, event.how, event.line))
    return found


@pytest.mark.parametrize(
    ("make", "target"),
    [
        *((make, "sim:sm_80") for make in (three_stages, roles, attention)),
        *((make, "sim:sm_90a") for make in (three_stages, roles, attention, repeated)),
        (three_stages, "sim:sm_90"),
    ],
)
def test_the_simulator_does_what_is_predicted_in_that_order(make: Any, target: str) -> None:
    kernel = make(target)
    assert not kernel.pipeline.guessed
    assert simulated_order(kernel.trace()) == order_of(kernel.pipeline)


@pytest.mark.parametrize("target", ["sim:sm_90", "sim:sm_90a"])
def test_copies_of_the_engine_have_a_start_and_an_end_and_somebody_waits_for_them(
    target: str,
) -> None:
    """The wait for a phase names the copies that it waits for; products begin behind that."""
    kernel = product(3, target)
    pipeline, trace = kernel.pipeline, kernel.trace()
    copies = events_of(pipeline, "copy")
    assert sorted(event.iteration for event in copies) == sorted([*range(8)] * 2)
    waits = [event for event in events_of(pipeline, "wait") if event.waits_for]
    by_phase = [w for w in waits if pipeline.operations[w.operation].how == "memory barrier"]
    assert [len(wait.waits_for) for wait in by_phase] == [2] * 8
    for wait in by_phase:
        awaited = [pipeline.events[at] for at in wait.waits_for]
        assert {event.iteration for event in awaited} == {wait.iteration}
        assert max(event.landed for event in awaited) <= wait.end
        assert all(event.landed > event.end for event in awaited)
    loaded = [event for event in trace.events if event.kind == "copy"]
    assert len(loaded) == 16 and all(event.landed >= event.end for event in loaded)


def test_warpgroups_multiply_in_turn_while_the_others_take_exponentials() -> None:
    kernel = tw.compile(
        flash_attention(1, 1, 128, 512, 64, T.float16, block_M=128, threads=256),
        target="sim:sm_90a",
    )
    pipeline = kernel.pipeline
    assert simulated_order(kernel.trace()) == order_of(pipeline)
    computing = pipeline.roles[:2]
    assert computing == ("role of threads 0-127", "role of threads 128-255")
    lines = sorted({each.line for each in pipeline.operations if each.kind == "product"})
    scores, outputs = (events_of(pipeline, "product", line) for line in lines)
    role = {id(e): pipeline.operations[e.operation].role for e in (*scores, *outputs)}
    assert [role[id(event)] for event in scores] == list(computing) * 8
    # The output of a block is formed beside what is done with the scores of the next one.
    for name in computing:
        first, then = ([e for e in each if role[id(e)] == name] for each in (scores, outputs))
        for before, after in zip(then, first[1:], strict=False):
            assert (before.iteration, after.iteration) == (before.iteration, before.iteration + 1)
            assert after.start <= before.start < after.landed <= before.landed


@pytest.mark.covering(1)
@pytest.mark.parametrize("name", ["convolution", "flash_attention_backward", "chunk_scan"])
@pytest.mark.parametrize("target", ["sim:sm_80", "sim:sm_90a"])
def test_loops_in_which_statements_take_turns_and_later_launches_agree_too(
    name: str, target: str
) -> None:
    program, args, *_ = CASES[name]()
    kernel = tw.compile(program, target=target)
    trace = kernel.trace(*args)
    assert simulated_order(trace) == order_of(kernel.pipeline)
    rows = defaultdict(list)
    for event in trace.events:
        rows[event.role].append(event)
    for events in rows.values():  # one after another
        assert all(before.end <= after.start for before, after in pairwise(events))


def test_each_launch_has_its_pipeline_and_its_trace() -> None:
    kernel = launched_twice()
    first, second = kernel.pipelines
    assert kernel.pipeline is first
    assert [(p.launch, p.launches, p.loops[0].name, p.grid) for p in (first, second)] == [
        (1, 2, "k", (4, 4)),
        (2, 2, "r", (4,)),
    ]
    assert [loop.num_stages for p in (first, second) for loop in p.loops] == [3, 2]
    assert str(second).startswith(
        "two (sim:sm_80), launch 2 of 2: predicted, in cycles\nloop r, line "
    )
    for pipeline in (first, second):
        trace = kernel.trace(launch=pipeline.launch)
        assert (trace.launch, trace.block) == (pipeline.launch, pipeline.block)
        assert simulated_order(trace) == order_of(pipeline)
    assert {row["launch"] for row in kernel.to_dict("pipeline")} == {1, 2}
    with pytest.raises(ArgumentError) as caught:
        kernel.trace(launch=3)
    assert str(caught.value) == "launch 3 of 'two' has no pipeline\nhint: one of 1, 2"


def test_other_numbers_of_stages_are_of_one_launch() -> None:
    kernel = launched_twice()
    first, second = (kernel.what_if_stages((2, 3), launch=launch) for launch in (1, 2))
    assert [(c.num_stages, c.chosen, c.shared_bytes) for c in first] == [
        (2, False, 16384),
        (3, True, 24576),
    ]
    assert [(c.num_stages, c.chosen, c.shared_bytes) for c in second] == [
        (2, True, 32768),
        (3, False, 49152),
    ]
    assert kernel.what_if_stages((2, 3)) == first
    with pytest.raises(ArgumentError) as caught:
        kernel.what_if_stages(launch=3)
    assert str(caught.value) == "'two' has no launch 3\nhint: 1 to 2"


def test_logical_time_follows_what_threads_wait_for() -> None:
    trace = roles().trace()
    text = roles().record.source.splitlines()
    told = next(at for at, line in enumerate(text) if "T.mbarrier_arrive(loaded" in line)
    told += roles().record.first_line
    arrivals = [e for e in trace.events if e.kind == "signal" and e.line == told]
    products = [e for e in trace.events if e.kind == "product"]
    fills = [e for e in trace.events if e.kind == "copy"]
    for at, multiplied in enumerate(products):
        assert multiplied.start >= arrivals[at].end  # data were there
    for at in range(2, 8):
        assert fills[2 * at].start >= products[at - 2].end  # the stage was free again
    assert fills[2].start < products[0].end  # and the roles overlap


def test_threads_that_meet_go_on_together() -> None:
    kernel = meeting()
    assert kernel.pipeline.roles == (
        "role of threads 0-127",
        "role of threads 128-255",
        "threads 256-383",
    )
    trace = kernel.trace()
    assert simulated_order(trace) == order_of(kernel.pipeline)
    own, other = (
        [e for e in trace.events if e.kind == "store" and e.role.endswith(threads)]
        for threads in (" 0-127", " 128-255")
    )
    assert other[-1].start >= own[-1].end  # behind the barrier of all
    predicted = kernel.pipeline
    last = max(e.end for e in events_of(predicted, "product"))
    assert events_of(predicted, "store")[-1].start >= last


def test_a_loop_that_is_entered_again_counts_its_iterations_again() -> None:
    pipeline = repeated().pipeline
    assert [e.iteration for e in events_of(pipeline, "product")] == [0, 1, 2, 3] * 2
    assert simulated_order(repeated().trace()) == order_of(pipeline)


def test_copies_land_at_the_wait_for_them() -> None:
    trace = product().trace()
    waits = [e for e in trace.events if e.how == "copies"]
    copies = [e for e in trace.events if e.kind == "copy"]
    assert [c.landed for c in copies] == [w.end for w in waits for _ in range(2)]
    assert [c.iteration for c in copies if c.line == copies[0].line] == list(range(8))


def test_a_trace_is_bounded_and_says_what_it_left_out() -> None:
    whole, part = product().trace(), product().trace(limit=10)
    assert (len(part.events), part.limit) == (10, 10)
    assert part.dropped >= len(whole.events) - 10
    assert part.to_dict()["unit"] == "statements"


def test_a_block_is_chosen_by_its_indices() -> None:
    first, last = attention().trace(block=(0, 0, 0)), attention().trace(block=(7, 1, 0))
    count = [sum(e.kind == "product" for e in trace.events) for trace in (first, last)]
    assert count == [2, 16] and last.block == (7, 1, 0)  # causal: the last rows see all columns
    with pytest.raises(ArgumentError) as caught:
        attention().trace(block=(9, 0, 0))
    assert str(caught.value) == "'flash_attention' has no block (9, 0, 0): its grid is 8x2x1"


def test_a_run_without_a_trace_records_nothing() -> None:
    kernel = product()
    from tileworkbench.compiler.sim.frame import SimOptions

    assert SimOptions().trace is None
    with pytest.raises(UnsupportedError) as caught:
        product(3, "cpu").trace()
    assert str(caught.value) == (
        "'matmul' has no pipeline to trace: on a CPU one worker runs the iterations of a loop one "
        "after another; num_stages is for GPUs"
    )
    assert kernel.pipeline.to_dict()["kernel"] == "matmul"


# Files


@pytest.mark.parametrize("make", [product, roles, attention, meeting, launched_twice])
def test_the_file_keeps_the_rules_of_the_format(make: Any, tmp_path: Path) -> None:
    kernel = make()
    for pipeline in kernel.pipelines:
        trace = kernel.trace(launch=pipeline.launch)
        content = read_trace_file(pipeline.save(tmp_path / "x.json", trace))
        assert faults(content) == []
        events = content["traceEvents"]
        processes = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
        assert processes == {
            1: "predicted (cycles)",
            2: "simulator, logical time: statements executed, not a measurement",
        }
        waits = [event for event in pipeline.events if event.waits_for]
        assert any(event["ph"] == "s" for event in events) == bool(waits)
        simulated = [event for event in events if event["ph"] == "X" and event["pid"] == 2]
        assert len(simulated) == len(trace.events)


def _spoil(events: list[dict[str, Any]], phase: str, **changes: Any) -> None:
    event = next(event for event in events if event["ph"] == phase)
    for key, value in changes.items():
        if value is None:
            del event[key]
        else:
            event[key] = value


@pytest.mark.parametrize(
    ("phase", "changes", "said"),
    [
        ("X", {"dur": None}, "no dur"),
        ("X", {"dur": -1.0}, "dur is -1.0"),
        ("X", {"tid": "1"}, "tid is '1'"),
        ("X", {"ph": "B"}, "unknown phase 'B'"),
        ("M", {"args": {}}, "metadata"),
        ("M", {"pid": 7}, "are named"),
        ("s", {"id": 99_999}, "flow 99999: ['s']"),
        ("s", {"tid": 1_000}, "is in no slice"),
        ("f", {"ts": 0}, "not in order"),
    ],
)
def test_a_file_that_breaks_a_rule_is_found(
    phase: str, changes: dict[str, Any], said: str, tmp_path: Path
) -> None:
    content = read_trace_file(product().pipeline.save(tmp_path / "x.json"))
    _spoil(content["traceEvents"], phase, **changes)
    assert any(said in fault for fault in faults(content))


def test_slices_that_overlap_are_found(tmp_path: Path) -> None:
    content = read_trace_file(product().pipeline.save(tmp_path / "x.json"))
    rows = defaultdict(list)
    for event in content["traceEvents"]:
        if event["ph"] == "X":
            rows[event["tid"]].append(event)
    first, second = next(row for row in rows.values() if len(row) > 1)[:2]
    first["dur"] = second["ts"] + second["dur"] / 2 - first["ts"]
    assert faults(content) == [f"thread {1, first['tid']}: a slice ends after the one around it"]


def test_rows_are_for_a_data_frame(tmp_path: Path) -> None:
    rows = product().pipeline.rows()
    assert len(rows) == len(product().pipeline.events)
    for made in (roles().pipeline, roles().trace(), attention().trace()):
        assert json.loads(json.dumps(made.to_dict()))["target"] == made.target
    assert {"kind", "line", "bytes_", "iteration", "start", "landed", "waits_for"} <= set(rows[0])
    with pytest.raises(ArgumentError) as caught:
        product(3, "cpu").pipeline.save(tmp_path / "x.json")
    assert str(caught.value) == (
        "'matmul' has no pipeline to save: on a CPU one worker runs the iterations of a loop one "
        "after another; num_stages is for GPUs"
    )


def test_a_predicted_time_is_no_rate_of_a_kernel() -> None:
    """Blocks of the library's kernels have pipelines, whatever they copy."""
    kernel = tw.compile(matmul(256, 256, 256, "float32", num_stages=2), target="sim:sm_75")
    copies = [each for each in kernel.pipeline.operations if each.kind == "copy"]
    assert {each.how for each in copies} == {"to registers"}  # no cp.async before sm_80


def test_threads_wait_for_registers_where_they_use_them() -> None:
    """What is loaded ahead comes while the products of the iteration before are formed."""
    kernel = product(2, "sim:gfx942")
    pipeline = kernel.pipeline
    loads, stores = events_of(pipeline, "copy"), events_of(pipeline, "compute")
    products = events_of(pipeline, "product")
    waits = [e for e in events_of(pipeline, "wait") if e.reason == "loads to registers"]
    assert len(loads) == 16 and [each.iteration for each in loads[::2]] == [*range(8)]
    for wait in waits:
        (load,) = (pipeline.events[at] for at in wait.waits_for)
        assert wait.end == load.landed > load.end
    for load in loads[4:]:
        during = [e for e in products if e.iteration == load.iteration - 1]
        assert load.end <= during[0].start and load.landed > during[0].start
        assert any(
            store.iteration == load.iteration and store.start >= during[0].end for store in stores
        )
    assert all(e.end - e.start < e.landed - e.start for e in loads)
