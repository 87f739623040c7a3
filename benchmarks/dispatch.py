"""What choosing among configurations by size adds to a call.

    python benchmarks/dispatch.py

`tw.autotune(..., sizes=...)` gives a kernel that looks at its arguments' sizes first. One kernel is
called with and without that, in turns. See README.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from common import environment, markdown_table, write_results

import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench.kernels import elementwise
from tileworkbench.tuning.dispatch import Bucket, DispatchedKernel

ROUNDS, CALLS = 5000, 10
SAMPLES = (16, 128, 1024)


def main() -> None:
    tw.set_num_threads(1)
    facts = environment(("tileworkbench", "llvmlite", "torch"))
    rows = [measure(("m",)), measure(("m", "n"))]
    cells = [
        (
            ", ".join(row["symbols"]),
            *(f"{row[kind]:.2f} us" for kind in ("alone", "dispatched", "added")),
        )
        for row in rows
    ]
    table = markdown_table(("symbols", "one kernel", "chosen by size", "added"), cells)
    table += (
        f"\n\nAn addition of 16 x 16 elements, one thread; minima of {ROUNDS} rounds of {CALLS} "
        "calls, which take turns. The limit is 2 us.\n"
    )
    print(table)
    print(f"\nwritten to {write_results('dispatch', facts, rows, table)}")


def measure(symbols: tuple[str, ...]) -> dict[str, Any]:
    """Microseconds of a call without and with the choice."""
    extents = [T.dynamic(name) for name in symbols] + [16] * (2 - len(symbols))
    kernel = tw.compile(elementwise.add(*extents, "float32"), target="cpu")
    cells = [
        (size,) if len(symbols) == 1 else (size, other) for size in SAMPLES for other in SAMPLES
    ]
    buckets = [Bucket((cell,), {}, 0.0, 0.0) for cell in dict.fromkeys(cells)]
    sizes = dict.fromkeys(symbols, SAMPLES)
    dispatched = DispatchedKernel(symbols, sizes, buckets, [kernel] * len(buckets))
    data = torch.randn(16, 16), torch.randn(16, 16)
    calls: dict[str, Callable[..., Any]] = {"alone": kernel, "dispatched": dispatched}
    times = dict.fromkeys(calls, float("inf"))
    for _ in range(ROUNDS):
        for name, call in calls.items():
            start = time.perf_counter_ns()
            for _ in range(CALLS):
                call(*data)
            times[name] = min(times[name], (time.perf_counter_ns() - start) / CALLS / 1e3)
    return {"symbols": symbols, **times, "added": times["dispatched"] - times["alone"]}


if __name__ == "__main__":
    main()
