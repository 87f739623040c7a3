"""Floating-point instructions and conversions, against exact rational arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ptx.support import Array, examples, run_instruction

# precision, smallest exponent of a normal number, largest finite value
FORMATS = {
    "f16": (11, -14, Fraction(65504)),
    "bf16": (8, -126, Fraction(2) ** 127 * (2 - Fraction(1, 128))),
    "f32": (24, -126, Fraction(2) ** 127 * (2 - Fraction(1, 2**23))),
    "f64": (53, -1022, Fraction(2) ** 1023 * (2 - Fraction(1, 2**52))),
    "e4m3": (4, -6, Fraction(448)),
    "e5m2": (3, -14, Fraction(57344)),
}


def round_exactly(x: Fraction, kind: str, mode: str = "rn") -> Fraction | None:
    """A rational number in a format, None for one beyond its largest."""
    precision, lowest, largest = FORMATS[kind]
    if x == 0:
        return x
    exponent = max(_exponent(abs(x)), lowest)
    unit = Fraction(2) ** (exponent - precision + 1)
    floor = x // unit
    rest = x - floor * unit
    up = {
        "rn": rest > unit / 2 or (rest == unit / 2 and floor % 2),
        "rz": x < 0 and rest > 0,
        "rm": False,
        "rp": rest > 0,
    }[mode]
    rounded = (floor + bool(up)) * unit
    return rounded if abs(rounded) <= largest else None


def _exponent(x: Fraction) -> int:
    guess = x.numerator.bit_length() - x.denominator.bit_length()
    return guess if Fraction(2) ** guess <= x else guess - 1


_EDGES = (0.0, -0.0, 1.0, -1.5, 3.0, 2.0**-24, 65504.0, 2.0**-130, 2.0**-126, 2.0**100)
FINITE = st.one_of(
    st.sampled_from(_EDGES), st.floats(width=32, allow_nan=False, allow_infinity=False)
)
# The bits of a half, an infinity or a NaN made finite.
HALF_BITS = st.integers(0, 0xFFFF).map(lambda b: b & 0x83FF if b & 0x7C00 == 0x7C00 else b)


def _values(found: Array, kind: str) -> list[float]:
    if kind == "bf16":
        wide = found.astype(np.uint32) << np.uint32(16)
        return [float(each) for each in wide.view(np.float32)]
    dtype = {"f16": np.float16, "f32": np.float32, "f64": np.float64}[kind]
    return [float(each) for each in found.view(dtype)]


def _agree(found: list[float], expected: list[Fraction | None]) -> None:
    for got, want in zip(found, expected, strict=True):
        if want is None:
            assert math.isinf(got) or abs(got) > 1e4
        else:
            assert Fraction(got) == want


ROUNDED: dict[str, Callable[..., Fraction]] = {
    "add.rn.f32 %d, %a, %b;": lambda a, b: a + b,
    "sub.rz.f32 %d, %a, %b;": lambda a, b: a - b,
    "mul.rn.f32 %d, %a, %b;": lambda a, b: a * b,
    "mul.rp.f32 %d, %a, %b;": lambda a, b: a * b,
    "fma.rn.f32 %d, %a, %b, %c;": lambda a, b, c: a * b + c,
    "fma.rm.f32 %d, %a, %b, %c;": lambda a, b, c: a * b + c,
    "fma.rz.f32 %d, %a, %b, %c;": lambda a, b, c: a * b + c,
}


@pytest.mark.parametrize("text", ROUNDED)
@examples(4)
@given(rows=st.lists(st.tuples(FINITE, FINITE, FINITE), min_size=48, max_size=48))
def test_binary32_rounds_once(text: str, rows: list[tuple[float, ...]]) -> None:
    define, mode = ROUNDED[text], text.split(".")[1]
    count = define.__code__.co_argcount
    columns = [np.array(column, dtype=np.float32) for column in zip(*rows, strict=True)][:count]
    found = _values(run_instruction(text, ["b32"] * count, "b32", *columns), "f32")
    exact = [define(*map(Fraction, row[:count])) for row in rows]
    _agree(found, [round_exactly(each, "f32", mode) for each in exact])


@examples(6)
@given(
    rows=st.lists(
        st.tuples(*[st.floats(-1e100, 1e100, allow_subnormal=False)] * 3), min_size=48, max_size=48
    )
)
def test_binary64_fused_multiply_add_rounds_once(rows: list[tuple[float, float, float]]) -> None:
    rows = [row for row in rows if not 0 < abs(row[0] * row[1]) < 1e-250]
    if not rows:
        return
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    found = _values(
        run_instruction("fma.rn.f64 %d, %a, %b, %c;", ["b64"] * 3, "b64", *columns), "f64"
    )
    exact = [Fraction(a) * Fraction(b) + Fraction(c) for a, b, c in rows]
    _agree(found, [round_exactly(each, "f64") for each in exact])


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@examples(6)
@given(rows=st.lists(st.tuples(HALF_BITS, HALF_BITS, HALF_BITS), min_size=48, max_size=48))
def test_half_formats_round_once(kind: str, rows: list[tuple[int, int, int]]) -> None:
    bits = [np.array(column, dtype=np.uint16) for column in zip(*rows, strict=True)]
    values = [list(map(Fraction, _values(column, kind))) for column in bits]
    found = run_instruction(f"fma.rn.{kind} %d, %a, %b, %c;", ["b16"] * 3, "b16", *bits)
    exact = [a * b + c for a, b, c in zip(*values, strict=True)]
    _agree(_values(found, kind), [round_exactly(each, kind) for each in exact])
    found = run_instruction(f"add.{kind} %d, %a, %b;", ["b16"] * 2, "b16", *bits[:2])
    exact = [a + b for a, b in zip(*values[:2], strict=True)]
    _agree(_values(found, kind), [round_exactly(each, kind) for each in exact])


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("target", ["f16", "bf16", "f32"])
@examples(3)
@given(values=st.lists(FINITE, min_size=48, max_size=48))
def test_conversions_between_floats_round_once(target: str, mode: str, values: list[float]) -> None:
    if target == "bf16" and mode in ("rm", "rp"):
        return  # no such conversion
    wide = np.array(values, dtype=np.float64) * 1.0000001
    with np.errstate(over="ignore"):
        source = wide if target == "f32" else wide.astype(np.float32)
    kinds = ("b64", "b32") if target == "f32" else ("b32", "b16")
    name = "f64" if target == "f32" else "f32"
    found = run_instruction(f"cvt.{mode}.{target}.{name} %d, %a;", kinds[:1], kinds[1], source)
    expected = [
        round_exactly(Fraction(float(each)), target, mode) if np.isfinite(each) else None
        for each in source
    ]
    _agree(_values(found, target), expected)


@pytest.mark.parametrize("kind", ["e4m3", "e5m2"])
@examples(5)
@given(values=st.lists(FINITE, min_size=64, max_size=64))
def test_eight_bit_floats_saturate(kind: str, values: list[float]) -> None:
    source = np.array(values, dtype=np.float32)
    text = f"cvt.rn.satfinite.{kind}x2.f32 %d, %b, %a;"
    packed = run_instruction(text, ["b32", "b32"], "b16", source, source[::-1].copy())
    back = run_instruction(f"cvt.rn.f16x2.{kind}x2 %d, %a;", ["b16"], "b32", packed)
    largest = FORMATS[kind][2]
    low = back.view(np.float16).reshape(-1, 2)[:, 0]
    for got, value in zip(low, source, strict=True):
        want = round_exactly(Fraction(float(value)), kind)
        if want is None:
            want = largest if value > 0 else -largest
        assert Fraction(float(got)) == want
    assert (back.view(np.float16).reshape(-1, 2)[::-1, 1] == low).all()


@examples(5)
@given(values=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=48, max_size=48))
def test_integers_become_floats_with_one_rounding(values: list[int]) -> None:
    column = np.array(values, dtype=np.int64)
    for mode in ("rn", "rz", "rp"):
        found = run_instruction(f"cvt.{mode}.f32.s64 %d, %a;", ["b64"], "b32", column)
        expected = [round_exactly(Fraction(value), "f32", mode) for value in values]
        _agree(_values(found, "f32"), expected)
    found = run_instruction("cvt.rn.f32.u64 %d, %a;", ["b64"], "b32", column)
    expected = [round_exactly(Fraction(value % 2**64), "f32") for value in values]
    _agree(_values(found, "f32"), expected)


_TO_INTEGER: dict[str, Callable[[float], int]] = {
    "rni": round,
    "rzi": math.trunc,
    "rmi": math.floor,
    "rpi": math.ceil,
}


@pytest.mark.parametrize("mode", _TO_INTEGER)
@examples(4)
@given(values=st.lists(FINITE, min_size=48, max_size=48))
def test_floats_become_integers_saturated(mode: str, values: list[float]) -> None:
    source = np.array(values, dtype=np.float32)
    for kind, low, high in (("s32", -(2**31), 2**31 - 1), ("u32", 0, 2**32 - 1)):
        found = run_instruction(f"cvt.{mode}.{kind}.f32 %d, %a;", ["b32"], "b32", source)
        expected = [max(low, min(high, _TO_INTEGER[mode](float(value)))) for value in source]
        assert [int(each) for each in found] == [each % 2**32 for each in expected]


def test_special_values_of_conversions() -> None:
    source = np.array([np.nan, np.inf, -np.inf], dtype=np.float32)
    found = run_instruction("cvt.rzi.s32.f32 %d, %a;", ["b32"], "b32", source)
    assert found.view(np.int32).tolist() == [0, 2**31 - 1, -(2**31)]
    halves = run_instruction("cvt.rn.bf16.f32 %d, %a;", ["b32"], "b16", source)
    assert halves.tolist() == [0x7FFF, 0x7F80, 0xFF80]
    tf32 = np.array([1 + 2**-11, 1 + 3 * 2**-11, 1 + 2**-12], dtype=np.float32)
    found = run_instruction("cvt.rna.tf32.f32 %d, %a;", ["b32"], "b32", tf32)
    assert found.view(np.float32).tolist() == [1 + 2**-10, 1 + 2**-9, 1.0]


def test_flushing_and_saturation() -> None:
    tiny = np.array([1e-40, -1e-40, 2e-38], dtype=np.float32)
    one = np.ones(3, dtype=np.float32)
    found = run_instruction("mul.ftz.f32 %d, %a, %b;", ["b32"] * 2, "b32", tiny, one)
    assert found.tolist() == [0, 0x80000000, int(tiny.view(np.uint32)[2])]
    wide = np.array([-2.0, 0.25, 7.0, np.nan], dtype=np.float32)
    found = run_instruction("add.sat.f32 %d, %a, 0f00000000;", ["b32"], "b32", wide)
    assert found.view(np.float32).tolist() == [0.0, 0.25, 1.0, 0.0]


def test_minimum_and_maximum_prefer_numbers_and_order_zeros() -> None:
    a = np.array([np.nan, 1.0, -0.0, 0.0, 3.0], dtype=np.float32)
    b = np.array([2.0, np.nan, 0.0, -0.0, -4.0], dtype=np.float32)
    low = run_instruction("min.f32 %d, %a, %b;", ["b32"] * 2, "b32", a, b).view(np.float32)
    high = run_instruction("max.f32 %d, %a, %b;", ["b32"] * 2, "b32", a, b).view(np.float32)
    assert low.tolist() == [2.0, 1.0, 0.0, 0.0, -4.0]
    assert np.signbit(low).tolist() == [False, False, True, True, True]
    assert np.signbit(high).tolist() == [False, False, False, False, False]
    strict = run_instruction("max.NaN.f32 %d, %a, %b;", ["b32"] * 2, "b32", a, b)
    assert np.isnan(strict.view(np.float32)).tolist() == [True, True, False, False, False]


def test_packed_halves_are_two_numbers() -> None:
    rng = np.random.default_rng(1)
    a, b, c = (rng.standard_normal((16, 2)).astype(np.float16) for _ in range(3))
    words = [each.view(np.uint32).reshape(-1) for each in (a, b, c)]
    found = run_instruction("fma.rn.f16x2 %d, %a, %b, %c;", ["b32"] * 3, "b32", *words)
    expected = a.astype(np.float64) * b + c
    assert (found.view(np.float16).reshape(-1, 2) == expected.astype(np.float16)).all()
    found = run_instruction("max.f16x2 %d, %a, %b;", ["b32"] * 2, "b32", *words[:2])
    assert (found.view(np.float16).reshape(-1, 2) == np.maximum(a, b)).all()
    wide = rng.standard_normal((2, 16)).astype(np.float32)
    found = run_instruction("cvt.rn.f16x2.f32 %d, %a, %b;", ["b32"] * 2, "b32", *wide)
    pairs = found.view(np.float16).reshape(-1, 2)
    assert (pairs[:, 1] == wide[0].astype(np.float16)).all()
    assert (pairs[:, 0] == wide[1].astype(np.float16)).all()


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("ex2.approx.f32", np.exp2),
        ("lg2.approx.f32", np.log2),
        ("rcp.rn.f32", np.reciprocal),
        ("sqrt.rn.f32", np.sqrt),
        ("rsqrt.approx.f32", lambda x: 1 / np.sqrt(x)),
        ("sin.approx.f32", np.sin),
        ("cos.approx.f32", np.cos),
        ("tanh.approx.f32", np.tanh),
    ],
)
def test_functions_are_within_one_unit(name: str, function: Callable[[Array], Array]) -> None:
    x = np.linspace(0.01, 20, 64, dtype=np.float32)
    found = run_instruction(f"{name} %d, %a;", ["b32"], "b32", x).view(np.float32)
    exact = function(x.astype(np.float64))
    assert np.abs(found - exact).max() <= (np.spacing(np.abs(exact).astype(np.float32))).max()


@pytest.mark.parametrize(
    ("comparison", "expected"),
    [
        ("eq", [0, 0, 1]),
        ("ne", [1, 0, 0]),
        ("neu", [1, 1, 0]),
        ("lt", [1, 0, 0]),
        ("geu", [0, 1, 1]),
        ("num", [1, 0, 1]),
        ("nan", [0, 1, 0]),
    ],
)
def test_comparisons_with_nan(comparison: str, expected: list[int]) -> None:
    a = np.array([1.0, np.nan, 2.0], dtype=np.float32)
    b = np.array([3.0, 1.0, 2.0], dtype=np.float32)
    text = f"setp.{comparison}.f32 %p, %a, %b; selp.u32 %d, 1, 0, %p;"
    assert run_instruction(text, ["b32"] * 2, "b32", a, b).tolist() == expected
