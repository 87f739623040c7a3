"""What the benchmarks of a CUDA device share: whether there is one, times by CUDA events, the table
of a kernel against torch.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from common import environment, markdown_table, write_results

from tileworkbench.compiler.device.nvidia.driver import missing_device, open_device
from tileworkbench.compiler.device.nvidia.nvrtc import missing_nvrtc

PACKAGES = ["torch", "nvidia-cuda-nvrtc"]


def missing() -> str | None:
    """One sentence saying what is not there, or None."""
    found = missing_device() or missing_nvrtc()
    if found is not None:
        return found
    import torch

    return None if torch.cuda.is_available() else "PyTorch is built without CUDA"


def device_target() -> str:
    """The target of the first device's own architecture."""
    return f"cuda:{open_device().arch}"


def facts() -> dict[str, Any]:
    """The environment of a table; the machine is named by its device."""
    found = environment(PACKAGES)
    return found if missing() else {**found, "machine": open_device().name}


def run(
    name: str,
    description: str,
    about: str,
    shapes: Iterable[Any],
    measure: Callable[[Any, int], dict[str, Any]],
    label: tuple[Sequence[str], Callable[[Any], Sequence[str]]],
) -> None:
    """The program of a benchmark: a row per shape, printed and written.

    `label` are the names and the cells of the columns that say what a row is. Without a device the
    result file holds the reason and no time.
    """
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=50, help="times each is called")
    rounds = parser.parse_args().rounds
    reason, rows = missing(), []
    if reason is None:
        rows = [measure(shape, rounds) for shape in shapes]
        text = f"{about}, {device_target()}.\n\n{table(rows, *label)}"
    else:
        text = f"Nothing was measured: {reason}."
    print(text)
    data = {"measured": False, "reason": reason} if reason else rows
    print(f"written to {write_results(name, facts(), data, text)}")


def table(
    rows: Iterable[dict[str, Any]], names: Sequence[str], label: Callable[[Any], Sequence[str]]
) -> str:
    """One line per row of `measured`."""
    columns = [*names, "ours/torch", "ours, ms", "torch, ms", "ours", "torch", "error"]
    cells = (
        [
            *label(row["shape"]),
            shown(row["ratio"], 2),
            shown(row["ours_ms"]),
            shown(row["torch_ms"]),
            f"{row['ours_tflops']:.0f}",
            f"{row['torch_tflops']:.0f}",
            f"{row['error']:.1e}",
        ]
        for row in rows
    )
    return markdown_table(columns, cells)


def measured(
    shape: Any, calls: dict[str, Callable[[], Any]], operations: float, rounds: int
) -> dict[str, Any]:
    """A row: times of `ours` and `torch`, which return tensors of one shape, and their rates."""
    expected = calls["torch"]().float()
    error = float((calls["ours"]().float() - expected).abs().max() / expected.abs().max())
    times = summary(compare_times(calls, rounds, cache_eraser()))
    return {
        "shape": shape,
        "error": error,
        **times,
        "ours_tflops": operations / times["ours_ms"][1] / 1e9,
        "torch_tflops": operations / times["torch_ms"][1] / 1e9,
    }


def compare_times(
    calls: dict[str, Callable[[], Any]], rounds: int, before: Callable[[], Any]
) -> dict[str, list[float]]:
    """Milliseconds of each callable, once a round in an order that is reversed every other round.

    `before` runs ahead of each, outside the time: it empties the caches of what the last one left.
    Everything is called thrice first.
    """
    import torch

    for call in (*calls.values(), *calls.values(), *calls.values()):
        call()
    events: dict[str, list[tuple[Any, Any]]] = {name: [] for name in calls}
    for index in range(rounds):
        for name in list(calls)[:: -1 if index % 2 else 1]:
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            before()
            start.record()
            calls[name]()
            stop.record()
            events[name].append((start, stop))
    torch.cuda.synchronize()
    return {
        name: [start.elapsed_time(stop) for start, stop in pairs] for name, pairs in events.items()
    }


def cache_eraser() -> Callable[[], Any]:
    """A call that overwrites what the device's cache holds, and lets the host run ahead."""
    import torch

    size = 4 * open_device().limits.l2_bytes
    memory = torch.empty(size, dtype=torch.uint8, device="cuda")
    return memory.zero_


def quartiles(times: list[float]) -> tuple[float, float, float]:
    """The first quartile, the median and the third of at least two times."""
    low, middle, high = statistics.quantiles(times, n=4, method="inclusive")
    return low, middle, high


def summary(times: dict[str, list[float]]) -> dict[str, Any]:
    """Quartiles of each callable, and how many times faster than `torch` `ours` is: the median over
    the rounds of the ratio within a round.
    """
    ratios = [theirs / ours for ours, theirs in zip(times["ours"], times["torch"], strict=True)]
    return {
        "ratio": quartiles(ratios),
        **{f"{name}_ms": quartiles(found) for name, found in times.items()},
    }


def shown(found: tuple[float, float, float], digits: int = 3) -> str:
    """A median with its quartiles."""
    low, middle, high = (f"{value:.{digits}f}" for value in found)
    return f"{middle} ({low} to {high})"
