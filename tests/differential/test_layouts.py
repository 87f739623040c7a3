"""Layouts of tiles change no result; those of tensors say where the caller finds each element."""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tests.differential.cases import Cases, small
from tests.differential.harness import check_everywhere, equals, random_array
from tileworkbench.compiler.diagnostics import DeviceAssertError

CASES = Cases()
ROWS = small(1, 16, 2, 16)


def by_pairs(tensor):
    """Rows of eight as a fragment of a matrix product holds them; the function returns a list."""
    return T.Layout(
        tensor.shape,
        lambda b, m, h, n: [b, m // 8, h, n // 8, n % 2, 4 * (m % 8) + n % 8 // 2],
    )


def placed(rows):
    """What memory holds of `rows` under `by_pairs`."""
    b, m, h, n = rows.shape
    parts = rows.reshape(b, m // 8, 8, h, n // 8, 4, 2)
    return np.ascontiguousarray(parts.transpose(0, 1, 3, 4, 6, 2, 5)).reshape(rows.shape)


@CASES
def contributions_lie_where_the_layout_says():
    @T.prim_func
    def kernel(A: T.Tensor((1, 16, 2, 16), "float32"), D: T.Tensor((1, 16, 2, 16), "float32")):
        with T.Kernel(2, 2, threads=32) as (bx, by):
            T.annotate_layout({D: by_pairs(D)})
            f = T.alloc_fragment((8, 16), "float32")
            T.copy(A[0, bx * 8 : bx * 8 + 8, by, :], f)
            for i, j in T.Parallel(8, 16):
                T.atomic_add(D[0, bx * 8 + i, by, j], f[i, j])
            T.atomic_add(D[0, bx * 8 : bx * 8 + 8, by, :], f)

    return kernel, {"A": ROWS, "D": np.zeros_like(ROWS)}, equals(D=placed(2 * ROWS))


@CASES
def symbolic_rows_are_read_and_filled_where_they_lie():
    m, h = T.dynamic("m, h")

    @T.prim_func
    def kernel(D: T.Tensor((1, m, h, 16), "float32"), B: T.Tensor((1, m, h, 16), "float16")):
        with T.Kernel(T.ceildiv(m, 8), h, threads=32) as (bx, by):
            s = T.alloc_shared((8, 16), "float32")
            T.annotate_layout({D: by_pairs(D)})
            T.copy(D[0, bx * 8 : bx * 8 + 8, by, :], s)
            T.copy(s, B[0, bx * 8 : bx * 8 + 8, by, :])
            T.fill(D[0, bx * 8 : bx * 8 + 4, by, :], 1)

    half, filled = np.zeros(ROWS.shape, np.float16), ROWS.copy()
    filled.reshape(1, 2, 8, 2, 16)[:, :, :4] = 1
    expected = equals(B=ROWS.astype(np.float16), D=placed(filled))
    return kernel, {"D": placed(ROWS), "B": half}, expected


@CASES
def outside_a_placed_tensor_nothing_is_read_or_stored():
    a, b = small(12, 8, dtype="int32"), small(6, dtype="int32")

    @T.prim_func
    def kernel(A: T.Tensor((12, 8), "int32"), B: T.Tensor((6,), "int32")):
        C = T.empty((16, 8), "int32")
        D = T.empty((8,), "int32")
        with T.Kernel(2, threads=32) as bx:
            T.annotate_layout({A: lambda i, j: (j, i), B: T.Layout((6,), lambda i: 5 - i)})
            T.annotate_safe_value({A: 7, B: 9})
            f = T.alloc_fragment((8, 8), "int32")
            T.copy(A[bx * 8, 0], f)
            T.copy(f, C[bx * 8, 0])
            for i, j in T.Parallel(8, 8):
                A[bx * 8 + i, j] = f[i, j] + 1
            for i in T.Parallel(4):
                D[bx * 4 + i] = T.atomic_add(B[bx * 4 + i], 1, return_prev=True)
        return C, D

    c = np.full((16, 8), 7, np.int32)
    c[:12] = a.reshape(8, 12).T
    d = np.concatenate([b[::-1], np.full(2, 9, np.int32)])
    return kernel, {"A": a, "B": b}, equals(A=a + 1, B=b + 1, C=c, D=d)


@pytest.mark.parametrize("name", CASES)
def test_layouts_of_tensors(name):
    CASES.check(name)


def test_a_layout_of_constants_and_one_that_does_not_fit():
    @tw.jit
    def kernel(D, B):
        M, H = T.const("M, H")
        D: T.Tensor[[1, M, H, 16], T.float32]
        B: T.Tensor[[1, M, H, 16], T.float32]
        layout = by_pairs(D)
        with T.Kernel(T.ceildiv(M, 8), H, threads=32) as (bx, by):
            T.annotate_layout({D: layout})
            T.copy(D[0, bx * 8 : bx * 8 + 8, by, :], B[0, bx * 8 : bx * 8 + 8, by, :])

    found = np.zeros_like(ROWS)
    kernel(placed(ROWS), found)
    assert (found == ROWS).all()

    symbolic = tw.compile(CASES["symbolic_rows_are_read_and_filled_where_they_lie"]()[0])
    with pytest.raises(DeviceAssertError, match="takes more elements than the tensor has"):
        symbolic(np.zeros((1, 12, 2, 16), np.float32), np.zeros((1, 12, 2, 16), np.float16))


def test_layouts_of_private_memory_are_checked_and_not_used():
    @T.prim_func
    def kernel(A: T.Tensor((4,), "float32"), B: T.Tensor((4,), "float32")):
        with T.Kernel(4, threads=32) as bx:
            x = T.alloc_local((2,), "float32")
            y = T.alloc_local((1,), "float32")
            T.annotate_layout({x: lambda i: [1 - i], y: T.Fragment((1,), lambda i: (i, 0))})
            x[0] = A[bx]
            y[0] = x[0] * 2
            B[bx] = y[0]

    arguments = {"A": small(4), "B": np.zeros(4, np.float32)}
    check_everywhere(kernel, arguments, equals(B=small(4) * 2))


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
