"""Element-wise loops: operators, functions, conditions and casts, over ragged edges."""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

import math

import numpy as np
import pytest

import tileworkbench.language as T
from tests.differential.harness import (
    ALL_LEVELS,
    check_everywhere,
    check_executors,
    equals,
    named,
    random_array,
    run_native,
    storage,
)
from tests.tolerances import assert_function, assert_ulp

M, N = 13, 37


def unary(functions, dtype, out):
    """A kernel whose output holds, for each function in turn, its values on `A`."""
    functions = functions if isinstance(functions, list) else [functions]

    def store(target, i, j, x):
        for which, function in enumerate(functions):
            target[which, i, j] = T.cast(function(x), out)

    @T.prim_func
    def kernel(A: T.Tensor((M, N), dtype)):
        Out = T.empty((len(functions), M, N), out)
        with T.Kernel(T.ceildiv(N, 16), T.ceildiv(M, 8), threads=128) as (bx, by):
            for i, j in T.Parallel(8, 16):
                store(Out, by * 8 + i, bx * 16 + j, A[by * 8 + i, bx * 16 + j])
        return Out

    return kernel


def binary(functions, dtype, out):
    """A kernel whose output holds, for each function in turn, its values on `A` and `B`."""
    functions = functions if isinstance(functions, list) else [functions]

    def store(target, i, j, x, y):
        for which, function in enumerate(functions):
            target[which, i, j] = T.cast(function(x, y), out)

    @T.prim_func
    def kernel(A: T.Tensor((M, N), dtype), B: T.Tensor((M, N), dtype)):
        Out = T.empty((len(functions), M, N), out)
        with T.Kernel(T.ceildiv(N, 16), T.ceildiv(M, 8), threads=128) as (bx, by):
            A_local = T.alloc_fragment((8, 16), dtype)
            B_local = T.alloc_fragment((8, 16), dtype)
            T.copy(A[by * 8, bx * 16], A_local)
            T.copy(B[by * 8, bx * 16], B_local)
            for i, j in T.Parallel(8, 16):
                if by * 8 + i < M and bx * 16 + j < N:
                    store(Out, by * 8 + i, bx * 16 + j, A_local[i, j], B_local[i, j])
        return Out

    return kernel


def gives(expected):
    """Out holds these arrays, by the name of the function, to the bit."""

    def check(arrays):
        for which, (name, value) in enumerate(expected.items()):
            with named(f"function '{name}'"):
                equals(Out=value)({"Out": arrays["Out"][which]})

    return check


def both(table, reference_arguments):
    """(the functions of a table, their references' values)"""
    functions = [function for function, *_ in table.values()]
    return functions, {name: row[1](*reference_arguments) for name, row in table.items()}


# Integers ------------------------------------------------------------------------------------


def truncated(a, b):
    quotient = np.abs(a.astype(object)) // np.abs(b.astype(object))
    return np.where((a < 0) == (b < 0), quotient, -quotient).astype(a.dtype)


INTEGER = {
    "sum": (lambda a, b: a + b, lambda a, b: a + b),
    "difference": (lambda a, b: a - b, lambda a, b: a - b),
    "product": (lambda a, b: a * b, lambda a, b: a * b),
    "floordiv": (lambda a, b: a // b, lambda a, b: a // b),
    "floormod": (lambda a, b: a % b, lambda a, b: a % b),
    "truncdiv": (T.truncdiv, truncated),
    "truncmod": (T.truncmod, np.fmod),
    "and": (lambda a, b: a & b, lambda a, b: a & b),
    "or": (lambda a, b: a | b, lambda a, b: a | b),
    "xor": (lambda a, b: a ^ b, lambda a, b: a ^ b),
    "shl": (lambda a, b: a << (b & 7), lambda a, b: a << (b & 7)),
    "shr": (lambda a, b: a >> (b & 7), lambda a, b: a >> (b & 7)),
    "min": (T.min, np.minimum),
    "max": (T.max, np.maximum),
}


@pytest.mark.parametrize("dtype", ["int32", "uint8", "int8", "int64", "uint32"])
def test_integer_operators(dtype):
    a, b = random_array((M, N), dtype, 1), random_array((M, N), dtype, 2)
    b[:, ::3] = b[:, ::3] % 11 + 1  # small divisors too
    b[b == 0] = 3
    functions, expected = both(INTEGER, (a, b))
    expected = {name: value.astype(dtype) for name, value in expected.items()}
    check_everywhere(binary(functions, dtype, dtype), {"A": a, "B": b}, gives(expected))


def test_division_by_a_constant():
    a = random_array((M, N), "int32")
    a[0, :5] = [0, -1, 1, -(2**31), 2**31 - 1]
    wide_a, functions, expected = a.astype(np.int64), [], {}
    for divisor in [1, 2, 3, -3, 7, 64, -1, 1000003]:
        functions += [lambda x, d=divisor: x // d, lambda x, d=divisor: x % d]
        expected[f"// {divisor}"] = (wide_a // divisor).astype(np.int32)
        expected[f"% {divisor}"] = (wide_a % divisor).astype(np.int32)
    check_everywhere(unary(functions, "int32", "int32"), {"A": a}, gives(expected))


COMPARISONS = {
    "eq": (lambda a, b: a == b, np.equal),
    "ne": (lambda a, b: a != b, np.not_equal),
    "lt": (lambda a, b: a < b, np.less),
    "le": (lambda a, b: a <= b, np.less_equal),
    "gt": (lambda a, b: a > b, np.greater),
    "ge": (lambda a, b: a >= b, np.greater_equal),
}


@pytest.mark.parametrize("dtype", ["int32", "uint32", "float32", "float16"])
def test_comparisons(dtype):
    a, b = random_array((M, N), dtype, 1), random_array((M, N), dtype, 2)
    b[::2] = a[::2]
    if "float" in dtype:
        a[3, 3] = b[4, 4] = a[5, 5] = b[5, 5] = math.nan
    functions, expected = both(COMPARISONS, (a, b))
    check_everywhere(binary(functions, dtype, "bool"), {"A": a, "B": b}, gives(expected))


# Floats --------------------------------------------------------------------------------------

FLOATS = ["float64", "float32", "float16", "bfloat16"]
ARITHMETIC = {
    "sum": (lambda a, b: a + b, np.add),
    "difference": (lambda a, b: a - b, np.subtract),
    "product": (lambda a, b: a * b, np.multiply),
    "quotient": (lambda a, b: a / b, np.divide),
}


def wide(array):
    return array.astype(np.float32) if array.dtype.itemsize < 4 else array


@pytest.mark.parametrize("dtype", FLOATS)
def test_arithmetic_rounds_once(dtype):
    a, b = random_array((M, N), dtype, 1), random_array((M, N), dtype, 2)
    functions, expected = both(ARITHMETIC, (wide(a), wide(b)))
    expected = {name: value.astype(storage(dtype)) for name, value in expected.items()}
    check_everywhere(binary(functions, dtype, dtype), {"A": a, "B": b}, gives(expected))


@pytest.mark.parametrize("dtype", FLOATS)
def test_minimum_and_maximum_ignore_nan(dtype):
    a, b = random_array((M, N), dtype, 1), random_array((M, N), dtype, 2)
    a[::3], b[::5] = math.nan, math.nan
    functions, expected = both(
        {"min": (T.min, np.fmin), "max": (T.max, np.fmax)}, (wide(a), wide(b))
    )
    expected = {name: value.astype(storage(dtype)) for name, value in expected.items()}
    check_everywhere(binary(functions, dtype, dtype), {"A": a, "B": b}, gives(expected))


def elementwise(function):
    return np.vectorize(function, otypes=[np.float64])


FUNCTIONS = {
    "exp": (np.exp,),
    "exp2": (np.exp2,),
    "log": (np.log,),
    "log2": (np.log2,),
    "log10": (np.log10,),
    "log1p": (np.log1p,),
    "sqrt": (np.sqrt,),
    "rsqrt": (lambda x: 1 / np.sqrt(x),),
    "sin": (np.sin,),
    "cos": (np.cos,),
    "tan": (np.tan,),
    "sinh": (np.sinh,),
    "cosh": (np.cosh,),
    "tanh": (np.tanh,),
    "atan": (np.arctan,),
    "erf": (elementwise(math.erf),),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)),),
    "floor": (np.floor,),
    "ceil": (np.ceil,),
    "trunc": (np.trunc,),
    "nearbyint": (np.rint,),
    "abs": (np.abs,),
}


def functions_are_close(a, names):
    """Each function of `names` is within its tolerance on the values of `a`."""
    wide_a = a.astype(np.float64)

    def check(arrays):
        for which, name in enumerate(names):
            with named(f"function '{name}'"), np.errstate(all="ignore"):
                assert_function(name, arrays["Out"][which], FUNCTIONS[name][0](wide_a))

    return check


RANGES = {
    "everywhere": (["atan", "erf", "floor", "ceil", "trunc", "nearbyint", "abs", "tanh"], -9, 9),
    "exponentials": (["exp", "exp2", "sigmoid"], -20, 20),
    "hyperbolic": (["sinh", "cosh"], -8, 8),
    "trigonometric": (["sin", "cos"], -12, 12),
    "tangent": (["tan"], -1.5, 1.5),
    "positive": (["log", "log2", "log10", "log1p", "sqrt", "rsqrt"], 1e-3, 100),
}


@pytest.mark.covering(1)
@pytest.mark.parametrize("where", RANGES)
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_functions(where, dtype):
    names, low, high = RANGES[where]
    a = np.linspace(low, high, M * N).reshape(M, N).astype(storage(dtype))
    kernel = unary([getattr(T, name) for name in names], dtype, dtype)
    check_everywhere(kernel, {"A": a}, functions_are_close(a, names), ALL_LEVELS)


def test_functions_of_special_values():
    a = np.array([0.0, -0.0, 1.0, math.inf, -math.inf, math.nan, -1.0, 1e-45, 3e38])
    a = np.resize(a, (M, N)).astype(np.float32)
    names = [
        "exp",
        "exp2",
        "log",
        "log2",
        "sqrt",
        "rsqrt",
        "tanh",
        "sigmoid",
        "erf",
        "floor",
        "atan",
    ]
    kernel = unary([getattr(T, name) for name in names], "float32", "float32")
    check_everywhere(kernel, {"A": a}, functions_are_close(a, names), ALL_LEVELS)


def test_rounding_modes():
    a = np.resize(np.arange(-10, 11) / 2, (M, N)).astype(np.float32)
    expected = {"even": np.rint(a), "away": (np.sign(a) * np.floor(np.abs(a) + 0.5)).astype("f")}
    functions = [T.round, lambda x: T.round(x, "ties_away")]
    check_everywhere(unary(functions, "float32", "float32"), {"A": a}, gives(expected))


def test_predicates_of_floats():
    a = np.resize(np.array([0.0, math.inf, -math.inf, math.nan, 2.5]), (M, N)).astype("f")
    kernel = unary([T.isnan, T.isinf], "float32", "bool")
    check_everywhere(kernel, {"A": a}, gives({"isnan": np.isnan(a), "isinf": np.isinf(a)}))


def test_python_numbers_compute_in_float32():
    a = random_array((M, N), "float16")
    expected = (a.astype(np.float32) * np.float32(1.1) + np.float32(0.3)).astype(np.float16)
    kernel = unary(lambda x: x * 1.1 + 0.3, "float16", "float16")
    check_everywhere(kernel, {"A": a}, lambda arrays: assert_ulp(arrays["Out"][0], expected, 1))


def test_powers():
    a = np.linspace(0.1, 3, M * N).reshape(M, N).astype("f")
    b = np.linspace(-4, 4, M * N).reshape(M, N).astype("f")
    with np.errstate(invalid="ignore"):
        power, rest = np.power(a.astype(np.float64), b.astype(np.float64)), np.fmod(a, b)

    def check(arrays):
        assert_ulp(arrays["Out"][0], power, 8)
        equals(Out=rest)({"Out": arrays["Out"][1]})

    check_everywhere(binary([T.pow, T.fmod], "float32", "float32"), {"A": a, "B": b}, check)


def test_powers_of_special_values_one_by_one():
    a = np.array([np.inf, -np.inf, 0.0, -0.0, 4.0, -4.0, np.nan, 1.0], np.float32)

    @T.prim_func
    def kernel(A: T.Tensor((8,), "float32")):
        Out = T.empty((8,), "float32")
        with T.Kernel(8, threads=32) as bx:
            Out[bx] = T.pow(A[bx], T.float32(0.5))
        return Out

    expected = np.array([np.inf, np.inf, 0, 0, 2, np.nan, np.nan, 1], np.float32)
    check_everywhere(kernel, {"A": a}, equals(Out=expected))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_powers_of_narrow_floats_are_rounded_once(dtype):
    a = (random_array((M, N), "float32") * 2).astype(storage(dtype))
    with np.errstate(over="ignore"):
        exact = {p: (wide(a) ** p).astype(np.float32).astype(storage(dtype)) for p in (2, 3, 10)}
    kernel = unary([lambda x, p=p: x**p for p in exact], dtype, dtype)

    def check(arrays):
        for found, expected in zip(arrays["Out"], exact.values(), strict=True):
            assert_ulp(found, expected, 1)

    check_everywhere(kernel, {"A": a}, check)


# Choices -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["int32", "float32", "float16"])
def test_choices(dtype):
    a, b = random_array((M, N), dtype, 1), random_array((M, N), dtype, 2)
    expected = np.where(a > b, a, b * b.dtype.type(2))
    functions = [
        lambda x, y: T.if_then_else(x > y, x, y * 2),
        lambda x, y: T.Select(x > y, x, y * 2),
    ]
    kernel = binary(functions, dtype, dtype)
    check_everywhere(kernel, {"A": a, "B": b}, gives({"lazy": expected, "eager": expected}))


def test_lazy_choices_guard_a_division():
    a, b = random_array((M, N), "int32", 1), random_array((M, N), "int32", 2) % 3
    expected = np.where(b != 0, a // np.where(b == 0, 1, b), -1).astype(np.int32)
    kernel = binary(lambda x, y: T.if_then_else(y != 0, x // y, -1), "int32", "int32")
    check_everywhere(kernel, {"A": a, "B": b}, gives({"quotient": expected}))


def test_logical_operators():
    a, b = random_array((M, N), "int32", 1), random_array((M, N), "int32", 2)
    kernel = binary(lambda x, y: T.And(x > 0, T.Or(y > 0, T.Not(x > y))), "int32", "bool")
    expected = (a > 0) & ((b > 0) | ~(a > b))
    check_everywhere(kernel, {"A": a, "B": b}, gives({"condition": expected}))


# Broadcasting --------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
def test_a_bias_for_each_row_and_column(dtype):
    @T.prim_func
    def kernel(
        A: T.Tensor((M, N), dtype), Row: T.Tensor((M,), dtype), Column: T.Tensor((N,), dtype)
    ):
        Out = T.empty((M, N), dtype)
        with T.Kernel(T.ceildiv(N, 16), T.ceildiv(M, 8), threads=128) as (bx, by):
            tile = T.alloc_fragment((8, 16), dtype)
            row = T.alloc_fragment((8,), dtype)
            column = T.alloc_shared((16,), dtype)
            T.copy(A[by * 8, bx * 16], tile)
            T.copy(Row[by * 8], row)
            T.copy(Column[bx * 16], column)
            for i, j in T.Parallel(8, 16):
                tile[i, j] = tile[i, j] + row[i]
            for i, j in T.Parallel(8, 16):
                tile[i, j] += column[j]
            T.copy(tile, Out[by * 8, bx * 16])
        return Out

    a, row, column = (
        random_array((M, N), dtype, 1),
        random_array((M,), dtype, 2),
        random_array((N,), dtype, 3),
    )
    expected = a + row[:, None] + column
    check_everywhere(kernel, {"A": a, "Row": row, "Column": column}, equals(Out=expected))


def test_dynamic_shapes():
    m, n = T.dynamic("m, n")

    @T.prim_func
    def kernel(A: T.Tensor((m, n), "float32"), B: T.Tensor((n, m), "float32"), scale: T.float32):
        with T.Kernel(T.ceildiv(n, 16), T.ceildiv(m, 8), threads=128) as (bx, by):
            for i, j in T.Parallel(8, 16):
                if by * 8 + i < m and bx * 16 + j < n:
                    B[bx * 16 + j, by * 8 + i] = A[by * 8 + i, bx * 16 + j] * scale

    for shape in [(1, 1), (8, 16), (13, 37)]:
        a = random_array(shape, "float32")
        given = {"A": a, "B": np.zeros(shape[::-1], np.float32), "scale": 2.0}
        check_everywhere(kernel, given, equals(B=(a * 2).T.copy()))


def test_reinterpretation():
    a = random_array((M, N), "float32")
    kernel = unary(lambda x: T.reinterpret(x, "int32"), "float32", "int32")
    check_everywhere(kernel, {"A": a}, gives({"bits": a.view("int32")}))


CASTS = {
    "float32": ["float16", "bfloat16", "float64"],
    "bfloat16": ["float32", "float16"],
    "int32": ["float32", "float16", "uint8", "int64"],
    "int8": ["float32", "uint32", "bfloat16"],
    "uint8": ["float32", "int32"],
    "uint32": ["float64", "int64", "float32"],
    "int64": ["int32", "float32", "float64"],
}


@pytest.mark.parametrize("source", CASTS)
def test_casts(source):
    a = random_array((M, N), source)
    for target in CASTS[source]:
        with np.errstate(over="ignore"):
            expected = (wide(a) if "float" in source else a).astype(storage(target))
        kernel = unary(lambda x: x, source, target)
        check_everywhere(kernel, {"A": a}, gives({f"to {target}": expected}))


BEYOND = [0.5, -0.5, 3.9, -3.9, 127.9, -128.9, 255.5, 300.5, 7e4, -1e3, 2.0**31, -(2.0**31)]
BEYOND += [5e9, -5e9, 2.0**63, -(2.0**63), 1e20, -1e20, math.inf, -math.inf, math.nan]


FLOATS = ["float64", "float32", "float16", "bfloat16"]


def integers_of(source):
    """(a kernel that casts `BEYOND` to every kind of integer, its arguments, a check)"""
    with np.errstate(over="ignore"):
        a = np.array(BEYOND).astype(storage(source))
    targets = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]

    @T.prim_func
    def kernel(A: T.Tensor(a.shape, source)):
        Out = [T.empty(a.shape, target) for target in targets]
        with T.Kernel(1, threads=32):
            for out in Out:
                T.copy(A, out)
        return tuple(Out)

    def check(arrays):
        found = [array for name, array in arrays.items() if name != "A"]
        for target, values in zip(targets, found, strict=True):
            low, high = int(np.iinfo(target).min), int(np.iinfo(target).max)
            for value, result in zip(a.astype(float), values, strict=True):
                if math.isnan(value):
                    assert target.endswith("64") or result == 0  # a GPU has another value there
                    continue
                inside = low if value <= low else high if value >= high else int(value)
                assert int(result) == inside, (target, value)

    return kernel, {"A": a}, check


@pytest.mark.parametrize("source", FLOATS)
def test_floats_saturate_as_integers(source):
    check_executors(*integers_of(source))


@pytest.mark.nvrtc
@pytest.mark.parametrize("source", FLOATS)
def test_floats_saturate_as_integers_in_executed_ptx(source):
    kernel, arguments, check = integers_of(source)
    check(run_native(kernel.program, arguments, "ptx:sm_80"))


def test_numbers_saturate_as_values_do():
    @T.prim_func
    def kernel():
        Out = T.empty((4,), "uint8")
        with T.Kernel(1, threads=32):
            Out[0], Out[1] = 300.7, -3.0
            Out[2], Out[3] = T.cast(1e30, "uint8"), T.cast(T.infinity("float32"), "uint8")
        return Out

    check_everywhere(kernel, {}, equals(Out=np.array([255, 0, 255, 255], np.uint8)))


NARROW = {
    "product": lambda x, y, z: x * y,
    "average": lambda x, y, z: x + y >> 1,
    "quotient": lambda x, y, z: (x - y) // 3,
    "greater": lambda x, y, z: x + y > z,
    "low bits": lambda x, y, z: (x * y + z) ^ (y << 2),
    "codes": lambda x, y, z: ((x & 15) - (y >> 2)) * (z & 3),
}


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_narrow_integers_are_computed_in_32_bits(dtype):
    """As in C: only what is stored or named in fewer bits loses the others."""
    a, b, c = (random_array((64,), dtype, seed) for seed in range(3))
    functions = list(NARROW.values())

    @T.prim_func
    def kernel(A: T.Tensor((64,), dtype), B: T.Tensor((64,), dtype), C: T.Tensor((64,), dtype)):
        Wide = T.empty((len(functions), 64), "int32")
        Narrow = T.empty((len(functions), 64), dtype)
        with T.Kernel(1, threads=32):
            for i in T.Parallel(64):
                for which, function in enumerate(functions):
                    Wide[which, i] = T.cast(function(A[i], B[i], C[i]), "int32")
                    value = T.cast(function(A[i], B[i], C[i]), dtype)
                    Narrow[which, i] = value
        return Wide, Narrow

    wide = np.stack([f(*(x.astype(np.int32) for x in (a, b, c))) for f in functions])
    expected = equals(Wide=wide.astype(np.int32), Narrow=wide.astype(dtype))
    check_executors(kernel, {"A": a, "B": b, "C": c}, expected)


def test_places_between_four_elements() -> None:
    """Many operations and a few scattered reads, which are vectors with gathers; some places lie
    outside of the tensor, and some are no numbers.
    """

    @T.prim_func
    def kernel(X: T.Tensor((M, N), "float32"), P: T.Tensor((2, M, N), "float32")):
        Y = T.empty((M, N), "float32")
        with T.Kernel(M) as i:
            for j in T.Parallel(N):
                down = T.clamp(P[0, i, j], 0.0, M - 1.0)
                along = T.clamp(P[1, i, j], 0.0, N - 1.0)
                above, left = T.floor(down), T.floor(along)
                y, x = T.cast(above, "int32"), T.cast(left, "int32")
                below, right = T.min(y + 1, M - 1), T.min(x + 1, N - 1)
                upper = X[y, x] + (along - left) * (X[y, right] - X[y, x])
                lower = X[below, x] + (along - left) * (X[below, right] - X[below, x])
                Y[i, j] = upper + (down - above) * (lower - upper)
        return Y

    x, places = random_array((M, N), "float32"), np.zeros((2, M, N), np.float32)
    random = np.random.default_rng(7)
    # Quarters, so that every product is exact but for the last ones.
    places[0] = random.integers(-8, 4 * M + 8, (M, N)) / 4
    places[1] = random.integers(-8, 4 * N + 8, (M, N)) / 4
    places[0, 0, :3], places[1, 1, :3] = np.nan, np.nan
    down, along = np.fmin(np.fmax(places[0], 0), M - 1), np.fmin(np.fmax(places[1], 0), N - 1)
    y, left = down.astype(int), along.astype(int)
    below, right = np.minimum(y + 1, M - 1), np.minimum(left + 1, N - 1)
    share, part = (along - left).astype(np.float64), (down - y).astype(np.float64)
    upper = x[y, left] + share * (x[y, right].astype(np.float64) - x[y, left])
    lower = x[below, left] + share * (x[below, right].astype(np.float64) - x[below, left])
    expected = upper + part * (lower - upper)
    expected[np.isnan(places).any(axis=0)] = np.nan

    def check(found):
        np.testing.assert_allclose(found["Y"], expected, rtol=1e-4, atol=1e-4)

    check_everywhere(kernel, {"X": x, "P": places}, check)
