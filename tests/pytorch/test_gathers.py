"""Rows that an index picks, and running sums, in kernels: against torch, what stays in torch."""

import random
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import tileworkbench as tw


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_embedding_with_what_follows_it(dtype: Any) -> None:
    def embed(tokens: Any, table: Any, places: Any) -> Any:
        return F.layer_norm(F.embedding(tokens, table) * 8 + places, (64,))

    table = torch.randn(100, 64).to(dtype).requires_grad_()
    args = torch.randint(0, 100, (4, 50)), table, torch.randn(50, 64).to(dtype)
    tiled = tw.tile(embed, *args)
    tiled.check(*args)
    assert tiled.report.parts[0].operations == ("embedding", "mul", "add", "native_layer_norm")
    element = "table[index[i], j]"
    element = element if dtype.itemsize == 4 else f"T.cast({element}, T.float32)"
    assert f"{element} * 8.0" in tiled.source
    each = "an index for each element is torch's own"
    assert dict(tiled.report.in_torch)["aten.embedding_dense_backward.default"] == each


@pytest.mark.parametrize("width", [(64,), (3, 20)])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_rows_from_the_end(width: Any, dtype: Any) -> None:
    table, places = torch.randn(30, *width), torch.randint(-30, 30, (5, 7, 11)).to(dtype)
    tiled = tw.tile(lambda table, places: table[places].tanh() * 2)
    tiled(table, places)
    tiled.check(table, places)
    (part,) = tiled.report.parts
    assert part.operations == ("index", "tanh", "mul")


def test_indices_of_a_broadcast_and_of_a_part() -> None:
    def call(table: Any, places: Any) -> Any:
        picked = F.embedding(places.expand(4, 40), table).relu()
        return picked + 1, torch.index_select(table, 0, places[0, 5:]) * 2 + 1

    table, places = torch.randn(50, 300), torch.randint(0, 50, (1, 40))
    tiled = tw.tile(call, table, places)
    tiled.check(table, places)
    assert [part.operations[0] for part in tiled.report.parts] == ["embedding", "index_select"]


@pytest.mark.parametrize("wrong", [30, -31])
def test_an_index_out_of_range(wrong: int) -> None:
    tiled = tw.tile(lambda table, places: table[places].tanh() * 2)
    places = torch.zeros(100, dtype=torch.int64)
    tiled(torch.ones(30, 128), places)
    places[77] = wrong
    with pytest.raises(tw.TileError) as caught:
        tiled(torch.ones(30, 128), places)
    assert (
        caught.value.message
        == "'index_tanh_mul': device assertion failed: an index is out of range"
    )


def test_gathers_that_stay_in_torch() -> None:
    def call(x: Any, places: Any) -> Any:
        y = x.tanh() + 1
        return x[:, places], x[x > 9], y[places] + 1, y.gather(1, places.expand(200, 100))

    x, places = torch.randn(200, 200), torch.randint(0, 100, (100,))
    tiled = tw.tile(call, x, places)
    for found, expected in zip(tiled(x, places), call(x, places), strict=True):
        torch.testing.assert_close(found, expected)
    reasons = tiled.report.in_torch
    assert ("aten.index.Tensor", "indices of another dimension than the first") in reasons
    assert ("aten.gather.default", "an index for each element is torch's own") in reasons


SLOW_BFLOAT16 = pytest.param(torch.bfloat16, marks=pytest.mark.slow)


@pytest.mark.parametrize("dtype", [torch.float32, SLOW_BFLOAT16])
def test_running_sums(dtype: Any) -> None:
    def call(x: Any) -> Any:
        weights = torch.softmax(x, -1)
        return weights.cumsum(-1) * 2 + x, (x / 20).cumsum(-1).exp()

    x = torch.randn(5, 60, 96).to(dtype).requires_grad_()
    tiled = tw.tile(call, x)
    tiled.check(x)
    assert "T.cumsum(" in tiled.source
    x = torch.randn(5, 60, 96)
    x[0, 1, 7], x[0, 2, 5], x[0, 3, 9] = float("nan"), float("inf"), -float("inf")
    tiled.check(x.to(dtype))


def test_running_sums_that_stay_in_torch() -> None:
    def call(x: Any) -> Any:
        return x.int().cumsum(0) + 1, x.int().cumsum(-1) + 1, x.cumsum(-1, dtype=torch.float64) + 1

    x = torch.randn(128, 96)
    tiled = tw.tile(call, x)
    tiled.check(x)
    reasons = [reason for name, reason in tiled.report.in_torch if "cumsum" in name]
    assert reasons == [
        "not along the last dimensions",
        "a row operation on integers",
        "a running sum in another dtype",
    ]
    wide = tw.tile(lambda x: (x * 2).cumsum(-1) + 1, torch.randn(32, 1024))
    assert dict(wide.report.in_torch)["aten.cumsum.default"] == (
        "a running sum of 1024 elements is as fast in torch"
    )


def some_slow(count: int, fast: int) -> list[Any]:
    slow = [pytest.param(seed, marks=pytest.mark.slow) for seed in range(fast, count)]
    return [*range(fast), *slow]


@pytest.mark.parametrize("seed", some_slow(20, fast=1))
def test_random_graphs_with_gathers_and_running_sums(seed: int) -> None:
    choose = random.Random(seed)
    steps = [(choose.randrange(6), choose.random()) for _ in range(8)]
    width, rows = choose.choice((33, 64, 96)), choose.choice((5, 40))

    def call(table: Any, places: Any, row: Any) -> Any:
        values = [F.embedding(places, table), table[places - rows] + row]
        for kind, which in steps:
            a = values[int(which * len(values))]
            made = (
                lambda a=a: a.tanh() + values[-1],
                lambda a=a: a.sigmoid().cumsum(-1) / width,
                lambda a=a: torch.softmax(a, -1),
                lambda a=a: a - a.mean(-1, keepdim=True),
                lambda a=a: a * row + table[places],
                lambda a=a: F.embedding(places, table * 2) - a,
            )[kind]
            values.append(made())
        return values[-1], values[-2]

    args = torch.randn(rows, width), torch.randint(0, rows, (7, 50)), torch.randn(width)
    tiled = tw.tile(call, *args)
    tiled.check(*args)
    assert any("T.device_assert" in part.source for part in tiled.report.parts)
