"""What it gives to put the body of a loop that runs once in its place, on this processor.

    python benchmarks/single_iterations.py [--quick] [--only PART]

A tile that is as long as what it is taken from leaves a loop of one iteration, and a tile of one
step a loop over it. Where the loop stays, its variable hides which elements are the same. The
kernels of `cost/`, with tiles from the beginning, the middle and the end of their lists, are
compiled in both ways, for all that this processor has and for AVX2, and called in turn: one thread.
What becomes the same code is left out.
"""

from __future__ import annotations

import sys
from typing import Any

from two_ways import compare_cases, compiled_with

from tileworkbench.compiler.passes.serialize_pipelines import serialize_pipelines


def main() -> None:
    compare_cases("single_iterations", __doc__, ("in its place, ms", "a loop, ms"), with_loops)


def with_loops(program: Any, target: str) -> Any:
    """The kernel with its loops of one iteration."""
    return compiled_with(sys.modules[serialize_pipelines.__module__], "LOOPS", {}, program, target)


if __name__ == "__main__":
    main()
