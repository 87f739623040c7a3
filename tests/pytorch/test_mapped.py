"""Operations on elements that are read in other orders: values against torch, who runs them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import tileworkbench as tw
from tileworkbench.pytorch.mapped import dense_order
from tileworkbench.pytorch.terms import NoRuleError
from tileworkbench.workbench.inputs import make_inputs


def turned(x: Any, cos: Any, sin: Any) -> Any:
    """Heads turned by their positions."""
    heads = x.view(2, 70, 4, 32).transpose(1, 2)
    cos, sin = cos[:, None], sin[:, None]
    half = torch.cat((-heads[..., 16:], heads[..., :16]), -1)
    return heads * cos + half * sin


def shared(x: Any, cos: Any, sin: Any) -> Any:
    """The same for heads that others share: they are repeated in memory."""
    heads = turned(x, cos, sin)[:, :, None].expand(2, 4, 3, 70, 32)
    return heads.reshape(2, 12, 70, 32)


def masked(x: Any, cos: Any, sin: Any) -> Any:
    """A part of each row, masked along another dimension, in another order."""
    part = x[:, 6:, 32:96].view(2, 64, 2, 32).permute(0, 2, 1, 3)
    seen = torch.ones(64, 32, dtype=torch.bool, device=x.device).tril()
    return part.masked_fill(~seen, 0.5).exp().reshape(4, 64, 32) * 2


def padded(x: Any, cos: Any, sin: Any) -> Any:
    """A padding of nothing, which is a copy, with views of what is computed."""
    whole = F.pad(cos * 2 + sin, (0, 0, 0, 0)).view(2, 5, 14, 32)
    return (whole.transpose(1, 2) + x[:, :, :32].view(2, 5, 14, 32).transpose(1, 2)).contiguous()


@pytest.mark.covering(1)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("call", "operations"),
    [(turned, 5), (shared, 6), (masked, 4), (padded, 4)],
)
def test_elements_in_other_orders(call: Callable[..., Any], operations: int, dtype: Any) -> None:
    args = [torch.randn(2, 70, n).to(dtype) for n in (128, 32, 32)]
    tiled = tw.tile(call)
    tiled.check(*args)
    (part,) = tiled.report.parts
    assert len(part.operations) >= operations - 1, str(tiled.report)
    assert part.kernel.check(part.reference, *make_inputs(part.kernel.program)).ok
    made, wanted = tiled(*args), call(*args)
    assert made.stride() == wanted.stride()
    assert made.untyped_storage().data_ptr() != args[0].untyped_storage().data_ptr()


def test_the_text_finds_elements_by_arithmetic() -> None:
    args = [torch.randn(2, 70, n) for n in (128, 32, 32)]
    lines = [line.strip() for line in tw.tile(turned, *args).source.splitlines()]
    start = lines.index("row = by * 256 + i")
    head = "x[row // 560, row // 8 % 70, (row // 2 % 4) * 32"
    at = "row // 560, row // 8 % 70, (row % 2) * 16 + column"
    assert lines[start + 1 : start + 3] == [
        f"mul = {head} + (row % 2) * 16 + column] * cos[{at}]",
        f"neg = -{head} + column + 16]",
    ]


def test_inputs_with_gaps_stay_in_torch() -> None:
    x = torch.randn(4, 70, 256)[:, :, :128]  # no tensor that a kernel takes as it is

    def chunks(x: Any) -> Any:
        return (x.view(4, 70, 4, 32).transpose(1, 2) * 2).exp()

    tiled = tw.tile(chunks)
    torch.testing.assert_close(tiled(x), chunks(x))
    assert not tiled.report.parts
    tiled.check(x.contiguous())
    assert [part.operations for part in tiled.report.parts] == [("mul", "exp")]


def test_orders() -> None:
    assert dense_order((2, 3, 4), (12, 4, 1)) == (0, 1, 2)
    assert dense_order((2, 3, 4), (12, 1, 3)) == (0, 2, 1)
    assert dense_order((1, 4, 1), (4, 1, 1)) == (0, 1, 2)
    with pytest.raises(NoRuleError, match="not dense"):
        dense_order((2, 3), (4, 1))
