"""Experts: products of groups of rows with a matrix each, what sends rows to groups, and what
brings them back, against torch.
"""

import functools
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import tileworkbench as tw
from tileworkbench.bench.products import product_rates
from tileworkbench.compiler.diagnostics import RunError
from tileworkbench.pytorch import grouped_text, trials
from tileworkbench.pytorch.backend import tile_backend
from tileworkbench.pytorch.report import Report

GROUPS = 4


def rows_times(x: torch.Tensor, matrices: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
    """What models run for float32, for which torch has no grouped product when it compiles."""
    out, begin = torch.zeros(x.size(0), matrices.size(2), dtype=x.dtype), 0
    for group, end in enumerate(offs.tolist()):
        if begin < end:
            out[begin:end] = x[begin:end] @ matrices[group]
        begin = end
    return out


NAME = "transformers::grouped_mm_fallback"
torch.library.custom_op(
    NAME, rows_times, mutates_args=(), schema="(Tensor input, Tensor weight, Tensor offs) -> Tensor"
)
torch.library.register_fake(
    NAME, lambda x, w, offs: torch.empty(x.size(0), w.size(2), dtype=x.dtype)
)


def grouped(x: Any, w: Any, offs: Any) -> Any:
    if x.dtype == torch.float32:
        return torch.ops.transformers.grouped_mm_fallback(x, w, offs)
    return torch._grouped_mm(x, w, offs)


def alone(x: Any, w: Any, offs: Any) -> Any:
    return grouped(x, w, offs)


def gated(x: Any, w: Any, offs: Any, index: Any, weights: Any) -> Any:
    first, second = grouped(x[index], w, offs).chunk(2, -1)
    return F.silu(first) * second * weights.unsqueeze(-1)


def added(x: Any, w: Any, offs: Any, index: Any, weights: Any) -> Any:
    return (grouped(x[index], w, offs) * weights[:, None] + 1).to(torch.float32)


def matrices(depth: int, columns: int, dtype: Any, is_flipped: bool) -> torch.Tensor:
    made = (torch.randn(GROUPS, depth, columns) / depth**0.5).to(dtype)
    return made.transpose(1, 2).contiguous().transpose(1, 2) if is_flipped else made


def compiled(fn: Any, report: Report, dynamic: bool = False) -> Any:
    backend = functools.partial(tile_backend, report=report)
    return torch.compile(fn, backend=backend, dynamic=dynamic or None)


def same(call: Any, fn: Any, *args: Any, rows: int) -> None:
    """The first rows are those of torch."""
    with torch.no_grad():
        found, wanted = call(*args)[:rows], fn(*args)[:rows]
    assert found.dtype == wanted.dtype
    is_exact = args[0].dtype == torch.float32
    near = {"rtol": 1e-4, "atol": 1e-5} if is_exact else {"rtol": 2e-2, "atol": 3e-2}
    torch.testing.assert_close(found, wanted, **near)


def check(fn: Any, *args: Any, rows: int) -> Report:
    report = Report()
    same(compiled(fn, report), fn, *args, rows=rows)
    return report


ENDS = {
    "even": lambda n: [n // 4, n // 2, 3 * n // 4, n],
    "some are empty": lambda n: [0, n // 3, n // 3, n],
    "one has all": lambda n: [0, 0, n, n],
    "rows of none": lambda n: [1, 1, n // 2, n - 2],
    "none has any": lambda n: [0, 0, 0, 0],
}


@pytest.mark.covering(2)
@pytest.mark.parametrize("fn", [alone, gated, added])
@pytest.mark.parametrize("rows", [7, 50])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("is_flipped", [False, True])
def test_rows_of_groups(fn: Any, rows: int, dtype: Any, is_flipped: bool) -> None:
    x, w = torch.randn(rows, 48).to(dtype), matrices(48, 80, dtype, is_flipped)
    report = Report()
    call = compiled(fn, report)
    for ends in ENDS.values():
        offs = torch.tensor(ends(rows), dtype=torch.int32)
        rest = () if fn is alone else (torch.randint(-rows, rows, (rows,)), torch.rand(rows))
        # Torch leaves open what is in rows of no group, the other operation has zeros there.
        said = rows if dtype == torch.float32 else int(offs[-1])
        same(call, fn, x, w, offs, *rest, rows=said)
    assert len(report.parts) == 1 and not report.in_torch, str(report)


@pytest.mark.parametrize("columns", [24, 200])
def test_matrices_that_are_deep(columns: int) -> None:
    x, w = torch.randn(40, 1100), matrices(1100, columns, torch.float32, True)
    offs = torch.tensor([0, 30, 31, 40], dtype=torch.int32)
    check(alone, x, w, offs, rows=40)
    report = check(gated, x, w, offs, torch.randperm(40), torch.rand(40), rows=40)
    assert "for k in T.serial(T.ceildiv(1100, 256))" in report.source


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_any_number_of_rows(dtype: Any) -> None:
    report = Report()
    call = compiled(gated, report, dynamic=True)
    w = matrices(64, 96, dtype, True)
    for rows in (33, 57, 5):
        x, index, weights = torch.randn(rows, 64).to(dtype), torch.randperm(rows), torch.rand(rows)
        offs = torch.tensor([2, 3, rows - 1, rows], dtype=torch.int32)
        same(call, gated, x, w, offs, index, weights, rows=rows)
    assert any("grouped" in part.name for part in report.parts)


@pytest.mark.parametrize(
    ("features", "dtype", "rows"),
    [
        (("amx-bf16",), torch.bfloat16, 32),
        (("amx-bf16",), torch.float32, 12),
        (("avx512bf16",), torch.bfloat16, 12),
    ],
)
def test_tiles_have_the_rows_that_a_processor_multiplies_at_once(
    features: tuple[str, ...], dtype: Any, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grouped_text, "product_rates", lambda kind: product_rates(kind, features))
    x, w = torch.randn(90, 64).to(dtype), matrices(64, 96, dtype, True)
    offs = torch.tensor([1, 40, 73, 90], dtype=torch.int32)
    report = check(gated, x, w, offs, torch.randperm(90), torch.rand(90), rows=90)
    assert f"x_tile = T.alloc_shared(({rows}, 64), T." in report.source


@pytest.mark.parametrize("rows", [5, 40])
@pytest.mark.parametrize("wrong", [30, -31])
def test_a_row_that_is_not_there(rows: int, wrong: int) -> None:
    x, w = torch.randn(30, 32), matrices(32, 64, torch.float32, True)
    offs = torch.tensor([0, 2, 3, rows], dtype=torch.int32)
    index, weights = torch.zeros(rows, dtype=torch.int64), torch.rand(rows)
    call = compiled(gated, Report())
    with torch.no_grad():
        call(x, w, offs, index, weights)
        index[4] = wrong
        with pytest.raises((RunError, IndexError, RuntimeError), match="out of range"):
            call(x, w, offs, index, weights)


def test_gradients() -> None:
    x = torch.randn(40, 32, dtype=torch.bfloat16, requires_grad=True)
    w = matrices(32, 64, torch.bfloat16, True).detach().requires_grad_()
    offs = torch.tensor([10, 10, 25, 40], dtype=torch.int32)
    tiled = tw.tile(lambda x, w: torch._grouped_mm(x, w, offs).float().relu() * 2, x, w)
    tiled.check(x, w, rtol=2e-2, atol=3e-2)  # a kernel does not round in the middle
    assert any("grouped" in part.name for part in tiled.report.parts)


def test_a_product_that_sums_over_groups_runs_in_torch() -> None:
    a, b = torch.randn(32, 40).bfloat16(), torch.randn(40, 64).bfloat16()
    offs = torch.tensor([10, 10, 25, 40], dtype=torch.int32)
    tiled = tw.tile(torch._grouped_mm)
    torch.testing.assert_close(tiled(a, b, offs), torch._grouped_mm(a, b, offs))
    why = {"aten._grouped_mm.default": "a grouped product that sums over groups"}
    assert dict(tiled.report.in_torch) == why


def test_a_trial_has_rows_of_all_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def times(calls: Any, sets: Any) -> list[float]:
        seen.extend(each.tolist() for each in sets[0] if each.dtype == torch.int32)
        return [1.0, 0.0]

    monkeypatch.setattr(trials, "_times", times)
    x, w = torch.randn(512, 128), matrices(128, 256, torch.float32, True)
    report = Report()
    call = compiled(alone, report)
    with torch.no_grad():
        call(x, w, torch.tensor([0, 0, 0, 512], dtype=torch.int32))
    assert seen[0] == [128, 256, 384, 512]
    (reason,) = dict(report.in_torch).values()
    assert reason.startswith("measured: torch takes")


# What sends rows to groups


def sent(ids: Any, order: Any, weights: Any, x: Any) -> Any:
    counts = torch.histc(ids.float(), bins=GROUPS, min=0, max=GROUPS - 1)
    offs = torch.cumsum(counts, 0, dtype=torch.int32)
    back = torch.empty_like(order)
    back[order] = torch.arange(order.numel())
    return weights[order], order // 2, offs, back, x.exp() + 1


@pytest.mark.covering(1)
@pytest.mark.parametrize("rows", [1, 2, 7, 300])
@pytest.mark.parametrize("ids", ["all", "one"])
def test_rows_are_sent_by_one_kernel(rows: int, ids: str) -> None:
    of = torch.randint(0, GROUPS, (rows,)) if ids == "all" else torch.full((rows,), 2)
    args = of, torch.randperm(rows), torch.rand(rows), torch.randn(400, 300)
    tiled = tw.tile(sent)
    with torch.no_grad():
        found, wanted = tiled(*args), sent(*args)
    for mine, own in zip(found[:4], wanted[:4], strict=True):
        assert torch.equal(mine, own) and mine.dtype == own.dtype
    if rows > 1:
        assert "histc" in tiled.report.parts[0].operations and len(tiled.report.parts) == 2
        assert not tiled.report.in_torch


def test_counts_leave_out_what_is_no_group() -> None:
    args = (
        torch.tensor([-1, 0, 3, 4, 3, 9]),
        torch.randperm(6),
        torch.rand(6),
        torch.randn(400, 300),
    )
    with torch.no_grad():
        found, wanted = tw.tile(sent)(*args), sent(*args)
    assert torch.equal(found[2], wanted[2])


def put(held: Any, index: Any, values: Any, x: Any) -> Any:
    return held.index_put((index,), values) * 2 + index.sum(), index * 3 // 2, x.exp() + 1


@pytest.mark.parametrize("count", [1, 5])
def test_places_that_are_written_to(count: int) -> None:
    x, index = torch.randn(400, 300), torch.tensor([3, -1, 0, -7, 2])
    args = torch.randn(9), index, torch.randn(count), x
    tiled = tw.tile(put)
    with torch.no_grad():
        for mine, own in zip(tiled(*args), put(*args), strict=True):
            torch.testing.assert_close(mine, own)
        assert "index_put" in tiled.report.parts[0].operations
        index[2] = 9
        with pytest.raises((RunError, IndexError, RuntimeError), match="out of range"):
            tiled(*args)


@pytest.mark.covering(1)
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.int8])
@pytest.mark.parametrize("divisor", [2, 7, -3])
def test_quotients_of_integers_are_rounded_down(dtype: Any, divisor: int) -> None:
    x = torch.randint(-100, 100, (90, 128)).to(dtype)
    tiled = tw.tile(lambda x: x // divisor * 2 + 1)
    assert torch.equal(tiled(x), x // divisor * 2 + 1)
    assert not tiled.report.in_torch


# What brings them back


def brought(y: Any, weights: Any, back: Any, each: int) -> Any:
    rows = (y * weights[:, None])[back]
    return rows.view(-1, each, y.shape[1]).sum(1).to(y.dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("each", [2, 3, 8])
def test_rows_are_brought_back_by_one_kernel(dtype: Any, each: int) -> None:
    rows = 48 * each
    args = torch.randn(rows, 256).to(dtype), torch.rand(rows), torch.randperm(rows) - rows, each
    tiled = tw.tile(brought)
    tiled.check(*args)
    assert len(tiled.report.parts) == 1 and not tiled.report.in_torch
    args[2][5] = rows
    with pytest.raises((RunError, IndexError, RuntimeError), match="out of range"):
        tiled(*args)


def test_a_sum_over_another_dimension_is_written_out() -> None:
    x, y = torch.randn(40, 3, 512), torch.randn(40, 3, 512)
    tiled = tw.tile(lambda x, y: (x * y).sum(1, keepdim=True).tanh())
    tiled.check(x, y)
    assert len(tiled.report.parts) == 1 and not tiled.report.in_torch


# All of it


class Experts(torch.nn.Module):
    """Rows of the two best experts each, as models of text have them."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate = torch.nn.Parameter(torch.randn(GROUPS, width) / width**0.5)
        self.up = torch.nn.Parameter(torch.randn(GROUPS, 2 * inner, width) / width**0.5)
        self.down = torch.nn.Parameter(torch.randn(GROUPS, width, inner) / inner**0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        best, chosen = torch.topk(F.softmax(F.linear(x, self.gate).float(), -1), 2, -1)
        best = best / best.sum(-1, keepdim=True)
        ids, order = torch.sort(chosen.reshape(-1))
        counts = torch.histc(ids.float(), bins=GROUPS, min=0, max=GROUPS - 1)
        offs = torch.cumsum(counts, 0, dtype=torch.int32)
        both = grouped(x[order // 2], self.up.transpose(1, 2), offs)
        first, second = both.chunk(2, -1)
        y = grouped(F.silu(first) * second, self.down.transpose(1, 2), offs)
        y = y * best.reshape(-1)[order].unsqueeze(-1)
        back = torch.empty_like(order)
        back[order] = torch.arange(order.numel())
        return y[back].view(x.shape[0], 2, -1).sum(1).to(x.dtype)


@pytest.mark.covering(1)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 90])
def test_experts(dtype: Any, rows: int) -> None:
    model = Experts(128, 96).to(dtype)
    report = check(model, torch.randn(rows, 128).to(dtype), rows=rows)
    names = [name for name, _ in report.in_torch]
    expected = ["aten.topk.default", "aten.sort.default"]
    assert [name for name in names if name in expected] == expected
    assert sum("grouped" in part.name for part in report.parts) == 2
