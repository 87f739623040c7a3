"""Where names stand: geometry against sampled points, and the order of ways."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as some

from tileworkbench.viz.model.labels import Name, Room, Shape, along, around, beside, box, is_apart

_numbers = some.floats(-40, 40)
_names = some.builds(
    Name, _numbers, _numbers, some.floats(2, 50), some.floats(2, 15), some.floats(-90, 90)
)
_lines = some.tuples(some.tuples(_numbers, _numbers), some.tuples(_numbers, _numbers))


def is_inside(name: Name, x: float, y: float) -> bool:
    """Whether a point lies in a name's box, by turning the point back."""
    turn = math.radians(-name.angle)
    u, v = x - name.x, y - name.y
    along_, across = (
        u * math.cos(turn) - v * math.sin(turn),
        u * math.sin(turn) + v * math.cos(turn),
    )
    return abs(along_) < name.width / 2 - 1e-6 and abs(across) < name.height / 2 - 1e-6


def sampled(shape: Shape, count: int = 40) -> list[tuple[float, float]]:
    """Points on the edges of a shape."""
    ends = zip(shape, (*shape[1:], shape[0]), strict=True)
    parts = [part / count for part in range(count + 1)]
    return [(a + (c - a) * p, b + (d - b) * p) for (a, b), (c, d) in ends for p in parts]


@given(_names, some.one_of(_names.map(Name.corners), _lines))
def test_what_is_apart_has_no_point_in_common(name: Name, other: Shape) -> None:
    shape = name.corners()
    assert is_apart(shape, other) == is_apart(other, shape)
    if is_apart(shape, other):
        assert not any(is_inside(name, x, y) for x, y in sampled(other))


@given(_names, _lines)
def test_what_has_no_point_in_common_is_apart(name: Name, line: Shape) -> None:
    """Of a line: finely sampled in a box that is a little larger."""
    larger = Name(name.x, name.y, name.width + 2, name.height + 2, name.angle)
    if not any(is_inside(larger, x, y) for x, y in sampled(line, 300)):
        assert is_apart(name.corners(), line)


def test_a_gap_is_kept() -> None:
    one, other = box(0, 0, 5, 5), box(12, 0, 5, 5)
    assert is_apart(one, other, 2) and not is_apart(one, other, 2.5)


@pytest.mark.parametrize("up", [1, -1])
def test_names_of_a_line_are_above_it_first_and_never_upside_down(up: int) -> None:
    for end in ((200.0, 80.0 * up), (-200.0, 80.0 * up), (200.0, 0.0), (-200.0, 0.0)):
        ways = list(along((0.0, 0.0), end, 50, 12, up))
        assert all(abs(way.angle) <= 90 for way in ways)
        assert all(is_apart(way.corners(), ((0.0, 0.0), end), 1.9) for way in ways)
        heights = [(way.y - way.x * end[1] / end[0]) * up for way in ways]
        assert all(each > 0 for each in heights[: len(ways) // 2])
        assert all(each < 0 for each in heights[len(ways) // 2 :])
    assert list(along((0.0, 0.0), (40.0, 0.0), 50, 12, up)) == []


def test_names_that_are_far_are_tied_to_what_they_name() -> None:
    near, *_, far = around((0.0, 0.0), 30, 12, -1, 60)
    assert near.tie() == () and near.y < 0
    spot, end = far.tie()
    assert spot == (0.0, 0.0) and is_apart(box(*end, 0.1, 0.1), box(*spot, 16, 16)) is True
    assert all(way.tie() for way in beside((0.0, 0.0), (100.0, 50.0), 30, 12, -1, 60))


def test_a_room_fills_and_says_so() -> None:
    room = Room((0, 100, 0, 20), gap=1.0)
    ways = [Name(25, 10, 40, 12), Name(70, 10, 40, 12), Name(50, 40, 40, 12)]
    assert [room.find(ways) for _ in range(3)] == [ways[0], ways[1], None]  # outside is no room


def test_no_tie_crosses_a_name() -> None:
    room = Room((0, 200, 0, 200), gap=0.0)
    assert room.find([Name(50, 50, 30, 12)]) is not None
    crossing = Name(50, 100, 30, 12, spot=(50.0, 10.0))
    clear = Name(120, 100, 30, 12, spot=(120.0, 10.0))
    assert room.find([crossing, clear]) == clear
    assert room.find([Name(120, 50, 30, 12)]) is None  # nor does a name lie on a tie
