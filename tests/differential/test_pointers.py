"""Tensors over raw addresses: parameters, tables of them, and what lies outside."""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

import numpy as np
import pytest
import torch

import tileworkbench as tw
import tileworkbench.language as T
from tests.differential.harness import check_everywhere, equals, random_array, run_native
from tileworkbench.compiler.diagnostics import ArgumentError
from tileworkbench.compiler.sim import simulate


def address(array):
    return array.__array_interface__["data"][0]


def test_a_table_of_matrices_of_different_sizes():
    rows, columns = (5, 16, 33), 24
    matrices = [random_array((n, columns), "float32", seed=n) for n in rows]
    table = np.array([address(matrix) for matrix in matrices], np.int64)

    @T.prim_func
    def kernel(P: T.Tensor((3,), T.ptr), N: T.Tensor((3,), "int32"), start: T.ptr):
        S = T.empty((3, columns), "float32")
        E = T.empty((3, columns), "float32")
        with T.Kernel(1, threads=32):
            total = T.alloc_fragment((columns,), "float32")
            tile = T.alloc_shared((8, columns), "float32")
            part = T.alloc_fragment((columns,), "float32")
            for g in T.serial(3):
                X = T.make_tensor(P[g], (N[g], columns), "float32")
                T.clear(total)
                for k in T.serial(T.ceildiv(N[g], 8)):
                    T.copy(X[k * 8, 0], tile)
                    T.reduce_sum(tile, part, dim=0)
                    for j in T.Parallel(columns):
                        total[j] += part[j]
                T.copy(total, S[g, 0])
            Y = T.make_tensor(start, (3, columns), "float32", strides=(2 * columns, 1))
            T.copy(Y, E)
        return S, E

    s = np.array([_blocked_sum(matrix) for matrix in matrices])
    arguments = {"P": table, "N": np.array(rows, np.int32), "start": address(matrices[2])}
    check_everywhere(kernel, arguments, equals(S=s, E=matrices[2][0:6:2]))


def _blocked_sum(matrix):
    padded = np.zeros((-(-len(matrix) // 8) * 8, matrix.shape[1]), np.float32)
    padded[: len(matrix)] = matrix
    total = np.zeros(matrix.shape[1], np.float32)
    for block in padded.reshape(-1, 8, matrix.shape[1]):
        part = np.zeros_like(total)
        for row in block:
            part += row
        total += part
    return total


def test_tensors_over_addresses_in_front_of_the_launches():
    a = random_array((8, 12), "float32")

    @T.prim_func
    def kernel(p: T.ptr, n: T.int32, B: T.Tensor((8, 12), "float32")):
        X = T.make_tensor(p, (n * 2, 12), "float32")
        with T.Kernel(n, 2, threads=32) as (bx, by):
            for j in T.Parallel(12):
                B[bx * 2 + by, j] = X[bx * 2 + by, j]
        with T.Kernel(8, threads=32) as bx:
            tile = T.alloc_shared((12,), "float32")
            T.copy(X[bx, 0], tile)
            for j in T.Parallel(12):
                B[bx, j] += tile[j]

    given = {"p": address(a), "n": 4, "B": np.zeros((8, 12), np.float32)}
    check_everywhere(kernel, given, equals(B=a * 2))


def test_stores_through_addresses():
    out = np.zeros((2, 10), np.int32)

    @T.prim_func
    def kernel(p: T.ptr, base: T.int64, A: T.Tensor((16,), "int32"), B: T.Tensor((2,), "int32")):
        with T.Kernel(2, threads=32) as bx:
            X = T.make_tensor(p, (2, 10), "int32")
            Y = T.make_tensor(base + 8, (4,), T.int32)
            for i in T.Parallel(16):  # six of them are outside
                X[bx, i] = A[i] + bx
            B[bx] = Y[1]

    a = np.arange(16, dtype=np.int32)
    source = np.arange(100, 110, dtype=np.int32)
    arguments = {"p": address(out), "base": address(source), "A": a}
    arguments["B"] = np.zeros(2, np.int32)

    def check(arrays):
        np.testing.assert_array_equal(out[:, 2:], [[*range(2, 10)], [*range(3, 11)]])
        np.testing.assert_array_equal(arrays["B"], [103, 103])
        out[...] = 0

    check_everywhere(kernel, arguments, check)


def test_tensors_stand_for_their_addresses():
    @T.prim_func
    def kernel(p: T.ptr, B: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32):
            T.copy(T.make_tensor(p, (8,), "float32"), B)

    run = tw.compile(kernel, target="cpu")
    for tensor in (torch.arange(8.0), np.arange(8, dtype=np.float32)):
        b = np.zeros(8, np.float32)
        run(tensor, b)
        np.testing.assert_array_equal(b, np.arange(8))
    with pytest.raises(ArgumentError) as wrong:
        run("here", b)
    assert wrong.value.message == (
        "'kernel': 'p' must be a tensor on the CPU or an address, not 'here'"
    )
    with pytest.raises(ArgumentError) as wrong:
        run(-1, b)
    assert wrong.value.message == (
        "'kernel': 'p' must be a tensor on the CPU or an address, not -1"
    )


@pytest.mark.parametrize(
    "target", ["cpu", "sim:sm_80", pytest.param("ptx:sm_80", marks=pytest.mark.nvrtc)]
)
def test_none_for_a_tensor_whose_extent_another_one_has(target):
    N = T.dynamic("N")

    @T.prim_func
    def kernel(
        B: T.Tensor((N,), "float32"),
        A: T.Tensor((N,), "float32"),
        C: T.Tensor((N, 2 * N), "float32"),
    ):
        with T.Kernel(1, threads=32):
            T.fill(A, 2.0)

    run, a = tw.compile(kernel, target=target), np.zeros(4, np.float32)
    run(None, a, None)
    np.testing.assert_array_equal(a, 2)
    np.testing.assert_array_equal(
        simulate(kernel.program, dict(A=a, B=None, C=None)).arrays["A"], a
    )
    with pytest.raises(ArgumentError) as wrong:
        run(None, a, np.zeros((4, 9), np.float32))
    assert wrong.value.message == (
        "'kernel': dimension 1 of 'C' is 9, expected 2*N = 8 as dimension 0 of 'A' says"
    )
    with pytest.raises(ArgumentError) as wrong:
        simulate(kernel.program, {"A": None, "B": a, "C": None})
    assert wrong.value.message == "'A' is None, and 'kernel' uses it"


def test_none_for_a_tensor_whose_constant_another_one_has():
    @tw.jit
    def kernel(B, A, reads: bool):
        M = T.const("M")
        B: T.Tensor[[M], T.float32]
        A: T.Tensor[[M], T.float32]
        with T.Kernel(1, threads=32):
            if reads:
                T.copy(B, A)
            else:
                T.fill(A, 3.0)

    a = np.zeros(4, np.float32)
    kernel(None, a, False)
    np.testing.assert_array_equal(a, 3)
    for arguments, message in (
        ((None, a, True), "'kernel': 'B' must be a tensor, not 'NoneType'"),
        ((None, None, False), "'kernel': the parameter 'B' takes a tensor, not None"),
    ):
        with pytest.raises(ArgumentError) as wrong:
            kernel(*arguments)
        assert wrong.value.message == message


def test_none_for_a_tensor_that_is_never_used():
    N = T.dynamic("N")

    @T.prim_func
    def kernel(A: T.Tensor((4,), "float32"), B: T.Tensor((N,), "float32"), use: T.bool):
        with T.Kernel(1, threads=32):
            T.fill(A, 2.0)

    run = tw.compile(kernel, target="cpu")
    a = np.zeros(4, np.float32)
    with pytest.raises(ArgumentError) as wrong:
        run(a, None, True)
    assert wrong.value.message == ("'kernel': 'B' is None, and the kernel reads 'N' from its shape")
    with pytest.raises(ArgumentError) as wrong:
        run(None, a, True)
    assert wrong.value.message == "'kernel': 'A' must be a tensor, not 'NoneType'"

    @T.prim_func
    def fixed(A: T.Tensor((4,), "float32"), B: T.Tensor((4,), "float32")):
        with T.Kernel(1, threads=32):
            T.fill(A, 2.0)

    run = tw.compile(fixed, target="cpu")
    run(a, None)
    run(a, np.ones(4, np.float32))
    np.testing.assert_array_equal(a, 2)


def test_elements_below_a_byte():
    held = np.random.default_rng(0).integers(0, 256, (2, 32)).astype(np.uint8)
    written = np.zeros((2, 32), np.uint8)
    table = np.array([address(row) for row in held], np.int64)

    @T.prim_func
    def kernel(P: T.Tensor((2,), T.ptr), Q: T.ptr, n: T.int32, B: T.Tensor((2, 64), "int32")):
        with T.Kernel(2, threads=32) as bx:
            X = T.make_tensor(P[bx], (n, 16), "int4")
            Y = T.make_tensor(P[bx], (2, 16), "float4_e2m1fn", strides=(32, 1))
            Z = T.make_tensor(Q, (2, 64), "uint4")
            F = T.alloc_fragment((4, 16), "int32")
            T.copy(X[0:4, 0:16], F)
            for i, j in T.Parallel(4, 16):
                B[bx, i * 16 + j] = F[i, j] * 2
                Z[bx, i * 16 + j] = F[i, j] & 7
            B[bx, 0] = T.cast(Y[1, 1] * 2, "int32")
            B[bx, 1] = X[3, 15]

    codes = np.stack([held & 15, held >> 4], -1).reshape(2, 64).astype(np.int32)
    signed = (codes ^ 8) - 8
    expected = 2 * signed
    sizes = np.array([0, 1, 2, 3, 4, 6, 8, 12])  # twice the magnitudes of float4_e2m1fn
    expected[:, 0] = sizes[codes[:, 33] & 7] * np.where(codes[:, 33] & 8, -1, 1)
    expected[:, 1] = signed[:, 63]

    def check(arrays):
        np.testing.assert_array_equal(arrays["B"], expected)
        parts = np.stack([written & 15, written >> 4], -1).reshape(2, 64)
        np.testing.assert_array_equal(parts, codes & 7)
        written[:] = 0xFF

    arguments = {"P": table, "Q": address(written), "n": 4, "B": np.zeros((2, 64), np.int32)}
    check_everywhere(kernel, arguments, check)
    check(run_native(kernel.program, arguments, "sim:sm_80"))
