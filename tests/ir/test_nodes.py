"""Interning, rewriting that keeps identity, promotion, folding."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as some

from tests.ir.test_text import EVERY_CPU_NODE, EVERY_NODE, EVERY_TILE_NODE
from tileworkbench.compiler.ir import build
from tileworkbench.compiler.ir.expr import Const, Load, Var
from tileworkbench.compiler.ir.parser import parse
from tileworkbench.compiler.ir.rewrite import (
    Rewriter,
    buffers_of,
    replace_buffers,
    substitute,
    walk,
)
from tileworkbench.compiler.ir.types import BOOL, DType, promote

I32, F32 = DType("int32"), DType("float32")


def test_equal_expressions_are_one_object() -> None:
    x = Var("x", I32)
    assert Var("x", I32) is x
    assert build.add(x, build.int_const(1)) is build.add(x, build.int_const(1))


def test_constants_are_kept_apart_by_dtype_and_bits() -> None:
    values = [build.const(1, I32), build.const(1.0, F32), build.const(True, "bool")]
    values += [build.const(0.0, F32), build.const(-0.0, F32), build.const(1, "int64")]
    assert len({id(value) for value in values}) == len(values)
    assert build.const(float("nan"), F32) is build.const(float("nan"), F32)


@pytest.mark.parametrize("text", EVERY_NODE, ids=["tile", "simt", "cpu"])
def test_programs_pickle_and_stay_interned(text: str) -> None:
    program = parse(text)
    again = pickle.loads(pickle.dumps(program))
    assert again == program
    first, second = buffers_of(program.body), buffers_of(again.body)
    assert all(a is b for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("text", EVERY_NODE, ids=["tile", "simt", "cpu"])
def test_a_rewrite_that_changes_nothing_returns_its_argument(text: str) -> None:
    body = parse(text).body
    assert Rewriter(lambda found: found, lambda found: found)(body) is body
    assert substitute(body, {Var("nowhere", I32): build.int_const(1)}) is body


def test_substitution_reaches_every_expression_and_no_binder() -> None:
    program = parse(EVERY_TILE_NODE)
    block = Var("by", I32)
    changed = substitute(program.body, {block: build.int_const(7)})
    assert block in program.body.vars and block in changed.vars
    assert block not in [node for node in walk(changed)]


def test_buffers_are_replaced_in_parameters_and_body() -> None:
    program = parse(EVERY_TILE_NODE)
    old = program.params[0].value
    new = type(old)("A", DType("float64"), old.shape, "global")
    changed = replace_buffers(program, {old: new})
    assert changed.params[0].value is new
    assert old not in buffers_of(changed.body) and new in buffers_of(changed.body)
    assert replace_buffers(program, {}) is program


@pytest.mark.parametrize(
    ("a", "b", "result"),
    [
        ("float16", "float16", "float16"),
        ("float16", "int32", "float16"),
        ("int64", "float32", "float32"),
        ("float16", "float32", "float32"),
        ("bfloat16", "float16", "float16"),
        ("bfloat16", "float32", "float32"),
        ("float8_e4m3fn", "float16", "float16"),
        ("int8", "int32", "int32"),
        ("uint32", "int32", "uint32"),
        ("uint8", "int32", "int32"),
        ("int16", "uint32", "uint32"),
        ("bool", "int8", "int8"),
        ("bool", "float32", "float32"),
        ("float32x4", "float16", "float32x4"),
    ],
)
def test_promotion(a: str, b: str, result: str) -> None:
    assert promote(DType(a), DType(b)) == result
    assert promote(DType(b), DType(a)) == result


def test_two_kinds_of_8_bit_floats_do_not_mix() -> None:
    with pytest.raises(TypeError, match="cannot combine 'float8_e4m3fn' with 'float8_e5m2'"):
        promote(DType("float8_e4m3fn"), DType("float8_e5m2"))


@pytest.mark.parametrize(
    ("op", "a", "b", "message"),
    [
        (
            "div",
            "int32",
            "int32",
            "'/' between 'int32' and 'int32' is ambiguous; use '//' or T.truncdiv, or cast",
        ),
        (
            "floormod",
            "float32",
            "int32",
            "'%' needs integers, got 'float32' and 'int32'; use T.floor or T.fmod",
        ),
        ("and", "float32", "float32", "'&' needs integers, got 'float32' and 'float32'"),
        ("shl", "int32", "float32", "'<<' needs integers, got 'int32' and 'float32'"),
        (
            "logical_and",
            "int32",
            "bool",
            "a condition must be 'bool', got 'int32'; compare it with 0",
        ),
    ],
)
def test_operand_errors_say_what_to_do(op: str, a: str, b: str, message: str) -> None:
    with pytest.raises(TypeError) as caught:
        build.binary(op, Var("a", DType(a)), Var("b", DType(b)))
    assert str(caught.value) == message


def test_wrong_dtype_names() -> None:
    with pytest.raises(TypeError, match="'float7' is not a dtype"):
        DType("float7")


_WIDTHS = some.sampled_from(["int8", "uint8", "int16", "int32", "uint32", "int64"])
_FOLDED = some.sampled_from(["add", "sub", "mul", "and", "or", "xor", "min", "max"])


@given(_WIDTHS, _FOLDED, some.integers(-(2**70), 2**70), some.integers(-(2**70), 2**70))
def test_folding_wraps_like_the_dtype(name: str, op: str, a: int, b: int) -> None:
    import numpy as np

    dtype = DType(name)
    left, right = build.const(a, dtype), build.const(b, dtype)
    folded = build.binary(op, left, right)
    names = {"sub": "subtract", "mul": "multiply", "min": "minimum", "max": "maximum"}
    names |= {bit: f"bitwise_{bit}" for bit in ("and", "or", "xor")}
    function = getattr(np, names.get(op, op))
    with np.errstate(over="ignore"):
        expected = function(np.array(left.value, name), np.array(right.value, name))
    assert isinstance(folded, Const) and folded.value == int(expected)


@given(some.integers(-100, 100), some.integers(-100, 100).filter(bool))
def test_integer_division_folds_as_python_and_as_c(a: int, b: int) -> None:
    left, right = build.int_const(a), build.int_const(b)
    assert build.binary("floordiv", left, right).value == a // b
    assert build.binary("floormod", left, right).value == a % b
    quotient = int(a / b)
    assert build.binary("truncdiv", left, right).value == quotient
    assert build.binary("truncmod", left, right).value == a - quotient * b


def test_division_by_a_zero_literal_is_an_error() -> None:
    with pytest.raises(ZeroDivisionError):
        build.binary("floordiv", build.int_const(1), build.int_const(0))


def test_a_load_has_the_lanes_of_its_index() -> None:
    buffer = parse(EVERY_CPU_NODE).params[0].value
    from tileworkbench.compiler.ir.expr import Ramp

    index = Ramp(build.int_const(0), build.int_const(1), 8)
    assert Load(buffer, (index,)).dtype == "float32x8"


@pytest.mark.parametrize(("op", "as_bits"), [("add", "or"), ("sub", "xor"), ("mul", "and")])
def test_sums_of_bools_are_bools(op: str, as_bits: str) -> None:
    a, b = Var("a", BOOL), Var("b", BOOL)
    assert build.binary(op, a, b) is build.binary(as_bits, a, b)
    assert build.binary(op, a, b).dtype == BOOL
    assert build.binary(op, a, Var("n", DType("int8"))).dtype == "int8"
