"""Copies into another order and what is read down columns: values, strides, text, who runs them."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

import tileworkbench as tw
from tileworkbench.pytorch import aten, trials
from tileworkbench.pytorch.in_torch import OTHER_ORDER
from tileworkbench.workbench.inputs import make_inputs


def copied(x: Any) -> Any:
    return x.transpose(-1, -2).contiguous()


def scaled(x: Any, y: Any) -> Any:
    """Work on both sides of a copy, and operands in both orders."""
    return (x * 2 + 1).transpose(-1, -2).contiguous() + y


def added(x: Any, y: Any) -> Any:
    """A contiguous result of what lies in another order."""
    return y * 2 + x.transpose(-1, -2)


def kept(x: Any, y: Any) -> Any:
    """A result in the order of its first operand."""
    return x.transpose(-1, -2) * 2 + y


def broadcast(x: Any, rows: Any, columns: Any) -> Any:
    """A number for each row, one for each column, and one for all."""
    return (x.transpose(-1, -2) * rows[:, None] + columns).contiguous() - rows[5]


def joined(x: Any, y: Any) -> Any:
    """Parts of one tensor, in two tiles."""
    half = x.shape[-1] // 2
    turned = x.transpose(-1, -2)
    return turned[..., :half, :].contiguous() * turned[..., half : 2 * half, :]


def channels_last(x: Any, s: Any) -> Any:
    return torch.relu(x.permute(0, 2, 3, 1).contiguous() * s)


def channels_first(x: Any, s: Any) -> Any:
    return (x * s).permute(0, 3, 1, 2).contiguous()


def outermost(x: Any) -> Any:
    """The dimension between those that trade places stays."""
    return x.permute(2, 1, 0).contiguous()


def regrouped(x: Any, y: Any) -> Any:
    """Views on both sides cut and join dimensions."""
    parts = (x + 1).view(4, 5, 64, 30).permute(0, 2, 1, 3).reshape(256, 150).t()
    return parts.contiguous().view(5, 30, 256) * y


SQUARE, ODD, BATCH = (128, 64), (101, 77), (3, 70, 100)
FLOAT = torch.float32


def data(*shapes: Sequence[int], dtype: Any = FLOAT) -> tuple[Any, ...]:
    return tuple((torch.randn(shape) * 9).to(dtype) for shape in shapes)


def pair(shape: Sequence[int], dtype: Any = FLOAT) -> tuple[Any, ...]:
    return data(shape, (*shape[:-2], shape[-1], shape[-2]), dtype=dtype)


DTYPES = (torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.uint8)
CASES: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    *((call, pair(shape)) for call in (scaled, added, kept) for shape in (SQUARE, ODD, BATCH)),
    *((broadcast, data(shape, (shape[-1],), (shape[-2],))) for shape in (ODD, BATCH)),
    *((joined, pair(shape)) for shape in (SQUARE, BATCH)),
    *((scaled, pair(ODD, dtype)) for dtype in DTYPES),
    *((copied, data(shape)) for shape in (SQUARE, (96, 101), BATCH, (2, 3, 40, 50))),
    (channels_last, data((2, 24, 15, 20), (24,))),
    (channels_first, data((2, 15, 20, 24), (24,))),
    (outermost, data((65, 6, 70))),
    (regrouped, data((20, 64, 30), (5, 30, 256))),
]


def operations(tiled: Any) -> list[tuple[str, ...]]:
    return [part.operations for part in tiled.report.parts]


@pytest.mark.parametrize(("call", "args"), CASES, ids=lambda each: getattr(each, "__name__", None))
def test_values_and_strides(call: Callable[..., Any], args: tuple[Any, ...]) -> None:
    tiled = tw.tile(call)
    tiled.check(*args)
    (part,) = tiled.report.parts
    assert not tiled.report.in_torch, str(tiled.report)
    assert "_tile[j, i]" in tiled.source
    assert part.kernel.check(part.reference, *make_inputs(part.kernel.program)).ok
    made, wanted = tiled(*args), call(*args)
    assert (made.dtype, made.stride()) == (wanted.dtype, wanted.stride())


def test_the_text_copies_a_tile_and_reads_it_down_its_columns() -> None:
    lines = tw.tile(scaled, *pair((3, 70, 100))).source.splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith("def "))
    assert [line.removeprefix("    ") for line in lines[start - 2 :]] == [
        "# A block has 64 x 64 elements; tiles turn what lies in another order.",
        "@T.prim_func",
        "def mul_add(",
        "x: T.Tensor((3, 70, 100), T.float32),",
        "y: T.Tensor((3, 100, 70), T.float32),",
        "):",
        "out = T.empty((3, 100, 70), T.float32)",
        "with T.Kernel(T.ceildiv(70, 64), T.ceildiv(100, 64), 3, threads=128) as (bx, by, bz):",
        "    x_tile = T.alloc_shared((64, 64), T.float32)",
        "    T.copy(x[bz, bx * 64, by * 64], x_tile)",
        "    for i, j in T.Parallel(64, 64):",
        "        add_1 = x_tile[j, i] * 2.0 + 1.0 + y[bz, by * 64 + i, bx * 64 + j]",
        "        out[bz, by * 64 + i, bx * 64 + j] = add_1",
        "return out",
    ]


def test_dimensions_that_stay_are_blocks() -> None:
    source = tw.tile(outermost, *data((65, 6, 70))).source
    assert "T.copy(x[bx * 64 : bx * 64 + 64, bz, by * 64 : by * 64 + 64], x_tile)" in source
    assert "out[by * 64 + i, bz, bx * 64 + j] = x_tile[j, i]" in source
    source = tw.tile(channels_last, *data((2, 24, 15, 20), (24,))).source
    assert "x: T.Tensor((2, 24, 300), T.float32)" in source
    assert "x_tile = T.alloc_shared((32, 64), T.float32)" in source  # whole vectors of channels


def test_a_place_has_one_tile() -> None:
    source = tw.tile(lambda x: (x.t() * 2 + x.t().exp()).contiguous(), *data((128, 96))).source
    assert source.count("T.alloc_shared") == 1 and source.count("x_tile[j, i]") == 2
    source = tw.tile(joined, *pair((128, 96))).source
    assert "T.copy(x[bx * 64, by * 48 + 48], x_tile_2)" in source
    assert "- rows[5]" in tw.tile(broadcast, *data(ODD, (77,), (101,))).source


def test_other_groups_of_elements_are_parts_or_stay_whole() -> None:
    def several(x: Any, y: Any) -> Any:
        """Two results that are read of what follows a copy."""
        total = (x * 2 + 1).t().contiguous() + y
        return total.exp() * 3, total.sigmoid() * 3

    tiled = tw.tile(several, *pair((128, 96)))
    tiled.check(*pair((128, 96)))
    assert sorted(operations(tiled)) == [
        ("add", "exp", "mul", "sigmoid", "mul"),
        ("mul", "add", "clone"),
    ]
    assert not tiled.report.in_torch


@pytest.mark.parametrize(
    "before",
    [
        lambda x: (torch.softmax(x, -1) * 2,),
        lambda x: (x[torch.arange(128) % 100] * 2,),
        lambda x: (torch.relu(x.view(128, 96, 2).sum(-1)),),
        lambda x: ((y := x.exp()) * 2, y * 3),
    ],
)
def test_copies_of_what_other_kernels_make_are_kernels(before: Callable[..., Any]) -> None:
    def call(x: Any) -> Any:
        made, *others = before(x)
        return made.t().contiguous(), *others

    tiled = tw.tile(call)
    tiled.check(*data((128, 192)))
    assert ("clone",) in operations(tiled) and not tiled.report.in_torch, str(tiled.report)


def test_what_no_tile_turns_stays_in_torch_with_a_reason() -> None:
    x = torch.randn(4, 70, 256)

    def reason(call: Callable[..., Any], *args: Any) -> str:
        tiled = tw.tile(call, *args, dynamic=False)
        torch.testing.assert_close(tiled(*args), call(*args))
        return dict(tiled.report.in_torch)[aten.CLONE]

    def two_orders(x: Any, y: Any) -> Any:
        """What lies together in one operand is apart in the other, and in the result."""
        return (x.permute(2, 1, 0) * y.transpose(1, 2)).contiguous()

    def two_shapes(x: Any) -> Any:
        """A row for all rows, which has no dimension of rows."""
        return (x.transpose(1, 2) + x.view(-1)[:70]).contiguous()

    assert reason(copied, x[:, :, :128]) == "a tensor that is not dense"
    assert reason(copied, x[0, :, :16].contiguous()) == "on few elements, it is as fast in torch"
    assert reason(copied, torch.randn(3, 4000)) == "few elements that lie together"
    assert reason(lambda x: x.permute(1, 0, 2).contiguous(), x) == OTHER_ORDER
    assert reason(two_orders, *data((30, 40, 50), (50, 30, 40))) == OTHER_ORDER

    def shifted(x: Any, begin: int = 7) -> Any:
        """Rows that begin in the middle of those of the tensor, or do not fill it."""
        return x.view(-1)[begin : begin + 60 * 140].view(60, 140).t().contiguous()

    def picked(x: Any, rows: Any) -> Any:
        return x[rows].t().contiguous()

    why = "rows that an index picks, in another order"
    assert reason(picked, x[0], torch.arange(60)) == why
    assert reason(shifted, torch.randn(61, 140)) == "a view that joins dimensions"
    assert reason(shifted, torch.randn(8500), 0) == "a view that joins dimensions"
    assert reason(two_shapes, x) == "a tensor that is read in two shapes"
    assert reason(lambda x: x[..., ::2].transpose(1, 2).contiguous(), x) == OTHER_ORDER


def test_open_sizes_stay_in_torch_with_a_reason() -> None:
    tiled = tw.tile(scaled, dynamic=True)
    for shape in ((100, 120), (90, 130)):
        args = pair(shape)
        torch.testing.assert_close(tiled(*args), scaled(*args))
    why = dict(tiled.report.in_torch)[aten.CLONE]
    assert why == "a tensor of open size, or without elements"


def test_sizes_that_change_are_turned_while_they_are_known() -> None:
    tiled = tw.tile(scaled)
    args = pair((100, 120))
    torch.testing.assert_close(tiled(*args), scaled(*args))
    assert operations(tiled) == [("mul", "add", "clone", "add")]
    args = pair((90, 130))
    torch.testing.assert_close(tiled(*args), scaled(*args))


def test_gradients_are_turned_too() -> None:
    x, y = (each.requires_grad_() for each in pair((128, 96)))
    tiled = tw.tile(scaled)
    tiled(x, y).square().sum().backward()
    made = x.grad.clone()
    x.grad = None
    scaled(x, y).square().sum().backward()
    torch.testing.assert_close(made, x.grad)


def test_torch_has_what_it_is_faster_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "_times", lambda calls, sets: [1.0, 0.5])
    tiled = tw.tile(copied, *data((128, 96)))
    ((name, why),) = tiled.report.in_torch
    assert (name, why) == (aten.CLONE, "measured: torch takes 5e+02 ms, a kernel 1e+03 ms")
    ran: list[int] = []

    def turned_loses(calls: Any, sets: Any) -> list[float]:
        ran.append(1)
        return [1.0, 0.5] if len(ran) == 1 else [0.0, 1.0]

    monkeypatch.setattr(trials, "_times", turned_loses)
    tiled = tw.tile(scaled, *pair((128, 96)))
    assert operations(tiled) == [("mul", "add")]
    assert {name for name, _ in tiled.report.in_torch} == {aten.CLONE, "aten.add.Tensor"}


def test_torch_has_reads_that_it_is_faster_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "_times", lambda calls, sets: [1.0, 0.5])
    tiled = tw.tile(added, *pair((128, 96)))
    assert dict(tiled.report.in_torch) == dict.fromkeys(
        ("aten.mul.Tensor", "aten.add.Tensor"),
        "measured: torch takes 5e+02 ms, a kernel 1e+03 ms",
    )
