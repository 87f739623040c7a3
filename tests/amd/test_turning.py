"""Tiles whose first dimension products sum over are turned by the lanes that read them (gfx950)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tileworkbench as tw
from tests.amd.test_conflicts import factors
from tests.capability import require
from tests.kernels.checks import random
from tests.tolerances import assert_contraction
from tileworkbench.compiler.compilation import Options
from tileworkbench.compiler.device.amd import clang
from tileworkbench.compiler.diagnostics import RunError
from tileworkbench.compiler.driver import compile_program
from tileworkbench.compiler.layout.atoms import mfma_operand, mfma_operand_across
from tileworkbench.compiler.lower.threads.turning import lanes_that_turn, turned_blocks
from tileworkbench.kernels import flash_attention, matmul

Tile = tuple[int, int, int]


def check(
    target: str, tile: Tile, trans_a: bool, ragged: bool, stages: int = 2, dtype: str = "float16"
) -> None:
    m, n, k = tile[0] + 40 * ragged, tile[1] + 24 * ragged, 2 * tile[2] + 8 * ragged
    blocks: Any = dict(zip(("block_M", "block_N", "block_K"), tile, strict=True))
    page = matmul(m, n, k, dtype, trans_A=trans_a, num_stages=stages, **blocks)
    kernel = tw.compile(page, target=target)
    name = "read_turned_16" if dtype == "float16" else "read_turned_8"
    assert kernel.source.count(f"{name}(") == 1 + kernel.source.count(f"{name}(&")
    assert kernel.source.count(f"{name}(&") >= 1 + trans_a
    a = random(*((k, m) if trans_a else (m, k)), dtype=dtype, seed=1)
    b = random(k, n, dtype=dtype, seed=2)
    result = np.asarray(kernel(a, b))
    assert_contraction(result, (a.T if trans_a else a).float().numpy(), b.float().numpy())


@pytest.mark.parametrize("trans_a", [False, True])
@pytest.mark.parametrize("tile", [(128, 128, 32), (64, 32, 64), (16, 32, 32)])
def test_products(tile: Tile, trans_a: bool) -> None:
    check("sim:gfx950", tile, trans_a, False)


BYTES: list[tuple[str, Tile, bool]] = [
    ("int8", (128, 128, 64), False),
    ("int8", (64, 32, 64), True),
    ("float8_e4m3fn", (32, 64, 64), True),
    ("float8_e5m2", (16, 32, 128), False),
]


@pytest.mark.parametrize(("dtype", "tile", "trans_a"), BYTES)
def test_products_of_bytes(dtype: str, tile: Tile, trans_a: bool) -> None:
    check("sim:gfx950", tile, trans_a, False, dtype=dtype)


@pytest.mark.hip
@pytest.mark.parametrize(
    ("dtype", "tile", "trans_a"),
    [*BYTES[::2], *(pytest.param(*each, marks=pytest.mark.slow) for each in BYTES[1::2])],
)
def test_the_text_turns_bytes(dtype: str, tile: Tile, trans_a: bool) -> None:
    require("hip", clang.missing_compiler())
    check("emu:gfx950", tile, trans_a, False, dtype=dtype)


def test_ragged_products_of_one_stage() -> None:
    check("sim:gfx950", (64, 64, 32), True, True, stages=1)


@pytest.mark.hip
@pytest.mark.parametrize(("tile", "trans_a"), [((128, 128, 32), True), ((16, 32, 32), False)])
def test_the_text_does_the_same(tile: Tile, trans_a: bool) -> None:
    require("hip", clang.missing_compiler())
    check("emu:gfx950", tile, trans_a, False)
    check("emu:gfx950", tile, trans_a, True, stages=1)


@pytest.mark.hip
def test_attention_turns_its_values() -> None:
    require("hip", clang.missing_compiler())
    page = flash_attention(1, 1, 64, 128, 64, "float16", block_M=64, block_N=64, num_stages=2)
    kernel = tw.compile(page, target="emu:gfx950")
    assert "&V_shared" in kernel.source.partition("  read_turned_16(")[2].partition("\n")[0]
    q, k, v = ((64, 1), (128, 2), (128, 3))
    given = [random(1, rows, 1, 64, dtype="float16", seed=seed) for rows, seed in (q, k, v)]
    result, expected = kernel(*given)[0], flash_attention.reference(*given)[0]
    assert (result.float() - expected.float()).abs().max() < 2e-2


@pytest.mark.hip
def test_the_machine_turns() -> None:
    require("hip", clang.missing_compiler())
    kernel = tw.compile(matmul(256, 256, 256, "bfloat16", num_stages=2), target="hip:gfx950")
    assert "ds_read_b64_tr_b16" in kernel.asm and "v_perm_b32" not in kernel.asm
    kernel = tw.compile(matmul(256, 256, 256, "int8", num_stages=2), target="hip:gfx950")
    assert "ds_read_b64_tr_b8" in kernel.asm and "v_perm_b32" not in kernel.asm


@pytest.mark.parametrize("trans_a", [False, True])
@pytest.mark.parametrize(
    ("dtype", "depth"), [("float16", 32), ("float16", 64), ("int8", 64), ("int8", 128)]
)
def test_nothing_has_conflicts(dtype: str, depth: int, trans_a: bool) -> None:
    page = matmul(
        *(256, 256, 256, dtype), trans_A=trans_a, block_K=depth, num_stages=2, threads=128
    )
    services = factors(tw.compile(page, target="sim:gfx950"))
    assert "B_shared: load of 8" in services and set(services.values()) == {1.0}


@pytest.mark.parametrize(
    ("edge", "depth", "rows"),
    [(32, 16, 4), (16, 32, 4), (32, 8, 4), (32, 32, 8), (16, 64, 8), (32, 64, 8)],
)
def test_lanes_name_each_element_of_an_operand_once(edge: int, depth: int, rows: int) -> None:
    operand = mfma_operand(edge, depth)
    lanes = lanes_that_turn(operand, rows, 16)
    assert lanes is not None
    named = set()
    for lane in range(64):
        n, k = lanes.evaluate(lane)
        blocks = turned_blocks(operand, rows)
        for number in range(blocks.size):
            (more,) = blocks.evaluate(number)
            named |= {(n + at, k + more) for at in range(rows)}
    assert named == {(n, k) for n in range(edge) for k in range(depth)}


def test_other_operands_are_not_turned() -> None:
    assert lanes_that_turn(mfma_operand_across(32, 16, 2), 4, 16) is None
    assert lanes_that_turn(mfma_operand(32, 4), 4, 16) is None  # two elements of a lane


# What is wrong, what it replaces in the text, and what stands there instead.
MISTAKES = [
    ("rows of another block", "x * 4 + ((lane >> 2) & 3)", "x * 4 + ((lane >> 2) & 1)"),
    ("pieces in another order", "(lane & 3) * 4", "(3 - (lane & 3)) * 4"),
    ("the same four registers", "+ x * 4) / 2]", ") / 2]"),
]


@pytest.mark.hip
@pytest.mark.parametrize(
    ("old", "new"), [row[1:] for row in MISTAKES], ids=[r[0] for r in MISTAKES]
)
def test_mistakes_are_found(old: str, new: str) -> None:
    require("hip", clang.missing_compiler())
    page = matmul(128, 128, 96, "float16", num_stages=2)
    text = tw.compile(page, target="hip:gfx950").source
    lines = text.splitlines()
    reads = [at for at, line in enumerate(lines) if line.strip().startswith("read_turned_16(")]
    assert reads and any(old in lines[at] for at in reads), lines[reads[0]]
    for at in reads:
        lines[at] = lines[at].replace(old, new)
    planted = compile_program(
        page.program, "emu:gfx950", options=Options(code="\n".join(lines) + "\n")
    )
    a, b = random(128, 96, dtype="float16", seed=0), random(96, 128, dtype="float16", seed=1)
    try:
        result = np.asarray(planted(a.numpy(), b.numpy()), np.float32)
    except RunError:
        return
    assert not np.allclose(result, (a.float() @ b.float()).numpy(), rtol=2e-2, atol=2e-2)
