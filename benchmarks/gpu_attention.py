"""The library's attention on a CUDA device against `scaled_dot_product_attention`, float16.

    python benchmarks/gpu_attention.py [--rounds N]

Without a device the result file says so. See README.md for what the columns mean.
"""

from __future__ import annotations

import argparse
from typing import Any

from common import markdown_table, write_results
from gpu_common import (
    cache_eraser,
    compare_times,
    device_target,
    facts,
    missing,
    shown,
    summary,
    write_nothing,
)

import tileworkbench as tw
from tileworkbench import kernels

# Batch, heads, length of queries and of keys, width of a head, causal.
SHAPES = [
    (4, 16, 1024, 64, False),
    (4, 16, 1024, 64, True),
    (2, 16, 4096, 64, True),
    (4, 16, 1024, 128, False),
    (2, 16, 4096, 128, False),
    (2, 16, 4096, 128, True),
]


def measure(shape: tuple[int, int, int, int, bool], rounds: int) -> dict[str, Any]:
    """One row: times of both, their ratio and how far the results are apart."""
    import torch

    batch, heads, length, width, causal = shape
    torch.manual_seed(0)
    q, k, v = (
        torch.randn(batch, length, heads, width, device="cuda", dtype=torch.float16)
        for _ in range(3)
    )
    program = kernels.flash_attention(batch, heads, length, length, width, "float16", causal=causal)
    kernel = tw.compile(program, target=device_target())
    # torch wants heads before the sequence: given as it likes it, so that it copies nothing.
    given = [x.transpose(1, 2).contiguous() for x in (q, k, v)]
    attend = torch.nn.functional.scaled_dot_product_attention

    def ours() -> torch.Tensor:
        found = kernel(q, k, v)
        return found[0] if isinstance(found, list) else found

    calls = {"ours": ours, "torch": lambda: attend(*given, is_causal=causal)}
    expected = calls["torch"]().transpose(1, 2).float()
    error = float((ours().float() - expected).abs().max() / expected.abs().max())
    times = summary(compare_times(calls, rounds, cache_eraser()))
    operations = 4.0 * batch * heads * length * length * width / (2 if causal else 1)
    return {
        "shape": shape,
        "error": error,
        **times,
        "ours_tflops": operations / times["ours_ms"][1] / 1e9,
        "torch_tflops": operations / times["torch_ms"][1] / 1e9,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=50, help="times each is called")
    rounds = parser.parse_args().rounds
    reason = missing()
    if reason is not None:
        write_nothing("gpu_attention", reason)
        return
    rows = [measure(shape, rounds) for shape in SHAPES]
    columns = ["batch, heads, length, width", "causal", "ours/torch", "ours, ms", "torch, ms"]
    table = markdown_table(
        [*columns, "ours", "torch", "error"],
        [
            [
                ", ".join(map(str, row["shape"][:4])),
                "yes" if row["shape"][4] else "no",
                shown(row["ratio"], 2),
                shown(row["ours_ms"]),
                shown(row["torch_ms"]),
                f"{row['ours_tflops']:.0f}",
                f"{row['torch_tflops']:.0f}",
                f"{row['error']:.1e}",
            ]
            for row in rows
        ],
    )
    text = f"float16, forward, {device_target()}.\n\n{table}"
    print(text)
    print(f"written to {write_results('gpu_attention', facts(), rows, text)}")


if __name__ == "__main__":
    main()
