"""dtype objects: strings that carry facts, make constants and casts, and convert to other
libraries' types.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tileworkbench.language as T
from tileworkbench.compiler.ir.types import DType


def test_a_dtype_is_its_name() -> None:
    assert T.float16 == "float16"
    assert T.float16.startswith("float")
    assert isinstance(T.float16, str)
    assert {T.int8: 1}["int8"] == 1
    assert f"{T.bfloat16}" == "bfloat16"
    assert repr(T.bfloat16) == "T.bfloat16"


def test_facts() -> None:
    assert (T.float16.bits, T.float16.bytes, T.float16.itemsize, T.float16.lanes) == (16, 2, 2, 1)
    assert (T.float32x4.bits, T.float32x4.bytes, T.float32x4.lanes) == (32, 16, 4)
    assert T.int8.with_lanes(4) == "int8x4"
    assert T.int32.is_int
    assert T.uint8.is_int
    assert not T.bool.is_int
    assert T.float8_e5m2.is_float
    assert T.float8_e5m2.is_float8 and T.float8_e5m2.is_float8()
    assert T.float4_e2m1fnx2.is_float4() and not T.float16.is_float4()
    assert repr(T.float16.is_float4) == "False"


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("short", "int16"),
        ("int", "int32"),
        ("uint", "uint32"),
        ("long", "int64"),
        ("half", "float16"),
        ("float", "float32"),
        ("double", "float64"),
        ("float8_e4m3", "float8_e4m3fn"),
        ("ptr", "handle"),
    ],
)
def test_aliases(alias: str, name: str) -> None:
    assert getattr(T, alias) == name


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("float16", "float16"),
        ("half", "float16"),
        (T.int8, "int8"),
        (DType("uint8"), "uint8"),
        (int, "int32"),
        (float, "float32"),
        (bool, "bool"),
        (np.float64, "float64"),
        (np.bool_, "bool"),
        (np.dtype("uint16"), "uint16"),
        (ml_dtypes.bfloat16, "bfloat16"),
        (np.dtype(ml_dtypes.float8_e5m2), "float8_e5m2"),
        ("int8x4", "int8x4"),
    ],
)
def test_dtype_of_other_things(given: Any, name: str) -> None:
    assert T.dtype(given) == name


def test_torch_dtypes_go_both_ways() -> None:
    torch = pytest.importorskip("torch")
    for name in ("float16", "bfloat16", "float32", "float64", "int8", "uint8", "int64", "bool"):
        assert T.dtype(getattr(torch, name)) == name
        assert T.dtype(name).as_torch() is getattr(torch, name)
        assert getattr(torch, T.dtype(name)) is getattr(torch, name)
    assert T.float8_e4m3.as_torch() is torch.float8_e4m3fn
    assert T.tfloat32.as_torch() is torch.float32
    pairs = torch.float4_e2m1fn_x2
    assert T.float4_e2m1fnx2.as_torch() is pairs and T.float4_e2m1fn.as_torch() is pairs
    assert T.dtype(pairs) == T.float4_e2m1fnx2
    with pytest.raises(TypeError, match="torch has no dtype for 'handle'"):
        T.ptr.as_torch()


def test_numpy_dtypes() -> None:
    assert T.float16.as_numpy() == np.dtype("float16")
    assert T.bool.as_numpy() == np.dtype("bool")
    assert T.bfloat16.as_numpy() == np.dtype(ml_dtypes.bfloat16)
    assert T.tfloat32.as_numpy() == np.dtype("float32")
    with pytest.raises(TypeError, match="numpy has no dtype for 'int8x4'"):
        T.int8x4.as_numpy()


@pytest.mark.parametrize("given", ["float17", "texture", 3, None, "int8x0"])
def test_what_is_no_dtype(given: Any) -> None:
    with pytest.raises(TypeError, match="is not a dtype"):
        T.dtype(given)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (lambda: T.float32(3), "3.0"),
        (lambda: T.int8(300), "T.int8(44)"),
        (lambda: T.float16(0.1), "T.float16(0.0999755859375)"),
        (lambda: T.float32(float("inf")), 'T.float32("inf")'),
        (lambda: T.float32("-inf"), 'T.float32("-inf")'),
        (lambda: T.bool(2), "True"),
        (lambda: T.int32(T.int64(7)), "7"),
        (lambda: T.int32(np.int64(7)), "7"),
    ],
)
def test_calling_a_dtype_makes_a_constant(value: Any, text: str) -> None:
    assert repr(value()) == text


def test_calling_a_dtype_without_an_argument_makes_a_variable() -> None:
    assert T.int32().dtype == "int32"
    assert T.int32().name == "v"


def test_constants_behave_as_python_numbers_where_they_can() -> None:
    assert int(T.int32(5)) == 5
    assert [0, 1, 2][T.int32(1)] == 1
    assert float(T.float32(0.5)) == 0.5
    assert bool(T.int32(3) > 2)
    assert list(range(T.int32(3))) == [0, 1, 2]
