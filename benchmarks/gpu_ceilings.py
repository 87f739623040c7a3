"""The ceilings of a CUDA device: what torch reaches, beside what the vendor publishes.

    python benchmarks/gpu_ceilings.py [--rounds N]

Without a device the result file says so. See README.md for what the columns mean.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

from common import markdown_table, write_results
from gpu_common import compare_times, facts, missing

from tileworkbench.bench.published import published

SIDE = 8192  # of square products
BYTES = 1 << 30  # that a copy reads, and writes


def calls() -> dict[str, tuple[Callable[[], Any], float, str]]:
    """What is called, the bytes or operations of a call, and what it says of the device."""
    import torch

    half, whole = (torch.empty(BYTES, dtype=torch.uint8, device="cuda") for _ in range(2))
    found: dict[str, tuple[Callable[[], Any], float, str]] = {
        "DRAM, copy": (partial(half.copy_, whole), 2.0 * BYTES, "GB/s"),
        "DRAM, write": (half.zero_, 1.0 * BYTES, "GB/s"),
    }
    operations = 2.0 * SIDE**3
    for dtype in (torch.float16, torch.bfloat16):
        a, b = (torch.randn(SIDE, SIDE, device="cuda", dtype=dtype) for _ in range(2))
        name = f"{str(dtype).removeprefix('torch.')} product"
        found[name] = (partial(torch.matmul, a, b), operations, "TFLOP/s")
    a, b = (torch.randint(-9, 9, (SIDE, SIDE), device="cuda").to(torch.int8) for _ in range(2))
    found["int8 product"] = (partial(torch._int_mm, a, b.mT), operations, "TFLOP/s")
    return found


def measure(rounds: int) -> list[dict[str, Any]]:
    """A row for each call; one that fails holds what it failed with."""
    rows: list[dict[str, Any]] = []
    for name, (call, amount, unit) in calls().items():
        try:
            times = compare_times({name: call}, rounds, lambda: None)[name]
        except Exception as error:  # an operation that this build of torch does not have
            rows.append({"shape": name, "failed": f"{type(error).__name__}: {error}"})
            continue
        scale = 1e6 if unit == "GB/s" else 1e9
        rate = amount / statistics.median(times) / scale
        rows.append({"shape": name, "rate": rate, "unit": unit, "ms": times})
    return rows


def table(rows: list[dict[str, Any]], arch: str) -> str:
    """What was reached, and the published ceilings of the architecture below it."""
    cells = [
        (row["shape"], f"{row['rate']:.0f}", row["unit"]) for row in rows if "failed" not in row
    ]
    text = markdown_table(("what", "reached", "unit"), cells)
    failed = [f"{row['shape']} failed: {row['failed']}" for row in rows if "failed" in row]
    device = published(arch)
    if device is not None:
        listed = "; ".join(f"{c.name} {c.value:.0f} {c.unit}" for c in device.ceilings)
        failed.append(f"Published, {device.name}: {listed}.")
    return "\n\n".join([text, *failed])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30, help="times each is called")
    rounds = parser.parse_args().rounds
    reason = missing()
    if reason is not None:
        text, data = f"Nothing was measured: {reason}.", {"measured": False, "reason": reason}
        print(f"{text}\nwritten to {write_results('gpu_ceilings', facts(), data, text)}")
        return
    from tileworkbench.compiler.device.nvidia.driver import open_device

    rows = measure(rounds)
    about = f"torch, medians of {rounds}: copies of {BYTES >> 30} GiB, products of {SIDE}"
    text = f"{about}.\n\n{table(rows, open_device().arch)}"
    print(text)
    print(f"written to {write_results('gpu_ceilings', facts(), rows, text)}")


if __name__ == "__main__":
    main()
