"""Attention as a kernel: results and gradients against torch, what stays in torch, the text."""

import random
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import tileworkbench as tw
from tileworkbench.workbench.inputs import make_inputs


def attend(query: Any, key: Any, value: Any, mask: Any = None, **how: Any) -> Any:
    shares = query.shape[1] != key.shape[1]
    return F.scaled_dot_product_attention(query, key, value, mask, enable_gqa=shares, **how)


def matrices(shape: tuple[int, ...], keys: tuple[int, int], inside: bool = False) -> list[Any]:
    """Queries, keys and values; `inside` as projections make them, heads behind lengths."""
    batch, heads, queries, width = shape
    sizes = [(heads, queries), keys, keys]
    if inside:
        return [torch.randn(batch, rows, each, width).transpose(1, 2) for each, rows in sizes]
    return [torch.randn(batch, each, rows, width) for each, rows in sizes]


def agree(tensors: list[Any], mask: Any = None, gradients: bool = False, **how: Any) -> Any:
    """Compare with torch, strides too; the function in kernels."""
    tensors = [each.requires_grad_(gradients) for each in tensors]
    tiled = tw.tile(lambda query, key, value, mask: attend(query, key, value, mask, **how))
    assert tiled(*tensors, mask).stride() == attend(*tensors, mask, **how).stride()
    assert "attention" in tiled.kernels, tiled.report
    tiled.check(*tensors, mask)
    return tiled


@pytest.mark.parametrize(
    ("shape", "keys", "inside"),
    [
        pytest.param((2, 4, 64, 32), (4, 96), False, marks=pytest.mark.slow),
        ((1, 4, 70, 40), (2, 50), True),
    ],
)
@pytest.mark.parametrize("is_causal", [False, True])
def test_attention(shape: Any, keys: Any, inside: bool, is_causal: bool) -> None:
    tiled = agree(matrices(shape, keys, inside), is_causal=is_causal, scale=0.3)
    part = tiled["attention"]
    assert part.kernel.check(part.reference, *make_inputs(part.kernel.program)).ok


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_dtypes_with_a_mask_for_each_key(dtype: Any) -> None:
    q, k, v = (each.to(dtype) for each in matrices((2, 4, 70, 32), (4, 150)))
    agree([q, k, v], torch.randn(2, 1, 1, 150).to(dtype))


def test_masks_that_hide_everything_and_gradients() -> None:
    mask = torch.zeros(70, 150)
    mask[3] = -torch.inf  # zeros
    mask[5] = torch.finfo(torch.float32).min  # the same weight for all keys
    mask[:40, :80] = -torch.inf
    tensors = matrices((2, 4, 70, 64), (4, 150))
    tiled = agree(tensors, mask, gradients=True)
    assert tiled.report.in_torch == [
        (
            "aten._scaled_dot_product_flash_attention_for_cpu_backward.default",
            "the gradient of attention is torch's own",
        )
    ]
    agree(tensors, mask > -1, gradients=True)
    agree(tensors, gradients=True, is_causal=True)


def test_nan_and_infinity() -> None:
    q, k, v = matrices((1, 4, 32, 64), (4, 32))
    q[0, 0, 3, 5], q[0, 1, 4, 0], v[0, 2, 7, 1], v[0, 3, 0, 0] = (
        *(float("nan"), float("inf"), float("nan"), float("inf")),
    )
    for is_causal in (False, True):
        agree([q, k, v], is_causal=is_causal)


def some_slow(count: int, fast: int) -> list[Any]:
    slow = [pytest.param(seed, marks=pytest.mark.slow) for seed in range(fast, count)]
    return [*range(fast), *slow]


@pytest.mark.parametrize("seed", some_slow(40, fast=0))
def test_random_attention_agrees_with_torch(seed: int) -> None:
    choose = random.Random(seed)
    shared = choose.choice((1, 2, 3))
    heads = shared * choose.choice((1, 2, 4))
    queries, keys = choose.randint(16, 150), choose.randint(16, 150)
    shape = (12 // heads + 1, heads, queries, choose.choice((48, 64, 72)))
    tensors = matrices(shape, (shared, keys), choose.random() < 0.5)
    dtype = choose.choice((torch.float32, torch.float32, torch.bfloat16))
    tensors = [each.to(dtype) * choose.choice((1, 5)) for each in tensors]
    kind = choose.choice(("plain", "causal", "bool", "float"))
    mask = None
    if kind in ("bool", "float"):
        extents = (shape[0], heads, queries, keys)
        mask = torch.randn([choose.choice((1, each)) for each in extents[:2]] + [queries, keys])
        mask = mask > -0.5 if kind == "bool" else mask.to(dtype)
    is_causal = kind == "causal"
    agree(tensors, mask, gradients=choose.random() < 0.5, is_causal=is_causal)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["sim:sm_80", "sim:sm_90a"])
def test_attention_on_a_simulated_gpu(target: str) -> None:
    q, k, v = matrices((1, 4, 40, 32), (2, 72))
    mask = torch.randn(40, 72)
    tiled = tw.tile(attend, target=target)
    torch.testing.assert_close(tiled(q, k, v, mask), attend(q, k, v, mask), rtol=2e-3, atol=2e-3)
    assert tiled["attention"].kernel.target == target


# Heads that models repeat


def repeated(x: Any, times: int, place: int = 2) -> Any:
    """Each head `times` times in a row, or with `place` 1 all heads one behind the other."""
    batch, heads, length, width = x.shape
    expanded = list(x.unsqueeze(place).shape)
    expanded[place] = times
    return x.unsqueeze(place).expand(expanded).reshape(batch, heads * times, length, width)


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("gradients", [False, True])
def test_heads_that_are_repeated_are_read_where_they_are(inside: bool, gradients: bool) -> None:
    def shared(q: Any, k: Any, v: Any) -> Any:
        return attend(q, repeated(k, 3), repeated(v, 3))

    tensors = matrices((2, 6, 40, 32), (2, 72), inside)
    tiled = tw.tile(shared)
    tiled.check(*(each.requires_grad_(gradients) for each in tensors))
    text = tiled["attention"].source
    assert "h // 3" in text and f"{(2, 72, 2, 32) if inside else (2, 2, 72, 32)}" in text
    if not gradients:  # torch's gradient of attention takes repeated ones
        assert "aten.clone.default" not in dict(tiled.report.in_torch)


@pytest.mark.parametrize(
    "how",
    [
        lambda q, k, v: attend(q, repeated(k, 2, 1), repeated(v, 2, 1)),  # in another order
        lambda q, k, v: attend(q, repeated(k, 2), repeated(v, 2, 1)),
        lambda q, k, v: attend(q, repeated(k, 2), q),
        lambda q, k, v: attend(q, repeated(k.mT.contiguous().mT, 2), repeated(v, 2)),
        lambda q, k, v: attend(q, k[:, :1].expand_as(q), v[:, :1].expand_as(q)),
    ],
)
def test_heads_that_are_repeated_in_other_ways(how: Any) -> None:
    tiled = tw.tile(how)
    tiled.check(*matrices((2, 4, 48, 32), (2, 48)))


def test_torch_takes_heads_once_where_it_runs_attention() -> None:
    def few(q: Any, k: Any, v: Any) -> Any:  # too few queries for a kernel
        return torch.exp(attend(q, repeated(k, 3), repeated(v, 3))) * 2 + 1

    tiled = tw.tile(few)
    tiled.check(*matrices((2, 6, 4, 32), (2, 300)))


class Layer(torch.nn.Module):
    """Attention as a transformer has it."""

    def __init__(self) -> None:
        super().__init__()
        self.inside, self.out = torch.nn.Linear(64, 192), torch.nn.Linear(64, 64)

    def forward(self, x: Any) -> Any:
        batch, length, width = x.shape
        parts = self.inside(x).view(batch, length, 3, 4, 16).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*parts, is_causal=True)
        return x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))


def test_a_layer_and_its_gradients() -> None:
    tiled = tw.tile(Layer())
    x = torch.randn(4, 48, 64)
    assert str(tiled.check(x)).startswith("agrees with torch in 1 result and 4 gradients: ")
    assert "attention" in tiled.kernels


def test_what_attention_stays_in_torch() -> None:
    def reason_of(shape: Any, keys: Any, dtype: Any = torch.float32, **how: Any) -> str:
        torch._dynamo.reset()
        tensors = [each.to(dtype) for each in matrices(shape, keys)]
        tiled = tw.tile(lambda *tensors: attend(*tensors, **how))
        torch.testing.assert_close(tiled(*tensors), attend(*tensors, **how), equal_nan=True)
        assert not tiled.kernels
        return dict(tiled.report.in_torch)[
            "aten._scaled_dot_product_flash_attention_for_cpu.default"
        ]

    usual = (1, 4, 64, 64)
    assert reason_of(usual, (4, 64), torch.float64) == "attention of float64"
    assert reason_of((1, 4, 64, 20), (4, 64)) == "heads of 20 elements"
    assert reason_of(usual, (4, 64), scale=-0.5) == "a scale of attention that is not positive"
    few = "attention of few queries or keys is as fast in torch"
    assert reason_of((1, 4, 1, 64), (4, 64)) == few


def test_the_text_has_the_names_of_the_code() -> None:
    def layer(x: Any, bias: Any) -> Any:
        q = x.view(2, 64, 4, 32).transpose(1, 2)
        return F.scaled_dot_product_attention(q, q, q, bias)

    tiled = tw.tile(layer, torch.randn(2, 64, 128), torch.randn(64, 64))
    text = tiled.source
    assert "    q: T.Tensor((2, 64, 4, 32), T.float32),\n" in text
    assert "    bias: T.Tensor((64, 64), T.float32),\n" in text
    assert "T.copy(q[b, bx * 64 : (bx + 1) * 64, h, :], q_shared)\n" in text
    assert "* 0.1767766952966369 + bias[bx * 64 + i, k * 64 + j]\n" in text
    assert max(map(len, text.splitlines())) <= 100
