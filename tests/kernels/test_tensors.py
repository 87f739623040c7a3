"""Products with structure: packed weights, convolution, chunked linear attention."""

from __future__ import annotations

import pytest
import torch

import tileworkbench as tw
from tests.kernels.checks import DTYPES, check_kernel, compare, random
from tileworkbench.kernels import (
    chunk_scan,
    chunk_state,
    convolution,
    dequant_matmul,
    integer_dequant_matmul,
)
from tileworkbench.kernels.dequant_matmul import BITS, pack, unpack, values_of

TILES = {"block_M": 32, "block_N": 16, "block_K": 32}


def codes(n: int, k: int, kind: str) -> torch.Tensor:
    generator = torch.Generator().manual_seed(7)
    return torch.randint(0, 1 << BITS[kind], (n, k), generator=generator)


@pytest.mark.parametrize("kind", BITS)
def test_packing(kind):
    given = codes(5, 16, kind)
    packed = pack(given, kind)
    assert packed.dtype == torch.uint8
    assert packed.shape == (5, 16 * BITS[kind] // 8)
    values = torch.tensor(values_of(kind), dtype=torch.float64)
    assert torch.equal(unpack(packed, kind), values[given])


def test_formats():
    assert values_of("int2") == [0, 1, -2, -1]
    assert values_of("uint2") == [0, 1, 2, 3]
    assert values_of("int4")[7:9] == [7, -8]
    assert values_of("fp4") == [0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6]
    assert values_of("nf4") == sorted(values_of("nf4"))
    assert pack(torch.tensor([[1, 2]]), "uint4").item() == 0x21


@pytest.mark.covering(1)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", BITS)
def test_dequant_matmul(kind, dtype):
    m, n, k, group_size = 37, 45, 96, 24
    a, scales = random(m, k, dtype=dtype), random(n, k // group_size, dtype=dtype, seed=1)
    packed = pack(codes(n, k, kind), kind)
    weights = unpack(packed, kind) * scales.double().repeat_interleave(group_size, 1)
    size = a.double().abs() @ weights.abs().mT
    program = dequant_matmul(m, n, k, kind, group_size, dtype, **TILES)
    expected = dequant_matmul.reference(a, packed, scales, kind=kind)
    check_kernel(program, (a, packed, scales), expected, size, 40)


@pytest.mark.parametrize("kind", BITS)
def test_dequant_matmul_in_the_simulator(kind):
    m, n, k = 9, 10, 32
    a, scales = random(m, k, dtype="float16"), random(n, 2, dtype="float16", seed=1)
    packed = pack(codes(n, k, kind), kind)
    program = dequant_matmul(m, n, k, kind, 16, block_M=16, block_N=16, block_K=16)
    expected = dequant_matmul.reference(a, packed, scales, kind=kind)
    check_kernel(program, (a, packed, scales), expected, 500.0, 40, simulated=True)


@pytest.mark.parametrize("kind", ["int2", "uint2", "int4", "uint4"])
def test_integer_dequant_matmul(kind):
    m, n, k = 37, 45, 96
    a, packed = random(m, k, dtype="int8"), pack(codes(n, k, kind), kind)
    program = integer_dequant_matmul(m, n, k, kind, **TILES)
    expected = integer_dequant_matmul.reference(a, packed, kind=kind)
    check_kernel(program, (a, packed), expected, simulated=kind == "int2")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("stride", "dilation", "pad"), [(1, 1, 0), (2, 1, 1), (1, 2, 2), (3, 2, 1)]
)
def test_convolution(stride, dilation, pad, dtype):
    data = random(2, 9, 11, 10, dtype=dtype)
    weight = random(3, 2, 10, 12, dtype=dtype, seed=1)
    options = {"stride": stride, "dilation": dilation, "pad": pad}
    program = convolution(2, 9, 11, 10, 12, 3, 2, dtype=dtype, **options, **TILES)
    expected = convolution.reference(data, weight, **options)
    size = convolution.reference(data.abs(), weight.abs(), **options)
    check_kernel(program, (data, weight), expected, size, 32)


def test_convolution_in_the_simulator():
    data, weight = random(1, 4, 5, 3), random(3, 3, 3, 4, seed=1)
    program = convolution(1, 4, 5, 3, 4, pad=1, block_M=16, block_N=8, block_K=4)
    expected = convolution.reference(data, weight, pad=1)
    check_kernel(program, (data, weight), expected, 30.0, 16, simulated=True)


def chunks(batch, count, length, heads):
    generator = torch.Generator().manual_seed(3)
    dt = torch.rand(batch, heads, count, length, generator=generator)
    decay = -(dt * torch.rand(1, heads, 1, 1, generator=generator)).cumsum(-1)
    return dt, decay


SMALL = {"block_M": 16, "block_N": 16, "block_K": 16}
# A factor of each product is rounded to the dtype.
STEPS = {"float32": 32, "float16": 1, "bfloat16": 1}


@pytest.mark.covering(1)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "shape", [(2, 3, 40, 4, 24, 20, 2), (1, 1, 64, 2, 64, 32, 1), (1, 2, 5, 1, 3, 4, 1)], ids=str
)
def test_chunk_state_and_chunk_scan(shape, dtype):
    batch, count, length, heads, headdim, dstate, groups = shape
    seq = count * length
    dt, decay = chunks(batch, count, length, heads)
    b, c = (random(batch, seq, groups, dstate, dtype=dtype, seed=s) for s in (1, 2))
    x = random(batch, seq, heads, headdim, dtype=dtype, seed=3)
    sim = length == 5 and dtype == "float32"
    program = chunk_state(*shape, dtype, **SMALL)
    states = chunk_state.reference(b, x, dt, decay)
    size = chunk_state.reference(b.abs(), x.abs(), dt, decay)
    check_kernel(program, (b, x, dt, decay), states, size, STEPS[dtype], dtype, sim)

    cb = random(batch, count, groups, length, length, dtype=dtype, seed=4)
    before = states.to(x.dtype)
    d = random(heads, dtype=dtype, seed=5)
    arguments = (cb, x, dt, decay, c, before, d)
    expected = chunk_scan.reference(*arguments)
    size = chunk_scan.reference(
        *(cb.abs(), x.abs(), dt, decay, c.abs(), before.abs(), d.abs()),
    )
    check_kernel(
        chunk_scan(*shape, dtype, **SMALL), arguments, expected, size, STEPS[dtype], dtype, sim
    )


def test_chunks_make_the_recurrence():
    """The two kernels with the states carried from chunk to chunk are the recurrence itself."""
    batch, count, length, heads, headdim, dstate = 1, 3, 16, 2, 8, 4
    shape = (batch, count, length, heads, headdim, dstate)
    seq = count * length
    dt, decay = chunks(batch, count, length, heads)
    b, c = (random(batch, seq, 1, dstate, seed=s) for s in (1, 2))
    x, d = random(batch, seq, heads, headdim, seed=3), random(heads, seed=4)
    added = tw.compile(chunk_state(*shape, dtype="float32"))(b, x, dt, decay)
    before = torch.zeros_like(added)
    for index in range(1, count):
        shrink = decay[:, :, index - 1, -1].exp()[:, :, None, None]
        before[:, index] = before[:, index - 1] * shrink + added[:, index - 1]
    cb = torch.einsum(
        "bclgn,bckgn->bcglk", c.unflatten(1, (count, length)), b.unflatten(1, (count, length))
    ).contiguous()
    y = tw.compile(chunk_scan(*shape, dtype="float32"))(cb, x, dt, decay, c, before, d)

    step = torch.diff(decay, prepend=torch.zeros(batch, heads, count, 1)).flatten(2)
    state = torch.zeros(batch, heads, headdim, dstate)
    for t in range(seq):
        update = torch.einsum("bhp,bn->bhpn", x[:, t], b[:, t, 0])
        state = (
            state * step[:, :, t].exp()[..., None, None]
            + update * dt.flatten(2)[:, :, t, None, None]
        )
        expected = torch.einsum("bhpn,bn->bhp", state, c[:, t, 0]) + x[:, t] * d[:, None]
        compare(y[:, t], expected, 30.0, 32, "float32")
