"""Sizes and tensors for the kernels of `benchmarks/cost/`."""

from __future__ import annotations

from typing import Any

import torch

M, N, K = 32, 64, 48
BOTH = {"block_M": (1, 8), "block_N": (16, 64)}
ROWS = {"block_M": (1, 4, 16)}

Reference = tuple[tuple[int, ...], dict[str, tuple[int, ...]], tuple[Any, ...], Any]
"""A kernel's sizes, blocks, arguments and what they give."""


def of(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape) + sum(shape)))


def below(most: int, *shape: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    numbers = torch.randint(0, most, shape, generator=torch.Generator().manual_seed(most))
    return numbers.to(dtype)


X, Y = of(M, N), of(N, M).T.contiguous()
A, B = of(M, K), of(N, K)
