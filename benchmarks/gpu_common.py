"""What the benchmarks of a CUDA device share: whether there is one, times by CUDA events, the table
of a kernel against torch.
"""

from __future__ import annotations

import argparse
import math
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
    """The program of a benchmark: a row per shape, printed and written. A row that fails holds what
    it failed with, and the others go on.

    `label` are the names and the cells of the columns that say what a row is. Without a device the
    result file holds the reason and no time.
    """
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=50, help="times each is called")
    rounds = parser.parse_args().rounds
    reason, rows = missing(), []
    if reason is None:
        rows = [_row(measure, shape, rounds) for shape in shapes]
        text = f"{about}, {device_target()}.\n\n{table(rows, *label)}"
    else:
        text = f"Nothing was measured: {reason}."
    print(text)
    data = {"measured": False, "reason": reason} if reason else rows
    print(f"written to {write_results(name, facts(), data, text)}")


def _row(measure: Callable[[Any, int], dict[str, Any]], shape: Any, rounds: int) -> dict[str, Any]:
    try:
        return measure(shape, rounds)
    except Exception as error:  # out of memory, a kernel that does not compile here
        return {"shape": shape, "failed": f"{type(error).__name__}: {error}"}


def table(
    rows: Iterable[dict[str, Any]], names: Sequence[str], label: Callable[[Any], Sequence[str]]
) -> str:
    """One line per row of `measured`; below it what rows failed with."""
    rows = list(rows)
    others = list(dict.fromkeys(name for row in rows for name in row.get("others", {})))
    ratios = [f"ours/{name}" for name in ("torch", *others)]
    columns = [*names, *ratios, "ours, ms", "torch, ms", "ours", "torch", "error", "with"]
    cells = [
        [
            *label(row["shape"]),
            shown(row["ratio"], 2),
            *(_ratio(row, name) for name in others),
            shown(row["ours_ms"]),
            shown(row["torch_ms"]),
            _rate(row["ours_tflops"]),
            _rate(row["torch_tflops"]),
            f"{row['error']:.1e}",
            row.get("note", ""),
        ]
        for row in rows
        if "failed" not in row
    ]
    failed = [
        f"{', '.join(label(row['shape']))} failed: {row['failed']}"
        for row in rows
        if "failed" in row
    ]
    return "\n\n".join([markdown_table(columns, cells), *failed])


def _rate(tflops: float) -> str:
    """Empty where the number of operations depends on the data."""
    return "" if math.isnan(tflops) else f"{tflops:.0f}"


def _ratio(row: dict[str, Any], name: str) -> str:
    ratio = row.get("others", {}).get(name)
    return "" if ratio is None else f"{ratio:.2f}"


def measured(
    shape: Any,
    calls: dict[str, Callable[[], Any]],
    operations: float,
    rounds: int,
    note: str = "",
) -> dict[str, Any]:
    """A row: times of `ours`, `torch` and others, which return tensors of one shape, and rates.

    `note` says what `ours` was made with.
    """
    import torch

    expected = calls["torch"]().float()
    scale = expected.abs().max()
    errors = {
        name: float((call().float() - expected).abs().max() / scale) for name, call in calls.items()
    }
    del expected
    times = compare_times(calls, rounds, cache_eraser())
    torch.cuda.empty_cache()
    found = summary(times)
    middle = statistics.median(times["ours"])
    return {
        "shape": shape,
        "note": note,
        "error": errors["ours"],
        "errors": errors,
        **found,
        "others": {
            name: statistics.median(times[name]) / middle
            for name in times
            if name not in ("ours", "torch")
        },
        "ours_tflops": operations / found["ours_ms"][1] / 1e9,
        "torch_tflops": operations / found["torch_ms"][1] / 1e9,
    }


def fastest(candidates: dict[str, Callable[[], Any]], rounds: int = 5) -> str:
    """The name of the candidate with the smallest median; one that fails is none."""
    good = {}
    for name, call in candidates.items():
        try:
            call()
        except Exception as error:  # a configuration that this device or this shape does not take
            print(f"{name}: {type(error).__name__}: {str(error).splitlines()[0]}")
        else:
            good[name] = call
    if not good:
        raise RuntimeError("no candidate runs")
    times = compare_times(good, rounds, cache_eraser())
    return min(times, key=lambda name: statistics.median(times[name]))


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
