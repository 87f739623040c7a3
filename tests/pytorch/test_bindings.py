"""Operations that torch runs in a graph, called as Python code calls them: the same results."""

from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from tileworkbench.pytorch import bindings
from tileworkbench.pytorch.bindings import call_directly

aten = torch.ops.aten
X, Y = torch.arange(24.0).view(4, 6), torch.arange(30.0).view(6, 5) / 7
IMAGES, FILTERS, BIAS = torch.randn(2, 4, 9, 9), torch.randn(6, 2, 3, 3), torch.randn(6)
CONTIGUOUS = {"memory_format": torch.contiguous_format}
EXAMPLES: dict[str, tuple[Any, ...]] = {
    "addmm.default": (torch.ones(5), X, Y),
    "as_strided.default": (X, [3, 2], [2, 5], 4),
    "bmm.default": (X.view(2, 2, 6), torch.stack([Y, 2 * Y])),
    "clone.default": (X.t(), CONTIGUOUS),
    "convolution.default": (IMAGES, FILTERS, BIAS, [2, 2], [1, 1], [1, 1], False, [0, 0], 2),
    "expand.default": (X[:, :1], [4, 3]),
    "linear.default": (X, Y.t().contiguous(), torch.ones(5)),
    "mm.default": (X, Y),
    "permute.default": (X.view(2, 3, 4), [2, 0, 1]),
    "select.int": (X, 1, -2),
    "sort.default": (X.sin(), 0, True),
    "t.default": (X,),
    "topk.default": (X.cos(), 2, 0, False),
    "transpose.int": (X.view(2, 3, 4), 0, 2),
    "unsqueeze.default": (X, -2),
    "view.default": (X, [2, -1]),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_operation_and_its_function_give_the_same(name: str) -> None:
    *args, last = EXAMPLES[name]
    options = last if isinstance(last, dict) else {}
    args += [] if options else [last]
    target = aten
    for part in name.split("."):
        target = getattr(target, part)
    graph = torch.fx.Graph()
    tensors = [each for each in args if torch.is_tensor(each)]
    inputs = iter([graph.placeholder(f"x{at}") for at in range(len(tensors))])
    taken = tuple(next(inputs) if torch.is_tensor(each) else each for each in args)
    graph.output(graph.call_function(target, taken, options))
    call_directly(graph)
    module = torch.fx.GraphModule(torch.nn.Module(), graph)
    assert "ops.aten" not in module.code
    for found, expected in zip(
        parts(module(*tensors)), parts(target(*args, **options)), strict=True
    ):
        assert torch.equal(found, expected) and found.stride() == expected.stride()


def test_each_function_has_an_example() -> None:
    names = {*bindings._FUNCTIONS, *bindings._METHODS, "linear.default"}
    assert names == set(EXAMPLES)


def parts(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def test_numbers_that_are_no_constants_stay() -> None:
    def viewed(x: torch.Tensor) -> torch.Tensor:
        return aten.mm.default(aten.view.default(x, [x.size(0) * 2, 3]), torch.ones(3, 3))

    module = make_fx(viewed, tracing_mode="symbolic")(X)
    call_directly(module.graph)
    module.recompile()
    other = torch.randn(7, 6)
    torch.testing.assert_close(module(other), viewed(other))
