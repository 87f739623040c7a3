"""Kernels on the threads of AMD's GPUs, simulated: numpy, and every stage of the lowering."""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

import numpy as np
import pytest
import torch

import tileworkbench as tw
import tileworkbench.language as T
from tests.differential.harness import check_on_threads, equals, random_array
from tests.differential.test_matmul import matmul, operands
from tests.kernels.checks import compare
from tests.kernels.test_gpu import CASES, HALF
from tests.tolerances import assert_contraction
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.simt import Mma
from tileworkbench.compiler.ir.types import DType
from tileworkbench.kernels import flash_attention, mla_decode

ARCHS = ("gfx90a", "gfx942", "gfx950")
# One in the default tier, all in the slow one.
EACH = ["gfx942", *(pytest.param(arch, marks=pytest.mark.slow) for arch in ("gfx90a", "gfx950"))]
QUICK = ("matmul", "flash_attention", "dequant_matmul")


def products(kernel):
    """The shapes of the matrix instructions in lowered code."""
    found = statements(kernel.compiled.lowered.body)
    return {(stmt.m, stmt.n, stmt.k) for stmt in found if isinstance(stmt, Mma)}


def check_product(dtype, acc, target, shape=(32, 32, 32), tile=(32, 32, 32), **options):
    m, n, k = shape
    kernel = matmul(m, n, k, dtype, acc, acc, tile=tile, **options)
    transposed = {name: options.get(name, False) for name in ("trans_a", "trans_b")}
    a, b, given = operands(m, n, k, dtype, **transposed)
    check_on_threads(kernel, given, lambda t: assert_contraction(t["C"], a, b), target)
    return kernel


@pytest.mark.parametrize("arch", EACH)
@pytest.mark.parametrize(
    ("trans_a", "trans_b"),
    [
        (False, True),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in ((False, False), (True, True))),
        (True, False),
    ],
)
def test_every_transposition_at_every_stage(arch, trans_a, trans_b):
    """A ragged shape on two waves."""
    check_product(
        *("float16", "float32", f"sim:{arch}", (70, 40, 50)), trans_a=trans_a, trans_b=trans_b
    )


DTYPES = [
    ("float16", "float32", {"gfx90a": 16, "gfx942": 16, "gfx950": 16}),
    ("bfloat16", "float32", {"gfx90a": 16, "gfx942": 16, "gfx950": 16}),
    ("float32", "float32", {"gfx90a": 8, "gfx942": 8, "gfx950": 8}),
    ("float64", "float64", {"gfx90a": 8, "gfx942": 8, "gfx950": 8}),
    ("int8", "int32", {"gfx90a": 32, "gfx942": 32, "gfx950": 32}),
    ("float8_e4m3fn", "float32", {"gfx950": 32}),
    ("float8_e5m2", "float32", {"gfx950": 32}),
    ("float8_e4m3fnuz", "float32", {"gfx942": 32}),
    ("float8_e5m2fnuz", "float32", {"gfx942": 32}),
]


MULTIPLIED = [
    pytest.param(dtype, acc, arch, depth, marks=() if arch == "gfx942" else pytest.mark.slow)
    for dtype, acc, depths in DTYPES
    for arch, depth in depths.items()
]


@pytest.mark.parametrize(("dtype", "acc", "arch", "depth"), MULTIPLIED)
def test_the_instruction_of_a_dtype(dtype, acc, arch, depth):
    made = check_product(dtype, acc, f"sim:{arch}", (64, 64, 64), (64, 64, 32))
    edge = 16 if dtype == "float64" else 32
    # B is read by rows, of which a wave has 64, where neither registers nor LDS turn it.
    across = 2 if DType(dtype).bits == 8 and arch == "gfx950" else 1
    assert products(tw.compile(made, target=f"sim:{arch}")) == {(edge, edge * across, depth)}


def test_tiles_too_small_for_all_waves_have_smaller_products():
    made = check_product("float16", "float32", "sim:gfx942", (32, 64, 32), (32, 64, 32))
    assert products(tw.compile(made, target="sim:gfx942")) == {(32, 32, 16)}
    made = check_product("float16", "float32", "sim:gfx942", (16, 32, 64), (16, 32, 16))
    assert products(tw.compile(made, target="sim:gfx942")) == {(16, 16, 16)}


def check_chained(target):
    """Two products whose warps would take instructions of different shapes: rows of the scores
    would lie in other lanes than rows of the output, which are scaled by what the scores give.
    """
    page = mla_decode(
        1, 64, 40, 128, 16, "float16", block_N=32, block_H=64, threads=256, num_stages=1
    )
    generator = torch.Generator().manual_seed(5)
    shapes = ((1, 64, 128), (1, 64, 16), (1, 40, 1, 128), (1, 40, 1, 16))
    given = [torch.randn(shape, generator=generator).half() for shape in shapes]
    kernel = tw.compile(page, target=target)
    assert {shape[:2] for shape in products(kernel)} == {(16, 16)}
    compare(kernel(*given), mla_decode.reference(*given), 8.0, 4.0, HALF)
    return kernel


def test_products_that_share_rows_have_one_shape():
    kernel = check_chained("sim:gfx942")
    reasons = [each.reason for each in kernel.compiled.lowered.decisions]
    assert any(each.startswith("with instructions of different shapes: ") for each in reasons)


@pytest.mark.parametrize(
    ("arch", "shapes"),
    [("gfx942", {(32, 32, 16), (32, 32, 8)}), ("gfx950", {(32, 64, 16), (32, 32, 16)})],
)
def test_the_product_of_a_result_is_as_deep_as_the_machine_allows(arch, shapes):
    """gfx950: two results across deal their columns out as the deeper instruction wants them."""
    page = flash_attention(1, 1, 64, 64, 64, "float16", block_M=64, block_N=64)
    kernel = tw.compile(page, target=f"sim:{arch}")
    assert products(kernel) == shapes
    generator = torch.Generator().manual_seed(5)
    given = [torch.randn((1, 64, 1, 64), generator=generator).half() for _ in range(3)]
    compare(kernel(*given)[0], flash_attention.reference(*given)[0], 8.0, 4.0, HALF)


@pytest.mark.parametrize(("x", "y"), [(5, 7), (3, 2), (16, 4)])
def test_blocks_by_die_are_each_visited_once(x, y):
    """Numbers that eight dies do not divide, fewer blocks than dies, and as many for each."""

    @T.prim_func
    def kernel(F: T.Tensor((y, x), "int32")):
        with T.Kernel(x, y, threads=64) as (bx, by):
            T.use_swizzle(2)
            for i in T.Parallel(1):
                F[by, bx] = by * x + bx

    visited = np.full((y, x), -1, np.int32)  # no block is left out, so none came twice
    tw.compile(kernel, target="sim:gfx942")(visited)
    assert (visited.reshape(-1) == np.arange(x * y)).all()


def test_float32_is_multiplied_as_it_is():
    """Where tensor cores of NVIDIA drop 13 bits."""
    a = np.full((32, 32), 1 + 2**-20, np.float32)
    given = {"A": a, "B": np.eye(32, dtype=np.float32)}
    kernel = matmul(32, 32, 32, "float32", "float32", "float32", tile=(32, 32, 32))
    for target, expected in (("sim:gfx942", a[0, 0]), ("sim:sm_80", 1)):
        found = tw.compile(kernel, target=target)(given["A"], given["B"])
        assert np.asarray(found)[0, 0] == expected


@pytest.mark.parametrize("arch", EACH)
@pytest.mark.parametrize("extent", [pytest.param(40, marks=pytest.mark.slow), 200])
def test_reductions_and_scans_over_lanes_of_a_wave(arch, extent):
    @T.prim_func
    def kernel(A: T.Tensor((5, extent), "float32")):
        sums, most, running = (
            T.empty((5,), "float32"), T.empty((5,), "float32"), T.empty((5, extent), "float32")
        )  # fmt: skip
        with T.Kernel(1, threads=128):
            tile = T.alloc_shared((5, extent), "float32")
            total = T.alloc_fragment((5,), "float32")
            T.copy(A, tile)
            T.reduce_sum(tile, total, dim=1)
            T.copy(total, sums)
            T.reduce_max(tile, total, dim=1)
            T.copy(total, most)
            T.cumsum(tile, dim=1)
            T.copy(tile, running)
        return sums, most, running

    a = random_array((5, extent), "float32", 3)
    a = np.round(a * 8)

    def check(t):
        names = [name for name in t if name != "A"]
        for name, expected in zip(names, (a.sum(1), a.max(1), a.cumsum(1)), strict=True):
            np.testing.assert_array_equal(t[name], expected)

    check_on_threads(kernel, {"A": a}, check, f"sim:{arch}")


@pytest.mark.parametrize("width", [32, pytest.param(4, marks=pytest.mark.slow)])
def test_shuffles_and_votes_of_the_language_on_waves_of_64(width):
    @T.prim_func
    def kernel(A: T.Tensor((128,), "int32"), B: T.Tensor((6, 128), "int32")):
        with T.Kernel(1, threads=128):
            tx = T.get_thread_binding()
            x = A[tx]
            B[0, tx] = T.shfl_xor(x, width // 2, width=width)
            B[1, tx] = T.shfl_up(x, 1, width=width)
            B[2, tx] = T.shfl_down(x, 3, width=width)
            B[3, tx] = T.shfl_sync(x, tx + 1, width=width)
            B[4, tx] = T.warp_reduce_sum(x)
            B[5, tx] = T.any_sync(x > 90)

    a, lane = np.arange(128, dtype=np.int32) * 7 % 101, np.arange(128)
    at = lane % width
    halves = a.reshape(-1, 32)
    expected = np.stack([
        a[lane ^ width // 2],
        np.where(at >= 1, a[lane - 1], a),
        np.where(at + 3 < width, a[(lane + 3) % 128], a),
        a[lane // width * width + (lane + 1) % width],
        halves.sum(1).repeat(32),
        (halves > 90).any(1).repeat(32),
    ])  # fmt: skip
    given = {"A": a, "B": np.zeros((6, 128), np.int32)}
    check_on_threads(kernel, given, equals(B=expected.astype(np.int32)), "sim:gfx942")


# The library


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["gfx90a", "gfx942"])
def test_latent_attention_of_a_whole_model_fits_as_its_page_says(arch):
    page = mla_decode(16, 128, 4096, block_H=16, block_N=32, threads=128)
    assert tw.compile(page, target=f"sim:{arch}").stats.shared_bytes == 57344


def run(name, target):
    program, arguments, expected, scale = CASES[name]()
    compare(tw.compile(program, target=target)(*arguments), expected, scale, 4.0, HALF)


@pytest.mark.parametrize("name", QUICK)
def test_library(name):
    run(name, "sim:gfx942")


@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", CASES)
def test_the_whole_library(name, arch):
    run(name, f"sim:{arch}")
