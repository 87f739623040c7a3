"""Numbers that change from call to call: factors, where a view begins, strides. Torch keeps them
open from their second value on, and no kernel may hold on to one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import tileworkbench as tw

LARGE, SMALL = torch.randn(256, 256), torch.randn(8, 16)
CHANGES = "a number that is another in each call"


def compared(fn: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> Any:
    """The function in kernels, after these calls of it that agree with torch."""
    tiled = tw.tile(fn)
    for args in calls:
        want, got = fn(*args), tiled(*args)
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
        assert got.stride() == want.stride()
    return tiled


@pytest.mark.parametrize("data", [LARGE, SMALL], ids=["large", "small"])
@pytest.mark.parametrize(
    "fn",
    [
        lambda x, n: (x * n + n).tanh() / (n + 1),
        lambda x, n: torch.softmax(x / (n + 1), -1) * 2 + 1,
        lambda x, n: torch.clamp(x * 2, -n, n).sum(-1) + 1,
        lambda x, n: torch.add(x * 2, x, alpha=n).sigmoid(),
        lambda x, n: x.t().contiguous() * n + 1,
    ],
    ids=["map", "softmax", "clamp", "alpha", "order"],
)
def test_a_number_that_changes(fn: Any, data: torch.Tensor) -> None:
    compared(fn, [(data, n) for n in (2, 3, 7, 0.5, 1.5)])


def test_a_momentum_that_changes() -> None:
    images, ones = torch.randn(4, 8, 40, 40) + 3, torch.ones(8)

    def means(x: Any, n: float) -> Any:
        mean = ones.clone()
        made = F.batch_norm(x, mean, ones.clone(), training=True, momentum=n)
        return made.relu().sum((2, 3)) + mean

    compared(means, [(images, n) for n in (0.1, 0.3, 0.5, 0.9)])


def test_the_reason_is_told_and_the_rest_is_a_kernel() -> None:
    tiled = compared(lambda x, n: (x * 2 + 1).tanh() * n, [(LARGE, n) for n in (2, 3, 4)])
    assert tiled.report.in_torch == [("aten.mul.Tensor", CHANGES)]
    assert tiled.report.summary.startswith("7 of 8 operations")


def test_integers_that_change() -> None:
    data = torch.randint(-99, 99, (256, 256))
    compared(lambda x, n: (x // n) * 2 + n, [(data, n) for n in (1, 2, 3, 5)])
    compared(lambda x, n: ((x >> n) & 3) * 2, [(data, n) for n in (1, 2, 3, 5)])


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, n: (x.narrow(0, n, 64) * 2 + 1).exp().t().contiguous() * 3,
        lambda x, n: (x.narrow(1, n, 64) * 2 + 1).exp().t().contiguous() * 3,
        lambda x, n: torch.softmax(x[n : n + 64] * 2, -1) @ x,
        lambda x, n: x[n : n + 64].t() * x[:64, n : n + 1].t() + 1,
    ],
    ids=["rows", "columns", "softmax", "order"],
)
def test_a_view_that_begins_elsewhere_in_each_call(fn: Any) -> None:
    compared(fn, [(LARGE / 9, n) for n in (1, 2, 3, 50)])


def test_strides_and_widths_that_change() -> None:
    """A width that a kernel has to know is settled; other widths compile again."""
    wide = torch.randn(256, 768)
    views = [LARGE, LARGE.t(), wide[:, ::2][:, :256], wide[:, ::3], wide[:, :256]]
    compared(lambda x: torch.softmax(x * 2 + 1, -1) * x, [(each,) for each in views])
    compared(lambda x: (x * 2 + 1).exp() * x, [(each,) for each in views])
    rows = [(torch.randn(64, n),) for n in (64, 65, 1, 2, 0, 128)]
    compared(lambda x: torch.softmax(x * 2 + 1, -1) * x.sum(-1, keepdim=True), rows)


def test_heads_that_change() -> None:
    def scores(x: Any, heads: int) -> Any:
        split = x.view(x.shape[0], x.shape[1], heads, -1)
        return torch.softmax(split.transpose(1, 2) @ split.permute(0, 2, 3, 1) * 0.3, -1)

    cases = [(33, 4), (40, 8), (40, 2), (96, 4), (97, 8)]
    compared(scores, [(torch.randn(2, rows, 64), heads) for rows, heads in cases])


def test_bytes_begin_anew_behind_the_largest() -> None:
    """Floats become integers of 8 bits as in torch, by way of those of 32."""
    x = torch.randn(256, 256) * 300
    tiled = compared(lambda x: (x * 2).to(torch.int8) + 1, [(x,)])
    assert tiled.report.summary == "3 of 3 operations run in 1 kernel"
    compared(lambda x: (x.abs() * 2).to(torch.uint8) * 3, [(x,)])
    compared(lambda x: F.relu(x.to(torch.int8)).float() * 0.5 + 1, [(x,)])
    compared(lambda x: x.t().contiguous().to(torch.int8) + 1, [(x,)])  # mapped
    compared(lambda x: (x * 2).to(torch.int8) + 1, [(x[:8, :16].contiguous(),)])
