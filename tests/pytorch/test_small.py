"""What runs on few elements: kernels of one row, linear layers of torch, graphs without kernels."""

import functools
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx

from tileworkbench.pytorch.backend import Settings, tile_backend
from tileworkbench.pytorch.linears import join_linears
from tileworkbench.pytorch.report import Report


def compiled(fn: Any, report: Report, settings: Settings | None = None) -> Any:
    backend = functools.partial(tile_backend, report=report, settings=settings)
    return torch.compile(fn, backend=backend)


def norm(x: Any, w: Any) -> Any:
    return w * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


def scaled(x: Any, w: Any) -> Any:
    return w * x + 1


@pytest.mark.parametrize("shape", [(512,), (1, 512), (1, 1, 1000)])
def test_a_norm_of_one_row_is_one_kernel(shape: tuple[int, ...]) -> None:
    report = Report()
    x, w = torch.randn(shape), torch.randn(shape[-1])
    with torch.no_grad():
        found = compiled(norm, report, Settings(least_elements=1))(x, w)
    torch.testing.assert_close(found, norm(x, w), rtol=1e-5, atol=1e-6)
    assert found.stride() == norm(x, w).stride()
    assert report.summary == "6 of 6 operations run in 1 kernel"


def test_few_operations_on_few_elements_stay_in_torch() -> None:
    report = Report()
    x, w = torch.randn(1, 512), torch.randn(512)
    with torch.no_grad():
        assert torch.equal(compiled(scaled, report)(x, w), scaled(x, w))
    assert not report.parts
    assert {why for _, why in report.in_torch} == {"on few elements, it is as fast in torch"}


@pytest.mark.parametrize("trains", [False, True])
def test_a_graph_without_kernels_gives_what_torch_gives(trains: bool) -> None:
    layer, x = torch.nn.Linear(64, 32), torch.randn(1, 64)
    report = Report()
    with torch.set_grad_enabled(trains):
        found = compiled(layer, report)(x)
        assert torch.equal(found, layer(x))
    assert found.requires_grad == trains and not report.parts
    if trains:
        found.sum().backward()
        torch.testing.assert_close(layer.weight.grad, x.expand(32, 64))


@pytest.mark.parametrize("shape", [(64,), (3, 64), (2, 3, 64)])
@pytest.mark.parametrize("with_bias", [False, True])
def test_the_parts_of_a_linear_layer_become_one_operation(shape: Any, with_bias: bool) -> None:
    x, w, b = torch.randn(shape), torch.randn(32, 64), torch.randn(32) if with_bias else None
    module = make_fx(apart, tracing_mode="fake")(x, w, b)
    join_linears(module.graph)
    module.graph.eliminate_dead_code()
    module.recompile()
    calls = [str(node.target) for node in module.graph.nodes if node.op == "call_function"]
    assert calls == ["aten.linear.default"]
    torch.testing.assert_close(module(x, w, b), F.linear(x, w, b))


def apart(x: Any, w: Any, b: Any) -> Any:
    flat = torch.ops.aten.view.default(x, [-1, 64])
    t = torch.ops.aten.t.default(w)
    made = torch.mm(flat, t) if b is None else torch.addmm(b, flat, t)
    return torch.ops.aten.view.default(made, [*x.shape[:-1], 32])


def test_a_product_that_is_no_linear_layer_stays() -> None:
    def products(x: Any, w: Any, added: Any) -> Any:
        flat = torch.ops.aten.view.default(x, [-1, 64])
        cut = torch.ops.aten.view.default(torch.mm(flat, w.t()), [2, 16, 6])  # not a row for a row
        return cut, torch.addmm(added, flat, w.t()), torch.mm(flat, w.view(64, 32))

    args = torch.randn(2, 3, 64), torch.randn(32, 64), torch.randn(6, 32)
    module = make_fx(products, tracing_mode="fake")(*args)
    join_linears(module.graph)
    module.graph.eliminate_dead_code()
    module.recompile()
    targets = [str(node.target) for node in module.graph.nodes]
    assert [targets.count(f"aten.{name}.default") for name in ("linear", "addmm", "mm")] == [1] * 3
    for found, expected in zip(module(*args), products(*args), strict=True):
        torch.testing.assert_close(found, expected)
