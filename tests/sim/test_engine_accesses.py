"""What the copy engine and the tensor cores ask of memory by themselves: counted, listed, told."""

from typing import Any

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tests.sim.pipelines import product
from tileworkbench.compiler.layout.descriptors import UNIT, Descriptor
from tileworkbench.compiler.sim.threads.pieces import Boxes, operand_bytes
from tileworkbench.kernels import matmul


@T.prim_func
def through_a_tile(A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 64), "float16")):
    with T.Kernel(1, threads=128):
        tile = T.alloc_shared((64, 64), "float16")
        T.copy(A, tile)
        T.copy(tile, B)


def counts(accesses: Any) -> dict[tuple[str, str], list[int]]:
    return {(a.buffer, a.kind): [a.count, a.wavefronts, a.sectors] for a in accesses}


def test_a_swizzled_box_is_in_every_bank_once_per_row() -> None:
    boxes = Boxes((8, 64), 2, 128, (100, 128), (128, 1))
    places = boxes.here(1024)
    assert sorted(places) == list(range(1024, 2048, UNIT))
    assert list(places[8:12]) == [1024 + 128 + (unit ^ 1) * UNIT for unit in range(4)]
    there, inside = boxes.there((96, 64))
    assert list(there[:9]) == [*range(96 * 256 + 128, 96 * 256 + 256, UNIT), 97 * 256 + 128]
    assert inside.sum() == 4 * 8  # the tensor has 100 rows


@pytest.mark.parametrize("transposed", [False, True])
def test_the_pieces_of_an_operand_are_all_its_bytes(transposed: bool) -> None:
    descriptor = Descriptor(4096, 1024, 128, transposed)
    places = operand_bytes(descriptor, 64, 16, 2, 2048)
    assert len(set(places)) == 64 * 16 * 2 // UNIT and not any(place % UNIT for place in places)
    for first in range(0, len(places), 8):  # a wavefront: eight lines in eight groups of banks
        assert len({place % 128 for place in places[first : first + 8]}) == 8


@pytest.mark.parametrize("target", ["sim:sm_90", "sim:sm_90a"])
def test_what_is_listed_of_a_block_is_what_the_simulator_counts(target: str) -> None:
    """One iteration: loops are listed once."""
    made = matmul(128, 128, 32, "float16", block_M=128, block_N=128, block_K=32, num_stages=1)
    kernel = tw.compile(made, target=target)
    result = kernel.simulate(*(np.ones(shape, np.float16) for shape in ((128, 32), (32, 128))))
    assert counts(result.report.accesses) == counts(kernel.accesses)
    kinds = {(a.buffer, a.kind): a.wavefronts for a in kernel.accesses}
    assert kinds["A_shared", "TMA load"] == 128 * 32 * 2 // 128
    assert ("A_shared", "wgmma") in kinds or ("A_shared", "ldmatrix.x4") in kinds


def test_directions() -> None:
    told = {(a.buffer, a.described) for a in product(3, "sim:sm_90a").accesses}
    assert told == {
        *{(tensor, "load (TMA) 1.00x") for tensor in "AB"},
        *{(f"{tensor}_shared", "store (TMA) 1.00x") for tensor in "AB"},
        *{(f"{tensor}_shared", "load (wgmma) 1.00x") for tensor in "AB"},
        ("C", "store 1.00x"),
    }
    kernel = tw.compile(through_a_tile, target="sim:sm_90")
    told = {(a.kind, a.scope, a.writes) for a in kernel.accesses}
    assert {("TMA store", "global", True), ("TMA store", "shared", False)} <= told


def test_observers_are_told_of_boxes() -> None:
    """Reads of A and B in the footprint are those of the kernel for sm_80."""
    targets = "sim:sm_80", "sim:sm_90a"
    old, new = (product(3, target).footprint(seconds=None) for target in targets)
    assert old.rows() == new.rows()
