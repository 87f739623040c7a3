"""What it gives to compute elements inside of the reductions that read them, on this processor.

    python benchmarks/fused_reductions.py [--quick]

Kernels are compiled as they are, and with nests and reductions one after another, for all that this
processor has and for AVX2, and called in turn: one thread.
"""

from __future__ import annotations

from typing import Any

from two_ways import compare_cases, compiled_with

from tileworkbench.compiler.lower.shared.loop_fusion import LoopFuser


def apart(program: Any, target: str) -> Any:
    """A kernel whose reductions read what nests have stored."""
    as_it_is = lambda self, done, stmt: stmt  # noqa: E731
    return compiled_with(LoopFuser, "around_nests", as_it_is, program, target)


if __name__ == "__main__":
    heads = ("fused, ms", "one after another, ms")
    compare_cases("fused_reductions", __doc__, heads, apart)
