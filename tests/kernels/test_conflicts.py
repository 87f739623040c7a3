"""No bank conflicts: every access of shared memory takes the wavefronts that its bytes need."""

from __future__ import annotations

import pytest

import tileworkbench as tw
from tileworkbench.kernels import flash_attention, matmul

TRANSPOSES = [(False, False), (False, True), (True, False), (True, True)]


def factors(kernel: tw.Kernel) -> dict[str, float]:
    return {
        f"{access.buffer}: {access.kind}": access.factor
        for access in kernel.accesses
        if access.scope == "shared"
    }


def product(dtype: str, trans_a: bool, trans_b: bool) -> dict[str, float]:
    page = matmul(256, 256, 256, dtype, trans_A=trans_a, trans_B=trans_b, num_stages=3)
    found = factors(tw.compile(page, target="sim:sm_80"))
    assert len(found) == 4, found  # a store and a load of each operand
    return found


@pytest.mark.parametrize(("trans_a", "trans_b"), TRANSPOSES)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_matmul(dtype, trans_a, trans_b):
    assert set(product(dtype, trans_a, trans_b).values()) == {1.0}


def test_matmul_of_bytes_along_k():
    assert set(product("int8", False, True).values()) == {1.0}


@pytest.mark.parametrize(("trans_a", "trans_b"), [(False, False), (True, False), (True, True)])
def test_matmul_of_bytes_across_k(trans_a, trans_b):
    """There is no ldmatrix that transposes bytes."""
    assert max(product("int8", trans_a, trans_b).values()) == 1.0


@pytest.mark.covering(2)
@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_attention(dtype, causal, dim):
    page = flash_attention(1, 2, 256, 256, dim, dtype, causal=causal)
    found = factors(tw.compile(page, target="sim:sm_80"))
    # Of Q, K, V, and of the tile that the output goes through, a store and a load.
    assert len(found) == 8 and set(found.values()) == {1.0}
