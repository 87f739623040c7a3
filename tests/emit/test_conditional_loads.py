"""Loads that only one side of a choice makes."""

import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench.kernels import chunk_scan


def test_one_element_for_all_lanes_is_no_gather() -> None:
    """The causal mask of chunk_scan chooses by lane; the row's decay is one element of a tile."""
    kernel = tw.compile(chunk_scan(1, 2, 64, 2, 32, 32, dtype="float32"), target="cpu")
    assert "gather" not in kernel.source


@pytest.mark.parametrize(("shift", "masked"), [(0, False), (1, True)])
def test_only_loads_that_may_leave_the_tensor_are_masked(shift: int, masked: bool) -> None:
    @T.prim_func
    def kernel(
        A: T.Tensor((64,), "float32"), C: T.Tensor((64,), "int32"), B: T.Tensor((64,), "float32")
    ):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((64,), "float32")
            T.copy(A, S)
            for i in T.Parallel(64):
                S[i] += 1.0
            for i in T.Parallel(64):
                B[i] = S[i - shift] if C[i] + i > 0 else 0.0

    source = tw.compile(kernel, target="cpu").source
    assert ("@llvm.masked.load" in source) == masked
