"""Tables of sixteen numbers at every level: each code, in vectors of every width."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from tests.emit.jit import Jit, Level, export, host_levels
from tileworkbench.compiler.emit.llvm.lookup import lane_at, lookup
from tileworkbench.compiler.emit.llvm.text import FunctionWriter, VectorType
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


@pytest.mark.parametrize("level", host_levels(), ids=lambda level: level.isa.name)
@pytest.mark.parametrize("lanes", [16, 32, 64])
def test_a_lane_of_a_vector_by_the_low_four_bits(level: Level, lanes: int) -> None:
    if level.isa.level != "avx512":
        pytest.skip("permutations of words are AVX-512's")
    writer = FunctionWriter("choose", "void", "ptr %table, ptr %codes, ptr %found")
    table = writer.let("load <16 x i16>, ptr %table, align 2")
    code = writer.let(f"load {VectorType('i32', lanes)}, ptr %codes, align 4")
    value = lane_at(writer, table, code, lanes)
    writer.do(f"store {VectorType('i16', lanes)} {value}, ptr %found, align 2")
    jit = Jit([export(writer.finish())], level)
    choose = jit.function("choose", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    entries = np.arange(16, dtype=np.uint16) * 4369 + 7
    codes = (np.arange(lanes, dtype=np.int32) * 37 - 64).astype(np.int32)
    found = np.empty(lanes, np.uint16)
    choose(entries.ctypes.data, codes.ctypes.data, found.ctypes.data)
    assert (found == entries[codes & 15]).all()
