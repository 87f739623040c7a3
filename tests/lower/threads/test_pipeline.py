"""Operators through all passes and the simulator, where barriers count: results, no findings, and
shared accesses without bank conflicts.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from tests.lower.threads.planned import program
from tests.lower.threads.warps import array_dtype
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.passes.gpu_pipeline import gpu_pipeline
from tileworkbench.compiler.sim import SimResult, simulate
from tileworkbench.compiler.target import parse_target

BOTH = (False, True)


def run(made: Program, arrays: dict[str, Any], target: str = "cuda:sm_80") -> SimResult:
    """The last stage on `arrays`, without findings."""
    found = made
    for step in gpu_pipeline(parse_target(target)):
        found = step(found)
    result = simulate(found, arrays, signature=made)
    report = result.report
    assert not (report.races or report.uninitialised or report.out_of_bounds or report.divergent)
    return result


def ratios(result: SimResult) -> dict[tuple[str, str], float]:
    """Wavefronts over ideal of every kind of access to each shared buffer."""
    return {
        (access.buffer, access.kind): access.wavefronts / access.ideal
        for access in result.report.accesses
        if access.scope == "shared" and access.ideal
    }


def matmul(
    tile: tuple[int, int, int], dtype: str, result: str, transpose_a: bool, transpose_b: bool
) -> SimResult:
    """Two steps of a pipelined product of one tile, compared with numpy."""
    m, n, k = tile
    tile_a, tile_b = (k, m) if transpose_a else (m, k), (n, k) if transpose_b else (k, n)
    from_a = (
        f"A[k * {k}:k * {k} + {k}, 0:{m}]" if transpose_a else f"A[0:{m}, k * {k}:k * {k} + {k}]"
    )
    from_b = (
        f"B[0:{n}, k * {k}:k * {k} + {k}]" if transpose_b else f"B[k * {k}:k * {k} + {k}, 0:{n}]"
    )
    text = f"""
        A_shared = T.alloc_shared({tile_a}, "{dtype}")
        B_shared = T.alloc_shared({tile_b}, "{dtype}")
        C_local = T.alloc_fragment(({m}, {n}), "{result}")
        T.fill(C_local, T.cast(0, "{result}"))
        for k in T.Pipelined(2, num_stages=2):
            T.copy({from_a}, A_shared)
            T.copy({from_b}, B_shared)
            T.gemm(A_shared, B_shared, C_local, transpose_A={transpose_a}, \
transpose_B={transpose_b})
        T.copy(C_local, C)
    """
    shape_a = (2 * k, m) if transpose_a else (m, 2 * k)
    shape_b = (n, 2 * k) if transpose_b else (2 * k, n)
    params = [
        f'A: T.Tensor({shape_a}, "{dtype}")', f'B: T.Tensor({shape_b}, "{dtype}")',
        f'C: T.Tensor(({m}, {n}), "{result}")',
    ]  # fmt: skip
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, s).astype(array_dtype(dtype)) for s in (shape_a, shape_b))
    c = np.zeros((m, n), result)
    found = run(program(params, text), {"A": a, "B": b, "C": c})
    left, right = a.astype(np.float64), b.astype(np.float64)
    expected = (left.T if transpose_a else left) @ (right.T if transpose_b else right)
    assert np.array_equal(found.arrays["C"], expected)
    return found


TILES = [
    ("float16", "float32", (64, 64, 32)), ("float16", "float32", (128, 128, 32)),
    ("bfloat16", "float32", (64, 96, 64)), ("float32", "float32", (64, 64, 16)),
    ("float64", "float64", (32, 32, 16)), ("int8", "int32", (64, 64, 64)),
]  # fmt: skip


@pytest.mark.covering(2)
@pytest.mark.parametrize("transpose_a", BOTH)
@pytest.mark.parametrize("transpose_b", BOTH)
@pytest.mark.parametrize(("dtype", "result", "tile"), TILES)
def test_products_have_no_bank_conflicts(
    dtype: str, result: str, tile: tuple[int, int, int], transpose_a: bool, transpose_b: bool
) -> None:
    found = ratios(matmul(tile, dtype, result, transpose_a, transpose_b))
    assert {buffer for buffer, _ in found} == {"A_shared", "B_shared"}
    assert set(found.values()) == {1.0}


@pytest.mark.parametrize(("transpose_a", "transpose_b"), [*product(BOTH, BOTH)])
def test_bytes_across_k_take_at_most_twice_the_ideal(transpose_a: bool, transpose_b: bool) -> None:
    found = ratios(matmul((64, 96, 32), "int8", "int32", transpose_a, transpose_b))
    assert all(value == 1.0 for (_, kind), value in found.items() if kind != "load")
    assert found.get(("A_shared", "load"), 1.0) == 1.0
    assert found.get(("B_shared", "load"), 2.0) == 2.0


ATTENTION = """
    Q_shared = T.alloc_shared((64, 64), "{dtype}")
    K_shared = T.alloc_shared((64, 64), "{dtype}")
    V_shared = T.alloc_shared((64, 64), "{dtype}")
    S = T.alloc_fragment((64, 64), "float32")
    P = T.alloc_fragment((64, 64), "{dtype}")
    O_local = T.alloc_fragment((64, 64), "float32")
    top = T.alloc_fragment((64,), "float32")
    before = T.alloc_fragment((64,), "float32")
    total = T.alloc_fragment((64,), "float32")
    sums = T.alloc_fragment((64,), "float32")
    T.copy(Q, Q_shared)
    T.fill(O_local, 0.0)
    T.fill(total, 0.0)
    T.fill(top, -1000.0)
    for k in T.Pipelined(2, num_stages=2):
        T.copy(K[k * 64:k * 64 + 64, 0:64], K_shared)
        T.gemm(Q_shared, K_shared, S, transpose_B=True, clear_accum=True, policy="{policy}")
        T.copy(top, before)
        T.reduce_max(S, top, dim=1, clear=False)
        for i, j in T.Parallel(64, 64):
            S[i, j] = T.exp2(S[i, j] - top[i])
        T.reduce_sum(S, sums, dim=1)
        for i in T.Parallel(64):
            total[i] = total[i] * T.exp2(before[i] - top[i]) + sums[i]
        for i, j in T.Parallel(64, 64):
            O_local[i, j] = O_local[i, j] * T.exp2(before[i] - top[i])
        T.copy(S, P)
        T.copy(V[k * 64:k * 64 + 64, 0:64], V_shared)
        T.gemm(P, V_shared, O_local, policy="{policy}")
    for i, j in T.Parallel(64, 64):
        O_local[i, j] = O_local[i, j] / total[i]
    T.copy(O_local, O)
"""


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_attention_has_no_bank_conflicts(dtype: str) -> None:
    shapes = {"Q": 64, "K": 128, "V": 128}
    params = [f'{x}: T.Tensor(({rows}, 64), "{dtype}")' for x, rows in shapes.items()]
    params.append('O: T.Tensor((64, 64), "float32")')
    made = program(params, ATTENTION.format(dtype=dtype, policy="full_row"))
    rng = np.random.default_rng(0)
    arrays = {
        x: (rng.standard_normal((rows, 64)) / 4).astype(array_dtype(dtype))
        for x, rows in shapes.items()
    }
    found = run(made, {**arrays, "O": np.zeros((64, 64), np.float32)})
    q, k, v = (arrays[x].astype(np.float64) for x in "QKV")
    weights = np.exp2(q @ k.T)
    expected = weights / weights.sum(1, keepdims=True) @ v
    assert np.abs(found.arrays["O"] - expected).max() < 4 * float(array_eps(dtype))
    assert set(ratios(found).values()) == {1.0}


def array_eps(dtype: str) -> float:
    import ml_dtypes

    return float(ml_dtypes.finfo(array_dtype(dtype)).eps)


REDUCTION = """
    S = T.alloc_fragment((64, 64), "float32")
    rows = T.alloc_fragment((64,), "float32")
    columns = T.alloc_fragment((64,), "float32")
    S_shared = T.alloc_shared((64, 64), "float32")
    for k in T.serial(2):
        T.copy(A[k * 64:k * 64 + 64, 0:64], S)
        T.reduce_max(S, rows, dim=1)
        T.reduce_sum(S, columns, dim=0)
        for i, j in T.Parallel(64, 64):
            S_shared[i, j] = S[i, j] + rows[i] + columns[j]
        T.reduce_sum(S_shared, columns, dim=0, clear=False)
        T.scan_sum(S_shared, S_shared, dim=1, reverse=False)
        T.scan_max(S_shared, S_shared, dim=0, reverse=True)
        T.copy(columns, B[k * 64:k * 64 + 64])
        T.copy(S_shared, C[k * 64:k * 64 + 64, 0:64])
"""


@pytest.mark.parametrize("threads", [64, 128, 256])
def test_steps_through_shared_memory_are_ordered(threads: int) -> None:
    params = [
        'A: T.Tensor((128, 64), "float32")', 'B: T.Tensor((128,), "float32")',
        'C: T.Tensor((128, 64), "float32")',
    ]  # fmt: skip
    a = np.random.default_rng(0).integers(-9, 10, (128, 64)).astype(np.float32)
    arrays = {"A": a, "B": np.zeros(128, np.float32), "C": np.zeros_like(a)}
    found = run(program(params, REDUCTION, threads), arrays)
    for k in range(2):
        s = a[k * 64 : k * 64 + 64]
        tile = s + s.max(1)[:, None] + s.sum(0)
        assert np.array_equal(found.arrays["B"][k * 64 : k * 64 + 64], s.sum(0) + tile.sum(0))
        tile = np.flip(np.maximum.accumulate(np.flip(tile.cumsum(1), 0), 0), 0)
        assert np.array_equal(found.arrays["C"][k * 64 : k * 64 + 64], tile)


def test_copies_of_reducers_meet_in_order() -> None:
    text = """
        total = T.alloc_fragment((64,), "float32")
        result = T.alloc_fragment((64,), "float32")
        for k in T.serial(2):
            T.fill(total, 1.0)
            for i, j in T.Parallel(64, 64):
                T.atomic_add(total[j], A[k * 64 + i, j])
            T.copy(total, result)
            T.copy(result, B[k * 64:k * 64 + 64])
    """
    params = ['A: T.Tensor((128, 64), "float32")', 'B: T.Tensor((128,), "float32")']
    a = np.random.default_rng(0).integers(-9, 10, (128, 64)).astype(np.float32)
    found = run(program(params, text), {"A": a, "B": np.zeros(128, np.float32)})
    assert np.array_equal(found.arrays["B"], 1 + a.reshape(2, 64, 64).sum(1).reshape(-1))


@pytest.mark.parametrize(
    ("m", "n", "k", "dtype", "result"),
    [
        (32, 32, 32, "float16", "float32"), (32, 32, 16, "bfloat16", "bfloat16"),
        (32, 32, 16, "float8_e4m3fn", "float32"), (10, 12, 8, "float32", "float32"),
        (4, 64, 32, "int8", "int32"), (7, 5, 3, "int32", "int32"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("scopes", [*product(("shared", "fragment"), repeat=3)], ids="-".join)
def test_products_from_everywhere_are_ordered(
    m: int, n: int, k: int, dtype: str, result: str, scopes: tuple[str, str, str]
) -> None:
    """Operands and results in shared memory and registers, twice in a row."""
    a, b, c = scopes
    text = f"""
        A_tile = T.alloc_{a}(({m}, {k}), "{dtype}")
        B_tile = T.alloc_{b}(({n}, {k}), "{dtype}")
        C_tile = T.alloc_{c}(({m}, {n}), "{result}")
        for s in T.serial(2):
            T.copy(A[s * {m}:s * {m} + {m}, 0:{k}], A_tile)
            T.copy(B, B_tile)
            T.gemm(A_tile, B_tile, C_tile, transpose_B=True, clear_accum=s == 0)
        T.copy(C_tile, C)
    """
    params = [
        f'A: T.Tensor(({2 * m}, {k}), "{dtype}")', f'B: T.Tensor(({n}, {k}), "{dtype}")',
        f'C: T.Tensor(({m}, {n}), "{result}")',
    ]  # fmt: skip
    rng = np.random.default_rng(0)
    left, right = (rng.integers(0, 3, s).astype(array_dtype(dtype)) for s in ((2 * m, k), (n, k)))
    arrays = {"A": left, "B": right, "C": np.zeros((m, n), array_dtype(result))}
    found = run(program(params, text, 64), arrays)
    both = left.astype(np.float64).reshape(2, m, k).sum(0) @ right.astype(np.float64).T
    assert np.array_equal(found.arrays["C"].astype(np.float64), both)


def test_one_tile_serves_a_product_and_its_transpose() -> None:
    """A @ A.T: both operands are one tile, once along K and once across it."""
    for dtype, result in (("float16", "float32"), ("float32", "float32"), ("int8", "int32")):
        text = f"""
            tile = T.alloc_shared((64, 64), "{dtype}")
            rows = T.alloc_fragment((64, 64), "{result}")
            columns = T.alloc_fragment((64, 64), "{result}")
            T.copy(A, tile)
            T.gemm(tile, tile, rows, transpose_B=True, clear_accum=True)
            T.gemm(tile, tile, columns, transpose_A=True, clear_accum=True)
            T.copy(rows, B)
            T.copy(columns, C)
        """
        params = [f'A: T.Tensor((64, 64), "{dtype}")']
        params += [f'{name}: T.Tensor((64, 64), "{result}")' for name in "BC"]
        a = np.random.default_rng(0).integers(-3, 4, (64, 64)).astype(array_dtype(dtype))
        out = {name: np.zeros((64, 64), result) for name in "BC"}
        found = run(program(params, text), {"A": a, **out})
        wide = a.astype(np.float64)
        assert np.array_equal(found.arrays["B"], wide @ wide.T)
        assert np.array_equal(found.arrays["C"], wide.T @ wide)
        assert max(ratios(found).values()) <= 4 if dtype == "int8" else 2


@pytest.mark.parametrize("columns", [24, 40, 72])
@pytest.mark.parametrize(("dtype", "result"), [("float16", "float32"), ("float32", "float32")])
def test_rows_that_no_swizzle_fits(columns: int, dtype: str, result: str) -> None:
    found = matmul((64, 64, columns), dtype, result, False, True)
    assert set(ratios(found).values()) == {1.0}
    found = matmul((64, columns * 2, 16), dtype, result, True, False)
    assert set(ratios(found).values()) == {1.0}


def test_a_role_reduces_and_multiplies_on_its_own() -> None:
    text = """
        A_shared = T.alloc_shared((32, 32), "float16")
        T.copy(A, A_shared)
        T.sync_threads()
        with T.threads(32, 64):
            S = T.alloc_fragment((32, 32), "float32")
            rows = T.alloc_fragment((32,), "float32")
            columns = T.alloc_fragment((32,), "float32")
            T.gemm(A_shared, A_shared, S, clear_accum=True)
            T.reduce_max(S, rows, dim=1)
            T.reduce_sum(S, columns, dim=0)
            T.copy(rows, B)
            T.copy(columns, C)
    """
    params = ['A: T.Tensor((32, 32), "float16")']
    params += [f'{name}: T.Tensor((32,), "float32")' for name in "BC"]
    a = np.random.default_rng(0).integers(-3, 4, (32, 32)).astype(np.float16)
    found = run(program(params, text, 128), {"A": a, **{x: np.zeros(32, "float32") for x in "BC"}})
    s = a.astype(np.float32) @ a.astype(np.float32)
    assert np.array_equal(found.arrays["B"], s.max(1))
    assert np.array_equal(found.arrays["C"], s.sum(0))


@pytest.mark.parametrize(("shape", "dim"), [((4, 16, 32), 0), ((4, 16, 32), 1), ((10, 50), 1)])
def test_scans_of_more_lines_than_threads(shape: tuple[int, ...], dim: int) -> None:
    """In place, and read by other threads afterwards; threads keep to their lines."""
    text = f"""
        S = T.alloc_shared({shape}, "float32")
        T.copy(A, S)
        T.scan_max(S, S, dim={dim}, reverse=False)
        T.copy(S, B)
    """
    params = [f'{x}: T.Tensor({shape}, "float32")' for x in "AB"]
    a = np.random.default_rng(0).integers(-9, 10, shape).astype(np.float32)
    found = run(program(params, text, 96), {"A": a, "B": np.zeros_like(a)})
    assert np.array_equal(found.arrays["B"], np.maximum.accumulate(a, dim))
    assert found.report.barriers == 2
