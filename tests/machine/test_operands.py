"""Operands of instructions by name, against the fragments of the tables."""

from __future__ import annotations

import numpy as np
import pytest

from tileworkbench.compiler.diagnostics import LayoutError
from tileworkbench.compiler.layout import atoms
from tileworkbench.compiler.machine.operands import (
    instruction_names,
    looks_like_instruction,
    operand_fragment,
    whole_name,
)

SPELLINGS = [
    ("mma.m16n8k16.f16 A", atoms.mma_a(16)),
    ("mma.m16n8k16.float16 b", atoms.mma_b(16)),
    ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 C", atoms.mma_c()),
    ("mma.m16n8k16.f16 D", atoms.mma_c()),
    ("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32 B", atoms.mma_b(8)),
    ("mma.m16n8k8.tf32 A", atoms.mma_a(32)),
    ("wgmma.m64n128k16.f16 C", atoms.wgmma_c(128)),
    ("wgmma.mma_async.sync.aligned.m64n24k16.f32.bf16.bf16 A", atoms.wgmma_a(16)),
    ("mfma.m32n32k8.f16 A", atoms.mfma_operand(32, 8)),
    ("v_mfma_f32_16x16x16_f16 C", atoms.mfma_c(16)),
    ("ldmatrix.x4", atoms.mma_c(8).repeat((4, 1))),
    ("stmatrix.sync.aligned.m8n8.x2.shared.b16", atoms.mma_c(8).repeat((2, 1))),
]


@pytest.mark.parametrize(("text", "expected"), SPELLINGS, ids=[text for text, _ in SPELLINGS])
def test_spellings(text: str, expected) -> None:
    assert looks_like_instruction(text)
    assert operand_fragment(text) == expected


def test_every_name_that_is_offered_is_one() -> None:
    for name in instruction_names():
        if "matrix" in name:
            assert operand_fragment(name).threads == 32
            continue
        for operand in "ABC":
            if operand != "B" or not name.startswith("wgmma"):
                assert operand_fragment(f"{name} {operand}").is_injective
    assert "mma.m16n8k16.f16" in instruction_names()


@pytest.mark.parametrize(
    ("short", "whole"),
    [
        ("mma.m16n8k16", "mma.m16n8k16.f16 A"),
        ("mma.m16n8k16 c", "mma.m16n8k16.f16 C"),
        ("mma.m16n8k16.bf16", "mma.m16n8k16.bf16 A"),
        ("mma.sync.aligned.m16n8k64", "mma.m16n8k64.s4 A"),
        ("wgmma.m64n128k16", "wgmma.m64n128k16.f16 A"),
        ("ldmatrix.x4", "ldmatrix.x4"),
    ],
)
def test_names_may_leave_out_the_type_and_the_operand(short: str, whole: str) -> None:
    assert whole_name(short) == whole
    assert operand_fragment(short) == operand_fragment(whole)


def test_ldmatrix_transposes_each_matrix() -> None:
    """PTX ISA, ldmatrix: with .trans a lane gets elements of a column."""
    threads, slots = operand_fragment("ldmatrix.x2.trans").table()
    for row, column in np.ndindex(16, 8):
        assert threads[row, column, 0] == column * 4 + row % 8 // 2
        assert slots[row, column] == row // 8 * 2 + row % 2


WRONG = [
    (
        "mma.m16n8k17.f16 A",
        "There is no instruction 'mma.m16n8k17.f16' here.\n"
        "hint: Near it: mma.m16n8k16.f16, mma.m16n8k16.bf16, mma.m16n8k8.f16",
    ),
    (
        "stmatrix.x3",
        "There is no instruction 'stmatrix.x3' here.\n"
        "hint: Near it: stmatrix.x4, stmatrix.x2, stmatrix.x1",
    ),
    (
        "wgmma.m64n128k16.f16 B",
        "Operand B of 'wgmma.m64n128k16.f16' is in shared memory only.\n"
        "hint: Layout.swizzled((rows, columns), bits, 128) is a layout that it can have there.",
    ),
    ("ldmatrix.x1.trans.b8", "'ldmatrix.x1.trans.b8': '.trans' takes elements of 16 bits."),
    ("tcgen05.mma A", "'tcgen05.mma A' is not the name of an instruction."),
]


@pytest.mark.parametrize(("text", "message"), WRONG, ids=[text for text, _ in WRONG])
def test_wrong_names(text: str, message: str) -> None:
    with pytest.raises(LayoutError) as caught:
        operand_fragment(text)
    assert str(caught.value) == message


def test_calls_of_python_are_no_instructions() -> None:
    assert not looks_like_instruction("mma_a(16)")
    assert not looks_like_instruction("my.layout")
