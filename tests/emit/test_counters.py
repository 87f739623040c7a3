"""Counters beside loops, and addresses as sums: the text, and what its PTX computes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench.kernels import matmul

pytestmark = pytest.mark.nvrtc
EXTENT = 64


def compiled(body, stop=11):
    """A kernel of one block that calls `body(A, B, n, i)` in a loop from `n` to `stop`."""

    @T.prim_func
    def counted(A: T.Tensor((EXTENT,), T.int32), n: T.int32):
        B = T.empty((EXTENT,), T.int32)
        with T.Kernel(1, threads=32):
            for j in T.Parallel(EXTENT):
                B[j] = 0
            for i in T.serial(n, stop):
                body(A, B, i)
        return B

    return tw.compile(counted, target="ptx:sm_80")


@T.macro
def plain(A, B, i):
    B[i + 20] = A[(i + 20) % 3] + 10 * A[(i + 22) % 3] + 100 * A[(i + 23) % 3] + 1000 * A[i % 5]


def compiled_with_continue(stop=11):
    """A kernel whose loop goes on before its end."""

    @T.prim_func
    def skipping(A: T.Tensor((EXTENT,), T.int32), n: T.int32):
        B = T.empty((EXTENT,), T.int32)
        with T.Kernel(1, threads=32):
            for j in T.Parallel(EXTENT):
                B[j] = 0
            for i in T.serial(n, stop):
                if A[i + 40] > 0:
                    continue
                B[i + 20] = A[i % 3]
        return B

    return tw.compile(skipping, target="ptx:sm_80")


@T.macro
def inner(A, B, i):
    for k in T.serial(4):
        B[(i + 8) * 2 + 10 + k % 2] = A[(i + k) % 3] + 10 * A[(k + 1) % 3] + 100 * A[i % 3]


def expected(values, start, stop, step):
    result = np.zeros(EXTENT, np.int32)
    for i in range(start, stop):
        step(values, result, i)
    return result


def plain_numpy(A, B, i):
    B[i + 20] = A[(i + 20) % 3] + 10 * A[(i + 22) % 3] + 100 * A[(i + 23) % 3] + 1000 * A[i % 5]


def skipping_numpy(A, B, i):
    if A[i + 40] <= 0:
        B[i + 20] = A[i % 3]


def inner_numpy(A, B, i):
    for k in range(4):
        B[(i + 8) * 2 + 10 + k % 2] = A[(i + k) % 3] + 10 * A[(k + 1) % 3] + 100 * A[i % 3]


@pytest.mark.parametrize("start", [0, 1, 7, -8, 11])
@pytest.mark.parametrize(
    ("body", "numpy"),
    [(plain, plain_numpy), (None, skipping_numpy), (inner, inner_numpy)],
    ids=["plain", "continue", "nested"],
)
def test_a_counter_is_the_remainder(body, numpy, start):
    values = np.random.default_rng(0).integers(-1, 3, EXTENT).astype(np.int32)
    kernel = compiled(body) if body else compiled_with_continue()
    result = kernel(torch.from_numpy(values), start)
    assert result.tolist() == expected(values, start, 11, numpy).tolist()


def test_the_text_counts_and_masks_stay():
    text = compiled(plain).source
    assert "++i, i_plus_2_mod_3 = i_plus_2_mod_3 == 2 ? 0 : i_plus_2_mod_3 + 1, " in text
    assert text.count("int i_plus_2_mod_3 = ") == 1  # i + 20 and i + 23 leave the same remainder
    # The first value is a floor's: the loop may begin below zero.
    assert "int i_mod_5 = floormod(n, 5);" in text
    assert "_mod_2" not in compiled(inner).source


def test_a_users_name_is_not_the_counters():
    @T.prim_func
    def clash(A: T.Tensor((8,), T.int32), i_mod_3: T.int32):
        B = T.empty((8,), T.int32)
        with T.Kernel(1, threads=32):
            for i in T.serial(8):
                B[i] = A[i % 3] + i_mod_3
        return B

    A = torch.arange(8, dtype=torch.int32)
    result = tw.compile(clash, target="ptx:sm_80")(A, 100)
    assert result.tolist() == [100 + i % 3 for i in range(8)]


def test_terms_of_an_address_stand_in_the_order_of_change():
    """What no loop changes, what the running loop changes, what is a number once unrolled."""
    text = tw.compile(matmul(256, 256, 256, "float16", num_stages=3), target="sim:sm_80").source
    lines = [line for line in text.splitlines() if "ldmatrix_x4_trans(&" in line]
    assert len(lines) == 2
    for line in lines:
        address = line[line.index("smem_address(B_shared)") :]
        thread, running = address.index("(lane & 15) * 128"), address.index("k_mod_3 * 8192")
        assert thread < address.index("(lane >> 4)") < running
        assert "&B_shared[" not in line
    assert lines[1].rstrip(");").endswith("+ k_mod_3 * 8192 + 2048")
