"""Operations on few elements in a graph of large ones, as one kernel: values against torch."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F

import tileworkbench as tw
from tileworkbench.workbench.inputs import make_inputs


def model(x: Any, weight: Any, decay: Any) -> Any:
    """Gates of a few columns, summed along time, padded and masked, scale a large product."""
    rates = -torch.exp(decay)
    gates = F.softplus(x[:, :8]) * rates
    sums = gates.view(2, -1, 8).permute(2, 0, 1).cumsum(-1)
    last = F.pad(sums[..., -1], (1, 0))
    chunks = last[..., None].expand(8, 3, 3).masked_fill(torch.ones(3, 3).triu(1).bool(), 0.0)
    scale = chunks.cumsum(-2).exp()
    return torch.sort((x @ weight).relu()).values * scale.sum(), sums, scale


@pytest.mark.covering(1)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("length", [64, 126])
def test_few_elements_are_one_kernel(length: int, dtype: Any) -> None:
    args = [torch.randn(length, 192), torch.randn(192, 256) / 14, torch.rand(8)]
    args = [each.to(dtype) for each in args]
    tiled = tw.tile(model)
    tiled.check(*args)
    (part,) = [each for each in tiled.report.parts if "constant_pad_nd" in each.operations]
    assert {"softplus", "cumsum", "masked_fill"} <= set(part.operations), str(tiled.report)
    assert part.kernel.check(part.reference, *make_inputs(part.kernel.program)).ok
    for own, other in zip(tiled(*args), model(*args), strict=True):
        assert own.stride() == other.stride()


def test_a_view_that_others_read_too_waits_for_its_region() -> None:
    def shared(x: Any, y: Any) -> Any:
        gate = (y.sigmoid() + 1).view(8, 16).t()
        large = torch.sort(x, dim=-1).values
        return large * gate[:1, :1], torch.sort(gate).values, (gate.exp() * 2).sum(-1)

    tiled = tw.tile(shared)
    tiled.check(torch.randn(512, 64), torch.randn(128))
    (part,) = [each for each in tiled.report.parts if "sigmoid" in each.operations]
    assert len(part.operations) >= 3


def test_paddings_of_every_side() -> None:
    def padded(x: Any, y: Any) -> Any:
        edge = F.pad(y.exp() * 2, (2, 1, 0, 3), value=0.5)
        return torch.sort(x).values, edge.cumsum(-1) - 1, F.pad(edge, (-1, 0))

    tiled = tw.tile(padded)
    tiled.check(torch.randn(512, 64), torch.randn(5, 7))
    assert any("constant_pad_nd" in part.operations for part in tiled.report.parts)
    assert any(name == "aten.constant_pad_nd.default" for name, _ in tiled.report.in_torch)


def test_gradients_have_no_small_regions() -> None:
    x = torch.randn(512, 64, requires_grad=True)
    y = torch.randn(40, requires_grad=True)
    tiled = tw.tile(lambda x, y: torch.sort(x).values.sum() * ((y.exp() + 1).cumsum(0) * 2).sum())
    tiled.check(x, y)


def test_zeros_like_a_value_of_the_region() -> None:
    """What they have the form of is not computed before them."""

    def call(x: Any, y: Any) -> Any:
        a = (x * 2 + 1).tanh()
        return torch.zeros_like(a) + a * y + torch.full_like(a, 2.0) * torch.ones_like(a.t()).t()

    for shape in ((8, 8), (3, 100)):
        torch._dynamo.reset()
        tiled, x, y = tw.tile(call, keep_slower=True), torch.randn(shape), torch.randn(shape)
        torch.testing.assert_close(tiled(x, y), call(x, y))
        assert tiled.report.parts
