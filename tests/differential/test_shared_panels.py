"""Blocks of rows that share the panels they multiply by."""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

import numpy as np
import pytest

import tileworkbench.language as T
from tests.differential.harness import check_everywhere, equals, random_array
from tests.differential.test_matmul import DTYPES, matmul, operands
from tests.tolerances import assert_contraction
from tileworkbench.compiler.driver import compile_program

F32 = "float32"


def triangular(m, n, rows):
    """The lower triangle of A times B, step by step; blocks have a step more than those before."""

    @T.prim_func
    def kernel(A: T.Tensor((m, m), F32), B: T.Tensor((m, n), F32), C: T.Tensor((m, n), F32)):
        with T.Kernel(T.ceildiv(m, rows), threads=64) as bx:
            A_shared = T.alloc_shared((rows, rows), F32)
            B_shared = T.alloc_shared((rows, n), F32)
            C_local = T.alloc_fragment((rows, n), F32)
            T.clear(C_local)
            for k in T.Pipelined(bx + 1, num_stages=2):
                T.copy(A[bx * rows, k * rows], A_shared)
                for i, j in T.Parallel(rows, rows):
                    below = bx * rows + i >= k * rows + j
                    A_shared[i, j] = T.if_then_else(below, A_shared[i, j], 0.0)
                T.copy(B[k * rows, 0], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            T.copy(C_local, C[bx * rows, 0])

    return kernel


def shares(kernel) -> bool:
    """Whether blocks were joined."""
    record = compile_program(kernel.program, "cpu").record
    return next(each.changed for each in record.snapshots if each.name == "share_panels")


@pytest.mark.covering(1)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize("shape", [(768, 192, 64), (757, 150, 70)], ids=["whole", "ragged"])
def test_products(dtype, trans_b, shape):
    m, n, k = shape
    acc = DTYPES[dtype]
    kernel = matmul(m, n, k, dtype, acc, acc, trans_b=trans_b, tile=(8, 96, 32))
    a, b, given = operands(m, n, k, dtype, trans_b=trans_b)
    # Bytes are packed from their tile, with sums of its columns.
    assert shares(kernel) == (dtype != "int8")
    check_everywhere(kernel, given, lambda arrays: assert_contraction(arrays["C"], a, b))


def test_steps_that_the_block_before_was_without():
    kernel = triangular(505, 128, 8)
    a, b = random_array((505, 505), F32, 1), random_array((505, 128), F32, 2)
    a, b = np.rint(4 * a).astype(np.float32), np.rint(4 * b).astype(np.float32)
    given = {"A": a, "B": b, "C": np.zeros((505, 128), np.float32)}
    assert shares(kernel)
    check_everywhere(kernel, given, equals(C=np.tril(a) @ b))
