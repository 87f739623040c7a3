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
from collections.abc import Callable, Iterator, Mapping
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
from tileworkbench.kernels import flash_attention

LIMIT = 3.0  # times the simulation
HOPPER = "cuda:sm_90a"
PLAIN = SimOptions(races=False, uninitialised=False, misaligned=False, prints=False)
CHECKED = SimOptions(prints=False)


@dataclass(frozen=True, slots=True)
class Recorder:
    """A recorder, and the options of the runs that it watches."""

    make: Callable[[Mapping[str, tuple[int, ...]]], Observer]  # from the shapes of the tensors
    options: SimOptions


@dataclass(frozen=True, slots=True)
class Case:
    """A kernel, its target and inputs."""

    name: str
    target: str
    program: Program
    arguments: Mapping[str, np.ndarray[Any, Any]]

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Those of the tensors, by name."""
        return {name: array.shape for name, array in self.arguments.items()}


RECORDERS: Mapping[str, Recorder] = {
    "write log": Recorder(lambda _: WriteLog(), PLAIN),
    "footprint": Recorder(lambda _: FootprintRecorder(), PLAIN),
    "footprint, one block": Recorder(
        lambda _: FootprintRecorder(0), replace(PLAIN, blocks=(0,))
    ),
    "replay, one block": Recorder(
        lambda shapes: StepRecorder(MEMORY_BYTES, shapes, 1), replace(CHECKED, blocks=(0,))
    ),
}
"""By the name of the row."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=25, help="pairs of runs after the first")
    parser.add_argument("--quick", action="store_true", help="one round, nothing written")
    given = parser.parse_args()
    facts = environment(["numpy"])
    rows = [row for case in cases() for row in rows_of(case, given)]
    text = (
        f"matmul: fp16, {SIZE}^3 in tiles of 128 x 128 x 32, 3 stages, {TARGET}. attention: fp16, "
        f"2 heads of 64, 256 queries in tiles of 128, 256 keys in tiles of 64, {HOPPER}.\n\n"
        f"{table(rows)}\n\n"
        f"The goal is {LIMIT:.0f} times the simulation at most.\n"
    )
    print(text)
    if not given.quick:
        print(f"written to {write_results('recording', facts, rows, text)}")


def cases() -> Iterator[Case]:
    """A product of matrices in threads of sm_80, and attention in the roles of sm_90a."""
    random = np.random.default_rng(0)

    def half(*shape: int) -> np.ndarray[Any, Any]:
        return random.standard_normal(shape).astype(np.float16)

    product = {"A": half(SIZE, SIZE), "B": half(SIZE, SIZE), "C": half(SIZE, SIZE)}
    yield Case("matmul", TARGET, matmul(), product)
    length, heads, width = 256, 2, 64
    page = flash_attention(
        1, heads, length, length, width, "float16", block_M=128, block_N=64, threads=256
    )
    given = {name: half(1, length, heads, width) for name in ("Q", "K", "V", "Output")}
    row_sums = np.zeros((1, heads, length), np.float32)
    yield Case("attention", HOPPER, page.program, given | {"L": row_sums})


def rows_of(case: Case, given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The recorders on the program as written and after the last pass, and numerics."""
    lowered = lower_program(case.program, resolve_target(case.target))[-1].program
    for stage, each in (("tile", case.program), ("SIMT", lowered)):
        for name, recorder in RECORDERS.items():

            def run(*observers: Observer, each: Program = each, by: Recorder = recorder) -> None:
                options = replace(by.options, observers=observers)
                simulate(each, case.arguments, None, options, case.program)
                for observer in observers:
                    finish(observer)

            recorded = partial(made_and_watched, partial(recorder.make, case.shapes), run)
            head = {"program": f"{case.name}, {stage}", "recorder": name}
            yield head | measured(run, recorded, given)
    plain = partial(both, case.program, case.arguments)
    head = {"program": f"{case.name}, tile", "recorder": "numerics, one block (two runs)"}
    yield head | measured(plain, partial(compare, case.program, case.arguments), given)


def finish(observer: Observer) -> None:
    """What a recorder still does after the run, before there is something to show."""
    match observer:
        case FootprintRecorder():
            observer.finish()
        case StepRecorder():
            observer.replay("kernel", "")


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
