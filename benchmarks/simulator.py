"""What simulating costs: the fp16 matmul, tile by tile and thread by thread, with every check.

    python benchmarks/simulator.py [--rounds N]

Each figure is the median of the rounds, the first one apart. See README.md for what the rows mean.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from common import environment, markdown_table, write_results

import tileworkbench.language as T
from tileworkbench.compiler.driver import lower_program, resolve_target
from tileworkbench.compiler.sim import SimOptions, simulate

SIZE = 256
LIMIT_S = 5.0  # stage SIMT with all checks
TARGET = "cuda:sm_80"


def matmul() -> Any:
    """128 x 128 x 32 tiles, three stages."""

    @T.prim_func
    def kernel(
        A: T.Tensor((SIZE, SIZE), "float16"),
        B: T.Tensor((SIZE, SIZE), "float16"),
        C: T.Tensor((SIZE, SIZE), "float16"),
    ):
        with T.Kernel(SIZE // 128, SIZE // 128, threads=128) as (bx, by):
            A_shared = T.alloc_shared((128, 32), "float16")
            B_shared = T.alloc_shared((32, 128), "float16")
            C_local = T.alloc_fragment((128, 128), "float32")
            T.clear(C_local)
            for k in T.Pipelined(SIZE // 32, num_stages=3):
                T.copy(A[by * 128, k * 32], A_shared)
                T.copy(B[k * 32, bx * 128], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            T.copy(C_local, C[by * 128, bx * 128])

    return kernel.program


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="runs after the first")
    rounds = parser.parse_args().rounds
    facts = environment(["numpy"])
    program = matmul()
    snapshots = {
        found.name: found.program for found in lower_program(program, resolve_target(TARGET))
    }
    random = np.random.default_rng(0)
    a, b = (random.standard_normal((SIZE, SIZE)).astype(np.float16) for _ in range(2))
    arguments = {"A": a, "B": b, "C": np.zeros((SIZE, SIZE), np.float16)}
    expected = a.astype(np.float64) @ b.astype(np.float64)
    unchecked = SimOptions(races=False, uninitialised=False, misaligned=False, divergence=False)
    last = list(snapshots)[-1]
    cases = {
        "tile by tile": (program, None),
        "thread by thread in lock step": (snapshots["lower_to_threads"], None),
        "SIMT": (snapshots[last], None),
        "SIMT, no checks": (snapshots[last], unchecked),
    }
    rows = []
    for name, (stage, options) in cases.items():
        run = partial(simulate, stage, arguments, None, options, program)
        first, median = measure(run, rounds)
        result = run()
        error = float(np.abs(result.arrays["C"].astype(np.float64) - expected).max())
        if not result.report.ok:
            raise SystemExit(str(result.report))
        rows.append(
            {
                "row": name,
                "first_s": first,
                "median_s": median,
                "error": error,
                "warp_instructions": sum(count for _, count in result.report.instructions),
            }
        )
    worst = next(row["median_s"] for row in rows if row["row"] == "SIMT")
    table = markdown_table(
        ["row", "first, s", "median, s", "warp instructions", "error"],
        [
            [
                row["row"],
                f"{row['first_s']:.2f}",
                f"{row['median_s']:.2f}",
                str(row["warp_instructions"] or ""),
                f"{row['error']:.3f}",
            ]
            for row in rows
        ],
    )
    text = f"fp16, {SIZE}^3 in tiles of 128 x 128 x 32, 3 stages, {TARGET}.\n\n{table}\n"
    text += f"\nSIMT with all checks: {worst:.2f} s, limit {LIMIT_S:.0f} s.\n"
    print(text)
    print(f"written to {write_results('simulator', facts, rows, text)}")


def measure(run: Callable[[], Any], rounds: int) -> tuple[float, float]:
    """Seconds of (the first run, the median of the others)."""
    times = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return times[0], statistics.median(times[1:])


if __name__ == "__main__":
    main()
