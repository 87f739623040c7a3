"""What it gives that loops and sums of columns go strip by strip, on this processor.

    python benchmarks/register_strips.py [--quick]

Kernels are compiled as they are, and with strips as wide as their tiles: a loop around a tile and
a sum of its columns load and store each partial result every time. For all that this processor has
and for AVX2, called in turn: one thread.
"""

from __future__ import annotations

from typing import Any

from two_ways import compare_cases, compiled_with

from tileworkbench.compiler.lower.shared import strips


def whole_tiles(program: Any, target: str) -> Any:
    """A kernel with a single strip for each tile."""
    return compiled_with(strips, "VECTORS", 1 << 20, program, target)


if __name__ == "__main__":
    compare_cases("register_strips", __doc__, ("strips, ms", "whole tiles, ms"), whole_tiles)
