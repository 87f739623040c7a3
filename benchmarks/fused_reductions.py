"""What it gives to compute elements inside of the reductions that read them, on this processor.

    python benchmarks/fused_reductions.py [--quick]

Kernels of `cost_cases.py` with tiles from the beginning, the middle and the end of their lists are
compiled as they are, and with nests and reductions one after another, for all that this processor
has and for AVX2, and called in turn: one thread.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from common import environment, write_results
from cost_cases import CASES, Case
from two_ways import TARGETS, compiled_with, milliseconds, told

import tileworkbench as tw
from tileworkbench.compiler.lower.shared.loop_fusion import LoopFuser


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
    text = told(("fused, ms", "one after another, ms"), data)
    print(text)
    if not options.quick and not options.only:
        print(f"\nwritten to {write_results('fused_reductions', facts, data, text)}")


def compared(case: Case, seconds: float) -> Iterator[dict[str, Any]]:
    """Milliseconds of a call by target and tiles; nothing where the code is the same."""
    tiles = case.configurations
    for at in dict.fromkeys((0, len(tiles) // 2, len(tiles) - 1)):
        program = case.make(**case.constants, **tiles[at])
        for target in TARGETS:
            kernels = (tw.compile(program, target=target), apart(program, target))
            if kernels[0].source != kernels[1].source:
                times = milliseconds(kernels, 100, seconds)
                yield {"kernel": case.label(tiles[at]), "target": target, "ms": times}


def apart(program: Any, target: str) -> Any:
    """A kernel whose reductions read what nests have stored."""
    as_it_is = lambda self, done, stmt: stmt  # noqa: E731
    return compiled_with(LoopFuser, "around_nests", as_it_is, program, target)


if __name__ == "__main__":
    main()
