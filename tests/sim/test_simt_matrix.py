"""ldmatrix, stmatrix and mma.sync against the fragment tables of the PTX ISA, written out here."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.sim.threads import report, run
from tileworkbench.compiler.diagnostics import RunError
from tileworkbench.compiler.sim import FindingKind

Array = np.ndarray[Any, Any]
RANDOM = np.random.default_rng(3)
T = np.arange(32)
G, Q = T // 4, T % 4

# PTX ISA, "Matrix Fragments for mma.*": for element e of a lane, its row and column.
A_TABLES: dict[tuple[int, int, int], Any] = {
    (16, 16, 16): (8, lambda e: (G + 8 * (e % 4 // 2), 2 * Q + e % 2 + 8 * (e // 4))),
    (16, 8, 16): (4, lambda e: (G + 8 * (e // 2), 2 * Q + e % 2)),
    (16, 8, 32): (4, lambda e: (G + 8 * (e % 2), Q + 4 * (e // 2))),
    (16, 4, 32): (2, lambda e: (G + 8 * e, Q)),
    (16, 32, 8): (16, lambda e: (G + 8 * (e // 4 % 2), 4 * Q + e % 4 + 16 * (e // 8))),
    (16, 16, 8): (8, lambda e: (G + 8 * (e // 4), 4 * Q + e % 4)),
    (8, 16, 8): (4, lambda e: (G, 4 * Q + e)),
    (16, 64, 4): (32, lambda e: (G + 8 * (e // 8 % 2), 8 * Q + e % 8 + 32 * (e // 16))),
    (8, 32, 4): (8, lambda e: (G, 8 * Q + e)),
    (8, 4, 64): (1, lambda e: (G, Q)),
}
B_TABLES: dict[tuple[int, int], Any] = {  # row k, column n
    (16, 16): (4, lambda e: (2 * Q + e % 2 + 8 * (e // 2), G)),
    (8, 16): (2, lambda e: (2 * Q + e, G)),
    (8, 32): (2, lambda e: (Q + 4 * e, G)),
    (4, 32): (1, lambda e: (Q, G)),
    (32, 8): (8, lambda e: (4 * Q + e % 4 + 16 * (e // 4), G)),
    (16, 8): (4, lambda e: (4 * Q + e, G)),
    (64, 4): (16, lambda e: (8 * Q + e % 8 + 32 * (e // 8), G)),
    (32, 4): (8, lambda e: (8 * Q + e, G)),
    (4, 64): (1, lambda e: (Q, G)),
}


def c_place(m: int, e: int) -> tuple[Array, Array]:
    """Row and column of element e of an accumulator."""
    return (G + 8 * (e // 2), 2 * Q + e % 2) if m == 16 else (G, 2 * Q + e)


def by_lane(matrix: Array, count: int, place: Any) -> Array:
    """The elements of each lane, one row for each."""
    return np.stack([matrix[place(e)] for e in range(count)], axis=1)


# (m, k, operand dtype, accumulator dtype)
SHAPES = [
    (16, 16, "float16", "float32"),
    (16, 16, "float16", "float16"),
    (16, 16, "bfloat16", "float32"),
    (16, 8, "float16", "float32"),
    (16, 8, "tfloat32", "float32"),
    (16, 4, "float32", "float32"),
    (16, 32, "int8", "int32"),
    (16, 32, "uint8", "int32"),
    (16, 32, "float8_e4m3fn", "float32"),
    (16, 16, "int8", "int32"),
    (8, 16, "int8", "int32"),
    (8, 4, "float64", "float64"),
]
STORAGE = {
    "bfloat16": ml_dtypes.bfloat16,
    "tfloat32": np.float32,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
}
BITS = {
    "float16": 16,
    "bfloat16": 16,
    "tfloat32": 32,
    "float32": 32,
    "int8": 8,
    "uint8": 8,
    "float8_e4m3fn": 8,
    "float64": 64,
}


def values(shape: tuple[int, int], dtype: str) -> Array:
    if dtype in ("int8", "uint8"):
        return RANDOM.integers(0 if dtype == "uint8" else -128, 128, shape).astype(dtype)
    return RANDOM.standard_normal(shape).astype(STORAGE.get(dtype, dtype))


def truncated(matrix: Array) -> Array:
    """float32 without its lowest 13 bits."""
    return (matrix.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


@pytest.mark.parametrize(("m", "k", "dtype", "accumulator"), SHAPES)
def test_mma_of_every_shape(m: int, k: int, dtype: str, accumulator: str) -> None:
    bits = BITS[dtype]
    count_a, place_a = A_TABLES[m, k, bits]
    count_b, place_b = B_TABLES[k, bits]
    count_c = m * 8 // 32
    a, b = values((m, k), dtype), values((k, 8), dtype)
    c = np.arange(m * 8).reshape(m, 8).astype(accumulator)
    body = f"""
    a = T.alloc_local(({count_a},), "{dtype}")
    b = T.alloc_local(({count_b},), "{dtype}")
    c = T.alloc_local(({count_c},), "{accumulator}")
    for i in T.unroll({count_a}):
        a[i] = A[tx, i]
    for i_1 in T.unroll({count_b}):
        b[i_1] = B[tx, i_1]
    for i_2 in T.unroll({count_c}):
        c[i_2] = C[tx, i_2]
    T.mma(T.address_of(a[0]), T.address_of(b[0]), T.address_of(c[0]), m={m}, n=8, k={k})
    for i_3 in T.unroll({count_c}):
        C[tx, i_3] = c[i_3]
    """
    parameters = (
        f"A: (32, {count_a}) {dtype}; B: (32, {count_b}) {dtype}; C: (32, {count_c}) {accumulator}"
    )
    found = run(
        parameters,
        body,
        A=by_lane(a, count_a, place_a),
        B=by_lane(b, count_b, place_b),
        C=by_lane(c, count_c, lambda e: c_place(m, e)),
    )
    assert found.report.ok
    if bits == 32:
        a, b = truncated(a), truncated(b)
    wide = np.float64 if accumulator != "int32" else np.int64
    expected = a.astype(wide) @ b.astype(wide) + c.astype(wide)
    got = found.arrays["C"].astype(wide)
    tolerance = 1e-2 if accumulator == "float16" else 1e-5
    for e in range(count_c):
        assert np.allclose(got[:, e], expected[c_place(m, e)], rtol=tolerance, atol=tolerance)


def test_mma_of_four_bits() -> None:
    a = RANDOM.integers(-8, 8, (16, 64)).astype(np.int8)
    b = RANDOM.integers(-8, 8, (64, 8)).astype(np.int8)
    body = """
    a = T.alloc_local((32,), "int4")
    b = T.alloc_local((16,), "int4")
    c = T.alloc_local((4,), "int32")
    for i in T.unroll(32):
        a[i] = T.int4(A[tx, i])
    for i_1 in T.unroll(16):
        b[i_1] = T.int4(B[tx, i_1])
    for i_2 in T.unroll(4):
        c[i_2] = 0
    T.mma(T.address_of(a[0]), T.address_of(b[0]), T.address_of(c[0]), m=16, n=8, k=64)
    for i_3 in T.unroll(4):
        C[tx, i_3] = c[i_3]
    """
    count_a, place_a = A_TABLES[16, 64, 4]
    count_b, place_b = B_TABLES[64, 4]
    found = run(
        "A: (32, 32) int8; B: (32, 16) int8; C: (32, 4) int32",
        body,
        A=by_lane(a, count_a, place_a),
        B=by_lane(b, count_b, place_b),
        C=np.zeros((32, 4), np.int32),
    ).arrays["C"]
    expected = a.astype(int) @ b.astype(int)
    for e in range(4):
        assert (found[:, e] == expected[c_place(16, e)]).all()


LOAD = """
S = T.alloc_shared((32, 8), "float16", offset=0)
r = T.alloc_local(({count} * 2,), "float16")
for j in T.unroll(8):
    S[tx, j] = A[tx, j]
T.sync_threads()
T.load_matrix(T.address_of(r[0]), T.address_of(S[{row}, 0]), count={count}, transpose={transpose})
for i in T.unroll({count} * 2):
    B[tx, i] = r[i]
"""
ROWS = np.arange(256, dtype=np.float16).reshape(32, 8)


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("transpose", [False, True])
def test_load_matrix(count: int, transpose: bool) -> None:
    body = LOAD.format(count=count, transpose=transpose, row=f"tx % {8 * count}")
    result = np.zeros((32, 2 * count), np.float16)
    found = run(f"A: (32, 8) float16; B: (32, {2 * count}) float16", body, A=ROWS, B=result)
    assert found.report.ok, str(found.report)
    for matrix in range(count):
        held = ROWS[8 * matrix : 8 * matrix + 8]
        held = held.T if transpose else held
        for e in range(2):
            assert (found.arrays["B"][:, 2 * matrix + e] == held[G, 2 * Q + e]).all()
    kind = f"ldmatrix.x{count}" + (".trans" if transpose else "")
    (access,) = [a for a in found.report.accesses if a.kind == kind]
    assert (access.count, access.wavefronts, access.ideal) == (1, count, count)


@pytest.mark.parametrize("transpose", [False, True])
def test_store_matrix_undoes_load_matrix(transpose: bool) -> None:
    body = f"""
    S = T.alloc_shared((32, 8), "float16", offset=0)
    U = T.alloc_shared((32, 8), "float16", offset=1024)
    r = T.alloc_local((8,), "float16")
    for j in T.unroll(8):
        S[tx, j] = A[tx, j]
    T.sync_threads()
    T.load_matrix(T.address_of(r[0]), T.address_of(S[tx, 0]), count=4, transpose={transpose})
    T.store_matrix(T.address_of(U[tx, 0]), T.address_of(r[0]), count=4, transpose={transpose})
    T.sync_threads()
    for i in T.unroll(8):
        B[tx, i] = U[tx, i]
    """
    found = run("A: (32, 8) float16; B: (32, 8) float16", body, A=ROWS, B=np.zeros_like(ROWS))
    assert found.report.ok
    assert (found.arrays["B"] == ROWS).all()
    assert "stmatrix" in dict(found.report.instructions)


def test_matrix_rows_are_checked() -> None:
    parameters, result = "A: (32, 8) float16; B: (32, 8) float16", np.zeros_like(ROWS)
    early = LOAD.replace("T.sync_threads()\n", "").format(count=4, transpose=False, row="tx ^ 1")
    assert {f.kind for f in report(parameters, early, A=ROWS, B=result).findings} == {
        FindingKind.RACE
    }
    odd = LOAD.format(count=4, transpose=False, row="tx").replace("S[tx, 0]", "S[tx, tx % 2]")
    with pytest.raises(RunError, match="outside"):
        report(parameters, odd, A=ROWS, B=result)


def test_a_matrix_instruction_takes_whole_warps() -> None:
    body = """
    a = T.alloc_local((8,), "float16")
    b = T.alloc_local((4,), "float16")
    c = T.alloc_local((4,), "float32")
    if tx < {}:
        T.mma(T.address_of(a[0]), T.address_of(b[0]), T.address_of(c[0]), m=16, n=8, k=16)
    """
    with pytest.raises(RunError) as caught:
        report("A: (1,) int32", body.format(40), 64, A=np.zeros(1, np.int32))
    assert str(caught.value).splitlines()[0] == (
        "'mma' is executed by 8 of the 32 threads of warp 1 in block (0)"
    )
    found = report("A: (1,) int32", body.format(32), 64, A=np.zeros(1, np.int32))
    assert {finding.buffer for finding in found.uninitialised} == {"a", "b", "c"}
