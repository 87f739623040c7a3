"""What is drawn is where, and has the colour that, its numbers say."""

from __future__ import annotations

import itertools
import math
import zlib
from base64 import b64decode
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.viz.sample import full_view
from tileworkbench.bench.points import (
    Ceiling,
    Machine,
    Point,
    judge,
    relevant_ceilings,
)
from tileworkbench.bench.units import format_bytes, format_count, format_percent, format_time
from tileworkbench.compiler.layout import Fragment, Layout
from tileworkbench.viz.model import diff
from tileworkbench.viz.model.layout import elements_of
from tileworkbench.viz.model.layout_pictures import tensor_picture
from tileworkbench.viz.model.layout_svg import grid_svg
from tileworkbench.viz.model.layout_tables import banks, grid_shape
from tileworkbench.viz.model.palette import category_colours, sequence_colours
from tileworkbench.viz.model.passes import PassBrowser
from tileworkbench.viz.model.roofline_svg import roofline_svg
from tileworkbench.viz.model.roofline_view import roofline_model
from tileworkbench.workbench.results import BufferLayout

SVG = "{http://www.w3.org/2000/svg}"


# Pictures of layouts


def cells(buffer: BufferLayout) -> np.ndarray:
    """The colour of each cell of a layout's picture, which has a pixel for each."""
    drawing, _ = grid_svg(tensor_picture(buffer))
    image = b64decode(drawing.split("data:image/png;base64,")[1].split('"')[0])
    width, height = (int.from_bytes(image[at : at + 4], "big") for at in (16, 20))
    down, across, _ = grid_shape(buffer.layout.shape)
    assert (width, height) == (min(across, 256), min(down, 256))
    size = int.from_bytes(image[33:37], "big")
    rows = np.frombuffer(zlib.decompress(image[41 : 41 + size]), np.uint8)
    return rows.reshape(height, 1 + 3 * width)[:, 1:].reshape(height, width, 3)


def test_a_fragment_is_coloured_by_thread() -> None:
    fragment = Fragment((8, 8), lambda i, j: (j * 8 + i, 0))
    threads = np.arange(64).reshape(8, 8).T
    assert (cells(BufferLayout("f", fragment)) == category_colours(threads)).all()


def test_memory_is_coloured_by_bank_and_by_address() -> None:
    layout = Layout.row_major((4, 64))
    addresses = np.arange(256).reshape(4, 64)
    assert (cells(BufferLayout("a", layout)) == sequence_colours(addresses % 32, 31)).all()
    halves = cells(BufferLayout("a", layout, element_bytes=2))
    assert (halves == sequence_colours(addresses // 2 % 32, 31)).all()
    plain = cells(BufferLayout("a", layout, banked=False))
    assert (plain == sequence_colours(addresses, 255)).all()


def test_a_large_buffer_shows_its_first_elements() -> None:
    layout = Layout.row_major((2, 300))
    shown = np.arange(600).reshape(2, 300)[:, :256]
    found = cells(BufferLayout("a", layout, banked=False))
    assert (found == sequence_colours(shown, 599)).all()


def test_one_dimension_is_wrapped() -> None:
    found = cells(BufferLayout("x", Layout.row_major((40,)), banked=False))
    expected = np.array([*range(40), *[-1] * 24]).reshape(2, 32)
    assert (found == sequence_colours(expected, 39)).all()


@pytest.mark.parametrize(
    ("address", "element_bytes", "bank"),
    [
        *((0, 4, 0), (31, 4, 31), (32, 4, 0), (1, 2, 0), (63, 2, 31), (64, 2, 0), (1, 8, 2)),
        *((16, 8, 0), (3, 1, 0), (4, 1, 1), (-1, 4, -1)),
    ],
)
def test_banks_are_words_of_four_bytes(address: int, element_bytes: int, bank: int) -> None:
    assert banks(np.array([address]), element_bytes).tolist() == [bank]


def test_every_thread_has_its_elements() -> None:
    fragment = Fragment((4, 2), lambda i, j: (i, j))
    found = [elements_of(fragment, thread) for thread in range(-1, 5)]
    assert found == [[], *([[i, 0], [i, 1]] for i in range(4)), []]


# Differences


LINES = st.lists(st.sampled_from(["a b c d", "a b c e", "a b x", "p q r", "p q s"]), max_size=4)


@given(LINES, LINES)
def test_lines_stand_beside_the_most_like_ones(before: list[str], after: list[str]) -> None:
    """No other pairing in order is more alike."""
    pairs = diff._pair(before, after)
    assert all(a < b and c < d for (a, c), (b, d) in itertools.pairwise(pairs))
    left, right = diff._bags(before), diff._bags(after)
    alike = {
        (i, j): value
        for i, j in itertools.product(range(len(before)), range(len(after)))
        if (value := diff._likeness(left[i], right[j])) >= diff._ALIKE
    }
    assert set(pairs) <= set(alike)
    best = 0.0
    for count in range(min(len(before), len(after)) + 1):
        for i in itertools.combinations(range(len(before)), count):
            for j in itertools.combinations(range(len(after)), count):
                chosen = list(zip(i, j, strict=True))
                if set(chosen) <= set(alike):
                    best = max(best, sum(alike[pair] for pair in chosen))
    assert sum(alike[pair] for pair in pairs) == pytest.approx(best)


@pytest.mark.parametrize(
    ("one", "other", "value"),
    [("a b", "a b", 1.0), ("a b", "a c", 0.5), ("a", "b", 0.0), ("", "", 1.0), ("a a", "a", 2 / 3)],
)
def test_likeness_counts_shared_words(one: str, other: str, value: float) -> None:
    (left,), (right,) = diff._bags([one]), diff._bags([other])
    assert diff._likeness(left, right) == pytest.approx(value)


def test_lines_of_both_sides_are_numbered_from_one() -> None:
    browser = PassBrowser(full_view().record)
    for index in range(1, len(browser)):
        rows = browser.diff(index)["rows"]
        for side, lines in (("before", browser.lines(index - 1)), ("after", browser.lines(index))):
            numbers = [row[side]["number"] for row in rows if side in row]
            assert numbers == list(range(1, len(lines) + 1))


# The roofline

MACHINE = Machine(
    "m",
    (
        Ceiling("L1", 400.0, "GB/s", 2),
        Ceiling("DRAM", 20.0, "GB/s", 2),
        Ceiling("DRAM", 10.0, "GB/s", 1),
        Ceiling("float32", 1000.0, "GFLOP/s", 2),
        Ceiling("float32", 500.0, "GFLOP/s", 1),
    ),
)


def point(intensity: float, gflops: float, dtype: str = "float32", **changes: int) -> Point:
    """A point of a microsecond."""
    return Point("p", gflops * 1e3, gflops * 1e3 / intensity, 1.0, dtype, "DRAM", **changes)


class Plot:
    """A drawing read back through the numbers at its axes."""

    def __init__(self, *points: Point) -> None:
        self.root = ElementTree.fromstring(roofline_svg(points, MACHINE))
        texts = [node for node in self.root.iter(f"{SVG}text") if not node.get("transform")]
        ticks = [(node, v) for node in texts if (v := number(node.text or "")) is not None]
        left = [(node, v) for node, v in ticks if node.get("text-anchor") == "end"]
        below = [(node, v) for node, v in ticks if node.get("text-anchor") != "end"]
        self.x = scale([(float(node.get("x", 0)), v) for node, v in below])
        self.y = scale([(float(node.get("y", 0)) - 4, v) for node, v in left])

    def circles(self) -> list[tuple[float, float]]:
        """Intensity and GFLOP/s of each point."""
        found = self.root.iter(f"{SVG}circle")
        return [(self.x(float(c.get("cx", 0))), self.y(float(c.get("cy", 0)))) for c in found]

    def roofs(self) -> dict[str, tuple[tuple[float, float], tuple[float, float]]]:
        """Both ends of each ceiling, by its title."""
        lines = {node.findtext(f"{SVG}title"): node for node in self.root.iter(f"{SVG}line")}
        return {title: self.ends(node) for title, node in lines.items() if title}

    def ends(self, line: ElementTree.Element) -> tuple[tuple[float, float], tuple[float, float]]:
        x1, y1, x2, y2 = (float(line.get(name, 0)) for name in ("x1", "y1", "x2", "y2"))
        return (self.x(x1), self.y(y1)), (self.x(x2), self.y(y2))


def number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def scale(ticks: list[tuple[float, float]]):
    """Pixels to numbers, by the first and the last tick; the others must lie between them."""
    ticks.sort()
    (low, first), (high, last) = ticks[0], ticks[-1]
    per_pixel = math.log10(last / first) / (high - low)

    def read(pixel: float) -> float:
        return first * 10 ** ((pixel - low) * per_pixel)

    assert [read(pixel) for pixel, _ in ticks] == pytest.approx([v for _, v in ticks], rel=0.01)
    return read


def test_points_and_roofs_lie_where_the_axes_say() -> None:
    plot = Plot(point(2.0, 15.0), point(300.0, 900.0))
    expected = [(2.0, 15.0), (300.0, 900.0)]
    for found, place in zip(plot.circles(), expected, strict=True):
        assert found == pytest.approx(place, rel=0.01)
    roofs = plot.roofs()
    assert len(roofs) == 5
    for title, bandwidth, peak in (
        ("L1 400 GB/s, 2 threads", 400.0, 1000.0),
        ("DRAM 20 GB/s, 2 threads", 20.0, 1000.0),
        ("DRAM 10 GB/s, 1 thread", 10.0, 500.0),
    ):
        low, high = roofs[title]
        assert low[1] == pytest.approx(low[0] * bandwidth, rel=0.02)
        assert high == pytest.approx((peak / bandwidth, peak), rel=0.02)  # its ridge
    for title, bandwidth, peak in (
        ("float32 1 TFLOP/s, 2 threads", 400.0, 1000.0),
        ("float32 500 GFLOP/s, 1 thread", 10.0, 500.0),
    ):
        low, high = roofs[title]
        assert low == pytest.approx((peak / bandwidth, peak), rel=0.02)
        assert high[1] == pytest.approx(peak, rel=0.02) and high[0] > 300.0


def test_a_line_leads_from_a_point_to_its_roof() -> None:
    plot = Plot(point(2.0, 15.0))
    (line,) = [n for n in plot.root.iter(f"{SVG}line") if n.get("stroke-dasharray") == "2 3"]
    low, high = plot.ends(line)
    assert low == pytest.approx((2.0, 15.0), rel=0.01)
    assert high == pytest.approx((2.0, 40.0), rel=0.01)


def test_ceilings_of_fewer_threads_are_dashed() -> None:
    plot = Plot(point(2.0, 15.0))
    dashed = {
        node.findtext(f"{SVG}title")
        for node in plot.root.iter(f"{SVG}line")
        if node.get("stroke-dasharray") == "5 4"
    }
    assert dashed == {"DRAM 10 GB/s, 1 thread", "float32 500 GFLOP/s, 1 thread"}


def test_a_points_label_says_its_rate_and_fraction() -> None:
    texts = [node.text for node in Plot(point(2.0, 15.0)).root.iter(f"{SVG}text")]
    assert "p: 15 GFLOP/s, 38 %" in texts


@pytest.mark.parametrize(
    ("fraction", "text"),
    [(0.004, "0.4 %"), (0.0999, "10 %"), (0.1, "10 %"), (0.554, "55 %"), (1.0, "100 %")],
)
def test_percents(fraction: float, text: str) -> None:
    assert format_percent(fraction) == text


def test_the_ridge_itself_is_bound_by_compute() -> None:
    assert judge(point(50.0, 100.0), MACHINE).bound == "compute"
    assert judge(point(49.9, 100.0), MACHINE).bound == "memory"


def test_the_ridge_is_written_with_two_digits() -> None:
    sentence = judge(point(9.96, 100.0), MACHINE).sentence
    assert "At 10 FLOP/B it is left of the ridge at 50," in sentence


def test_traffic_alone_is_shown_in_bytes() -> None:
    copy = Point("copy", 0.0, 15e3, 1.0, "float32", "DRAM")
    (shown,) = roofline_model([copy], MACHINE)["points"]
    assert (shown["achieved"], shown["attainable"]) == ("15 GB/s", "20 GB/s")
    (shown,) = roofline_model([point(2.0, 15.0)], MACHINE)["points"]
    assert (shown["achieved"], shown["attainable"]) == ("15 GFLOP/s", "40 GFLOP/s")


def test_what_moves_nothing_has_infinite_intensity() -> None:
    assert Point("k", 5.0, 0.0, 1.0, "float32", "DRAM").intensity == math.inf


def test_peaks_of_unused_types_are_dropped_only_beside_points() -> None:
    other = Machine("m", (*MACHINE.ceilings, Ceiling("int8", 4000.0, "GFLOP/s", 2)))
    assert relevant_ceilings([point(1.0, 1.0)], other) == MACHINE
    assert relevant_ceilings([], other) == other


# Numbers as text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        *((0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (2**20, "1.0 MiB")),
        *((2**30, "1.0 GiB"), (2**40, "1.0 TiB"), (2**50, "1024.0 TiB")),
    ],
)
def test_bytes_as_text(count: float, text: str) -> None:
    assert format_bytes(count) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        *((0, "0"), (950, "950"), (999.4, "999"), (999.5, "1 k"), (33.6e6, "33.6 M")),
        *((2.147e9, "2.15 G"), (1e12, "1 T"), (5e15, "5 P"), (5e18, "5000 P"), (0.0833, "0.0833")),
        *((-1500, "-1.5 k"), (1e-7, "1e-07")),
    ],
)
def test_counts_as_text(count: float, text: str) -> None:
    assert format_count(count) == text


@pytest.mark.parametrize(
    ("time_us", "text"),
    [
        *((0.84, "840 ns"), (1.0, "1 µs"), (41.2, "41.2 µs"), (999.0, "999 µs"), (1e3, "1 ms")),
        *((3400.0, "3.4 ms"), (1e6, "1 s"), (1.2e9, "1200 s")),
    ],
)
def test_times_as_text(time_us: float, text: str) -> None:
    assert format_time(time_us) == text
