"""Sweeps: every combination is a point, also one that fails."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tests.viz.sanitiser import problems
from tileworkbench.compiler.diagnostics import ArgumentError, UnsupportedError
from tileworkbench.tuning.sweep import Sweep, SweepPoint
from tileworkbench.workbench.kernel import Kernel


@tw.jit(target="sim:sm_80")
def add(A, N: int = 256, block: int = 64, pad: int = 0):
    A: T.Tensor[[N], T.float32]
    B = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, block), threads=32) as bx:
        tile = T.alloc_shared((block + pad,), T.float32)
        for i in T.Parallel(block):
            tile[i] = A[bx * block + i]
        for i in T.Parallel(block):
            B[bx * block + i] = tile[i] + 1.0
    return B


def test_every_combination_is_a_point() -> None:
    seen: list[tuple[int, int]] = []
    found = tw.sweep(
        add, {"block": [32, 64], "pad": [0, 4, 8]}, progress=lambda *at: seen.append(at)
    )
    assert seen == [(number, 6) for number in range(6)]
    assert [tuple(point.config.values()) for point in found.points] == [
        (32, 0),
        (32, 4),
        (32, 8),
        (64, 0),
        (64, 4),
        (64, 8),
    ]
    assert [point.shared_bytes for point in found.points] == [128, 256, 256, 256, 384, 384]
    assert found.best is found.points[0] and not found.interrupted  # predicted alike
    assert found.to_dict()[1]["block"] == 32 and found.to_dict()[1]["pad"] == 4
    assert repr(found) == "<sweep of add sim:sm_80 | block=32,64 pad=0,4,8 | 6 points>"


def test_a_point_that_fails_is_listed_and_the_others_go_on() -> None:
    found = tw.sweep(add, {"block": [64, 100_000], "N": [128]})
    good, bad = found.points
    assert good.error == "" and good.kernel is not None
    assert bad.error.startswith("ResourceError: the block needs 400000 bytes of shared memory")
    assert "1 failed" in repr(found)
    page = found._repr_html_()
    assert "ResourceError" in str(found) and problems(page) == []
    assert page.count(">failed<") == 1 and "0 B" not in page  # in the heat map; the table says why


def test_times_choose_the_best_and_colour_the_heat_map() -> None:
    times = iter([30.0, 10.0, 20.0, 40.0])
    found = tw.sweep(add, {"block": [32, 64], "pad": [0, 4]}, bench=lambda kernel: next(times))
    assert found.best is not None and found.best.config == {"block": 32, "pad": 4}
    page = found._repr_html_()
    assert page.count("background-color:rgb(246,224,96)") == 1  # the fastest, the lightest colour
    assert "10 µs" in page and problems(page) == []


def test_ctrl_c_keeps_what_was_found() -> None:
    def bench(kernel: Kernel) -> float:
        if kernel.shared_memory and kernel.shared_memory.bytes_ > 256:
            raise KeyboardInterrupt
        return 1.0

    found = tw.sweep(add, {"block": [32, 64, 128]}, bench=bench)
    assert found.interrupted and [point.time_us for point in found.points] == [1.0, 1.0]
    assert str(found).endswith("interrupted after 2 of 3 points")
    early = replace(
        found, points=tuple(replace(p, time_us=math.nan) for p in found.points), total=2
    )
    assert str(early).endswith("interrupted after 2 of 2 points, 0 of them measured")


def test_nothing_is_measured_unless_asked() -> None:
    assert all(math.isnan(point.time_us) for point in tw.sweep(add, {"pad": [0]}).points)


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({}, "a sweep needs names with values\nhint: such as block_M=64,128"),
        ({"block": []}, "a sweep needs names with values\nhint: such as block_M=64,128"),
        ({"blok": [1]}, "'blok' is no compile-time argument of 'add'"),
        ({"A": [1]}, "'A' is no compile-time argument of 'add'"),
        (
            {"block": 64},
            "'block' has 64 for its values, which is no list\nhint: such as {'block': [64]}",
        ),
        (
            {"block": "64"},
            "'block' has '64' for its values, which is no list\nhint: such as {'block': ['64']}",
        ),
        (
            {"block": range(200), "pad": range(100)},
            "a sweep of 20000 points is too large: at most 10000",
        ),
    ],
)
def test_what_cannot_be_swept(axes: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        tw.sweep(add, axes)
    assert str(caught.value) == message


def test_a_constant_that_nothing_takes() -> None:
    with pytest.raises(ArgumentError) as caught:
        tw.sweep(add, {"block": [32]}, constants={"pads": 0})
    assert str(caught.value) == "'pads' is no compile-time argument of 'add'"


def test_a_value_that_is_there_twice_counts_once() -> None:
    found = tw.sweep(add, {"block": [32, 64, 32], "pad": [0, False]})
    assert [point.config for point in found.points] == [
        {"block": block, "pad": pad} for block in (32, 64) for pad in (0, False)
    ]


def test_names_that_are_missing() -> None:
    @tw.jit
    def scale(A, factor):
        M = T.const("M")
        A: T.Tensor[[M], T.float32]
        with T.Kernel(1, threads=32):
            for i in T.Parallel(M):
                A[i] = A[i] * factor

    with pytest.raises(ArgumentError) as caught:
        tw.sweep(scale, {"factor": [1.0, 2.0]})
    assert str(caught.value) == "'scale' still needs M"


def test_points_under_their_roofs() -> None:
    found = tw.sweep(add, {"block": [32, 64], "N": [1 << 20]})
    machine, points = found.roofline()
    assert machine is not None and machine.name.startswith("A100")
    assert [point.name for point in points] == ["block=32 N=1048576", "block=64 N=1048576"]
    assert all(point.predicted and point.causes is not None for point in points)
    assert [point.time_us for point in points] == [each.predicted_us for each in found.points]
    page = found._repr_html_()
    assert "<b>Roofline</b>" in page and problems(page) == []
    widget = tw.roofline(found)
    assert len(widget.roofline["points"]) == 2
    assert widget.figure().axes[0].get_title() == f"{machine.name}, published numbers"


def test_measured_points_have_their_times() -> None:
    times = iter([30.0, 10.0])
    found = tw.sweep(add, {"block": [32, 64]}, bench=lambda kernel: next(times))
    points = found.roofline()[1]
    assert [(point.time_us, point.predicted) for point in points] == [(30.0, False), (10.0, False)]


def test_a_sweep_without_a_time_has_no_roofline() -> None:
    with pytest.raises(ArgumentError) as caught:
        tw.roofline(tw.sweep(add, {"block": [100_000], "N": [128]}))
    assert str(caught.value) == (
        "the sweep of 'add' has no point with a time\n"
        "hint: no combination compiled, or shapes are symbolic: see its 'error' columns"
    )


def test_a_frame_needs_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    found = tw.sweep(add, {"block": [32, 64]})
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UnsupportedError) as caught:
        found.to_frame()
    assert str(caught.value) == (
        "a DataFrame needs 'pandas', which is not installed\n"
        "hint: pip install pandas, or use 'to_dict()', which has the same rows"
    )
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=list))
    assert found.to_frame() == found.to_dict()


def test_predictions_are_judged_by_what_was_measured() -> None:
    points = [
        SweepPoint({"n": n}, time_us=measured, predicted_us=float(predicted), limit="L2")
        for n, (predicted, measured) in enumerate([(1, 2.0), (2, 2.5), (3, 4.0), (9, 3.0)])
    ]
    swept = Sweep("k", "cpu", {"n": (0, 1, 2, 3)}, tuple(points))
    error, rank = swept.quality or (0, 0)
    assert error == pytest.approx(0.375)  # the median of 0.5, 0.2, 0.25 and 2
    assert rank == pytest.approx(0.8)
    text = str(swept).splitlines()
    assert text[0].split() == ["n", "time", "predicted", "most", "time"]
    assert [line[:1] for line in text[1:5]] == ["*", " ", " ", " "]  # the best is marked
    assert text[-1] == (
        "the prediction is 38 % off (median); rank correlation with what was measured 0.80"
    )
    assert "rank correlation" in swept._repr_html_()
    assert Sweep("k", "cpu", {"n": (0, 1)}, tuple(points[:2])).quality is None
    same = [SweepPoint({"n": n}, time_us=float(n + 1), predicted_us=1.0) for n in range(3)]
    _, none = Sweep("k", "cpu", {"n": (0, 1, 2)}, tuple(same)).quality or (0, 0)
    assert none != none
