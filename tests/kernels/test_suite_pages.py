"""The pages that benchmarks need: element-wise kernels, and a vector times packed weights."""

from __future__ import annotations

import pytest
import torch

from tests.kernels.checks import DTYPES, check_kernel, random
from tileworkbench.kernels import add, dequant_gemv, gelu
from tileworkbench.kernels.dequant_matmul import BITS, pack


@pytest.mark.parametrize("dtype", DTYPES)
def test_add(dtype: str) -> None:
    a, b = random(70, 130, dtype=dtype), random(70, 130, dtype=dtype, seed=1)
    check_kernel(add(70, 130, dtype), (a, b), add.reference(a, b), 8.0, simulated=True)


@pytest.mark.parametrize("dtype", DTYPES)
def test_gelu(dtype: str) -> None:
    x = random(70, 130, dtype=dtype)
    check_kernel(gelu(70, 130, dtype), (x,), gelu.reference(x), 4.0, steps=4, simulated=True)


@pytest.mark.covering(1)
@pytest.mark.parametrize("kind", BITS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_dequant_gemv(kind: str, dtype: str) -> None:
    n, k, group = 20, 256, 64  # the last block has rows of its own only
    codes = torch.randint(0, 1 << BITS[kind], (n, k), generator=torch.Generator().manual_seed(0))
    packed, x = pack(codes, kind), random(k, dtype=dtype)
    scales = random(n, k // group, dtype=dtype, seed=2).abs()
    expected = dequant_gemv.reference(x, packed, scales, kind=kind)
    program = dequant_gemv(n, k, kind, group, dtype)
    check_kernel(program, (x, packed, scales), expected, 500.0, steps=k**0.5, simulated=True)
