"""What it gives to know where no signalling NaN can be, on this processor.

    python benchmarks/quiet_floats.py [--quick] [--only PART]

AVX-512 takes maxima and minima in one instruction where neither operand can be such a NaN; what may
be one takes another instruction. Results of arithmetic never are: not under a name, nor in tiles
into which nothing else is stored. The kernels of `cost/`, with tiles from the beginning, the middle
and the end of their lists, are compiled with that knowledge and without, and called in turn: one
thread. What becomes the same code is left out, and so is all with AVX2.
"""

from __future__ import annotations

from typing import Any

from two_ways import compare_cases, compiled_with

from tileworkbench.compiler.analysis.quiet import QuietFloats


def main() -> None:
    heads = ("known, ms", "made quiet, ms")
    compare_cases("quiet_floats", __doc__, heads, made_quiet)


def made_quiet(program: Any, target: str) -> Any:
    """The kernel where names and tiles may stand for anything."""
    return compiled_with(QuietFloats, "of", _of_accumulators, program, target)


_of = QuietFloats.of


def _of_accumulators(body: Any) -> QuietFloats:
    return QuietFloats(_of(body).accumulators)


if __name__ == "__main__":
    main()
