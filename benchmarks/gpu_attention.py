"""The library's attention on a CUDA device against `scaled_dot_product_attention`, float16.

    python benchmarks/gpu_attention.py [--rounds N]

Without a device the result file says so. See README.md for what the columns mean.
"""

from __future__ import annotations

from typing import Any

from gpu_common import device_target, measured, run

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

    calls = {"ours": ours, "torch": lambda: attend(*given, is_causal=causal).transpose(1, 2)}
    operations = 4.0 * batch * heads * length * length * width / (2 if causal else 1)
    return measured(shape, calls, operations, rounds)


def label(shape: tuple[int, int, int, int, bool]) -> list[str]:
    return [", ".join(map(str, shape[:4])), "yes" if shape[4] else "no"]


if __name__ == "__main__":
    names = ["batch, heads, length, width", "causal"]
    run("gpu_attention", __doc__, "float16, forward", SHAPES, measure, (names, label))
