"""Which thread touches which element of shared memory."""

from __future__ import annotations

import numpy as np
import pytest

from tileworkbench.compiler.ir.build import int_const
from tileworkbench.compiler.ir.expr import Address, Buffer
from tileworkbench.compiler.ir.simt import StoreMatrix
from tileworkbench.compiler.ir.types import DType
from tileworkbench.compiler.machine.tables import machine_of
from tileworkbench.compiler.schedule.thread_accesses import _writers


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_who_writes_the_rows_of_matrices(count: int, transpose: bool) -> None:
    """As the machine's table has it: lanes point at rows, and others hold what is stored there."""
    move = machine_of("sm_90").move(loads=False)
    assert move is not None
    matrix = move.fragment(16)
    assert matrix is not None
    place = Address(Buffer("S", DType("float16"), (int_const(64),), "shared"), (int_const(0),))
    stmt = StoreMatrix(place, place, count, transpose)
    threads, columns = np.arange(64).reshape(64, 1), np.arange(8).reshape(1, 8)
    found = _writers(stmt, threads, columns)
    for thread, column in np.ndindex(64, 8):
        lane = thread % 32
        if lane >= 8 * count:
            assert found[thread, column] == -1
            continue
        row = lane % 8
        index = (column, row) if transpose else (row, column)
        assert found[thread, column] == thread - lane + matrix.thread_of(*index)
