"""Copies of four rows that need not be neighbours."""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

import numpy as np
import pytest

import tileworkbench.language as T
from tests.capability import require
from tests.differential.harness import check_everywhere, equals, random_array, run_native
from tileworkbench.compiler.device.nvidia.nvrtc import missing_nvrtc

# Rows that repeat, go backwards and lie outside.
TABLE = np.array([[5, 0, 5, 2], [7, -1, 8, 3]], np.int32)


@pytest.mark.covering(1)
@pytest.mark.parametrize("elected", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "float32", "int8"])
def test_rows_are_gathered_and_scattered(dtype, elected):
    @T.prim_func
    def kernel(
        A: T.Tensor((8, 32), dtype),
        rows: T.Tensor((2, 4), "int32"),
        B: T.Tensor((2, 4, 16), dtype),
        C: T.Tensor((8, 32), dtype),
    ):
        with T.Kernel(2, threads=32) as bx:
            S = T.alloc_shared((4, 16), dtype)
            loaded = T.alloc_barrier([1 if elected else 32])
            r = [rows[bx, k] for k in range(4)]
            if elected:
                if T.shuffle_elect(0):
                    T.mbarrier_expect_tx(loaded, T.tma_gather4_bytes(16, dtype))
                    T.tma_gather4(A, S, bx * 24 + 4, r, barrier=loaded)
                    T.mbarrier_arrive(loaded)
            else:
                T.mbarrier_arrive_expect_tx(loaded, T.tma_gather4_bytes(16, dtype))
                T.tma_gather4(A, S, bx * 24 + 4, r, barrier=loaded[0])
            T.mbarrier_wait_parity(loaded, 0)
            T.copy(S, B[bx, :, :])
            T.tma_scatter4(S, C, bx * 24, [6, bx, bx * 8 + 4, bx + 2])
            T.tma_store_arrive()
            T.tma_store_wait(0)

    a = random_array((8, 32), dtype)
    b, c = np.zeros((2, 4, 16), a.dtype), np.zeros((8, 32), a.dtype)
    for block, row in enumerate(TABLE):
        column = block * 24 + 4
        for at, source in enumerate(row):
            if 0 <= source < 8:
                found = a[source, column : column + 16]
                b[block, at, : len(found)] = found
        for at, target in enumerate([6, block, block * 8 + 4, block + 2]):
            if target < 8:
                first = block * 24
                c[target, first : first + 16] = b[block, at, : 32 - first]
    arguments = {"A": a, "rows": TABLE, "B": np.zeros_like(b), "C": np.zeros_like(c)}
    check_everywhere(kernel, arguments, equals(B=b, C=c))
    equals(B=b, C=c)(run_native(kernel.program, arguments, "sim:sm_90"))
    require("nvrtc", missing_nvrtc())
    equals(B=b, C=c)(run_native(kernel.program, arguments, "ptx:sm_90"))
