"""The fp16 matrix product of the library on a CUDA device against `torch.matmul` (cuBLAS).

    python benchmarks/gpu_matmul.py [--rounds N]

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

# M, N, K, and whether B is given as (N, K), as linear layers hold it.
SHAPES = [
    (1024, 1024, 1024, False),
    (2048, 2048, 2048, False),
    (4096, 4096, 4096, False),
    (4096, 4096, 4096, True),
    (8192, 8192, 8192, False),
    (16, 4096, 4096, True),
    (128, 11008, 4096, True),
]
STAGES = 3


def measure(shape: tuple[int, int, int, bool], rounds: int) -> dict[str, Any]:
    """One row: times of both, their ratio and how far the results are apart."""
    import torch

    m, n, k, transposed = shape
    torch.manual_seed(0)
    a = torch.randn(m, k, device="cuda", dtype=torch.float16)
    b = torch.randn(*((n, k) if transposed else (k, n)), device="cuda", dtype=torch.float16)
    program = kernels.matmul(
        m,
        n,
        k,
        "float16",
        out_dtype="float16",
        trans_B=transposed,
        block_M=min(128, max(16, m)),
        num_stages=STAGES,
    )
    kernel = tw.compile(program, target=device_target())
    right = b.mT if transposed else b
    calls = {"ours": lambda: kernel(a, b), "torch": lambda: torch.matmul(a, right)}
    expected = calls["torch"]().float()
    error = float((calls["ours"]().float() - expected).abs().max() / expected.abs().max())
    times = summary(compare_times(calls, rounds, cache_eraser()))
    operations = 2.0 * m * n * k
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
        write_nothing("gpu_matmul", reason)
        return
    rows = [measure(shape, rounds) for shape in SHAPES]
    columns = ["M x N x K", "B", "ours/torch", "ours, ms", "torch, ms", "ours", "torch", "error"]
    table = markdown_table(
        columns,
        [
            [
                " x ".join(map(str, row["shape"][:3])),
                "N x K" if row["shape"][3] else "K x N",
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
    text = f"float16, summed in float32, {STAGES} stages, {device_target()}.\n\n{table}"
    print(text)
    print(f"written to {write_results('gpu_matmul', facts(), rows, text)}")


if __name__ == "__main__":
    main()
