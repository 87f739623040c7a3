"""What it gives that blocks share the panels they multiply by, on this processor.

    python benchmarks/shared_panels.py [--quick]

Products, linear layers and attentions of the library are compiled as they are, and without the pass
that joins blocks, for all that this processor has and for AVX2, and called in turn: one thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from two_ways import TARGETS, compare_rows, milliseconds

import tileworkbench as tw
from tileworkbench.kernels import flash_attention, linear, matmul

SIZES = (512, 1024, 2048)
ATTENTIONS = ((512, 128), (1024, 64), (2048, 64))  # rows of queries and keys, and their length
HEADS = 8


def programs() -> Iterator[tuple[str, Any]]:
    """The kernels with their names."""
    for dtype in ("float32", "bfloat16"):
        for size in SIZES:
            for made in (matmul, linear):
                yield f"{made.__name__} {size} {dtype}", made(size, size, size, dtype)
        for length, dim in ATTENTIONS:
            for causal in (False, True):
                kind = "causal attention" if causal else "attention"
                program = flash_attention(1, HEADS, length, length, dim, dtype, causal=causal)
                yield f"{kind} {HEADS} x {length} x {dim} {dtype}", program


def rows(seconds: float) -> Iterator[dict[str, Any]]:
    """Milliseconds of both ways, where their code differs."""
    for name, program in programs():
        for target in TARGETS:
            kernels = [
                tw.compile(program, target=target, disable=off) for off in ((), ("share_panels",))
            ]
            if kernels[0].source != kernels[1].source:
                yield {"kernel": name, "target": target, "ms": milliseconds(kernels, 60, seconds)}


if __name__ == "__main__":
    compare_rows("shared_panels", __doc__, ("shared, ms", "each its own, ms"), rows)
