"""The view of rounding errors: its picture, its lines, and its static page."""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

import json
import re

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench.compiler.sim.numerics.result import Numerics, Step
from tileworkbench.viz.model import numerics
from tileworkbench.viz.model.numerics_svg import HUES, METRICS, Curve, numerics_svg
from tileworkbench.viz.model.svg import THEMED
from tileworkbench.viz.model.views import view_html, view_model


@tw.jit
def accumulated(A: T.Tensor((64, 256), "float16")):
    B = T.empty((64,), "float16")
    with T.Kernel(2, threads=32) as bx:
        tile = T.alloc_shared((32, 16), "float16")
        total = T.alloc_fragment((32,), "float16")
        T.clear(total)
        for k in T.serial(16):
            T.copy(A[bx * 32, k * 16], tile)
            for i in T.Parallel(32):
                for j in T.serial(16):
                    total[i] += tile[i, j]
        T.copy(total, B[bx * 32])
    return B


@tw.jit
def counted(A: T.Tensor((64,), "int32")):
    B = T.empty((64,), "int32")
    with T.Kernel(1, threads=32):
        for i in T.Parallel(64):
            B[i] = A[i] + 1
    return B


def made(value: float = 0.1) -> tw.Kernel:
    kernel = accumulated.with_target("cpu").compile()
    return kernel.with_inputs(np.full((64, 256), value, np.float16))


def test_nothing_runs_until_it_is_asked_for() -> None:
    kernel = made()
    view = kernel.view()
    assert "Nothing has run yet." in view_model(view, "numerics")["about"]
    assert view_model(view, "numerics")["ran"] is False and kernel.last_numerics is None
    assert "Numerics" not in re.sub("<[^>]*>", "", kernel._repr_mimebundle_()[0]["text/html"])
    asked = numerics.run_answer(view, {"type": "numerics-run", "block": [1]})
    assert asked["ran"] and asked["block"] == [1] and kernel.last_numerics is not None
    assert "on the inputs that were given" in view_model(view, "numerics")["about"]
    assert numerics.run_answer(view, {"block": [2]}) == {
        "error": "'accumulated' has no block (2,): its grid is 2"
    }


def test_the_model_is_json_with_a_point_per_statement() -> None:
    view = made().view()
    shown = numerics.run_answer(view, {})
    json.dumps(shown, allow_nan=False)
    assert (shown["exact"], shown["origins"], shown["stopped"]) == (["tile"], [], "")
    for metric, chart in shown["charts"].items():
        points = re.findall(r'data-step="(\d+)"', chart)
        assert sorted(set(points), key=int) == sorted(shown["steps"], key=int), metric
    (row,) = [row for row in shown["lines"] if row["buffer"] == "total" and row["executions"] > 1]
    assert (row["executions"], row["where"], row["dtype"]) == (256, "k = 15, j = 15", "float16")
    assert float(row["scaled"]) > 20 and row["first"] == "0"


def test_a_nan_is_drawn_above_the_scale_and_said_first() -> None:
    view = made(300.0).view()  # 256 * 300 is more than float16 has
    shown = numerics.run_answer(view, {})
    (origin,) = shown["origins"]
    assert "makes the first infinity: total[0] = inf at k=13, j=" in origin["text"]
    assert "inf, NaN" in shown["charts"]["scaled"]
    page = view_html(view, "numerics")
    assert "Line " in page and "makes the first infinity" in page


def test_the_static_page_has_a_picture_and_the_worst_lines() -> None:
    kernel = made()
    page = view_html(kernel.view(), "numerics")  # standing alone, it runs
    assert kernel.last_numerics is not None
    assert page.count("data:image/svg+xml") == 1 and "exact throughout: tile" in page
    assert "statements of block (0)" in page and "total[0] at k = 15, j = 15" in page
    assert "<script" not in page and "<svg" not in page
    card = kernel._repr_mimebundle_()[0]["text/html"]
    assert "block (0) beside float64" in card


def test_a_kernel_of_integers_says_why_there_is_nothing() -> None:
    kernel = counted.with_target("cpu").compile()
    why = "'counted' cannot be replayed: it has no floating-point tile or tensor, so nothing is "
    assert view_model(kernel.view(), "numerics") == {"missing": why + "rounded"}
    assert "so nothing is rounded" in view_html(kernel.view(), "numerics")
    assert kernel.to_dict("numerics") == []


def test_inputs_that_cannot_be_made_up_are_said() -> None:
    @tw.jit
    def scaled(A: T.Tensor((64,), "float32"), s: T.float32):
        B = T.empty((64,), "float32")
        with T.Kernel(1, threads=32):
            for i in T.Parallel(64):
                B[i] = A[i] * s
        return B

    view = scaled.with_target("cpu").compile().view()
    asked = numerics.run_answer(view, {})["error"]
    assert asked.startswith("no inputs can be made up for 's' of 'scaled'")
    assert "no inputs can be made up" in view_html(view, "numerics")


def steps_of(buffers: int, count: int) -> Numerics:
    steps = [
        Step(at, 1, 1, (), f"tile{at % buffers}", "float16", 4, 1.0, 0.1, 0.5, 10.0 ** (at % 5))
        for at in range(buffers * count)
    ]
    return Numerics("many", (0,), tuple(steps), ())


def test_pictures_are_bounded() -> None:
    curves, exact = numerics.curves_of(steps_of(20, 1000))
    assert exact == [] and len(curves) == numerics.MOST_CURVES
    for curve in curves:
        assert len(curve.steps) <= numerics.MOST_POINTS
    drawn = numerics_svg(curves, "scaled")
    assert len(drawn) < 100_000 < len(numerics_svg(curves, "scaled", THEMED, True))
    (curve,) = numerics.curves_of(steps_of(1, 1000))[0]
    assert {step.scaled for _, step in curve.steps} == {1e3, 1e4}  # the worst of neighbours


@pytest.mark.parametrize("metric", METRICS)
def test_errors_of_one_size_and_of_none_have_a_scale(metric: str) -> None:
    step = Step(0, 1, 1, (), "tile", "float16", 1, 0.0, 0.0, 0.0, 0.0)
    for steps in ([step], [step, Step(5, 1, 1, (), "tile", "float16", 1, *[float("inf")] * 4)]):
        drawn = numerics_svg([Curve("tile", tuple(enumerate(steps)))], metric, THEMED, True)
        assert "exact" in drawn and "nan" not in drawn.lower().replace("inf, nan", "")


def test_lines_are_readable_on_light_and_on_dark() -> None:
    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return sum(weight * p for weight, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    for hue in HUES:
        for ground in ("#ffffff", "#111111"):
            one, other = sorted((luminance(hue), luminance(ground)))
            assert (other + 0.05) / (one + 0.05) >= 3, (hue, ground)
