"""The fp16 matrix product of the library on a CUDA device against `torch.matmul` (cuBLAS).

    python benchmarks/gpu_matmul.py [--rounds N]

Without a device the result file says so. See README.md for what the columns mean.
"""

from __future__ import annotations

from typing import Any

from gpu_common import device_target, measured, run

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
    return measured(shape, calls, 2.0 * m * n * k, rounds)


def label(shape: tuple[int, int, int, bool]) -> list[str]:
    return [" x ".join(map(str, shape[:3])), "N x K" if shape[3] else "K x N"]


if __name__ == "__main__":
    about = f"float16, summed in float32, {STAGES} stages"
    run("gpu_matmul", __doc__, about, SHAPES, measure, (["M x N x K", "B"], label))
