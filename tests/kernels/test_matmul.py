"""Matrix products and their epilogues; matrix times vector."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tileworkbench as tw
from tests.kernels.checks import DTYPES, check_kernel, random
from tests.tolerances import assert_contraction
from tileworkbench.compiler.sim.simulate import SimOptions, simulate
from tileworkbench.kernels import gemv, linear, matmul, split_k_matmul

SMALL = {"block_M": 32, "block_N": 32, "block_K": 16}


def numpy(tensor: torch.Tensor):
    return (tensor.double() if tensor.is_floating_point() else tensor).numpy()


@pytest.mark.covering(2)
@pytest.mark.parametrize("dtype", [*DTYPES, "float64", "int8", "uint8"])
@pytest.mark.parametrize("trans_A", [False, True])
@pytest.mark.parametrize("trans_B", [False, True])
def test_matmul(dtype, trans_A, trans_B):
    m, n, k = 37, 45, 21
    a, b = random(m, k, dtype=dtype), random(k, n, dtype=dtype, seed=1)
    given = (a.mT.contiguous() if trans_A else a, b.mT.contiguous() if trans_B else b)
    options = {"trans_A": trans_A, "trans_B": trans_B}
    kernel = tw.compile(matmul(m, n, k, dtype, **options, **SMALL))
    c = kernel(*given)
    assert_contraction(c.numpy(), numpy(a), numpy(b))
    torch.testing.assert_close(matmul.reference(*given, **options), matmul.reference(a, b))


@pytest.mark.parametrize(
    "dtype",
    [
        *("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"),
        *("tfloat32", "int16", "uint16", "int32"),
    ],
)
def test_matmul_of_rarer_dtypes(dtype):
    kind = "float32" if dtype == "tfloat32" else dtype
    a, b = random(37, 21, dtype=kind), random(21, 45, dtype=kind, seed=1)
    if not a.is_floating_point():  # sums that int32 holds
        a, b = ((x.long() % 1000).to(x.dtype) for x in (a, b))
    if dtype.endswith("e8m0fnu"):  # powers of two
        a, b = (x.double().abs().clamp(2**-4, 2**4).to(x.dtype) for x in (a, b))
    c = tw.compile(matmul(37, 45, 21, dtype, **SMALL))(a, b)
    assert_contraction(c.numpy(), numpy(a), numpy(b))


@pytest.mark.parametrize("dtype, least", [("int4", -8), ("uint4", 0)])
def test_matmul_of_two_elements_in_a_byte(dtype, least):
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randint(least, least + 16, s, generator=generator) for s in ((38, 22), (22, 46)))
    storage = torch.int8 if least else torch.uint8
    packed = [(x[:, ::2] & 15 | (x[:, 1::2] & 15) << 4).byte().view(storage) for x in (a, b)]
    assert torch.equal(tw.compile(matmul(38, 46, 22, dtype, **SMALL))(*packed), (a @ b).int())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_matmul_in_the_simulator(dtype):
    a, b = random(20, 35, dtype=dtype), random(35, 40, dtype=dtype, seed=1)
    size = a.double().abs() @ b.double().abs()
    check_kernel(
        matmul(20, 40, 35, dtype, **SMALL), (a, b), matmul.reference(a, b), size, 24, simulated=True
    )


def test_matmul_with_the_default_tiles():
    a, b = random(200, 150), random(150, 260, seed=1)
    c = tw.compile(matmul(200, 260, 150))(a, b)
    assert_contraction(c.numpy(), a.numpy(), b.numpy())


def test_matmul_is_a_factory_for_jit():
    compiled = tw.jit(matmul)
    a, b = random(33, 20), random(20, 17, seed=1)
    c = compiled(33, 17, 20)(a, b)
    assert_contraction(c.numpy(), a.numpy(), b.numpy())
    assert compiled(33, 17, 20) is compiled(33, 17, 20)


@pytest.mark.covering(1)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", ["none", "relu", "silu", "gelu"])
def test_linear(dtype, activation):
    m, n, k = 37, 45, 30
    x, w = random(m, k, dtype=dtype), random(n, k, dtype=dtype, seed=1)
    bias = random(n, dtype=dtype)
    size = x.double().abs() @ w.double().abs().mT + bias.double().abs()
    check_kernel(
        linear(m, n, k, dtype, activation, **SMALL),
        (x, w, bias),
        linear.reference(x, w, bias, activation=activation),
        size,
        24,
        simulated=activation == "gelu" and dtype == "float16",
    )


@pytest.mark.parametrize("dtype", [*DTYPES, "int8"])
def test_gemv(dtype):
    a, x = random(29, 150, dtype=dtype), random(150, dtype=dtype)
    size = a.double().abs() @ x.double().abs()
    check_kernel(
        gemv(29, 150, dtype, block_K=64), (a, x), gemv.reference(a, x), size, 24, simulated=True
    )


@pytest.mark.parametrize("dtype", [*DTYPES, "int8"])
def test_split_k_matmul(dtype):
    a, b = random(37, 130, dtype=dtype), random(130, 45, dtype=dtype, seed=1)
    kernel = tw.compile(split_k_matmul(37, 45, 130, dtype, splits=3, **SMALL))
    assert_contraction(kernel(a, b).numpy(), numpy(a), numpy(b))


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_split_k_matmul_in_one_order(dtype):
    a, b = random(37, 130, dtype=dtype), random(130, 45, dtype=dtype, seed=1)
    program = split_k_matmul(37, 45, 130, dtype, splits=3, deterministic=True, **SMALL)
    assert_contraction(tw.compile(program)(a, b).numpy(), numpy(a), numpy(b))


def test_the_order_of_blocks_matters_to_atomic_sums_only():
    a, b = random(8, 512), random(512, 8, seed=1)
    for deterministic in (True, False):
        program = split_k_matmul(
            *(8, 8, 512), splits=8, block_M=8, block_N=8, block_K=8, deterministic=deterministic
        ).program
        given = {"A": a, "B": b}
        found = [simulate(program, given, options=SimOptions(seed=seed)) for seed in range(6)]
        results = {np.asarray(each.outputs[0]).tobytes() for each in found}
        assert all(each.report.ok for each in found)
        assert (len(results) == 1) is deterministic


def test_split_k_matmul_in_the_simulator():
    a, b = random(9, 20), random(20, 7, seed=1)
    program = split_k_matmul(9, 7, 20, splits=2, block_M=8, block_N=8, block_K=8)
    check_kernel(program, (a, b), split_k_matmul.reference(a, b), 20.0, 16, simulated=True)
