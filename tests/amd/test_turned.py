"""Tiles whose first dimension products sum over are turned in the registers in which they wait."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tests.amd.test_conflicts import factors
from tests.capability import require
from tests.kernels.checks import random
from tests.tolerances import assert_contraction
from tileworkbench.compiler.compilation import Options
from tileworkbench.compiler.device.amd import clang
from tileworkbench.compiler.diagnostics import RunError
from tileworkbench.compiler.driver import compile_program
from tileworkbench.kernels import flash_attention, matmul

Tile = tuple[int, int, int]
TILES = [(128, 128, 32), (64, 128, 64), (128, 64, 64), (64, 64, 32)]
KINDS = [("float16", False), ("float16", True), ("bfloat16", False), ("int8", False)]


def product(shape: Tile, dtype: str, tile: Tile, trans_a: bool = False) -> Any:
    blocks = dict(zip(("block_M", "block_N", "block_K"), tile, strict=True))
    return matmul(*shape, dtype, trans_A=trans_a, num_stages=2, threads=128, **blocks)


def turns(kernel: tw.Kernel) -> bool:
    return next(each for each in kernel.passes if each.name == "turn_tiles").changed


def check(target: str, tile: Tile, dtype: str, trans_a: bool, ragged: bool) -> None:
    m, n, k = tile[0] + 40 * ragged, tile[1] + 24 * ragged, 2 * tile[2] + 8 * ragged
    a = random(*((k, m) if trans_a else (m, k)), dtype=dtype, seed=1)
    b = random(k, n, dtype=dtype, seed=2)
    kernel = tw.compile(product((m, n, k), dtype, tile, trans_a), target=target)
    assert turns(kernel)
    result = np.asarray(kernel(a, b))
    wide = [each if dtype == "int8" else each.float() for each in (a.T if trans_a else a, b)]
    assert_contraction(result, *(each.numpy() for each in wide))


@pytest.mark.covering(2)
@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize(("dtype", "trans_a"), KINDS)
@pytest.mark.parametrize("tile", TILES)
def test_products(tile: Tile, dtype: str, trans_a: bool, ragged: bool) -> None:
    check("sim:gfx942", tile, dtype, trans_a, ragged)


@pytest.mark.covering(1)
@pytest.mark.hip
@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize(("dtype", "trans_a"), KINDS)
def test_the_text_does_the_same(dtype: str, trans_a: bool, ragged: bool) -> None:
    require("hip", clang.missing_compiler())
    check("emu:gfx942", (128, 128, 64 if dtype == "int8" else 32), dtype, trans_a, ragged)


@pytest.mark.parametrize("arch", ["gfx942", pytest.param("gfx90a", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("dtype", "trans_a", "tile"),
    [
        ("float16", True, (128, 128, 32)),
        ("float16", False, (128, 128, 64)),
        ("float16", False, (64, 64, 32)),
        ("int8", True, (128, 128, 64)),
    ],
)
def test_nothing_has_conflicts(dtype: str, trans_a: bool, tile: Tile, arch: str) -> None:
    kernel = tw.compile(product((256, 256, 256), dtype, tile, trans_a), target=f"sim:{arch}")
    services = factors(kernel)
    assert set(services.values()) == {1.0}
    assert {"A_shared: load of 16", "B_shared: load of 16"} <= services.keys()


def test_each_element_is_turned_by_one_thread() -> None:
    """Two waves read all of B: they would turn it twice."""
    text = tw.compile(product((256, 256, 256), "float16", (128, 128, 32)), target="hip:gfx942")
    loop = text.source[text.source.index("for (int k =") :]
    stores = [line for line in loop.splitlines() if "(&B_shared[" in line and "pick16" in line]
    assert len(stores) == 1 and stores[0].count("pick16(B_ahead, ") == 2  # of eight times two words
    assert "B_rows" not in loop


@pytest.mark.hip
def test_attention_turns_its_values() -> None:
    require("hip", clang.missing_compiler())
    page = flash_attention(1, 1, 64, 128, 64, "float16", block_M=64, block_N=64, num_stages=2)
    kernel = tw.compile(page, target="emu:gfx942")
    assert turns(kernel) and "pick16(V_ahead, " in kernel.source
    given = [
        random(1, rows, 1, 64, dtype="float16", seed=rows + at)
        for at, rows in enumerate((64, 128, 128))
    ]
    result, expected = kernel(*given)[0], flash_attention.reference(*given)[0]
    assert (result.float() - expected.float()).abs().max() < 2e-2


def summed_and_multiplied(also: str) -> Any:
    """A product whose tile of B something else uses, too."""

    @T.prim_func
    def kernel(
        A: T.Tensor((64, 128), "float16"),
        B: T.Tensor((128, 64), "float16"),
        C: T.Tensor((64, 64), "float32"),
        D: T.Tensor((64,), "float32"),
    ):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 32), "float16")
            b = T.alloc_shared((32, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            d = T.alloc_fragment((64,), "float32")
            T.clear(c)
            T.clear(d)
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[0, k * 32], a)
                T.copy(B[k * 32, 0], b)
                T.gemm(a, b, c)
                if also == "view":
                    T.gemm(a, T.reshape(b, (32, 64)), c)
                elif also == "sum":
                    for j in T.Parallel(64):
                        for i in T.serial(32):
                            d[j] += T.cast(b[i, j], "float32")
            T.copy(c, C)
            T.copy(d, D)

    return kernel


@pytest.mark.parametrize(("also", "expected"), [("", True), ("sum", False), ("view", False)])
def test_what_is_read_otherwise_stays_as_it_is(also: str, expected: bool) -> None:
    kernel = tw.compile(summed_and_multiplied(also), target="sim:gfx942")
    assert turns(kernel) == expected
    a, b = random(64, 128, dtype="float16", seed=1), random(128, 64, dtype="float16", seed=2)
    c, d = np.zeros((64, 64), np.float32), np.zeros(64, np.float32)
    kernel(a.numpy(), b.numpy(), c, d)
    twice = 2 if also == "view" else 1
    assert_contraction(c, twice * a.float().numpy(), b.float().numpy())
    if also == "sum":
        np.testing.assert_allclose(d, b.float().numpy().sum(0), rtol=1e-4, atol=1e-4)


# What is wrong, what it replaces in the text, and what stands there instead.
MISTAKES = [
    ("a column of another block", "pick16(B_ahead, j, 8)", "pick16(B_ahead, j ^ 1, 8)"),
    ("rows too near", "pick16(B_ahead, j, 8)", "pick16(B_ahead, j, 4)"),
    ("words exchanged", "pick16(B_ahead, j + 16, 8)", "pick16(B_ahead, j, 8)"),
    ("a swizzle on one side", "(j & 3) ^ ", "(j & 1) ^ "),
    ("rows that change places on one side", "((j & 1) ^ ", "((j & 1) + 0 * "),
    ("a version that is read", "(k & 1) * 4096", "(k + 1 & 1) * 4096"),
]


@pytest.mark.hip
@pytest.mark.parametrize(
    ("old", "new"), [row[1:] for row in MISTAKES], ids=[r[0] for r in MISTAKES]
)
def test_mistakes_are_found(old: str, new: str) -> None:
    require("hip", clang.missing_compiler())
    page = matmul(128, 128, 160, "float16", block_K=32, num_stages=3)
    text = tw.compile(page, target="hip:gfx942").source
    lines = text.splitlines()
    stores = [
        at for at, line in enumerate(lines) if "(&B_shared[" in line and "B_ahead, j, 8" in line
    ]
    assert stores and old in lines[stores[-1]]
    lines[stores[-1]] = lines[stores[-1]].replace(old, new)
    planted = compile_program(
        page.program, "emu:gfx942", options=Options(code="\n".join(lines) + "\n")
    )
    a, b = random(128, 160, dtype="float16", seed=0), random(160, 128, dtype="float16", seed=1)
    try:
        result = np.asarray(planted(a.numpy(), b.numpy()), np.float32)
    except RunError:
        return
    assert not np.allclose(result, (a.float() @ b.float()).numpy(), rtol=2e-2, atol=2e-2)
