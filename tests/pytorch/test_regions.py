"""Operations on few elements between two products are one kernel: results, what it writes to."""

import functools
import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import tileworkbench as tw
from tileworkbench.compiler.diagnostics import RunError
from tileworkbench.pytorch import regions
from tileworkbench.pytorch.backend import tile_backend
from tileworkbench.pytorch.indices import Index, position, unravelled, variable
from tileworkbench.pytorch.report import Report


@pytest.fixture(autouse=True)
def _few_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regions, "_LEAST_OPERATIONS", 2)


def compiled(fn: Any, report: Report) -> Any:
    return torch.compile(fn, backend=functools.partial(tile_backend, report=report))


def copies(arguments: Any) -> list[Any]:
    return [each.clone() for each in arguments]


def assert_same(fn: Callable[..., Any], *arguments: Any, torch_runs: int = 0) -> Report:
    """Results, strides and what is left in the arguments are those of torch."""
    report = Report()
    mine, own = copies(arguments), copies(arguments)
    call = compiled(fn, report)
    with torch.no_grad():
        for _ in range(2):
            found, wanted = call(*mine), fn(*own)
            torch.testing.assert_close(found, wanted, rtol=2e-2, atol=1e-2)
            torch.testing.assert_close(mine, own, rtol=2e-2, atol=1e-2)
            if wanted.dtype == torch.float32:
                torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    assert len(report.in_torch) == torch_runs, str(report)
    assert report.parts
    return report


def rotated(x: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    return torch.cat([-x[..., half:], x[..., :half]], -1)


def decode(
    x: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, place: torch.Tensor
) -> torch.Tensor:
    """One step of grouped-query attention with rotary positions and a cache."""
    x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
    query, key, value = (
        part.view(1, 1, -1, 8).transpose(1, 2) for part in x.split([32, 16, 16], -1)
    )
    angle = place.to(torch.float32) * torch.arange(8, dtype=torch.float32) / 10
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    query, key = (each * cos + rotated(each) * sin for each in (query, key))
    keys.index_copy_(2, place, key)
    values.index_copy_(2, place, value)
    k, v = (each.repeat_interleave(2, 1) for each in (keys, values))
    mask = (torch.arange(12) <= place).view(1, 1, 1, 12)
    out = F.scaled_dot_product_attention(query, k, v, attn_mask=mask)
    return out.transpose(1, 2).reshape(1, 1, 32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_step_with_a_cache_is_one_kernel(dtype: torch.dtype) -> None:
    caches = torch.randn(2, 1, 2, 12, 8, dtype=dtype)
    x = torch.randn(1, 1, 64, dtype=dtype)
    report = assert_same(decode, x, *caches, torch.tensor([7]))
    assert len(report.parts) == 1
    assert "attention" in report.parts[0].name


def test_an_index_outside_of_a_cache_is_an_error() -> None:
    caches = torch.randn(2, 1, 2, 12, 8)
    call = compiled(decode, Report())
    with torch.no_grad():
        call(torch.randn(1, 1, 64), *caches, torch.tensor([7]))
        with pytest.raises((RunError, IndexError, RuntimeError), match="out of range"):
            call(torch.randn(1, 1, 64), *caches, torch.tensor([12]))


def exchange(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    old = (a + b) * a.sum(-1, keepdim=True)
    saved = a.clone()
    a.copy_(b + 1)
    b.copy_(saved * 2)
    return old + a * b


def shifted(state: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    together = torch.cat([state, x], -1)
    state.copy_(together[..., 1:])
    return (together * together).sum(-1) + state[..., 0].exp()


def overlapping(state: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    state.copy_(state.t() * 2 + x)
    return state.tanh() - x


@pytest.mark.parametrize("fn", [exchange, overlapping])
def test_what_is_written_to_is_read_before_where_it_was(fn: Any) -> None:
    assert_same(fn, torch.randn(8, 8), torch.randn(8, 8))


def test_a_state_that_shifts() -> None:
    assert_same(shifted, torch.randn(3, 4), torch.randn(3, 1))


def filtered(x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    made = F.silu(F.conv1d(x, w, bias, groups=6))
    return made[..., -1].view(2, 3) + F.softplus(bias).view(2, 3)


def with_a_table(table: torch.Tensor, at: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    x = F.embedding(at, table)
    return F.layer_norm(x, (16,), w) + F.softmax(x, -1) * table[at + 1].abs()


def products(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    state = torch.exp(a) * 0.5
    return torch.bmm(state, b).squeeze(-1).cumsum(-1) + torch.mm(c, a[0]).amax(-1, keepdim=True)


def masks(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    seen = torch.arange(10)[None, :] <= at
    return torch.where(seen, x.expand(10, 10).transpose(0, 1), 0.0).sum(0) + x.to(torch.int64)


def with_an_empty_part(x: torch.Tensor) -> torch.Tensor:
    turned = torch.cat([rotated(x[..., :16]) * 2, x[..., 16:]], -1)  # all of a head is turned
    return F.softmax(turned, -1) + torch.cat([x[..., :0], x], -1)


CASES: list[tuple[Any, tuple[torch.Tensor, ...]]] = [
    (filtered, (torch.randn(1, 6, 5), torch.randn(6, 1, 4), torch.randn(6))),
    (with_a_table, (torch.randn(9, 16), torch.tensor([[3, 0, 7]]), torch.randn(16))),
    (products, (torch.randn(4, 8, 8), torch.randn(4, 8, 1), torch.randn(1, 8))),
    (masks, (torch.randn(10), torch.tensor([[4]]))),
    (with_an_empty_part, (torch.randn(2, 3, 16),)),
]


@pytest.mark.parametrize(("fn", "arguments"), CASES, ids=[fn.__name__ for fn, _ in CASES])
def test_each_kind_of_operation(fn: Any, arguments: Any) -> None:
    assert_same(fn, *arguments)


def test_attention_written_out_beside_regions() -> None:
    """A region has operations of the attention already: they are not in two kernels."""
    mask = torch.ones(24, 24, dtype=torch.bool).triu(1)

    def layers(x: torch.Tensor, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        for w in (first, second):
            parts = F.layer_norm(x, (64,)).matmul(w).split(64, -1)
            q, k, v = (each.reshape(2, 24, 4, 16).transpose(1, 2) for each in parts)
            scores = torch.matmul(q, k.mT) * 0.25 + x[:, None, :1, :24]
            weights = F.softmax(scores.masked_fill(mask, torch.finfo(x.dtype).min), -1)
            x = x + torch.matmul(weights, v).permute(0, 2, 1, 3).reshape(2, 24, 64)
        return x

    report = Report()
    arguments = torch.randn(2, 24, 64), torch.randn(64, 192) / 8, torch.randn(64, 192) / 8
    with torch.no_grad():
        found, wanted = compiled(layers, report)(*arguments), layers(*arguments)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    assert len(report.parts) > 1, str(report)


def test_a_large_product_stays_between_two_kernels() -> None:
    w = torch.randn(128, 128) / 11

    def block(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = F.linear(torch.tanh(x) * 2 + 1, w)
        return y * torch.sigmoid(y) + x

    report = assert_same(block, torch.randn(1, 128), w)
    assert [part.operations for part in report.parts][1] == ("mv",)
    assert len(report.parts) == 3


def layers(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
    kept = []
    for _ in range(3):
        y = F.layer_norm(x, x.shape[-1:])
        x = x + F.linear(torch.tanh(F.linear(y, a)) * 2, b)
        kept.append(y)
    return x, kept[1], x[:, 8:16]


def test_kernels_that_follow_each_other_are_one_call() -> None:
    from tileworkbench.pytorch import sequences

    made: list[sequences.SequenceCall] = []
    create = sequences.SequenceCall.__init__

    def note(call: Any, *arguments: Any) -> None:
        create(call, *arguments)
        made.append(call)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sequences.SequenceCall, "__init__", note)
        arguments = torch.randn(1, 128), torch.randn(256, 128) / 16, torch.randn(128, 256) / 16
        call = compiled(layers, Report())
        with torch.no_grad():
            first = call(*arguments)
            again = [each.clone() for each in first]
            second = call(arguments[0] * 2, *arguments[1:])  # its memory is not that of `first`
            torch.testing.assert_close(list(first), again)
            torch.testing.assert_close(first, layers(*arguments), rtol=1e-4, atol=1e-5)
            wanted = layers(arguments[0] * 2, *arguments[1:])
            torch.testing.assert_close(second, wanted, rtol=1e-4, atol=1e-5)
    assert [len(each.calls) for each in made] == [12]
    assert len(made[0].results) == 2 and made[0].arena_bytes < 8192


def test_gradients_have_no_regions() -> None:
    x = torch.randn(4, 8, requires_grad=True)

    def fn(x: torch.Tensor) -> torch.Tensor:
        return (torch.cat([x, -x], -1).tanh() * 2).sum()

    (found,) = torch.autograd.grad(compiled(fn, Report())(x), x)
    torch.testing.assert_close(found, torch.autograd.grad(fn(x), x)[0])


def test_division_of_indices() -> None:
    choose = random.Random(0)
    for _ in range(300):
        extents = {name: choose.choice([1, 2, 3, 4, 8]) for name in "ijk"}
        index = Index((), choose.choice([0, 5, 32]))
        for name, extent in extents.items():
            index = index + variable(name, extent) * choose.choice([0, 1, 2, 4, 64, 96])
        divisor = choose.choice([1, 2, 3, 8, 64, 128])
        texts = [each.text for each in (index, index // divisor, index % divisor)]
        for values in itertools.product(*map(range, extents.values())):
            whole, quotient, rest = (
                eval(t, dict(zip(extents, values, strict=True))) for t in texts
            )
            assert (quotient, rest) == divmod(whole, divisor) and whole <= index.most


def test_heads_of_a_group_are_found_without_remainders() -> None:
    h, j, d = variable("h", 8), variable("j", 160), variable("d", 64)
    place = position([h, j, d], [10240, 64, 1])
    found = unravelled(place, (2, 4, 160, 64), (40960, 10240, 64, 1))
    assert [each.text for each in found] == ["h // 4", "h % 4", "j", "d"]


def test_copies_of_open_size_stay_in_torch() -> None:
    tiled = tw.tile(lambda x: x.t().contiguous(), dynamic=True)
    for rows in (70, 80):
        x = torch.randn(rows, 16)
        assert torch.equal(tiled(x), x.t())
    assert not tiled.report.parts
