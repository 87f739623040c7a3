"""Copies by the copy engine of sm_90: 1 to 5 dimensions, dtypes, swizzles, edges, several boxes,
dynamic shapes; numpy, the simulator after every pass and the executed PTX agree.
"""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

import numpy as np
import pytest

import tileworkbench.language as T
from tests.differential.harness import check_on_threads, equals, named, random_array, run_native
from tileworkbench.compiler.driver import compile_program

LOAD, STORE = "tensor_load_", "tensor_store_"


def check_engine(kernel, arguments, check, *uses):
    """The same everywhere; the emitted text has (or with "!" in front has not) each of `uses`."""
    check_on_threads(kernel, arguments, check, "sim:sm_90")
    compiled = compile_program(kernel.program, "ptx:sm_90")
    for use in uses:
        assert (use.lstrip("!") in compiled.module.text) is not use.startswith("!"), use
    with named("PTX"):
        check(run_native(kernel.program, arguments, "ptx:sm_90"))


def through(shape, tile, dtype="float16", grid=1):
    """A kernel that takes box `bx` of A, along its second dimension from the right (the only one
    of a vector), to shared memory and from there to B."""
    axis = max(len(tile) - 2, 0)

    @T.prim_func
    def kernel(A: T.Tensor(shape, dtype), B: T.Tensor(shape, dtype)):
        with T.Kernel(grid, threads=128) as bx:
            S = T.alloc_shared(tile, dtype)
            origin = [0] * len(tile)
            origin[axis] = bx * tile[axis]
            box = tuple(slice(o, o + e) for o, e in zip(origin, tile, strict=True))
            T.copy(A[box], S)
            T.copy(S, B[box])

    return kernel


def check_through(shape, tile, dtype="float16", grid=1):
    a = random_array(shape, dtype)
    b = np.zeros_like(a)
    expected = b.copy()
    axis = max(len(tile) - 2, 0)
    box = [slice(0, extent) for extent in tile]
    box[axis] = slice(0, grid * tile[axis])
    expected[tuple(box)] = a[tuple(box)]
    rank = len(shape)
    check_engine(
        through(shape, tile, dtype, grid),
        {"A": a, "B": b},
        equals(B=expected),
        f"{LOAD}{rank}",
        f"{STORE}{rank}",
    )


@pytest.mark.nvrtc
@pytest.mark.parametrize(
    ("shape", "tile", "grid"),
    [
        ((100,), (64,), 2),
        ((20, 40), (8, 32), 3),
        ((3, 20, 16), (2, 8, 16), 3),
        ((2, 3, 20, 8), (2, 1, 8, 8), 3),
        ((2, 2, 3, 20, 8), (1, 2, 3, 8, 8), 3),
    ],
)
def test_one_to_five_dimensions(shape, tile, grid):
    check_through(shape, tile, "float32", grid)


@pytest.mark.nvrtc
@pytest.mark.slow
@pytest.mark.parametrize(
    "dtype",
    ["float64", "float32", "float16", "bfloat16", "int8", "uint8", "int16", "int64", "uint32"],
)
def test_every_dtype(dtype):
    check_through((20, 48), (8, 32), dtype, 3)


def matmul(stages, k=160, m=128, n=64):
    @T.prim_func
    def kernel(
        A: T.Tensor((m, k), "float16"),
        B: T.Tensor((k, n), "float16"),
        C: T.Tensor((m, n), "float32"),
    ):
        with T.Kernel(T.ceildiv(m, 64), threads=128) as by:
            A_shared = T.alloc_shared((64, 32), "float16")
            B_shared = T.alloc_shared((32, 64), "float16")
            C_local = T.alloc_fragment((64, 64), "float32")
            T.clear(C_local)
            for ko in T.Pipelined(T.ceildiv(k, 32), num_stages=stages):
                T.copy(A[by * 64, ko * 32], A_shared)
                T.copy(B[ko * 32, 0], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            T.copy(C_local, C[by * 64, 0])

    return kernel


def integers(shape, dtype="float16", seed=0):
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(dtype)


def check_matmul(kernel, m, k, n, *uses):
    a, b = integers((m, k)), integers((k, n), seed=1)
    c = np.zeros((m, n), np.float32)
    expected = a.astype(np.float32) @ b.astype(np.float32)
    check_engine(kernel, {"A": a, "B": b, "C": c}, equals(C=expected), *uses)


@pytest.mark.nvrtc
@pytest.mark.parametrize(
    "stages", [3, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 4, 7))]
)
def test_a_ring_of_barriers_per_stage(stages):
    check_matmul(matmul(stages), 128, 160, 64, LOAD, "!cp_async")


@pytest.mark.nvrtc
@pytest.mark.slow
def test_tiles_over_the_edge_are_filled_with_zeros():
    check_matmul(matmul(3, k=72, m=100), 100, 72, 64, LOAD, "!cp_async")


@pytest.mark.nvrtc
def test_rows_that_are_no_multiples_of_16_bytes_stay_with_threads():
    check_matmul(matmul(3, k=68, m=64), 64, 68, 64, LOAD, "cp_async")


@pytest.mark.nvrtc
@pytest.mark.parametrize("k", [64, pytest.param(68, marks=pytest.mark.slow)])
def test_dynamic_shapes_take_the_code_that_fits(k):
    K = T.dynamic("K")

    @T.prim_func
    def kernel(
        A: T.Tensor((64, K), "float16"),
        B: T.Tensor((K, 64), "float16"),
        C: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            A_shared = T.alloc_shared((64, 32), "float16")
            B_shared = T.alloc_shared((32, 64), "float16")
            C_local = T.alloc_fragment((64, 64), "float32")
            T.clear(C_local)
            for ko in T.Pipelined(T.ceildiv(K, 32), num_stages=2):
                T.copy(A[0, ko * 32], A_shared)
                T.copy(B[ko * 32, 0], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            T.copy(C_local, C)

    check_matmul(kernel, 64, k, 64, LOAD, "!A_map")
    compiled = compile_program(kernel.program, "ptx:sm_90")
    a, b = integers((64, k)), integers((k, 64), seed=1)
    compiled(a, b, np.zeros((64, 64), np.float32))
    assert ("A_map" in compiled.taken.module.text) is (k % 8 == 0)


@pytest.mark.nvrtc
@pytest.mark.parametrize("trips", [3, pytest.param(4, marks=pytest.mark.slow)])
def test_a_pipelined_loop_that_runs_again_counts_on(trips):
    @T.prim_func
    def kernel(A: T.Tensor((4, trips * 16, 64), "float16"), B: T.Tensor((4, 16, 64), "float32")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((16, 64), "float16")
            total = T.alloc_fragment((16, 64), "float32")
            for b in T.serial(4):
                T.clear(total)
                for i in T.Pipelined(trips, num_stages=2):
                    T.copy(A[b, i * 16 : i * 16 + 16, :], S)
                    for r, c in T.Parallel(16, 64):
                        total[r, c] += S[r, c]
                T.copy(total, B[b, :, :])

    a = integers((4, trips * 16, 64))
    expected = a.astype(np.float32).reshape(4, trips, 16, 64).sum(axis=1)
    check_engine(
        kernel, {"A": a, "B": np.zeros_like(expected)}, equals(B=expected), LOAD, "!cp_async"
    )


@pytest.mark.nvrtc
def test_a_copy_in_a_loop_waits_for_a_phase_each_time():
    @T.prim_func
    def kernel(A: T.Tensor((5, 8, 32), "float32"), B: T.Tensor((5, 8, 32), "float32")):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((8, 32), "float32")
            for i in T.serial(5):
                T.copy(A[i, :, :], S)
                for r, c in T.Parallel(8, 32):
                    B[i, r, c] = S[7 - r, c] + 1.0

    a = random_array((5, 8, 32), "float32")
    expected = a[:, ::-1] + np.float32(1)
    check_engine(kernel, {"A": a, "B": np.zeros_like(a)}, equals(B=expected), LOAD)


@pytest.mark.nvrtc
@pytest.mark.parametrize(
    ("shape", "tile", "boxes"),
    [
        ((300, 64), (288, 64), 2),  # 288 rows are two boxes of 144
        ((8, 512), (1, 512), 2),  # 512 elements of a row
        ((1000,), (768,), 3),
    ],
)
def test_extents_above_256_are_several_boxes(shape, tile, boxes):
    check_through(shape, tile, "float16", 1)
    text = compile_program(through(shape, tile).program, "ptx:sm_90").module.text
    assert text.count(f"{LOAD}{len(shape)}(smem_address") == boxes


@pytest.mark.nvrtc
@pytest.mark.parametrize(
    "columns", [64, *(pytest.param(n, marks=pytest.mark.slow) for n in (16, 32, 128))]
)
def test_the_swizzle_is_that_of_the_layout_that_is_read(columns):
    @T.prim_func
    def kernel(
        A: T.Tensor((64, columns), "float16"),
        B: T.Tensor((64, columns), "float16"),
        C: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            A_shared = T.alloc_shared((64, columns), "float16")
            B_shared = T.alloc_shared((64, columns), "float16")
            C_local = T.alloc_fragment((64, 64), "float32")
            T.clear(C_local)
            T.copy(A, A_shared)
            T.copy(B, B_shared)
            T.gemm(A_shared, B_shared, C_local, transpose_B=True)
            T.copy(C_local, C)

    a, b = integers((64, columns)), integers((64, columns), seed=1)
    expected = a.astype(np.float32) @ b.astype(np.float32).T
    check_engine(kernel, {"A": a, "B": b, "C": np.zeros_like(expected)}, equals(C=expected), LOAD)
    notes = compile_program(kernel.program, "sim:sm_90").record.snapshots[-1].program.notes
    width = min(2 * columns, 128)
    assert sum(f"TMA, {width}-byte swizzle" in note for note in notes) == 2


@pytest.mark.nvrtc
def test_a_tile_that_threads_fill_is_stored_behind_a_fence():
    @T.prim_func
    def kernel(A: T.Tensor((70, 64), "float32"), B: T.Tensor((70, 64), "float16")):
        with T.Kernel(5, threads=128) as bx:
            S = T.alloc_shared((16, 64), "float16")
            for i, j in T.Parallel(16, 64):
                S[i, j] = A[bx * 16 + i, j] * 2.0
            T.copy(S, B[bx * 16, 0])

    a = integers((70, 64), "float32")
    check_engine(
        kernel,
        {"A": a, "B": np.zeros((70, 64), np.float16)},
        equals(B=(a * 2).astype(np.float16)),
        STORE,
        "fence_async();",
    )


def laid_out(rows, layout):
    """A tile of 64 columns in that layout, of which `rows` rows are copied."""

    @T.prim_func
    def kernel(A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 64), "float16")
            T.annotate_layout({S: layout(S)})
            T.copy(A[0:rows, :], S[0:rows, :])
            T.copy(S[0:rows, :], B[0:rows, :])

    return kernel


@pytest.mark.parametrize(
    ("rows", "layout", "why"),
    [
        (64, lambda S: T.Layout((64, 64), lambda i, j: j * 64 + i), "none that the engine stores"),
        (4, T.make_swizzled_layout, "it takes a part of 'S' that cuts its swizzle"),
    ],
    ids=["columns", "half a swizzle"],
)
def test_threads_copy_what_no_swizzle_of_the_engine_has(rows, layout, why):
    a, b = random_array((64, 64), "float16"), np.zeros((64, 64), np.float16)
    expected = b.copy()
    expected[:rows] = a[:rows]
    kernel = laid_out(rows, layout)
    check_engine(kernel, {"A": a, "B": b}, equals(B=expected), f"!{LOAD}2", f"!{STORE}2")
    notes = compile_program(kernel.program, "sim:sm_90").record.snapshots[-1].program.notes
    assert [note[:2] for note in notes if why in note] == ["A:", "B:"]
