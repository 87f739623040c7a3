"""What it gives to compute in vectors what is stored element by element, on this processor.

    python benchmarks/apart_vectors.py [--quick] [--only PART]

Where memory likes no dimension of a nest (three bytes of each pixel, places that are computed), its
iterations had gone one by one. Much is computed in some of them: that is done in vectors now, whose
lanes are loaded and stored by themselves. The kernels of `cost/`, with tiles from the beginning,
the middle and the end of their lists, are compiled in both ways, for all that this processor has
and for AVX2, and called in turn: one thread. What becomes the same code is left out.
"""

from __future__ import annotations

import math
from typing import Any

from two_ways import compare_cases, compiled_with

from tileworkbench.compiler.lower.vectors import parallel


def main() -> None:
    compare_cases("apart_vectors", __doc__, ("vectors, ms", "one by one, ms"), one_by_one)


def one_by_one(program: Any, target: str) -> Any:
    """The kernel without vectors where memory likes no dimension."""
    return compiled_with(parallel, "_GAIN", math.inf, program, target)


if __name__ == "__main__":
    main()
