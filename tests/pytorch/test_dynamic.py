"""Sizes that torch keeps open: one kernel for all of them, against torch."""

import functools
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import tileworkbench as tw
from tileworkbench.pytorch.backend import Settings, tile_backend
from tileworkbench.pytorch.body import Names
from tileworkbench.pytorch.report import Report
from tileworkbench.pytorch.sizes import Formula, OpenSizeError, _primes, formula, spelled
from tileworkbench.workbench.checking import tolerance_of

EVERYTHING = Settings(least_work=1, least_elements=1)


def results_of(call: Callable[..., Any], args: Sequence[Any], gradients: bool) -> list[Any]:
    """Results, and the gradients of the sum of their squares."""
    floats = [each.detach().requires_grad_() for each in args if each.is_floating_point()]
    given = iter(floats)
    args = [next(given) if each.is_floating_point() else each for each in args]
    if not gradients:
        with torch.no_grad():
            made = call(*args)
        return list(made) if isinstance(made, tuple) else [made]
    made = call(*args)
    made = list(made) if isinstance(made, tuple) else [made]
    total = sum(each.square().sum() for each in made)
    grads = torch.autograd.grad(total, floats, allow_unused=True)
    return [*made, *(each for each in grads if each is not None)]


def kernels_for(
    fn: Callable[..., Any],
    make: Callable[..., Sequence[Any]],
    sizes: Sequence[tuple[int, ...]],
    gradients: bool = False,
) -> list[int]:
    """Compare with torch for each of `sizes`; how many kernels there were after each."""
    report, counts = Report(), []
    backend = functools.partial(tile_backend, report=report, settings=EVERYTHING)
    compiled = torch.compile(fn, backend=backend, fullgraph=True, dynamic=True)
    relative = tolerance_of("float32", tf32=False).relative
    for each in sizes:
        args = make(*each)
        pairs = zip(
            results_of(compiled, args, gradients), results_of(fn, args, gradients), strict=True
        )
        for found, expected in pairs:
            torch.testing.assert_close(found, expected, rtol=relative, atol=1e-3)
            assert found.stride() == expected.stride()
        counts.append(len(report.parts))
    assert counts[0] > 0, report
    return counts


R = torch.randn


@pytest.mark.parametrize(
    ("fn", "make"),
    [
        (lambda x, y: F.silu(x) * y, lambda n, m: (R(n, m), R(n, m))),
        (lambda x, w: F.layer_norm(x, (96,), w, w).relu(), lambda n, m: (R(n, m, 96), R(96))),
        (
            lambda x, w: F.silu(F.group_norm(x, 4, w, w)),
            lambda n, m: (R(n + m, 16, 8, 8), R(16)),
        ),
        (lambda x, b: torch.softmax(x * b, -1), lambda n, m: (R(n, m, 80), R(80))),
        (
            lambda x, w, b: F.gelu(F.linear(x, w, b)) + 1,
            lambda n, m: (R(n, m, 56), R(88, 56), R(88)),
        ),
        (
            lambda places, table: F.embedding(places, table).tanh() * 2,
            lambda n, m: (torch.randint(0, 41, (n, m)), R(41, 72)),
        ),
        (lambda x: x.reshape(-1, 64).cumsum(-1) * 2, lambda n, m: (R(n, m, 64),)),
        (lambda x, y: torch.cat([x, y]).tanh() * 2, lambda n, m: (R(n, 72), R(m, 72))),
    ],
)
def test_one_kernel_for_every_batch_and_length(fn: Any, make: Any) -> None:
    counts = kernels_for(fn, make, [(5, 33), (7, 2), (2, 150), (64, 3)])
    assert counts == counts[:1] * 4


@pytest.mark.parametrize("mask", [pytest.param(False, marks=pytest.mark.slow), True])
def test_attention_of_every_length(mask: bool) -> None:
    def attend(q: Any, k: Any, mask: Any = None) -> Any:
        return F.scaled_dot_product_attention(q, k, k, mask, is_causal=mask is None)

    def make(batch: int, queries: int, keys: int) -> list[Any]:
        q, k = R(batch, queries, 4, 32).transpose(1, 2), R(batch, 4, keys, 32)
        return [q, k, R(queries, keys)] if mask else [q, k]

    counts = kernels_for(attend, make, [(2, 65, 80), (3, 17, 130), (5, 100, 18), (7, 64, 128)])
    assert counts == [1, 1, 1, 1]


def test_gradients_with_open_sizes() -> None:
    def layer(x: Any, w: Any, b: Any) -> Any:
        return F.gelu(F.linear(F.layer_norm(x, (48,), b, b), w)).sin()

    counts = kernels_for(
        layer, lambda n, m: (R(n, m, 48), R(80, 48), R(48)), [(5, 33), (7, 20), (3, 66)], True
    )
    assert counts == counts[:1] * 3


def test_rows_that_are_reduced_are_known() -> None:
    make = lambda n, m: (R(n, m),)  # noqa: E731
    assert kernels_for(
        lambda x: torch.softmax(x * 2, -1), make, [(64, 130), (33, 130), (9, 70), (8, 70)]
    ) == [1, 1, 2, 2]


def test_a_division_for_each_element_is_known() -> None:
    """`row // length` with an open length would be slower than torch."""
    make = lambda n, m: (R(n, m, 72), R(n, 1, 72))  # noqa: E731
    sizes = [(5, 33), (9, 33), (3, 20), (8, 20)]
    assert kernels_for(lambda x, y: (x + y).tanh(), make, sizes) == [1, 1, 2, 2]


def test_the_second_size_opens_it() -> None:
    tiled = tw.tile(lambda x: torch.tanh(x * 2).sin())
    for rows in (100, 120, 200):
        tiled.check(R(rows, 128))
    assert len(tiled.kernels) == 2


@pytest.mark.slow
def test_open_at_once_and_never() -> None:
    at_once = tw.tile(lambda x: torch.softmax(x * 2, -1).sin(), dynamic=True)
    never = tw.tile(lambda x: torch.softmax(x * 2, -1).sin(), dynamic=False)
    for rows in (100, 120, 200):
        at_once.check(R(rows, 128))
        never.check(R(rows, 128))
    assert (len(at_once.kernels), len(never.kernels)) == (1, 3)
    (part,) = at_once.report.parts
    assert part.source.split("@T.prim_func")[0].endswith('rows = T.dynamic("rows")\n')
    assert "x: T.Tensor((rows, 128), T.float32),\n" in part.source
    x = R(100, 128)  # as it was captured
    torch.testing.assert_close(part.kernel(x), part.reference(x))


def test_sizes_of_0_and_1() -> None:
    tiled = tw.tile(lambda x, y: torch.tanh(x) * y, dynamic=True)
    for rows in (50, 1, 0, 60):
        tiled.check(R(rows, 256), R(rows, 256))


# --- the arithmetic of open sizes


def test_primes_are_primes() -> None:
    primes = _primes()
    for _ in range(3):
        each = next(primes)
        assert each > 1 << 40
        assert all(each % factor for factor in range(3, int(each**0.5) + 1, 2))


@pytest.mark.parametrize("seed", range(10))
def test_sizes_follow_from_others(seed: int) -> None:
    choose, primes = random.Random(seed), _primes()
    a, b, c = (next(primes) for _ in range(3))
    now = {a: choose.randint(2, 9), b: choose.randint(2, 9), c: choose.randint(2, 9)}

    def value(size: int) -> int:
        for each, number in now.items():
            while size % each == 0:
                size = size // each * number
        return size

    known = choose.sample([a, 4 * b, a * b, c, 12 * a * c, a * b * c], 4)
    named = {each: f"v{place}" for place, each in enumerate(known)}
    for size in (a, b, 8 * b, a * b, 5 * a * b * c, c * c, 7, 12 * c):
        try:
            follows = formula(size, known)
        except OpenSizeError as error:
            assert error.size == size
            continue
        assert follows.value({each: value(each) for each in known}) == value(size)
        names = {name: value(each) for each, name in named.items()}
        assert eval(follows.text(named), {}, names) == value(size)


def test_a_size_that_does_not_follow() -> None:
    primes = _primes()
    a, b = next(primes), next(primes)
    assert formula(12, []) == Formula(12)
    with pytest.raises(OpenSizeError) as caught:
        formula(a, [b])
    assert str(caught.value) == "over a size that torch keeps open"
    text = spelled(
        f"@T.prim_func\nx[{a}] = {6 * a} + 12345678901.0", [(a, 4)], {a: "n"}, Names("n")
    )
    assert text == 'n_2 = T.dynamic("n_2")\n@T.prim_func\nx[n_2] = (n_2 * 6) + 12345678901.0'


# --- random graphs


def some_slow(count: int, fast: int) -> list[Any]:
    slow = [pytest.param(seed, marks=pytest.mark.slow) for seed in range(fast, count)]
    return [*range(fast), *slow]


@pytest.mark.parametrize("seed", some_slow(30, fast=0))
def test_random_graphs_with_open_sizes(seed: int) -> None:
    choose = random.Random(seed + 1)
    steps = [(choose.randrange(9), choose.random(), choose.random()) for _ in range(9)]

    def call(x: Any, row: Any, column: Any, weight: Any) -> Any:
        values = [x, x * row, x + column]
        for kind, which, other in steps:
            a, b = values[int(which * len(values))], values[int(other * len(values))]
            if kind < 2:
                made = torch.tanh(a) * b
            elif kind == 2:
                made = torch.softmax(a, -1)
            elif kind == 3:
                made = a - a.mean(-1, keepdim=True)
            elif kind == 4:
                made = torch.sigmoid(a @ weight)
            elif kind == 5:
                made = a.reshape(-1, a.shape[-1]).sigmoid().reshape(a.shape)
            elif kind == 6:
                made = a * row + column
            elif kind == 7:
                made = F.layer_norm(a, row.shape[-1:], row)
            else:
                made = torch.maximum(a, b.abs())
            values.append(made)
        return values[-1], values[-2]

    def make(n: int, m: int) -> list[Any]:
        return [R(n, m, 40), R(40), R(n, m, 1), R(40, 40) / 7]

    counts = kernels_for(call, make, [(5, 33), (3, 17), (9, 2)], choose.random() < 0.5)
    assert counts == counts[:1] * 3
