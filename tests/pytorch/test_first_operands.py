"""Products that compute their first operand in its tile: values, and where it stays apart."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import tileworkbench as tw
from tileworkbench.bench.products import product_rates
from tileworkbench.pytorch import rules
from tileworkbench.workbench.inputs import make_inputs


@pytest.fixture(autouse=True)
def _without_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of 16 bits are kernels, as on processors without instructions for them."""
    monkeypatch.setattr(rules, "product_rates", lambda dtype: product_rates(dtype, ()))


def gated(x: Any, y: Any, scale: Any, weight: Any) -> Any:
    return F.linear(F.silu(x) * y, weight)


def scaled(x: Any, y: Any, scale: Any, weight: Any) -> Any:
    return torch.relu((x * scale + 1) @ weight.t())


def scaled_rows(x: Any, y: Any, scale: Any, weight: Any) -> Any:
    return F.linear(torch.tanh(x * y[..., :1]), weight) + weight[:, 0]


def masked(x: Any, y: Any, scale: Any, weight: Any) -> Any:
    return F.linear(torch.where(y > 0, x, 0.0).to(weight.dtype) * 2, weight)


def again(x: Any, y: Any, scale: Any, weight: Any) -> Any:
    """The tensor that the tile is computed from is read behind the product, too."""
    return F.linear(F.gelu(x) * scale, weight) * x


def one_kernel(tiled: Any) -> Any:
    (part,) = tiled.report.parts
    assert "mm" in part.operations and not tiled.report.in_torch, str(tiled.report)
    assert part.kernel.check(part.reference, *make_inputs(part.kernel.program)).ok
    return part


def inputs(shape: tuple[int, ...], columns: int, dtype: Any) -> list[Any]:
    depth = shape[-1]
    made = torch.randn(shape), torch.randn(shape), torch.rand(depth), torch.randn(columns, depth)
    return [each.to(dtype) for each in made]


@pytest.mark.covering(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("shape", "columns"),
    [((64, 192), 16), ((4, 1, 4, 130), 72), ((2, 150, 99), 16), ((16, 96), 128)],
)
@pytest.mark.parametrize("call", [gated, scaled, scaled_rows, masked])
def test_values(call: Callable[..., Any], shape: tuple[int, ...], columns: int, dtype: Any) -> None:
    tiled = tw.tile(call)
    tiled.check(*inputs(shape, columns, dtype))
    one_kernel(tiled)


def test_inputs_that_are_not_contiguous() -> None:
    x, _, scale, weight = inputs((2, 60, 128), 16, torch.float32)
    turned = x.transpose(0, 1).contiguous().transpose(0, 1)
    for other in (turned, x[:1].expand(2, 60, 128)):
        tiled = tw.tile(gated)
        tiled.check(other, other * 2, scale, weight.t().contiguous().t())
        torch._dynamo.reset()


def test_batches_and_lengths_of_every_number() -> None:
    tiled = tw.tile(scaled, dynamic=True)
    for batch, length in ((2, 40), (3, 57), (5, 200)):
        args = inputs((batch, length, 136), 16, torch.float32)
        torch.testing.assert_close(tiled(*args), scaled(*args), rtol=1e-4, atol=1e-3)
    (part,) = tiled.report.parts
    assert "x: T.Tensor((rows, 136), T.float32)" in part.source


def test_gradients() -> None:
    args = [each.requires_grad_() for each in inputs((2, 40, 136), 16, torch.float32)]
    assert tw.tile(gated).check(*args).gradients == 3


def test_what_is_read_twice_is_one_argument() -> None:
    tiled = tw.tile(again)
    tiled.check(*inputs((16, 128), 128, torch.float32))
    assert len(make_inputs(one_kernel(tiled).kernel.program)) == 3


def test_with_several_blocks_of_columns_it_is_a_kernel_of_its_own() -> None:
    tiled = tw.tile(gated)
    tiled.check(*inputs((128, 192), 256, torch.float32))
    assert [part.operations for part in tiled.report.parts] == [("silu", "mul"), ("mm",)]
    about = "Its first operand is made before: 2 blocks of columns read it."
    assert f"# {about}" in tiled.source.splitlines()
    assert f"  mm: mm. {about.removesuffix('.')}" in str(tiled.report).splitlines()


def scaled_rows(x: Any, scale: Any, weight: Any) -> Any:
    made = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * scale
    return F.linear(made, weight)


def test_the_report_says_why_an_operand_is_a_kernel_of_its_own() -> None:
    rows = tw.tile(scaled_rows)
    rows.check(torch.randn(2100, 192), torch.randn(192), torch.randn(16, 192))
    assert rows.report.parts[1].note == (
        "Its first operand is made before: whole rows are reduced for it."
    )
    wide = tw.tile(gated)
    wide.check(*inputs((2100, 192), 64, torch.float32))
    assert wide.report.parts[1].note == (
        "Its first operand is made before: with 64 columns that is as fast."
    )


def test_what_others_read_is_made_once() -> None:
    def call(x: Any, y: Any, scale: Any, weight: Any) -> Any:
        made = F.silu(x) * y
        return F.linear(made, weight), torch.sort(made).values

    tiled = tw.tile(call)
    tiled.check(*inputs((2100, 192), 16, torch.float32))
    assert [part.operations for part in tiled.report.parts] == [("silu", "mul"), ("mm",)]
    assert tiled.report.parts[1].note == "Its first operand is made before: others read it, too."


def test_what_follows_from_a_product_stays_behind_it() -> None:
    tiled = tw.tile(lambda x, a, b: F.linear(F.gelu(F.linear(x, a)), b))
    tiled.check(torch.randn(256, 192), torch.randn(160, 192), torch.randn(144, 160))
    assert [part.operations for part in tiled.report.parts] == [("mm", "gelu"), ("mm",)]


def test_where_torch_is_faster_it_is_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    from tileworkbench.pytorch import trials

    monkeypatch.setattr(trials, "_times", lambda calls, sets: [1.0, 0.5])
    monkeypatch.setattr("tileworkbench.pytorch.backend.graph_trial", lambda *args: "")
    tiled = tw.tile(gated)
    tiled.check(*inputs((64, 192), 16, torch.float32))
    assert [part.operations for part in tiled.report.parts] == [("silu", "mul")]
    measured = "measured: torch takes 5e+02 ms, a kernel 1e+03 ms"
    assert tiled.report.in_torch == [("aten.mm.default", measured)]


@pytest.mark.slow
@pytest.mark.parametrize("target", ["sim:sm_80", "sim:gfx942"])
def test_on_a_simulated_gpu(target: str) -> None:
    args = inputs((40, 72), 16, torch.float16)
    tiled = tw.tile(gated, target=target)
    torch.testing.assert_close(tiled(*args), gated(*args), rtol=1e-2, atol=0.1)
    assert list(tiled.kernels) == ["silu_mm"]


def test_the_text_computes_rows_in_the_loop() -> None:
    args = inputs((2, 40, 130), 16, torch.float32)
    tiled = tw.tile(gated)
    tiled.check(*args)
    lines = [line.strip() for line in one_kernel(tiled).source.splitlines()]
    start = lines.index("depth = k * 64 + j")
    assert lines[start : start + 5] == [
        "depth = k * 64 + j",
        "mul = x[row, depth] * T.sigmoid(x[row, depth]) * y[row, depth]",
        "rows_tile[i, j] = T.if_then_else(depth < 130, mul, 0)",
        "T.copy(weight[bx * 16, k * 64], weight_shared)",
        "T.gemm(rows_tile, weight_shared, product, transpose_B=True)",
    ]
