"""Emitted elementary functions and conversions against float64 references, lane by lane."""

from __future__ import annotations

import ctypes
import itertools
import math
import platform
import re
from collections.abc import Callable
from ctypes.util import find_library

import ml_dtypes
import numpy as np
import pytest

from tests.emit.emitters import emit_convert
from tests.emit.jit import Jit, Level, host_levels
from tileworkbench.compiler.emit.llvm.isa import GENERIC
from tileworkbench.compiler.emit.llvm.text import EmittedFunction, storage_type
from tileworkbench.compiler.emit.llvm.vector_math import (
    BINARY_OPS,
    UNARY_OPS,
    emit_vector_math,
)

LANES = (1, 4, 8, 16)
FE_UNDERFLOW = 0x10 if platform.machine() == "x86_64" else 0x08  # fenv.h
EVERY_LEVEL = pytest.mark.parametrize("level", host_levels(), ids=lambda level: level.isa.name)
NUMPY = {
    "float64": np.dtype(np.float64),
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.uint16),
    "bfloat16": np.dtype(np.uint16),
}


def map_loop(function: EmittedFunction, source: str, target: str, lanes: int, inputs: int) -> str:
    """Return `run_{name}(x, y, out, n)`, which applies a function to n / lanes groups of lanes."""
    have, want = storage_type(source, lanes), storage_type(target, lanes)
    reads, arguments = [], []
    for name in "xy"[:inputs]:
        reads.append(f"%p{name} = getelementptr {storage_type(source)}, ptr %{name}, i64 %i")
        reads.append(f"%v{name} = load {have}, ptr %p{name}, align 1")
        arguments.append(f"{have} %v{name}")
    lines = "\n  ".join(reads)
    return f"""
define void @run_{function.name}(ptr %x, ptr %y, ptr %out, i64 %n) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  {lines}
  %r = call {want} @{function.name}({", ".join(arguments)})
  %po = getelementptr {storage_type(target)}, ptr %out, i64 %i
  store {want} %r, ptr %po, align 1
  %next = add i64 %i, {lanes}
  %done = icmp sge i64 %next, %n
  br i1 %done, label %exit, label %loop
exit:
  ret void
}}
"""


def run(jit: Jit, name: str, target: str, *inputs: np.ndarray) -> np.ndarray:
    pointer = ctypes.c_void_p
    out = np.empty(inputs[0].size, NUMPY[target])
    function = jit.function(f"run_{name}", pointer, pointer, pointer, ctypes.c_int64)
    function(inputs[0].ctypes.data, inputs[-1].ctypes.data, out.ctypes.data, out.size)
    return out


def sweep() -> np.ndarray:
    """Return float32 values of every magnitude, dense where functions bend, and special ones."""
    every = np.arange(0, 2**32, 9973, dtype=np.uint64).astype(np.uint32).view(np.float32)
    specials = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 1.4e-45, -1.4e-45, 1.2e-38]
    edges = [-200.0, 200.0, 88.72, 88.73, -87.4, -103.9, -104.1, 127.99999, 128.0, -149.0, -150.1]
    quarters = np.arange(-4000, 4000) * (math.pi / 2)
    large = [*np.linspace(-2e6, 2e6, 16000), *quarters]
    lines = [
        large,
        np.linspace(-110, 95, 60000),
        np.linspace(-5, 5, 60000),
        np.linspace(0.5, 2, 60000),
    ]
    rest = np.concatenate([*lines, specials, edges]).astype(np.float32)
    values = np.concatenate([every, rest])
    return np.resize(values, -(-values.size // 32) * 32)


def ulps(got: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Return errors in units in the last place of float32, infinite for a wrong special value."""
    rounded = reference.astype(np.float32)
    error = np.abs(got.astype(np.float64) - reference) / np.spacing(np.abs(rounded))
    right = np.where(np.isnan(reference), np.isnan(got), got == rounded)
    return np.where(np.isfinite(rounded), error, np.where(right, 0.0, np.inf))


def sigmoid(x: np.ndarray) -> np.ndarray:
    decay = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, decay) / (1.0 + decay)


def each(function: Callable[[float], float]) -> Callable[[np.ndarray], np.ndarray]:
    return np.vectorize(function, otypes=[np.float64])


REFERENCES: dict[str, tuple[Callable[[np.ndarray], np.ndarray], float]] = {
    "exp": (np.exp, 2.0),
    "exp2": (np.exp2, 2.0),
    "exp10": (lambda x: np.power(10.0, x), 2.0),
    "log": (np.log, 2.0),
    "log2": (np.log2, 2.0),
    "log10": (np.log10, 2.0),
    "log1p": (np.log1p, 4.0),
    "rsqrt": (lambda x: 1.0 / np.sqrt(x), 2.0),
    "sqrt": (np.sqrt, 0.5),
    "sin": (np.sin, 1.0),
    "cos": (np.cos, 1.0),
    "atan": (np.arctan, 2.0),
    "tanh": (np.tanh, 4.0),
    "erf": (each(math.erf), 4.0),
    "sigmoid": (sigmoid, 4.0),
}


@pytest.fixture(scope="module")
def samples() -> tuple[np.ndarray, dict[str, np.ndarray]]:
    values = sweep()
    with np.errstate(all="ignore"):
        wide = values.astype(np.float64)
        return values, {op: reference(wide) for op, (reference, _) in REFERENCES.items()}


@EVERY_LEVEL
def test_float32_functions(level: Level, samples: tuple[np.ndarray, dict[str, np.ndarray]]) -> None:
    values, references = samples
    functions = {
        (op, lanes): emit_vector_math(op, "float32", lanes, level.isa)
        for op in REFERENCES
        for lanes in (*LANES, 32)
    }
    loops = "".join(
        map_loop(function, "float32", "float32", lanes, 1)
        for (_, lanes), function in functions.items()
    )
    jit = Jit(list(functions.values()), level, loops)
    with np.errstate(all="ignore"):
        for (op, lanes), function in functions.items():
            error = ulps(run(jit, function.name, "float32", values), references[op])
            worst = int(np.argmax(error))
            assert error[worst] <= REFERENCES[op][1], (op, lanes, values[worst])


def test_nothing_saturates() -> None:
    level = host_levels()[-1]
    function = emit_vector_math("exp", "float32", 4, level.isa)
    jit = Jit([function], level, map_loop(function, "float32", "float32", 4, 1))
    values = np.array([-200.0, 200.0, -100.0, math.nan], np.float32)
    got = run(jit, function.name, "float32", values)
    assert got[0] == 0.0 and got[1] == math.inf and math.isnan(got[3])
    assert got[2] == np.float32(math.exp(-100.0)) and 0.0 < got[2] < 2.0**-126


@EVERY_LEVEL
@pytest.mark.parametrize("op", ["exp", "exp2", "exp10", "sigmoid"])
def test_what_becomes_zero_is_not_computed(op: str, level: Level) -> None:
    """Where a product underflows, Intel's cores leave the fast path for 150 cycles: masked scores
    of attention would take most of its time.
    """
    functions = [emit_vector_math(op, "float32", lanes, level.isa) for lanes in LANES]
    loops = "".join(
        map_loop(function, "float32", "float32", lanes, 1)
        for function, lanes in zip(functions, LANES, strict=True)
    )
    jit, libm = Jit(functions, level, loops), ctypes.CDLL(find_library("m"))
    for function in functions:
        for lowest, has_underflow in ((-1e30, False), (-math.inf, False), (-149.5, op == "exp2")):
            values = np.full(16, lowest, np.float32)
            libm.feclearexcept(FE_UNDERFLOW)
            got = run(jit, function.name, "float32", values)
            assert bool(libm.fetestexcept(FE_UNDERFLOW)) is has_underflow, (function.name, lowest)
            assert op == "exp2" or not got.any()


def test_signed_zeros() -> None:
    level = host_levels()[0]
    functions = [
        emit_vector_math(op, "float32", 4, level.isa)
        for op in ("tanh", "erf", "sqrt", "sin", "log1p", "atan")
    ]
    loops = "".join(map_loop(function, "float32", "float32", 4, 1) for function in functions)
    jit = Jit(functions, level, loops)
    values = np.array([0.0, -0.0, 0.0, -0.0], np.float32)
    for function in functions:
        assert run(jit, function.name, "float32", values).tobytes() == values.tobytes()


def pairs() -> tuple[np.ndarray, np.ndarray]:
    """Edges with each other, and numbers of all sizes whose powers are seldom 0 or infinite."""
    edges = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 7.25, 1e-45, 1e-39, 3e38, 1e9, 2.0**24 - 1, math.inf]
    edges = [math.nan, *edges, *(-edge for edge in edges), 1 + 2.0**-23, 1 - 2.0**-24]
    x, y = (each.ravel() for each in np.meshgrid(edges, edges))
    random = np.random.default_rng(0)
    base = np.exp2(random.uniform(-149, 128, 100_000))
    exponent = random.uniform(-150, 150, len(base)) / np.log2(base)
    x = np.concatenate([x, base, -base, 1 + random.uniform(-1e-4, 1e-4, len(base))])
    y = np.concatenate([y, exponent, np.rint(exponent), random.uniform(-1e6, 1e6, len(base))])
    size = len(x) // 32 * 32
    return x[:size].astype(np.float32), y[:size].astype(np.float32)


@EVERY_LEVEL
@pytest.mark.parametrize(("op", "bound"), [("pow", 0.51), ("fmod", 0.0)])
def test_float32_functions_of_two(level: Level, op: str, bound: float) -> None:
    """Beside those of the C library in double."""
    x, y = pairs()
    kinds = [(op, "float64", 4), *((op, "float32", lanes) for lanes in (*LANES, 32))]
    functions = [emit_vector_math(*kind, level.isa) for kind in kinds]
    loops = "".join(
        map_loop(function, dtype, dtype, lanes, 2)
        for function, (_, dtype, lanes) in zip(functions, kinds, strict=True)
    )
    jit = Jit(functions, level, loops)
    wide = (each.astype(np.float64) for each in (x, y))
    expected = run(jit, functions[0].name, "float64", *wide)
    for function in functions[1:]:
        got = run(jit, function.name, "float32", x, y)
        with np.errstate(all="ignore"):
            error = ulps(got, expected)
        worst = int(np.argmax(error))
        assert error[worst] <= bound, (function.name, x[worst], y[worst], got[worst])
        zero = expected == 0
        assert np.array_equal(np.signbit(got[zero]), np.signbit(expected[zero]))


@EVERY_LEVEL
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_function_compiles_and_agrees_with_numpy(level: Level, dtype: str) -> None:
    special = {
        "abs": np.abs,
        "asin": np.arcsin,
        "acos": np.arccos,
        "atan": np.arctan,
        "asinh": np.arcsinh,
        "acosh": np.arccosh,
        "atanh": np.arctanh,
        "atan2": np.arctan2,
        "pow": np.power,
        "round": each(lambda v: math.floor(v + 0.5)),
        "erfc": each(math.erfc),
    } | {op: reference for op, (reference, _) in REFERENCES.items()}
    functions = {op: emit_vector_math(op, dtype, 4, level.isa) for op in (*UNARY_OPS, *BINARY_OPS)}
    loops = "".join(
        map_loop(function, dtype, dtype, 4, 2 if op in BINARY_OPS else 1)
        for op, function in functions.items()
    )
    jit = Jit(list(functions.values()), level, loops)
    x = np.array([0.1, 0.25, 0.7, 0.9], NUMPY[dtype])
    y = np.array([2.0, -1.5, 0.3, 0.5], NUMPY[dtype])
    for op, function in functions.items():
        above = x + 1 if op == "acosh" else x
        inputs = (above, y) if op in BINARY_OPS else (above,)
        reference = special.get(op) or getattr(np, op)
        expected = reference(*(value.astype(np.float64) for value in inputs))
        got = run(jit, function.name, dtype, *inputs)
        np.testing.assert_allclose(got, expected, rtol=4 * np.finfo(NUMPY[dtype]).eps, err_msg=op)


@pytest.mark.covering(1)
@EVERY_LEVEL
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_conversions_are_exact_in_every_bit(level: Level, dtype: str) -> None:
    single = np.arange(0, 2**32, 1499, dtype=np.uint64).astype(np.uint32)
    short = np.arange(2**16, dtype=np.uint16)
    # Every 16-bit value with its neighbours and the ties half way to the next one.
    element = np.dtype(np.float16) if dtype == "float16" else np.dtype(ml_dtypes.bfloat16)
    with np.errstate(all="ignore"):
        wide = short.view(element).astype(np.float32).view(np.uint32)
    half = 1 << (12 if dtype == "float16" else 15)
    near = [wide + np.uint32(offset % 2**32) for offset in (0, half - 1, half, half + 1)]
    single = np.concatenate([single, *near])
    single = np.resize(single, -(-single.size // 16) * 16).view(np.float32)
    functions, loops = [], ""
    for lanes, (source, target) in itertools.product(
        LANES, ((dtype, "float32"), ("float32", dtype))
    ):
        functions.append(emit_convert(source, target, lanes, level.isa))
        loops += map_loop(functions[-1], source, target, lanes, 1)
    jit = Jit(functions, level, loops)
    with np.errstate(all="ignore"):
        narrowed = single.astype(element).view(np.uint16)
    not_nan = ~np.isnan(single)
    for lanes in LANES:
        got = run(jit, f"convert_{dtype}_float32_x{lanes}", "float32", short).view(np.uint32)
        is_nan = np.isnan(wide.view(np.float32))
        np.testing.assert_array_equal(got[~is_nan], wide[~is_nan])
        assert np.isnan(got.view(np.float32)[is_nan]).all()
        np.testing.assert_array_equal(got[is_nan] >> 31, short[is_nan] >> 15)
        got = run(jit, f"convert_float32_{dtype}_x{lanes}", dtype, single)
        np.testing.assert_array_equal(got[not_nan], narrowed[not_nan])
        assert np.isnan(got[~not_nan].view(element).astype(np.float32)).all()
        np.testing.assert_array_equal(got[~not_nan] >> 15, single.view(np.uint32)[~not_nan] >> 31)


def test_levels_convert_nan_alike() -> None:
    nan = np.array([0x7F800001, 0xFFC12345, 0x7FBFFFFF, 0xFF812000], np.uint32).view(np.float32)
    results = set()
    for level in host_levels():
        function = emit_convert("float32", "float16", 4, level.isa)
        jit = Jit([function], level, map_loop(function, "float32", "float16", 4, 1))
        results.add(run(jit, function.name, "float16", nan).tobytes())
    assert len(results) == 1


def test_unknown_functions_and_dtypes_are_refused() -> None:
    with pytest.raises(ValueError, match=re.escape("unknown function 'gamma'")):
        emit_vector_math("gamma", "float32", 4, GENERIC)
    message = "vector mathematics is in 'float32' or 'float64', not 'float16'"
    with pytest.raises(ValueError, match=message):
        emit_vector_math("exp", "float16", 4, GENERIC)
