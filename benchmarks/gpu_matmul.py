"""The fp16 matrix product of the library on a CUDA device against `torch.matmul` (cuBLAS), and
Triton where it is installed.

    python benchmarks/gpu_matmul.py [--rounds N]

Without a device the result file says so. See README.md for what the columns mean.
"""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from typing import Any

from gpu_common import device_target, fastest, measured, run

import tileworkbench as tw
from tileworkbench import kernels

# M, N, K, whether B is given as (N, K), as linear layers hold it, and the name in the TileLang
# paper (arXiv 2504.17577), table 2.
SHAPES = [
    (4096, 1024, 8192, False, "M0"),
    (4096, 8192, 8192, False, "M1"),
    (4096, 28672, 8192, False, "M2"),
    (4096, 8192, 28672, False, "M3"),
    (8192, 1024, 8192, False, "M4"),
    (8192, 8192, 8192, False, "M5"),
    (8192, 28672, 8192, False, "M6"),
    (8192, 8192, 28672, False, "M7"),
    (1024, 1024, 1024, False, ""),
    (4096, 4096, 4096, False, ""),
    (4096, 4096, 4096, True, ""),
    (16, 4096, 4096, True, ""),
    (128, 11008, 4096, True, ""),
]
# block_M, block_N, block_K, stages, threads: the fastest of these for a shape is its row.
TILES = [
    (128, 128, 32, 3, 128),
    (128, 128, 64, 3, 128),
    (128, 256, 64, 3, 256),
    (256, 128, 64, 3, 256),
    (64, 128, 64, 4, 128),
    (16, 128, 64, 4, 128),
]


def measure(shape: tuple[int, int, int, bool, str], rounds: int) -> dict[str, Any]:
    """One row: times of all, their ratios and how far the results are apart."""
    import torch

    m, n, k, transposed, _ = shape
    torch.manual_seed(0)
    a = torch.randn(m, k, device="cuda", dtype=torch.float16)
    b = torch.randn(*((n, k) if transposed else (k, n)), device="cuda", dtype=torch.float16)

    def compiled(tile: tuple[int, ...]) -> Any:
        names = ("block_M", "block_N", "block_K", "num_stages", "threads")
        program = kernels.matmul(
            *(m, n, k, "float16"),
            out_dtype="float16",
            trans_B=transposed,
            **dict(zip(names, tile, strict=True)),
        )
        return tw.compile(program, target=device_target())

    made = {"x".join(map(str, t)): compiled(t) for t in TILES if t[0] <= max(m, 16)}
    best = fastest({name: partial(kernel, a, b) for name, kernel in made.items()})
    right = b.mT if transposed else b
    calls = {"ours": partial(made[best], a, b), "torch": lambda: torch.matmul(a, right)}
    if find_spec("triton") is not None:
        import triton_gpu

        calls["Triton"] = lambda: triton_gpu.matmul(a, right)
    return measured(shape, calls, 2.0 * m * n * k, rounds, best)


def label(shape: tuple[int, int, int, bool, str]) -> list[str]:
    return [" x ".join(map(str, shape[:3])), "N x K" if shape[3] else "K x N", shape[4]]


if __name__ == "__main__":
    about = "float16, summed in float32; the fastest of some tiles for each shape"
    run("gpu_matmul", __doc__, about, SHAPES, measure, (["M x N x K", "B", "paper"], label))
