"""Where a measured kernel lies under this machine's roofs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

from tileworkbench.bench.ceilings import LEVELS, machine
from tileworkbench.bench.cpu_traffic import holding_level
from tileworkbench.bench.points import BANDWIDTH, Machine, Point, Verdict, judge
from tileworkbench.bench.timing import BenchResult
from tileworkbench.compiler.diagnostics import ArgumentError
from tileworkbench.compiler.record import names_of
from tileworkbench.compiler.target import parse_target


class Measurable(Protocol):
    """A kernel that can show where its last measurement lies."""

    @property
    def name(self) -> str: ...
    def view(self, roofline: bool = False) -> Any:
        """The facts that views are drawn from (`KernelView`)."""


def result_points(result: BenchResult, measured: Machine) -> tuple[Point, ...]:
    """The point of a measurement; none where its operations or bytes are not known."""
    if math.isnan(result.flops) or math.isnan(result.bytes_):
        return ()
    return (result_point(result, measured),)


def result_point(result: BenchResult, measured: Machine) -> Point:
    """A measurement as a point: its median, held against the level that its data come from.

    Each call of a measurement finds the data where the call before left it, so the bytes that a
    call must move at least come from the innermost level that holds them all; with cold caches they
    come from memory. Raises
    `ArgumentError` where operations or bytes are not known.
    """
    if math.isnan(result.flops) or math.isnan(result.bytes_):
        raise _unknown(result.name)
    level = "DRAM" if result.cold else home_level(result.bytes_, result.threads, measured)
    time_us = 1e3 * result.median
    facts = (result.name, result.flops, result.bytes_, time_us, result.dtype, level, result.threads)
    return Point(*facts, cold=result.cold)


def home_level(bytes_: float, threads: int, measured: Machine) -> str:
    """The innermost measured level that holds `bytes_` bytes of `threads` threads' data.

    See `cpu_traffic.holding_level` for data that are larger than a cache.
    """
    levels = [name for name in LEVELS if measured.find(name, BANDWIDTH) is not None]
    return holding_level(bytes_, threads, levels)


def judge_result(result: BenchResult, measured: Machine) -> Verdict:
    """What the place of a measurement under the roofs says; see `viz.model.roofline.judge`."""
    return judge(result_point(result, measured), measured)


def roofline_points(kernels: Sequence[Measurable]) -> tuple[Machine, tuple[Point, ...]]:
    """The kernels' points and the roofs over them: of their last measurements under this machine's
    ceilings, or, of simulated ones, which have no time, as predicted under published ones.

    Raises `ArgumentError` for a kernel that has not been measured, or whose operations or bytes
    are not known, and for kernels of different machines.
    """
    for kernel in kernels:
        seen = kernel.view()  # before the machine is measured, which takes seconds
        if seen.bench is None and not parse_target(seen.record.target).is_simulated:
            raise ArgumentError(
                f"'{kernel.name}' has not been measured", hint="call its .bench(...) first"
            )
    machines: dict[str, Machine] = {}
    points: list[Point] = []
    views = [kernel.view(roofline=True) for kernel in kernels]
    names = names_of([view.record for view in views])
    for kernel, view, name in zip(kernels, views, names, strict=True):
        if not view.points or view.machine is None:
            raise _unknown(kernel.name)
        machines[view.machine.name] = view.machine
        points += [replace(point, name=name) for point in view.points]
    if len(machines) > 1:
        raise ArgumentError(
            f"the kernels are for {' and '.join(machines)}, whose roofs are not the same",
            hint="draw one roofline for each machine",
        )
    return (next(iter(machines.values())) if machines else machine()), tuple(points)


def _unknown(name: str) -> ArgumentError:
    return ArgumentError(f"the operations and bytes of '{name}' are not known")
