"""What LLVM's unrolling of loops gives kernels on this processor, and what it costs: one thread.

    python benchmarks/unrolled_loops.py [--quick]

Each kernel of `cost/`, with tiles from the middle of its list, is compiled with all passes
of `DEFAULT_PASSES` and without "loop-unroll", and called in turn.
"""

from __future__ import annotations

import argparse
import math
import time
from typing import Any

from common import environment, markdown_table, write_results
from cost import CASES
from cost.case import Case
from cost_model import inputs_of
from two_ways import milliseconds

import tileworkbench as tw
from tileworkbench.compiler.device.host import native
from tileworkbench.compiler.device.host.llvm import DEFAULT_PASSES, compile_object
from tileworkbench.compiler.driver import clear_memory_cache

PASSES = (DEFAULT_PASSES, tuple(name for name in DEFAULT_PASSES if name != "loop-unroll"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of it, nothing written")
    options = parser.parse_args()
    facts = environment(("tileworkbench", "llvmlite"))
    tw.set_num_threads(1)
    cases = CASES[::10] if options.quick else CASES
    data = [compared(case, 0.3 if options.quick else 1.5) for case in cases]
    text = markdown_table(
        ("kernel, one thread", "unrolled, ms", "as written, ms", "times as fast", "LLVM, ms"),
        [
            (
                row["kernel"],
                *(f"{ms:.3f}" for ms in row["ms"]),
                f"{row['ms'][1] / row['ms'][0]:.2f}",
                "{:.0f}, {:.0f}".format(*row["llvm_ms"]),
            )
            for row in data
        ],
    )
    gains = [math.log(row["ms"][1] / row["ms"][0]) for row in data]
    unrolled, written = (sum(row["llvm_ms"][at] for row in data) for at in (0, 1))
    text += f"\n\nGeometric mean: {math.exp(sum(gains) / len(gains)):.2f} times as fast; "
    text += f"LLVM takes {unrolled / written:.2f} times as long."
    print(text)
    if not options.quick:
        print(f"\nwritten to {write_results('unrolled_loops', facts, data, text)}")


def compared(case: Case, seconds: float) -> dict[str, Any]:
    """Milliseconds of a call, and of LLVM, with all passes and without unrolling."""
    config = case.middle
    kernels, llvm_ms = [], []
    for passes in PASSES:
        native.DEFAULT_PASSES = passes  # also part of the key of a stored object
        clear_memory_cache()
        kernels.append(tw.compile(case.make(**case.constants, **config), target="cpu"))
        kernels[-1](*inputs_of(kernels[-1]))
        llvm_ms.append(min(compile_ms(kernels[-1].source, passes) for _ in range(3)))
    times = milliseconds(kernels, 100, seconds)
    return {"kernel": case.label(config), "ms": times, "llvm_ms": llvm_ms}


def compile_ms(text: str, passes: tuple[str, ...]) -> float:
    start = time.perf_counter_ns()
    compile_object(text, passes=passes)
    return (time.perf_counter_ns() - start) / 1e6


if __name__ == "__main__":
    main()
