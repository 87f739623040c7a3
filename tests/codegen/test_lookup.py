"""Tables of sixteen constants at every level: each code, in vectors of every width."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from tests.codegen.jit import Jit, Level, export, host_levels
from tileworkbench.compiler.codegen.lookup import lookup
from tileworkbench.compiler.codegen.text import FunctionWriter, VectorType
from tileworkbench.compiler.ir.types import DType

FLOATS = (0.0, -0.0, 1.5, -2.25, float("inf"), -1e-40, 3e38, *(0.1 * n for n in range(9)))
INTEGERS = (0, -1, 2**31 - 1, -(2**31), *range(12))


@pytest.mark.parametrize("level", host_levels(), ids=lambda level: level.isa.name)
@pytest.mark.parametrize("lanes", [2, 4, 8, 16, 32, 64])
@pytest.mark.parametrize(("dtype", "table"), [("float32", FLOATS), ("int32", INTEGERS)])
def test_every_code(level: Level, lanes: int, dtype: str, table: tuple[float, ...]) -> None:
    writer = FunctionWriter("choose", "void", "ptr %codes, ptr %found")
    element = "float" if dtype == "float32" else "i32"
    code = writer.let(f"load {VectorType('i32', lanes)}, ptr %codes, align 4")
    value = lookup(writer, level.isa, code, lanes, table, DType(dtype))
    writer.do(f"store {VectorType(element, lanes)} {value}, ptr %found, align 4")
    jit = Jit([export(writer.finish())], level)
    choose = jit.function("choose", ctypes.c_void_p, ctypes.c_void_p)
    expected = np.array(table, dtype)
    for first in range(0, 16, lanes):
        # Bits above the lowest four do not count.
        codes = np.arange(first, first + lanes, dtype=np.int32) % 16 + 16 * np.arange(lanes) - 64
        codes, found = codes.astype(np.int32), np.empty(lanes, dtype)
        choose(codes.ctypes.data, found.ctypes.data)
        assert found.tobytes() == expected[codes & 15].tobytes()
