"""What watching a simulated run costs: each recorder beside the same run without it.

    OMP_NUM_THREADS=1 python benchmarks/recording.py [--rounds N] [--quick]

Processor time is counted, also that of threads of numpy's products that only wait: one is enough.
The garbage collector is off, as timeit has it.
"The simulation" that a recording is compared with is the same program on the same inputs, the same
blocks and the same checks, with no recorder. See README.md for what the rows mean.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
import tracemalloc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from common import environment, markdown_table, write_results
from simulator import SIZE, TARGET, matmul

from tileworkbench.compiler.driver import lower_program, resolve_target
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.sim import SimOptions, simulate
from tileworkbench.compiler.sim.arguments import solve_symbols
from tileworkbench.compiler.sim.footprint.recorder import FootprintRecorder
from tileworkbench.compiler.sim.numerics.replay import compare
from tileworkbench.compiler.sim.numerics.widening import wide_arguments, widened
from tileworkbench.compiler.sim.observers import Observer
from tileworkbench.compiler.sim.replay.recorder import MEMORY_BYTES, StepRecorder
from tileworkbench.compiler.sim.writes import WriteLog

LIMIT = 3.0  # times the simulation
PLAIN = SimOptions(races=False, uninitialised=False, misaligned=False, prints=False)
CHECKED = SimOptions(prints=False)
SHAPES = dict.fromkeys("ABC", (SIZE, SIZE))


@dataclass(frozen=True, slots=True)
class Recorder:
    """A recorder, and the options of the runs that it watches."""

    make: Callable[[], Observer]
    options: SimOptions


RECORDERS: Mapping[str, Recorder] = {
    "write log": Recorder(WriteLog, PLAIN),
    "footprint": Recorder(FootprintRecorder, PLAIN),
    "footprint, one block": Recorder(lambda: FootprintRecorder(0), replace(PLAIN, blocks=(0,))),
    "replay, one block": Recorder(
        lambda: StepRecorder(MEMORY_BYTES, SHAPES, 1), replace(CHECKED, blocks=(0,))
    ),
}
"""By the name of the row."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=25, help="pairs of runs after the first")
    parser.add_argument("--quick", action="store_true", help="one round, nothing written")
    given = parser.parse_args()
    facts = environment(["numpy"])
    program = matmul()
    lowered = lower_program(program, resolve_target(TARGET))[-1].program
    random = np.random.default_rng(0)
    a, b = (random.standard_normal((SIZE, SIZE)).astype(np.float16) for _ in range(2))
    arguments = {"A": a, "B": b, "C": np.zeros((SIZE, SIZE), np.float16)}
    rows = []
    for stage, each in (("tile", program), ("SIMT", lowered)):
        for name, recorder in RECORDERS.items():

            def run(*observers: Observer, each: Program = each, by: Recorder = recorder) -> None:
                options = replace(by.options, observers=observers)
                simulate(each, arguments, None, options, program)
                for observer in observers:
                    finish(observer)

            recorded = partial(made_and_watched, recorder.make, run)
            rows.append({"program": stage, "recorder": name} | measured(run, recorded, given))
    rows.append(
        {"program": "tile", "recorder": "numerics, one block (two runs)"}
        | measured(partial(both, program, arguments), partial(compare, program, arguments), given)
    )
    text = (
        f"fp16, {SIZE}^3 in tiles of 128 x 128 x 32, 3 stages, {TARGET}.\n\n{table(rows)}\n\n"
        f"The goal is {LIMIT:.0f} times the simulation at most.\n"
    )
    print(text)
    if not given.quick:
        print(f"written to {write_results('recording', facts, rows, text)}")


def finish(observer: Observer) -> None:
    """What a recorder still does after the run, before there is something to show."""
    match observer:
        case FootprintRecorder():
            observer.finish()
        case StepRecorder():
            observer.replay("matmul", "")


def made_and_watched(make: Callable[[], Observer], run: Callable[..., None]) -> None:
    """A run with a new recorder."""
    run(make())


def both(program: Program, arguments: Mapping[str, Any]) -> None:
    """The two runs that the numerics lens compares, without it."""
    symbols = solve_symbols(program, arguments)
    options = replace(PLAIN, blocks=(0,))
    simulate(widened(program), wide_arguments(program, arguments, symbols), symbols, options)
    simulate(program, arguments, symbols, options)


def measured(
    plain: Callable[[], Any], recorded: Callable[[], Any], given: argparse.Namespace
) -> dict[str, Any]:
    """Seconds of the processor that the runs with and without the recorder take, in turns, and
    bytes that it takes.
    """
    times: dict[str, list[float]] = {"plain": [], "recorded": []}
    ways = (("plain", plain), ("recorded", recorded))
    for turn in range(1 + (1 if given.quick else given.rounds)):
        for way, run in ways if turn % 2 else reversed(ways):
            gc.collect()  # as timeit does: when it runs depends on the whole process
            gc.disable()
            start = time.process_time()
            run()
            if turn:
                times[way].append(time.process_time() - start)
            gc.enable()
    return times | {"bytes": peak(recorded) - peak(plain)}


def peak(run: Callable[[], Any]) -> int:
    """The most bytes that Python and numpy hold in a run."""
    tracemalloc.start()
    run()
    found = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return found


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as Markdown."""
    made = []
    for row in rows:
        plain, recorded = (statistics.median(row[way]) for way in ("plain", "recorded"))
        mebibytes = max(row["bytes"], 0) / 2**20
        texts = f"{plain:.3f}", f"{recorded:.3f}", f"{recorded / plain:.2f}", f"{mebibytes:.1f}"
        made.append([f"{row['program']}: {row['recorder']}", *texts])
    return markdown_table(["program, recorder", "plain, s", "recorded, s", "ratio", "MiB"], made)


if __name__ == "__main__":
    main()
