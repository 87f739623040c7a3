"""Verdicts, drawing and figure of the roofline."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from itertools import combinations, pairwise
from math import dist
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

from tests.viz.rooflines import crowded
from tests.viz.sample import MACHINE, POINT
from tests.viz.sanitiser import problems
from tileworkbench.bench.points import (
    BANDWIDTH,
    Ceiling,
    Counted,
    CountedLevel,
    Machine,
    Point,
    Step,
    Trail,
    explain_levels,
    format_rate,
    judge,
    levels_of,
    relevant_ceilings,
)
from tileworkbench.viz.model import roofline_view
from tileworkbench.viz.model.labels import Name, Shape, is_apart
from tileworkbench.viz.model.roofline_svg import roofline_svg
from tileworkbench.viz.model.roofline_view import (
    ceiling_table,
    roofline_html,
    roofline_line,
    roofline_model,
)
from tileworkbench.viz.model.svg import THEMED
from tileworkbench.viz.widgets.figure import roofline_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIMPLE = Machine("m", (Ceiling("DRAM", 10.0, "GB/s", 1), Ceiling("float32", 100.0, "GFLOP/s", 1)))


def point(intensity: float, gflops: float, **changes: object) -> Point:
    """A point of one microsecond at a place of the plot."""
    flops = gflops * 1e3
    return replace(Point("k", flops, flops / intensity, 1.0, "float32", "DRAM"), **changes)  # type: ignore[arg-type]


def test_rates_of_a_point() -> None:
    assert point(2.0, 15.0).gflops == pytest.approx(15.0)
    assert point(2.0, 15.0).gbytes == pytest.approx(7.5)
    assert point(2.0, 15.0).intensity == pytest.approx(2.0)


def test_left_of_the_ridge_memory_bounds() -> None:
    verdict = judge(point(2.0, 15.0), SIMPLE)
    assert (verdict.bound, verdict.attainable, verdict.fraction) == ("memory", 20.0, 0.75)
    assert verdict.sentence == (
        "At 2 FLOP/B it is left of the ridge at 10, in the memory-bound region, and reaches 75 % "
        "of the 20 GFLOP/s that the DRAM bandwidth allows, each tensor moved once."
    )
    assert (verdict.next_step, verdict.line) == ("", 0)  # nothing is known of the kernel


def test_right_of_the_ridge_compute_bounds() -> None:
    verdict = judge(point(50.0, 90.0), SIMPLE)
    assert (verdict.bound, verdict.attainable) == ("compute", 100.0)
    assert verdict.sentence == (
        "At 50 FLOP/B it is right of the ridge at 10, in the compute-bound region, and reaches "
        "90 % of the 100 GFLOP/s that the float32 peak allows."
    )


def test_a_point_above_its_roof_is_our_error() -> None:
    assert not judge(point(2.0, 20.9), SIMPLE).wrong
    verdict = judge(point(2.0, 22.0), SIMPLE)
    assert verdict.wrong
    assert verdict.sentence == (
        "This point lies 10 % above its roof, which is impossible: a count of FLOPs or bytes, the "
        "time or a ceiling is wrong. This is an error of tileworkbench."
    )
    assert roofline_model([point(2.0, 22.0)], SIMPLE)["points"][0]["wrong"]
    assert "rgba(211,48,47,0.22)" in roofline_html([point(2.0, 22.0)], SIMPLE)


def test_a_kernel_without_arithmetic_is_held_against_bandwidth() -> None:
    verdict = judge(Point("copy", 0.0, 9e3, 1.0, "float32", "DRAM"), SIMPLE)
    assert (verdict.bound, verdict.unit, verdict.fraction) == ("memory", "GB/s", 0.9)
    assert verdict.sentence == (
        "It does no floating-point work, and reaches 90 % of the 10 GB/s of DRAM bandwidth, "
        "each tensor moved once."
    )
    assert "<circle" not in roofline_svg([Point("c", 0.0, 9e3, 1.0, "float32", "DRAM")], SIMPLE)


@pytest.mark.parametrize(
    ("changes", "missing"),
    [({"level": "L9"}, "bandwidth of 'L9'"), ({"dtype": "int8"}, "'int8' peak")],
)
def test_a_missing_ceiling_is_named(changes: dict[str, str], missing: str) -> None:
    verdict = judge(point(2.0, 15.0, **changes), SIMPLE)
    assert verdict.bound == "unknown"
    assert verdict.sentence == (
        f"The {missing} has not been measured on this machine, so no roof is known."
    )


def test_ceilings_are_found_by_number_of_threads() -> None:
    peak = {n: MACHINE.find("float32", "GFLOP/s", n) for n in (0, 1, 2, 64)}
    assert [found and found.threads for found in peak.values()] == [2, 1, 2, 2]
    assert judge(replace(POINT, threads=1), MACHINE).attainable == pytest.approx(110.0)


def test_drawing_is_well_formed_and_escaped() -> None:
    evil = "</svg><script>&\"'"
    svg = roofline_svg([replace(POINT, name=evil)], replace(MACHINE, name=evil), THEMED)
    root = ElementTree.fromstring(svg)
    spaces = "{http://www.w3.org/2000/svg}"
    assert root.tag == f"{spaces}svg"
    assert [node.get("data-point") for node in root.iter(f"{spaces}circle")] == [evil]
    titles = [node.text for node in root.iter(f"{spaces}title")]
    assert sum("GB/s" in (title or "") for title in titles) == 8
    assert svg == roofline_svg([replace(POINT, name=evil)], replace(MACHINE, name=evil), THEMED)


@pytest.mark.parametrize("points", [[], [POINT], [point(1e-4, 1e-3), point(1e5, 99.0)]])
@pytest.mark.parametrize("machine", [MACHINE, SIMPLE, Machine("nothing", ())])
def test_everything_stays_inside_the_drawing(points: list[Point], machine: Machine) -> None:
    root = ElementTree.fromstring(roofline_svg(points, machine))
    for node in root.iter():
        for name, limit in (("cx", 680), ("x1", 680), ("x2", 680), ("cy", 400), ("y1", 400)):
            assert -1 <= float(node.get(name, "0")) <= limit + 1


def test_peaks_of_other_types_are_left_out_of_the_drawing() -> None:
    assert "float64" not in roofline_svg([POINT], MACHINE)
    assert "float64" in roofline_svg([], MACHINE)
    assert [row["name"] for row in ceiling_table(MACHINE)["rows"]][-1] == "float64"


def test_ceiling_table() -> None:
    table = ceiling_table(MACHINE)
    assert table["columns"] == ["1 thread", "2 threads"]
    assert table["rows"][3] == {"name": "DRAM", "values": ["14 GB/s", "25.2 GB/s"]}


def test_static_view_is_safe_and_its_text_holds_no_measurement() -> None:
    assert problems(roofline_html([POINT], MACHINE)) == []
    assert roofline_line([POINT, POINT]) == "<Roofline mm>"
    assert roofline_line([]) == "<Roofline without points>"


@pytest.mark.parametrize(
    ("value", "text"), [(51.2, "51.2 GFLOP/s"), (1300.0, "1.3 TFLOP/s"), (0.64, "640 MFLOP/s")]
)
def test_rates(value: float, text: str) -> None:
    assert format_rate(value, "GFLOP/s") == text


def test_figure_is_drawn_without_pyplot() -> None:
    code = (
        "import sys; from tests.viz.sample import MACHINE, POINT\n"
        "from tileworkbench.viz.widgets.figure import roofline_figure\n"
        "assert 'matplotlib' not in sys.modules\n"
        "figure = roofline_figure([POINT], MACHINE)\n"
        "print(len(figure.axes[0].lines), 'matplotlib.pyplot' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.returncode, done.stdout.strip()) == (0, "11 False"), done.stderr


def test_published_and_doubtful_ceilings_are_called_so() -> None:
    """In the static form and in the figure; the best of a quiet machine need no remark."""
    from tileworkbench.viz.widgets.figure import roofline_figure

    ceilings = tuple(replace(ceiling, threads=0) for ceiling in SIMPLE.ceilings)
    doubt = "busy or shared machine: ceilings are the best seen, ±31 %"
    for machine, caption in (
        (SIMPLE, "m"),
        (replace(SIMPLE, name="a GPU", ceilings=ceilings), "a GPU, published numbers"),
        (replace(SIMPLE, doubt=f"{doubt} (it was)"), f"m; {doubt}"),
    ):
        assert machine.caption == caption
        assert f">{caption}</div>" in roofline_html([POINT], machine)
        assert roofline_figure([POINT], machine).axes[0].get_title() == caption


def test_names_in_the_figure_stand_where_there_is_room() -> None:
    from tileworkbench.viz.widgets.figure import roofline_figure

    far = replace(POINT, name="far", flops=1e9, traffic=(("L1", 1e6), ("DRAM", 9e5)))
    near = replace(POINT, name="near", flops=1e3, traffic=(("L1", 1e6), ("DRAM", 1e3)))
    axes = roofline_figure([far, near], MACHINE).axes[0]
    names = {text.get_text(): text for text in axes.texts}
    places = {
        name[:3]: axes.transData.transform(text.get_position())[0]
        for name, text in names.items()
        if ":" in name
    }
    spots = {
        each.name: axes.transData.transform((each.intensity, each.gflops))[0]
        for each in (far, near)
    }
    assert places["far"] < spots["far"] and places["nea"] > spots["near"]
    assert "L1, DRAM" in names and "L1" in names and "DRAM" in names


def test_figure_of_several_kernels_with_levels_and_trail() -> None:
    pytest.importorskip("matplotlib")
    from tileworkbench.viz.widgets.figure import roofline_figure

    traffic = (("L1", 4 * POINT.bytes_), ("DRAM", POINT.bytes_))
    steps = tuple(Step(n, 1e9, 1e6, 900.0 / n, False) for n in (1, 2))
    first = replace(POINT, traffic=traffic, trail=Trail(3, (), steps))
    second = replace(POINT, name="other", predicted=True, time_us=2 * POINT.time_us)
    axes = roofline_figure([first, second], MACHINE).axes[0]
    markers = [line.get_marker() for line in axes.lines]
    assert [marker for marker in markers if marker not in ("None", "")] == [*("D", "o", "o")]
    texts = [text.get_text() for text in axes.texts]
    assert {"L1", "DRAM", "1", "2"} <= set(texts) and any("other" in text for text in texts)
    colours = [line.get_color() for line in axes.lines if line.get_marker() == "o"]
    assert len(set(colours)) == 2
    many = [replace(POINT, name=str(n), time_us=float(n + 5)) for n in range(9)]
    named = [text.get_text() for text in roofline_figure(many, MACHINE).axes[0].texts]
    assert sum("GFLOP/s, " in text or " %" in text for text in named) == 1


def test_versions_that_are_about_as_fast_stand_apart() -> None:
    """In the drawing and the figure: no number lies on another, each has a line to its place."""
    pytest.importorskip("matplotlib")
    from tileworkbench.viz.widgets.figure import roofline_figure

    one = POINT.time_us
    steps = tuple(Step(n, POINT.flops, POINT.bytes_, one * (1 + n / 1000), False) for n in range(8))
    point = replace(POINT, trail=Trail(9, (), steps))
    root = ElementTree.fromstring(roofline_svg([point], MACHINE))
    badges = [each for each in root.iter() if each.get("data-step")]
    spots = [(float(g[0].get("cx", 0)), float(g[0].get("cy", 0))) for g in badges]
    (own,) = [each for each in root.iter() if each.get("data-point")]
    spots.append((float(own.get("cx", 0)), float(own.get("cy", 0))))
    assert len(spots) == 9
    assert min(dist(a, b) for a, b in combinations(spots, 2)) > 16.8
    named = [each for each in root.iter() if (each.text or "").startswith(f"{POINT.name}: ")]
    (name,) = [each for each in named if each.tag.endswith("text")]
    x, y, text = float(name.get("x", 0)), float(name.get("y", 0)) - 3.5, name.text or ""
    letters = Name(x, y, 6 * len(text), 12).corners()
    assert all(is_apart(letters, Name(u, v, 16, 16).corners()) for u, v in spots[:-1])
    assert max(dist(spot, spots[-1]) for spot in spots) < 60
    figure = roofline_figure([point], MACHINE)
    figure.canvas.draw()
    numbers = [text for text in figure.axes[0].texts if text.get_text().isdigit()]
    ends = [tuple(text.xyann) for text in numbers]
    assert len(ends) == 8 and min(dist(a, b) for a, b in combinations(ends, 2)) > 11


def figure_names(figure: Figure) -> dict[str, Shape]:
    """The boxes of a figure's names as they are drawn, in pixels; numbers of versions left out."""
    figure.draw_without_rendering()
    boxes = {}
    for number, text in enumerate(figure.axes[0].texts):
        if not text.get_text() or text.get_text().isdigit():
            continue
        turned = text.get_window_extent()
        x, y = (turned.x0 + turned.x1) / 2, (turned.y0 + turned.y1) / 2
        angle = text.get_rotation()
        text.set_rotation(0)
        flat = text.get_window_extent()
        text.set_rotation(angle)
        boxes[f"{text.get_text()} ({number})"] = Name(
            x, y, flat.width, flat.height, angle
        ).corners()
    return boxes


@pytest.mark.parametrize("name", [name for name in crowded() if "rows" not in name])
def test_names_in_a_figure_lie_on_no_line_and_on_no_other(name: str) -> None:
    points, machine = crowded()[name]
    figure = roofline_figure(points, machine)
    figure.set_dpi(150)  # as it may be saved
    names = figure_names(figure)
    axes = figure.axes[0]
    for one, other in combinations(names, 2):
        assert is_apart(names[one], names[other]), (one, other)
    for line in axes.lines:
        spots = [(float(x), float(y)) for x, y in axes.transData.transform(line.get_xydata())]
        for ends in pairwise(spots):
            for text, shape in names.items():
                assert is_apart(shape, ends), (text, line.get_label())
    frame = axes.get_window_extent()
    for text, shape in names.items():
        assert all(frame.x0 <= x <= frame.x1 and frame.y0 <= y <= frame.y1 for x, y in shape), text
    # Every roof of all threads has its name, and so has each point.
    full = [each for each in machine.ceilings if each.threads == machine.threads]
    drawn = {each.name for each in relevant_ceilings(points, machine).ceilings if each in full}
    assert drawn <= {text.split()[0] for text in names}
    assert all(any(text.startswith(f"{each.name}: ") for text in names) for each in points)


@pytest.mark.parametrize("name", list(crowded()))
def test_the_roofs_that_points_are_held_against_are_named(name: str) -> None:
    points, machine = crowded()[name]
    root = ElementTree.fromstring(roofline_svg(points, machine))
    texts = [node.text or "" for node in root.iter() if node.tag.endswith("text")]
    for each in points:
        for needed in (each.level, each.dtype):
            assert any(text.startswith(f"{needed} ") and "/s" in text for text in texts), needed
        assert any(text.startswith(f"{each.name}: ") for text in texts)


def test_each_share_says_of_which_bytes_it_is() -> None:
    traffic = (("L1", 4e6), ("DRAM", 5e5))
    made = Point("k", 1e6, 1e6, 200.0, "float32", "DRAM", traffic=traffic, cold=True)
    machine = replace(SIMPLE, ceilings=(*SIMPLE.ceilings, Ceiling("L1", 100.0, BANDWIDTH, 1)))
    assert "50 % of the 10 GFLOP/s that the DRAM bandwidth allows, each tensor moved once." in (
        judge(made, machine).sentence
    )
    told = explain_levels(made, machine)
    assert told.endswith(
        "The point is for 976.6 KiB, each tensor moved once, the diamond of DRAM for the 488.3 KiB "
        "that it moves."
    )
    same = replace(made, traffic=(("L1", 4e6), ("DRAM", 1e6)))
    assert "The point is for" not in explain_levels(same, machine)


def test_of_many_points_the_fastest_is_named_and_told_of() -> None:
    many = [replace(POINT, name=f"n{n}", time_us=POINT.time_us * (9 - n)) for n in range(8)]
    root = ElementTree.fromstring(roofline_svg(many, MACHINE))
    spaces = "{http://www.w3.org/2000/svg}"
    labels = [node.text or "" for node in root.iter(f"{spaces}text")]
    assert [label for label in labels if label.startswith("n")] == [
        label for label in labels if label.startswith("n7: ")
    ]
    assert sum(1 for _ in root.iter(f"{spaces}circle")) == 8
    assert [row["name"] for row in roofline_model(many, MACHINE)["points"]] == ["n7"]


def test_verdict_tells_what_the_model_expected() -> None:
    found = judge(point(2.0, 15.0, predicted_us=0.5), SIMPLE)
    assert found.sentence.endswith(" It took 1 µs; the model of this machine expects 500 ns.")


def test_operations_on_integers_are_no_flop() -> None:
    """In words, on the axes, on the roofs and in the table."""
    peaks = tuple(Ceiling(name, 100.0, "GFLOP/s", 1) for name in ("int8", "float32"))
    machine = Machine("m", (Ceiling("DRAM", 10.0, "GB/s", 1), *peaks))
    point = Point("k", 1e6, 1e4, 20.0, "int8", "DRAM", 1)
    model = roofline_model([point], machine)
    [row] = model["points"]
    assert (row["achieved"], row["attainable"]) == ("50 GOP/s", "100 GOP/s")
    assert "At 100 OP/B" in row["sentence"] and "FLOP" not in row["sentence"] + model["svg"]
    assert [row["values"] for row in model["ceilings"]["rows"]] == [
        ["10 GB/s"],
        ["100 GOP/s"],
        ["100 GFLOP/s"],
    ]
    mixed = roofline_svg([point, replace(point, dtype="float32")], machine)
    assert ">GFLOP/s</text>" in mixed and "100 GOP/s" in mixed
    [axes] = roofline_figure([point], machine).axes
    assert axes.get_ylabel() == "GOP/s"
    assert not any("FLOP" in text.get_text() for text in axes.texts)


def test_shared_memory_has_what_was_seen() -> None:
    memory = Ceiling("DRAM", 90.3, "GB/s", 2, 0.01, low=52.1, shared=True)
    note = roofline_model([], Machine("m", (memory,), "by hand"))["note"]
    assert note == (
        "best seen of DRAM, on which other guests of the host may draw too. Seen so far: DRAM, "
        "2 threads: 52.1 to 90.3 GB/s. by hand"
    )


def test_cold_and_warm_times_are_not_compared() -> None:
    warm, cold = POINT, replace(POINT, name="other", cold=True, time_us=2 * POINT.time_us)
    assert roofline_view._ratios([warm, cold]) == [
        f"other was measured with cold caches, {POINT.name} measured: times with cold and with "
        "warm caches are not compared."
    ]
    assert "2.00 times as slow" in roofline_view._ratios([replace(warm, cold=True), cold])[0]
    drawn = roofline_svg([cold], MACHINE)
    assert ", cold caches" in drawn and ", cold caches" not in roofline_svg([warm], MACHINE)


def test_levels_are_those_that_were_counted() -> None:
    traffic = (("L1", 4e6), ("DRAM", 1e6))
    counted = Counted(
        "counted somehow",
        (CountedLevel("L1", 6e6, 0.0, 2e6), CountedLevel("DRAM", 5e5, 1e5, 5e5)),
    )
    point = replace(POINT, traffic=traffic, counted=counted)
    assert [(each.name, each.bytes_) for each in levels_of(point, MACHINE)] == [
        ("L1", 8e6),
        ("DRAM", 1e6),
    ]
    model = roofline_view.traffic_model(point)
    assert model["note"] == "counted somehow"
    assert [row["difference"] for row in model["rows"]] == ["+100 %", "+0 %"]
    refused = replace(POINT, traffic=traffic, counted=Counted("not counted: why"))
    assert [each.bytes_ for each in levels_of(refused, MACHINE)] == [4e6, 1e6]
    assert roofline_view.traffic_model(refused) == {"note": "not counted: why", "rows": []}


def test_what_is_saved_of_a_prediction_does_not_depend_on_the_host() -> None:
    counted = Counted("counted in part", (CountedLevel("DRAM", 5e5, 0.0, 5e5),))
    measured = replace(POINT, counted=counted)
    assert "counted in part" in roofline_html([measured], MACHINE)
    predicted = replace(measured, predicted=True)
    assert "counted in part" not in roofline_html([predicted], MACHINE)
    assert roofline_model([predicted], MACHINE)["points"][0]["traffic"]["note"] == counted.note


def test_doubts_are_said_in_short_and_reasons_beside_the_ceilings() -> None:
    doubt = "busy or shared machine: ceilings are the best seen, ±5 %"
    made = roofline_model([], replace(MACHINE, doubt=f"{doubt} (other programs took 3 %)"))
    assert made["brief"] == doubt
    assert "other programs took 3 %" in made["note"]
