"""The view of pipelines: what it says, its chart, and what the browser asks of it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from tests.sim.pipelines import attention, launched_twice, product, roles
from tests.viz.sanitiser import problems
from tileworkbench.compiler.analysis.occupancy import occupancy
from tileworkbench.compiler.sim.pipeline.trace import Trace
from tileworkbench.viz.model import pipeline
from tileworkbench.viz.model.pipeline_rows import (
    PRODUCTS,
    agreement,
    bars_of,
    paired,
    stage_rows,
    window_of,
)
from tileworkbench.viz.model.view import KernelView
from tileworkbench.viz.model.views import VIEWS, available, view_html, view_model

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def view() -> KernelView:
    return product(size=1024).view()


def sentences(view: KernelView) -> list[str]:
    assert view.pipelining is not None
    return pipeline.sentences(view, view.pipelining.pipelines[0])


def test_sentences_have_this_kernels_numbers(view: KernelView) -> None:
    (line,) = [loop.line for loop in product(size=1024).pipeline.loops]
    assert sentences(view) == [
        f"Loop 'k' (line {line}): 32 iterations, 3 stages, 519 cycles per iteration in the steady "
        "state; of that copies 69 % and products 99 % busy. Limit: the tensor cores.",
        "num_stages = 2 would need 32.0 KiB: 4 blocks at once instead of 3 (limit: shared memory).",
        "num_stages = 4 would need 64.0 KiB: 2 blocks at once instead of 3 (limit: shared memory).",
        "4 blocks fit with at most 40960 bytes of shared memory each.",
    ]
    assert "dark while a copy into it is under way" in view_model(view, "pipeline")["about"]
    assert "519 cycles each" in view_model(view, "pipeline")["about"]


def test_other_stages_do_not_free_registers() -> None:
    """Where registers are the limit, less shared memory makes no room for blocks."""
    view = product().view()
    assert view.occupancy is not None and view.occupancy.registers is None
    crowded = occupancy("sm_80", 128, view.shared_bytes, 250)
    assert crowded is not None and (crowded.blocks, crowded.limited_by) == (2, "registers")
    told = sentences(replace(view, occupancy=crowded))
    fewer = next(text for text in told if text.startswith("num_stages = 2 "))
    assert fewer.endswith("2 blocks at once, as now (limit: registers).")


def test_stages_that_do_not_fit_are_named() -> None:
    view = product(5, "sim:sm_75").view()
    assert "num_stages = 6 would need 80.0 KiB, more than the 64.0 KiB that a block may have." in (
        sentences(view)
    )


def test_the_chart_has_a_row_per_stage_and_a_bar_per_event(view: KernelView) -> None:
    data = view_model(view, "pipeline")
    root = ElementTree.fromstring(data["svg"])
    text = "|".join(root.itertext())
    for row in ("A_shared stage 0", "A_shared stage 2", "B_shared stage 2", "threads 0-127"):
        assert row in text
    assert "prologue" in text and "steady state" in text and "predicted cycles" in text
    groups = [g for g in root.iter(f"{SVG}g") if g.get("data-event")]
    drawn = {int(g.get("data-event", -1)) for g in groups}
    assert drawn <= {int(number) for number in data["events"]}
    products = [g for g in groups if g.get("data-style") == "product"]
    assert len(products) == 8 and (data["first"], data["count"], data["iterations"]) == (0, 8, 32)
    rects = [g.find(f"{SVG}rect") for g in products]
    places = [float(rect.get("x", 0)) for rect in rects if rect is not None]
    assert places == sorted(places)


def test_products_that_threads_do_not_wait_for_have_a_row() -> None:
    """Where wgmma multiplies, the threads' own row has the start of a product and the wait."""
    made = product(2, "sim:sm_90a").view()
    assert made.pipelining is not None
    pipe = made.pipelining.pipelines[0]
    bars = [bar for bar in bars_of(pipe, window_of(pipe, 0, 8)) if bar.style == "product"]
    flying = [bar for bar in bars if bar.row == PRODUCTS]
    assert len(flying) == len(bars) - len(flying) == 8
    assert all(bar.end - bar.start > 100 for bar in flying)  # cycles
    assert all(one.end <= other.start for one, other in pairwise(flying))
    assert f">{PRODUCTS}<" in view_model(made, "pipeline")["svg"]
    pipe = product().pipeline
    assert PRODUCTS not in {bar.row for bar in bars_of(pipe, window_of(pipe, 0, 8))}  # mma.sync


def test_an_event_is_told_of_in_words(view: KernelView) -> None:
    told = list(view_model(view, "pipeline")["events"].values())
    copies = [lines for lines in told if lines[0].startswith("T.copy(A[") and len(lines) == 4]
    assert copies[0][1].endswith("iteration 0, prologue; threads 0-127")
    assert copies[0][2] == "8.0 KiB by cp.async into A_shared stage 0"
    assert copies[0][3].startswith("predicted: 128 to 132 cycles, data there at ")
    waits = [lines[-1] for lines in told if lines[-1].startswith("waits for copies")]
    copied = [loop.line for loop in product().pipeline.operations if loop.kind == "copy"]
    assert waits[1] == (
        f"waits for copies, all but the latest 1 groups: copies of line {copied[0]} of iteration "
        f"1, line {copied[1]} of iteration 1"
    )


def test_a_tile_without_stages_has_one_row_of_its_name() -> None:
    rows = list(stage_rows(attention().pipeline).values())
    keys, values = (
        [f"{name} stage {stage}" for stage in (0, 1)] for name in ("K_shared", "V_shared")
    )
    assert rows == [*keys, "Q_shared", *values]
    assert "Q_shared" in view_model(attention().view(), "pipeline")["svg"]


def test_the_window_moves(view: KernelView) -> None:
    moved = pipeline.chart_answer(view, {"first": 100})
    assert (moved["first"], moved["count"]) == (24, 8)
    text = "|".join(ElementTree.fromstring(moved["svg"]).itertext())
    assert "epilogue" in text and "prologue" not in text
    shown = window_of(product(size=1024).pipeline, 10, 8)
    bars = [b for b in bars_of(product(size=1024).pipeline, shown) if b.style == "product"]
    inside = [b.text for b in bars if b.start >= shown.start and b.end <= shown.end]
    assert {str(number) for number in range(10, 18)} <= set(inside) and "18" not in inside


def test_the_trace_is_drawn_over_the_prediction() -> None:
    view = roles().view()
    plain, traced = pipeline.chart_answer(view, {}), pipeline.chart_answer(view, {"trace": True})
    root = ElementTree.fromstring(traced["svg"])
    text = "|".join(root.itertext())
    assert "sim: threads 0-127" in text and "sim: threads 128-255" in text
    assert "role" not in text
    assert "logical time" in text and "statements to one of the cycles" in text
    count = [
        len(list(ElementTree.fromstring(each["svg"]).iter(f"{SVG}g"))) for each in (plain, traced)
    ]
    assert count[1] > 1.7 * count[0]
    assert traced["agreement"] == (
        "The simulator did the 84 operations that are predicted, in the predicted order. Its time "
        "is logical: it counts statements and measures nothing."
    )


def test_a_trace_that_differs_is_said_to() -> None:
    kernel = roles()
    trace = kernel.trace()
    swapped = replace(trace, events=(*trace.events[:-3], trace.events[-1]))
    assert agreement(kernel.pipeline, swapped) == (
        "The simulator did other operations than predicted, or in another order."
    )
    elsewhere = replace(trace, block=(3,))
    assert agreement(kernel.pipeline, elsewhere) == (
        "The trace is of block (3,), the prediction of block (0,)."
    )
    assert sorted(paired(kernel.pipeline, trace)) == list(range(84))
    unknown = replace(trace.events[0], line=99)
    assert paired(kernel.pipeline, replace(trace, events=(unknown,))) == [-1]


def test_what_the_simulator_refuses_is_shown() -> None:
    class Refusing:
        pipelines = product().pipelines

        def trace(self, *, launch: int) -> Trace:
            from tileworkbench.compiler.diagnostics import ArgumentError

            raise ArgumentError("no inputs can be made up")

        def what_if_stages(self, *, launch: int) -> list[pipeline.Choice]:
            return []

    view = replace(product().view(), pipelining=Refusing())
    assert "no inputs can be made up" in pipeline.chart_answer(view, {"trace": True})["error"]


def test_tensors_that_are_too_large_are_not_made_up() -> None:
    view = product(size=2**15).view()
    assert pipeline.chart_answer(view, {"trace": True})["error"] == (
        "the tensors of 'matmul' take 8.0 GiB, and no more than 1.0 GiB are made up for the "
        "simulator\nhint: pass smaller ones yourself: 'with_inputs(...)' of the kernel"
    )


def test_other_numbers_of_stages_are_lowered_when_asked_for(view: KernelView) -> None:
    rows = {row["num_stages"]: row for row in pipeline.stages_answer(view, {})["rows"]}
    assert rows[1]["period"] is None and rows[3]["chosen"] and rows[3]["period"] == 519
    assert rows[2]["shared_bytes"] == 32768 and rows[2]["period"] > rows[3]["period"]


def test_the_static_view_is_small_safe_and_complete(view: KernelView) -> None:
    page = view_html(view, "pipeline")
    assert problems(page) == [] and len(page) < 20_000
    assert "3 stages, 519 cycles per iteration, predicted" in page
    assert "copies into A_shared stage 0" in page and "alone on its multiprocessor" in page
    assert "num_stages = 4 would need 64.0 KiB" in page


def test_a_kernel_without_a_pipeline_says_why_and_has_no_tab() -> None:
    view = product(3, "cpu").view()
    assert "pipeline" not in available(view) and "pipeline" in VIEWS
    assert view_model(view, "pipeline") == {
        "missing": "on a CPU one worker runs the iterations of a loop one after another; "
        "num_stages is for GPUs"
    }
    assert "num_stages is for GPUs" in view_html(view, "pipeline")
    assert pipeline.missing(replace(view, pipelining=None)) == "nothing is known of its pipelines"


def test_launches_are_chosen_among() -> None:
    view = launched_twice().view()
    data = view_model(view, "pipeline")
    lines = [each.loops[0].line for each in launched_twice().pipelines]
    assert data["launch"] == 1
    assert data["choices"] == [
        [1, f"launch 1 of 2 (line {lines[0]})"],
        [2, f"launch 2 of 2 (line {lines[1]})"],
    ]
    other = pipeline.launch_answer(view, {"launch": 2})
    assert other["launch"] == 2 and other["sentences"][0].startswith("Loop 'r'")
    assert other["sentences"][1].startswith("num_stages = 1 would need 16.0 KiB: 9 blocks at once")
    moved = pipeline.chart_answer(view, {"launch": 2, "first": 1, "trace": True})
    assert moved["svg"] != other["svg"] and "in the predicted order" in moved["agreement"]
    assert pipeline.stages_answer(view, {"launch": 2})["rows"][1]["chosen"]
    page = view_html(view, "pipeline")
    assert page.count("<img") == 2 and "launch 2 of 2" in page and problems(page) == []
