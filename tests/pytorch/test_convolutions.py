"""Convolutions as kernels: values and gradients against torch, who runs them, the text."""

import functools
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import tileworkbench as tw
from tileworkbench.bench import products
from tileworkbench.pytorch import convolutions
from tileworkbench.pytorch.backend import Settings, tile_backend
from tileworkbench.pytorch.report import Report
from tileworkbench.workbench.inputs import make_inputs


@pytest.fixture(autouse=True)
def _without_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = products.product_rates
    monkeypatch.setattr(convolutions, "product_rates", lambda dtype: rates(dtype, ()))


def convolve(x: Any, w: Any, b: Any, **how: Any) -> Any:
    made = (F.conv2d if x.dim() == 4 else F.conv1d)(x, w, b, **how)
    return F.gelu(made) * made


CASES = [
    ((2, 16, 9, 11), (24, 16, 3, 3), {"padding": 1}),
    ((1, 17, 12, 14), (130, 17, 3, 2), {"padding": (1, 0), "stride": 2}),
    ((2, 24, 9, 9), (40, 24, 1, 1), {}),
    ((1, 8, 30, 140), (16, 8, 2, 3), {"dilation": (1, 3), "padding": (0, 2)}),
    ((2, 20, 300), (32, 20, 3), {"padding": 1, "dilation": 2}),
    ((2, 18, 20, 20), (18, 1, 3, 3), {"padding": 1, "groups": 18}),
    ((1, 33, 28, 31), (33, 1, 5, 3), {"padding": (2, 1), "groups": 33, "stride": (2, 1)}),
    ((1, 3, 90, 80), (3, 1, 3, 3), {"groups": 3, "dilation": (1, 2)}),
    ((2, 37, 200), (37, 1, 4), {"padding": 3, "groups": 37}),
    ((1, 3, 9000), (3, 1, 4), {"groups": 3, "stride": 2}),
    ((2, 24, 9, 11), (30, 8, 3, 3), {"padding": 1, "groups": 3}),
    ((1, 64, 12, 17), (272, 32, 2, 1), {"groups": 2, "stride": (1, 2)}),
    ((3, 32, 60), (64, 8, 5), {"groups": 4, "padding": 2}),
    ((2, 6, 20, 20), (18, 1, 3, 3), {"padding": 1, "groups": 6}),
]


def part_of(call: Any, args: Any) -> Any:
    """The one kernel of a call, whose values are those of torch."""
    report, settings = Report(), Settings(least_elements=1)
    backend = functools.partial(tile_backend, report=report, settings=settings)
    made, expected = torch.compile(call, backend=backend, dynamic=False)(*args), call(*args)
    assert made.stride() == expected.stride() and made.dtype == expected.dtype
    torch.testing.assert_close(made, expected, rtol=0.05, atol=0.05)
    assert not report.in_torch, report
    (part,) = report.parts
    return part


@pytest.mark.covering(1)
@pytest.mark.parametrize(("image", "filters", "how"), CASES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_convolutions(image: Any, filters: Any, how: Any, dtype: Any) -> None:
    args = torch.randn(image), torch.randn(filters) / 8, torch.randn(filters[0])
    call = functools.partial(convolve, **how)
    part = part_of(call, [each.to(dtype) for each in args])
    assert part.operations == ("convolution", "gelu", "mul")
    assert part.kernel.check(part.reference, *make_inputs(part.kernel.program)).ok


def test_sequences_of_float32_with_what_follows() -> None:
    args = torch.randn(2, 64, 256), torch.randn(64, 1, 4), torch.randn(64)
    call = functools.partial(convolve, padding=3, groups=64)
    tiled = tw.tile(call)
    tiled.check(*args)
    assert list(tiled.kernels) == ["convolution_gelu_mul"]


GRADIENTS = [
    ((2, 16, 20, 20), (32, 16, 3, 3), {"padding": 1}, 2),
    ((2, 32, 19, 20), (48, 16, 3, 2), {"padding": (1, 0), "groups": 2}, 2),
    ((2, 18, 20, 20), (18, 1, 3, 3), {"padding": 2, "dilation": 2, "groups": 18}, 2),
    ((2, 20, 300), (32, 20, 5), {"padding": 2}, 2),
    ((2, 16, 20, 20), (32, 16, 3, 3), {"padding": 1, "stride": 2}, 1),
    ((2, 16, 20, 20), (32, 16, 1, 1), {"padding": 1}, 1),
]


@pytest.mark.parametrize(("image", "filters", "how", "kernels"), GRADIENTS)
def test_gradients_are_those_of_torch(image: Any, filters: Any, how: Any, kernels: int) -> None:
    args = torch.randn(image), torch.randn(filters) / 8, torch.randn(filters[0])
    tiled = tw.tile(functools.partial(convolve, **how))
    agreement = tiled.check(*(each.bfloat16().requires_grad_() for each in args))
    assert agreement.gradients == 3
    gradient = "the gradient of a convolution's filters is torch's own, and all with strides"
    assert ("aten.convolution_backward.default", gradient) in tiled.report.in_torch
    assert sum("convolution" in name for name in tiled.kernels) == kernels


@pytest.mark.covering(1)
@pytest.mark.parametrize(("image", "filters", "how", "kernels"), GRADIENTS)
@pytest.mark.parametrize("is_last", [False, True])
def test_gradients_of_float32(
    image: Any, filters: Any, how: Any, kernels: int, is_last: bool
) -> None:
    args = [torch.randn(image), torch.randn(filters) / 8, torch.randn(filters[0])]
    if is_last and len(image) == 4:
        args[0] = args[0].contiguous(memory_format=torch.channels_last)
    tiled = tw.tile(functools.partial(convolve, **how))
    assert tiled.check(*(each.requires_grad_() for each in args)).gradients == 3
    gradient = "the gradient of a convolution's filters is torch's own, and all with strides"
    assert ("aten.convolution_backward.default", gradient) in tiled.report.in_torch


def test_the_gradient_of_an_image_alone_leaves_nothing_to_torch() -> None:
    weight = torch.randn(32, 16, 3, 3).bfloat16()
    tiled = tw.tile(lambda x: torch.relu(F.conv2d(x, weight, padding=1)))
    assert tiled.check(torch.randn(2, 16, 20, 20).bfloat16().requires_grad_()).gradients == 1
    assert not any("convolution" in name for name, _ in tiled.report.in_torch)


def test_batches_of_every_number() -> None:
    tiled = tw.tile(functools.partial(convolve, padding=1), dynamic=True)
    weight, bias = torch.randn(32, 16, 3, 3).bfloat16() / 8, torch.randn(32).bfloat16()
    call = functools.partial(convolve, padding=1)
    for batch in (2, 3, 5):
        x = torch.randn(batch, 16, 20, 20).bfloat16()
        torch.testing.assert_close(
            tiled(x, weight, bias), call(x, weight, bias), rtol=0.1, atol=0.1
        )
    assert sum("convolution" in name for name in tiled.kernels) <= 2


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (torch.nn.Conv2d(16, 16, 3, padding=1) for _ in range(2))
        self.norm = torch.nn.BatchNorm2d(16)

    def forward(self, x: Any) -> Any:
        return F.relu(x + self.second(F.relu(self.norm(self.first(x)))))


def test_a_residual_block() -> None:
    block, x = Block().eval().bfloat16(), torch.randn(2, 16, 28, 28).bfloat16()
    tiled = tw.tile(block)
    with torch.no_grad():
        tiled.check(x)
    assert "convolution_add_relu" in tiled.kernels


def test_what_convolutions_stay_in_torch() -> None:
    def reason_of(image: Any, filters: Any, dtype: Any = torch.bfloat16, **how: Any) -> str:
        torch._dynamo.reset()
        x, w = torch.randn(image).to(dtype), torch.randn(filters).to(dtype)
        call = how.pop("call", F.conv2d)
        tiled = tw.tile(lambda x, w: call(x, w, **how))
        torch.testing.assert_close(tiled(x, w), call(x, w, **how))
        assert not tiled.kernels
        return dict(tiled.report.in_torch)["aten.convolution.default"]

    image, filters = (1, 16, 32, 32), (32, 16, 3, 3)
    fast = "a convolution of {} is as fast in torch"
    assert reason_of(image, filters, torch.float32) == fast.format("float32")
    transposed = "a transposed convolution, or one of volumes, is torch's own"
    assert reason_of(image, (16, 8, 3, 3), call=F.conv_transpose2d) == transposed
    few = "a convolution with few filters or channels is as fast in torch"
    assert reason_of(image, (8, 16, 3, 3)) == few
    assert reason_of(image, (24, 4, 3, 3), groups=4) == few
    narrow = "a convolution of images of 7 columns"
    assert reason_of((1, 256, 7, 7), (256, 1, 3, 3), padding=1, groups=256) == narrow
    wide = "a convolution of images of 600 columns"
    assert reason_of((1, 16, 16, 602), filters, padding=(1, 0)) == wide


def test_processors_with_instructions_leave_it_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = products.product_rates
    monkeypatch.setattr(convolutions, "product_rates", lambda d: rates(d, ("avx512bf16",)))
    x, w = torch.randn(1, 16, 32, 32).bfloat16(), torch.randn(32, 16, 3, 3).bfloat16()
    tiled = tw.tile(lambda x, w: F.conv2d(x, w), x, w)
    reason = "a convolution of bfloat16 is as fast in torch"
    assert tiled.report.in_torch == [("aten.convolution.default", reason)]


def test_the_text_has_the_usual_names() -> None:
    def smooth(pictures: Any, kernels: Any) -> Any:
        return torch.relu(F.conv2d(pictures, kernels, padding=1, groups=8))

    part = part_of(smooth, [torch.randn(2, 8, 20, 20).half(), torch.randn(8, 1, 3, 3).half()])
    lines = [line.strip() for line in part.source.splitlines()]
    start = lines.index("for r in T.serial(3):")
    assert lines[start : start + 4] == [
        "for r in T.serial(3):",
        "for s in T.serial(3):",
        "for i, p, q in T.Parallel(5, 20, 20):",
        "product[i, p * 20 + q] += image[i, p + r, q + s] "
        "* T.cast(kernels[by * 5 + i, r, s], T.float32)",
    ]
