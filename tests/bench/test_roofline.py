"""From a measurement to a point under the roofs."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tileworkbench.bench import roofline
from tileworkbench.bench.points import Ceiling, Machine, Point
from tileworkbench.bench.roofline import (
    home_level,
    judge_result,
    result_point,
    result_points,
    roofline_points,
)
from tileworkbench.bench.timing import BenchResult
from tileworkbench.compiler.device.host import processor
from tileworkbench.compiler.device.host.processor import CacheSizes
from tileworkbench.compiler.diagnostics import ArgumentError

KIB, MIB = 1 << 10, 1 << 20
MACHINE = Machine(
    "Test",
    (
        *(Ceiling("L1", 500.0 * n, "GB/s", n) for n in (1, 2)),
        *(Ceiling("L2", 250.0 * n, "GB/s", n) for n in (1, 2)),
        Ceiling("L3", 100.0, "GB/s", 1),
        Ceiling("DRAM", 50.0, "GB/s", 2),
        *(Ceiling("float32", 200.0 * n, "GFLOP/s", n) for n in (1, 2)),
    ),
)


@pytest.fixture(autouse=True)
def caches(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = CacheSizes(32 * KIB, MIB, 16 * MIB)
    monkeypatch.setattr(processor, "cache_sizes", lambda: sizes)


def result(**changes: Any) -> BenchResult:
    given = {"flops": 2e9, "bytes_": 12.0 * MIB, "dtype": "float32", "threads": 2, **changes}
    return BenchResult("mm", (10.0, 12.0, 11.0), **given)


def test_a_point_has_the_median_and_the_counts_of_a_call() -> None:
    expected = Point("mm", 2e9, 12.0 * MIB, 11_000.0, "float32", "L3", 2)
    assert result_point(result(), MACHINE) == expected


@pytest.mark.parametrize(
    ("bytes_", "threads", "level"),
    [
        (64 * KIB, 1, "L1"),
        (64 * KIB + 1, 1, "L2"),
        (128 * KIB, 2, "L1"),
        (2 * MIB, 1, "L2"),
        (2 * MIB + 1, 1, "L3"),
        (4 * MIB, 2, "L2"),
        (32 * MIB, 2, "L3"),
        (32 * MIB + 1, 2, "DRAM"),
        (0, 1, "L1"),
    ],
)
def test_home_level(bytes_: int, threads: int, level: str) -> None:
    assert home_level(bytes_, threads, MACHINE) == level


def test_a_level_that_was_not_measured_is_passed_over() -> None:
    without = Machine("Test", tuple(c for c in MACHINE.ceilings if c.name != "L3"))
    assert home_level(16 * MIB, 1, without) == "DRAM"


def test_verdict_of_a_result() -> None:
    verdict = judge_result(result(), MACHINE)
    assert (verdict.bound, verdict.attainable, verdict.wrong) == ("compute", 400.0, False)
    assert verdict.fraction == pytest.approx(2e9 / 11e-3 / 400e9)


@pytest.mark.parametrize(("part", "wrong"), [(1.04, False), (1.06, True)])
def test_a_point_above_its_roof_is_our_error(part: float, wrong: bool) -> None:
    assert judge_result(result(flops=part * 400e9 * 11e-3), MACHINE).wrong is wrong


def test_fraction_of_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tileworkbench.bench.ceilings.machine", lambda: MACHINE)
    assert result(flops=0.5 * 400e9 * 11e-3).fraction == pytest.approx(0.5)


@pytest.mark.parametrize("missing", ["flops", "bytes_"])
def test_unknown_counts(missing: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        result_point(result(**{missing: float("nan")}), MACHINE)
    assert caught.value.message == "the operations and bytes of 'mm' are not known"
    assert result_points(result(**{missing: float("nan")}), MACHINE) == ()


def test_known_counts_give_one_point() -> None:
    assert result_points(result(), MACHINE) == (result_point(result(), MACHINE),)


def kernel(
    name: str,
    *points: Point,
    bench: object = "measured",
    target: str = "cpu",
    machine: Machine = MACHINE,
    constants: tuple[tuple[str, object], ...] = (),
) -> Any:
    record = SimpleNamespace(name=name, target=target, constants=constants)
    view = SimpleNamespace(points=points, bench=bench, record=record, machine=machine)
    return SimpleNamespace(name=name, view=lambda roofline=False: view)


def test_points_of_several_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roofline, "machine", lambda: MACHINE)
    first, second = result_point(result(), MACHINE), result_point(result(flops=1.0), MACHINE)
    found = roofline_points([kernel("a", first), kernel("b", second)])
    assert found == (MACHINE, (replace(first, name="a"), replace(second, name="b")))


def test_points_of_kernels_with_one_name_say_what_tells_them_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(roofline, "machine", lambda: MACHINE)
    point = result_point(result(), MACHINE)
    kernels = [kernel("mm", point, constants=(("M", 64), ("tile", size))) for size in (16, 32)]
    _, points = roofline_points([*kernels, kernel("add", point, constants=(("M", 8),))])
    assert [each.name for each in points] == ["mm[tile=16]", "mm[tile=32]", "add"]
    _, points = roofline_points([kernel("mm", point), kernel("add", point), kernel("mm", point)])
    assert [each.name for each in points] == ["mm #1", "add", "mm #3"]


def test_a_kernel_that_was_not_measured() -> None:
    measured, bare = kernel("a", result_point(result(), MACHINE)), kernel("b", bench=None)
    asked: list[bool] = []
    view = measured.view()
    measured.view = lambda roofline=False: (asked.append(roofline), view)[1]
    with pytest.raises(ArgumentError) as caught:
        roofline_points([measured, bare])
    assert caught.value.message == "'b' has not been measured"
    assert asked == [False]  # no roofs were measured for an error
    assert caught.value.hint == "call its .bench(...) first"


def test_a_kernel_whose_work_is_not_known() -> None:
    with pytest.raises(ArgumentError) as caught:
        roofline_points([kernel("a")])
    assert caught.value.message == "the operations and bytes of 'a' are not known"


def test_simulated_kernels_are_drawn_as_predicted() -> None:
    point = result_point(result(), MACHINE)
    simulated = kernel("a", point, bench=None, target="sim:sm_80")
    assert roofline_points([simulated]) == (MACHINE, (replace(point, name="a"),))


def test_kernels_of_different_machines_have_no_common_roofline() -> None:
    other = kernel("b", result_point(result(), MACHINE), machine=replace(MACHINE, name="Other"))
    with pytest.raises(ArgumentError) as caught:
        roofline_points([kernel("a", result_point(result(), MACHINE)), other])
    assert str(caught.value) == (
        "the kernels are for Test and Other, whose roofs are not the same\n"
        "hint: draw one roofline for each machine"
    )
