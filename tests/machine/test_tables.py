"""The tables of architectures: rows that fit together, and fragments against other maps of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tileworkbench.compiler.ir.types import DType
from tileworkbench.compiler.layout.fragment import Fragment
from tileworkbench.compiler.lower.threads.operand import matrix_rows
from tileworkbench.compiler.lower.threads.registers import matrix_origins, register_map
from tileworkbench.compiler.machine.instructions import Completion, MatrixInstruction, Scope
from tileworkbench.compiler.machine.machine import SharedMemory
from tileworkbench.compiler.machine.tables import ARCHITECTURES, machine_of
from tileworkbench.compiler.sim.ptx import matrix as interpreter

Array = np.ndarray[Any, Any]
MATRICES = {
    f"{arch} {row.name} {row.m}x{row.n}x{row.k} {' '.join(row.dtypes)}": (arch, row)
    for arch in ARCHITECTURES
    for row in machine_of(arch).matrices
    if row.n <= 64
}
LANES = {Scope.THREAD: 1, Scope.WARP: 1, Scope.WARPGROUP: 4}


@pytest.mark.parametrize("name", MATRICES)
def test_registers_of_an_instruction_hold_each_element_once(name: str) -> None:
    arch, row = MATRICES[name]
    threads = machine_of(arch).lanes * LANES[row.scope]
    shapes = ((row.m, row.k), (row.n, row.k), (row.m, row.n))
    for operand, shape in zip((row.a, row.b, row.c), shapes, strict=True):
        assert operand.place is not None or operand.swizzles
        if operand.place is not None:
            assert operand.fragment.shape == shape
            assert operand.fragment.threads == threads
            assert operand.fragment.is_bijective
    completes = Completion.ITSELF if row.scope is Scope.WARP else Completion.GROUP
    assert row.completes is completes


def test_no_row_stands_twice() -> None:
    for arch in ARCHITECTURES:
        rows = [(r.name, r.m, r.n, r.k, r.dtypes) for r in machine_of(arch).matrices]
        assert len(rows) == len(set(rows))


GUIDES = {"gfx90a": "MI200", "gfx942": "MI300", "gfx950": "CDNA4"}


@pytest.mark.parametrize("arch", GUIDES)
def test_every_mfma_cites_the_guide_of_its_machine_or_says_what_is_assumed(arch: str) -> None:
    for row in machine_of(arch).matrices:
        guide = f"AMD Instinct {GUIDES[arch]} ISA"
        assert guide in row.source and '"Matrix Arithmetic Instructions"' in row.source
        assumed = "float64" in row.dtypes
        assert row.source.startswith("assumed: " if assumed else guide)


def mma_rows(across: bool = False) -> list[MatrixInstruction]:
    rows = {
        (r.m, r.n, r.k, r.dtypes): r for a in ("sm_75", "sm_89") for r in machine_of(a).matrices
    }
    return [row for row in rows.values() if (row.across > 1) == across]


@pytest.mark.parametrize("row", mma_rows(True), ids=lambda r: f"m{r.m}n{r.n}k{r.k} {r.a.dtype}")
def test_several_across_are_the_instruction_on_every_so_many_columns(
    row: MatrixInstruction,
) -> None:
    """Column `c` of product `t` is column ``across * c + t``. Each has registers of B of its own,
    one behind the other, and takes turns in those of C.
    """
    one = next(r for r in mma_rows() if (r.m, r.k, r.dtypes) == (row.m, row.k, row.dtypes))
    assert row.n == row.across * one.n and row.a == one.a
    assert np.array_equal(*(_by_product(row, part, one) for part in ("several", "one")))


def _by_product(row: MatrixInstruction, part: str, one: MatrixInstruction) -> Array:
    """Lane and slot of each element of B and C, by the product and its column."""
    several, found = part == "several", []
    for name in ("b", "c"):
        fragment = getattr(row if several else one, name).fragment
        lanes, slots = (np.squeeze(table) for table in fragment.table())
        if name == "c":
            lanes, slots = lanes.T, slots.T
        for t in range(row.across):
            if several:
                found += [lanes[t :: row.across], slots[t :: row.across]]
            elif name == "b":
                found += [lanes, t * fragment.slots + slots]
            else:
                found += [lanes, slots * row.across + t]
    return np.concatenate([np.ravel(each) for each in found])


@pytest.mark.parametrize("row", mma_rows(), ids=lambda row: f"m{row.m}k{row.k} {row.a.dtype}")
def test_the_interpreter_of_ptx_reads_operands_from_the_same_registers(
    row: MatrixInstruction,
) -> None:
    bits = DType(row.a.dtype).bits
    per = max(32 // bits, 1)

    def places(fragment: Fragment) -> Array:
        lanes, slots = fragment.table()
        return (slots // per * 32 + lanes[..., 0]) * per + slots % per

    found = places(row.a.fragment)
    np.testing.assert_array_equal(
        found, interpreter.gather_a(row.m, row.k, bits).reshape(found.shape)
    )
    found = places(row.b.fragment).T
    np.testing.assert_array_equal(found, interpreter.gather_b(row.k, bits).reshape(found.shape))


@pytest.mark.parametrize("row", mma_rows(), ids=lambda row: f"m{row.m}k{row.k} {row.a.dtype}")
def test_register_maps_walk_the_registers(row: MatrixInstruction) -> None:
    """The element of a register by its digits is the one that the fragment has there."""
    for operand in (row.a, row.b, row.c):
        found = register_map(operand.fragment)
        for lane in (0, 1, 5, 31):
            held = operand.fragment.elements_of(lane).tolist()
            for slot, element in enumerate(held):
                index = list(found.lanes(lane))
                index[1] += slot % found.run
                for digit in found.digits:
                    index[digit.dim] += slot // digit.slots % digit.extent * digit.stride
                assert index == element


@pytest.mark.parametrize("row", mma_rows(), ids=lambda row: f"m{row.m}k{row.k} {row.a.dtype}")
@pytest.mark.parametrize("k_last", [True, False])
def test_matrices_are_loaded_as_the_operand_lies(row: MatrixInstruction, k_last: bool) -> None:
    """What ldmatrix delivers, by the words of the PTX ISA: lane 4 r + c gets the 32 bits at column
    c of row r; transposed, column r of rows 2 c and 2 c + 1.
    """
    move = machine_of("sm_80").move(loads=True)
    assert move is not None
    for operand in (row.a, row.b):
        bits = DType(operand.dtype).bits
        matrix = move.fragment(bits)
        origins = None if matrix is None else matrix_origins(operand.fragment, matrix)
        assert (origins is None) == (bits == 64)
        if origins is None or not (k_last or bits == 16):
            continue
        per, atoms = 32 // bits, max(move.counts) // origins.size
        rows = matrix_rows(move, origins, operand.fragment.shape[0], atoms, k_last)
        for lane in range(32):
            held = operand.fragment.elements_of(lane).tolist()
            for number in range(rows.matrices):
                atom, inside = divmod(number, origins.size)
                for part in range(per):
                    if k_last:
                        outer, k = rows.lanes(8 * number + lane // 4)
                        k += lane % 4 * per + part
                    else:
                        outer, k = rows.lanes(8 * number + 2 * (lane % 4) + part)
                        outer += lane // 4
                    outer -= atom * operand.fragment.shape[0]
                    assert [outer, k] == held[inside * per + part]


def test_shared_memory_serves_rows_of_banks() -> None:
    memory = SharedMemory(100 * 1024)
    assert (memory.most, memory.row_bytes) == (99 * 1024, 128)
    assert [memory.served(32, width) for width in (1, 2, 4, 8, 16)] == [32, 32, 32, 16, 8]


def test_capacities() -> None:
    """The bytes of a block and the warps of a multiprocessor, from NVIDIA's and AMD's documents."""
    found = {arch: machine_of(arch).shared.most for arch in ARCHITECTURES}
    assert found["sm_75"] == 65536 and found["sm_80"] == 166912 and found["gfx942"] == 65536
    assert found["sm_86"] == found["sm_89"] == 101376 and found["sm_90"] == 232448
    assert {machine_of(arch).lanes for arch in ARCHITECTURES if arch.startswith("sm")} == {32}
    assert {machine_of(arch).lanes for arch in ARCHITECTURES if arch.startswith("gfx")} == {64}
