"""Copies between shared memory and fragments by ldmatrix and stmatrix, and where they are not."""

from __future__ import annotations

import numpy as np
import pytest

from tests.lower.threads.cases import Case
from tests.lower.threads.planned import lowered
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.simt import LoadMatrix, StoreMatrix
from tileworkbench.compiler.layout.atoms import (
    WarpGrid,
    block_a,
    block_b,
    block_c,
    mma_a,
    mma_b,
    mma_c,
    transposed,
)
from tileworkbench.compiler.layout.fragment import Fragment
from tileworkbench.compiler.sim import simulate

GRID = WarpGrid(64, 64, 2, 2)
SWIZZLE = "Layout((64, 64), lambda i, j: (64*i + 8*(i%8 ^ j//8) + j%8,))"
PADDED = "Layout((64, 64), lambda i, j: (72*i + j,))"
TORN = "Layout((64, 64), lambda i, j: (64*i + 4*(i%8 ^ j//4) + j%4,))"
ROWS = Fragment((64, 64), lambda i, j: (8 * (i % 16) + j // 8, i // 16 * 8 + j % 8))


def moves(
    fragment: Fragment, layout: str = SWIZZLE, target: str = "cuda:sm_90", dtype: str = "float16"
) -> tuple[set[tuple[int, bool]], set[tuple[int, bool]]]:
    """The (matrices, transposed) of the loads and stores of a round trip, which is simulated."""
    body = f"""
    S = T.alloc_shared((64, 64), "{dtype}", layout={layout})
    R = T.alloc_shared((64, 64), "{dtype}", layout={layout})
    F = T.alloc_fragment((64, 64), "{dtype}", layout={fragment.to_text()})
    T.copy(A, S)
    T.copy(S, F)
    T.copy(F, R)
    T.copy(R, B)
    """
    case = Case({"A": ((64, 64), dtype), "B": ((64, 64), dtype)}, body)
    source = case.program()
    made = lowered(source, target)
    found = simulate(made, case.arguments(), signature=source)
    assert found.report.ok, str(found.report)
    np.testing.assert_array_equal(found.arrays["B"], case.arguments()["A"])
    kinds: dict[type, set[tuple[int, bool]]] = {LoadMatrix: set(), StoreMatrix: set()}
    for stmt in statements(made.body):
        if isinstance(stmt, LoadMatrix | StoreMatrix):
            kinds[type(stmt)].add((stmt.count, stmt.transpose))
    return kinds[LoadMatrix], kinds[StoreMatrix]


@pytest.mark.parametrize(
    ("fragment", "loads", "stores"),
    [
        (block_c(GRID, mma_c()), {(4, False)}, {(4, False)}),
        (transposed(block_c(GRID, mma_c())), {(4, True)}, {(4, True)}),
        (block_a(GRID, 64, mma_a(16)), {(4, False)}, set()),  # two warps hold each row
        (transposed(block_b(GRID, 64, mma_b(16))), {(4, True)}, set()),
        (block_a(WarpGrid(64, 64, 4, 1), 64, mma_a(16)), {(4, False)}, {(4, False)}),
        (ROWS, set(), set()),
    ],
    ids=["result", "transposed result", "operand A", "operand B", "one warp a row", "rows"],
)
def test_fragments_of_tensor_cores_are_moved_as_matrices(
    fragment: Fragment, loads: set[tuple[int, bool]], stores: set[tuple[int, bool]]
) -> None:
    assert moves(fragment) == (loads, stores)


def test_older_targets_have_no_instruction_to_store() -> None:
    assert moves(block_c(GRID, mma_c()), target="cuda:sm_80") == ({(4, False)}, set())


def test_any_layout_with_whole_rows_of_sixteen_bytes_will_do() -> None:
    assert moves(block_c(GRID, mma_c()), PADDED)[0] == {(4, False)}
    assert moves(block_c(GRID, mma_c()), TORN) == (set(), set())


def test_only_elements_of_sixteen_bits_are_moved() -> None:
    assert moves(
        block_c(GRID, mma_c()), "Layout((64, 64), lambda i, j: (64*i + j,))", dtype="float32"
    ) == (set(), set())


def test_part_of_a_tile() -> None:
    body = f"""
    S = T.alloc_shared((3, 64, 64), "float16")
    F = T.alloc_fragment((64, 32), "float16", layout={block_a(GRID, 32, mma_a(16)).to_text()})
    T.copy(A, S[1:2, 0:64, 0:64])
    for k in T.serial(2):
        T.copy(S[1:2, 0:64, k * 32 : k * 32 + 32], F)
        T.copy(F, B[0:64, k * 32 : k * 32 + 32])
    """
    case = Case({"A": ((64, 64), "float16"), "B": ((64, 64), "float16")}, body)
    source = case.program()
    made = lowered(source)
    assert any(isinstance(stmt, LoadMatrix) for stmt in statements(made.body))
    found = simulate(made, case.arguments(), signature=source)
    assert found.report.ok, str(found.report)
    np.testing.assert_array_equal(found.arrays["B"], case.arguments()["A"])
