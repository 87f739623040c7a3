"""From how much work on a launch is worth several threads that are awake, on this processor.

    python benchmarks/short_launches.py [--quick]

Kernels of few rows are called with all cores, by the OpenMP team of torch, and on the caller's core
alone, in turn.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from common import environment, markdown_table, write_results
from cost_model import inputs_of
from in_turn import in_turn, usual

import tileworkbench as tw
from tileworkbench import kernels
from tileworkbench.compiler.device.host import launch, processor, threads
from tileworkbench.kernels import elementwise

_HEADS = ("kernel", "estimated, us", "one core, us", "all, us", "times as fast")


def programs() -> Iterator[tuple[str, Any]]:
    """Kernels from a microsecond of work on."""
    for rows in (8, 16, 32, 64, 128, 256):
        yield f"add {rows}x512, float32", elementwise.add(rows, 512, "float32")
        yield f"add {rows}x512, bfloat16", elementwise.add(rows, 512, "bfloat16")
        yield f"softmax {rows}x512, float32", kernels.softmax(rows, 512, "float32")
        yield f"rmsnorm {rows}x512, bfloat16", kernels.rmsnorm(rows, 512, "bfloat16")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a fifth of it, nothing written")
    options = parser.parse_args()
    facts = environment(("tileworkbench", "torch"))
    count = processor.core_count()
    tw.set_num_threads(count)
    if not isinstance(threads.team_for(count), threads.OpenMPTeam):
        raise SystemExit("this needs an OpenMP runtime, as torch brings one")
    data = [compared(*each, 0.2 if options.quick else 1.0) for each in programs()]
    data.sort(key=lambda row: row["estimated_us"])
    rows = [
        (
            *(row["kernel"], f"{row['estimated_us']:.0f}", *(f"{us:.1f}" for us in row["us"])),
            f"{row['us'][0] / row['us'][1]:.2f}",
        )
        for row in data
    ]
    text = f"{markdown_table(_HEADS, rows)}\n\n{count} cores."
    print(text)
    if not options.quick:
        print(f"\nwritten to {write_results('short_launches', facts, data, text)}")


def compared(name: str, program: Any, seconds: float) -> dict[str, Any]:
    """Microseconds of a launch on one core and on all."""
    kernel = tw.compile(program, target="cpu")
    args = inputs_of(kernel)
    ((_, _, estimated),) = kernel.native_launches

    def with_least(estimate: float) -> None:
        launch.SERIAL_BELOW_NS = estimate
        kernel(*args)

    launch.WAKE_FROM_NS = 0  # the team is awake
    times = usual(in_turn((lambda: with_least(1e18), lambda: with_least(0)), 400, seconds))
    return {"kernel": name, "estimated_us": estimated / 1e3, "us": [1e3 * float(t) for t in times]}


if __name__ == "__main__":
    main()
