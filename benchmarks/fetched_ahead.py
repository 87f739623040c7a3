"""What it gives to fetch large inputs ahead of their use, on this processor.

    python benchmarks/fetched_ahead.py [--quick]

Kernels with large inputs are compiled as they are and without fetches, for all that this processor
has and for AVX2, and called in turn: one thread.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from common import environment, write_results
from cost.columns import column_errors, column_max, column_sums
from two_ways import TARGETS, compiled_with, milliseconds, told

import tileworkbench as tw
from tileworkbench import kernels
from tileworkbench.compiler.emit.llvm import module
from tileworkbench.kernels import elementwise


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a fifth of it, nothing written")
    options = parser.parse_args()
    facts = environment(("tileworkbench", "llvmlite"))
    tw.set_num_threads(1)
    seconds = 0.3 if options.quick else 1.5
    data = [
        compared(name, program, target, seconds)
        for name, program in programs()
        for target in TARGETS
    ]
    text = told(("ahead, ms", "not ahead, ms"), data)
    print(text)
    if not options.quick:
        print(f"\nwritten to {write_results('fetched_ahead', facts, data, text)}")


def programs() -> Iterator[tuple[str, Any]]:
    """Kernels that go through their inputs in a row, then such that go down columns."""
    yield "add 4096x4096", elementwise.add(4096, 4096, "float32")
    yield "softmax 4096x4096", kernels.softmax(4096, 4096)
    for dtype in ("float32", "bfloat16"):
        yield f"rmsnorm 4096x4096, {dtype}", kernels.rmsnorm(4096, 4096, dtype)
    for rows, columns in ((8192, 2048), (4096, 4096), (8192, 4096)):
        yield f"gemv {rows}x{columns}", kernels.gemv(rows, columns)
    weights = kernels.dequant_gemv(3584, 14336, "int4", 128, "bfloat16")
    yield "gemv 3584x14336 of 4 bits", weights
    for rows, columns in ((4096, 1024), (8192, 2048), (8000, 2040)):
        for tile in ((8, 64), (64, 256)):
            for make in (column_sums, column_max):
                label = f"{make.__name__} {rows}x{columns}, tiles of {tile[0]}x{tile[1]}"
                yield label, make(rows, columns, *tile)
    for tile in ((1, 384), (8, 1920), (64, 8), (512, 64)):
        label = f"column_errors 2560x1920, tiles of {tile[0]}x{tile[1]}"
        yield label, column_errors(2560, 1920, *tile)


def compared(name: str, program: Any, target: str, seconds: float) -> dict[str, Any]:
    """Milliseconds of a call as it is, and without fetches."""
    made = tw.compile(program, target=target)
    without = compiled_with(module, "fetched_loads", lambda *_: {}, program, target)
    return {"kernel": name, "target": target, "ms": milliseconds((made, without), 100, seconds)}


if __name__ == "__main__":
    main()
