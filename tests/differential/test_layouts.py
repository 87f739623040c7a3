"""Layouts chosen by hand change no result."""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

import numpy as np

import tileworkbench.language as T
from tests.differential.harness import check_everywhere, equals, random_array


def test_annotated_tiles_hold_the_same_elements():
    a = random_array((32, 64), "float16").round()

    @T.prim_func
    def kernel(A: T.Tensor((32, 64), "float16")):
        C = T.empty((32, 32), "float32")
        with T.Kernel(1, threads=64) as bx:
            S = T.alloc_shared((32, 64), "float16")
            P = T.alloc_shared((32, 33), "float16")
            acc = T.alloc_fragment((32, 32), "float32")
            T.annotate_layout(
                {
                    S: T.make_swizzled_layout(S),
                    P: lambda i, j: (j, i),
                    acc: T.Fragment(
                        (32, 32),
                        forward_thread_fn=lambda i, j: i * 2 + j // 16,
                        forward_index_fn=lambda i, j: j % 16,
                    ),
                }
            )
            T.copy(A, S)
            T.gemm(S, S, acc, transpose_B=True, clear_accum=True)
            T.copy(acc, C)
        return C

    wide = a.astype(np.float32)
    check_everywhere(kernel, {"A": a}, equals(C=wide @ wide.T))


def test_a_swizzle_is_as_wide_as_the_rows():
    widths = {}

    @T.prim_func
    def kernel():
        with T.Kernel(1) as bx:
            for columns in (64, 32, 16, 8):
                S = T.alloc_shared((16, columns), "float16")
                widths[columns] = T.make_swizzled_layout(S)

    assert {columns: layout.offset(1, 0) for columns, layout in widths.items()} == {
        64: 64 ^ 8,
        32: 32,
        16: 16,
        8: 8,
    }
    assert widths[32].offset(2, 0) == 64 ^ 8
    assert widths[16].offset(4, 0) == 64 ^ 8
    assert all(layout.is_injective for layout in widths.values())
