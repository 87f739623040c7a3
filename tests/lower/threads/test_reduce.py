"""Reductions on threads: every kind, dtype, dimension and place, executed in lock step."""

from __future__ import annotations

import numpy as np
import pytest

from tests.lower.threads.planned import lowered, plan, program
from tests.lower.threads.warps import Warps, array_dtype
from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import walk
from tileworkbench.compiler.layout.atoms import WarpGrid, block_c, mma_c
from tileworkbench.compiler.layout.fragment import Fragment
from tileworkbench.compiler.lower.threads.reduce_layouts import plan_source, reduced_fragment

NUMPY = {
    "sum": np.sum, "max": np.fmax.reduce, "min": np.fmin.reduce,
    "absmax": lambda x, axis: np.abs(x).max(axis), "abssum": lambda x, axis: np.abs(x).sum(axis),
    "bitand": np.bitwise_and.reduce, "bitor": np.bitwise_or.reduce,
    "bitxor": np.bitwise_xor.reduce, "prod": np.multiply.reduce,
}  # fmt: skip


def reduce(
    shape: tuple[int, ...], dim: int, kind: str = "sum", dtype: str = "float32",
    result: str | None = None, *, src: str = "fragment", dst: str = "fragment",
    keep: bool = False, clear: bool = True, nan: bool = False, threads: int = 128,
    values: np.ndarray | None = None,
) -> Warps:  # fmt: skip
    """Run one reduction from and to global memory, and compare it with numpy."""
    result = result or dtype
    kept = [1 if d == dim else e for d, e in enumerate(shape) if keep or d != dim] or [1]
    text = f"""
        S = T.alloc_{src}({shape}, "{dtype}")
        D = T.alloc_{dst}({tuple(kept)}, "{result}")
        T.copy(A, S)
        T.copy(B, D)
        T.reduce_{kind}(S, D, dim={dim}, clear={clear}, nan_propagate={nan})
        T.copy(D, B)
    """
    params = [f'A: T.Tensor({shape}, "{dtype}")', f'B: T.Tensor({tuple(kept)}, "{result}")']
    made = lowered(program(params, text, threads))
    rng = np.random.default_rng(sum(shape))
    low = 0 if dtype.startswith(("uint", "bool")) else -9
    if values is None:
        values = rng.integers(low, 10, shape).astype(array_dtype(dtype))
        if kind == "prod":  # a few twos and signs: exact in any order, and no overflow
            values = np.where(rng.random(shape) < 0.05, 2, np.where(values < 0, -1, 1))
            values = values.astype(array_dtype(dtype))
    old = rng.integers(max(low, -9), 10, kept).astype(array_dtype(result))
    expected = NUMPY[kind](values.astype(array_dtype(result)), axis=dim).reshape(kept)
    if not clear:
        both = np.stack([old.astype(expected.dtype), expected])
        expected = NUMPY[kind if kind[:3] != "abs" else kind[3:]](both, axis=0)
    run = Warps(made, {"A": values, "B": old})
    assert np.array_equal(
        run.memory["B"], expected.astype(array_dtype(result)), equal_nan=expected.dtype.kind == "f"
    )
    run.program = made
    return run


def shared_buffers(program: Program) -> list[str]:
    found = {b.name for b in walk(program.body) if isinstance(b, Buffer) and b.scope == "shared"}
    return sorted(found)


SHAPES = [
    ((64, 32), 1), ((64, 32), 0), ((8, 128), 1), ((8, 128), 0), ((128, 1), 1), ((1, 256), 1),
    ((16, 8, 32), 1), ((16, 8, 32), 2), ((4, 4, 64), 0), ((512,), 0), ((100,), 0), ((7, 20), 1),
    ((7, 20), 0), ((30, 33), 1), ((30, 33), 0), ((4, 50), 1), ((5, 12), 1), ((6, 14), 1),
]  # fmt: skip


@pytest.mark.covering(2)
@pytest.mark.parametrize(("shape", "dim"), SHAPES)
@pytest.mark.parametrize("src", ["fragment", "shared"])
@pytest.mark.parametrize("dst", ["fragment", "shared"])
def test_every_shape_and_place(shape: tuple[int, ...], dim: int, src: str, dst: str) -> None:
    reduce(shape, dim, src=src, dst=dst)
    reduce(shape, dim, "max", src=src, dst=dst, keep=True, clear=False)


@pytest.mark.parametrize("kind", sorted(NUMPY))
@pytest.mark.parametrize("dtype", ["int32", "int8", "uint8", "int64", "float32", "float16"])
def test_every_kind_and_dtype(kind: str, dtype: str) -> None:
    if kind.startswith("bit") and dtype.startswith("float"):
        return
    for clear in (True, False):
        reduce((16, 64), 1, kind, dtype, clear=clear)
        reduce((16, 64), 0, kind, dtype, clear=clear, src="shared")


@pytest.mark.parametrize("kind", ["bitand", "bitor", "max", "min"])
def test_conditions(kind: str) -> None:
    values = np.arange(16 * 64).reshape(16, 64) % 67 != 0
    reduce((16, 64), 1, kind, "bool", values=values)


def test_sixteen_bits_are_summed_in_float32_and_rounded_once() -> None:
    values = np.full((2, 4096), 0.1, np.float16)
    text = """
        S = T.alloc_fragment((2, 4096), "float16")
        D = T.alloc_fragment((2,), "float16")
        T.copy(A, S)
        T.reduce_sum(S, D, dim=1)
        T.copy(D, B)
    """
    params = ['A: T.Tensor((2, 4096), "float16")', 'B: T.Tensor((2,), "float16")']
    run = Warps(lowered(program(params, text)), {"A": values, "B": np.zeros(2, np.float16)})
    assert (run.memory["B"] == np.float16(values[0].astype(np.float64).sum())).all()


@pytest.mark.parametrize("src", ["fragment", "shared"])
def test_nan_is_ignored_unless_it_propagates(src: str) -> None:
    values = np.arange(8 * 64, dtype=np.float32).reshape(8, 64)
    values[3, 17] = values[5, 63] = np.nan
    reduce((8, 64), 1, "max", values=values, src=src)
    text = f"""
        S = T.alloc_{src}((8, 64), "float32")
        D = T.alloc_fragment((8,), "float32")
        T.copy(A, S)
        T.reduce_max(S, D, dim=1, nan_propagate=True)
        T.copy(D, B)
    """
    params = ['A: T.Tensor((8, 64), "float32")', 'B: T.Tensor((8,), "float32")']
    run = Warps(lowered(program(params, text)), {"A": values, "B": np.zeros(8, np.float32)})
    assert np.array_equal(run.memory["B"], values.max(1), equal_nan=True)


def test_values_are_converted_to_the_result_first() -> None:
    reduce((16, 64), 1, "sum", "int8", "int32")
    reduce((16, 64), 1, "sum", "float16", "float32")


@pytest.mark.covering(1)
@pytest.mark.parametrize("threads", [32, 48, 64, 96, 128, 256])
@pytest.mark.parametrize("shape", [(64, 32), (3, 96), (16, 20), (32, 2, 5)])
def test_any_number_of_threads(threads: int, shape: tuple[int, ...]) -> None:
    for dim in range(len(shape)):
        for src in ("fragment", "shared"):
            reduce(shape, dim, threads=threads, src=src)


# The accumulator of a matrix product

SOFTMAX = """
    A_shared = T.alloc_shared((64, 16), "float16")
    B_shared = T.alloc_shared((16, 64), "float16")
    S = T.alloc_fragment((64, 64), "float32")
    rows = T.alloc_fragment((64,), "float32")
    columns = T.alloc_fragment((64,), "float32")
    T.copy(A, A_shared)
    T.copy(B, B_shared)
    T.gemm(A_shared, B_shared, S, policy={policy!r}, clear_accum=True)
    T.reduce_max(S, rows, dim=1)
    T.reduce_sum(S, columns, dim=0)
    for i, j in T.Parallel(64, 64):
        S[i, j] = S[i, j] - rows[i] + columns[j]
    T.copy(S, C)
"""


@pytest.mark.parametrize("policy", ["square", "full_row", "full_col"])
def test_rows_and_columns_of_an_accumulator(policy: str) -> None:
    params = [
        'A: T.Tensor((64, 16), "float16")', 'B: T.Tensor((16, 64), "float16")',
        'C: T.Tensor((64, 64), "float32")',
    ]  # fmt: skip
    made = lowered(program(params, SOFTMAX.format(policy=policy)))
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, s).astype(np.float16) for s in ((64, 16), (16, 64)))
    run = Warps(made, {"A": a, "B": b, "C": np.zeros((64, 64), np.float32)})
    s = a.astype(np.float32) @ b.astype(np.float32)
    assert np.array_equal(run.memory["C"], s - s.max(1)[:, None] + s.sum(0)[None])
    # Rows that a warp holds alone need no memory; others meet there.
    workspaces = [name for name in shared_buffers(made) if name.endswith("workspace")]
    expected = {
        "square": ["columns_workspace", "rows_workspace"],
        "full_row": ["columns_workspace"],
        "full_col": ["rows_workspace"],
    }
    assert workspaces == expected[policy]
    per_warp = {"square": 2 * 4 + 3 * 8, "full_row": 2 * 2 + 3 * 16, "full_col": 2 * 8 + 3 * 4}
    assert run.issued["shfl_xor"] == 4 * per_warp[policy]


def test_the_threads_of_a_row_hold_its_result() -> None:
    """Whoever holds a part of row i holds m[i]: the lanes of a quad, in every column of warps."""
    found = reduced_fragment(block_c(WarpGrid(64, 64, 2, 2), mma_c()), 1, False)
    assert found == Fragment(
        (64,),
        lambda i, rep: (32 * (i // 32) + 4 * (i % 8) + rep % 4 + 64 * (rep // 4), i % 32 // 8),
        replicate=8,
    )
    kept = reduced_fragment(block_c(WarpGrid(64, 64, 2, 2), mma_c()), 1, True)
    assert kept.shape == (64, 1)
    assert kept.replicate == 8


def test_a_reduced_dimension_inside_a_thread_vanishes() -> None:
    source = Fragment((32, 4), lambda i, j: (i, j))
    assert reduced_fragment(source, 1, False) == Fragment((32,), lambda i: (i, 0))


def test_neighbouring_lanes_read_neighbouring_elements_of_shared_memory() -> None:
    rows = plan_source((64, 128), 1, 128, 32)
    assert [rows.thread_of(0, j) for j in range(33)] == [*range(32), 0]
    wide = plan_source((64, 128), 1, 128, 64)
    assert [wide.thread_of(0, j) for j in range(65)] == [*range(64), 0]
    columns = plan_source((64, 128), 0, 128, 32)
    assert [columns.thread_of(0, j) for j in range(128)] == list(range(128))
    one = plan_source((512,), 0, 128, 32)
    assert one.threads == 128


def test_a_result_that_other_threads_hold_goes_through_shared_memory() -> None:
    text = """
        S = T.alloc_fragment((64, 64), "float32")
        total = T.alloc_fragment((64,), "float32")
        out = T.alloc_fragment((64, 64), "float32")
        T.copy(A, S)
        T.reduce_sum(S, total, dim=0)
        for i, j in T.Parallel(64, 64):
            out[i, j] = S[i, j] + total[i]
        T.copy(out, B)
    """
    params = ['A: T.Tensor((64, 64), "float32")', 'B: T.Tensor((64, 64), "float32")']
    a = np.random.default_rng(0).integers(-9, 10, (64, 64)).astype(np.float32)
    made = lowered(program(params, text))
    run = Warps(made, {"A": a, "B": np.zeros_like(a)})
    assert np.array_equal(run.memory["B"], a + a.sum(0)[:, None])


def test_steps_through_shared_memory_are_statements_of_their_own() -> None:
    made = lowered(program(["A: T.Tensor((4,), 'float32')"], """
        S = T.alloc_fragment((1, 512), "float32")
        D = T.alloc_fragment((1,), "float32")
        T.fill(S, 1.0)
        T.reduce_sum(S, D, dim=1)
        T.copy(D, A[0:1])
    """))  # fmt: skip
    lines = [line for line in str(made).splitlines() if "workspace[" in line]
    assert len(lines) == 3
    assert lines[0].strip() == "T.store(D_workspace[group], D[0], tx % 32 == 0)"


def test_private_arrays_are_reduced_by_each_thread() -> None:
    text = """
        S = T.alloc_local((4, 8), "float32")
        D = T.alloc_local((4,), "float32")
        for i in T.serial(4):
            for j in T.serial(8):
                S[i, j] = T.cast(tx + i + j, "float32")
        T.reduce_max(S, D, dim=1)
        for i in T.serial(4):
            A[tx, i] = D[i]
    """
    made = lowered(program(['A: T.Tensor((128, 4), "float32")'], text))
    run = Warps(made, {"A": np.zeros((128, 4), np.float32)})
    assert np.array_equal(run.memory["A"], np.arange(128)[:, None] + np.arange(4) + 7)


def test_layouts_are_the_same_in_every_run() -> None:
    params = [
        'A: T.Tensor((64, 16), "float16")', 'B: T.Tensor((16, 64), "float16")',
        'C: T.Tensor((64, 64), "float32")',
    ]  # fmt: skip
    text = SOFTMAX.format(policy="square")
    assert str(plan(program(params, text))) == str(plan(program(params, text)))


def test_a_tile_does_not_fit_an_array_of_each_thread() -> None:
    text = """
        S = T.alloc_fragment((8, 64), "float32")
        D = T.alloc_local((8,), "float32")
        T.fill(S, 1.0)
        T.reduce_sum(S, D, dim=1)
    """
    with pytest.raises(UnsupportedError) as found:
        lowered(program([], text))
    assert found.value.message == (
        "T.reduce_sum of 'S' gives the tile 'D', which is private to each thread"
    )
    assert found.value.hint == "allocate it with T.alloc_fragment or T.alloc_shared"
