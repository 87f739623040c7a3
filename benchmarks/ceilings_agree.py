"""How well the ceilings agree that several processes measure, one after another.

    python benchmarks/ceilings_agree.py            # ten processes, about two minutes
    python benchmarks/ceilings_agree.py --quick    # two, nothing is written

Each process measures for itself: no cache is read or written. Those that call the machine quiet
must agree within 5 %; the others say why they do not promise it. The last line says what keeping
the best of each ceiling, as a cache does, makes of the same measurements. See README.md.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path

from common import environment, markdown_table, print_json, run_child, write_results

import tileworkbench as tw
from tileworkbench.bench.ceilings import (
    AGREEMENT,
    best_of,
    machine_from_json,
    machine_to_json,
)

PROCESSES = 10


def main() -> None:
    if sys.argv[1:] == ["--child"]:
        return print_json(measure())
    count = 2 if "--quick" in sys.argv[1:] else PROCESSES
    facts = environment(("tileworkbench", "llvmlite"))
    runs = []
    for number in range(count):
        runs.append(run_child(Path(__file__), ["--child"], TILEWORKBENCH_DISABLE_CACHE="1"))
        print(f"process {number + 1} of {count}: {said(runs[-1])}", file=sys.stderr)
    table = make_table(runs)
    print(table)
    if count == PROCESSES:
        print(f"\nwritten to {write_results('ceilings-agree', facts, runs, table)}")


def measure() -> dict[str, object]:
    """One process: ceilings by name, unit and threads, and whether it was disturbed."""
    found = tw.machine(measure=True)
    return {
        **{"ceilings": named(found), "machine": json.loads(machine_to_json(found))},
        **{"busy": found.busy, "doubt": found.doubt},
    }


def named(machine: tw.Machine) -> dict[str, float]:
    """The ceilings of a machine by name, threads and unit."""
    return {f"{c.name}, {c.threads} T, {c.unit}": c.value for c in machine.ceilings}


def said(run: Mapping[str, object]) -> str:
    """What a process said of the machine."""
    return str(run["doubt"]) if run["busy"] else "quiet"


def spread(values: Sequence[float]) -> float:
    """The largest over the smallest, less one."""
    return max(values) / min(values) - 1


def make_table(runs: Sequence[Mapping[str, object]]) -> str:
    """A row per ceiling, what each process said, and below it which ceilings do not agree."""
    quiet = [run for run in runs if not run["busy"]]
    everything, promised = values_of(runs), values_of(quiet)
    rows = [
        (
            name,
            *(f"{pick(found):.1f}" for pick in (min, statistics.median, max)),
            f"{spread(found) * 100:.1f} %",
            f"{spread(promised[name]) * 100:.1f} %" if len(quiet) > 1 else "-",
        )
        for name, found in everything.items()
    ]
    head = ("ceiling", "least", "median", "most", "spread", "spread of quiet ones")
    told = "\n".join(f"{number}. {said(run)}" for number, run in enumerate(runs, 1))
    return "\n\n".join(
        (
            *(markdown_table(head, rows), told, verdict(len(runs), promised, len(quiet))),
            kept([machine_from_json(json.dumps(run["machine"])) for run in runs]),
        )
    )


def values_of(runs: Sequence[Mapping[str, object]]) -> dict[str, list[float]]:
    """What each of these processes found, by ceiling."""
    names = dict.fromkeys(name for run in runs for name in run["ceilings"])  # type: ignore[attr-defined]
    return {name: [run["ceilings"][name] for run in runs] for name in names}  # type: ignore[index]


def verdict(count: int, promised: Mapping[str, Sequence[float]], quiet: int) -> str:
    """Whether the processes that called the machine quiet agree."""
    agreement = f"{AGREEMENT * 100:.0f} %"
    head = f"{count} processes, one after another: {quiet} called the machine quiet"
    if quiet < 2:
        return f"{head}, so there is nothing that must agree within {agreement}."
    apart = [name for name, found in promised.items() if spread(found) > AGREEMENT]
    if apart:
        return f"{head}. These are not within {agreement}: {'; '.join(apart)}."
    return f"{head}, and these agree within {agreement}."


def kept(machines: Sequence[tw.Machine]) -> str:
    """How many processes it takes until a cache holds what no later one raises by much."""
    held = [named(machine) for machine in accumulate(machines, best_of)]
    last = held[-1]
    settled = next(
        number
        for number, each in enumerate(held, 1)
        if all(last[name] <= value * (1 + AGREEMENT) for name, value in each.items())
    )
    agreement = f"{AGREEMENT * 100:.0f} %"
    if settled == len(held):
        return (
            f"Kept in a cache: the last process still raised some ceiling by more than {agreement}."
        )
    return (
        f"Kept in a cache: no process after number {settled} raised any ceiling by more than "
        f"{agreement}."
    )


if __name__ == "__main__":
    main()
