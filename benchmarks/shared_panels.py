"""What it gives that blocks share the panels they multiply by, on this processor.

    python benchmarks/shared_panels.py [--quick]

Products, linear layers and attentions of the library are compiled as they are, and without the pass
that joins blocks, for all that this processor has and for AVX2, and called in turn: one thread.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from common import environment, write_results
from two_ways import TARGETS, milliseconds, told

import tileworkbench as tw
from tileworkbench.kernels import flash_attention, linear, matmul

SIZES = (512, 1024, 2048)
ATTENTIONS = ((512, 128), (1024, 64), (2048, 64))  # rows of queries and keys, and their length
HEADS = 8
HEADINGS = ("shared, ms", "each its own, ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a fifth of it, nothing written")
    options = parser.parse_args()
    facts = environment(("tileworkbench", "llvmlite"))
    tw.set_num_threads(1)
    data = list(rows(0.2 if options.quick else 1.0))
    text = told(HEADINGS, data)
    print(text)
    if not options.quick:
        print(f"\nwritten to {write_results('shared_panels', facts, data, text)}")


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
    main()
