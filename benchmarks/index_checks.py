"""What it costs to check indices of tiles that are not known to be in range.

    python benchmarks/index_checks.py

The same kernel with an index from memory, which is checked, and with its low bits, which are surely
in range. See README.md.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from common import environment, markdown_table, write_results

import tileworkbench as tw
import tileworkbench.language as T

ROUNDS, BLOCKS, COUNT, SIZE = 100, 256, 4096, 1024


def place(index: Any, checked: bool) -> Any:
    """An index of a tile that is checked, or its low bits, which need no check."""
    return index if checked else index & (SIZE - 1)


def gather(checked: bool) -> Any:
    """Elements of a tile by indices from memory."""

    @T.prim_func
    def gather(
        A: T.Tensor((SIZE,), "float32"),
        X: T.Tensor((BLOCKS, COUNT), "int32"),
        B: T.Tensor((BLOCKS, COUNT), "float32"),
    ):
        with T.Kernel(BLOCKS, threads=128) as bx:
            S = T.alloc_shared((SIZE,), "float32")
            T.copy(A, S)
            for i in T.Parallel(COUNT):
                B[bx, i] = S[place(X[bx, i], checked)]

    return gather


def count(checked: bool) -> Any:
    """Counts in a tile."""

    @T.prim_func
    def count(
        A: T.Tensor((SIZE,), "float32"),
        X: T.Tensor((BLOCKS, COUNT), "int32"),
        B: T.Tensor((BLOCKS, SIZE), "int32"),
    ):
        with T.Kernel(BLOCKS, threads=128) as bx:
            S = T.alloc_shared((SIZE,), "int32")
            T.clear(S)
            for i in T.Parallel(COUNT):
                T.atomic_add(S[place(X[bx, i], checked)], 1)
            T.copy(S, B[bx, :])

    return count


def window(checked: bool) -> Any:
    """Sums of neighbours: whole vectors at an offset from memory."""

    @T.prim_func
    def window(
        A: T.Tensor((SIZE,), "float32"),
        X: T.Tensor((BLOCKS, COUNT), "int32"),
        B: T.Tensor((BLOCKS, SIZE), "float32"),
    ):
        with T.Kernel(BLOCKS, threads=128) as bx:
            S = T.alloc_shared((2 * SIZE,), "float32")
            T.clear(S)
            T.copy(A, S[0:SIZE])
            n = place(X[bx, 0], checked)
            for i in T.Parallel(SIZE):
                B[bx, i] = S[i + n] + S[i]

    return window


def main() -> None:
    tw.set_num_threads(1)
    facts = environment(("tileworkbench", "llvmlite", "torch"))
    found = {make.__name__: measure(make) for make in (gather, count, window)}
    table = markdown_table(
        ("kernel", "checked", "in range by its form", "ratio"),
        [
            (name, f"{1e3 * checked:.3f} ms", f"{1e3 * known:.3f} ms", f"{checked / known:.2f}")
            for name, (checked, known) in found.items()
        ],
    )
    table += f"\n\nOne thread; medians of {ROUNDS} rounds, in which each is called once.\n"
    print(table)
    print(f"\nwritten to {write_results('index_checks', facts, found, table)}")


def measure(make: Callable[[bool], Any]) -> tuple[float, float]:
    """Median times with and without a check, in seconds."""
    a, i = torch.randn(SIZE), torch.randint(0, SIZE, (BLOCKS, COUNT)).int()
    kernels = [tw.compile(make(checked), target="cpu") for checked in (True, False)]
    b = torch.empty(
        BLOCKS,
        COUNT if make is gather else SIZE,
        dtype=torch.int32 if make is count else torch.float32,
    )
    times: tuple[list[float], list[float]] = ([], [])
    for round_ in range(-3, ROUNDS):
        for kernel, kept in zip(kernels, times, strict=True):
            start = time.perf_counter()
            kernel(a, i, b)
            if round_ >= 0:
                kept.append(time.perf_counter() - start)
    return statistics.median(times[0]), statistics.median(times[1])


if __name__ == "__main__":
    main()
