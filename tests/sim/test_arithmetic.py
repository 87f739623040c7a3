"""Operators, casts and intrinsics: per lane and one by one they must agree with numpy and with the
language's rules.
"""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from tests.sim.kernels import block, program
from tileworkbench.compiler.diagnostics import RunError
from tileworkbench.compiler.sim import simulate

EDGES = {
    "int8": [-128, -127, -7, -1, 0, 1, 2, 3, 64, 127],
    "int32": [-(2**31), -(2**31) + 1, -7, -1, 0, 1, 3, 65536, 2**31 - 2, 2**31 - 1],
    "int64": [-(2**63), -9, -1, 0, 1, 5, 2**31, 2**40 + 3, 2**62, 2**63 - 1],
    "uint8": [0, 1, 2, 3, 7, 100, 127, 128, 200, 255],
    "uint32": [0, 1, 2, 3, 7, 65536, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1],
}


def evaluate(text: str, result: str, **operands: np.ndarray) -> np.ndarray:
    """`text` over all elements, computed in a parallel loop and one by one; both must agree to the
    bit.
    """
    shape = f"({len(next(iter(operands.values())))},)"
    names = "; ".join(f"{name}: {shape} {array.dtype}" for name, array in operands.items())
    results = []
    for loop in ("T.Parallel", "T.serial"):
        body = f"for i in {loop}({shape[1:-2]}):\n" + "".join(
            f"    {name.lower()} = {name}[i]\n" for name in operands
        )
        made = program(
            f"{names}; Out: {shape} {result}",
            block(body + f"    Out[i] = {text}\n"),
            outputs=["Out"],
            returns=["Out"],
        )
        results.append(simulate(made, operands).outputs[0])
    lanes, single = results
    assert lanes.dtype == single.dtype
    np.testing.assert_array_equal(lanes.view(np.uint8), single.view(np.uint8))
    return lanes


def pairs(dtype: str, *, nonzero: bool = False) -> tuple[np.ndarray, np.ndarray]:
    values = EDGES[dtype]
    a, b = zip(*[(x, y) for x in values for y in values if y or not nonzero], strict=True)
    return np.array(a, dtype), np.array(b, dtype)


def wrapped(values: list[int], dtype: str) -> np.ndarray:
    bits = np.dtype(dtype).itemsize * 8
    unsigned = np.array([value % 2**bits for value in values], f"uint{bits}")
    return unsigned.view(dtype)


def truncated(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


INTEGER = {
    "a + b": lambda a, b: a + b,
    "a - b": lambda a, b: a - b,
    "a * b": lambda a, b: a * b,
    "a & b": lambda a, b: a & b,
    "a | b": lambda a, b: a | b,
    "a ^ b": lambda a, b: a ^ b,
    "T.min(a, b)": min,
    "T.max(a, b)": max,
}
DIVISION = {
    "a // b": lambda a, b: a // b,
    "a % b": lambda a, b: a % b,
    "T.truncdiv(a, b)": truncated,
    "T.truncmod(a, b)": lambda a, b: a - b * truncated(a, b),
}


@pytest.mark.parametrize("dtype", EDGES)
@pytest.mark.parametrize("text", [*INTEGER, *DIVISION])
def test_integers_wrap(text: str, dtype: str) -> None:
    a, b = pairs(dtype, nonzero=text in DIVISION)
    function = {**INTEGER, **DIVISION}[text]
    expected = wrapped([function(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)], dtype)
    np.testing.assert_array_equal(evaluate(text, dtype, A=a, B=b), expected)


@pytest.mark.parametrize("text", ["a == b", "a != b", "a < b", "a <= b", "a > b", "a >= b"])
def test_comparisons_give_conditions(text: str) -> None:
    a, b = pairs("int32")
    expected = eval(text, {"a": a, "b": b})
    np.testing.assert_array_equal(evaluate(text, "bool", A=a, B=b), expected)


@pytest.mark.parametrize("dtype", ["int32", "uint8"])
def test_shifts_are_arithmetic_on_signed_integers(dtype: str) -> None:
    a = np.array(EDGES[dtype], dtype)
    b = np.array([0, 1, 2, 3, 4, 5, 6, 7, 1, 2], dtype)
    assert (evaluate("a >> b", dtype, A=a, B=b) == a >> b).all()
    assert (evaluate("a << b", dtype, A=a, B=b) == np.left_shift(a, b)).all()


def test_unary_operators() -> None:
    a = np.array(EDGES["int32"], "int32")
    assert (evaluate("-a", "int32", A=a) == wrapped([-x for x in a.tolist()], "int32")).all()
    assert (evaluate("~a", "int32", A=a) == ~a).all()
    assert (evaluate("T.abs(a)", "int32", A=a) == np.abs(a)).all()
    assert (evaluate("not a < 3", "bool", A=a) == ~(a < 3)).all()


def test_integer_power() -> None:
    a = np.array([2, 3, -2, -1, 1, 0, 7, -1, 5, 2], "int32")
    b = np.array([10, 4, 3, 5, -3, 0, 30, -3, -1, 31], "int32")
    expected = wrapped([1024, 81, -8, -1, 1, 1, 7**30, -1, 0, 2**31], "int32")
    np.testing.assert_array_equal(evaluate("T.pow(a, b)", "int32", A=a, B=b), expected)


@pytest.mark.parametrize("text", ["a // b", "a % b", "T.truncdiv(a, b)", "T.truncmod(a, b)"])
@pytest.mark.parametrize("loop", ["Parallel", "serial"])
def test_division_by_zero_is_an_error(text: str, loop: str) -> None:
    made = program(
        "A: (4,) int32; B: (4,) int32; Out: (4,) int32",
        block(f"""
        for i in T.{loop}(4):
            a = A[i]
            b = B[i]
            Out[i] = {text}
        """),
    )
    a = np.arange(4, dtype=np.int32)
    with pytest.raises(RunError) as caught:
        simulate(made, {"A": a, "B": a, "Out": a})
    assert caught.value.message == "integer division by zero"


def test_a_guarded_division_by_zero_is_none() -> None:
    a, b = np.array([7, 8, 9], "int32"), np.array([2, 0, 4], "int32")
    np.testing.assert_array_equal(
        evaluate("a // b if b != 0 else -1", "int32", A=a, B=b), [3, -1, 2]
    )


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("text", ["a + b", "a - b", "a * b", "a / b"])
def test_floats_round_after_each_operation(text: str, dtype: str) -> None:
    storage = np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(200).astype(storage) for _ in range(2))
    wide = (a.astype(np.float64), b.astype(np.float64)) if dtype != "float64" else (a, b)
    expected = eval(text, {"a": wide[0], "b": wide[1]}).astype(storage)
    found = evaluate(text, dtype, A=a, B=b)
    np.testing.assert_array_equal(found.astype(np.float64), expected.astype(np.float64))


def test_16_bit_sums_are_rounded_step_by_step() -> None:
    a = np.array([2048.0], "float16")
    # 2048 + 1 is 2048 in float16, twice; in one step it would be 2050.
    assert evaluate("a + T.float16(1.0) + T.float16(1.0)", "float16", A=a).tolist() == [2048.0]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_minimum_and_maximum_of_floats_ignore_nan_unless_asked(dtype: str) -> None:
    nan = math.nan
    a, b = np.array([1, nan, 2, nan], dtype), np.array([nan, 3, 5, nan], dtype)
    np.testing.assert_array_equal(evaluate("T.max(a, b)", dtype, A=a, B=b), [1, 3, 5, nan])
    np.testing.assert_array_equal(evaluate("T.min(a, b)", dtype, A=a, B=b), [1, 3, 2, nan])
    np.testing.assert_array_equal(evaluate("T.max_nan(a, b)", dtype, A=a, B=b), [nan, nan, 5, nan])
    np.testing.assert_array_equal(evaluate("T.min_nan(a, b)", dtype, A=a, B=b), [nan, nan, 2, nan])


CASTS = [
    ("float32", "int32", [2.9, -2.9, 0.5, -0.5], [2, -2, 0, 0]),
    ("int32", "int8", [127, 128, -129, 256], [127, -128, 127, 0]),
    ("int32", "uint8", [-1, 256, 257, 5], [255, 0, 1, 5]),
    ("int32", "bool", [0, 1, -1, 256], [False, True, True, True]),
    ("float32", "bool", [0.0, -0.0, 0.5, math.nan], [False, False, True, True]),
    ("bool", "float32", [True, False], [1.0, 0.0]),
    ("float32", "float16", [1.0009765625, 65520.0, 1e-8], [1.0009765625, math.inf, 0.0]),
    ("float64", "float32", [1 + 2**-24, 1 + 3 * 2**-24], [1.0, 1 + 2**-22]),
    ("uint32", "float32", [2**32 - 1, 16777217], [4294967296.0, 16777216.0]),
    ("int64", "int32", [2**40 + 5, -(2**31) - 1], [5, 2**31 - 1]),
]


@pytest.mark.parametrize(("source", "target", "values", "expected"), CASTS)
def test_casts(source: str, target: str, values: list[float], expected: list[float]) -> None:
    found = evaluate(f"T.{target}(a)", target, A=np.array(values, source))
    np.testing.assert_array_equal(found, np.array(expected, target))


def test_bfloat16_rounds_to_nearest_even() -> None:
    found = evaluate("T.bfloat16(a)", "bfloat16", A=np.array([1 + 2**-8, 1 + 3 * 2**-8], "float32"))
    np.testing.assert_array_equal(found.astype(np.float32), [1.0, 1 + 2**-6])


def test_reinterpretation_keeps_the_bits() -> None:
    a = np.array([1.0, -0.0, math.inf], "float32")
    np.testing.assert_array_equal(
        evaluate('T.reinterpret(a, "int32")', "int32", A=a), a.view("int32")
    )


FUNCTIONS = {
    "exp": math.exp,
    "exp2": lambda x: 2.0**x,
    "exp10": lambda x: 10.0**x,
    "log": math.log,
    "log2": math.log2,
    "log10": math.log10,
    "log1p": math.log1p,
    "sqrt": math.sqrt,
    "rsqrt": lambda x: 1 / math.sqrt(x),
    "sin": math.sin,
    "cos": math.cos,
    "tan": math.tan,
    "sinh": math.sinh,
    "cosh": math.cosh,
    "tanh": math.tanh,
    "atan": math.atan,
    "erf": math.erf,
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "floor": math.floor,
    "ceil": math.ceil,
    "trunc": math.trunc,
    "round": lambda x: math.floor(x + 0.5),
    "nearbyint": round,
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_functions_are_rounded_once(name: str, dtype: str) -> None:
    a = np.array([0.125, 0.5, 1.0, 1.5, 2.5, 3.75, 4.5], dtype)
    expected = np.array([FUNCTIONS[name](x) for x in a.astype(np.float64).tolist()])
    found = evaluate(f"T.{name}(a)", dtype, A=a).astype(np.float64)
    spacing = np.abs(np.spacing(expected.astype(dtype))).astype(np.float64)
    assert (np.abs(found - expected) <= 0.5001 * spacing + (dtype == "float64") * spacing).all()


def test_counting_and_classifying() -> None:
    a = np.array([0, 1, -1, 255], "int32")
    assert evaluate("T.popcount(a)", "int32", A=a).tolist() == [0, 1, 32, 8]
    b = np.array([0.0, math.nan, math.inf, -math.inf], "float32")
    assert evaluate("T.isnan(a)", "bool", A=b).tolist() == [False, True, False, False]
    assert evaluate("T.isinf(a)", "bool", A=b).tolist() == [False, False, True, True]


def test_fused_multiply_add_rounds_once() -> None:
    a, b, c = (np.array([x], "float32") for x in (1 + 2**-12, 1 + 2**-12, -1.0))
    assert evaluate("T.fma(a, b, c)", "float32", A=a, B=b, C=c).tolist() == [2**-11 + 2**-24]
    assert evaluate("a * b + c", "float32", A=a, B=b, C=c).tolist() == [2**-11]
