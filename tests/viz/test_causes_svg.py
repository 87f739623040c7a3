"""Time by cause drawn as bars, and memory levels as marks."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import pytest

from tests.viz.sample import MACHINE, POINT
from tests.viz.sanitiser import problems
from tileworkbench.bench.parts import Causes, Part
from tileworkbench.bench.points import explain_levels, levels_of
from tileworkbench.viz.model.causes_svg import causes_svg, unexplained
from tileworkbench.viz.model.roofline_svg import roofline_svg
from tileworkbench.viz.model.roofline_view import roofline_html, roofline_model
from tileworkbench.viz.model.svg import still

SVG = "{http://www.w3.org/2000/svg}"
CAUSES = Causes(
    (Part("compute", 3.0, "core", 4), Part("DRAM", 4.0, "memory", 5), Part("launch", 1.0)),
    "a model",
)


def boxes(markup: str) -> dict[str, float]:
    """The widths of the boxes of causes."""
    root = ElementTree.fromstring(markup)
    found = [node for node in root.iter(f"{SVG}rect") if node.get("data-cause")]
    return {str(node.get("data-cause")): float(node.get("width") or 0) for node in found}


def test_boxes_are_as_wide_as_their_shares() -> None:
    widths = boxes(causes_svg(CAUSES))
    shares = CAUSES.by_cause()
    assert list(widths) == list(shares)
    assert sum(widths.values()) == pytest.approx(586, abs=1)
    assert widths["DRAM"] / widths["compute"] == pytest.approx(16 / 9, rel=0.01)


def test_lines_have_parts_of_a_cause() -> None:
    """In the page alone: an image is neither pointed at nor marked."""
    parts = (Part("L2", 3.0, "memory", 4), Part("L2", 1.0, "memory", 5), Part("launch", 1.0))
    drawing = causes_svg(Causes((*parts, Part("L2", 2.0, "memory", 5))))
    root = ElementTree.fromstring(drawing)
    [whole] = (node for node in root.iter(f"{SVG}rect") if node.get("data-cause") == "L2")
    found = [node for node in root.iter(f"{SVG}rect") if node.get("data-line")]
    assert [(node.get("data-line"), node.get("data-us")) for node in found] == [
        ("4", "3"),
        ("5", "3"),
    ]
    assert [node.findtext(f"{SVG}title") for node in found] == [
        "line 4, L2: 3 µs, 43 %",
        "line 5, L2: 3 µs, 43 %",
    ]
    assert [float(node.get("x", 0)) - float(whole.get("x", 0)) for node in found] == [
        0.0,
        pytest.approx(float(whole.get("width", 0)) / 2, abs=0.2),
    ]
    assert "pointer-events" not in still(drawing) and still(drawing).count("<rect") == 5


def test_what_the_model_does_not_explain_is_shown() -> None:
    widths = boxes(causes_svg(CAUSES, 24.0))
    assert widths["unexplained"] == pytest.approx(586 * 18 / 24, abs=2)
    assert unexplained(CAUSES, 24.0) == (
        "Of 24 µs measured the model explains 6 µs; 75 % is unexplained."
    )


def test_a_measurement_below_the_prediction_explains_nothing_away() -> None:
    assert "unexplained" not in boxes(causes_svg(CAUSES, 4.0))
    assert unexplained(CAUSES, 4.0) == (
        "It took 4 µs, 2 µs less than the model expects: the model is too careful with this kernel."
    )


def test_bars_stand_in_the_view_and_in_its_page() -> None:
    point = replace(POINT, causes=CAUSES)
    [shown] = roofline_model([point], MACHINE)["points"]
    assert "data-cause" in shown["bars"] and shown["model"] == "a model"
    assert shown["unexplained"].startswith("Of ")
    page = roofline_html([point], MACHINE)
    assert "predicted time by cause: 6 µs (DRAM 3.2 µs, compute 1.8 µs, launch 1 µs)" in page
    assert shown["unexplained"] in page and problems(page) == []
    [predicted] = roofline_model([replace(point, predicted=True)], MACHINE)["points"]
    assert predicted["unexplained"] == "" and "unexplained" not in predicted["bars"]


def test_levels_have_marks_on_one_line_with_the_point() -> None:
    traffic = (("L1", 4 * POINT.bytes_), ("L2", 2 * POINT.bytes_), ("DRAM", POINT.bytes_))
    point = replace(POINT, traffic=traffic)
    levels = levels_of(point, MACHINE)
    assert [level.name for level in levels] == ["L1", "L2", "DRAM"]
    assert [level.intensity / point.intensity for level in levels] == pytest.approx([0.25, 0.5, 1])
    assert levels[0].gbytes == pytest.approx(4 * point.gbytes)
    root = ElementTree.fromstring(roofline_svg([point], MACHINE))
    marks = [node for node in root.iter(f"{SVG}path") if node.get("data-level")]
    assert [mark.get("data-level") for mark in marks] == ["L1", "L2", "DRAM"]
    text = explain_levels(point, MACHINE)
    nearest = max(levels, key=lambda level: level.fraction)
    assert f"of the levels {nearest.name} is nearest to its roof" in text
    assert text in roofline_html([point], MACHINE)


def test_names_of_levels_do_not_lie_on_each_other() -> None:
    traffic = (("L1", POINT.bytes_), ("L2", POINT.bytes_), ("DRAM", POINT.bytes_ / 10))
    root = ElementTree.fromstring(roofline_svg([replace(POINT, traffic=traffic)], MACHINE))
    texts = [node.text for node in root.iter(f"{SVG}text")]
    assert "L1, L2" in texts and "DRAM" in texts and "L1" not in texts


@pytest.mark.parametrize("letters", [1, 40, 90])
def test_a_name_is_near_its_point_however_long_it_is(letters: int) -> None:
    traffic = (("L1", 4 * POINT.bytes_), ("DRAM", POINT.bytes_))
    point = replace(POINT, name="n" * letters, traffic=traffic)
    root = ElementTree.fromstring(roofline_svg([point], MACHINE))
    [circle] = (node for node in root.iter(f"{SVG}circle") if node.get("data-point"))
    [label] = (node for node in root.iter(f"{SVG}text") if (node.text or "").startswith("n"))
    assert abs(float(label.get("y", 0)) - float(circle.get("cy", 0))) < 160
    assert len((label.text or "").split(":")[0]) == min(letters, 40)


def test_one_level_needs_no_explanation() -> None:
    point = replace(POINT, traffic=(("DRAM", POINT.bytes_),))
    assert explain_levels(point, MACHINE) == "" and "data-level" not in roofline_svg(
        [point], MACHINE
    )


def test_bars_have_their_times_and_every_cause_a_name() -> None:
    names = ("launch", "idle multiprocessors", "L2", "wavefronts", "compute", "DRAM", "latency")
    causes = Causes(tuple(Part(name, 2.0, "memory", 5) for name in names))
    drawing = ElementTree.fromstring(causes_svg(causes, 40.0))
    texts = ["".join(node.itertext()) for node in drawing.iter(f"{SVG}text")]
    assert {f"{name} 2 µs" for name in names} <= set(texts)
    assert "14 µs" in texts and "40 µs" in texts and "explained" in texts
    height = float(drawing.get("height", 0))
    assert max(float(node.get("y", 0)) for node in drawing.iter(f"{SVG}text")) < height
