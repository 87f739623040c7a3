"""Matrix products on threads: every dtype, orientation, place of the operands and policy, executed
in lock step against numpy.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from tests.lower.threads.planned import lowered, program
from tests.lower.threads.warps import Warps, array_dtype
from tileworkbench.compiler.diagnostics import (
    CompileError,
    LayoutError,
    TileValueError,
    UnsupportedError,
)
from tileworkbench.compiler.ir.rewrite import walk
from tileworkbench.compiler.ir.simt import LoadMatrix, Mma
from tileworkbench.compiler.ir.tile import WarpPolicy
from tileworkbench.compiler.ir.types import DType
from tileworkbench.compiler.lower.threads.mma import Product, partition_warps, select_instruction
from tileworkbench.compiler.machine.tables import machine_of
from tileworkbench.compiler.target import parse_target

BOTH = (False, True)


def gemm(
    m: int, n: int, k: int, dtype: str, result: str, *, transpose_a: bool = False,
    transpose_b: bool = False, a: str = "shared", b: str = "shared", c: str = "fragment",
    policy: str = "square", clear: str = "True", threads: int = 128, target: str = "cuda:sm_80",
) -> Warps:  # fmt: skip
    """Run one product from and to global memory, and compare it with numpy."""
    shape_a = (k, m) if transpose_a else (m, k)
    shape_b = (n, k) if transpose_b else (k, n)
    flags = f"transpose_A={transpose_a}, transpose_B={transpose_b}, policy={policy!r}"
    text = f"""
        A_tile = T.alloc_{a}({shape_a}, "{dtype}")
        B_tile = T.alloc_{b}({shape_b}, "{dtype}")
        C_tile = T.alloc_{c}(({m}, {n}), "{result}")
        T.copy(A, A_tile)
        T.copy(B, B_tile)
        T.copy(C, C_tile)
        T.gemm(A_tile, B_tile, C_tile, {flags}, clear_accum={clear})
        T.copy(C_tile, C)
    """
    params = [
        f'A: T.Tensor({shape_a}, "{dtype}")', f'B: T.Tensor({shape_b}, "{dtype}")',
        f'C: T.Tensor(({m}, {n}), "{result}")', "flag: T.int32",
    ]  # fmt: skip
    made = lowered(program(params, text, threads), target)
    rng = np.random.default_rng(m * n + k)
    arrays = {
        "A": rng.integers(0 if "uint" in dtype else -3, 4, shape_a).astype(array_dtype(dtype)),
        "B": rng.integers(0 if "uint" in dtype else -3, 4, shape_b).astype(array_dtype(dtype)),
        "C": rng.integers(-3, 4, (m, n)).astype(array_dtype(result)),
    }
    left, right = (arrays[x].astype(np.float64) for x in "AB")
    expected = (left.T if transpose_a else left) @ (right.T if transpose_b else right)
    if clear == "False" or clear == "flag == 1":
        expected = expected + arrays["C"].astype(np.float64)
    run = Warps(made, arrays, flag=0)
    assert np.array_equal(run.memory["C"].astype(np.float64), expected)
    assert (run.counts["C"] >= 1).all()
    run.program = made
    return run


DTYPES = [
    ("float16", "float32", 16), ("float16", "float16", 16), ("bfloat16", "float32", 16),
    ("float32", "float32", 8), ("int8", "int32", 32), ("uint8", "int32", 32),
    ("float64", "float64", 4),
]  # fmt: skip


@pytest.mark.covering(2)
@pytest.mark.parametrize("transpose_a", BOTH)
@pytest.mark.parametrize("transpose_b", BOTH)
@pytest.mark.parametrize(("dtype", "result", "depth"), DTYPES)
def test_every_dtype_and_orientation(
    dtype: str, result: str, depth: int, transpose_a: bool, transpose_b: bool
) -> None:
    run = gemm(64, 32, 4 * depth, dtype, result, transpose_a=transpose_a, transpose_b=transpose_b)
    assert run.issued["mma"] == (64 // (8 if dtype == "float64" else 16)) * 4 * 4


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize(("target", "depth"), [("cuda:sm_89", 32), ("cuda:sm_80", 16)])
def test_float8_is_widened_where_there_is_no_instruction(
    dtype: str, target: str, depth: int
) -> None:
    for transpose_a, transpose_b in product(BOTH, BOTH):
        run = gemm(
            32, 32, 64, dtype, "float32", target=target, threads=64,
            transpose_a=transpose_a, transpose_b=transpose_b,
        )  # fmt: skip
        assert run.issued["mma"] == 2 * 4 * 64 // depth


@pytest.mark.parametrize(("dtype", "result"), [("float16", "float32"), ("int8", "int32")])
def test_turing_has_smaller_instructions(dtype: str, result: str) -> None:
    for transpose_a, transpose_b in product(BOTH, BOTH):
        run = gemm(
            32, 32, 32, dtype, result, target="cuda:sm_75", transpose_a=transpose_a,
            transpose_b=transpose_b,
        )  # fmt: skip
        assert run.issued["mma"] == 32


@pytest.mark.covering(2)
@pytest.mark.parametrize("a", ["shared", "fragment"])
@pytest.mark.parametrize("b", ["shared", "fragment"])
@pytest.mark.parametrize(
    ("dtype", "result"), [("float16", "float32"), ("float32", "float32"), ("int8", "int32")]
)
def test_operands_in_registers(a: str, b: str, dtype: str, result: str) -> None:
    for transpose_a, transpose_b in product(BOTH, BOTH):
        run = gemm(
            64, 32, 64, dtype, result, a=a, b=b, transpose_a=transpose_a, transpose_b=transpose_b
        )
        if a == b == "fragment":
            assert "load_matrix" not in run.issued


@pytest.mark.parametrize("policy", ["square", "full_row", "full_col"])
@pytest.mark.parametrize(("m", "n", "threads"), [(64, 64, 128), (128, 32, 128), (64, 128, 256)])
def test_every_policy(policy: str, m: int, n: int, threads: int) -> None:
    gemm(m, n, 16, "float16", "float32", policy=policy, threads=threads)


def test_columns_of_a_warp_that_are_no_multiple_of_16() -> None:
    run = gemm(64, 24, 32, "float16", "float32", policy="full_row", transpose_b=True)
    assert run.issued["load_matrix"] == 4 * 2 * (1 + 2)


@pytest.mark.parametrize("c", ["fragment", "shared"])
@pytest.mark.parametrize("clear", ["True", "False", "flag == 0", "flag == 1"])
def test_results_replace_or_add_up(c: str, clear: str) -> None:
    gemm(32, 32, 32, "float16", "float32", c=c, clear=clear)
    gemm(32, 32, 16, "bfloat16", "bfloat16", c=c, clear=clear, threads=64)
    gemm(8, 12, 10, "float32", "float32", c=c, clear=clear, threads=32)


@pytest.mark.parametrize(
    ("m", "n", "k", "dtype", "result"),
    [
        (16, 16, 20, "float16", "float32"), (10, 12, 8, "float32", "float32"),
        (4, 64, 32, "int8", "int32"), (16, 16, 16, "float16", "float64"),
        (7, 5, 3, "int32", "int32"), (16, 8, 4, "int8", "float32"),
    ],
)  # fmt: skip
def test_threads_multiply_what_fits_no_instruction(
    m: int, n: int, k: int, dtype: str, result: str
) -> None:
    for transpose_a, transpose_b in product(BOTH, BOTH):
        run = gemm(m, n, k, dtype, result, transpose_a=transpose_a, transpose_b=transpose_b)
        assert "mma" not in run.issued


def test_threads_multiply_operands_from_registers() -> None:
    for a, b in product(("shared", "fragment"), repeat=2):
        for transpose_a, transpose_b in product(BOTH, BOTH):
            gemm(
                8, 12, 6, "float32", "float32", a=a, b=b, threads=32,
                transpose_a=transpose_a, transpose_b=transpose_b,
            )  # fmt: skip


def test_bytes_along_k_are_multiplied_four_at_a_time() -> None:
    run = gemm(4, 8, 16, "int8", "int32", transpose_b=True, threads=32)
    assert "dp4a" in str(run.program)
    run = gemm(4, 8, 16, "int8", "int32", threads=32)
    assert "dp4a" not in str(run.program)


def test_bytes_that_are_no_multiple_of_four_are_multiplied_one_by_one() -> None:
    text = """
        A_shared = T.alloc_shared((4, 16), "int8")
        B_shared = T.alloc_shared((8, 16), "int8")
        C_local = T.alloc_fragment((4, 8), "int32")
        T.copy(A, A_shared)
        T.copy(B, B_shared)
        T.gemm(A_shared[0:4, 4:10], B_shared[0:8, 4:10], C_local, transpose_B=True, \
clear_accum=True)
        T.copy(C_local, C)
    """
    params = [
        'A: T.Tensor((4, 16), "int8")', 'B: T.Tensor((8, 16), "int8")',
        'C: T.Tensor((4, 8), "int32")',
    ]  # fmt: skip
    made = lowered(program(params, text, 32))
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-9, 10, (rows, 16)).astype(np.int8) for rows in (4, 8))
    run = Warps(made, {"A": a, "B": b, "C": np.zeros((4, 8), np.int32)})
    wide_a, wide_b = (x[:, 4:10].astype(np.int32) for x in (a, b))
    assert np.array_equal(run.memory["C"], wide_a @ wide_b.T)


def test_parts_and_versions_of_operands() -> None:
    text = """
        A_shared = T.alloc_shared((2, 32, 48), "float16")
        B_shared = T.alloc_shared((2, 48, 32), "float16")
        C_local = T.alloc_fragment((32, 32), "float32")
        for s in T.serial(2):
            T.copy(A[s * 32:s * 32 + 32, 0:48], A_shared[s:s + 1, 0:32, 0:48])
            T.copy(B[s * 48:s * 48 + 48, 0:32], B_shared[s:s + 1, 0:48, 0:32])
        T.fill(C_local, 0.0)
        for s in T.serial(2):
            T.gemm(A_shared[s:s + 1, 0:32, 16:48], B_shared[s:s + 1, 16:48, 0:32], C_local)
        T.copy(C_local, C)
    """
    params = [
        'A: T.Tensor((64, 48), "float16")', 'B: T.Tensor((96, 32), "float16")',
        'C: T.Tensor((32, 32), "float32")',
    ]  # fmt: skip
    made = lowered(program(params, text, 64))
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, s).astype(np.float16) for s in ((64, 48), (96, 32)))
    run = Warps(made, {"A": a, "B": b, "C": np.zeros((32, 32), np.float32)})
    parts = [
        a[s * 32 : s * 32 + 32, 16:].astype(float) @ b[s * 48 + 16 : s * 48 + 48].astype(float)
        for s in range(2)
    ]
    assert np.array_equal(run.memory["C"], sum(parts))


def test_the_warps_of_a_role_share_their_own_product() -> None:
    text = """
        A_shared = T.alloc_shared((64, 16), "float16")
        B_shared = T.alloc_shared((16, 32), "float16")
        T.copy(A, A_shared)
        T.copy(B, B_shared)
        with T.threads(64, 128):
            C_local = T.alloc_fragment((64, 32), "float32")
            T.gemm(A_shared, B_shared, C_local, clear_accum=True)
            T.copy(C_local, C)
    """
    params = [
        'A: T.Tensor((64, 16), "float16")', 'B: T.Tensor((16, 32), "float16")',
        'C: T.Tensor((64, 32), "float32")',
    ]  # fmt: skip
    made = lowered(program(params, text, 192))
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, s).astype(np.float16) for s in ((64, 16), (16, 32)))
    run = Warps(made, {"A": a, "B": b, "C": np.zeros((64, 32), np.float32)})
    assert np.array_equal(run.memory["C"], a.astype(np.float32) @ b.astype(np.float32))
    assert run.issued["mma"] == 16


CHAIN = """
    Q_shared = T.alloc_shared((64, 32), "{dtype}")
    K_shared = T.alloc_shared((64, 32), "{dtype}")
    V_shared = T.alloc_shared((64, 32), "{dtype}")
    S = T.alloc_fragment((64, 64), "{result}")
    P = T.alloc_fragment((64, 64), "{dtype}")
    O_local = T.alloc_fragment((64, 32), "{result}")
    T.copy(Q, Q_shared)
    T.copy(K, K_shared)
    T.copy(V, V_shared)
    T.gemm(Q_shared, K_shared, S, transpose_B=True, policy="{first}", clear_accum=True)
    T.copy(S, P)
    T.gemm(P, V_shared, O_local, policy="{second}", clear_accum=True)
    T.copy(O_local, O)
"""


def chain(dtype: str, result: str, first: str, second: str, target: str = "cuda:sm_80") -> Warps:
    """Attention's P @ V: the accumulator, converted, is operand A in registers."""
    params = [f'{name}: T.Tensor((64, 32), "{dtype}")' for name in "QKV"]
    params.append(f'O: T.Tensor((64, 32), "{result}")')
    text = CHAIN.format(dtype=dtype, result=result, first=first, second=second)
    made = lowered(program(params, text, 128), target)
    rng = np.random.default_rng(0)
    arrays = {x: rng.integers(-1, 2, (64, 32)).astype(array_dtype(dtype)) for x in "QKV"}
    q, k, v = (arrays[x].astype(np.float32) for x in "QKV")
    run = Warps(made, {**arrays, "O": np.zeros((64, 32), result)})
    p = (q @ k.T).astype(array_dtype(dtype)).astype(np.float32)
    assert np.array_equal(run.memory["O"], p @ v)
    run.program = made
    return run


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_result_of_16_bits_is_an_operand_where_it_lies(dtype: str) -> None:
    run = chain(dtype, "float32", "full_row", "full_row")
    assert "workspace" not in str(run.program)


@pytest.mark.parametrize(
    ("dtype", "result", "target"),
    [
        ("float32", "float32", "cuda:sm_80"), ("int8", "int32", "cuda:sm_80"),
        ("float8_e4m3fn", "float32", "cuda:sm_89"),
    ],
)  # fmt: skip
def test_a_result_of_other_bits_goes_through_shared_memory(
    dtype: str, result: str, target: str
) -> None:
    for first, second in (("full_row", "full_row"), ("square", "full_row")):
        run = chain(dtype, result, first, second, target)
        assert "P_workspace" in str(run.program)


# Structure


def test_loads_run_ahead_of_products() -> None:
    run = gemm(64, 64, 64, "float16", "float32")
    statements = [s for s in walk(run.program.body) if isinstance(s, LoadMatrix | Mma)]
    kinds = [type(s).__name__ for s in statements]
    assert kinds == ["LoadMatrix"] * 4 + ["Mma"] * 2
    text = str(run.program)
    assert "A_tile_registers = T.alloc_local((32,)" in text  # two steps of two atoms
    assert "for k in T.unroll(3):" in text


def test_one_matrix_load_brings_four_matrices() -> None:
    run = gemm(64, 64, 16, "float16", "float32")
    assert run.issued == {"load_matrix": 4 * (2 + 2), "mma": 4 * 2 * 4}
    run = gemm(64, 64, 16, "float16", "float32", target="cuda:sm_75")
    assert run.issued == {"load_matrix": 4 * 2 * (1 + 1), "mma": 4 * 2 * 2 * 4}


# Errors


def _message(error: CompileError) -> str:
    return error.message + (f" | {error.hint}" if error.hint else "")


def test_warps_that_cannot_share_the_result_are_an_error() -> None:
    with pytest.raises(TileValueError) as found:
        gemm(16, 24, 16, "float16", "float32", threads=128)
    assert _message(found.value) == (
        "No valid warp partition: 4 warps cannot share a result of 16 x 24 in whole tiles of "
        "16 x 8 | use threads=96, or a larger tile"
    )


def test_parts_of_warps_are_an_error() -> None:
    with pytest.raises(TileValueError) as found:
        gemm(16, 16, 16, "float16", "float32", threads=48)
    assert _message(found.value) == (
        "T.gemm on tensor cores takes whole warps of 32 threads, not 48 threads | use threads=64"
    )


def test_operands_private_to_a_thread_are_an_error() -> None:
    text = """
        A_local = T.alloc_local((16, 16), "float16")
        B_shared = T.alloc_shared((16, 16), "float16")
        C_local = T.alloc_fragment((16, 16), "float32")
        T.gemm(A_local, B_shared, C_local)
    """
    with pytest.raises(UnsupportedError) as found:
        lowered(program([], text, 32))
    assert _message(found.value) == (
        "operand A of T.gemm, 'A_local', is private to each thread | allocate it with "
        "T.alloc_shared or T.alloc_fragment"
    )


def test_parts_of_fragments_are_an_error() -> None:
    text = """
        A_local = T.alloc_fragment((16, 32), "float16")
        B_shared = T.alloc_shared((16, 16), "float16")
        C_local = T.alloc_fragment((16, 16), "float32")
        T.gemm(A_local[0:16, 0:16], B_shared, C_local)
    """
    with pytest.raises(UnsupportedError) as found:
        lowered(program([], text, 32))
    assert _message(found.value) == (
        "operand A of T.gemm is a part of the fragment 'A_local' | give the part a fragment of its "
        "own, or keep it in shared memory"
    )


def test_a_fragment_in_another_layout_is_a_conflict() -> None:
    text = """
        A_shared = T.alloc_shared((64, 32), "float16")
        B_shared = T.alloc_shared((32, 64), "float16")
        C_local = T.alloc_fragment((64, 64), "float32")
        T.gemm(A_shared, B_shared, C_local, policy="full_row")
        T.gemm(A_shared, B_shared, C_local, policy="full_col")
    """
    with pytest.raises(LayoutError) as found:
        lowered(program([], text, 128))
    assert found.value.message == (
        "'T.gemm' cannot be spread over threads: 'C_local' already has another layout"
    )


# Sharing among warps

F16 = machine_of("sm_80").matrices[0]


@pytest.mark.parametrize(
    ("policy", "m", "n", "warps", "expected"),
    [
        ("square", 128, 128, 4, (2, 2)), ("square", 128, 128, 8, (2, 4)),
        ("square", 64, 256, 4, (2, 2)), ("square", 16, 128, 4, (1, 4)),
        ("square", 128, 8, 4, (4, 1)), ("square", 96, 96, 6, (2, 3)),
        ("full_row", 128, 128, 8, (8, 1)), ("full_row", 64, 128, 8, (4, 2)),
        ("full_col", 128, 128, 8, (1, 8)), ("full_col", 128, 32, 8, (2, 4)),
    ],
)  # fmt: skip
def test_policies_share_the_result(
    policy: str, m: int, n: int, warps: int, expected: tuple[int, int]
) -> None:
    grid = partition_warps(WarpPolicy(policy), m, n, warps, F16)
    assert (grid.warps_m, grid.warps_n) == expected


def test_the_best_instruction_is_taken() -> None:
    def shape(target: str, dtype: str, result: str, k: int, m: int = 64) -> tuple[int, ...] | None:
        wanted = Product(m, 64, k, DType(dtype), DType(dtype), DType(result))
        found = select_instruction(parse_target(target), wanted)
        return None if found is None else (found.m, found.n, found.k)

    assert shape("cuda:sm_80", "float16", "float32", 32) == (16, 8, 16)
    assert shape("cuda:sm_80", "float16", "float32", 24) == (16, 8, 8)
    assert shape("cuda:sm_75", "float16", "float32", 32) == (16, 8, 8)
    assert shape("cuda:sm_75", "bfloat16", "float32", 32) is None
    assert shape("cuda:sm_80", "bfloat16", "bfloat16", 32) == (16, 8, 16)
    assert shape("cuda:sm_80", "int8", "int32", 32, m=8) == (8, 8, 16)
    assert shape("cuda:sm_80", "int8", "float32", 32) is None
    assert shape("cuda:sm_80", "float64", "float64", 32) == (8, 8, 4)
    assert shape("cuda:sm_89", "float8_e4m3fn", "float32", 32) == (16, 8, 32)
    assert shape("cuda:sm_89", "float8_e4m3fn", "float32", 48) == (16, 8, 16)
    assert shape("cuda:sm_80", "int4", "int32", 64) == (16, 8, 64)
    assert shape("cuda:sm_80", "int4", "int32", 48) == (16, 8, 16)  # bytes
    assert shape("cuda:sm_75", "uint4", "int32", 64) == (8, 8, 32)
    assert shape("cuda:sm_90", "int4", "int32", 64) == (16, 8, 32)
    assert shape("cuda:sm_80", "float32", "float64", 32) is None
    assert shape("hip:gfx942", "float16", "float32", 32) == (32, 32, 16)
    assert shape("hip:gfx942", "float16", "float32", 32, m=16) == (16, 16, 32)
    assert shape("hip:gfx942", "float16", "float32", 24) == (32, 32, 8)
    assert shape("hip:gfx942", "float8_e4m3fn", "float32", 32) == (32, 32, 16)  # as float16
    assert shape("hip:gfx942", "float8_e4m3fnuz", "float32", 32) == (32, 32, 32)
    assert shape("hip:gfx90a", "tfloat32", "float32", 32) is None
    assert shape("hip:gfx942", "uint8", "int32", 32) is None
    assert not machine_of("gfx942").dot_product
