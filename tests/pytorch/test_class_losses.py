"""An element of each row, which an index names, and losses of classes: against torch."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import tileworkbench as tw
from tests.pytorch.test_dynamic import kernels_for
from tileworkbench.pytorch import trials

LONG = 16385
REDUCTIONS = ["mean", "sum", "none"]


def log_probability(x: Any, places: Any) -> Any:
    """Of the class of each row."""
    return torch.log_softmax(x * 0.5, -1).gather(-1, places.unsqueeze(-1)).squeeze(-1) * 2


def batch(*shape: int, dtype: Any = torch.float32) -> tuple[Any, Any]:
    """Scores, and a class for each row; that of the first one is the last."""
    places = torch.randint(0, shape[-1], shape[:-1])
    places.view(-1)[0] = shape[-1] - 1
    return torch.randn(shape, dtype=dtype), places


def kernel_of(tiled: Any, operation: str) -> Any:
    """The kernel that does an operation."""
    (part,) = (part for part in tiled.report.parts if operation in part.operations)
    return part


# --- an element of each row


@pytest.mark.covering(1)
@pytest.mark.parametrize("shape", [(64, 300), (3, 40, 100), (4, LONG), (2, 2, LONG)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_element_of_each_row(shape: tuple[int, ...], dtype: Any) -> None:
    args = batch(*shape, dtype=dtype)
    tiled = tw.tile(log_probability, keep_slower=True)
    tiled.check(*args)
    part = kernel_of(tiled, "gather")
    assert part.operations == ("mul", "log_softmax", "gather", "mul")
    assert part.source.count("T.empty") == 1  # the other elements are stored nowhere


@pytest.mark.parametrize("columns", [300, LONG])
@pytest.mark.parametrize("wrong", [-1, 1 << 20])
def test_a_place_that_a_row_does_not_have(columns: int, wrong: int) -> None:
    x, places = batch(64, columns)
    tiled = tw.tile(log_probability, x, places, keep_slower=True)
    places[5] = wrong
    with pytest.raises(tw.TileError) as caught:
        tiled(x, places)
    why = "device assertion failed: an index is out of range"
    assert caught.value.message == f"'mul_log_softmax': {why}"


def test_what_is_picked_of_several_values() -> None:
    def call(x: Any, w: Any, places: Any) -> Any:
        y = F.layer_norm(x, x.shape[-1:], w).relu()
        share = torch.softmax(y, -1)
        return y, y.gather(1, places), share.gather(1, places) + share.amax(-1, keepdim=True)

    x, places = batch(3, LONG)
    args = x, torch.randn(LONG), places[:, None]
    tiled = tw.tile(call, *args, keep_slower=True)
    tiled.check(*args)
    assert len(tiled.report.parts) == 1 and not tiled.report.in_torch, tiled.report


def test_an_element_of_what_varies_along_a_part_of_a_row_stays_in_torch() -> None:
    def call(x: Any, w: Any, places: Any) -> Any:
        y = F.group_norm(x, 4, w, w).view(3, 4, -1)
        return y, y.gather(-1, places)

    x, w, places = torch.randn(3, 16, 20, 20), torch.randn(16), torch.randint(0, 1600, (3, 4, 1))
    tiled = tw.tile(call, x, w, places, keep_slower=True)
    tiled.check(x, w, places)
    assert dict(tiled.report.in_torch)["aten.gather.default"] == "alone, it is as fast in torch"


@pytest.mark.parametrize("columns", [2, LONG])
def test_several_places_of_a_row_stay_in_torch(columns: int) -> None:
    x, places = torch.randn(64, LONG), torch.randint(0, LONG, (64, columns))
    calls = [
        lambda x, places: (x * 2).gather(1, places).tanh(),
        lambda x, places: (x * 2).gather(1, places[:9, :1]).tanh(),  # of some rows
    ]
    for call in calls:
        tiled = tw.tile(call, x, places, keep_slower=True)
        torch.testing.assert_close(tiled(x, places), call(x, places))
        reasons = dict(tiled.report.in_torch)
        assert reasons["aten.gather.default"] == "an index for each element is torch's own"


# --- losses


def loss_of(reduction: str) -> Callable[..., Any]:
    return lambda x, classes: F.cross_entropy(x * 0.5, classes, reduction=reduction)


@pytest.mark.covering(2)
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("shape", [(60, 300), (4, LONG), (4, 20800)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_cross_entropy(reduction: str, shape: Any, dtype: Any) -> None:
    x, classes = batch(*shape, dtype=dtype)
    classes[2] = -100
    call = loss_of(reduction)
    tiled = tw.tile(call, x, classes, keep_slower=True)
    torch.testing.assert_close(tiled(x, classes), call(x, classes))
    part = kernel_of(tiled, "log_softmax")
    assert part.operations == ("mul", "log_softmax", "gather")
    assert part.source.count("T.empty") == 1  # no probability is stored


def test_a_loss_of_no_class() -> None:
    x, _ = batch(64, 300)
    tiled = tw.tile(loss_of("mean"), x, torch.full((64,), -100), keep_slower=True)
    assert tiled(x, torch.full((64,), -100)).isnan()
    assert kernel_of(tiled, "gather")


@pytest.mark.covering(2)
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("shape", [(60, 300), (4, LONG), (4, 20800)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_of_cross_entropy(reduction: str, shape: Any, dtype: Any) -> None:
    x, classes = batch(*shape, dtype=dtype)
    classes[2], call = -100, loss_of(reduction)
    weights = torch.rand(classes.shape if reduction == "none" else (), dtype=dtype)
    tiled = tw.tile(call, keep_slower=True)
    made = []
    for each in (tiled, call):
        own = x.clone().requires_grad_()
        made.append(torch.autograd.grad(each(own, classes), own, weights)[0])
    # One rounding of a bfloat16 logarithm is 3 % of its probability.
    loose = {} if dtype == torch.float32 else {"rtol": 5e-2, "atol": 1e-5}
    torch.testing.assert_close(*made, **loose)
    part = kernel_of(tiled, "log_softmax_backward_data")
    assert part.operations == ("eq", "where", "log_softmax_backward_data", "mul")
    assert f"({shape[0]}, {shape[1]})" in part.source and "arange" not in part.source


@pytest.mark.parametrize("shape", [(60, 300), (4, LONG)])
def test_a_class_that_counts_for_nothing(shape: Any) -> None:
    def call(x: Any, classes: Any) -> Any:
        return F.cross_entropy(x, classes, ignore_index=7)

    x, classes = batch(*shape)
    classes[1:3] = 7
    tiled = tw.tile(call, keep_slower=True)
    torch.testing.assert_close(tiled(x, classes), call(x, classes))
    assert kernel_of(tiled, "gather")
    made = []
    for each in (tiled, call):
        own = x.clone().requires_grad_()
        made.append(torch.autograd.grad(each(own, classes), own)[0])
    torch.testing.assert_close(*made)
    assert not made[0][1:3].any() and kernel_of(tiled, "where")


@pytest.mark.parametrize("gradients", [True, False])
def test_one_kernel_for_every_batch(gradients: bool) -> None:
    counts = kernels_for(
        loss_of("mean"), lambda n: batch(n, LONG), [(4,), (3,), (7,)], gradients=gradients
    )
    assert counts == counts[:1] * 3


def test_one_kernel_for_every_batch_of_picked_elements() -> None:
    counts = kernels_for(
        log_probability,
        lambda n, m: (torch.randn(n, LONG), torch.randint(0, LONG, (m,))),
        [(4, 4), (3, 3), (7, 7), (5, 2)],
    )
    assert counts[:3] == [1, 1, 1] and counts[3] > 1  # with fewer indices, torch picks


def test_losses_that_stay_in_torch() -> None:
    x, classes = batch(64, 300)
    weight = torch.rand(300)
    tiled = tw.tile(lambda x, w: F.cross_entropy(x * 2, classes, w), x, weight, keep_slower=True)
    tiled.check(x, weight)
    reasons = dict(tiled.report.in_torch)
    assert reasons["aten.nll_loss_forward.default"] == "a loss of classes is torch's own"


def test_a_loss_that_torch_is_faster_at_is_one_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    x, classes = batch(4, LONG)
    monkeypatch.setattr(trials, "_times", lambda *_: [2e-3, 1e-3])
    tiled = tw.tile(loss_of("mean"), x, classes)
    torch.testing.assert_close(tiled(x, classes), loss_of("mean")(x, classes))
    assert [name for name, _ in tiled.report.in_torch] == [
        *("aten.mul.Tensor", "aten._log_softmax.default", "aten.nll_loss_forward.default")
    ]
