"""Rooflines of GPUs that nobody has here: published ceilings, predicted points."""

from __future__ import annotations

import math

import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tests.viz.sanitiser import problems
from tileworkbench.bench.points import BANDWIDTH, PEAK, judge
from tileworkbench.bench.published import predicted_point, product_of, product_peak, published
from tileworkbench.kernels import matmul, softmax
from tileworkbench.viz.model.views import view_html


def test_a_product_of_halves_is_held_against_the_tensor_cores() -> None:
    view = tw.compile(matmul(1024, 1024, 1024, "float16"), target="sim:sm_80").view()
    [point] = view.points
    assert view.machine is not None and view.machine.name == "A100 SXM 40 GB (sm_80)"
    assert (point.predicted, point.dtype) == (True, "float16")
    assert point.causes is not None and point.time_us == point.causes.total_us
    roof_us = 2 * 1024**3 / 312e12 * 1e6  # beyond the ridge of 201
    verdict = judge(point, view.machine)
    assert verdict.fraction == pytest.approx(roof_us / point.time_us)
    assert verdict.sentence == (
        "Predicted, nothing was run. At 256 FLOP/B it is right of the ridge at 201, in the "
        "compute-bound region: the float16 peak allows 312 TFLOP/s. The model expects 23.7 µs for "
        "a launch, 29 % of what the roofs allow."
    )


def test_without_a_model_the_roofs_give_the_time() -> None:
    kernel = tw.compile(matmul(1024, 1024, 1024, "float16"), target="sim:sm_80")
    machine = published("sm_80")
    assert machine is not None
    point = predicted_point("k", kernel.program, 2.0 * 1024**3, 1e6, machine)
    assert point is not None and point.time_us == pytest.approx(2 * 1024**3 / 312e12 * 1e6)


def test_levels_of_a_gpu() -> None:
    machine = published("sm_80")
    assert machine is not None
    rates = {name: machine.find(name, BANDWIDTH).value for name in ("shared", "L2", "DRAM")}  # type: ignore[union-attr]
    # 128 bytes a clock on each of 108 multiprocessors; 5120 a clock of L2.
    assert rates == pytest.approx({"shared": 19491.84, "L2": 7219.2, "DRAM": 1555})


def test_levels_of_a_gpu_of_amd() -> None:
    machine = published("gfx942")
    assert machine is not None and machine.name == "Instinct MI300X (gfx942)"
    rates = {name: machine.find(name, BANDWIDTH).value for name in ("shared", "L2", "DRAM")}  # type: ignore[union-attr]
    # 128 and 64 bytes a clock of 2.1 GHz on each of 304 compute units.
    assert rates == pytest.approx({"shared": 81715.2, "L2": 40857.6, "DRAM": 5300})


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90", "gfx90a", "gfx942", "gfx950"])
def test_rates_of_a_clock_are_the_peaks(arch: str) -> None:
    """Two tables say it, each from its own numbers of a data sheet."""
    product = product_of(arch)
    assert product is not None
    units = product.multiprocessors * product.clock / 1e3
    for dtype, rate in product.rates.flops.items():
        peak = product.peaks[product_peak(dtype, product.peaks)]
        assert rate * units == pytest.approx(peak, rel=0.1), dtype
    shared = product.rates.memory_bytes * product.multiprocessors * product.clock
    assert shared == pytest.approx(product.memory, rel=0.03)


def test_work_without_a_product_is_held_against_ordinary_units() -> None:
    kernel = tw.compile(softmax(1024, 1024), target="sim:sm_90a")
    [point] = kernel.view().points
    assert point.dtype == "float32"
    assert point.causes is not None
    memory = [part for part in point.causes.parts if part.cause == "DRAM"]
    moved_us = 2 * 1024 * 1024 * 4 / 3350e9 * 1e6  # read and written
    assert sum(part.time_us for part in memory) == pytest.approx(moved_us)


def test_products_of_float32_are_those_of_tf32() -> None:
    [point] = tw.compile(matmul(256, 256, 256), target="sim:sm_80").view().points
    assert point.dtype == "tfloat32"


@pytest.mark.parametrize(
    ("dtype", "arch", "peak"),
    [
        *[("uint8", "sm_80", "int8"), ("int4", "sm_80", "int4"), ("uint4", "sm_90a", "int8")],
        *[("float8_e5m2", "sm_80", "float16"), ("float8_e4m3fn", "sm_89", "float8")],
        *[("bfloat16", "sm_75", "float32"), ("float6_e2m3fn", "sm_120", "float16")],
        ("float64", "sm_80", "float64 (products)"),
        *[("float16", "gfx90a", "float16"), ("float32", "gfx942", "float32")],
        *[("tfloat32", "gfx942", "xfloat32"), ("float64", "gfx950", "float64 (products)")],
        *[("float8_e4m3fnuz", "gfx942", "float8"), ("int8", "gfx950", "int8")],
    ],
)
def test_products_are_held_against_what_multiplies_them(dtype: str, arch: str, peak: str) -> None:
    """As the instructions in the code say; there is a roof for every type that is compiled."""
    tile = {"block_M": 32, "block_N": 32, "block_K": 32}
    view = tw.compile(matmul(64, 64, 64, dtype, **tile), target=f"sim:{arch}").view()
    assert view.machine is not None
    [point] = view.points
    assert point.dtype == peak and view.machine.find(peak, PEAK) is not None


def test_a_product_of_unsigned_bytes_takes_as_long_as_one_of_signed_ones() -> None:
    times = []
    for dtype in ("int8", "uint8"):
        [point] = tw.compile(matmul(512, 512, 512, dtype), target="sim:sm_80").view().points
        assert point.causes is not None
        times.append(sum(part.time_us for part in point.causes.parts if part.cause == "compute"))
    assert times[0] == pytest.approx(times[1], rel=0.1)


def test_float64_without_a_product_has_the_peak_of_ordinary_units() -> None:
    machine = published("sm_80")
    assert machine is not None
    names = [each.name for each in machine.ceilings]
    assert machine.find("float64", PEAK).value == 9700  # type: ignore[union-attr]
    assert machine.find(product_peak("float64", names), PEAK).value == 19500  # type: ignore[union-attr]
    [point] = tw.compile(softmax(256, 256, "float64"), target="sim:sm_80").view().points
    assert point.dtype == "float64"


def test_the_view_says_that_nothing_was_measured() -> None:
    kernel = tw.compile(matmul(256, 256, 256, "float16"), target="sim:sm_80")
    page = view_html(kernel.view(), "roofline")
    assert "Predicted, nothing was run" in page and problems(page) == []
    widget = kernel.show("roofline")
    assert widget.roofline["points"][0]["percent"] == "predicted"
    assert widget.roofline["note"] == "published numbers, nothing was measured"


def test_what_has_no_published_numbers_has_no_roofline() -> None:
    assert published("gfx1100") is None and published("avx512") is None
    machine = published("sm_75")
    assert machine is not None and machine.find("float64", PEAK) is None
    program = tw.compile(matmul(64, 64, 64, "float64"), target="sim:sm_80").program
    assert predicted_point("k", program, 1e6, 1e6, machine) is None
    assert predicted_point("k", program, math.nan, 1e6, machine) is None


def test_symbolic_work_has_no_point() -> None:
    kernel = tw.compile(matmul(T.dynamic("m"), 64, 64, "float16"), target="sim:sm_80")
    assert kernel.view().points == ()


def test_ceilings_of_later_architectures() -> None:
    """Those of sm_120 are a product's; code for sm_100 does not use what is published of it."""
    machine = published("sm_120")
    assert machine is not None and machine.name == "GeForce RTX 5090 (sm_120)"
    peak = machine.find("float16", PEAK)
    assert peak is not None and peak.value == 209.5e3
    view = tw.compile(matmul(1024, 1024, 1024, "float16"), target="sim:sm_120").view()
    assert view.points and view.points[0].predicted
    assert published("sm_100") is None
