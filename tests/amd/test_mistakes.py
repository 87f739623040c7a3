"""Mistakes in the HIP text, planted one at a time: executing it finds each of them."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from tests.capability import require
from tests.kernels.checks import random
from tests.kernels.test_gpu import CASES, HALF, Case
from tileworkbench.compiler.compilation import Options
from tileworkbench.compiler.device.amd import clang
from tileworkbench.compiler.diagnostics import RunError
from tileworkbench.compiler.driver import compile_program
from tileworkbench.kernels import matmul

pytestmark = [pytest.mark.hip, pytest.mark.slow]
TARGET = "emu:gfx942"


def product() -> Case:
    a, b = random(70, 64, dtype=HALF), random(64, 72, dtype=HALF, seed=1)
    page = matmul(70, 72, 64, HALF, block_M=32, block_N=32, block_K=32, num_stages=1)
    return page, (a, b), a.float() @ b.float(), 1.0


KERNELS = {"product": product} | {name: CASES[name] for name in ("softmax", "flash_attention")}
SYNC = "sync_block();"
# What is wrong, what it replaces, what stands there instead, and which of several places.
PRODUCT = [
    ("no barrier in front of writes", SYNC, ";", 1),
    ("no barrier in front of reads", SYNC, ";", 2),
    (
        "a swizzle of A when stored only",
        "((((lane & 15) >> 1) & 3) ^ (lane >> 4))",
        "(lane >> 4)",
        0,
    ),
    ("a swizzle of A when loaded only", "((((tx >> 2) >> 1) & 3) ^ (tx & 3))", "(tx & 3)", 0),
    (
        "a swizzle of B when stored only",
        "(((tx >> 2) & 1) ^ (((tx >> 2) >> 3) & 1)) * 32",
        "((tx >> 2) & 1) * 32",
        0,
    ),
    ("neighbours of another lane", "(lane & 15) * 2 + (", "(lane & 7) * 2 + (", 0),
    ("rows of A of 32 lanes", "(lane & 15)) * 32 +", "(lane & 31)) * 32 +", 0),
    ("depth of A by 32 lanes", "^ (lane >> 4)) * 8", "^ (lane >> 5)) * 8", 0),
    ("depth of B by halves", "(x >> 1) + (lane >> 4) * 4", "(x >> 1) + (lane >> 4) * 2", 0),
    ("a row of A too many", "< 70 ? load_", "< 71 ? load_", 0),
    ("columns of B too many", "< 72 ? load_", "< 80 ? load_", 0),
    ("a row of C too many", "< 70 &&", "< 71 &&", 0),
    ("columns of C too many", "< 72)", "< 76)", 0),
    (
        "operands changed",
        "(*(const f16r4*)b, *(const f16r4*)a,",
        "(*(const f16r4*)a, *(const f16r4*)b,",
        0,
    ),
    ("the first half of the depth twice, of A", "(a + 2)", "a", 0),
    ("half a step of B", "(b + 2)", "(b + 1)", 0),
    ("one result for all", "d1[v] = c[v * 2 + 1]", "d1[v] = c[v * 2 + 0]", 0),
    ("one operand for all", "(b + 4)", "b", 0),
    ("rows of C of 32 lanes", "(tx & 15) * 72", "(tx & 31) * 72", 0),
    ("columns of C of one bit", "((tx >> 4) & 3) * 8]) =", "((tx >> 4) & 1) * 8]) =", 0),
    ("sums that begin anywhere", "C_local[j_1] = 0.0f;", ";", 0),
    ("a step too few", "k < 2;", "k < 1;", 0),
    ("the same step of A", "(by * 2048 + k * 32) * 2", "(by * 2048) * 2", 0),
    ("another block of A", "(by * 2048 + ", "(by * 1024 + ", 0),
    ("tiles in one place", "(shared_memory + 2048)", "shared_memory", 0),
    ("rows of warps of 32", "(tx >> 6) * 16 + (lane", "(tx >> 5) * 16 + (lane", 0),
    ("a row of B skipped", "B_rows[(x * 2) / 2]", "B_rows[(x & 6) * 2 / 2]", 0),
    ("the same neighbour for both", "i & 1 ? 0x0302u : 0x0100u", "0x0100u", 0),
    ("rows of B in another order", "pick16(B_rows, c + 4, 2)", "pick16(B_rows, c + 8, 2)", 0),
    ("a part of A in another register", "A_registers[1] = v1.y", "A_registers[1] = v1.z", 0),
]
SOFTMAX = [
    ("no barrier between writing and reading", SYNC, ";", 1),
    ("no barrier in front of writing again", SYNC, ";", 2),
    ("no barrier in front of the second read", SYNC, ";", 3),
    ("the same partner twice", "read_xor_4(", "read_xor_2(", 2),
    ("a lane with itself", "read_xor_1(", "(", 2),
    ("four lanes in another order", "0x4E", "0xB1", 0),
    ("halves that do not meet", "source_shfl_xor(32, 64)", "source_shfl_xor(32, 32)", 2),
    ("another partner", "source_shfl_xor(32, 64)", "source_shfl_xor(16, 64)", 2),
    ("one wave for all", "if ((tx & 63) == 0)", "if (tx == 0)", 2),
    ("places of warps of 32", "sum_workspace[tx >> 6]", "sum_workspace[tx >> 5]", 0),
    ("a thread too many", "if (tx < 100)", "if (tx < 101)", 1),
    ("a difference", "row_sum[0] + other_9", "row_sum[0] - other_9", 0),
    ("another row", "bx * 200", "bx * 100", 1),
    ("a wave left out", "row_sum_workspace[1]", "row_sum_workspace[0]", 0),
    ("halves in the wrong order", "(v1 >> 16)", "v1", 0),
]
ATTENTION = [
    ("no barrier in front of the first read", SYNC, ";", 1),
    ("no barrier in front of writes for the next step", SYNC, ";", 3),
    ("no load of K ahead", "K_ahead[(i * 8) / 2] = v3.x", "K_ahead[(i * 8) / 2] = v3.y", 0),
    (
        "a word of V in the place of another",
        "V_ahead[(i_1 * 8 + 2) / 2] = v4.y",
        "V_ahead[(i_1 * 8) / 2] = v4.y",
        0,
    ),
    ("a diagonal less", "<= last", "< last", 0),
    ("old results kept", "O_local[i_22] * rescale[0]", "O_local[i_22]", 0),
    ("depth of V", "&V_shared[(lane >> 5) * 4 +", "&V_shared[", 0),
    ("the first operand for all", "&P_local[(k_2 * 4) / 2]", "P_local", 0),
    ("the step that is multiplied", "((k_2 & 1) * 8 + j_20", "(((k_2 + 1) & 1) * 8 + j_20", 0),
    ("another partner", "source_shfl_xor(32, 64)", "source_shfl_xor(16, 64)", 1),
    ("a row of the result too many", "< 50) {", "< 51) {", 0),
    ("a row of K too many", "< 70 ? load_u32x4(words_of_K", "< 71 ? load_u32x4(words_of_K", 0),
    (
        "a swizzle of Q when loaded only",
        "(((tx >> 3) & 7) ^ (tx & 7)) * 8]) = bx",
        "(tx & 7) * 8]) = bx",
        0,
    ),
]
MISTAKES = [
    pytest.param(name, *rest, id=f"{name}: {rest[0]}")
    for name, rows in (("product", PRODUCT), ("softmax", SOFTMAX), ("flash_attention", ATTENTION))
    for rest in rows
]


@pytest.fixture(autouse=True)
def needs_clang() -> None:
    require("hip", clang.missing_compiler())


@cache
def case(name: str) -> Case:
    return KERNELS[name]()


@cache
def text_of(name: str) -> str:
    return compile_program(case(name)[0].program, TARGET).record.code


def is_right(name: str, text: str) -> bool:
    """Whether the text runs, and computes what it should."""
    page, arguments, expected, _ = case(name)
    kernel = compile_program(page.program, TARGET, options=Options(code=text))
    try:
        outputs = kernel(*(each.clone() for each in arguments))
    except RunError:
        return False
    outputs = outputs if isinstance(outputs, list) else [outputs]
    wanted = expected if isinstance(expected, tuple | list) else [expected]
    return all(
        np.allclose(found.float(), value.float(), rtol=2e-2, atol=2e-3)
        for found, value in zip(outputs, wanted, strict=True)
    )


def replaced(text: str, old: str, new: str, which: int) -> str:
    """`text` with the occurrence number `which` of `old` in its kernel as `new`, all for 0."""
    begin = 0 if which == 0 else text.index('extern "C"')
    head, parts = text[:begin], text[begin:].split(old)
    assert len(parts) > max(which, 1), f"'{old}' stands there {len(parts) - 1} times"
    if which == 0:
        return head + new.join(parts)
    return head + old.join(parts[:which]) + new + old.join(parts[which:])


@pytest.mark.parametrize("name", KERNELS)
def test_without_a_mistake(name: str) -> None:
    assert is_right(name, text_of(name))


@pytest.mark.parametrize(("name", "what", "old", "new", "which"), MISTAKES)
def test_a_mistake(name: str, what: str, old: str, new: str, which: int) -> None:
    assert not is_right(name, replaced(text_of(name), old, new, which))


def test_there_are_forty() -> None:
    assert len(MISTAKES) >= 40
