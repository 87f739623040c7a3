"""Register blocks fit the registers, and packed operands the room made for them."""

from __future__ import annotations

import pytest

from tileworkbench.compiler.analysis.micro_tile import (
    MicroTile,
    choose_micro_tile,
    panel_elements,
)
from tileworkbench.compiler.ir.types import DType
from tileworkbench.compiler.target import Target

F32, F16, F64, I8, U8, I32 = map(DType, ("float32", "float16", "float64", "int8", "uint8", "int32"))
AVX512 = Target("cpu", "avx512", vector_bits=512)
VNNI = Target("cpu", "avx512", vector_bits=512, dot_int8=True)
AVX2 = Target("cpu", "avx2", vector_bits=256)
GENERIC = Target("cpu", "generic", vector_bits=128)


@pytest.mark.parametrize(
    ("target", "in_dtype", "acc", "expected"),
    [
        (AVX512, F32, F32, MicroTile(6, 64, F32, 1)),
        (AVX2, F32, F32, MicroTile(6, 16, F32, 1)),
        (GENERIC, F32, F32, MicroTile(2, 16, F32, 1)),
        (AVX512, F16, F16, MicroTile(6, 64, F32, 1)),
        (AVX512, F64, F64, MicroTile(6, 32, F64, 1)),
        (AVX512, F32, F64, MicroTile(6, 32, F64, 1)),
        (AVX2, I8, I32, MicroTile(6, 16, DType("int16"), 2)),
        (VNNI, I8, I32, MicroTile(6, 64, I8, 4)),
        (VNNI, U8, I32, MicroTile(6, 64, DType("int16"), 2)),
        (AVX512, F32, I32, None),
        (AVX512, I32, I32, None),
    ],
)
def test_register_blocks(
    target: Target, in_dtype: DType, acc: DType, expected: MicroTile | None
) -> None:
    assert choose_micro_tile(128, 128, 32, in_dtype, acc, target) == expected


@pytest.mark.parametrize("n", range(1, 300, 7))
@pytest.mark.parametrize("target", [AVX512, AVX2, GENERIC], ids=str)
def test_blocks_fit_the_registers_and_leave_less_than_a_vector_over(n: int, target: Target) -> None:
    tile = choose_micro_tile(128, n, 32, F32, F32, target)
    assert tile is not None
    lanes = target.vector_bits // 32
    registers = 32 if target.arch == "avx512" else 16
    vectors = tile.nr // lanes
    assert tile.nr % lanes == 0
    assert tile.mr * vectors + vectors + 1 <= registers
    panels = -(-n // tile.nr)
    assert panels * tile.nr - n < lanes * panels


def test_room_for_packed_operands() -> None:
    assert panel_elements("b", 128, 33, 64, F32) == 2 * 64 * 33
    assert panel_elements("b", 100, 33, 64, F32) == 2 * 64 * 33
    assert panel_elements("b", 64, 33, 64, DType("int16")) == 64 * 34
    assert panel_elements("b", 64, 33, 64, I8) == 64 * 36 + 4 * 64
    assert panel_elements("a", 64, 33, 1, I8) == 64 * 36
