"""Every kernel of the library for a GPU without one: what the threads of a block do, simulated, and
the emitted CUDA executed from its PTX. Both find nothing wrong, and agree with torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tileworkbench as tw
import tileworkbench.kernels as kernels
from tests.kernels.checks import compare, random
from tileworkbench.kernels.dequant_matmul import pack

Case = tuple[Any, tuple[Any, ...], Any, float]  # program, arguments, expected, scale

HALF = "float16"


def rows(name: str, *tensors: torch.Tensor, **options: Any) -> Case:
    page = getattr(kernels, name)
    m, n = tensors[0].shape
    keywords = {key: value for key, value in options.items() if key not in ("block_N", "dtype")}
    shape_options = {"dtype": HALF, **options}
    return page(m, n, **shape_options), tensors, page.reference(*tensors, **keywords), 8.0


def attention_inputs(seq_q: int = 50, seq_kv: int = 70) -> tuple[torch.Tensor, ...]:
    q = random(1, seq_q, 2, 64, dtype=HALF, seed=1)
    return q, *(random(1, seq_kv, 2, 64, dtype=HALF, seed=seed) for seed in (2, 3))


def codes(n: int, k: int, bits: int) -> torch.Tensor:
    return torch.randint(0, 1 << bits, (n, k), generator=torch.Generator().manual_seed(0))


def add() -> Case:
    a, b = random(70, 130, dtype=HALF), random(70, 130, dtype=HALF, seed=1)
    return rows("add", a, b)


def gelu() -> Case:
    return rows("gelu", random(70, 130, dtype=HALF))


def softmax() -> Case:
    return rows("softmax", random(7, 200, dtype=HALF))


def online_softmax() -> Case:
    return rows("online_softmax", random(7, 200, dtype=HALF), block_N=64)


def rmsnorm() -> Case:
    return rows("rmsnorm", random(7, 200, dtype=HALF), random(200, dtype=HALF, seed=1))


def layernorm() -> Case:
    weight, bias = random(200, dtype=HALF, seed=1), random(200, dtype=HALF, seed=2)
    return rows("layernorm", random(7, 200, dtype=HALF), weight, bias)


def add_rmsnorm() -> Case:
    x, residual = random(7, 200, dtype=HALF), random(7, 200, dtype=HALF, seed=3)
    return rows("add_rmsnorm", x, residual, random(200, dtype=HALF, seed=1))


def add_layernorm() -> Case:
    x, residual = random(7, 200, dtype=HALF), random(7, 200, dtype=HALF, seed=3)
    weight, bias = random(200, dtype=HALF, seed=1), random(200, dtype=HALF, seed=2)
    return rows("add_layernorm", x, residual, weight, bias)


def gradients(name: str) -> Case:
    x, dy = random(7, 200, dtype=HALF), random(7, 200, dtype=HALF, seed=3)
    arguments, page = (x, random(200, dtype=HALF, seed=1), dy), getattr(kernels, name)
    return page(7, 200, HALF, block_M=4, block_N=64), arguments, page.reference(*arguments), 10.0


def rmsnorm_backward() -> Case:
    return gradients("rmsnorm_backward")


def layernorm_backward() -> Case:
    return gradients("layernorm_backward")


def cross_entropy() -> Case:
    logits, labels = random(7, 200, dtype=HALF), torch.arange(7) * 13
    labels[3] = -100
    program = kernels.cross_entropy(7, 200, HALF, block_N=64)
    return program, (logits, labels), kernels.cross_entropy.reference(logits, labels), 16.0


def topk() -> Case:
    x = random(7, 50, dtype=HALF)
    return kernels.topk(7, 50, 3, HALF), (x,), kernels.topk.reference(x, k=3), 1.0


def histogram() -> Case:
    x = torch.randint(-2, 40, (3000,), generator=torch.Generator().manual_seed(0)).int()
    return kernels.histogram(3000, 37), (x,), kernels.histogram.reference(x, bins=37), 0.0


def rope() -> Case:
    x, angles = random(2, 11, 3, 32, dtype=HALF), random(11, 16) * 3
    arguments = (x, angles.cos(), angles.sin())
    return kernels.rope(2, 11, 3, 32, HALF), arguments, kernels.rope.reference(*arguments), 8.0


def matmul() -> Case:
    a, b = random(130, 72, dtype=HALF), random(72, 140, dtype=HALF, seed=1)
    program = kernels.matmul(130, 140, 72, HALF, out_dtype="float32")
    return program, (a, b), a.double() @ b.double(), 4.0


def linear() -> Case:
    x, weight = random(130, 72, dtype=HALF), random(140, 72, dtype=HALF, seed=1)
    arguments = (x, weight, random(140, dtype=HALF, seed=2))
    program = kernels.linear(130, 140, 72, HALF, "silu")
    return program, arguments, kernels.linear.reference(*arguments, activation="silu"), 32.0


def split_k_matmul() -> Case:
    a, b = random(64, 256, dtype=HALF), random(256, 64, dtype=HALF, seed=1)
    program = kernels.split_k_matmul(64, 64, 256, HALF, splits=2)
    return program, (a, b), kernels.split_k_matmul.reference(a, b), 64.0


def gemv() -> Case:
    a, x = random(20, 512, dtype=HALF), random(512, dtype=HALF, seed=1)
    return kernels.gemv(20, 512, HALF), (a, x), kernels.gemv.reference(a, x), 100.0


def dequant_matmul() -> Case:
    a, scales = random(70, 128, dtype=HALF), random(72, 2, dtype=HALF, seed=1)
    packed = pack(codes(72, 128, 4), "int4")
    expected = kernels.dequant_matmul.reference(a, packed, scales, kind="int4")
    program = kernels.dequant_matmul(70, 72, 128, "int4", 64, HALF)
    return program, (a, packed, scales), expected, 500.0


def integer_dequant_matmul() -> Case:
    a, packed = random(70, 128, dtype="int8"), pack(codes(72, 128, 2), "int2")
    expected = kernels.integer_dequant_matmul.reference(a, packed, kind="int2")
    return kernels.integer_dequant_matmul(70, 72, 128, "int2"), (a, packed), expected, 0.0


def dequant_gemv() -> Case:
    x, scales = random(256, dtype=HALF), random(20, 4, dtype=HALF, seed=2)
    packed = pack(codes(20, 256, 4), "nf4")
    expected = kernels.dequant_gemv.reference(x, packed, scales, kind="nf4")
    return kernels.dequant_gemv(20, 256, "nf4", 64, HALF), (x, packed, scales), expected, 500.0


def convolution() -> Case:
    data, weight = random(2, 9, 11, 32, dtype=HALF), random(3, 3, 32, 64, dtype=HALF, seed=1)
    program = kernels.convolution(2, 9, 11, 32, 64, pad=1, dtype=HALF)
    return program, (data, weight), kernels.convolution.reference(data, weight, pad=1), 100.0


def flash_attention() -> Case:
    inputs = attention_inputs()
    program = kernels.flash_attention(1, 2, 50, 70, 64, HALF, causal=True)
    return program, inputs, kernels.flash_attention.reference(*inputs, causal=True), 8.0


def flash_attention_varlen() -> Case:
    q, k, v = (x[0] for x in attention_inputs())
    starts = (torch.tensor([0, 20, 50]).int(), torch.tensor([0, 30, 70]).int())
    program = kernels.flash_attention_varlen(2, 50, 70, 2, 64, HALF)
    arguments = (q, k, v, *starts, 30)
    return program, arguments, kernels.flash_attention_varlen.reference(*arguments), 8.0


def flash_attention_backward() -> Case:
    q, k, v = attention_inputs(64, 64)
    o, log_sum = kernels.flash_attention.reference(q, k, v)
    gradient = random(1, 64, 2, 64, dtype=HALF, seed=4)
    arguments = (q, k, v, o.to(q.dtype).contiguous(), gradient, log_sum.float())
    program = kernels.flash_attention_backward(1, 2, 64, 64, 64, HALF)
    return program, arguments, kernels.flash_attention_backward.reference(*arguments), 32.0


def block_sparse_attention() -> Case:
    inputs = attention_inputs(128, 128)
    mask = torch.tensor([[1, 0], [1, 1]]).bool().expand(1, 2, 2, 2).contiguous()
    program = kernels.block_sparse_attention(1, 2, 128, 128, 64, HALF)
    expected = kernels.block_sparse_attention.reference(*inputs, mask)
    return program, (*inputs, mask), expected, 8.0


def flash_decoding() -> Case:
    q, k, v = attention_inputs(1, 200)
    arguments = (q[:, 0].contiguous(), k, v, torch.tensor([150]).int())
    program = kernels.flash_decoding(1, 2, 200, 64, HALF, splits=2)
    return program, arguments, kernels.flash_decoding.reference(*arguments), 8.0


def mla_decode() -> Case:
    arguments = (
        random(1, 64, 128, dtype=HALF, seed=1),
        random(1, 64, 64, dtype=HALF, seed=2),
        random(1, 70, 1, 128, dtype=HALF, seed=3),
        random(1, 70, 1, 64, dtype=HALF, seed=4),
    )
    program = kernels.mla_decode(1, 64, 70, 128, 64, HALF)
    return program, arguments, kernels.mla_decode.reference(*arguments), 8.0


def chunk_inputs() -> tuple[tuple[int, ...], dict[str, torch.Tensor]]:
    dt = torch.rand(1, 2, 2, 64, generator=torch.Generator().manual_seed(3))
    tensors = {
        "dt": dt,
        "decay": -(dt * 0.3).cumsum(-1),
        "b": random(1, 128, 1, 64, dtype=HALF, seed=1),
        "c": random(1, 128, 1, 64, dtype=HALF, seed=2),
        "x": random(1, 128, 2, 64, dtype=HALF, seed=3),
        "cb": random(1, 2, 1, 64, 64, dtype=HALF, seed=4),
        "d": random(2, dtype=HALF, seed=5),
    }
    return (1, 2, 64, 2, 64, 64, 1), tensors


def chunk_state() -> Case:
    shape, given = chunk_inputs()
    arguments = tuple(given[name] for name in ("b", "x", "dt", "decay"))
    expected = kernels.chunk_state.reference(*arguments)
    return kernels.chunk_state(*shape, HALF), arguments, expected, 100.0


def chunk_scan() -> Case:
    shape, given = chunk_inputs()
    states = kernels.chunk_state.reference(*(given[name] for name in ("b", "x", "dt", "decay")))
    before = [given[name] for name in ("cb", "x", "dt", "decay", "c")]
    arguments = (*before, states.to(torch.float16), given["d"])
    expected = kernels.chunk_scan.reference(*arguments)
    return kernels.chunk_scan(*shape, HALF), arguments, expected, 1000.0


CASES: dict[str, Callable[[], Case]] = {
    name: globals()[name] for name in kernels.__all__ if name in globals()
}
# The rest of the library is executed from its PTX in the slow tier.
QUICK_PTX = ("matmul", "flash_attention", "softmax", "histogram", "dequant_matmul", "topk")


def run(name: str, target: str) -> None:
    program, arguments, expected, scale = CASES[name]()
    kernel = tw.compile(program, target=target)
    compare(kernel(*arguments), expected, scale, 4.0, HALF)


def test_every_kernel_has_a_case():
    assert set(CASES) == set(kernels.__all__)


@pytest.mark.parametrize("name", CASES)
def test_simulated_threads(name):
    run(name, "sim:sm_80")


@pytest.mark.nvrtc
@pytest.mark.parametrize("name", QUICK_PTX)
def test_executed_ptx(name):
    run(name, "ptx:sm_80")


@pytest.mark.slow
@pytest.mark.nvrtc
@pytest.mark.parametrize("name", sorted(set(CASES) - set(QUICK_PTX)))
def test_executed_ptx_of_the_rest(name):
    run(name, "ptx:sm_80")


@pytest.mark.slow
@pytest.mark.nvrtc
@pytest.mark.parametrize("target", ["sim:sm_90", "ptx:sm_90", "sim:sm_90a", "ptx:sm_90a"])
@pytest.mark.parametrize("name", CASES)
def test_a_hopper(name, target):
    run(name, target)


def test_float32_products_are_held_to_tf32():
    a, b = random(64, 64), random(64, 64, seed=1)
    kernel = tw.compile(
        kernels.matmul(64, 64, 64, "float32", block_M=64, block_N=64), target="sim:sm_80"
    )
    assert kernel.validate(a, b).ok
    assert kernel.check(torch.matmul, a, b).ok
    exact = kernels.matmul(64, 64, 64, HALF, block_M=64, block_N=64)
    assert tw.compile(exact, target="sim:sm_80").validate(a.half(), b.half()).ok


def test_the_number_of_stages_that_fit_is_named():
    page = kernels.matmul(256, 256, 256, "float16", block_K=64, num_stages=6)
    with pytest.raises(tw.CompileError) as caught:
        tw.compile(page, target="sim:sm_80")
    assert str(caught.value).startswith(
        "the block needs 196608 bytes of shared memory, 'sm_80' has 166912: "
        "'A_shared' 98304, 'B_shared' 98304\n"
    )
    assert caught.value.hint == "num_stages=5 would fit"
