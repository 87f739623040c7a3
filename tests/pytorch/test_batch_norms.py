"""Batch normalisation by the statistics of the batch: values and statistics against torch."""

import copy
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

SHAPES = [(3, 24, 15, 20), (1, 24, 16, 16), (4, 24, 100), (2, 24, 4, 5, 6)]


def norm_of(dtype: Any, rank: int = 4, **how: Any) -> Any:
    kinds = {3: torch.nn.BatchNorm1d, 4: torch.nn.BatchNorm2d, 5: torch.nn.BatchNorm3d}
    norm = kinds[rank](24, **how).to(dtype)
    for each in norm.parameters():
        torch.nn.init.normal_(each)
    return norm


def images(shape: tuple[int, ...], dtype: Any) -> Any:
    """Far from 0, each channel by another distance."""
    far = torch.arange(24.0).view(24, *(1 for _ in shape[2:]))
    return (torch.randn(shape) * 3 + far).to(dtype)


def compiled(call: Callable[..., Any], report: Report, **options: Any) -> Any:
    settings = Settings(least_work=1, least_elements=1)
    backend = functools.partial(tile_backend, report=report, settings=settings)
    return torch.compile(call, backend=backend, **options)


def agree(found: Any, expected: Any) -> None:
    tolerance = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 6e-2}[expected.dtype]
    assert found.stride() == expected.stride() and found.dtype == expected.dtype
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


def kernel_of(report: Report) -> Any:
    """The kernel of the normalisation, which agrees with torch on inputs of its own."""
    (part,) = (part for part in report.parts if any("norm" in each for each in part.operations))
    assert part.kernel.check(part.reference, *make_inputs(part.kernel.program)).ok
    assert not any("norm" in name for name, _ in report.in_torch), report
    return part


@pytest.mark.covering(2)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("params", "dtype"),
    [
        *((each, each) for each in (torch.float32, torch.bfloat16, torch.float16)),
        (torch.float32, torch.bfloat16),
    ],
)
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("tracks", [True, False])
def test_values_and_running_statistics(
    shape: tuple[int, ...], params: Any, dtype: Any, affine: bool, tracks: bool
) -> None:
    norm = norm_of(params, len(shape), affine=affine, track_running_stats=tracks, momentum=0.3)
    other, report, x = copy.deepcopy(norm), Report(), images(shape, dtype)
    call = compiled(lambda x: F.relu(norm(x)), report)
    with torch.no_grad():
        for step in (1, 2):
            agree(call(x * step), F.relu(other(x * step)))
    tolerance = 1e-5 if params == torch.float32 else 3e-2
    for mine, others in zip(norm.buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(mine, others, rtol=tolerance, atol=tolerance)
    assert kernel_of(report).kernel.name.startswith(("batch_norm_relu", "native_batch_norm"))


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda norm, x, y: norm(x), "batch_norm"),
        (lambda norm, x, y: F.relu(norm(x) + y), "batch_norm_add_relu"),
        (lambda norm, x, y: F.silu(norm(x)) * y[:1, :, :, :1], "batch_norm_silu_mul"),
        (lambda norm, x, y: F.gelu(norm(x * 2 + y)), "batch_norm_gelu"),
        (lambda norm, x, y: norm(x).half() * 2, "batch_norm_to_copy_mul"),
        (lambda norm, x, y: norm(x).tanh().sum((2, 3)), "batch_norm_tanh"),
    ],
)
def test_what_follows(call: Callable[..., Any], name: str) -> None:
    norm, report = norm_of(torch.float32), Report()
    other = copy.deepcopy(norm)
    x, y = images((3, 24, 15, 20), torch.float32), torch.randn(3, 24, 15, 20)
    with torch.no_grad():
        found = compiled(lambda x, y: call(norm, x, y), report)(x, y)
        agree(found, call(other, x, y))
    assert kernel_of(report).kernel.name == name


@pytest.mark.parametrize(
    "call",
    [
        lambda norm, x: (norm(x), norm(x).relu())[0],  # of the other one, the statistics alone
        lambda norm, x: norm(x) * norm(x + 1),
        lambda norm, x: F.relu(norm(x) + x[:1, :1] * x[:, :, :1]),
        lambda norm, x: norm(x[:, :, ::2]) * 2,
    ],
)
def test_networks_in_which_they_stand(call: Callable[..., Any]) -> None:
    norm, x, report = norm_of(torch.float32), images((3, 24, 30, 20), torch.float32), Report()
    other = copy.deepcopy(norm)
    with torch.no_grad():
        agree(compiled(lambda x: call(norm, x), report)(x), call(other, x))
    for mine, others in zip(norm.buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(mine, others, rtol=1e-5, atol=1e-5)
    assert not any("norm" in name for name, _ in report.in_torch), report


@pytest.mark.parametrize("is_dynamic", [None, True])
def test_batches_of_every_size(is_dynamic: bool | None) -> None:
    """torch keeps their number open; a kernel has it."""
    tiled = tw.tile(
        lambda x: F.relu(F.batch_norm(x, None, None, training=True)), dynamic=is_dynamic
    )
    for size in (4, 6, 9):
        x = images((size, 24, 20, 20), torch.float32)
        agree(tiled(x), F.relu(F.batch_norm(x, None, None, training=True)))
    assert len(tiled.kernels) == 3, tiled.report


def test_statistics_that_are_read_again() -> None:
    def call(x: Any) -> Any:
        made, mean, rstd = torch.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5)
        return made * 2 + mean, rstd - mean

    x, report = images((3, 24, 15, 24), torch.float32), Report()
    for found, expected in zip(compiled(call, report)(x), call(x), strict=True):
        agree(found, expected)
    assert kernel_of(report).kernel.name == "batch_norm_mul"


@pytest.mark.slow
@pytest.mark.parametrize("target", ["sim:sm_80", "sim:gfx942"])
def test_on_a_simulated_gpu(target: str) -> None:
    def call(x: Any) -> Any:
        return F.relu(F.batch_norm(x, None, None, training=True))

    x = images((3, 24, 15, 20), torch.float32)
    tiled = tw.tile(call, target=target)
    agree(tiled(x), call(x))
    assert list(tiled.kernels) == ["batch_norm_relu"]


def test_gradients_of_a_block_of_a_network() -> None:
    def block() -> Any:
        torch.manual_seed(1)
        first, last = (torch.nn.Conv2d(8, 24, 3, padding=1), torch.nn.Conv2d(24, 8, 1))
        return torch.nn.Sequential(first, norm_of(torch.float32), torch.nn.ReLU(), last)

    mine, others, report = block(), block(), Report()
    call, grown = compiled(mine, report), []
    for net, fn in ((mine, call), (others, others)):
        for seed in (2, 3):  # steps
            torch.manual_seed(seed)
            fn(torch.randn(4, 8, 20, 20)).square().mean().backward()
            with torch.no_grad():
                for each in net.parameters():
                    each -= 0.1 * each.grad
        grown.append([*net.parameters(), *net.buffers()])
    for a, b in zip(*grown, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)
    assert any("batch_norm_legit_functional" in name for p in report.parts for name in p.operations)
    (reason,) = {why for name, why in report.in_torch if "batch_norm_backward" in name}
    assert reason == "a normalisation over the first dimensions is torch's own"


def test_infinity_and_nan_stay_in_their_channel() -> None:
    x = images((3, 24, 15, 20), torch.float32)
    x[0, 1, 2, 3], x[2, 7, 0, 0], x[:, 8] = float("nan"), float("inf"), 7.0
    norm = norm_of(torch.float32, track_running_stats=False)
    with torch.no_grad():
        found, expected = tw.tile(norm, keep_slower=True)(x), norm(x)
    assert torch.equal(found.isnan(), expected.isnan())
    assert found.isnan().any((0, 2, 3)).sum() == 2
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4, equal_nan=True)


def test_a_mean_far_from_zero_costs_no_digits() -> None:
    x = torch.randn(4, 24, 30, 30) + 4000
    norm = norm_of(torch.float32, affine=False)
    with torch.no_grad():
        wanted = (x.double() - x.double().mean((0, 2, 3), keepdim=True)) / x.double().std(
            (0, 2, 3), unbiased=False, keepdim=True
        )
        torch.testing.assert_close(
            tw.tile(norm, keep_slower=True)(x).double(), wanted, rtol=0, atol=2e-3
        )


def test_the_text() -> None:
    def call(x: Any, weight: Any, bias: Any) -> Any:
        return F.relu(F.batch_norm(x, None, None, weight, bias, training=True))

    args = torch.randn(3, 24, 15, 20), torch.randn(24), torch.randn(24)
    lines = [line.strip() for line in tw.tile(call, *args).source.splitlines()]
    start = lines.index("with T.Kernel(24, threads=128) as channel:")
    assert "\n".join(lines[start + 7 :]) == TEXT


TEXT = """\
for image in T.serial(3):
for i, column in T.Parallel(1, 300):
tile[i, column] = x[image, channel, column]
T.reduce_sum(tile, mean, dim=1, clear=False)
for i in T.Parallel(1):
mean[i] = mean[i] / 900.0
for image in T.serial(3):
for i, column in T.Parallel(1, 300):
deviation = x[image, channel, column] - mean[i]
tile[i, column] = deviation * deviation
T.reduce_sum(tile, squares, dim=1, clear=False)
for i in T.Parallel(1):
scale[i] = T.rsqrt(squares[i] / 900.0 + 1e-05) * weight[channel]
for image in T.serial(3):
for i, column in T.Parallel(1, 300):
normalised = (x[image, channel, column] - mean[i]) * scale[i] + bias[channel]
relu = T.if_then_else(normalised < 0.0, 0.0, normalised)
out[image, channel, column] = relu
return out\
"""


def test_what_stays_in_torch() -> None:
    def reason_of(shape: tuple[int, ...], order: Any = torch.contiguous_format) -> str:
        norm = norm_of(torch.float32, max(len(shape), 3))
        x = torch.randn(shape).contiguous(memory_format=order)
        tiled = tw.tile(norm)
        with torch.no_grad():
            torch.testing.assert_close(tiled(x), norm(x), rtol=1e-4, atol=1e-4)
        (reason,) = {why for name, why in tiled.report.in_torch if "norm" in name}
        return reason

    apart = "a normalisation over elements that lie apart is torch's own"
    assert reason_of((900, 24)) == apart
    assert reason_of((90, 24, 3, 3)) == apart
    last = reason_of((3, 24, 15, 20), torch.channels_last)
    assert last == "a result that is not contiguous"
    norm = norm_of(torch.float64)
    tiled = tw.tile(norm)
    tiled(torch.randn(3, 24, 15, 20).double())
    assert "a normalisation of float64 is torch's own" in {why for _, why in tiled.report.in_torch}
