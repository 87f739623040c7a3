"""The trail of a kernel: what was changed, which versions are kept, what a notebook gives back."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import pytest

from tests.viz.sample import MACHINE, POINT
from tests.viz.sanitiser import problems
from tileworkbench.bench.points import Step, Trail
from tileworkbench.viz.model.roofline_svg import roofline_svg
from tileworkbench.viz.model.roofline_view import roofline_html, roofline_model
from tileworkbench.viz.model.trail import KEPT, change_between, join_trails, next_trail
from tileworkbench.viz.widgets.roofline import RooflineWidget

SVG = "{http://www.w3.org/2000/svg}"
OLD = ("mm -t sim:sm_80 -D block_M=64 --show 'card, code'", "def mm():\n    a = 1\n    return a")
NEW = (
    "mm -t sim:sm_80 -D block_M=128 -a --show 'card, code'",
    "def mm():\n    a = 2\n    return a",
)


def test_a_change_has_flags_and_lines() -> None:
    assert change_between(OLD, NEW) == (
        *("- -D block_M=64", "+ -D block_M=128", "+ -a"),
        *("-     a = 1", "+     a = 2"),
    )
    assert change_between(OLD, OLD) == ()


def test_a_long_change_is_cut() -> None:
    text = "\n".join(f"line {number}" for number in range(30))
    found = change_between(("k", ""), ("k", text))
    assert len(found) == 13 and found[-1] == "and 18 lines more"


def trailed(versions: int) -> Trail:
    trail = Trail(1)
    for number in range(2, versions + 1):
        point = replace(POINT, time_us=1000.0 / number)
        trail = next_trail(trail, point, MACHINE, (f"+ version {number}",))
    return trail


def test_the_last_versions_are_kept() -> None:
    trail = trailed(40)
    assert trail.number == 40 and trail.change == ("+ version 40",)
    assert [step.number for step in trail.before] == list(range(41 - KEPT, 40))
    assert trail.before[-1].change == ("+ version 39",)
    assert {step.machine for step in trail.before} == {MACHINE.name}


def test_a_version_whose_place_is_not_known_leaves_a_gap() -> None:
    trail = next_trail(trailed(2), None, None, ("+ x",))
    assert trail.number == 3 and [step.number for step in trail.before] == [1]


def test_the_trail_is_drawn_and_told() -> None:
    point = replace(POINT, trail=trailed(4))
    root = ElementTree.fromstring(roofline_svg([point], MACHINE))
    groups = [node for node in root.iter(f"{SVG}g") if node.get("data-step")]
    assert [group.get("data-step") for group in groups] == ["1", "2", "3"]
    titles = [group.findtext(f"{SVG}title") or "" for group in groups]
    assert titles[1].splitlines() == ["2: 333 µs", "+ version 2"]
    [line] = root.iter(f"{SVG}polyline")
    assert len((line.get("points") or "").split()) == 4  # ends in the point itself
    page = roofline_html([point], MACHINE)
    assert "+ version 4" in page and f"the last {KEPT} are kept" in page and problems(page) == []
    [shown] = roofline_model([point], MACHINE)["points"]
    assert [step["number"] for step in shown["trail"]] == [1, 2, 3, 4]


def test_hostile_changes_are_text() -> None:
    point = replace(POINT, trail=replace(trailed(2), change=("+ </td><script>alert(1)</script>",)))
    assert "<script" not in roofline_html([point], MACHINE)
    step = replace(point.trail.before[0], change=("</title><script>",))
    svg = roofline_svg([replace(point, trail=replace(point.trail, before=(step,)))], MACHINE)
    ElementTree.fromstring(svg)


def test_versions_of_earlier_sessions_come_first() -> None:
    earlier = replace(POINT, trail=trailed(3))
    _, kept = join_trails(earlier, MACHINE.name, [], "monday")
    assert [(step["number"], step["session"]) for step in kept] == [
        (n, "monday") for n in (1, 2, 3)
    ]
    point, kept = join_trails(replace(POINT, trail=trailed(2)), MACHINE.name, kept, "tuesday")
    assert [step.number for step in point.trail.before] == [1, 2, 3, 4]
    assert point.trail.number == 5 and point.trail.before[2].change == ("+ version 3",)
    # An older card of the session is drawn again: its later version stays, and is not drawn.
    older, again_kept = join_trails(replace(POINT, trail=trailed(1)), MACHINE.name, kept, "tuesday")
    assert older.trail.number == 4
    assert [step["at"] for step in again_kept] == [step["at"] for step in kept] == [1, 2, 3, 1, 2]
    # The same session again: its own versions are not counted twice.
    again, kept = join_trails(replace(POINT, trail=trailed(2)), MACHINE.name, kept, "tuesday")
    assert again == point and len(kept) == 5


@pytest.mark.parametrize(
    "changed",
    [{"machine": "another"}, {"time_us": 0}, {"time_us": "x"}, {"flops": -1}, {"change": 3}],
)
def test_what_is_no_step_of_this_machine_is_left_out(changed: dict[str, object]) -> None:
    _, kept = join_trails(replace(POINT, trail=Trail(1)), MACHINE.name, [], "monday")
    point, _ = join_trails(
        *(replace(POINT, trail=Trail(1)), MACHINE.name, [{**kept[0], **changed}, 7, {}]), "tuesday"
    )
    assert point.trail.before == ()


def test_the_widget_joins_what_the_notebook_kept() -> None:
    widget = RooflineWidget([replace(POINT, trail=trailed(2))], MACHINE)
    _, kept = join_trails(replace(POINT, trail=trailed(3)), MACHINE.name, [], "earlier session")
    answer = widget.answers()["join-trails"]({"trails": {POINT.name: kept}})
    assert len(answer["kept"][POINT.name]) == 5
    assert widget.roofline["joined"]
    assert [step["number"] for step in widget.roofline["points"][0]["trail"]] == [1, 2, 3, 4, 5]


def test_a_step_without_bytes_has_no_place() -> None:
    trail = Trail(2, (), (Step(1, 1e6, 0.0, 5.0, True),))
    assert "data-step" not in roofline_svg([replace(POINT, trail=trail)], MACHINE)
