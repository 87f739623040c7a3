"""Attention: forward, backward, packed, decoding, compressed keys, sparse tiles."""

from __future__ import annotations

import pytest
import torch

import tileworkbench as tw
import tileworkbench.language as T
from tests.kernels.checks import DTYPES, check_kernel, compare, random
from tileworkbench.kernels import (
    block_sparse_attention,
    flash_attention,
    flash_attention_backward,
    flash_attention_varlen,
    flash_decoding,
    mla_decode,
)

DIM = 24
# An output is a mean of values of size 4 at most with weights rounded to the dtype; in float32
# scores of size 20 are rounded before their exponential is taken.
STEPS = {"float32": 64, "float16": 2, "bfloat16": 2}


def heads_of(seq: int, heads: int, dtype: str, seed: int, batch: int = 2) -> torch.Tensor:
    return random(batch, seq, heads, DIM, dtype=dtype, seed=seed)


def inputs(seq_q, seq_kv, heads, heads_kv, dtype, batch=2):
    return (
        heads_of(seq_q, heads, dtype, 1, batch),
        heads_of(seq_kv, heads_kv, dtype, 2, batch),
        heads_of(seq_kv, heads_kv, dtype, 3, batch),
    )


@pytest.mark.covering(2)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "shape", [(32, 32, 2, 2), (33, 70, 4, 2), (70, 33, 2, 1), (1, 40, 3, 1)], ids=str
)
def test_flash_attention(shape, causal, dtype):
    seq_q, seq_kv, heads, heads_kv = shape
    arguments = inputs(*shape, dtype)
    program = flash_attention(
        2, heads, seq_q, seq_kv, DIM, dtype, heads_kv, causal, block_M=32, block_N=16
    )
    o, log_sum = tw.compile(program)(*arguments)
    expected = flash_attention.reference(*arguments, causal=causal)
    compare(o, expected[0], 4.0, STEPS[dtype], dtype)
    compare(log_sum, expected[1], 20.0, 16, "float32")


@pytest.mark.parametrize("causal", [False, True])
def test_flash_attention_in_the_simulator(causal):
    arguments = inputs(9, 20, 2, 1, "float16", batch=1)
    expected = flash_attention.reference(*arguments, causal=causal)
    program = flash_attention(1, 2, 9, 20, DIM, "float16", 1, causal, block_M=8, block_N=16)
    check_kernel(program, arguments, expected, [4.0, 0.2], 2, "float16", simulated=True)


def test_flash_attention_with_the_default_tiles_and_a_scale():
    arguments = inputs(100, 130, 2, 2, "float32")
    expected = flash_attention.reference(*arguments, causal=True, scale=0.5)
    program = flash_attention(2, 2, 100, 130, DIM, causal=True, scale=0.5)
    check_kernel(program, arguments, expected, [4.0, 20.0], 64)


def test_one_flash_attention_for_every_length():
    seq_q, seq_kv = T.dynamic("seq_q, seq_kv")
    kernel = tw.compile(flash_attention(2, 2, seq_q, seq_kv, DIM, causal=True, block_M=32))
    for lengths in [(40, 40), (1, 77), (64, 128)]:
        arguments = inputs(*lengths, 2, 2, "float32")
        expected = flash_attention.reference(*arguments, causal=True)
        compare(kernel(*arguments), expected, [4.0, 20.0], 64, "float32")


def test_queries_that_see_no_key_give_zeros():
    arguments = inputs(40, 10, 1, 1, "float32")
    o, log_sum = tw.compile(flash_attention(2, 1, 40, 10, DIM, causal=True))(*arguments)
    assert torch.equal(o[:, :30], torch.zeros(2, 30, 1, DIM))
    assert (log_sum[:, :, :30] == -torch.inf).all()
    assert o[:, 30:].abs().min() > 0


def starts(lengths: list[int]) -> torch.Tensor:
    return torch.tensor([0, *lengths]).cumsum(0).int()


@pytest.mark.covering(1)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("causal", [False, True])
def test_flash_attention_varlen(causal, dtype):
    queries, keys = [5, 0, 40, 17], [9, 4, 45, 0]
    arguments = (
        random(sum(queries), 4, DIM, dtype=dtype, seed=1),
        random(sum(keys), 2, DIM, dtype=dtype, seed=2),
        random(sum(keys), 2, DIM, dtype=dtype, seed=3),
        starts(queries),
        starts(keys),
        max(queries),
    )
    program = flash_attention_varlen(
        4, sum(queries), sum(keys), 4, DIM, dtype, 2, causal, block_M=16, block_N=16
    )
    expected = flash_attention_varlen.reference(*arguments, causal=causal)
    simulated = causal and dtype == "float32"
    check_kernel(program, arguments, expected, 4.0, STEPS[dtype], dtype, simulated)


def test_one_flash_attention_varlen_for_every_batch():
    batch, total_q, total_kv = T.dynamic("batch, total_q, total_kv")
    kernel = tw.compile(
        flash_attention_varlen(batch, total_q, total_kv, 2, DIM, block_M=16, block_N=16)
    )
    for queries, keys in [([3, 30], [8, 41]), ([7], [7]), ([1, 2, 3], [20, 1, 16])]:
        q, k, v = (random(sum(n), 2, DIM, seed=s) for s, n in enumerate((queries, keys, keys)))
        # What follows a sequence must not matter, however bad it is.
        v[keys[0] :] = torch.nan if len(keys) > 1 else 0.0
        arguments = (q, k, v, starts(queries), starts(keys), max(queries))
        found = kernel(*arguments)[: queries[0]]
        expected = flash_attention_varlen.reference(*arguments)[: queries[0]]
        compare(found, expected, 4.0, 64, "float32")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("splits", [1, 3])
def test_flash_decoding(splits, dtype):
    lengths = torch.tensor([100, 0, 37, 64]).int()
    q = random(4, 4, DIM, dtype=dtype)
    k, v = heads_of(100, 2, dtype, 1, batch=4), heads_of(100, 2, dtype, 2, batch=4)
    v[2, 37:] = torch.nan  # not written yet
    program = flash_decoding(4, 4, 100, DIM, dtype, 2, splits, block_N=16)
    expected = flash_decoding.reference(q, k, v, lengths)
    check_kernel(program, (q, k, v, lengths), expected, 4.0, STEPS[dtype], dtype)


def test_flash_decoding_in_the_simulator():
    lengths = torch.tensor([20]).int()
    q, k, v = random(1, 2, DIM), heads_of(20, 1, "float32", 1, 1), heads_of(20, 1, "float32", 2, 1)
    program = flash_decoding(1, 2, 20, DIM, heads_kv=1, splits=2, block_N=8)
    expected = flash_decoding.reference(q, k, v, lengths)
    check_kernel(program, (q, k, v, lengths), expected, 4.0, 64, simulated=True)


def test_one_flash_decoding_for_every_batch_and_length():
    batch, seq_kv = T.dynamic("batch, seq_kv")
    kernel = tw.compile(flash_decoding(batch, 2, seq_kv, DIM, block_N=16))
    for lengths in [[5, 60], [33], [1, 1, 80]]:
        count, longest = len(lengths), max(lengths)
        q = random(count, 2, DIM)
        k, v = (heads_of(longest, 2, "float32", s, count) for s in (1, 2))
        arguments = (q, k, v, torch.tensor(lengths).int())
        compare(kernel(*arguments), flash_decoding.reference(*arguments), 4.0, 64, "float32")


@pytest.mark.covering(1)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("heads", "heads_kv", "block_H"), [(8, 2, 2), (8, 1, 64), (4, 4, 64)])
def test_mla_decode(heads, heads_kv, block_H, dtype):
    dim, pe_dim, seq = 32, 16, 50
    arguments = (
        random(2, heads, dim, dtype=dtype, seed=1),
        random(2, heads, pe_dim, dtype=dtype, seed=2),
        random(2, seq, heads_kv, dim, dtype=dtype, seed=3),
        random(2, seq, heads_kv, pe_dim, dtype=dtype, seed=4),
    )
    program = mla_decode(2, heads, seq, dim, pe_dim, dtype, heads_kv, 16, block_H)
    expected = mla_decode.reference(*arguments)
    simulated = heads == 4 and dtype == "float16"
    check_kernel(program, arguments, expected, 4.0, STEPS[dtype], dtype, simulated)


@pytest.mark.covering(2)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", [(33, 50, 4, 2), (32, 32, 1, 1)], ids=str)
def test_flash_attention_backward(shape, causal, dtype):
    arguments, program = backward_case(shape, causal, dtype, block_M=16, block_N=32)
    expected = flash_attention_backward.reference(*arguments, causal=causal)
    found = tw.compile(program)(*arguments)
    # Sums over the sequence of products of factors rounded to the dtype.
    for gradient, exact in zip(found, expected, strict=True):
        compare(gradient, exact, exact.abs().max() + 4.0, STEPS[dtype], dtype)


def backward_case(shape, causal, dtype, block_M, block_N, batch=2):
    seq_q, seq_kv, heads, heads_kv = shape
    q, k, v = inputs(seq_q, seq_kv, heads, heads_kv, dtype, batch)
    o, log_sum = flash_attention.reference(q, k, v, causal=causal)
    gradient = heads_of(seq_q, heads, dtype, 4, batch)
    program = flash_attention_backward(
        batch, heads, seq_q, seq_kv, DIM, dtype, heads_kv, causal, block_M=block_M, block_N=block_N
    )
    return (q, k, v, o.to(q.dtype).contiguous(), gradient, log_sum.float()), program


def test_flash_attention_backward_in_the_simulator():
    arguments, program = backward_case((9, 12, 2, 1), True, "float32", 8, 8, batch=1)
    expected = flash_attention_backward.reference(*arguments, causal=True)
    check_kernel(program, arguments, expected, 8.0, 64, simulated=True)


def test_gradients_of_the_forward_kernels_own_outputs():
    q, k, v = inputs(48, 48, 2, 2, "float32")
    o, log_sum = tw.compile(flash_attention(2, 2, 48, 48, DIM, causal=True))(q, k, v)
    gradient = heads_of(48, 2, "float32", 4)
    arguments = (q, k, v, o, gradient, log_sum)
    found = tw.compile(flash_attention_backward(2, 2, 48, 48, DIM, causal=True))(*arguments)
    expected = flash_attention_backward.reference(*arguments, causal=True)
    compare(found, expected, 8.0, 64, "float32")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("causal", [False, True])
def test_block_sparse_attention(causal, dtype):
    options = {"block_M": 16, "block_N": 32}
    mask = torch.rand(2, 2, 4, 3, generator=torch.Generator().manual_seed(0)) > 0.5
    mask[0, 0, 1] = False
    arguments = (*inputs(50, 70, 2, 2, dtype), mask)
    program = block_sparse_attention(2, 2, 50, 70, DIM, dtype, causal, **options)
    expected = block_sparse_attention.reference(*arguments, causal=causal, **options)
    assert not expected[0, 16:32, 0].any()
    check_kernel(program, arguments, expected, 4.0, STEPS[dtype], dtype)


def test_block_sparse_attention_in_the_simulator():
    mask = torch.tensor([[[[True, False], [False, True]]]])
    arguments = (*inputs(12, 14, 1, 1, "float32", batch=1), mask)
    program = block_sparse_attention(1, 1, 12, 14, DIM, block_M=8, block_N=8)
    expected = block_sparse_attention.reference(*arguments, block_M=8, block_N=8)
    check_kernel(program, arguments, expected, 4.0, 64, simulated=True)
