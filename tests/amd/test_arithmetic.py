"""Arithmetic that HIP texts write in a way of their own: the numbers are those of the simulator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tests.capability import require
from tileworkbench.compiler.device.amd import clang

pytestmark = pytest.mark.hip


@pytest.fixture(autouse=True)
def needs_clang() -> None:
    require("hip", clang.missing_compiler())


def scaled(low: int, mask: int) -> Any:
    """Small integers, with and without a scale, as float16."""

    @T.prim_func
    def scaled(codes: T.Tensor((64, 64), T.uint8), scales: T.Tensor((64,), T.float16)):
        Y = T.empty((2, 64, 64), T.float16)
        with T.Kernel(1, threads=64) as bx:
            for i, j in T.Parallel(64, 64):
                code = T.cast(codes[i, j], T.int32) & mask
                scale = T.cast(scales[i], T.float32)
                Y[0, i, j] = (code + low) * scale
                Y[1, i, j] = code + low
        return Y

    return scaled


@pytest.mark.parametrize(("low", "mask"), [(-8, 15), (0, 255), (-1024, 255), (-128, 255)])
def test_small_integers_become_float16_by_their_bits(low: int, mask: int) -> None:
    rng = np.random.default_rng(-low)
    codes = rng.integers(0, 256, (64, 64)).astype(np.uint8)
    scales = rng.standard_normal(64).astype(np.float16)
    scales[:4] = [0.0, -0.0, np.inf, 6e-8]
    kernel = tw.compile(scaled(low, mask), target="emu:gfx942")
    assert kernel.source.count("small_f16(") == 3
    numbers = (codes.astype(np.int32) & mask) + low
    with np.errstate(all="ignore"):
        product = numbers.astype(np.float32) * scales[:, None].astype(np.float32)
        product = product.astype(np.float16)
    result = np.asarray(kernel(codes, scales))
    np.testing.assert_array_equal(result[0], product)
    np.testing.assert_array_equal(result[1], numbers.astype(np.float16))
    simulated = tw.compile(scaled(low, mask), target="sim:gfx942")(codes, scales)
    np.testing.assert_array_equal(result, np.asarray(simulated))


@pytest.mark.parametrize(("low", "mask"), [(-1025, 15), (0, 2047)])
def test_larger_integers_do_not(low: int, mask: int) -> None:
    assert "small_f16" not in tw.compile(scaled(low, mask), target="hip:gfx942").source


def test_the_machine_multiplies_pairs() -> None:
    assembly = tw.compile(scaled(-8, 15), target="hip:gfx942").asm
    assert "v_pk_mul_f16" in assembly and "v_cvt_f32_i32" not in assembly


def test_reciprocal_roots_of_subnormal_numbers() -> None:
    @T.prim_func
    def roots(X: T.Tensor((64,), T.float32)):
        Y = T.empty((64,), T.float32)
        with T.Kernel(1, threads=64) as bx:
            for i in T.Parallel(64):
                Y[i] = T.rsqrt(X[i])
        return Y

    x = np.geomspace(1e-44, 3e38, 64, dtype=np.float32)
    x[:3] = [0.0, np.inf, 1.0]
    kernel = tw.compile(roots, target="emu:gfx942")
    with np.errstate(divide="ignore"):
        expected = 1 / np.sqrt(x.astype(np.float64))
    np.testing.assert_allclose(np.asarray(kernel(x)), expected, rtol=3e-7)
    assembly = tw.compile(roots, target="hip:gfx942").asm
    assert "v_rsq_f32" in assembly and "v_div_fmas" not in assembly


@pytest.mark.covering(1)
@pytest.mark.parametrize("target", ["sim:gfx942", "emu:gfx942", "sim:sm_80"])
@pytest.mark.parametrize(("rows", "columns"), [(4, 256), (2, 1024), (8, 48)])
def test_sums_of_a_thread(target: str, rows: int, columns: int) -> None:
    @T.prim_func
    def sums(X: T.Tensor((rows, columns), T.float32)):
        Y = T.empty((rows,), T.float32)
        with T.Kernel(1, threads=64) as bx:
            held = T.alloc_fragment((rows, columns), T.float32)
            total = T.alloc_fragment((rows,), T.float32)
            T.copy(X, held)
            T.reduce_sum(held, total, dim=1)
            T.copy(total, Y)
        return Y

    kernel = tw.compile(sums, target=target)
    paired = "total_parts" in kernel.source
    assert paired == (target != "sim:sm_80")
    x = np.random.default_rng(columns).standard_normal((rows, columns)).astype(np.float32)
    np.testing.assert_allclose(np.asarray(kernel(x)), x.sum(1), rtol=1e-5, atol=1e-4)
