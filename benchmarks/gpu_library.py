"""Kernels of the library on a CUDA device against what one would otherwise call in torch.

    python benchmarks/gpu_library.py [--rounds N]

Without a device the result file says so. See README.md for what the columns mean.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from gpu_common import device_target, measured, run
from suite_cases import chunk_scan_in_torch, chunk_state_in_torch, mla_in_torch

import tileworkbench as tw
from tileworkbench import kernels
from tileworkbench.kernels.dequant_matmul import BITS, pack, unpack

HALF = torch.float16
GROUP = 128
# A function of the library with its arguments, the tensors of a call, and the same in torch.
Made = tuple[Any, tuple[Any, ...], Callable[..., Any]]


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    """Standard normal numbers in float16, on the device."""
    generator = torch.Generator("cuda").manual_seed(seed)
    return torch.randn(shape, generator=generator, device="cuda", dtype=HALF)


def softmax() -> Made:
    return kernels.softmax(8192, 4096, "float16"), (normal(8192, 4096),), lambda x: x.softmax(-1)


def rmsnorm() -> Made:
    x, weight = normal(8192, 4096), normal(4096, seed=1)
    program = kernels.rmsnorm(8192, 4096, "float16")
    return program, (x, weight), lambda x, w: F.rms_norm(x, (4096,), w, 1e-6)


def layernorm() -> Made:
    n = 4096
    arguments = (normal(8192, n), normal(8192, n, seed=1), normal(n, seed=2), normal(n, seed=3))
    program = kernels.add_layernorm(8192, n, "float16")
    return program, arguments, lambda x, r, w, b: F.layer_norm(x + r, (n,), w, b)


def add() -> Made:
    arguments = (normal(8192, 8192), normal(8192, 8192, seed=1))
    return kernels.elementwise.add(8192, 8192, "float16"), arguments, torch.add


def gelu() -> Made:
    return kernels.elementwise.gelu(8192, 8192, "float16"), (normal(8192, 8192),), F.gelu


def cross_entropy() -> Made:
    labels = torch.arange(8192, device="cuda") * 7919 % 32768
    program = kernels.cross_entropy(8192, 32768, "float16")
    return (
        program,
        (normal(8192, 32768), labels),
        lambda x, y: F.cross_entropy(x.float(), y, reduction="none"),
    )


def dequantised(rows: int) -> Made:
    n, k = 14336, 4096
    codes = torch.randint(0, 1 << BITS["int4"], (n, k), generator=torch.Generator().manual_seed(1))
    packed, scales = pack(codes, "int4"), (torch.rand(n, k // GROUP) + 0.1).half()
    wide = unpack(packed, "int4") * scales.double().repeat_interleave(GROUP, 1)
    weights = wide.half().cuda().mT
    x = normal(rows, k) / 64
    if rows == 1:
        program = kernels.dequant_gemv(n, k, "int4", GROUP, "float16")
        return program, (x[0], packed.cuda(), scales.cuda()), lambda x, *_: x @ weights
    program = kernels.dequant_matmul(rows, n, k, "int4", GROUP, "float16")
    return program, (x, packed.cuda(), scales.cuda()), lambda x, *_: x @ weights


def mla() -> Made:
    batch, heads, length = 32, 128, 4096
    arguments = (
        *(normal(batch, heads, 512), normal(batch, heads, 64, seed=1)),
        *(normal(batch, length, 1, 512, seed=2), normal(batch, length, 1, 64, seed=3)),
    )
    return kernels.mla_decode(batch, heads, length), arguments, mla_in_torch


def chunk_state() -> Made:
    batch, chunks, length, heads, width, state = 1, 32, 256, 64, 64, 128
    dt = normal(batch, heads, chunks, length).float().abs()
    decay = -normal(batch, heads, chunks, length, seed=1).float().abs().cumsum(-1) / 100
    b, x = (
        normal(batch, chunks * length, 1, state, seed=2),
        normal(batch, chunks * length, heads, width, seed=3),
    )
    program = kernels.chunk_state(batch, chunks, length, heads, width, state)
    return program, (b, x, dt, decay), chunk_state_in_torch


def chunk_scan() -> Made:
    batch, chunks, length, heads, width, state = 1, 32, 256, 64, 64, 128
    dt = normal(batch, heads, chunks, length).float().abs()
    decay = -normal(batch, heads, chunks, length, seed=1).float().abs().cumsum(-1) / 100
    arguments = (
        normal(batch, chunks, 1, length, length, seed=2),
        normal(batch, chunks * length, heads, width, seed=3),
        *(dt, decay),
        normal(batch, chunks * length, 1, state, seed=4),
        normal(batch, chunks, heads, width, state, seed=5),
        normal(heads, seed=6),
    )
    program = kernels.chunk_scan(batch, chunks, length, heads, width, state)
    return program, arguments, chunk_scan_in_torch


ROWS: dict[str, Callable[[], Made]] = {
    "softmax 8192 x 4096": softmax,
    "rmsnorm 8192 x 4096": rmsnorm,
    "layernorm + residual 8192 x 4096": layernorm,
    "add 8192 x 8192": add,
    "gelu 8192 x 8192": gelu,
    "cross entropy 8192 x 32768": cross_entropy,
    "int4 weights, m = 1": lambda: dequantised(1),
    "int4 weights, m = 64": lambda: dequantised(64),
    "MLA decode 32 x 128 heads x 4096": mla,
    "chunk state 8192, 64 heads": chunk_state,
    "chunk scan 8192, 64 heads": chunk_scan,
}


def measure(name: str, rounds: int) -> dict[str, Any]:
    """One row: times of both, their ratio and how far the first outputs are apart."""
    program, arguments, function = ROWS[name]()
    kernel = tw.compile(program, target=device_target())

    def ours() -> torch.Tensor:
        found = kernel(*arguments)
        return found[0] if isinstance(found, list) else found

    calls = {"ours": ours, "torch": lambda: function(*arguments)}
    return measured(name, calls, kernel.stats.flops.value, rounds)


if __name__ == "__main__":
    about = "float16, the library's default tiles"
    run("gpu_library", __doc__, about, ROWS, measure, (["kernel"], lambda name: [name]))
