"""Running sums along any dimension, with what is summed and what follows: values against torch."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tileworkbench as tw
from tileworkbench.workbench.inputs import make_inputs


def segments(x: Any) -> Any:
    """The sums of all segments: masked, summed and masked again, and their exponentials."""
    n = x.shape[-1]
    repeated = (x / n)[..., None].expand(*x.shape, n)
    below = torch.ones(n, n, dtype=torch.bool).tril(-1)
    sums = repeated.masked_fill(~below, 0).cumsum(-2)
    return sums.masked_fill(~below.logical_or(torch.eye(n, dtype=torch.bool)), -torch.inf).exp()


def turned(x: Any) -> Any:
    """What is summed lies in another order, and so does the result."""
    return (x.transpose(1, 2) * 0.5).contiguous().cumsum(1)[..., None].squeeze(-1) + 1


def first(x: Any) -> Any:
    return (x - 1).cumsum(0) * 2


@pytest.mark.covering(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("sizes", [(3, 20, 64), (5, 61, 37)])
@pytest.mark.parametrize("call", [segments, turned, first])
def test_running_sums(call: Callable[..., Any], sizes: tuple[int, ...], dtype: Any) -> None:
    x = torch.randn(*sizes if call is segments else (sizes[0] * 3, sizes[1], sizes[2])).to(dtype)
    tiled = tw.tile(call)
    tiled.check(x)
    (part,) = [each for each in tiled.report.parts if "cumsum" in each.operations]
    assert len(part.operations) > 2, str(tiled.report)
    assert part.kernel.check(part.reference, *make_inputs(part.kernel.program)).ok
    assert tiled(x).stride() == call(x).stride()


@pytest.mark.parametrize("dtype", [torch.int32, torch.float64])
def test_other_running_sums_are_right(dtype: Any) -> None:
    x = torch.arange(64 * 160).view(64, 160).to(dtype)
    tiled = tw.tile(first)
    tiled.check(x)
    if dtype == torch.int32:
        assert not any("cumsum" in part.operations for part in tiled.report.parts)


def test_running_sums_of_open_sizes_run_in_torch() -> None:
    tiled = tw.tile(first, dynamic=True)
    for length in (64, 80):
        tiled.check(torch.randn(length, 160))
    assert not any("cumsum" in part.operations for part in tiled.report.parts)
