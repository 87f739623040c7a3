"""HIP text executed on this processor: the whole library, each instruction, and what goes wrong."""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

import numpy as np
import pytest
import torch

import tileworkbench as tw
import tileworkbench.language as T
from tests.amd.test_simulated import ARCHS, DTYPES, QUICK, check_chained, run
from tests.capability import require
from tests.differential.harness import random_array
from tests.differential.test_matmul import matmul, operands
from tests.kernels.checks import compare
from tests.kernels.test_gpu import CASES, HALF
from tests.tolerances import assert_contraction
from tileworkbench.compiler.compilation import Options
from tileworkbench.compiler.device.amd import clang
from tileworkbench.compiler.device.amd.clang import HipCompileError
from tileworkbench.compiler.diagnostics import RunError, UnsupportedError
from tileworkbench.compiler.driver import compile_program

pytestmark = pytest.mark.hip


@pytest.fixture(autouse=True)
def needs_clang():
    require("hip", clang.missing_compiler())


@pytest.mark.parametrize("name", QUICK)
def test_library(name):
    run(name, "emu:gfx942")


def test_products_that_share_rows_have_one_shape():
    check_chained("emu:gfx942")


@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", CASES)
def test_the_whole_library(name, arch):
    run(name, f"emu:{arch}")


MULTIPLIED = [(row[0], arch) for row in DTYPES for arch in row[2]] + [("tfloat32", "gfx942")]


@pytest.mark.slow
@pytest.mark.parametrize(("trans_a", "trans_b"), [(False, True), (True, False)])
@pytest.mark.parametrize("tile", [(64, 64, 32), (16, 32, 16)])
@pytest.mark.parametrize(("dtype", "arch"), MULTIPLIED)
def test_every_instruction(dtype, tile, trans_a, trans_b, arch):
    """Operands of each dtype, by instructions of both shapes, alone and several in a row."""
    acc = next((row[1] for row in DTYPES if row[0] == dtype), "float32")
    shape = (64, 64, 64)
    page = matmul(*shape, dtype, acc, acc, trans_a, trans_b, tile, 1)
    a, b, given = operands(*shape, dtype.removeprefix("t"), trans_a, trans_b)
    found = tw.compile(page, target=f"emu:{arch}")(given["A"], given["B"])
    if dtype == "tfloat32":
        a, b = ((x.view(np.uint32) & 0xFFFFE000).view(np.float32) for x in (a, b))
    assert_contraction(np.asarray(found), a, b)


FUNCTIONS = ("tanh", "erf", "sin", "cos", "tan", "sinh", "cosh", "atan", "log1p", "rsqrt")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_that_no_instruction_has(name):
    """Near the numbers of numpy, small and large ones."""

    @T.prim_func
    def kernel(A: T.Tensor((256,), "float32"), B: T.Tensor((256,), "float32")):
        with T.Kernel(1, threads=256):
            tx = T.get_thread_binding()
            B[tx] = getattr(T, name)(A[tx])

    most = {"sin": 500.0, "cos": 500.0, "tan": 1.5}.get(name, 10.0)
    x = np.concatenate([np.linspace(1e-4, 1.0, 128), np.geomspace(1e-3, most, 128)])
    x = x.astype(np.float32) if name in ("log1p", "rsqrt") else np.where(
        np.arange(256) % 2, x, -x
    ).astype(np.float32)  # fmt: skip
    found = np.zeros(256, np.float32)
    tw.compile(kernel, target="emu:gfx942")(x, found)
    wide = x.astype(np.float64)
    expected = torch.special.erf(torch.tensor(wide)).numpy() if name == "erf" else (
        1 / np.sqrt(wide) if name == "rsqrt" else getattr(np, name.replace("atan", "arctan"))(wide)
    )  # fmt: skip
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=4e-7)


@pytest.mark.parametrize("width", [32, 8])
def test_exchanges(width):
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

    given = random_array((128,), "int32", 5)
    results = [np.zeros((6, 128), np.int32) for _ in range(2)]
    for target, result in zip(("sim:gfx942", "emu:gfx942"), results, strict=True):
        tw.compile(kernel, target=target)(given, result)
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("dtype", ["int32", "float64"])
def test_lanes_that_differ_in_some_bits(dtype):
    """DPP for one of the four lowest bits, ds_swizzle for others."""
    distances = (1, 2, 4, 8, 16, 5, 24)

    @T.prim_func
    def kernel(A: T.Tensor((128,), dtype), B: T.Tensor((8, 128), dtype)):
        with T.Kernel(1, threads=128):
            tx = T.get_thread_binding()
            x = A[tx]
            B[0, tx] = T.shfl_xor(x, 1)
            B[1, tx] = T.shfl_xor(x, 2)
            B[2, tx] = T.shfl_xor(x, 4)
            B[3, tx] = T.shfl_xor(x, 8)
            B[4, tx] = T.shfl_xor(x, 16)
            B[5, tx] = T.shfl_xor(x, 5)
            B[6, tx] = T.shfl_xor(x, 24)
            B[7, tx] = T.warp_reduce_max(x)

    given, found = random_array((128,), dtype, 5), np.zeros((8, 128), dtype)
    made = tw.compile(kernel, target="emu:gfx942")
    made(given, found)
    lanes = np.arange(128)
    for row, distance in zip(found, distances, strict=False):
        np.testing.assert_array_equal(row, given[lanes ^ distance])
    np.testing.assert_array_equal(found[7], given.reshape(4, 32).max(1).repeat(32))
    assert "mov_dpp" in made.source and ("ds_swizzle" in made.source or dtype == "float64")


def test_fast_math_is_executed_as_without_it():
    """The text is the same, and AMD's bare instructions are the compiler's choice."""

    @T.prim_func
    def page(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(64):
                B[i] = T.exp2(A[i]) / (A[i] + 200.0)

    given = np.linspace(-140, 100, 64).astype(np.float32)
    results = [np.zeros(64, np.float32) for _ in range(2)]
    for fast, result in zip((False, True), results, strict=True):
        tw.compile(page, target="emu:gfx942", fast_math=fast)(given, result)
    np.testing.assert_array_equal(*results)
    wide = given.astype(np.float64)
    np.testing.assert_allclose(results[1], np.exp2(wide) / (wide + 200), rtol=4e-7, atol=2e-45)


@pytest.mark.parametrize("name", ["softmax", "flash_attention"])
def test_the_library_with_fast_math(name):
    program, given, expected, weight = CASES[name]()
    kernel = tw.compile(program, target="emu:gfx942", fast_math=True)
    compare(kernel(*given), expected, weight, 4.0, HALF)


# What goes wrong


def scale(bound, threads=64):
    @T.prim_func
    def kernel(A: T.Tensor((100,), "float32")):
        with T.Kernel(T.ceildiv(100, threads), threads=threads) as bx:
            tx = T.get_thread_binding()
            if bx * threads + tx < bound:
                A[bx * threads + tx] = A[bx * threads + tx] * 2.0

    return kernel


def planted(old, new):
    kernel = scale(100)
    text = compile_program(kernel.program, "emu:gfx942").record.code
    assert old in text
    return compile_program(
        kernel.program, "emu:gfx942", options=Options(code=text.replace(old, new))
    )


def test_memory_outside_of_a_tensor_is_an_error():
    with pytest.raises(RunError) as caught:
        planted("< 100", "< 104")(np.ones(100, np.float32))
    assert caught.value.message == (
        "'kernel' failed on emulated threads: argument 0 has 400 bytes, and byte 400 is accessed "
        "by thread 36 of block (1, 0, 0)"
    )


def test_a_text_that_is_no_cpp_is_an_error():
    with pytest.raises(HipCompileError) as caught:
        planted("* 2.0f", "* nope")(np.ones(100, np.float32))
    assert "the text cannot be built for this machine: " in caught.value.message
    assert "use of undeclared identifier 'nope'" in caught.value.message


def test_a_barrier_that_some_threads_do_not_reach_is_an_error():
    with pytest.raises(RunError) as caught:
        planted("* 2.0f;", "* 2.0f; __builtin_amdgcn_s_barrier();")(np.ones(100, np.float32))
    assert caught.value.message == (
        "'kernel' failed on emulated threads: a barrier of the block is reached by 36 of its 64 "
        "threads"
    )


def test_blocks_that_wait_for_each_other_are_refused():
    @T.prim_func
    def kernel(A: T.Tensor((2,), "float32")):
        with T.Kernel(2, threads=64) as bx:
            A[bx] = 1.0
            T.sync_grid()
            A[1 - bx] = A[1 - bx] + 1.0

    with pytest.raises(UnsupportedError) as caught:
        tw.compile(kernel, target="emu:gfx942")(np.zeros(2, np.float32))
    assert caught.value.render() == (
        "UnsupportedError: blocks that wait for each other are not emulated: they run one after "
        "the other\nhint: simulate the kernel: target 'sim:gfx942'"
    )
