"""What bounds a kernel, as the card says it: at once where it is known, else when asked."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

import tileworkbench as tw
from tests.viz.sample import kernel_view
from tileworkbench import kernels
from tileworkbench.bench import ceilings
from tileworkbench.bench.parts import Causes, Part
from tileworkbench.bench.points import Ceiling, Machine, Point, judge, least_us
from tileworkbench.compiler.record import Count
from tileworkbench.viz.model.bound import bound_answer, bound_model
from tileworkbench.viz.model.card import card_html, card_model
from tileworkbench.viz.model.views import VIEWS
from tileworkbench.viz.widgets.card import CardWidget
from tileworkbench.workbench.inputs import make_inputs

MACHINE = Machine("m", (Ceiling("DRAM", 10.0, "GB/s", 1), Ceiling("float32", 100.0, "GFLOP/s", 1)))
CAUSES = Causes(
    (
        Part("wavefronts", 6.0, "memory", 7, "waits for banks", 5.0, "Swizzle the tile."),
        Part("compute", 2.0, "arithmetic", 9, "multiplies tiles"),
    )
)
POINT = Point("k", 1e5, 1e4, 6.5, "float32", "DRAM", predicted=True, causes=CAUSES)
SENTENCE = (
    "Look at line 7: it waits for banks: without that a launch would take about 2.24 µs instead "
    "of 6.32 µs (predicted)."
)


def test_the_largest_cause_and_the_line_to_look_at() -> None:
    assert bound_model(POINT, MACHINE) == {
        "text": f"wavefronts (predicted; 90 % of the predicted time). {SENTENCE}",
        "line": 7,
    }
    measured = replace(POINT, predicted=False, time_us=8.0)
    assert bound_model(measured, MACHINE)["text"] == (
        f"wavefronts (90 % of the predicted 6.32 µs; measured 8 µs). {SENTENCE}"
    )
    alone = replace(POINT, causes=None)
    assert bound_model(alone, MACHINE)["text"] == f"compute. {judge(alone, MACHINE).sentence}"


def test_a_busy_machine_is_blamed_for_ceilings_that_are_too_low() -> None:
    above = replace(POINT, predicted=False, time_us=0.5)
    assert judge(above, MACHINE).sentence.endswith("This is an error of tileworkbench.")
    busy = judge(above, replace(MACHINE, doubt="busy"))
    assert (busy.wrong, busy.sentence, busy.next_step) == (
        True,
        "This point lies 100 % above its roof: the ceilings were measured while the machine "
        "was busy or shared, and are too low.",
        "Measure them again on a quiet machine: '%tile peaks --measure'.",
    )


def test_a_point_above_memory_that_a_guest_shares_is_no_mistake_of_ours() -> None:
    shared = replace(MACHINE.ceilings[0], shared=True, low=8.0)
    guest = replace(MACHINE, ceilings=(shared, *MACHINE.ceilings[1:]))
    above = Point("k", 1e5, 1e5, 5.0, "float32", "DRAM")
    for point in (above, replace(above, flops=0.0)):
        assert "impossible" in judge(point, MACHINE).sentence
        assert "busy or shared, and are too low" in judge(point, guest).sentence
    # The peak is the guest's own.
    assert "impossible" in judge(replace(above, flops=1e9), guest).sentence


def test_what_the_roofs_allow() -> None:
    assert least_us(POINT, MACHINE) == pytest.approx(1.0)
    assert least_us(replace(POINT, bytes_=1e5), MACHINE) == pytest.approx(10.0)


def test_a_gpu_kernel_has_it_on_the_card_at_once() -> None:
    kernel = tw.compile(kernels.matmul(512, 512, 512, dtype="float16"), target="sim:sm_80")
    bound = card_model(kernel.view())["bound"]
    assert bound["text"].startswith("idle multiprocessors (predicted; ")
    assert bound["line"] == kernel.causes.diagnose().line
    assert bound["text"].split(" Look")[0] in card_html(kernel.view())


def test_where_the_launch_itself_takes_most_the_next_cause_is_named() -> None:
    kernel = tw.compile(kernels.matmul(256, 256, 256, dtype="float16"), target="sim:sm_90a")
    text = card_model(kernel.view())["bound"]["text"]
    causes = list(kernel.causes.by_cause())
    assert causes[:2] == ["launch", "idle multiprocessors"]
    assert text.startswith("launch (predicted; ")
    assert " then idle multiprocessors (" in text.split(" Look at line ")[0]


def test_amds_gpus_have_compute_units() -> None:
    kernel = tw.compile(kernels.matmul(256, 256, 256, dtype="float16"), target="sim:gfx942")
    assert next(iter(kernel.causes.by_cause())) == "idle compute units"
    assert "blocks for 304 compute units, of which" in kernel.causes.diagnose().sentence


def test_a_cpu_kernel_has_it_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = tw.compile(kernels.matmul(64, 64, 64), target="cpu")
    assert card_model(kernel.view())["bound"] == {}
    assert "bound by" not in card_html(kernel.view())
    monkeypatch.setattr(ceilings, "known_machine", lambda: None)
    assert bound_answer(kernel.view().placed()) == {
        "text": "not known yet: the ceilings of this machine must be measured, which takes some "
        "seconds",
        "line": 0,
        "measure": True,
    }
    # Above what any core reaches: a time measured here may not lie above its roof.
    levels = [Ceiling(name, 1e4, "GB/s", 1) for name in ("L1", "L2", "L3", "DRAM")]
    machine = Machine("m", (*levels, Ceiling("float32", 1e4, "GFLOP/s", 1)))
    monkeypatch.setattr(ceilings, "known_machine", lambda: machine)
    monkeypatch.setattr(ceilings, "machine", lambda measure=False: machine)
    assert "(predicted; " in bound_answer(kernel.view().placed())["text"]
    assert "this machine's ceilings" in VIEWS["roofline"].missing(kernel.view())
    kernel.bench(*make_inputs(kernel.program))
    widget = CardWidget(kernel.view())
    assert "; measured " in widget.answers()["bound"]({})["text"]
    shown = widget.card
    assert "Roofline" in dict(shown["tabs"]).values() and "Roofline" not in dict(shown["absent"])
    assert [point["name"] for point in widget.roofline["points"]] == ["matmul"]
    assert "roofline" not in card_html(widget.view)  # what was measured is for live views


def test_what_is_not_known_says_why() -> None:
    view = kernel_view(machine=None, points=())
    view = replace(view, record=replace(view.record, target="sim:sm_100"))
    nobody = "no ceilings are published for what the code for sim:sm_100 uses"
    assert bound_answer(view) == {"text": f"not known: {nobody}", "line": 0}
    assert VIEWS["roofline"].missing(view) == nobody
    view = replace(view, flops=Count(math.nan, "2*M"))
    sizes = (
        "nothing was measured, and the operations and bytes of a launch depend on the sizes of "
        "a call"
    )
    assert VIEWS["roofline"].missing(view) == sizes
    known = replace(view, place=lambda measures: (MACHINE, ()))
    assert bound_answer(known.placed()) == {"text": f"not known: {sizes}", "line": 0}
    assert VIEWS["roofline"].missing(kernel_view(machine=None, points=())) == (
        "this machine's ceilings were not asked for; 'show(\"roofline\")' measures them"
    )
