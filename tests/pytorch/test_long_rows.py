"""Rows that fast memory has no room for: kernels that read them in pieces, against torch."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils import _pytree as trees

import tileworkbench as tw
from tests.pytorch.test_dynamic import kernels_for
from tileworkbench.pytorch import trials
from tileworkbench.pytorch.tiles import LONGEST_KEPT, piece_of

EVEN, ODD = 20800, 16385  # pieces divide the first; the last piece of the second is shorter
SHAPES = [
    pytest.param((4, EVEN), torch.float32, id="even"),
    pytest.param((2, 2, ODD), torch.float32, id="odd"),
    pytest.param((5, ODD), torch.bfloat16, id="bfloat16"),
]


def of_all_kinds(x: Any, w: Any) -> Any:
    """A number for each row from each reduction, of what is computed before."""
    y = x * 0.5 + w
    numbers = [y.sum(-1), y.mean(-1), y.amax(-1), y.amin(-1), y.logsumexp(-1), (y > 3).any(-1)]
    spreads = [y.var(-1), y.std(-1), (y > -9).all(-1), (1 + y * 1e-4).prod(-1)]
    norms = [torch.linalg.vector_norm(y, order, -1) for order in (1, 2, float("inf"))]
    return *numbers, *spreads, *norms


def own_norm(x: Any, w: Any) -> Any:
    """An RMS normalisation that is written out, of a sum with what was before."""
    y = torch.tanh(x) + x
    return y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-6) * w


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "reductions": of_all_kinds,
    "softmax": lambda x, w: torch.softmax(x * 2 + w, -1),
    "log_softmax": lambda x, w: torch.log_softmax(x * 2, -1) * w,
    "layer_norm": lambda x, w: F.gelu(F.layer_norm(x * 2, w.shape, w, w)),
    "rms_norm": lambda x, w: F.rms_norm(x + w, w.shape, w, 1e-6) * 2,
    "own_norm": own_norm,
}


def in_one_kernel(call: Callable[..., Any], *args: Any) -> Any:
    """The function in kernels; all that it does is in one, which reads rows in pieces."""
    tiled = tw.tile(call, *args, keep_slower=True)
    assert len(tiled.kernels) == 1 and not tiled.report.in_torch, tiled.report
    assert "for k in T.serial(" in tiled.source
    return tiled


@pytest.mark.parametrize(("shape", "dtype"), SHAPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_rows_in_pieces_are_those_of_torch(name: str, shape: tuple[int, ...], dtype: Any) -> None:
    x, w = torch.randn(shape, dtype=dtype), torch.randn(shape[-1], dtype=dtype)
    in_one_kernel(FUNCTIONS[name], x, w).check(x, w)


@pytest.mark.parametrize("columns", [EVEN, ODD])
def test_nothing_behind_the_end_of_a_row_counts(columns: int) -> None:
    def call(x: Any) -> Any:
        y = x * 1.5
        return y.amax(-1), y.amin(-1), y.prod(-1), y.sum(-1), torch.softmax(y, -1)

    x = torch.cat([torch.full((1, columns), -2 / 3), torch.full((1, columns), 2 / 3)])
    largest, smallest, product, total, share = in_one_kernel(call, x)(x)
    assert largest.tolist() == smallest.tolist() == [-1, 1]
    assert product.tolist() == [1 if columns % 2 == 0 else -1, 1]
    assert total.tolist() == [-columns, columns]
    torch.testing.assert_close(share, torch.full_like(x, 1 / columns))


@pytest.mark.parametrize("columns", [EVEN, ODD])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_infinities_and_nan(columns: int, dtype: Any) -> None:
    def call(x: Any) -> Any:
        y = -x
        soft = torch.softmax(y, -1), torch.log_softmax(y, -1), y.logsumexp(-1)
        return *soft, y.amax(-1), y.amin(-1), y.sum(-1)

    x, last = torch.randn(8, columns, dtype=dtype), columns - 1
    x[0, 0], x[1, last], x[2, 5000] = (float("nan"),) * 3
    x[3, 0], x[4, last], x[5, 7] = float("inf"), -float("inf"), float("inf")
    x[5, last] = -float("inf")
    x[6], x[7] = float("inf"), -float("inf")
    for got, want in zip(in_one_kernel(call, x)(x), call(x), strict=True):
        loose = {} if dtype == torch.float32 else {"rtol": 1e-2, "atol": 1e-2}
        torch.testing.assert_close(got, want, equal_nan=True, **loose)


# Channels of one piece, of several, of pieces that are no whole vectors.
@pytest.mark.parametrize("shape", [(2, 64, 32, 32), (1, 32, 56, 56), (2, 64, 26, 26)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_numbers_for_channels(shape: tuple[int, ...], dtype: Any) -> None:
    def call(x: Any, w: Any, b: Any) -> Any:
        return F.silu(F.group_norm(x, 2, w, b))

    x, w, b = (torch.randn(each, dtype=dtype) for each in (shape, shape[1], shape[1]))
    in_one_kernel(call, x, w, b).check(x, w, b)


@pytest.mark.parametrize("columns", [EVEN, ODD])
def test_rows_of_a_table(columns: int) -> None:
    def call(table: Any, places: Any) -> Any:
        return torch.softmax(table[places] * 2, -1)

    args = torch.randn(30, columns), torch.tensor([0, 29, 3, 3, -1])
    in_one_kernel(call, *args).check(*args)


def test_large_numbers_do_not_cancel() -> None:
    """The spread of numbers far from zero: squares of theirs would have no digit left for it."""
    x = torch.randn(2, EVEN) + 1e4

    def call(x: Any) -> Any:
        y = x * 0.5
        return y.var(-1), F.layer_norm(y, y.shape[-1:])

    spread, normal = in_one_kernel(call, x)(x)
    exact = x.double() * 0.5
    torch.testing.assert_close(spread.double(), exact.var(-1), rtol=1e-3, atol=0)
    want = F.layer_norm(exact, x.shape[-1:])
    torch.testing.assert_close(normal.double(), want, rtol=1e-3, atol=2e-3)


def test_gradients_are_in_kernels_too() -> None:
    def call(x: Any, y: Any) -> Any:
        return torch.softmax(x * 2, -1) * 3, torch.log_softmax(y * 2, -1) * 3

    x, y = (torch.randn(2, columns, requires_grad=True) for columns in (EVEN, ODD))
    tiled = tw.tile(call, keep_slower=True)
    assert tiled.check(x, y).gradients == 2
    backward = {each.name: each.kernel for each in tiled.report.operations if each.in_backward}
    assert backward["aten._softmax_backward_data.default"]
    assert backward["aten._log_softmax_backward_data.default"]


@pytest.mark.parametrize("columns", [EVEN, ODD, LONGEST_KEPT + 1])
def test_what_costs_much_is_computed_once(columns: int) -> None:
    def call(x: Any) -> tuple[Any, Any]:
        y = torch.tanh(x) * 2
        return y, torch.softmax(y, -1)

    x = torch.randn(4, columns)
    tiled = in_one_kernel(call, x)
    tiled.check(x)
    # Of tanh's three loops and exp's two, where there is no room for a row.
    tanh, exp = (tiled.source.count(f"T.{name}(") for name in ("tanh", "exp"))
    assert (tanh, exp) == ((1, 1) if columns <= LONGEST_KEPT else (3, 2))
    on_gpu = tw.tile(call, x[:1, :ODD], target="sim:sm_80", keep_slower=True)
    assert on_gpu.source.count("T.tanh(") == 3  # whose fast memory is small


@pytest.mark.parametrize("columns", [EVEN, ODD])
@pytest.mark.parametrize(
    "call",
    [
        lambda x, w: torch.softmax(x * w, -1),
        lambda x, w: F.layer_norm(x, w.shape, w).relu(),
        lambda x, w: (x * w).logsumexp(-1),
    ],
)
def test_one_kernel_for_every_batch(call: Any, columns: int) -> None:
    counts = kernels_for(
        call,
        lambda n, m: (torch.randn(n, m, columns), torch.randn(columns)),
        [(2, 3), (1, 5), (4, 2)],
    )
    assert counts == [1, 1, 1]


def test_a_simulated_gpu_computes_the_same() -> None:
    x = torch.randn(2, ODD)
    tiled = tw.tile(lambda x: torch.softmax(x * 3, -1), x, target="sim:sm_80")
    torch.testing.assert_close(tiled(x), torch.softmax(x * 3, -1))


def test_pieces_divide_a_row_where_they_can() -> None:
    for columns in (32000, 32768, 128256, 129280, 256000):
        assert columns % piece_of(columns) == 0
    assert 0 < -50257 % piece_of(50257) < 1024  # at most half a piece is behind the end


def test_the_text_of_a_kernel() -> None:
    def scaled(logits: Any, temperature: Any) -> Any:
        return torch.log_softmax(logits / temperature, -1)

    logits, temperature = torch.randn(4, EVEN), torch.rand(4, 1) + 1
    tiled = tw.tile(scaled, logits, temperature)
    assert re.sub(r"line \d+", "line 7", tiled.source) == SOURCE
    (kernel,) = tiled.kernels.values()
    torch.testing.assert_close(kernel(logits, temperature[:, 0]), scaled(logits, temperature))


SOURCE = """\
import tileworkbench.language as T


# div, log_softmax
# line 7: return torch.log_softmax(logits / temperature, -1)
# A row of 20800 is too long for fast memory: each loop reads it in pieces of 1600.
@T.prim_func
def div_log_softmax(
    logits: T.Tensor((4, 20800), T.float32),
    temperature: T.Tensor((4,), T.float32),
):
    out = T.empty((4, 20800), T.float32)
    with T.Kernel(4, threads=128) as by:
        div = T.alloc_fragment((1, 1600), T.float32)
        row_max = T.alloc_fragment((1,), T.float32)
        terms = T.alloc_fragment((1, 1600), T.float32)
        row_sum = T.alloc_fragment((1,), T.float32)
        log_sum = T.alloc_fragment((1,), T.float32)
        T.fill(row_max, -T.infinity(T.float32))
        for k in T.serial(T.ceildiv(20800, 1600)):
            for i, j in T.Parallel(1, 1600):
                row = by + i
                column = k * 1600 + j
                div[i, j] = logits[row, column] / temperature[row]
            T.reduce_max(div, row_max, dim=1, clear=False, nan_propagate=True)
        T.fill(row_sum, 0.0)
        for k in T.serial(T.ceildiv(20800, 1600)):
            for i, j in T.Parallel(1, 1600):
                row = by + i
                column = k * 1600 + j
                shifted = logits[row, column] / temperature[row] - row_max[i]
                terms[i, j] = T.exp(shifted)
            T.reduce_sum(terms, row_sum, dim=1, clear=False)
        for i in T.Parallel(1):
            log_sum[i] = T.log(row_sum[i])
        for k in T.serial(T.ceildiv(20800, 1600)):
            for i, j in T.Parallel(1, 1600):
                row = by + i
                column = k * 1600 + j
                shifted = logits[row, column] / temperature[row] - row_max[i]
                out[row, column] = shifted - log_sum[i]
    return out
"""


# --- what stays in torch


def reasons_of(tiled: Any, name: str) -> set[str]:
    return {why for each, why in tiled.report.in_torch if name in each}


def test_torch_runs_what_it_is_faster_at(monkeypatch: pytest.MonkeyPatch) -> None:
    def times(calls: Any, sets: Any) -> list[float]:
        mine, theirs = (trees.tree_leaves(call(*sets[0])) for call in calls)
        torch.testing.assert_close(mine, theirs)
        return [2e-3, 1e-3]

    monkeypatch.setattr(trials, "_times", times)
    x = torch.randn(2, EVEN)
    tiled = tw.tile(lambda x: torch.softmax(x.tanh() * 3, -1), x)
    assert reasons_of(tiled, "_softmax") == {"measured: torch takes 1 ms, a kernel 2 ms"}


def test_parts_of_long_rows_without_even_pieces() -> None:
    x, w = torch.randn(2, 8, 71, 71), torch.randn(8)
    tiled = tw.tile(lambda x, w: F.group_norm(x, 2, w, w) * 2, x, w, keep_slower=True)
    tiled.check(x, w)
    why = "rows of 20164 elements whose parts have no even pieces"
    assert reasons_of(tiled, "norm") == {why}
    in_one_kernel(lambda x: F.group_norm(x, 2) * 2, x).check(x)
