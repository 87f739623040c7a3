"""What kernels cannot do is right through torch, with the reason in the report."""

import functools
from typing import Any

import pytest
import torch

import tileworkbench as tw
from tileworkbench.pytorch.backend import Settings, tile_backend
from tileworkbench.pytorch.report import Report

EVERYTHING = Settings(least_work=1, least_elements=1)


def compiled(fn: Any, report: Report) -> Any:
    backend = functools.partial(tile_backend, report=report, settings=EVERYTHING)
    return torch.compile(fn, backend=backend)


def test_random_numbers_and_dropout_are_those_of_torch() -> None:
    def noisy(x: Any) -> Any:
        return torch.nn.functional.dropout(x.exp() * 2, 0.5, training=True) + torch.rand_like(x)

    report, x = Report(), torch.randn(32, 64)
    call = compiled(noisy, report)
    call(x)
    torch.manual_seed(7)
    found = call(x)
    torch.manual_seed(7)
    torch.testing.assert_close(found, noisy(x), rtol=1e-5, atol=1e-5)
    assert report.parts and any("rand" in name or "drop" in name for name, _ in report.in_torch)


def test_inputs_that_are_written_are_written() -> None:
    def write(x: Any) -> Any:
        x.mul_(2).add_(1)
        return x.tanh().sin()

    report, x = Report(), torch.randn(32, 64)
    mine, torchs = x.clone(), x.clone()
    torch.testing.assert_close(compiled(write, report)(mine), write(torchs), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(mine, torchs)
    assert report.parts


def test_a_branch_on_values_takes_the_side_that_torch_takes() -> None:
    def branch(x: Any) -> Any:
        y = x.exp() * 2
        return y.sin() + 1 if y.sum() > 100000 else y.cos() - 1

    call = compiled(branch, Report())
    for x in (torch.zeros(32, 64), torch.full((32, 64), 6.0)):
        torch.testing.assert_close(call(x), branch(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.float64])
def test_a_dtype_without_kernels_is_torchs(dtype: Any) -> None:
    report, x = Report(), torch.randn(32, 64).to(dtype)
    found = compiled(lambda x: (x * 2).exp() + 1, report)(x)
    torch.testing.assert_close(found, (x * 2).exp() + 1)
    assert report.parts or {why for _, why in report.in_torch} == {f"{dtype} is not computed here"}
    assert found.dtype == dtype


def test_sparse_and_quantised_tensors_are_torchs() -> None:
    dense = torch.randn(32, 64)

    def product(a: Any, b: Any) -> Any:
        return torch.sparse.mm(a, b).exp()

    a = dense.relu().to_sparse()
    found = compiled(product, Report())(a, dense.t().contiguous())
    torch.testing.assert_close(found, product(a, dense.t().contiguous()), rtol=1e-4, atol=1e-4)
    q = torch.quantize_per_tensor(dense, 0.1, 0, torch.qint8)
    found = compiled(lambda q: q.dequantize() * 2 + 1, Report())(q)
    torch.testing.assert_close(found, q.dequantize() * 2 + 1)


def lines(call: Any, *args: Any) -> list[str]:
    """What the report of a function says of what runs outside of its graphs; its results agree."""
    torch._dynamo.reset()
    tiled = tw.tile(call)
    torch.testing.assert_close(tiled(*args), call(*args), rtol=1e-4, atol=1e-4)
    return tiled.report.breaks


def test_what_torch_does_not_capture_has_a_line() -> None:
    dense = torch.randn(128, 64)
    sparse = dense.relu().to_sparse()
    quantised = torch.quantize_per_tensor(dense, 0.1, 0, torch.qint8)

    def thick(a: Any) -> Any:
        return (a * 2).to_dense() + 1

    def floats(q: Any) -> Any:
        return torch.tanh(q.dequantize()) * 2

    def same(x: Any) -> Any:
        return x

    none = "all of '{}': torch captures no operation of it"
    assert lines(thick, sparse) == [none.format("thick") + ", which takes a sparse_coo tensor"]
    assert lines(floats, quantised) == [none.format("floats") + ", which takes a quantised tensor"]
    assert lines(same, dense) == [none.format("same")]

    def positive(x: Any) -> Any:
        return x[x > 0] * 2

    def largest(x: Any) -> Any:
        return torch.tanh(x) * x.max().item()

    def printed(x: Any) -> Any:
        y = torch.tanh(x) * 2
        print("between")
        return torch.sin(y) + 1

    for call in (positive, largest, printed):
        (line,) = lines(call, dense)
        assert line.startswith("line ")


def test_a_module_in_training_drops_as_torch_does() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Dropout(0.5))
    tiled, x = tw.tile(net.train()), torch.randn(256, 64)
    tiled.check(x)  # from the same state of the generator
    reason = "a random number is torch's own"
    assert ("aten.native_dropout.default", reason) in tiled.report.in_torch
