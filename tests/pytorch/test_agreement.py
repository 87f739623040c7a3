"""`check` of a function that jumps: what torch itself has for arguments a rounding away is no
error, and everything else is."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tileworkbench as tw
from tileworkbench.compiler.diagnostics import CheckError


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


def _sorted(x: Any, w: Any) -> Any:
    return torch.sort((x @ w).relu(), -1).values


def test_gradients_of_a_sort_with_near_ties() -> None:
    """Products of a kernel round otherwise: neighbours change places, with their gradients."""
    tiled = tw.tile(_sorted, keep_slower=True)
    x = torch.randn(256, 512, requires_grad=True)
    agreement = tiled.check(x, torch.randn(512, 512, requires_grad=True))
    assert (agreement.results, agreement.gradients) == (1, 2)
    assert 0 < agreement.jumps < 0.1 * (256 + 512) * 512
    moves = f"but for {agreement.jumps} elements, which move as far in torch when arguments move"
    assert moves in str(agreement)


class _Wrong:
    """A function that claims to be another in kernels."""

    def __init__(self, fn: Any, wrong: Any) -> None:
        self.tiled = tw.tile(fn)
        self.tiled._compiled = wrong
        self.tiled.report.breaks.append("none of it is captured")

    def check(self, *args: Any, **how: Any) -> Any:
        return self.tiled.check(*args, **how)


def test_what_does_not_jump_in_torch_is_an_error() -> None:
    def shifted(x: Any, w: Any) -> Any:
        return _sorted(x, w) + torch.zeros(512).index_fill_(0, torch.tensor(500), 0.1)

    x, w = torch.randn(64, 512), torch.randn(512, 512)
    with pytest.raises(CheckError, match=r"64 of 32768 elements of result 0: first at \[0, 500\]"):
        _Wrong(_sorted, shifted).check(x, w)
    # A given tolerance is meant: what moves by less than the usual one is no jump.
    with pytest.raises(CheckError, match="elements of result 0"):
        _Wrong(torch.exp, lambda x: torch.exp(x) * (1 + 3e-7)).check(x, rtol=0, atol=0)
    with pytest.raises(CheckError, match="elements of result 0"):
        _Wrong(torch.round, lambda x: torch.round(x) + 1).check(x)


def test_a_comparison_that_tips() -> None:
    """1 of the kernel, 0 of torch: both are right for what is a rounding off one half."""
    x = torch.tensor([0.5, 1.0, 2.0])
    agreement = _Wrong(lambda x: x > 0.5, lambda x: x >= 0.5).check(x)
    assert agreement.jumps == 1 and "but for 1 element, " in str(agreement)


def test_parameters_move_too_and_buffers_are_as_before() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.BatchNorm1d(64))
    tiled = tw.tile(net)
    before = net[1].running_mean.clone()
    assert tiled.check(torch.randn(256, 64)).jumps == 0
    assert torch.equal(net[1].running_mean, before) and int(net[1].num_batches_tracked) == 0

    def not_trained(x: Any) -> Any:
        y = net[0](x)
        return torch.nn.functional.batch_norm(y, None, None, net[1].weight, net[1].bias, True)

    with pytest.raises(CheckError, match="elements of buffer 0"):
        _Wrong(net, not_trained).check(torch.randn(256, 64))

    class Tipping(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Parameter(torch.tensor([0.5, 1.0, 2.0]))

        def forward(self, ids: Any) -> Any:
            return self.table[ids] > 0.5

    made = Tipping()
    ids = torch.tensor([2, 0, 1, 0])
    assert _Wrong(made, lambda ids: made.table[ids] >= 0.5).check(ids).jumps == 2
    with pytest.raises(CheckError, match="in 1 of 4 elements of result 0"):
        _Wrong(made, lambda ids: made.table[ids] >= 1.5).check(ids)
