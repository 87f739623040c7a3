"""How well the ceilings agree that several processes measure, one after another.

    python benchmarks/ceilings_agree.py            # ten processes, about two minutes
    python benchmarks/ceilings_agree.py --quick    # two, nothing is written

Each process measures for itself: no cache is read or written. Those that call the machine quiet
must agree within 5 % in what they promise; the others say why they do not promise it. A virtual
machine promises nothing of L3 and DRAM, which it shares with other guests of its host. The last
line says what keeping the best of each ceiling, as a cache does, makes of the same measurements.
See README.md.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Collection, Mapping, Sequence
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
from tileworkbench.bench.points import Ceiling

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
        "shared": [ceiling_name(each) for each in found.shared],
    }


def named(machine: tw.Machine) -> dict[str, float]:
    """The ceilings of a machine by name, threads and unit."""
    return {ceiling_name(ceiling): ceiling.value for ceiling in machine.ceilings}


def ceiling_name(ceiling: Ceiling) -> str:
    """``L1, 2 T, GB/s``."""
    return f"{ceiling.name}, {ceiling.threads} T, {ceiling.shown_unit}"


def said(run: Mapping[str, object]) -> str:
    """What a process said of the machine."""
    return str(run["doubt"]) if run["busy"] else "quiet"


def spread(values: Sequence[float]) -> float:
    """The largest over the smallest, less one."""
    return max(values) / min(values) - 1


def make_table(runs: Sequence[Mapping[str, object]]) -> str:
    """A row per ceiling, what each process said, and below it which ceilings do not agree."""
    quiet = [run for run in runs if not run["busy"]]
    shared = {name for run in runs for name in run["shared"]}  # type: ignore[attr-defined]
    everything = values_of(runs)
    promised = {name: found for name, found in values_of(quiet).items() if name not in shared}
    rows = [
        (
            name,
            *(f"{pick(found):.1f}" for pick in (min, statistics.median, max)),
            f"{spread(found) * 100:.1f} %",
            "shared" if name in shared else promised_spread(promised.get(name, ())),
        )
        for name, found in everything.items()
    ]
    head = ("ceiling", "least", "median", "most", "spread", "spread of what is promised")
    told = "\n".join(f"{number}. {said(run)}" for number, run in enumerate(runs, 1))
    return "\n\n".join(
        (
            *(markdown_table(head, rows), told, verdict(len(runs), promised, len(quiet), shared)),
            kept([machine_from_json(json.dumps(run["machine"])) for run in runs]),
        )
    )


def promised_spread(values: Sequence[float]) -> str:
    """How far the values of processes are apart that called the machine quiet."""
    return f"{spread(values) * 100:.1f} %" if len(values) > 1 else "-"


def values_of(runs: Sequence[Mapping[str, object]]) -> dict[str, list[float]]:
    """What each of these processes found, by ceiling."""
    names = dict.fromkeys(name for run in runs for name in run["ceilings"])  # type: ignore[attr-defined]
    return {name: [run["ceilings"][name] for run in runs] for name in names}  # type: ignore[index]


def verdict(
    count: int, promised: Mapping[str, Sequence[float]], quiet: int, shared: Collection[str]
) -> str:
    """Whether the processes that called the machine quiet agree in what they promise."""
    agreement = f"{AGREEMENT * 100:.0f} %"
    head = f"{count} processes, one after another: {quiet} called the machine quiet"
    if quiet < 2:
        return f"{head}, so there is nothing that must agree within {agreement}."
    apart = [name for name, found in promised.items() if spread(found) > AGREEMENT]
    if apart:
        return f"{head}. These are not within {agreement}: {'; '.join(apart)}."
    all_of = f"all {len(promised)} ceilings that they promise"
    rest = f" ({len(shared)} are shared with other guests of the host)" if shared else ""
    return f"{head}, and {all_of} agree within {agreement}{rest}."


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
