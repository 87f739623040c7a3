"""What it gives to compute functions such as `exp`, and partial results of reductions, for several
vectors at once, on this processor.

    python benchmarks/vectors_at_once.py [--quick]

Kernels of `cost_cases.py` that have one of these, with tiles from the middle of their lists, are
compiled as they are and with one vector at once, for all that this processor has and for AVX2, and
called in turn: one thread.
"""

from __future__ import annotations

import argparse
import math
from typing import Any

from common import environment, markdown_table, write_results
from cost_cases import CASES, Case
from cost_model import inputs_of
from in_turn import in_turn, usual

import tileworkbench as tw
from tileworkbench.compiler.driver import clear_memory_cache
from tileworkbench.compiler.lower.vectors import parallel

TARGETS = ("cpu", "cpu:avx2")
AT_ONCE = (parallel.CHAINS, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of it, nothing written")
    options = parser.parse_args()
    facts = environment(("tileworkbench", "llvmlite"))
    tw.set_num_threads(1)
    seconds = 0.2 if options.quick else 2.0
    data = [row for case in CASES for row in compared(case, seconds)]
    head = ("kernel, one thread", "target", f"{AT_ONCE[0]} at once, ms", "one, ms", "times as fast")
    rows = [
        (row["kernel"], row["target"], *(f"{ms:.3f}" for ms in row["ms"]), f"{gain(row):.2f}")
        for row in data
    ]
    text = f"{markdown_table(head, rows)}\n\nGeometric means: "
    text += "; ".join(f"{target} {mean(data, target):.2f} times as fast" for target in TARGETS)
    print(f"{text}.")
    if not options.quick:
        print(f"\nwritten to {write_results('vectors_at_once', facts, data, f'{text}.')}")


def gain(row: dict[str, Any]) -> float:
    return float(row["ms"][1] / row["ms"][0])


def mean(data: list[dict[str, Any]], target: str) -> float:
    """The geometric mean of the gains of a target."""
    gains = [math.log(gain(row)) for row in data if row["target"] == target]
    return math.exp(sum(gains) / len(gains)) if gains else math.nan


def compared(case: Case, seconds: float) -> list[dict[str, Any]]:
    """Milliseconds of a call by target; nothing where the code is the same."""
    program, rows = case.make(**case.constants, **case.middle), []
    for target in TARGETS:
        kernels = [compiled(program, target, chains) for chains in AT_ONCE]
        if kernels[0].source == kernels[1].source:
            continue
        args = inputs_of(kernels[0])
        calls = [lambda k=kernel, a=args: k(*a) for kernel in kernels]
        times = usual(in_turn(calls, 100, seconds)).tolist()
        rows.append({"kernel": case.label(case.middle), "target": target, "ms": times})
    return rows


def compiled(program: Any, target: str, chains: int) -> Any:
    """A kernel with so many vectors at once."""
    before = parallel.CHAINS
    parallel.CHAINS = chains
    clear_memory_cache()
    try:
        return tw.compile(program, target=target)
    finally:
        parallel.CHAINS = before


if __name__ == "__main__":
    main()
