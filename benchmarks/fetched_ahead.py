"""What it gives to fetch large inputs ahead of their use, on this processor.

    python benchmarks/fetched_ahead.py [--quick]

Kernels with large inputs are compiled as they are and without fetches, for all that this processor
has and for AVX2, and called in turn: one thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cost.columns import column_errors, column_max, column_sums
from two_ways import TARGETS, compare_rows, compiled_with, milliseconds

import tileworkbench as tw
from tileworkbench import kernels
from tileworkbench.compiler.emit.llvm import module
from tileworkbench.kernels import elementwise


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


def rows(seconds: float) -> Iterator[dict[str, Any]]:
    """Every kernel for each target."""
    for name, program in programs():
        for target in TARGETS:
            yield compared(name, program, target, 1.5 * seconds)


def compared(name: str, program: Any, target: str, seconds: float) -> dict[str, Any]:
    """Milliseconds of a call as it is, and without fetches."""
    made = tw.compile(program, target=target)
    without = compiled_with(module, "fetched_loads", lambda *_: {}, program, target)
    return {"kernel": name, "target": target, "ms": milliseconds((made, without), 100, seconds)}


if __name__ == "__main__":
    compare_rows("fetched_ahead", __doc__, ("ahead, ms", "not ahead, ms"), rows)
