"""What it gives to compute elements inside of the reductions that read them, on this processor.

    python benchmarks/fused_reductions.py [--quick]

Kernels of `cost_cases.py` with tiles from the beginning, the middle and the end of their lists are
compiled as they are, and with nests and reductions one after another, for all that this processor
has and for AVX2, and called in turn: one thread.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from typing import Any

from common import environment, markdown_table, write_results
from cost_cases import CASES, Case
from cost_model import inputs_of
from in_turn import in_turn, usual

import tileworkbench as tw
from tileworkbench.compiler.driver import clear_memory_cache
from tileworkbench.compiler.lower.shared.loop_fusion import LoopFuser

TARGETS = ("cpu", "cpu:avx2")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of it, nothing written")
    parser.add_argument("--only", default="", help="a part of the names of kernels")
    options = parser.parse_args()
    facts = environment(("tileworkbench", "llvmlite"))
    tw.set_num_threads(1)
    seconds = 0.15 if options.quick else 0.8
    cases = [case for case in CASES if options.only in case.name]
    data = [row for case in cases for row in compared(case, seconds)]
    head = ("kernel, one thread", "target", "fused, ms", "one after another, ms", "times as fast")
    rows = [
        (row["kernel"], row["target"], *(f"{ms:.3f}" for ms in row["ms"]), f"{gain(row):.2f}")
        for row in data
    ]
    text = f"{markdown_table(head, rows)}\n\nGeometric means: "
    text += "; ".join(f"{target} {mean(data, target):.2f} times as fast" for target in TARGETS)
    print(f"{text}.")
    if not options.quick and not options.only:
        print(f"\nwritten to {write_results('fused_reductions', facts, data, f'{text}.')}")


def gain(row: dict[str, Any]) -> float:
    return float(row["ms"][1] / row["ms"][0])


def mean(data: list[dict[str, Any]], target: str) -> float:
    """The geometric mean of the gains of a target."""
    gains = [math.log(gain(row)) for row in data if row["target"] == target]
    return math.exp(sum(gains) / len(gains)) if gains else math.nan


def compared(case: Case, seconds: float) -> Iterator[dict[str, Any]]:
    """Milliseconds of a call by target and tiles; nothing where the code is the same."""
    tiles = case.configurations
    for config in dict.fromkeys((0, len(tiles) // 2, len(tiles) - 1)):
        program = case.make(**case.constants, **tiles[config])
        for target in TARGETS:
            kernels = [compiled(program, target, fused) for fused in (True, False)]
            if kernels[0].source == kernels[1].source:
                continue
            args = inputs_of(kernels[0])
            calls = [lambda k=kernel, a=args: k(*a) for kernel in kernels]
            times = usual(in_turn(calls, 100, seconds)).tolist()
            yield {"kernel": case.label(tiles[config]), "target": target, "ms": times}


def compiled(program: Any, target: str, fused: bool) -> Any:
    """A kernel with reductions that compute what they read, or without."""
    before = LoopFuser.around_nests
    if not fused:
        LoopFuser.around_nests = lambda self, done, stmt: stmt
    clear_memory_cache()
    try:
        return tw.compile(program, target=target)
    finally:
        LoopFuser.around_nests = before


if __name__ == "__main__":
    main()
