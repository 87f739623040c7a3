"""What it gives to compute functions such as `exp`, and partial results of reductions, for several
vectors at once, on this processor.

    python benchmarks/vectors_at_once.py [--quick]

Kernels of `cost/` that have one of these, with tiles from the middle of their lists, are
compiled as they are and with one vector at once, for all that this processor has and for AVX2, and
called in turn: one thread.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from common import environment, write_results
from cost import CASES
from cost.case import Case
from two_ways import TARGETS, compiled_with, milliseconds, told

import tileworkbench as tw
from tileworkbench.compiler.lower.vectors import parallel

AT_ONCE = (parallel.CHAINS, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of it, nothing written")
    options = parser.parse_args()
    facts = environment(("tileworkbench", "llvmlite"))
    tw.set_num_threads(1)
    seconds = 0.2 if options.quick else 2.0
    data = [row for case in CASES for row in compared(case, seconds)]
    text = told((f"{AT_ONCE[0]} at once, ms", "one, ms"), data)
    print(text)
    if not options.quick:
        print(f"\nwritten to {write_results('vectors_at_once', facts, data, text)}")


def compared(case: Case, seconds: float) -> Iterator[dict[str, Any]]:
    """Milliseconds of a call by target; nothing where the code is the same."""
    program = case.make(**case.constants, **case.middle)
    for target in TARGETS:
        kernels = [compiled_with(parallel, "CHAINS", chains, program, target) for chains in AT_ONCE]
        if kernels[0].source != kernels[1].source:
            times = milliseconds(kernels, 100, seconds)
            yield {"kernel": case.label(case.middle), "target": target, "ms": times}


if __name__ == "__main__":
    main()
