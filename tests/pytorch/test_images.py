"""Networks of images: pooling and batch normalisation as kernels, against torch."""

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import tileworkbench as tw
from tileworkbench.workbench.inputs import make_inputs

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
ORDERS = [torch.contiguous_format, torch.channels_last]


def checked(call: Callable[..., Any], *args: Any) -> Any:
    """What a function became, whose result is that of torch, with its strides."""
    tiled = tw.tile(call)
    with torch.no_grad():
        made, wanted = tiled(*args), call(*args)
    wide = torch.float32 if wanted.is_floating_point() else wanted.dtype
    close = {"rtol": 1e-5, "atol": 1e-5} if wanted.dtype == wide else {"rtol": 0.02, "atol": 0.02}
    torch.testing.assert_close(made, wanted, equal_nan=True, **close)
    assert made.stride() == wanted.stride() and made.dtype == wanted.dtype
    for part in tiled.report.parts:
        assert part.kernel.check(part.reference, *make_inputs(part.kernel.program)).ok
    return tiled


POOLINGS = [
    (F.max_pool2d, {"kernel_size": 3, "stride": 2, "padding": 1}),
    (F.max_pool2d, {"kernel_size": 2}),
    (
        F.max_pool2d,
        {"kernel_size": (2, 5), "stride": (1, 3), "padding": (1, 2), "dilation": (3, 1)},
    ),
    (F.max_pool2d, {"kernel_size": 3, "stride": 2, "ceil_mode": True}),
    (F.max_pool2d, {"kernel_size": (1, 4), "stride": 3, "padding": (0, 2), "ceil_mode": True}),
    (F.avg_pool2d, {"kernel_size": 2}),
    (F.avg_pool2d, {"kernel_size": (3, 4), "stride": (2, 1), "padding": (1, 2)}),
    (F.avg_pool2d, {"kernel_size": 3, "divisor_override": 5}),
]


@pytest.mark.covering(2)
@pytest.mark.parametrize(("call", "how"), POOLINGS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("order", ORDERS)
def test_pooling(call: Any, how: Any, dtype: Any, order: Any) -> None:
    x = torch.randn(2, 20, 21, 26).to(dtype).contiguous(memory_format=order)
    if call is F.max_pool2d:
        x[0, 3, 7, 5], x[1, 0, 0, 0], x[0, 1] = float("nan"), float("-inf"), float("-inf")
    tiled = checked(functools.partial(call, **how), x)
    assert not tiled.report.in_torch, tiled.report


def test_pooling_of_one_image_and_of_batches_of_every_number() -> None:
    checked(lambda x: F.max_pool2d(x, 3, 2, 1), torch.randn(40, 130, 200))
    tiled = tw.tile(lambda x: F.max_pool2d(x, 3, 2, 1), dynamic=True)
    for batch in (2, 3, 7):
        x = torch.randn(batch, 16, 30, 30)
        assert torch.equal(tiled(x), F.max_pool2d(x, 3, 2, 1))
    assert list(tiled.kernels) == ["max_pool"]


def test_what_pooling_stays_in_torch() -> None:
    def reason_of(call: Any, *args: Any) -> str:
        torch._dynamo.reset()
        tiled = tw.tile(call)
        torch.testing.assert_close(tiled(*args), call(*args))
        assert not tiled.kernels
        ((_, reason),) = tiled.report.in_torch
        return reason

    x = torch.randn(2, 16, 40, 40)
    own = "a window over an image is torch's own"
    assert reason_of(lambda x: F.max_pool2d(x, 3, return_indices=True)[1], x) == own
    assert reason_of(lambda x: F.max_pool2d(x, 17), x) == own
    assert reason_of(lambda x: F.avg_pool2d(x, 17), x) == "a window of 17 pixels is torch's own"
    double = "a window of float64 is torch's own"
    assert reason_of(lambda x: F.avg_pool2d(x, 2), x.double()) == double
    several = "a mean over windows of several sizes is torch's own"
    uneven = functools.partial(F.avg_pool2d, kernel_size=3, padding=1, count_include_pad=False)
    assert reason_of(uneven, x) == several
    assert reason_of(lambda x: F.avg_pool2d(x, 3, ceil_mode=True), x) == several
    gaps = "a tensor that is not dense"
    assert reason_of(lambda x: F.avg_pool2d(x, 2), x.transpose(2, 3)) == gaps
    wide = "a window over rows of so many elements is torch's own"
    assert reason_of(lambda x: F.avg_pool2d(x, 2), torch.randn(1, 2, 4, 40000)) == wide


def test_gradients_of_pooling_are_torchs() -> None:
    tiled = tw.tile(lambda x: F.max_pool2d(x * 2, 3, 2, 1).exp() + 1)
    assert tiled.check(torch.randn(2, 16, 40, 40, requires_grad=True)).gradients == 1


def norm_of(kind: Any, dtype: Any, **how: Any) -> Any:
    norm = kind(24, **how).eval().to(dtype)
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.5, 2)
    for each in norm.parameters():
        torch.nn.init.normal_(each)
    return norm


@pytest.mark.covering(2)
@pytest.mark.parametrize(
    ("params", "dtype"), [*((each, each) for each in DTYPES), (torch.float32, torch.bfloat16)]
)
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("order", ORDERS)
def test_batch_normalisation(params: Any, dtype: Any, affine: bool, order: Any) -> None:
    norm = norm_of(torch.nn.BatchNorm2d, params, affine=affine)
    x, y = (
        each.contiguous(memory_format=order) for each in torch.randn(2, 2, 24, 18, 20).to(dtype)
    )
    assert list(checked(norm, x).kernels) == ["batch_norm"]
    tiled = checked(lambda x, y: F.relu(norm(x) + y), x, y)
    assert list(tiled.kernels) == ["batch_norm_add_relu"]
    assert not tiled.report.in_torch, tiled.report


def test_batch_normalisation_of_rows_sequences_and_volumes() -> None:
    flat, volumes = (
        norm_of(kind, torch.float32) for kind in (torch.nn.BatchNorm1d, torch.nn.BatchNorm3d)
    )
    assert checked(lambda x: F.relu(flat(x)), torch.randn(600, 24)).kernels
    assert checked(lambda x: F.relu(flat(x)), torch.randn(6, 24, 100)).kernels
    assert checked(lambda x: F.relu(volumes(x)), torch.randn(2, 24, 4, 10, 12)).kernels


def test_batch_normalisation_between_elements_in_another_order() -> None:
    norm = norm_of(torch.nn.BatchNorm2d, torch.float32)

    def turned(x: Any, y: Any) -> Any:
        return (norm(x) * y.transpose(1, 2)).exp()

    checked(turned, torch.randn(2, 24, 16, 32), torch.randn(2, 16, 24, 32))
    checked(lambda x: norm(x.transpose(1, 2)), torch.randn(2, 16, 24, 32))


def test_batch_normalisation_of_few_elements() -> None:
    norm = norm_of(torch.nn.BatchNorm1d, torch.float32)
    first, last = torch.nn.Linear(64, 24), torch.nn.Linear(24, 64)
    checked(lambda x: last(F.silu(norm(first(x))) * 2), torch.randn(2, 64))


def test_a_block_computes_what_is_the_same_for_all_pixels_once() -> None:
    norm = norm_of(torch.nn.BatchNorm2d, torch.float32)
    x = torch.randn(2, 24, 18, 20).contiguous(memory_format=torch.channels_last)
    lines = [line.strip() for line in checked(lambda x: F.relu(norm(x)), x).source.splitlines()]
    first = next(at for at, line in enumerate(lines) if "T.Parallel" in line)
    assert lines[first] == "for column in T.Parallel(24):"
    assert lines[first + 1].startswith("scale[column] = T.rsqrt(")
    assert lines[first + 3].startswith("for i, column in T.Parallel(")


@pytest.mark.covering(1)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("order", ORDERS)
def test_a_network_that_is_a_kernel_in_part(dtype: Any, order: Any) -> None:
    """What is on few elements runs in torch, in a graph that is cut several times."""
    norm = norm_of(torch.nn.BatchNorm2d, dtype)
    first = torch.nn.Conv2d(3, 24, 3, stride=2, padding=1, bias=False)
    other = torch.nn.Conv2d(24, 24, 3, padding=2, dilation=2, groups=3)
    network = torch.nn.Sequential(
        *(first, norm, torch.nn.Hardswish(), torch.nn.MaxPool2d(3, 2, 1), other),
        *(norm, torch.nn.Hardsigmoid(), torch.nn.AvgPool2d(8), norm),
    )
    network = network.eval().to(dtype).to(memory_format=order)
    x = torch.randn(2, 3, 64, 64).to(dtype).contiguous(memory_format=order)
    tiled = checked(network, x)
    assert sum("batch_norm" in name for name in tiled.kernels) == 2, tiled.report
    own = "a normalisation over the first dimensions is torch's own"
    assert ("aten._native_batch_norm_legit_no_training.default", own) in tiled.report.in_torch


def test_statistics_that_change_are_seen() -> None:
    norm = norm_of(torch.nn.BatchNorm2d, torch.float32)
    x, tiled = torch.randn(2, 24, 18, 20), tw.tile(lambda x: F.relu(norm(x)))
    with torch.no_grad():
        tiled(x)
        norm.running_var.data.mul_(3)
        norm.weight.data.add_(1)
        torch.testing.assert_close(tiled(x), F.relu(norm(x)), rtol=1e-5, atol=1e-5)


@pytest.mark.covering(1)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("trains", [True, False])
def test_gradients_of_a_residual_block(order: Any, trains: bool) -> None:
    block = torch.nn.ModuleList(
        [torch.nn.Conv2d(8, 8, 3, padding=1), norm_of(torch.nn.BatchNorm2d, torch.float32)]
    )
    down = torch.nn.Conv2d(8, 24, 3, stride=2, padding=1, groups=2)
    block.append(down).to(memory_format=order).train(trains)

    def call(x: Any) -> Any:
        conv, norm, _ = block
        return F.max_pool2d(F.relu(norm(down(F.hardswish(conv(x) + x)))), 3, 2, 1).square().mean()

    x = torch.randn(2, 8, 40, 40).contiguous(memory_format=order).requires_grad_()
    compiled = torch.compile(call, backend="tileworkbench")
    parameters = [x, *block.parameters()]
    made = torch.autograd.grad(compiled(x), parameters)
    wanted = torch.autograd.grad(call(x), parameters)
    for a, b in zip(made, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
        assert a.stride() == b.stride()
