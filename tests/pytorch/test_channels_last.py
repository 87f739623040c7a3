"""Convolutions whose channels lie together: values and strides against torch, who runs them."""

import functools
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import tileworkbench as tw
from tileworkbench.bench.products import product_rates
from tileworkbench.pytorch import channels_last, trials
from tileworkbench.workbench.inputs import make_inputs

LAST = torch.channels_last


@pytest.fixture(autouse=True)
def _without_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on processors without instructions for 16 bits."""
    monkeypatch.setattr(channels_last, "product_rates", lambda dtype: product_rates(dtype, ()))


def convolve(x: Any, w: Any, b: Any, **how: Any) -> Any:
    made = F.conv2d(x, w, b, **how)
    return torch.relu(made) * 0.5


CASES = [
    ((2, 16, 9, 11), (24, 16, 3, 3), {"padding": 1}),
    ((1, 17, 12, 14), (130, 17, 3, 2), {"padding": (1, 0), "stride": 2}),
    ((2, 24, 9, 9), (40, 24, 1, 1), {}),
    ((1, 40, 15, 16), (72, 40, 1, 1), {"stride": 2}),
    ((1, 32, 30, 140), (16, 32, 2, 3), {"dilation": (1, 3), "padding": (0, 2)}),
    ((1, 520, 7, 7), (48, 520, 3, 3), {"padding": 1}),
    ((2, 48, 9, 11), (120, 16, 3, 3), {"padding": 1, "groups": 3}),
    ((1, 64, 12, 17), (272, 32, 2, 1), {"groups": 2, "stride": (1, 2)}),
]


def inputs(image: Any, filters: Any, dtype: Any) -> list[Any]:
    x, w = torch.randn(image), torch.randn(filters) / 8
    made = x.contiguous(memory_format=LAST), w.contiguous(memory_format=LAST)
    return [each.to(dtype) for each in (*made, torch.randn(filters[0]))]


def one_kernel(call: Any, *args: Any) -> Any:
    """The one kernel of a call, whose values and strides are those of torch."""
    tiled = tw.tile(call)
    with torch.no_grad():
        made, expected = tiled(*args), call(*args)
    assert made.stride() == expected.stride() and made.dtype == expected.dtype
    close = 1e-3 if made.dtype == torch.float32 else 0.05
    torch.testing.assert_close(made, expected, rtol=close, atol=close)
    assert not tiled.report.in_torch, tiled.report
    (part,) = tiled.report.parts
    assert part.kernel.check(part.reference, *make_inputs(part.kernel.program)).ok
    return part


@pytest.mark.covering(1)
@pytest.mark.parametrize(("image", "filters", "how"), CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_values(image: Any, filters: Any, how: Any, dtype: Any) -> None:
    part = one_kernel(functools.partial(convolve, **how), *inputs(image, filters, dtype))
    assert part.operations == ("convolution", "relu", "mul")


def test_filters_in_the_other_order_are_turned() -> None:
    x, w, b = inputs((2, 24, 9, 10), (40, 24, 3, 3), torch.float32)
    one_kernel(convolve, x, w.contiguous(), b)


def test_a_part_of_an_image() -> None:
    x, w, b = inputs((2, 24, 19, 10), (40, 24, 3, 3), torch.float32)
    one_kernel(lambda x: convolve(x[:, :, 3:], w, b), x)


class Block(torch.nn.Module):
    """The residual block of a network, without biases."""

    def __init__(self, channels: int, inner: int) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(channels, inner, 1, bias=False)
        self.second = torch.nn.Conv2d(inner, channels, 3, padding=1, bias=False)
        self.norms = torch.nn.ModuleList(map(torch.nn.BatchNorm2d, (inner, channels)))

    def forward(self, x: Any) -> Any:
        y = F.relu(self.norms[0](self.first(x)))
        return F.relu(x + self.norms[1](self.second(y)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_residual_block(dtype: Any) -> None:
    block = Block(40, 24).eval().to(dtype).to(memory_format=LAST)
    for norm in block.norms:
        norm.running_mean.normal_(), norm.running_var.uniform_(0.5, 2)
    x = torch.randn(2, 40, 13, 14).to(dtype).contiguous(memory_format=LAST)
    tiled = tw.tile(block)
    with torch.no_grad():
        made, expected = tiled(x), block(x)
        torch.testing.assert_close(made, expected, rtol=0.05, atol=0.05)
    assert made.stride() == expected.stride() and not tiled.report.in_torch
    assert [part.operations for part in tiled.report.parts] == [
        ("convolution", "batch_norm", "relu"),
        ("convolution", "batch_norm", "add", "relu"),
    ]
    for part in tiled.report.parts:
        assert part.kernel.check(part.reference, *make_inputs(part.kernel.program)).ok


def test_images_of_every_size() -> None:
    tiled = tw.tile(functools.partial(convolve, padding=1))
    for height, width in ((9, 11), (10, 11), (10, 30)):
        args = inputs((2, 16, height, width), (24, 16, 3, 3), torch.float32)
        expected = convolve(*args, padding=1)
        torch.testing.assert_close(tiled(*args), expected, rtol=1e-3, atol=1e-3)
    assert not tiled.report.in_torch and len(tiled.report.parts) == 3


def test_gradients() -> None:
    args = [each.requires_grad_() for each in inputs((2, 16, 9, 11), (24, 16, 3, 3), torch.float32)]
    tiled = tw.tile(functools.partial(convolve, padding=1))
    assert tiled.check(*args).gradients == 3
    assert any(name.startswith("convolution") for name in tiled.kernels)


def test_what_stays_in_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    def reason_of(image: Any, filters: Any, dtype: Any = torch.float32, **how: Any) -> str:
        torch._dynamo.reset()
        x, w, b = inputs(image, filters, dtype)
        if how.pop("turned", False):
            x = x.contiguous()
        tiled = tw.tile(lambda x: F.conv2d(x, w, b, **how), dynamic=how.pop("dynamic", None))
        torch.testing.assert_close(tiled(x), F.conv2d(x, w, b, **how))
        assert not tiled.kernels
        return dict(tiled.report.in_torch)["aten.convolution.default"]

    image, filters = (2, 16, 32, 32), (32, 16, 3, 3)
    few = "a convolution with few filters or channels is as fast in torch"
    assert reason_of((1, 3, 32, 32), (32, 3, 3, 3)) == few
    assert reason_of(image, (16, 1, 3, 3), groups=16) == few
    wide = "a convolution of images of 600 columns"
    assert reason_of((1, 16, 16, 602), filters, padding=(1, 0)) == wide
    assert reason_of(image, filters, turned=True) == "an image in another order than the result"
    assert reason_of(image, filters, torch.float64) == "a convolution of float64 is torch's own"
    unknown = "a batch in channels_last whose size torch keeps open"
    assert reason_of(image, filters, dynamic=True) == unknown
    monkeypatch.setattr(trials, "_times", lambda calls, sets: [1.0, 0.5])
    measured = "measured: torch takes 5e+02 ms, a kernel 1e+03 ms"
    assert reason_of(image, filters) == measured
    monkeypatch.setattr(channels_last, "product_rates", lambda d: product_rates(d, ("fullfp16",)))
    fast = "a convolution of float16 is as fast in torch"
    assert reason_of(image, filters, torch.float16) == fast


def test_the_text_reads_the_pixels_of_a_tap() -> None:
    def smooth(pictures: Any, kernels: Any) -> Any:
        return torch.relu(F.conv2d(pictures, kernels, padding=1))

    part = one_kernel(smooth, *inputs((1, 32, 20, 20), (64, 32, 3, 3), torch.float32)[:2])
    lines = [line.strip() for line in part.source.splitlines()]
    start = lines.index("for r, s, k in T.grid(3, 3, 1):")
    assert lines[start : start + 4] == [
        "for r, s, k in T.grid(3, 3, 1):",
        "T.copy(kernels[by * 64, (r * 3 + s) * 32 + k * 32], filters)",
        "for p, q, j in T.Parallel(5, 20, 32):",
        "at_h = (bx * 5 + p) + r - 1",
    ]
    result = "T.if_then_else(product[p * 20 + q, j] < 0.0, 0.0, product[p * 20 + q, j])"
    assert lines[-3:] == [f"relu = {result}", "out[bz, row, q, channel] = relu", "return out"]
