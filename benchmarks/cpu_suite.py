"""Kernels of the library on this CPU against what one would otherwise call, row by row.

    python benchmarks/cpu_suite.py [--rows TEXT ...] [--quick] [--rounds N] [--threads N ...]

See README.md for what the columns mean.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import statistics
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from common import FOLDER, environment, markdown_table, print_json, run_child, write_results
from suite_cases import ROWS, Row, Shape
from suite_extras import EXTRAS

import tileworkbench as tw
from tileworkbench.bench.timing import measure

OURS = "tileworkbench"
# A case gets fewer rounds than asked for where one round would make it longer than this.
CASE_SECONDS, FEWEST_ROUNDS = 3, 5
COMPILER = "torch.compile"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", nargs="*", default=[], help="only rows whose name has this text")
    parser.add_argument("--quick", action="store_true", help="first shape only, nothing written")
    parser.add_argument("--rounds", type=int, default=25, help="interleaved rounds of each case")
    parser.add_argument("--threads", type=int, nargs="*", default=[1, torch.get_num_threads()])
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        name, threads, rounds, quick = options.child
        row = next(row for row in ROWS if row.name == name)
        print_json(measure_row(row, int(threads), int(rounds), quick == "1"))
        return
    facts = environment(("tileworkbench", "torch", "llvmlite", "numpy"))
    facts["compiler"] = shutil.which("g++") or "no C++ compiler, so no torch.compile"
    chosen = [row for row in ROWS if wanted(row.name, options.rows)]
    extras = {name: run() for name, run in EXTRAS.items() if wanted(name, options.rows)}
    found: dict[str, list[dict[str, Any]]] = {}
    for row in chosen:
        for threads in dict.fromkeys(options.threads):
            arguments = [row.name, threads, options.rounds, int(options.quick)]
            found.setdefault(row.name, []).extend(run_row(list(map(str, arguments))))
        print(
            *(" | ".join(line) for line in summary_lines(row, found[row.name])),
            sep="\n",
            flush=True,
        )
    table = report(chosen, found, extras)
    print(table)
    if not options.quick and not options.rows:
        data = {"rows": found, "extras": extras}
        table += "\n\n" + (FOLDER / "suite_notes.md").read_text()
        print(f"\nwritten to {write_results('cpu_suite', facts, data, table)}")


def wanted(name: str, texts: list[str]) -> bool:
    return not texts or any(text in name for text in texts)


def run_row(arguments: list[str]) -> list[dict[str, Any]]:
    """A row in a process of its own: what one leaves in memory or in caches is no other's."""
    print(f"  {arguments[0]}, {arguments[1]} threads", file=sys.stderr, flush=True)
    cells: list[dict[str, Any]] = run_child(Path(__file__), ["--child", *arguments])
    return cells


def measure_row(row: Row, threads: int, rounds: int, quick: bool) -> list[dict[str, Any]]:
    """The cells of a row with this many threads."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    shapes = row.shapes[:1] if quick else row.shapes
    return [measure_cell(row, shape, threads, rounds) for shape in shapes]


def measure_cell(row: Row, shape: Shape, threads: int, rounds: int) -> dict[str, Any]:
    """Times in milliseconds of interleaved rounds, and how far the results are apart."""
    case = row.build(shape)
    references = dict(case.references)
    if COMPILER in references and shutil.which("g++") is None:
        del references[COMPILER]
    found = case.ours()
    error, slow = 0.0, 0.0
    for name, reference in references.items():
        reference()
        start = time.perf_counter()
        expected = reference()
        slow += time.perf_counter() - start
        if name != COMPILER:
            error = max(error, relative_error(found, expected))
    rounds = max(FEWEST_ROUNDS, min(rounds, int(CASE_SECONDS / slow)))
    results = measure({OURS: case.ours, **references}, rounds)
    stats = case.kernel.stats
    return {
        "shape": shape,
        "threads": threads,
        "error": error,
        "clock": results[OURS].clock_note,
        "flops": stats.flops.value,
        "bytes": stats.bytes_.value,
        "predicted": stats.predicted.total_us / 1e3,
        "roof": stream_roof(stats.bytes_.value, threads) if row.streams else math.nan,
        "times": {name: result.times for name, result in results.items()},
    }


def stream_roof(bytes_: float, threads: int) -> float:
    """GB/s of the memory level that `bytes_` bytes lie in, as measured on this machine."""
    from tileworkbench.bench.points import BANDWIDTH
    from tileworkbench.bench.roofline import home_level

    machine = tw.machine()
    found = machine.find(home_level(bytes_, threads, machine), BANDWIDTH, threads)
    return math.nan if found is None else found.value


def relative_error(found: Any, expected: Any) -> float:
    """The largest difference of the first output over the largest element."""
    first, wide = (x[0] if isinstance(x, list | tuple) else x for x in (found, expected))
    wide = wide.double().reshape(first.shape)
    return float((first.double() - wide).abs().max() / wide.abs().max())


def report(
    rows: Iterable[Row],
    found: dict[str, list[dict[str, Any]]],
    extras: dict[str, list[dict[str, Any]]] | None = None,
) -> str:
    """The summary per row and number of threads, the extras, and all cells."""
    rows = list(rows)
    summary = [line for row in rows for line in summary_lines(row, found[row.name])]
    for name, lines in (extras or {}).items():
        summary += [[f"{name}: {line['what']}", *extra_columns(line)] for line in lines]
    columns = ("row, threads", "speed", "least", "goal", "aim", "part of the roof", "met")
    cells = [list(cell_line(row, cell)) for row in rows for cell in found[row.name]]
    names = ("cell", "ours", "quartiles", "reference", "quartiles", "speed", "predicted", "error")
    errors = [prediction_error(cell) for row in rows for cell in found[row.name]]
    errors = [error for error in errors if not math.isnan(error)]
    text = markdown_table(columns, summary) + "\n\n" + markdown_table(names, cells)
    if errors:
        text += f"\n\nMedian error of the predicted time: {statistics.median(errors):.0%}."
    return text


def summary_lines(row: Row, cells: list[dict[str, Any]]) -> Iterator[list[str]]:
    """The geometric mean of the ratios, the smallest, and whether both reach the goal."""
    for threads in dict.fromkeys(cell["threads"] for cell in cells):
        ratios = [speed(cell) for cell in cells if cell["threads"] == threads]
        mean, least = statistics.geometric_mean(ratios), min(ratios)
        met = mean >= row.goal and least >= 0.9 * min(row.goal, 1.0)
        parts = [roof_part(cell) for cell in cells if cell["threads"] == threads]
        roof = "-" if math.isnan(parts[0]) else f"{min(parts):.0%} to {max(parts):.0%}"
        numbers = [f"{value:.2f}" for value in (mean, least, row.goal, row.aim)]
        yield [f"{row.name}, {threads}", *numbers, roof, "yes" if met else "no"]


def extra_columns(line: dict[str, Any]) -> list[str]:
    values = [line["value"], None, line["goal"], line["aim"]]
    shown = ["-" if value is None else f"{value:.3g}" for value in values]
    return [*shown, "-", "yes" if line["met"] else line.get("note", "no")]


def best_reference(cell: dict[str, Any]) -> str:
    """The fastest of those that ours is compared with."""
    others = {name: statistics.median(v) for name, v in cell["times"].items() if name != OURS}
    return min(others, key=others.__getitem__)


def speed(cell: dict[str, Any]) -> float:
    """The best reference's median time over ours."""
    times = cell["times"]
    return statistics.median(times[best_reference(cell)]) / statistics.median(times[OURS])


def roof_part(cell: dict[str, Any]) -> float:
    """Bandwidth reached, counting what must move at least, over that of the level it lies in."""
    return float(cell["bytes"] / statistics.median(cell["times"][OURS]) / 1e6 / cell["roof"])


def prediction_error(cell: dict[str, Any]) -> float:
    """How far the predicted time is off, as a part of the measured one."""
    measured = statistics.median(cell["times"][OURS])
    return abs(cell["predicted"] - measured) / measured


def cell_line(row: Row, cell: dict[str, Any]) -> Iterator[str]:
    shape = " x ".join(map(str, cell["shape"]))
    name = best_reference(cell)
    yield f"{row.name} {shape}, {cell['threads']}"
    for times in (cell["times"][OURS], cell["times"][name]):
        low, _, high = statistics.quantiles(times, n=4)
        shown = f"{statistics.median(times):.4g} ms"
        yield shown if times is cell["times"][OURS] else f"{shown} ({name})"
        yield f"{low:.4g} to {high:.4g}"
    yield f"{speed(cell):.2f}"
    yield f"{cell['predicted']:.4g} ms"
    yield f"{cell['error']:.0e}"


if __name__ == "__main__":
    os.environ.setdefault("TORCHINDUCTOR_CPP_WRAPPER", "0")
    main()
