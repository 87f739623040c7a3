"""How well the ceilings agree that several processes measure, one after another.

    python benchmarks/ceilings_agree.py            # ten processes, about two minutes
    python benchmarks/ceilings_agree.py --quick    # two, nothing is written

Each process measures for itself: no cache is read or written. See README.md.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from common import environment, markdown_table, print_json, run_child, write_results

PROCESSES = 10
AGREEMENT = 0.05
"""What the ceilings of all processes should agree within: largest over smallest, less one."""


def main() -> None:
    if sys.argv[1:] == ["--child"]:
        return print_json(measure())
    count = 2 if "--quick" in sys.argv[1:] else PROCESSES
    facts = environment(("tileworkbench", "llvmlite"))
    runs = []
    for number in range(count):
        runs.append(run_child(Path(__file__), ["--child"], TILEWORKBENCH_DISABLE_CACHE="1"))
        print(f"process {number + 1} of {count}: {runs[-1]['note']}", file=sys.stderr)
    table = make_table(runs)
    print(table)
    if count == PROCESSES:
        print(f"\nwritten to {write_results('ceilings-agree', facts, runs, table)}")


def measure() -> dict[str, object]:
    """One process: ceilings by name, unit and threads, and whether it was disturbed."""
    import tileworkbench as tw

    found = tw.machine(measure=True)
    ceilings = {f"{c.name}, {c.threads} T, {c.unit}": c.value for c in found.ceilings}
    return {"ceilings": ceilings, "busy": found.busy, "note": found.note}


def spread(values: Sequence[float]) -> float:
    """The largest over the smallest, less one."""
    return max(values) / min(values) - 1


def make_table(runs: Sequence[Mapping[str, object]]) -> str:
    """A row per ceiling, and below what does not agree."""
    names = dict.fromkeys(name for run in runs for name in run["ceilings"])  # type: ignore[attr-defined]
    values = {name: [run["ceilings"][name] for run in runs] for name in names}  # type: ignore[index]
    rows = [
        (
            name,
            *(f"{pick(found):.1f}" for pick in (min, statistics.median, max)),
            f"{spread(found) * 100:.1f} %",
        )
        for name, found in values.items()
    ]
    table = markdown_table(("ceiling", "least", "median", "most", "spread"), rows)
    apart = [name for name, found in values.items() if spread(found) > AGREEMENT]
    busy = sum(bool(run["busy"]) for run in runs)
    agreement = f"{AGREEMENT * 100:.0f} %"
    verdict = f"not within {agreement}: {'; '.join(apart)}" if apart else f"all within {agreement}"
    return (
        f"{table}\n\n{len(runs)} processes, one after another: {verdict}. "
        f"{busy} of them said that the machine was busy."
    )


if __name__ == "__main__":
    main()
