"""Machines and points whose roofline is crowded: what the tests of names in drawings draw."""

from __future__ import annotations

from collections.abc import Sequence

from tests.viz.sample import MACHINE
from tileworkbench.bench.points import BANDWIDTH, PEAK, Ceiling, Machine, Point, Step, Trail
from tileworkbench.bench.published import published

ARCHITECTURES = ("sm_75", "sm_80", "sm_90a", "sm_120", "gfx942", "gfx950")
LEVELS = ("L1", "L2", "L3", "DRAM")


def host(rates: Sequence[float], threads: int, memory: float) -> Machine:
    """A processor with these GB/s of a thread at its four levels and GFLOP/s; all threads have as
    often as much, but `memory` times as much of DRAM.
    """
    units = [(name, BANDWIDTH) for name in LEVELS] + [("float32", PEAK)]
    made = [
        Ceiling(
            name, rate * (1 if count == 1 else memory if name == "DRAM" else count), unit, count
        )
        for count in {1, threads}
        for (name, unit), rate in zip(units, rates, strict=True)
    ]
    return Machine("a host", tuple(made), "by hand")


def point(
    name: str, intensities: Sequence[float], gflops: float, machine: Machine, steps: int = 0
) -> Point:
    """A point with the intensities of its memory levels, innermost first."""
    flops = 1e9
    bandwidths = [ceiling.name for ceiling in machine.ceilings if ceiling.unit == BANDWIDTH]
    levels = list(dict.fromkeys(bandwidths))[-len(intensities) :]
    traffic = tuple((level, flops / each) for level, each in zip(levels, intensities, strict=True))
    before = tuple(
        Step(n, flops, flops / intensities[-1], flops / gflops / 1e3 * (1.9 - n / 10), False)
        for n in range(steps)
    )
    dtype = next(ceiling.name for ceiling in machine.ceilings if ceiling.unit == PEAK)
    moved, time_us = flops / intensities[-1], flops / gflops / 1e3
    return Point(
        name,
        flops,
        moved,
        time_us,
        dtype,
        levels[-1],
        traffic=traffic,
        trail=Trail(steps, (), before),
    )


def crowded() -> dict[str, tuple[list[Point], Machine]]:
    """Points and machine of each drawing, by name."""
    made: dict[str, tuple[list[Point], Machine]] = {}
    for arch in ARCHITECTURES:
        machine = published(arch)
        assert machine is not None
        peak = max(ceiling.value for ceiling in machine.ceilings if ceiling.unit == PEAK)
        made[arch] = [point("matmul", (21, 56, 256), peak / 3, machine, 2)], machine
        made[f"{arch} rows"] = [point("softmax", (1, 0.63, 0.625), 780, machine)], machine
    hosts = {
        "epyc": host((734, 268, 131, 71, 275), 2, 1.2),
        "xeon": host((544, 152, 27, 23, 197), 2, 2.0),
        "many cores": host((480, 240, 60, 30, 250), 64, 10.0),
        "one core": host((480, 240, 120, 30, 220), 1, 1.0),
        "close": host((60, 58, 55, 50, 100), 2, 1.1),
    }
    for name, machine in hosts.items():
        product = point("matmul", (2, 8, 30, 80), 60, machine, 4)
        rows = point("rms", (0.25, 0.4, 0.5, 0.5), 9, machine)
        near = point("layernorm", (0.25, 0.4, 0.5, 0.6), 8.5, machine)
        made[name] = [product], machine
        made[f"{name}, rows"] = [rows], machine
        made[f"{name}, three"] = [product, rows, near], machine
    made["roofs alone"] = [], MACHINE
    return made
