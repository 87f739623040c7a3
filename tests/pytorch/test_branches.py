"""Branches of formulas, which are parts of the kernel that reads them: against torch."""

import functools
from typing import Any

import pytest
import torch

from tileworkbench.pytorch.backend import tile_backend
from tileworkbench.pytorch.report import Report


def report_of(fn: Any, *args: torch.Tensor) -> Report:
    """What becomes of a function, whose results agree with torch."""
    report = Report()
    call = torch.compile(fn, backend=functools.partial(tile_backend, report=report))
    with torch.no_grad():
        for mine, theirs in zip(parts(call(*args)), parts(fn(*args)), strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)
            assert mine.stride() == theirs.stride()
    return report


def parts(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def gelu(x: Any, w: Any) -> Any:
    y = torch.sort(x, -1).values  # which torch runs
    return 0.5 * y * (1 + torch.tanh(0.8 * (y + 0.04 * y**3)))


def three(x: Any, w: Any) -> Any:
    y = torch.sort(x, -1).values
    return torch.exp(y * y) * w + torch.sin(y + 1) * torch.sigmoid(y - 2)


def normed(x: Any, w: Any) -> Any:
    y, z = torch.sort(x, -1).values, torch.sort(w, -1).values
    return torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6) * y * torch.sigmoid(z * 2)


def viewed(x: Any, w: Any) -> Any:
    y = torch.sort(x, -1).values
    left = (torch.exp(y) * 2).view(-1)
    return (left + (torch.sin(y) - 1).view(-1)).view(x.shape[0] * 2, -1) * 3


@pytest.mark.parametrize("fn", [gelu, three, normed, viewed])
def test_branches_are_parts_of_the_kernel(fn: Any) -> None:
    report = report_of(fn, torch.randn(96, 256), torch.randn(96, 256))
    assert len(report.parts) == 1
    assert {name for name, _ in report.in_torch} == {"aten.sort.default"}, str(report)


def read_twice(x: Any, w: Any) -> Any:
    y = torch.sort(x, -1).values
    left = torch.exp(y) * 2
    return left, left * torch.sin(y + 1) * w  # a result, too


def picked(x: Any, w: Any) -> Any:
    table = torch.exp(w) * 2
    place = torch.argsort(x[:, 0])
    return table[place] * torch.sin(x + 1)


def behind(x: Any, w: Any) -> Any:
    y = torch.exp(x) * 2 + w
    z = torch.sort(y, -1).values * 2 - 1  # of the group's result, and read by the group
    return torch.sin(y + 1) * z


def broadcast(x: Any, w: Any) -> Any:
    row = torch.exp(torch.sort(w[0]).values) * 2
    return torch.sin(torch.sort(x, -1).values + 1) * row


@pytest.mark.parametrize("fn", [read_twice, picked, behind, broadcast])
def test_what_others_read_otherwise_agrees(fn: Any) -> None:
    report_of(fn, torch.rand(96, 256), torch.rand(96, 256))
