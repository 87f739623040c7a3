"""Products of 16-bit floats and batches of products: values against torch, who runs them."""

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import tileworkbench as tw
from tileworkbench.bench import products
from tileworkbench.pytorch import rules
from tileworkbench.pytorch.backend import Settings, tile_backend
from tileworkbench.pytorch.report import Report
from tileworkbench.pytorch.tiles import depth_of_product, tile_of_any, tile_of_product
from tileworkbench.workbench.inputs import make_inputs


def has(monkeypatch: pytest.MonkeyPatch, *features: str) -> None:
    """Cut graphs as for a processor with these features."""
    rates = products.product_rates
    monkeypatch.setattr(rules, "product_rates", lambda dtype: rates(dtype, features))


@pytest.mark.covering(1)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "call",
    [
        lambda x, w, b: F.linear(x, w),
        lambda x, w, b: F.gelu(F.linear(x, w, b)),
        lambda x, w, b: torch.relu(x.reshape(-1, 48) @ w.mT.contiguous()) * b,
    ],
)
def test_products_of_16_bits(
    dtype: Any, call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    has(monkeypatch)
    tensors = torch.randn(3, 70, 48), torch.randn(130, 48) / 7, torch.randn(130)
    tiled = tw.tile(call)
    args = [each.to(dtype).requires_grad_() for each in tensors]
    assert str(tiled.check(*args)).startswith("agrees with torch in 1 result and ")
    assert any("mm" in name for part in tiled.report.parts for name in part.operations)
    for part in tiled.report.parts:
        assert part.kernel.check(part.reference, *make_inputs(part.kernel.program)).ok


def test_instructions_for_16_bits_are_those_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    has(monkeypatch, "avx512f", "avx512bf16")
    x, w = torch.randn(128, 64).bfloat16(), torch.randn(128, 64).bfloat16()
    tiled = tw.tile(lambda x, w: torch.relu(x @ w.mT) + 1, x, w)
    reason = "this processor multiplies bfloat16 by instructions, with which torch is faster"
    assert tiled.report.in_torch == [("aten.mm.default", reason)]
    tiled = tw.tile(lambda x, w: torch.relu(x @ w.mT) + 1, x.half(), w.half())
    assert not tiled.report.in_torch


def test_products_with_much_work_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    has(monkeypatch, "avx512f", "avx512bf16")
    for dtype in (torch.float32, torch.bfloat16):  # nobody knows who is faster
        x, w = torch.randn(197, 128, dtype=dtype), torch.randn(256, 128, dtype=dtype)
        tiled = tw.tile(lambda x, w: x @ w.mT)
        tiled.check(x, w)
        assert [part.operations for part in tiled.report.parts] == [("mm",)]
        tiled(x[:, :64].contiguous(), w[:, :64].contiguous())  # and little work is not
        assert "alone" in str(tiled.report) or "by instructions" in str(tiled.report)
    batch = torch.randn(3, 128, 128)
    tiled = tw.tile(lambda x, y: x @ y)
    tiled.check(batch, batch)
    assert [part.operations for part in tiled.report.parts] == [("bmm",)]


@pytest.mark.parametrize(
    ("rows", "columns", "threads", "tile"),
    [
        (128, 512, 1, (128, 128)),
        (197, 256, 1, (197, 128)),  # no row behind the last one is multiplied
        (512, 512, 2, (256, 128)),
        (128, 128, 2, (128, 64)),  # a block for each thread
        (1, 100, 1, (1, 112)),
        (1000, 24, 1, (250, 32)),
    ],
)
def test_tiles_of_products(rows: int, columns: int, threads: int, tile: tuple[int, int]) -> None:
    assert tile_of_product(rows, columns, threads) == tile


def test_tiles_of_operands_are_even() -> None:
    assert [depth_of_product(depth) for depth in (17, 48, 130, 1376)] == [32, 48, 144, 344]
    assert tile_of_any(197, 1) == (128, 1)


@pytest.mark.covering(1)
@pytest.mark.parametrize("shape", [(2, 3, 70, 100, 130), (1, 1, 130, 64, 77), (1, 4, 40, 64, 128)])
@pytest.mark.parametrize(
    "call",
    [
        lambda q, k, row, head: torch.relu(q @ k.mT + row),
        lambda q, k, row, head: (q @ k.mT.contiguous()) * head + row,
        lambda q, k, row, head: torch.baddbmm(row[None], q.flatten(0, 1), k.flatten(0, 1).mT) * 2,
    ],
)
def test_batches_of_products(
    shape: tuple[int, ...], call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    has(monkeypatch)
    batch, heads, m, k, n = shape
    tensors = [(batch, heads, m, k), (batch, heads, n, k), (m, n), (1, heads, 1, n)]
    args = [torch.randn(each).bfloat16() for each in tensors]
    tiled = tw.tile(call)
    tiled.check(*args)
    (part,) = tiled.report.parts
    assert len(part.operations) >= 2 and any("bmm" in n for n in part.operations)
    assert part.kernel.check(part.reference, *make_inputs(part.kernel.program)).ok


def test_batches_of_every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    has(monkeypatch)

    def call(q: Any, k: Any, bias: Any) -> Any:
        return torch.relu(q @ k.mT * 2 + bias)

    tiled = tw.tile(call, dynamic=True)
    for batch, rows in ((2, 66), (3, 97), (5, 130)):
        args = [torch.randn(batch, 4, n, 64).bfloat16() for n in (rows, 80)]
        bias = torch.randn(rows, 1).bfloat16()
        torch.testing.assert_close(tiled(*args, bias), call(*args, bias), rtol=0.1, atol=0.5)
    assert len(tiled.report.parts) == 1


def test_what_products_stay_in_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    has(monkeypatch)

    def reason_of(a: Any, b: Any) -> str:
        tiled = tw.tile(lambda a, b: a @ b)
        torch.testing.assert_close(tiled(a, b), a @ b)
        assert not tiled.kernels
        (reason,) = {reason for _, reason in tiled.report.in_torch if "alone" not in reason}
        return reason

    batch = torch.randn(4, 64, 64)
    assert reason_of(batch, batch) == "a batch of float32 products is as fast in torch"
    few = torch.randn(4, 64).bfloat16()
    assert reason_of(few, few.mT) == "a product with few rows or columns is as fast in torch"
    wide = torch.randn(64, 64).double()
    assert reason_of(wide, wide) == "a product of float64 is torch's own"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_tensor_that_is_read_several_times_is_one_parameter(
    dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    has(monkeypatch)
    calls: list[tuple[Callable[..., Any], tuple[int, ...]]] = [
        (lambda x: torch.relu(x @ x), (64, 64)),
        (lambda x: torch.relu(x @ x + x), (48, 48)),
        (lambda x: torch.tanh(torch.addmm(x, x, x)), (40, 40)),
        (lambda x: torch.relu(torch.bmm(x, x)) * x, (3, 24, 24)),
    ]
    for call, shape in calls:
        torch._dynamo.reset()
        x = torch.randn(shape).to(dtype) / 4
        report, settings = Report(), Settings(least_elements=1)
        backend = functools.partial(tile_backend, report=report, settings=settings)
        made = torch.compile(call, backend=backend, dynamic=False)(x)
        torch.testing.assert_close(made, call(x), rtol=2e-2, atol=2e-2)
        (part,) = report.parts
        assert part.kernel.check(part.reference, *make_inputs(part.kernel.program)).ok
        if len(shape) == 2 or dtype == torch.float16:  # batches of float32 are torch's own
            names = [each.name for each in part.kernel.program.params if not each.output]
            assert names == ["x"], part.source


def test_products_read_what_a_kernel_has_viewed() -> None:
    """The view is one of another kernel's values, which stores what it is of."""

    def call(x: Any, w: Any) -> Any:
        y = torch.sigmoid(x) * 2 + 1
        z = y.view(4, 8, 64)
        return z * 3 - 1, torch.relu(z @ w) * 2 + 1

    tiled = tw.tile(call)
    tiled.check(torch.randn(32, 64), torch.randn(64, 256))
    assert len(tiled.report.parts) == 2 and not tiled.report.in_torch
