"""The library's attention on a CUDA device against `scaled_dot_product_attention`, the faster of
its FlashAttention and cuDNN back ends, and Triton where it is installed; float16.

    python benchmarks/gpu_attention.py [--rounds N]

Without a device the result file says so. See README.md for what the columns mean.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

from gpu_common import device_target, fastest, measured, run

import tileworkbench as tw
from tileworkbench import kernels

# Batch, heads, length of queries and of keys, width of a head, causal, and the name in the TileLang
# paper (arXiv 2504.17577), table 3.
SHAPES = [
    (1, 32, 512, 128, True, "FA0"),
    (1, 32, 512, 128, False, "FA1"),
    (1, 32, 1024, 128, True, "FA2"),
    (1, 32, 1024, 128, False, "FA3"),
    (1, 32, 4096, 128, True, "FA4"),
    (4, 16, 1024, 64, False, ""),
    (4, 16, 1024, 64, True, ""),
    (2, 16, 4096, 64, True, ""),
    (2, 16, 4096, 128, False, ""),
]
# block_M, block_N, stages, threads: the fastest of these for a shape is its row.
TILES = [(64, 64, 2, 128), (128, 64, 2, 128), (128, 64, 2, 256), (128, 128, 2, 256)]
Shape = tuple[int, int, int, int, bool, str]


def measure(shape: Shape, rounds: int) -> dict[str, Any]:
    """One row: times of all, their ratios and how far the results are apart."""
    import torch

    batch, heads, length, width, causal, _ = shape
    torch.manual_seed(0)
    q, k, v = (
        torch.randn(batch, length, heads, width, device="cuda", dtype=torch.float16)
        for _ in range(3)
    )

    def compiled(tile: tuple[int, ...]) -> Any:
        names = ("block_M", "block_N", "num_stages", "threads")
        program = kernels.flash_attention(
            *(batch, heads, length, length, width, "float16"),
            causal=causal,
            **dict(zip(names, tile, strict=True)),
        )
        return tw.compile(program, target=device_target(), fast_math=True)

    made = {"x".join(map(str, tile)): compiled(tile) for tile in TILES}
    best = fastest({name: partial(kernel, q, k, v) for name, kernel in made.items()})
    # torch wants heads before the sequence: given as it likes it, so that it copies nothing.
    given = [x.transpose(1, 2).contiguous() for x in (q, k, v)]
    theirs = in_torch(given, causal)
    chosen = fastest(theirs)
    calls = {"ours": lambda: made[best](q, k, v)[0], "torch": theirs[chosen]}
    if find_spec("triton") is not None:
        import triton_gpu

        calls["Triton"] = lambda: triton_gpu.attention(q, k, v, causal)
    operations = 4.0 * batch * heads * length * length * width / (2 if causal else 1)
    return measured(shape, calls, operations, rounds, f"{best}; torch: {chosen}")


def in_torch(given: list[Any], causal: bool) -> dict[str, Callable[[], Any]]:
    """`scaled_dot_product_attention` by each back end that is fast; heads behind the sequence."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def call(backend: SDPBackend) -> Any:
        with sdpa_kernel([backend]):
            found = torch.nn.functional.scaled_dot_product_attention(*given, is_causal=causal)
        return found.transpose(1, 2)

    backends = {"FlashAttention": SDPBackend.FLASH_ATTENTION, "cuDNN": SDPBackend.CUDNN_ATTENTION}
    return {name: partial(call, backend) for name, backend in backends.items()}


def label(shape: Shape) -> list[str]:
    return [", ".join(map(str, shape[:4])), "yes" if shape[4] else "no", shape[5]]


if __name__ == "__main__":
    names = ["batch, heads, length, width", "causal", "paper"]
    about = "float16, forward, ours with fast math; the fastest of some tiles for each shape"
    run("gpu_attention", __doc__, about, SHAPES, measure, (names, label))
