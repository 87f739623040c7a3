"""Each tile operator against numpy."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from tests.sim.kernels import block, program
from tests.tolerances import assert_contraction
from tileworkbench.compiler.sim import simulate

RNG = np.random.default_rng(7)


def storage(dtype: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, dtype, dtype))


def random(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    if "int" in dtype:
        info = np.iinfo(dtype)
        return RNG.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)
    if dtype == "bool":
        return RNG.integers(0, 2, shape).astype(bool)
    return RNG.standard_normal(shape).astype(storage(dtype))


# Copy ----------------------------------------------------------

A44 = np.arange(1, 17, dtype=np.float32).reshape(4, 4)
# (name, shape of A, shape of B, copy, numpy that does the same to the arrays a and b)
COPIES = [
    ("whole", (4, 4), (4, 4), "T.copy(A, B)", "b[:] = a"),
    ("a row", (4, 4), (4,), "T.copy(A[2:3, 0:4], B)", "b[:] = a[2]"),
    ("a column", (4, 4), (4,), "T.copy(A[0:4, 1:2], B)", "b[:] = a[:, 1]"),
    ("a row into a column", (4, 4), (4, 4), "T.copy(A[1:2, 0:4], B[0:4, 3:4])", "b[:, 3] = a[1]"),
    (
        "a slice of a batch",
        (2, 4, 3, 4),
        (4, 4),
        "T.copy(A[1:2, 0:4, 2:3, 0:4], B)",
        "b[:] = a[1, :, 2]",
    ),
    (
        "into a slice of a batch",
        (4, 4),
        (2, 4, 3, 4),
        "T.copy(A, B[0:1, 0:4, 1:2, 0:4])",
        "b[0, :, 1] = a",
    ),
    ("the source's extents win", (4, 4), (6, 6), "T.copy(A, B[1:3, 2:4])", "b[1:5, 2:6] = a"),
    (
        "two columns of three",
        (4, 4),
        (4, 4),
        "T.copy(A[0:4, 0:2], B[0:4, 0:3])",
        "b[:, :2] = a[:, :2]",
    ),
    (
        "past the end",
        (4, 4),
        (4, 4),
        "T.copy(A[2:6, 0:4], B[1:5, 0:4])",
        "b[1:3] = a[2:]; b[3] = 0",
    ),
    (
        "onto itself",
        (4, 4),
        (4, 4),
        "T.copy(A[0:3, 0:4], A[1:4, 0:4])\nT.copy(A, B)",
        "a[1:] = a[:3].copy(); b[:] = a",
    ),
]


@pytest.mark.parametrize(
    ("shape_a", "shape_b", "text", "expected"), [c[1:] for c in COPIES], ids=[c[0] for c in COPIES]
)
def test_copies(
    shape_a: tuple[int, ...], shape_b: tuple[int, ...], text: str, expected: str
) -> None:
    a, b = random(shape_a, "float32"), random(shape_b, "float32")
    made = program(f"A: {shape_a} float32; B: {shape_b} float32", block(text))
    result = simulate(made, {"A": a, "B": b})
    want = {"a": a.copy(), "b": b.copy()}
    exec(expected, want)
    np.testing.assert_array_equal(result.arrays["B"], want["b"])


def test_the_region_nearer_the_threads_has_the_iteration_space() -> None:
    made = program(
        "A: (8, 8) float32; B: (8, 8) float32",
        block("""
        S = T.alloc_shared((2, 3), "float32")
        F = T.alloc_fragment((2, 3), "float32")
        T.copy(A[4:8, 4:8], S)
        T.copy(S, F)
        T.copy(F, B[6:8, 6:8])
        """),
    )
    a = random((8, 8), "float32")
    b = np.zeros((8, 8), "float32")
    found = simulate(made, {"A": a, "B": b})
    b[6:8, 6:8] = a[4:6, 4:6]
    np.testing.assert_array_equal(found.arrays["B"], b)
    assert [(masked.access, masked.count) for masked in found.report.masked] == [("store", 2)]


def test_copies_convert() -> None:
    made = program(
        "A: (4,) float32; B: (4,) int8; C: (4,) bfloat16", block("T.copy(A, B)\nT.copy(A, C)")
    )
    a = np.array([1.75, -2.5, 3.0, 1 + 2**-9], "float32")
    c = np.zeros(4, ml_dtypes.bfloat16)
    found = simulate(made, {"A": a, "B": np.zeros(4, np.int8), "C": c}).arrays
    assert found["B"].tolist() == [1, -2, 3, 1]
    assert found["C"].tolist() == [1.75, -2.5, 3.0, 1.0]


# Fill ----------------------------------------------------------


def test_fill_of_a_region_with_a_computed_value() -> None:
    made = program("A: (4, 6) int32; n: int32", block("T.fill(A[1:3, n:n + 3], n * 10)"))
    a = np.zeros((4, 6), np.int32)
    found = simulate(made, {"A": a, "n": 4})
    a[1:3, 4:6] = 40
    np.testing.assert_array_equal(found.arrays["A"], a)
    assert found.report.masked[0].count == 2


# Gemm ----------------------------------------------------------

GEMMS = [
    ("float64", "float64"),
    ("float32", "float32"),
    ("float16", "float32"),
    ("bfloat16", "float32"),
    ("float8_e4m3fn", "float32"),
    ("float16", "float16"),
    ("int8", "int32"),
    ("uint8", "int32"),
    ("int32", "int32"),
]


@pytest.mark.parametrize(("operand", "result"), GEMMS)
@pytest.mark.parametrize("transposed", ["", "A", "B", "AB"])
def test_gemm(operand: str, result: str, transposed: str) -> None:
    m, n, k = 5, 7, 9
    a, b = random((m, k), operand), random((k, n), operand)
    c = random((m, n), result)
    shapes = ((k, m) if "A" in transposed else (m, k), (n, k) if "B" in transposed else (k, n))
    flags = "".join(f", transpose_{side}=True" for side in transposed)
    made = program(
        f"A: {shapes[0]} {operand}; B: {shapes[1]} {operand}; "
        f"C: (5, 7) {result}; D: (5, 7) {result}",
        block(f"T.gemm(A, B, C{flags})\nT.gemm(A, B, D{flags}, clear_accum=True)"),
    )
    given = {
        "A": a.T if "A" in transposed else a,
        "B": b.T if "B" in transposed else b,
        "C": c,
        "D": c,
    }
    found = simulate(made, given).arrays
    assert_contraction(found["C"], a, b, c)
    assert_contraction(found["D"], a, b)


def test_gemm_wraps_as_integers_do() -> None:
    made = program("A: (1, 4) int32; B: (4, 1) int32; C: (1, 1) int32", block("T.gemm(A, B, C)"))
    a = np.full((1, 4), 2**31 - 1, np.int32)
    found = simulate(made, {"A": a, "B": a.T.copy(), "C": np.ones((1, 1), np.int32)})
    assert found.arrays["C"][0, 0] == 4 + 1


def test_gemm_of_sub_regions_with_a_computed_clear() -> None:
    made = program(
        "A: (2, 8, 8) float32; B: (8, 8) float32; C: (8, 8) float32",
        block("""
        for k in T.serial(2):
            T.gemm(A[1:2, 0:4, k * 4:k * 4 + 4], B[k * 4:k * 4 + 4, 0:8], C[4:8, 0:8],
                clear_accum=k == 0)
        """),
    )
    a, b, c = random((2, 8, 8), "float32"), random((8, 8), "float32"), random((8, 8), "float32")
    found = simulate(made, {"A": a, "B": b, "C": c}).arrays["C"]
    np.testing.assert_array_equal(found[:4], c[:4])
    assert_contraction(found[4:], a[1, :4], b)


# Reduce and scan ----------------------------------------------------------

REDUCTIONS = {
    "sum": lambda x, axis: x.sum(axis),
    "max": lambda x, axis: x.max(axis),
    "min": lambda x, axis: x.min(axis),
    "absmax": lambda x, axis: np.abs(x).max(axis),
    "abssum": lambda x, axis: np.abs(x).sum(axis),
    "bitand": lambda x, axis: np.bitwise_and.reduce(x, axis),
    "bitor": lambda x, axis: np.bitwise_or.reduce(x, axis),
    "bitxor": lambda x, axis: np.bitwise_xor.reduce(x, axis),
    "prod": lambda x, axis: x.astype("float32").prod(axis).astype(x.dtype),
}
COMBINED = {
    "sum": np.add,
    "abssum": np.add,
    "max": np.maximum,
    "absmax": np.maximum,
    "min": np.minimum,
    "bitand": np.bitwise_and,
    "bitor": np.bitwise_or,
    "bitxor": np.bitwise_xor,
    "prod": np.multiply,
}


@pytest.mark.parametrize("kind", REDUCTIONS)
@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("dtype", ["int32", "float32", "float16"])
@pytest.mark.parametrize("clear", [True, False])
def test_reductions(kind: str, dim: int, dtype: str, clear: bool) -> None:
    if kind.startswith("bit") and dtype != "int32":
        return
    shape = (3, 4, 5)
    src = RNG.integers(-9, 9, shape).astype(dtype)
    src = np.clip(src, -2, 2) if kind == "prod" else src  # exact in float16
    kept = tuple(extent for axis, extent in enumerate(shape) if axis != dim)
    dst = RNG.integers(-9, 9, kept).astype(dtype)
    made = program(
        f"A: {shape} {dtype}; B: {kept} {dtype}",
        block(f"T.reduce_{kind}(A, B, dim={dim}{'' if clear else ', clear=False'})"),
    )
    expected = REDUCTIONS[kind](src, dim)
    if not clear:
        expected = COMBINED[kind](dst, expected)
    np.testing.assert_array_equal(simulate(made, {"A": src, "B": dst}).arrays["B"], expected)


def test_a_reduction_may_keep_its_dimension() -> None:
    made = program("A: (3, 4) float32; B: (3, 1) float32", block("T.reduce_max(A, B, dim=1)"))
    a = random((3, 4), "float32")
    found = simulate(made, {"A": a, "B": np.zeros((3, 1), "f")}).arrays["B"]
    np.testing.assert_array_equal(found, a.max(1, keepdims=True))


def test_a_reduction_converts_to_the_results_dtype_first() -> None:
    made = program(
        "A: (3,) float32; B: (1,) int32; C: (1,) int8",
        block("T.reduce_sum(A, B, dim=0)\nT.reduce_sum(B, C, dim=0)"),
    )
    given = {
        "A": np.array([1.75, 2.75, 297.0], "f"),
        "B": np.zeros(1, np.int32),
        "C": np.zeros(1, np.int8),
    }
    found = simulate(made, given).arrays
    assert (found["B"].tolist(), found["C"].tolist()) == ([300], [44])


def test_16_bit_sums_are_formed_in_float32() -> None:
    made = program("A: (4096,) float16; B: (1,) float16", block("T.reduce_sum(A, B, dim=0)"))
    given = {"A": np.ones(4096, np.float16), "B": np.zeros(1, np.float16)}
    assert simulate(made, given).arrays["B"].tolist() == [4096.0]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_maxima_ignore_nan_unless_asked(dtype: str) -> None:
    nan, inf = math.nan, math.inf
    a = np.array([[1, nan, 3], [nan, nan, nan], [-inf, -1, nan]], np.float32).astype(storage(dtype))
    made = program(
        f"A: (3, 3) {dtype}; B: (3,) {dtype}; C: (3,) {dtype}; D: (3,) {dtype}",
        block(
            "T.reduce_max(A, B, dim=1)\nT.reduce_min(A, C, dim=1)\n"
            "T.reduce_max(A, D, dim=1, nan_propagate=True)"
        ),
    )
    zero = np.zeros(3, storage(dtype))
    found = simulate(made, {"A": a, "B": zero, "C": zero, "D": zero}).arrays
    np.testing.assert_array_equal(found["B"].astype("f"), [3, -inf, -1])
    np.testing.assert_array_equal(found["C"].astype("f"), [1, inf, -inf])
    np.testing.assert_array_equal(found["D"].astype("f"), [nan, nan, nan])


@pytest.mark.parametrize("kind", ["sum", "max"])
@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("reverse", [False, True])
def test_scans(kind: str, dim: int, reverse: bool) -> None:
    a = RNG.integers(-9, 9, (5, 6)).astype("int32")
    made = program(
        "A: (5, 6) int32; B: (5, 6) int32",
        block(
            f"T.scan_{kind}(A, B, dim={dim}, reverse={reverse})\n"
            f"T.scan_{kind}(A, A, dim={dim}, reverse={reverse})"
        ),
    )
    found = simulate(made, {"A": a, "B": np.zeros_like(a)}).arrays
    ufunc = np.add if kind == "sum" else np.maximum
    expected = (
        np.flip(ufunc.accumulate(np.flip(a, dim), dim), dim)
        if reverse
        else ufunc.accumulate(a, dim)
    )
    np.testing.assert_array_equal(found["B"], expected)
    np.testing.assert_array_equal(found["A"], expected)


def test_a_scan_rounds_at_every_step() -> None:
    made = program("A: (5,) float16", block("T.scan_sum(A, A, dim=0, reverse=False)"))
    a = np.array([2048, 1, 1, 2, 1], np.float16)
    found = simulate(made, {"A": a}).arrays["A"]
    assert found.tolist() == [2048, 2048, 2048, 2050, 2052]


# Packed multiplication ----------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("group", [1, 4])
def test_packed_multiplication(dtype: str, transposed: bool, group: int) -> None:
    m, n, k, mr, nr = 6, 10, 7, 4, 8
    result = "int32" if dtype == "int8" else "float32"
    a, b = random((m, k), dtype), random((k, n), dtype)
    rounded = -(-k // group) * group
    trailer = 4 * nr if dtype == "int8" else 0
    size_b = 2 * (nr * rounded + trailer)
    strides = ("1", f"{m}") if transposed else (f"{k}", "1")
    pad_a = m * rounded
    itemsize = np.dtype(dtype).itemsize
    made = program(
        f"A: ({m * k},) {dtype}; B: ({k * n},) {dtype}; C: ({m * n},) {result}",
        f"""
        for block in T.blocks(1):
            PA = T.alloc_shared(({pad_a},), "{dtype}", offset=0)
            PB = T.alloc_shared(({size_b},), "{dtype}", offset={pad_a * itemsize})
            T.pack_a(T.address_of(A[0]), T.address_of(PA[0]), rows={m}, cols={k},
                row_stride={strides[0]}, col_stride={strides[1]}, valid_rows={m}, valid_cols={k},
                width={m}, group={group})
            T.pack_b(T.address_of(B[0]), T.address_of(PB[0]), rows={n}, cols={k}, row_stride=1,
                col_stride={n}, valid_rows={n}, valid_cols={k}, width={nr}, group={group})
            T.micro_gemm(
                T.address_of(PA[0]), T.address_of(PB[0]), T.address_of(C[0]), lda={m},
                columns=True, ldc={n}, m={m}, n={n}, k={k}, mr={mr}, nr={nr},
                group={group}, clear=False, isa="generic")
        """,
        stage="cpu",
        scratch_bytes=(pad_a + size_b) * itemsize,
    )
    c = random((m, n), result)
    given = {"A": a.T.copy() if transposed else a, "B": b, "C": c}
    found = simulate(made, given)
    assert found.report.ok, str(found.report)
    assert_contraction(found.arrays["C"], a, b, c)


def test_rows_used_where_they_lie() -> None:
    made = program(
        "A: (24,) float32; B: (12,) float32; C: (16,) float32",
        """
        for block in T.blocks(1):
            PB = T.alloc_shared((16,), "float32", offset=0)
            T.pack_b(T.address_of(B[0]), T.address_of(PB[0]), rows=4, cols=4,
                row_stride=1, col_stride=3, valid_rows=3, valid_cols=4, width=4, group=1)
            T.micro_gemm(T.address_of(A[1]), T.address_of(PB[0]), T.address_of(C[0]),
                lda=6, columns=False, ldc=4, m=4, n=4, k=4, mr=4, nr=4,
                group=1, clear=True, isa="generic")
        """,
        stage="cpu",
        scratch_bytes=64,
    )
    a, b = random((4, 6), "float32"), random((4, 3), "float32")
    found = simulate(made, {"A": a, "B": b, "C": np.ones((4, 4), "f")}).arrays["C"]
    assert_contraction(found[:, :3], a[:, 1:5], b)
    assert not found[:, 3].any()
