"""Values of a trace: what each operator builds, and what becomes of users' numbers."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest

import tileworkbench.language as T
from tileworkbench.compiler.diagnostics import TileTypeError, TileValueError
from tileworkbench.compiler.frontend import values
from tileworkbench.compiler.frontend.values import Value, describe, is_number, to_value
from tileworkbench.compiler.ir.expr import Const, Var
from tileworkbench.compiler.ir.types import DType


def var(name: str, dtype: str) -> Value:
    return Value(Var(name, DType(dtype)))


x, y, n = var("x", "int32"), var("y", "int32"), var("n", "int64")
f, d, h = var("f", "float32"), var("d", "float64"), var("h", "float16")
u, u8, i8, u64 = var("u", "uint32"), var("u8", "uint8"), var("i8", "int8"), var("u64", "uint64")


def typed(value: Any) -> tuple[str, str]:
    """The text and the dtype of a value."""
    return repr(value), str(value.dtype)


OPERATORS = [
    (operator.add, "x + y", "x + 3", "x + 3"),
    (operator.sub, "x - y", "x - 3", "3 - x"),
    (operator.mul, "x * y", "x * 3", "3 * x"),
    (operator.floordiv, "x // y", "x // 3", "3 // x"),
    (operator.mod, "x % y", "x % 3", "3 % x"),
    (operator.lshift, "x << y", "x << 3", "3 << x"),
    (operator.rshift, "x >> y", "x >> 3", "3 >> x"),
    (operator.and_, "x & y", "x & 3", "3 & x"),
    (operator.or_, "x | y", "x | 3", "3 | x"),
    (operator.xor, "x ^ y", "x ^ 3", "3 ^ x"),
    (operator.eq, "x == y", "x == 3", "x == 3"),
    (operator.ne, "x != y", "x != 3", "x != 3"),
    (operator.lt, "x < y", "x < 3", "x > 3"),
    (operator.le, "x <= y", "x <= 3", "x >= 3"),
    (operator.gt, "x > y", "x > 3", "x < 3"),
    (operator.ge, "x >= y", "x >= 3", "x <= 3"),
]


@pytest.mark.parametrize(
    ("apply", "both", "right", "left"), OPERATORS, ids=[row[0].__name__ for row in OPERATORS]
)
@pytest.mark.parametrize("number", [3, np.int32(3), np.int64(3), np.array(3)], ids=repr)
def test_operators(apply: Any, both: str, right: str, left: str, number: Any) -> None:
    """An operator builds its own node, its operands in their order, whoever's number it is."""
    dtype = "bool" if isinstance(apply(1, 2), bool) else "int32"
    assert typed(apply(x, y)) == (both, dtype)
    assert typed(apply(x, number)) == (right, dtype)
    assert typed(apply(number, x)) == (left, dtype)


@pytest.mark.parametrize("two", [2.0, 2, np.float32(2), np.float64(2), np.int8(2)], ids=repr)
def test_operators_of_floats(two: Any) -> None:
    assert typed(f / two) == ("f / 2.0", "float32")
    assert typed(two / f) == ("2.0 / f", "float32")
    assert typed(two**f) == ("T.pow(2.0, f)", "float32")
    assert typed(f - two) == ("f - 2.0", "float32")
    assert typed(two - d) == ("T.float64(2.0) - d", "float64")


def test_operators_of_one_operand() -> None:
    assert [repr(found) for found in (-x, +x, ~x, abs(x))] == ["-x", "x", "~x", "T.abs(x)"]
    assert typed(x.astype("float16")) == ("T.float16(x)", "float16")


def test_numpys_functions() -> None:
    assert repr(np.add(x, np.int32(2))) == "x + 2"
    assert repr(np.power(np.float32(2), f)) == "T.pow(2.0, f)"
    for call in (lambda: np.exp(f), lambda: np.add.reduce(f), lambda: np.add.outer(f, f)):
        with pytest.raises(TileTypeError, match="works on numbers and tensors, not on a run-time"):
            call()


def test_comparisons_with_no_number() -> None:
    for other in (None, "a"):
        assert (x == other, other == x) == (False, False)
        assert (x != other, other != x) == (True, True)


class Scalar:
    """What looks like a scalar of numpy's and is none."""

    shape = ()

    def item(self) -> int:
        return 1


@pytest.mark.parametrize(
    ("number", "text", "dtype"),
    [
        (3, "3", "int32"),
        (True, "True", "bool"),
        (0.1, "0.1", "float32"),
        (1 << 40, "T.int64(1099511627776)", "int64"),
        (np.int8(-3), "-3", "int32"),
        (np.uint16(7), "7", "int32"),
        (np.int64(3), "3", "int32"),
        (np.uint64(1 << 40), "T.int64(1099511627776)", "int64"),
        (np.float16(1.5), "1.5", "float32"),
        (np.float32(1.5), "1.5", "float32"),
        (np.float64(0.1), "0.1", "float32"),
        (np.bool_(True), "True", "bool"),
        (np.array(2), "2", "int32"),
        (np.array(2.5), "2.5", "float32"),
    ],
)
def test_numbers(number: Any, text: str, dtype: str) -> None:
    assert is_number(number)
    assert typed(to_value(number)) == (text, dtype)


@pytest.mark.parametrize(
    "other", [None, "1", [1], np.array([1]), np.complex64(1), np.str_("1"), Scalar(), x]
)
def test_what_is_no_number(other: Any) -> None:
    assert not is_number(other)
    if other is not x:
        with pytest.raises(TileTypeError, match="a scalar is needed here"):
            to_value(other)


@pytest.mark.parametrize(
    ("made", "text", "dtype"),
    [
        (lambda: x + (1 << 31), "T.int64(x) + T.int64(2147483648)", "int64"),
        (lambda: n + 1, "n + T.int64(1)", "int64"),
        (lambda: u8 + 300, "T.int32(u8) + 300", "int32"),
        (lambda: u + 0, "u", "uint32"),
        (lambda: u - 1, "u - T.uint32(1)", "uint32"),
        (lambda: u * ((1 << 31) - 1), "u * T.uint32(2147483647)", "uint32"),
        (lambda: u * (1 << 31), "T.int64(u) * T.int64(2147483648)", "int64"),
        (lambda: u64 * 3, "u64 * T.uint64(3)", "uint64"),
        (lambda: u64 - (1 << 63), "u64 - T.uint64(9223372036854775808)", "uint64"),
        (lambda: u64 - ((1 << 64) - 1), "u64 - T.uint64(18446744073709551615)", "uint64"),
        (lambda: h + 1, "h + T.float16(1.0)", "float16"),
        (lambda: h + 1.5, "T.float32(h) + 1.5", "float32"),
        (lambda: d * 0.1, "d * T.float64(0.1)", "float64"),
        (lambda: f * True, "f * 1.0", "float32"),
    ],
)
def test_a_number_beside_a_value(made: Any, text: str, dtype: str) -> None:
    assert typed(made()) == (text, dtype)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (
            lambda: u - (-1),
            "-1 has no value in 'uint32'; cast the other operand to a signed type",
        ),
        (lambda: x + (1 << 63), "9223372036854775808 has no value in 'int64'"),
        (lambda: n - (-(1 << 63) - 1), "-9223372036854775809 has no value in 'int64'"),
        (lambda: u64 + (1 << 64), "18446744073709551616 has no value in 'int64'"),
    ],
)
def test_a_number_without_a_value(made: Any, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        made()
    assert str(caught.value) == message


def test_the_least_int64_has_a_value() -> None:
    assert typed(n + -(1 << 63)) == ("n + T.int64(-9223372036854775808)", "int64")


@pytest.mark.parametrize("make", [int, np.int64])
@pytest.mark.parametrize(
    ("value", "number", "text"),
    [
        (u8, 255, "u8 & T.uint8(255)"),
        (u8, 256, "T.int32(u8) & 256"),
        (u8, -1, "u8 & T.uint8(255)"),
        (u8, -128, "u8 & T.uint8(128)"),
        (u8, -129, "T.int32(u8) & -129"),
        (i8, 127, "i8 & T.int8(127)"),
        (i8, 128, "T.int32(i8) & 128"),
        (i8, -128, "i8 & T.int8(-128)"),
        (i8, -129, "T.int32(i8) & -129"),
    ],
)
def test_a_number_as_bits(make: Any, value: Value, number: int, text: str) -> None:
    assert repr(value & make(number)) == text
    swapped = text.split(" & ")
    assert repr(make(number) & value) == f"{swapped[1]} & {swapped[0]}"


def test_bits_of_a_bool() -> None:
    b = var("b", "bool")
    assert typed(b & 1) == ("b & True", "bool")
    assert typed(b | 0) == ("b", "bool")
    assert typed(b ^ 2)[1] == "int32"
    assert typed(b ^ -1)[1] == "int32"


@pytest.mark.parametrize("make", [int, np.int64])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "int64", "uint64"])
def test_shifts_stay_below_the_width(make: Any, dtype: str) -> None:
    value = var("v", dtype)
    bits = value.expr.dtype.bits
    assert str((value << make(bits - 1)).dtype) == str((value >> make(0)).dtype) == dtype
    for count in (bits, -1):
        with pytest.raises(TileValueError) as caught:
            value >> make(count)
        assert str(caught.value) == f"shift by {count} is out of range for '{dtype}'"


def test_a_shift_has_the_type_of_both_sides() -> None:
    assert typed(x << n) == ("T.int64(x) << n", "int64")
    assert typed(x >> u8) == ("x >> T.int32(u8)", "int32")
    assert typed(1 << u8) == ("T.uint8(1) << u8", "uint8")
    for left, right in ((f, x), (x, f)):
        with pytest.raises(TypeError) as caught:
            left << right
        assert str(caught.value) == f"'<<' needs integers, got '{left.dtype}' and '{right.dtype}'"


@pytest.mark.parametrize("make", [int, np.int64])
def test_powers(make: Any) -> None:
    assert [repr(x ** make(k)) for k in range(4)] == ["1", "x", "x * x", "x * (x * x)"]
    assert repr(f ** make(4)) == "f * f * (f * f)"
    assert repr(x ** make(64)).count("x") == 64
    for exponent in (65, -1):
        with pytest.raises(TileTypeError, match="not a constant from 0 to 64"):
            x ** make(exponent)
        assert repr(f ** make(exponent)) == f"T.pow(f, {exponent}.0)"
    assert typed(h ** make(2)) == ("T.float16(T.float32(h) * T.float32(h))", "float16")
    assert typed(i8 ** make(2)) == ("i8 * i8", "int8")
    assert typed(f**f) == ("T.pow(f, f)", "float32")
    assert typed(h**0.5) == ("T.pow(T.float32(h), 0.5)", "float32")
    with pytest.raises(TileTypeError, match="not a constant from 0 to 64"):
        x**x
    assert values.power(2, 3) == 8 and values.power(np.float64(2), 0.5) == 2**0.5


def test_a_typed_value_is_rounded_once() -> None:
    assert typed(T.float64(np.float64(0.1))) == ("T.float64(0.1)", "float64")
    # Through float32 this would be a tie, and go to 1.0.
    almost = 1 + 2.0**-11 + 2.0**-30
    for number in (almost, np.float64(almost)):
        assert typed(T.float16(number)) == ("T.float16(1.0009765625)", "float16")
    assert typed(T.uint64(np.uint64(1 << 63))) == ("T.uint64(9223372036854775808)", "uint64")
    assert typed(T.float32("inf")) == ('T.float32("inf")', "float32")
    assert typed(T.int8(x)) == ("T.int8(x)", "int8")
    assert typed(T.int32()) == ("v", "int32")
    with pytest.raises(TileTypeError) as caught:
        T.float32(1, 2)
    assert str(caught.value) == "'T.float32' takes one value, not 2"


def test_python_values_of_constants() -> None:
    assert [bool(to_value(number)) for number in (0, 2, 0.0, 0.5)] == [False, True, False, True]
    assert [1, 2, 3][to_value(1)] == 2
    assert (int(to_value(7)), float(to_value(2.5)), float(to_value(2))) == (7, 2.5, 2.0)
    with pytest.raises(TileTypeError, match="cannot be used as a Python integer"):
        int(to_value(2.5))
    for convert in (bool, int, float):
        with pytest.raises(TileTypeError, match="a run-time value"):
            convert(x)
    assert x.name == "x"
    assert getattr(x + 1, "name", None) is None


def test_extents_as_users_see_them() -> None:
    assert values.from_expr(Const(3, DType("int64"))) == 3
    assert repr(values.from_expr(x.expr)) == "x"
    assert typed(values.from_expr(Const(3.0, DType("float32")))) == ("3.0", "float32")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((x, "x"), (n, "n"), (4, "4"), (np.int8(4), "4"), (1 << 40, "T.int64(1099511627776)")),
        *((i8, "T.int32(i8)"), (u8, "T.int32(u8)"), (u, "T.int64(u)"), (u64, "T.int64(u64)")),
        (var("u16", "uint16"), "T.int32(u16)"),
    ],
)
def test_indices_are_wide_enough(value: Any, text: str) -> None:
    expr, binding = values.index_expr(value)
    assert (repr(Value(expr)), binding) == (text, None)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (True, "the row must be an integer, not the number True"),
        (np.bool_(True), "the row must be an integer, not 'bool'"),
        (
            np.float32(2),
            "the row must be an integer, not 'float32'\nhint: use '//' or T.ceildiv instead of '/'",
        ),
        (
            2.0,
            "the row must be an integer, not the number 2.0\n"
            "hint: use '//' or T.ceildiv instead of '/'",
        ),
        (
            f / 2,
            "the row must be an integer, not 'float32'\nhint: use '//' or T.ceildiv instead of '/'",
        ),
        ("a", "the row must be an integer, not the text 'a'"),
        (
            (x, y),
            "the row must be an integer, not an object of type 'tuple'\n"
            "hint: take one of its elements: 'with T.Kernel(m, n) as (bx, by)' names each",
        ),
    ],
)
def test_what_is_no_index(value: Any, message: str) -> None:
    with pytest.raises(TileTypeError) as caught:
        values.index_expr(value, "the row")
    assert str(caught.value) == message


def test_extents_are_positive() -> None:
    assert repr(Value(values.extent_expr(1, "it"))) == "1"
    assert repr(Value(values.extent_expr(0, "it", may_be_zero=True))) == "0"
    assert repr(Value(values.extent_expr(x, "it"))) == "x"
    for number, may_be_zero, rule in ((0, False, "be positive"), (-1, True, "not be negative")):
        with pytest.raises(TileValueError) as caught:
            values.extent_expr(number, "it", may_be_zero)
        assert str(caught.value) == f"it must {rule}, not {number}"


def test_choices() -> None:
    assert typed(values.select(x < 1, 1, 2, True)) == ("1 if x < 1 else 2", "int32")
    assert typed(values.select(x < 1, f, 2, True)) == ("f if x < 1 else 2.0", "float32")
    assert typed(values.select(x < 1, 2, u, True)) == (
        "T.uint32(2) if x < 1 else u",
        "uint32",
    )
    assert repr(values.select(x < 1, x, y, False)) == "T.Select(x < 1, x, y)"
    with pytest.raises(TileTypeError) as caught:
        values.select(x, 1, 2, True)
    assert str(caught.value) == (
        "the condition must be a 'bool', not 'int32'\nhint: compare the value, as in 'x != 0'"
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((None, "None"), ("a", "the text 'a'"), (3, "the number 3"), (x, "a run-time value")),
        *((DType("int8"), "the dtype 'int8'"), ([], "an object of type 'list'")),
        (0.5, "the number 0.5"),
    ],
)
def test_descriptions(value: Any, text: str) -> None:
    assert describe(value) == text
