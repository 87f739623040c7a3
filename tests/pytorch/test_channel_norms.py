"""Normalisations of groups of channels: values against torch, what is read for each channel."""

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import tileworkbench as tw
from tileworkbench.pytorch.backend import Settings, tile_backend
from tileworkbench.pytorch.report import Report
from tileworkbench.workbench.inputs import make_inputs


def args_of(dtype: Any, batch: int = 3) -> tuple[Any, Any, Any]:
    """Images of 16 channels, far from 0, and two numbers for each channel."""
    x = torch.randn(batch, 16, 15, 20) * 3 + 20
    return x.to(dtype), torch.randn(16).to(dtype), torch.randn(16).to(dtype)


def agree(found: Any, expected: Any) -> None:
    tolerance = {torch.float32: 1e-4, torch.bfloat16: 6e-2}[expected.dtype]
    assert found.stride() == expected.stride()
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.covering(1)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "call",
    [
        lambda x, w, b: F.group_norm(x, 4),
        lambda x, w, b: F.silu(F.group_norm(x, 4, w, b)),
        lambda x, w, b: F.silu(F.group_norm(x + w[:, None, None], 4, w, b)) + x,
        lambda x, w, b: F.group_norm(x, 16, w, b) * 2,  # a group is a channel
        lambda x, w, b: F.group_norm(x, 1, w) + 1,  # all channels are one
        lambda x, w, b: F.group_norm(x.view(3, 16, 300), 8, None, b).relu(),
        lambda x, w, b: F.group_norm(x.view(225, 64), 4).relu(),  # a row is all of a group
        lambda x, w, b: F.group_norm(x[:1], 4, w, b).relu(),
        lambda x, w, b: F.group_norm(x[:, :1].expand(3, 16, 15, 20) * w[0], 2, w).relu(),
        lambda x, w, b: F.instance_norm(x, weight=w, bias=b),
        lambda x, w, b: F.silu(F.instance_norm(x)) + b[:, None, None],
    ],
)
def test_values(call: Callable[..., Any], dtype: Any) -> None:
    report, args = Report(), args_of(dtype)
    settings = Settings(least_work=1, least_elements=1)
    backend = functools.partial(tile_backend, report=report, settings=settings)
    torch._dynamo.reset()
    agree(torch.compile(call, backend=backend, dynamic=False)(*args), call(*args))
    (part,) = (part for part in report.parts if any("norm" in each for each in part.operations))
    assert part.kernel.check(part.reference, *make_inputs(part.kernel.program)).ok
    assert {name for name, _ in report.in_torch} <= {"aten.repeat.default"}, report


def test_infinity_and_nan_stay_in_their_group() -> None:
    x, w, b = args_of(torch.float32)
    x[0, 1, 2, 3], x[1, 15, 0, 0], x[2, 4:8] = float("nan"), float("inf"), 7.0

    def call(x: Any, w: Any, b: Any) -> Any:
        return F.group_norm(x, 4, w, b) * 2

    found = tw.tile(call, keep_slower=True)(x, w, b)
    agree(found, call(x, w, b))
    assert found.isnan().any((2, 3)).sum() == 8


def test_gradients_and_statistics() -> None:
    def call(x: Any, w: Any, b: Any) -> Any:
        return F.silu(F.group_norm(x, 4, w, b))

    def gradients(fn: Callable[..., Any]) -> list[Any]:
        torch.manual_seed(0)
        args = [each.requires_grad_() for each in args_of(torch.float32)]
        fn(*args).square().sum().backward()
        return [each.grad for each in args]

    tiled = tw.tile(call, keep_slower=True)
    for found, expected in zip(gradients(tiled), gradients(call), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
    assert "native_group_norm" in {name for part in tiled.report.parts for name in part.operations}


def test_numbers_of_channels_are_read_once_for_each_channel() -> None:
    tiled = tw.tile(lambda x, w, b: F.group_norm(x, 4, w, b).relu(), *args_of(torch.float32))
    lines = [line.strip() for line in tiled.source.splitlines()]
    assert "w: T.Tensor((4, 4), T.float32)," in lines
    start = lines.index("for i, k, j in T.Parallel(1, 4, 300):")
    assert lines[start + 2].endswith("* w[row % 4, k] + b[row % 4, k]")
    assert sum("T.Parallel(1, 1200)" in line for line in lines) == 2  # what reads no such number


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (
            lambda x, w, b: F.group_norm(x.to(memory_format=torch.channels_last), 4) * 2,
            "a result that is not contiguous",
        ),
        (
            lambda x, w, b: F.group_norm(x.repeat(1, 1, 13, 13), 2, w, b) * 2,
            "rows of 405600 elements whose parts have no even pieces",
        ),
        (
            lambda x, w, b: F.batch_norm(x[..., 0], None, None, w, b, training=True) * 2,
            "a normalisation over elements that lie apart is torch's own",
        ),
        (lambda x, w, b: F.group_norm(x, 4, w, b), "alone, it is as fast in torch"),
    ],
)
def test_what_stays_in_torch(call: Callable[..., Any], reason: str) -> None:
    tiled, args = tw.tile(call), args_of(torch.float32)
    agree(tiled(*args), call(*args))
    reasons = {why for name, why in tiled.report.in_torch if "norm" in name}
    assert reasons == {reason}, tiled.report


def test_inputs_that_vary_along_several_parts_of_a_row_stay_outside() -> None:
    def call(x: Any, w: Any, b: Any) -> Any:
        return F.group_norm(x, 4, w, b) * 2 + x[0, 0, 0]

    tiled, args = tw.tile(call, keep_slower=True), args_of(torch.float32)
    agree(tiled(*args), call(*args))
    assert [part.operations for part in tiled.report.parts] == [("native_group_norm", "mul")]
