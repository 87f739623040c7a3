"""Sums of 8-bit floats by the tensor cores of sm_90a: fewer bits than float32, unless they are
promoted. Both simulators cut them in their own way.
"""

import numpy as np
import pytest
import torch

import tileworkbench as tw
from tileworkbench.compiler.sim.ptx.wgmma import _sum_of_bytes
from tileworkbench.compiler.sim.threads.wgmma import aligned_sums
from tileworkbench.kernels import matmul
from tileworkbench.kernels.page import PrimFunc

K = 4096


def of_rows(dtype: str, **more: bool) -> PrimFunc:
    """A product of 64 x 64, along K in pieces of 128."""
    blocks = {"block_M": 64, "block_N": 64, "block_K": 128, "num_stages": 3}
    return matmul(64, 64, K, dtype, trans_B=True, **blocks, **more)


@pytest.mark.nvrtc
def test_only_promoted_sums_are_as_good_as_float32() -> None:
    """The bound is that of decision 6: 4 sqrt(K) eps |A| |B|."""
    torch.manual_seed(0)
    a, b = (torch.randn(64, K).to(torch.float8_e4m3fn) for _ in range(2))
    exact = a.double() @ b.double().T
    allowed = 4 * K**0.5 * 2**-24 * (a.double().abs() @ b.double().abs().T)
    excess = {}
    for promote in (False, True):
        page = of_rows("float8_e4m3fn", promote=promote)
        results = [tw.compile(page, target=f"{kind}:sm_90a")(a, b) for kind in ("sim", "ptx")]
        assert torch.equal(*results)
        excess[promote] = float(((results[0] - exact).abs() / allowed).max())
    assert excess[False] > 5
    assert excess[True] < 1


def test_what_the_kernel_says_of_it() -> None:
    notes = tw.compile(of_rows("float8_e4m3fn"), target="sim:sm_90a").passes[-1].program.notes
    assert any("; its sums have about 14 bits" in note for note in notes)
    notes = tw.compile(of_rows("float16"), target="sim:sm_90a").passes[-1].program.notes
    assert not any("about 14 bits" in note for note in notes)


@pytest.mark.parametrize(
    ("old", "products", "total"),
    [
        (0.0, [1.0] * 32, 32.0),
        (2.0**13, [1.0] * 32, 2.0**13 + 32),  # the lowest bit that is kept
        (2.0**14, [1.0] * 32, 2.0**14),  # each of them is below it
        (-(2.0**14), [-3.0, -1.0], -(2.0**14) - 2),  # cut towards zero
        (1.0, [2.0**-13, 2.0**-14, 2.0**8, -(2.0**8)], 1.0),
        (float("nan"), [1.0], float("nan")),
        (0.0, [float("inf"), 1.0], float("inf")),
        (0.0, [0.0] * 4, 0.0),
    ],
)
def test_terms_are_aligned_to_the_largest(old: float, products: list[float], total: float) -> None:
    a, one = np.array([products], np.float32), np.ones((1, len(products)), np.float32)
    ours = aligned_sums(a[None], one.T[None], np.array([[[old]]], np.float32))
    assert np.array_equal(ours, [[[np.float32(total)]]], equal_nan=True)
    theirs = _sum_of_bytes(a.astype(np.float64), one.astype(np.float64), np.array([[old]]))
    assert np.array_equal(theirs, [[total]], equal_nan=True)
