"""Formulas of a manifest: the package's evaluation = the shipped one = C."""

from __future__ import annotations

import ctypes
import operator
import random
import shutil
import subprocess
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tileworkbench.compiler.analysis.evaluate import WrappedSizeError as PackageWrapped
from tileworkbench.compiler.analysis.evaluate import exact_size
from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.compiler.ir import build
from tileworkbench.compiler.ir.expr import Binary, Call, Cast, Expr, Select, Unary, Var
from tileworkbench.compiler.ir.types import BOOL, FLOAT32, INT32, INT64
from tileworkbench.shipping.formulas import HELPERS, c_text, formula_of
from tileworkbench.shipping.shipped.formulas import (
    OPERATIONS,
    WrappedSizeError,
    evaluate,
    limits,
)
from tileworkbench.shipping.shipped.loader import _bfloat16

NAMES = ("M", "N", "k")
ARITHMETIC = ("add", "sub", "mul", "floordiv", "floormod", "truncdiv", "truncmod", "min", "max")
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


def random_expression(random_: random.Random, depth: int) -> Expr:
    """An integer expression of three variables."""
    if depth == 0:
        if random_.random() < 0.5:
            return Var(random_.choice(NAMES), INT64)
        return build.const(random_.randint(-9, 200), INT64)
    kind = random_.random()
    a, b = (random_expression(random_, depth - 1) for _ in range(2))
    if kind < 0.75:
        return Binary(random_.choice(ARITHMETIC), a, b, INT64)
    if kind < 0.9:
        condition = Binary(random_.choice(COMPARISONS), a, b, BOOL)
        if random_.random() < 0.3:
            other = Binary("lt", a, build.const(5, INT64), BOOL)
            condition = Binary(
                random_.choice(("logical_and", "logical_or")), condition, other, BOOL
            )
        if random_.random() < 0.3:
            condition = Unary("not", condition, BOOL)
        return Select(condition, a, b, False, INT64)
    return Unary(random_.choice(("neg", "abs")), a, INT64)


def test_the_shipped_evaluation_is_the_packages() -> None:
    random_ = random.Random(7)
    compared = 0
    for _ in range(400):
        value = random_expression(random_, random_.randint(1, 4))
        numbers = {name: random_.randint(-50, 300) for name in NAMES}
        try:
            expected = exact_size(value, numbers)
        except ZeroDivisionError:
            with pytest.raises(ZeroDivisionError):
                evaluate(formula_of(value), numbers)
            continue
        assert evaluate(formula_of(value), numbers) == expected, value
        compared += 1
    assert compared > 200


def test_c_computes_the_same(tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("this machine has no C compiler")
    random_ = random.Random(11)
    values = [random_expression(random_, random_.randint(1, 4)) for _ in range(150)]
    lines = ["#include <stdint.h>", HELPERS]
    for at, value in enumerate(values):
        text = c_text(formula_of(value), {name: name for name in NAMES})
        lines.append(f"int64_t f{at}(int64_t M, int64_t N, int64_t k) {{ return {text}; }}")
    (tmp_path / "formulas.c").write_text("\n".join(lines))
    command = [compiler, "-shared", "-fPIC", "-w", "-o", "formulas.so", "formulas.c"]
    subprocess.run(command, check=True, cwd=tmp_path)
    library = ctypes.CDLL(str(tmp_path / "formulas.so"))
    compared = 0
    for at, value in enumerate(values):
        function = library[f"f{at}"]
        function.restype, function.argtypes = ctypes.c_int64, [ctypes.c_int64] * 3
        for _ in range(5):
            numbers = {name: random_.randint(-50, 300) for name in NAMES}
            try:
                expected = exact_size(value, numbers)
            except ZeroDivisionError:
                continue
            assert function(*numbers.values()) == expected, value
            compared += 1
    assert compared > 400


def test_every_operation_is_known_to_c() -> None:
    for name in OPERATIONS:
        operands = 3 if name == "select" else 1 if name in ("not", "neg", "abs", "cast") else 2
        assert "x" in c_text([name, "int64", *("x" for _ in range(operands))], {"x": "x"})


def test_a_number_that_its_dtype_does_not_hold_is_an_error() -> None:
    value = Binary("mul", Var("M", INT32), Var("N", INT32), INT32)
    numbers = {"M": 1 << 20, "N": 1 << 20}
    with pytest.raises(PackageWrapped):
        exact_size(value, numbers)
    with pytest.raises(WrappedSizeError) as caught:
        evaluate(formula_of(value), numbers)
    assert (caught.value.number, caught.value.dtype) == (1 << 40, "int32")
    assert limits("uint8") == (0, 255)
    assert limits("int16") == (-32768, 32767)
    assert evaluate(formula_of(Cast(Var("M", INT32), INT64)), numbers) == 1 << 20


def test_sizes_are_integers() -> None:
    value = Cast(Call("sqrt", (Cast(Var("M", INT32), FLOAT32),), FLOAT32), INT32)
    message = (
        "a shipped kernel computes its sizes with integers, and not "
        "'T.int32(T.sqrt(T.float32(M)))'\n"
        "hint: compute it before the call and pass it as an argument"
    )
    with pytest.raises(UnsupportedError) as caught:
        formula_of(value)
    assert str(caught.value).endswith(message)


def test_bfloat16_is_rounded_once() -> None:
    random_ = random.Random(3)
    numbers = [0.0, -0.0, 1.0, float("inf"), float("-inf"), 1 + 2**-8, 1 + 3 * 2**-8, 2.0**-133]
    numbers += [2.0**-134, 1.5 * 2.0**-134, 2.0**-140, 2.0**-126 * (1 - 2**-9)]
    numbers += [random_.uniform(-1, 1) * 2.0 ** random_.randint(-136, 126) for _ in range(2000)]
    for number in numbers:
        # ml_dtypes rounds a double by way of a float32: compare where that is exact.
        single = float(np.float32(number))
        expected = int(np.asarray(single, ml_dtypes.bfloat16).view(np.uint16))
        assert _bfloat16(single) == expected, number
    halfway = 1 + 2.0**-8 + 2.0**-40  # by way of float32 this is a tie, which it is not
    assert _bfloat16(halfway) == 0x3F81
    assert _bfloat16(float("nan")) == 0x7FC0
    with pytest.raises(OverflowError):
        _bfloat16(3.4e38 * 10)
    assert operator.index(_bfloat16(3.0)) == 0x4040
