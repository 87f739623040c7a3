"""Matrix products of every operand type on GPUs, simulated and executed from their PTX: shapes that
no tile divides, and every way to lie in memory.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import tileworkbench as tw
from tests.kernels.checks import compare, random
from tileworkbench import kernels

TRANSPOSES = [(False, False), (False, True), (True, False), (True, True)]
EXACT = ("int8", "uint8")
SMALL = ("float8_e4m3fn", "float8_e5m2")
DTYPES = (*EXACT, *SMALL, "bfloat16", "float16", "float32", "float64")
M, N, K = 33, 40, 48


def tf32(x: torch.Tensor) -> torch.Tensor:
    """What the tensor cores read of float32: ten bits of mantissa, the others left out."""
    return (x.view(torch.int32) & ~0x1FFF).view(torch.float32)


# Operands as the product is computed from them, where that is not what was given.
READ_AS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {"float32": tf32}


def check(dtype: str, target: str, trans_a: bool, trans_b: bool) -> tw.Kernel:
    """Compile and compare with the product in float64; returns the kernel."""
    a = random(*((K, M) if trans_a else (M, K)), dtype=dtype, seed=1)
    b = random(*((N, K) if trans_b else (K, N)), dtype=dtype, seed=2)
    blocks = {"block_M": 32, "block_N": 32, "block_K": 32}
    program = kernels.matmul(M, N, K, dtype, trans_A=trans_a, trans_B=trans_b, **blocks)
    kernel = tw.compile(program, target=target)
    read = READ_AS.get(dtype, lambda x: x)
    expected = kernels.matmul.reference(read(a), read(b), trans_A=trans_a, trans_B=trans_b)
    inner = "float64" if dtype == "float64" else "float32"
    scale = 0.0 if dtype in EXACT else 8.0 * float(expected.abs().max())
    compare(kernel(a, b), expected, scale, 4.0, inner)
    return kernel


@pytest.mark.parametrize(("trans_a", "trans_b"), TRANSPOSES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_simulated_products(dtype: str, trans_a: bool, trans_b: bool) -> None:
    check(dtype, "sim:sm_80", trans_a, trans_b)


@pytest.mark.nvrtc
@pytest.mark.parametrize("dtype", DTYPES)
def test_executed_products(dtype: str) -> None:
    check(dtype, "ptx:sm_80", False, True)


@pytest.mark.slow
@pytest.mark.nvrtc
@pytest.mark.parametrize(("trans_a", "trans_b"), [t for t in TRANSPOSES if t != (False, True)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_executed_products_of_the_rest(dtype: str, trans_a: bool, trans_b: bool) -> None:
    check(dtype, "ptx:sm_80", trans_a, trans_b)


@pytest.mark.nvrtc
@pytest.mark.parametrize(("dtype", "letters"), [(SMALL[0], "e4m3"), (SMALL[1], "e5m2")])
def test_bytes_of_floats_take_the_instruction_that_is_there(dtype: str, letters: str) -> None:
    """From sm_89 on an instruction multiplies them; before, they are widened to float16."""
    for arch, instruction in (
        ("sm_80", "m16n8k16.row.col.f32.f16.f16.f32"),
        ("sm_89", f"m16n8k32.row.col.f32.{letters}.{letters}.f32"),
    ):
        assert f"mma.sync.aligned.{instruction}" in check(dtype, f"ptx:{arch}", False, True).asm
