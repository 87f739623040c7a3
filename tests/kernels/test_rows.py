"""Kernels that work row by row: softmax, normalisations, rotary embedding, cross entropy."""

from __future__ import annotations

import pytest
import torch

import tileworkbench as tw
import tileworkbench.language as T
from tests.kernels.checks import DTYPES, check_kernel, random
from tileworkbench.kernels import (
    add_layernorm,
    add_rmsnorm,
    cross_entropy,
    histogram,
    layernorm,
    layernorm_backward,
    online_softmax,
    rmsnorm,
    rmsnorm_backward,
    rope,
    softmax,
    topk,
)


@pytest.mark.covering(2)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(7, 50), (8, 64), (1, 1)], ids=str)
@pytest.mark.parametrize("page", [softmax, online_softmax], ids=lambda page: page.__name__)
def test_softmax(page, shape, dtype):
    x = random(*shape, dtype=dtype) * 3
    pieces = {"block_N": 16} if page is online_softmax else {}
    program = page(*shape, dtype, **pieces)
    expected = page.reference(x)
    check_kernel(program, (x,), expected, expected, 32, simulated=shape == (7, 50))


def test_softmax_of_large_values_and_masked_ones():
    x = random(6, 40) * 200
    x[1, 3:] = -torch.inf
    x[2, :39] = -torch.inf
    expected = softmax.reference(x)
    for program in (softmax(6, 40), online_softmax(6, 40, block_N=16)):
        # The exponent's argument is rounded at the size of the largest difference.
        check_kernel(program, (x,), expected, expected, 2000)


def test_softmax_of_any_number_of_rows_and_columns():
    m, n = T.dynamic("m, n")
    kernel = tw.compile(online_softmax(m, n, block_N=32))
    for shape in [(5, 70), (1, 3), (9, 32)]:
        x = random(*shape)
        torch.testing.assert_close(kernel(x).double(), softmax.reference(x), rtol=1e-5, atol=1e-6)


@pytest.mark.covering(2)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(7, 50), (130, 128)], ids=str)
@pytest.mark.parametrize("page", [rmsnorm_backward, layernorm_backward])
def test_gradients_of_norms(page, shape, dtype):
    m, n = shape
    x, weight, dy = (random(*s, dtype=dtype, seed=i) for i, s in enumerate(((m, n), (n,), (m, n))))
    expected = page.reference(x, weight, dy)
    program = page(m, n, dtype, block_M=4 if m == 7 else 64, block_N=32)
    scales = [10.0, *(2.0 * m for _ in expected[1:])]  # weights sum over rows
    check_kernel(program, (x, weight, dy), expected, scales, 16, simulated=m == 7)


@pytest.mark.covering(1)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(7, 50), (8, 128)], ids=str)
def test_norms(shape, dtype):
    m, n = shape
    x, residual = random(m, n, dtype=dtype), random(m, n, dtype=dtype, seed=1)
    weight, bias = random(n, dtype=dtype, seed=2), random(n, dtype=dtype, seed=3)
    ragged = shape == (7, 50)
    for page, arguments in (
        (rmsnorm, (x, weight)),
        (layernorm, (x, weight, bias)),
        (add_rmsnorm, (x, residual, weight)),
        (add_layernorm, (x, residual, weight, bias)),
    ):
        expected = page.reference(*arguments)
        # A product and a sum of a few factors of size 4, each rounded to float32.
        check_kernel(page(m, n, dtype), arguments, expected, 10, 8, simulated=ragged)


def test_norms_take_their_epsilon():
    x, weight, bias = random(5, 16) * 0.01, random(16, seed=1), random(16, seed=2)
    check_kernel(
        rmsnorm(5, 16, eps=0.5), (x, weight), rmsnorm.reference(x, weight, eps=0.5), 1.0, 8
    )
    check_kernel(
        layernorm(5, 16, eps=0.5),
        (x, weight, bias),
        layernorm.reference(x, weight, bias, eps=0.5),
        4.0,
        8,
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("interleaved", [False, True])
def test_rope(dtype, interleaved):
    batch, seq_len, heads, dim = 2, 11, 3, 16
    x = random(batch, seq_len, heads, dim, dtype=dtype)
    angles = random(seq_len, dim // 2) * 10
    arguments = (x, angles.cos(), angles.sin())
    expected = rope.reference(*arguments, interleaved=interleaved)
    program = rope(batch, seq_len, heads, dim, dtype, interleaved)
    check_kernel(program, arguments, expected, 4.0, 3, simulated=dtype == "float16")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("label_dtype", ["int64", "int32"])
def test_cross_entropy(dtype, label_dtype):
    logits = random(7, 50, dtype=dtype) * 3
    labels = (torch.arange(7) * 13 % 50).to(getattr(torch, label_dtype))
    labels[3] = -100
    expected = cross_entropy.reference(logits, labels)
    program = cross_entropy(7, 50, dtype, label_dtype, block_N=16)
    check_kernel(program, (logits, labels), expected, 16.0, 4, simulated=dtype == "float32")


def test_softmax_of_an_empty_batch_is_refused():
    x = torch.empty(0, 8)
    kernel = tw.compile(softmax(T.dynamic("m"), 8))
    with pytest.raises(tw.ArgumentError):
        kernel(x)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("shape", "k"), [((7, 50), 3), ((4, 8), 8), ((1, 1), 1), ((3, 1024), 2)], ids=str
)
def test_topk(shape, k, dtype):
    x = (random(*shape, dtype=dtype) * 4).round()  # with equal elements
    x[0, -1] = -torch.inf
    program = topk(*shape, k, dtype, block_M=2)
    expected = topk.reference(x, k=k)
    check_kernel(program, (x,), expected, 0.0, simulated=shape == (4, 8))


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
def test_histogram(dtype):
    x = torch.arange(300) ** 2 % 45
    x = (x if dtype == "uint8" else x - 4).to(getattr(torch, dtype))
    program = histogram(300, 37, dtype, block_N=128)
    check_kernel(program, (x,), histogram.reference(x, bins=37), simulated=dtype == "int32")
