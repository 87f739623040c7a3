"""Attention that is written out as one kernel: values against torch, what is no such attention."""

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import tileworkbench as tw
from tileworkbench.workbench.inputs import make_inputs


def plain(q: Any, k: Any, v: Any, mask: Any) -> Any:
    return torch.softmax(q @ k.transpose(-1, -2) / 8, -1) @ v


def biased(q: Any, k: Any, v: Any, mask: Any) -> Any:
    scores = torch.matmul(q, k.transpose(-1, -2)) * 0.2 + mask
    return torch.matmul(F.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype), v)


def causal(q: Any, k: Any, v: Any, mask: Any) -> Any:
    scores = q @ k.mT * 0.2
    seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    return torch.softmax(scores.masked_fill(~seen, float("-inf")), -1) @ v


def capped(q: Any, k: Any, v: Any, mask: Any) -> Any:
    shares = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(shares, 1), v.repeat_interleave(shares, 1)
    scores = mask + 5 * torch.tanh(q @ k.mT / 5)
    return (torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(q.shape[0], q.shape[2], -1)


def expanded(q: Any, k: Any, v: Any, mask: Any) -> Any:
    shares = q.shape[1] // k.shape[1]
    k, v = (
        each[:, :, None].expand(-1, -1, shares, -1, -1).reshape(*q.shape[:2], *each.shape[2:])
        for each in (k, v)
    )
    return torch.where(mask > 0, q @ k.mT / 8, torch.finfo(q.dtype).min).softmax(-1) @ v


CALLS = [plain, biased, causal, capped, expanded]
SHAPES = [(2, 4, 2, 70, 50, 24, 40), (1, 4, 4, 64, 130, 64, 64)]


def made(shape: tuple[int, ...], dtype: Any, shares: bool) -> list[Any]:
    """Queries, keys, values, and a mask for each score."""
    batch, heads, few, queries, keys, width, wide = shape
    few = few if shares else heads
    sizes = (heads, queries, width), (few, keys, width), (few, keys, wide), (1, queries, keys)
    return [torch.randn(batch, *each).to(dtype) for each in sizes]


def one_attention(call: Callable[..., Any], args: list[Any], **how: Any) -> Any:
    tiled = tw.tile(call, **how)
    tiled.check(*args)
    assert "attention" in tiled.kernels, tiled.report
    assert not any("bmm" in name or "softmax" in name for name, _ in tiled.report.in_torch)
    part = tiled["attention"]
    assert part.kernel.check(part.reference, *make_inputs(part.kernel.program)).ok
    return tiled


@pytest.mark.covering(2)
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_attention_that_is_written_out(call: Any, shape: Any, dtype: Any) -> None:
    one_attention(call, made(shape, dtype, call in (capped, expanded)))


def test_one_head_without_a_batch() -> None:
    q, k, v = torch.randn(170, 32), torch.randn(90, 32), torch.randn(90, 32)
    one_attention(lambda q, k, v: torch.softmax(q @ k.mT, -1) @ v, [q, k, v])


def test_heads_are_read_where_a_projection_leaves_them() -> None:
    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inside = torch.nn.Linear(64, 192)

        def forward(self, x: Any) -> Any:
            heads = self.inside(x).view(2, 48, 3, 4, 16).permute(2, 0, 3, 1, 4)
            q, k, v = heads.unbind(0)
            mixed = torch.softmax(q @ k.transpose(-2, -1) * 0.25, -1) @ v
            return mixed.transpose(1, 2).reshape(2, 48, 64)

    tiled = tw.tile(Layer())
    with torch.no_grad():
        tiled.check(torch.randn(2, 48, 64))
    assert "attention" in tiled.kernels

    def own(x: Any) -> Any:
        heads = x.view(2, 48, 4, 16).transpose(1, 2)
        return torch.softmax(heads @ heads.mT, -1) @ heads

    text = one_attention(own, [torch.randn(2, 48, 64)]).source
    assert "    x: T.Tensor((2, 48, 64), T.float32),\n):" in text
    rows, columns = "bx * 64 : (bx + 1) * 64", "(bh % 4) * 16 : (bh % 4) * 16 + 16"
    assert f"T.copy(x[bh // 4, {rows}, {columns}], q_shared)\n" in text


def test_rows_without_a_key_and_what_is_no_number() -> None:
    q, k, v, mask = made(SHAPES[1], torch.float32, False)
    mask[:, :, 3] = -torch.inf  # NaN, as from torch's softmax
    mask[:, :, 5] = torch.finfo(torch.float32).min
    mask[:, :, 7, :100] = -torch.inf
    q[0, 1, 9, 0], v[0, 2, 7, 1], q[0, 3, 11, 2] = torch.nan, torch.nan, torch.inf
    one_attention(biased, [q, k, v, mask])


def test_every_length_and_batch() -> None:
    tiled = tw.tile(biased, dynamic=True)
    for batch, queries, keys in ((2, 65, 80), (3, 17, 130), (5, 100, 18)):
        args = made((batch, 4, 4, queries, keys, 32, 32), torch.float32, False)
        torch.testing.assert_close(tiled(*args), biased(*args), rtol=1e-4, atol=1e-4)
    assert list(tiled.kernels) == ["attention"]


@pytest.mark.parametrize("call", [biased, capped])
def test_gradients(call: Any) -> None:
    args = [each.requires_grad_() for each in made(SHAPES[0], torch.float32, call is capped)]
    assert tw.tile(call).check(*args).gradients == 4


def test_what_is_no_attention_of_its_own() -> None:
    def with_weights(q: Any, k: Any, v: Any) -> Any:
        weights = torch.softmax(q @ k.mT, -1)
        return weights @ v, weights

    def dropped(q: Any, k: Any, v: Any) -> Any:
        return F.dropout(torch.softmax(q @ k.mT, -1), 0.5) @ v

    def over_queries(q: Any, k: Any, v: Any) -> Any:
        return torch.softmax(q @ k.mT, -2) @ v

    def turned(q: Any, k: Any, v: Any) -> Any:
        return torch.softmax((q @ k.mT).mT, -1) @ v

    def keys_by_columns(q: Any, k: Any, v: Any) -> Any:
        return torch.softmax(q @ (k.reshape(2, 4, 32, 64) * 2), -1) @ v

    q, k, v = torch.randn(3, 2, 4, 64, 32).unbind(0)
    for call in (with_weights, dropped, over_queries, turned, keys_by_columns):
        tiled = tw.tile(call)
        tiled.check(q, k, v)
        assert "attention" not in tiled.kernels
    few = torch.randn(2, 4, 8, 32)
    tiled = tw.tile(lambda q: torch.softmax(q @ q.mT, -1) @ q)
    tiled.check(few)
    assert "attention" not in tiled.kernels


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_random_attention_agrees_with_torch(seed: int) -> None:
    choose = random.Random(seed)
    few, shares = choose.choice((1, 2, 3)), choose.choice((1, 2, 4))
    call = choose.choice((capped, expanded) if shares > 1 else CALLS)
    rows, keys = choose.randint(65, 150), choose.randint(65, 150)
    widths = choose.choice((16, 40, 64)), choose.choice((16, 72))
    shape = (choose.choice((2, 3)), few * shares, few, rows, keys, *widths)
    dtype = choose.choice((torch.float32, torch.float16, torch.bfloat16))
    one_attention(call, made(shape, dtype, shares > 1))


@pytest.mark.slow
@pytest.mark.parametrize("target", ["sim:sm_80", "sim:gfx942"])
def test_on_a_simulated_gpu(target: str) -> None:
    args = made((1, 4, 2, 40, 72, 32, 32), torch.float16, True)
    tiled = tw.tile(capped, target=target)
    torch.testing.assert_close(tiled(*args), capped(*args), rtol=1e-2, atol=1e-2)
    assert list(tiled.kernels) == ["attention"]
