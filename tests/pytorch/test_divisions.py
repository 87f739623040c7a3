"""Rounded quotients, remainders and powers of integers: values and dtypes against torch."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

import tileworkbench as tw
from tileworkbench.pytorch.backend import Settings, tile_backend
from tileworkbench.pytorch.report import Report

EDGES = torch.tensor(
    [
        *(0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 0.1, -0.1, 2.0, 3.0, -3.0, 2.5, -7.25, 1e-3, 6.0, -6.0),
        *(float("inf"), -float("inf"), float("nan"), 1e-40, -1e-40, 3e38, -3e38, 1e9, -1e9),
        *(16777215.0, -16777215.0, 127.0, -149.0, 0.3333333, 1.0000001),
    ]
)


def compiled(call: Callable[..., Any], report: Report) -> Any:
    settings = Settings(least_work=1, least_elements=1)
    backend = functools.partial(tile_backend, report=report, settings=settings)
    return torch.compile(call, backend=backend, fullgraph=True, dynamic=False)


def equal(found: Sequence[Any], expected: Sequence[Any]) -> None:
    """The same numbers and dtypes, with the same signs of zeros."""
    for at, (mine, others) in enumerate(zip(found, expected, strict=True)):
        assert mine.dtype == others.dtype, at
        torch.testing.assert_close(mine, others, rtol=0, atol=0, equal_nan=True)
        if others.is_floating_point():
            assert torch.equal(mine.signbit() & (mine == 0), others.signbit() & (others == 0)), at


# --- floats


def floored(x: Any, y: Any) -> list[Any]:
    made = [x // y, x // y[0], torch.div(x, y, rounding_mode="floor"), 7.5 // y, -2 // y]
    return [*made, *(x // number for number in (0.75, -3.0, 7, 0.0))]


def truncated(x: Any, y: Any) -> list[Any]:
    cut = functools.partial(torch.div, rounding_mode="trunc")
    made = [cut(x, y), cut(x, y[0]), cut(y, x[:, :1]), torch.div(x, y, rounding_mode=None)]
    return [*made, *(cut(x, number) for number in (0.75, -3.0, 7, 0.1, 0.0))]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_quotients_of_floats_rounded_down(dtype: Any) -> None:
    """torch's vector code has NaN where a quotient is infinite as a float32: doubles have none."""
    edges, report = EDGES.to(dtype), Report()
    x, y = (at.contiguous() for at in torch.meshgrid(edges, edges, indexing="ij"))
    found = compiled(floored, report)(x, y)
    wanted = [each.to(dtype) for each in floored(x.double(), y.double())]
    for mine, others in zip(found, wanted, strict=True):
        assert mine.dtype == dtype
        torch.testing.assert_close(mine, others, rtol=1e-6, atol=0, equal_nan=True)
        assert torch.equal(mine.signbit() & (mine == 0), others.signbit() & (others == 0))
    assert not report.in_torch, report


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_quotients_of_floats_without_their_fractions(dtype: Any) -> None:
    """torch rounds a quotient of 16-bit floats before it cuts it; a kernel computes in float32."""
    edges, report = EDGES.to(dtype), Report()
    x, y = (at.contiguous() for at in torch.meshgrid(edges, edges, indexing="ij"))
    wanted = [each.to(dtype) for each in truncated(x.float(), y.float())]
    equal(compiled(truncated, report)(x, y), wanted)
    assert not report.in_torch, report


def test_random_quotients_are_those_of_torch() -> None:
    """Whole numbers are met often: both are multiples of one power of two."""
    x, y = (torch.randint(-900, 900, (64, 300)) / 128 for _ in range(2))
    y[y == 0] = 3
    equal(compiled(floored, Report())(x, y), floored(x, y))
    equal(compiled(truncated, Report())(x, y), truncated(x, y))


# --- integers

NUMBERS = (1, 2, 3, 7, -1, -2, -5, 64, 100, 300)  # of which the last begins anew in a byte
KINDS = [torch.int8, torch.uint8, torch.int32, torch.int64]


def integers(dtype: Any) -> Any:
    """Small and large ones of either sign, without the least one: its negative has no room."""
    info = torch.iinfo(dtype)
    large = torch.tensor([info.max, info.max - 1, info.min + 1, info.min + 2], dtype=dtype)
    return torch.cat([torch.arange(-127, 128).to(dtype), large])


def divided(x: Any) -> list[Any]:
    made = []
    for each in NUMBERS:
        made += [x // each, x % each, torch.fmod(x, each), x > each]
        made += [torch.div(x, each, rounding_mode=mode) for mode in ("floor", "trunc")]
    return made


@pytest.mark.parametrize("dtype", KINDS)
def test_integers_divided_by_numbers(dtype: Any) -> None:
    x, report = integers(dtype), Report()
    equal(compiled(divided, report)(x), divided(x))
    assert not report.in_torch, report


@pytest.mark.parametrize("dtype", KINDS)
def test_powers_of_integers(dtype: Any) -> None:
    def call(x: Any) -> list[Any]:
        made = [x**exponent for exponent in (0, 1, 2, 3, 4, 5, 8, 33, 64)]
        return [*made, 2**x, torch.pow(2, x % 37), x**0.5, 2.0**x]

    x, report = integers(dtype), Report()
    *found, root, power = compiled(call, report)(x)
    *expected, other_root, other_power = call(x)
    equal(found, expected)
    torch.testing.assert_close([root, power], [other_root, other_power], equal_nan=True)
    assert not report.in_torch, report


def test_dtypes_are_promoted_as_in_torch() -> None:
    def call(x: Any, half: Any, n: Any, byte: Any) -> list[Any]:
        modes = ("floor", "trunc")
        pairs = [(x, n), (n, x), (half, n), (n, half), (byte, 2.5), (half, byte), (x, half)]
        made = [torch.div(a, b, rounding_mode=mode) for a, b in pairs for mode in modes]
        flags = n > 4
        made += [flags // 2, flags % 3, flags**2, 2**flags, flags // x, byte**2, n % 2.5]
        return [*made, torch.fmod(flags, 2), torch.div(n, n), torch.div(byte, 3)]

    n = torch.randint(1, 9, (40,), dtype=torch.int32)
    args = (torch.randn(20, 40), n.flip(0).half(), n, n.to(torch.uint8))
    equal(compiled(call, Report())(*args), call(*args))


# --- other kernels, and their text


def test_in_kernels_of_other_orders_and_of_few_elements() -> None:
    def call(x: Any, y: Any) -> Any:
        return (x.view(8, 16, 64).transpose(0, 1) // y).exp() * 2

    def small(x: Any, y: Any) -> Any:
        for _ in range(8):
            x = (x // y + 0.5) % 7
        return x.softmax(-1)

    for fn, args in (
        (call, (torch.randn(128, 64), torch.rand(16, 8, 64) + 1)),
        (small, (torch.randn(4, 16), torch.rand(4, 16) + 1)),
    ):
        report = Report()
        torch.testing.assert_close(compiled(fn, report)(*args), fn(*args))
        assert " = T.fmod(" in report.source and not report.in_torch, report


def test_the_text_names_the_parts_of_a_quotient() -> None:
    tiled = tw.tile(lambda x, y: x // y + 1, torch.randn(300, 64), torch.randn(300, 64))
    lines = [line.strip() for line in tiled.source.splitlines()]
    start = lines.index("quotient = x[at] / y[at]")
    assert lines[start + 1 : start + 3] == [
        "rest = T.fmod(x[at], y[at])",
        "whole = (x[at] - rest) / y[at]",
    ]
    numbers = torch.ones(300, 64, dtype=torch.int32)
    assert "T.pow(n[at] // 3, 5)" in tw.tile(lambda n: (n // 3) ** 5, numbers).source
    power = "T.if_then_else(T.And(n[at] >= 0, n[at] < 32), 1 << n[at], 0)"
    assert power in tw.tile(lambda n: 2**n - 1, numbers).source


def test_alone_they_are_kernels() -> None:
    """torch has no vector code for them."""
    for call in (lambda n: n // 3, lambda n: n % 3, lambda n: n**5, lambda n: n.float() // 0.7):
        tiled = tw.tile(call, torch.arange(20000))
        assert len(tiled.kernels) == 1 and not tiled.report.in_torch, tiled.report
        torch._dynamo.reset()
    cut = tw.tile(lambda x: torch.div(x, 3, rounding_mode="trunc"), torch.ones(20000))
    assert not cut.kernels, cut.report


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (
            lambda x, n: x // n * 2,
            "integers divided by a tensor, where torch raises an error for a 0",
        ),
        (
            lambda x, n: torch.fmod(x, n) * 2,
            "integers divided by a tensor, where torch raises an error for a 0",
        ),
        (lambda x, n: x**n * 2, "integers to the power of a tensor, or bools"),
        (lambda x, n: x**65 * 2, "integers to the power of 65"),
        (lambda x, n: x.double() // 3, "'fmod' of a float64"),
    ],
)
def test_what_stays_in_torch(call: Callable[..., Any], reason: str) -> None:
    x = torch.arange(20000, dtype=torch.int32) - 10000
    report = Report()
    equal([compiled(call, report)(x, x.abs() % 5 + 1)], [call(x, x.abs() % 5 + 1)])
    assert reason in {why for _, why in report.in_torch}, report


@pytest.mark.parametrize("call", [lambda x, n: x // n + 1, lambda x, n: x % 0 + 1])
def test_a_division_of_integers_by_zero_is_torchs_error(call: Callable[..., Any]) -> None:
    x = torch.arange(20000)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        compiled(call, Report())(x, x % 5)


def test_a_negative_power_of_integers_is_torchs_error() -> None:
    with pytest.raises(RuntimeError, match="Integers to negative integer powers are not allowed"):
        compiled(lambda x: x**-1 + 1, Report())(torch.arange(1, 20000))
