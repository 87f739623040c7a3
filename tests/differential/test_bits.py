"""Positions of bits, on every executor."""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

import numpy as np
import pytest

import tileworkbench.language as T
from tests.differential.harness import check_everywhere, equals

ffs, fns = getattr(T, "__ffs"), getattr(T, "__fns")
WORDS = [0, 1, 0x8000_0000, 0xFFFF_FFFF, 0x0001_0000, 0xA5A5_0FF0, 0x0F00_00F0, 0x7FFF_FFFE]


def lowest(word, bits):
    word &= (1 << bits) - 1
    return (word & -word).bit_length()


def numbered(mask, base, offset):
    """Bit number `offset` of those of `mask` that are set, from `base` on."""
    if offset == 0:
        return base if mask >> base & 1 else 0xFFFF_FFFF
    order = range(base, 32) if offset > 0 else range(base, -1, -1)
    found = [bit for bit in order if mask >> bit & 1]
    return found[abs(offset) - 1] if abs(offset) <= len(found) else 0xFFFF_FFFF


@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "uint64", "int8"])
def test_the_lowest_bit_that_is_set(dtype):
    bits = np.dtype(dtype).itemsize * 8
    words = [*WORDS, 1 << 63, 1 << 40, (1 << 64) - 1]
    values = np.array(words, np.uint64).astype(dtype)

    @T.prim_func
    def kernel(A: T.Tensor((11,), dtype), B: T.Tensor((11,), "int32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(11):
                B[i] = ffs(A[i])

    # Narrow signed integers are sign-extended, as C's promotion does.
    expected = np.array([lowest(int(value), max(bits, 32)) for value in values], np.int32)
    check_everywhere(kernel, {"A": values, "B": np.zeros(11, np.int32)}, equals(B=expected))


def test_bits_by_their_number():
    bases, offsets = (0, 5, 16, 31), (-3, -1, 0, 1, 2, 7)

    @T.prim_func
    def kernel(
        A: T.Tensor((8,), "uint32"),
        P: T.Tensor((4,), "int32"),
        N: T.Tensor((6,), "int32"),
        B: T.Tensor((8, 4, 6), "uint32"),
    ):
        with T.Kernel(4, threads=32) as p:
            for i, n in T.Parallel(8, 6):
                B[i, p, n] = fns(A[i], P[p], N[n])

    expected = np.array(
        [[[numbered(m, p, n) for n in offsets] for p in bases] for m in WORDS], np.uint32
    )
    given = {
        "A": np.array(WORDS, np.uint32),
        "P": np.array(bases, np.int32),
        "N": np.array(offsets, np.int32),
        "B": np.zeros((8, 4, 6), np.uint32),
    }
    check_everywhere(kernel, given, equals(B=expected))


@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "uint64"])
def test_zeros_above_the_highest_bit(dtype):
    bits = np.dtype(dtype).itemsize * 8
    words = [*WORDS, 1 << 63, 1 << 40, (1 << 64) - 1]
    values = np.array(words, np.uint64).astype(dtype)

    @T.prim_func
    def kernel(A: T.Tensor((11,), dtype), B: T.Tensor((11,), "int32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(11):
                B[i] = T.clz(A[i])

    high = [bits - (int(value) & (1 << bits) - 1).bit_length() for value in values]
    given = {"A": values, "B": np.zeros(11, np.int32)}
    check_everywhere(kernel, given, equals(B=np.array(high, np.int32)))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_signs_are_copied_bit_by_bit(dtype):
    left = np.array([1.5, -2.0, 0.0, -0.0, np.inf, -np.inf, 3.0, -4.0], dtype)
    right = np.array([-1.0, 1.0, -0.0, 0.0, -np.inf, 2.0, 0.0, -0.0], dtype)

    @T.prim_func
    def kernel(A: T.Tensor((8,), dtype), B: T.Tensor((8,), dtype), C: T.Tensor((2, 8), dtype)):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(8):
                C[0, i] = T.copysign(A[i], B[i])
                C[1, i] = T.fast_rcp(T.copysign(2.0, B[i]))

    ones = np.copysign(np.array(0.5, dtype), right)
    expected = np.stack([np.copysign(left, right), ones.astype(dtype)])
    given = {"A": left, "B": right, "C": np.zeros((2, 8), dtype)}
    check_everywhere(kernel, given, equals(C=expected))


def test_bits_of_constants():
    @T.prim_func
    def kernel(B: T.Tensor((3,), "int32")):
        with T.Kernel(1, threads=32):
            B[0] = ffs(0xFFFF_FFF0)
            B[1] = ffs(0)
            B[2] = T.cast(fns(0xF0F0_0000, 0, 3), "int32")

    expected = np.array([5, 0, 22], np.int32)
    check_everywhere(kernel, {"B": np.zeros(3, np.int32)}, equals(B=expected))
