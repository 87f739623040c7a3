"""Where a warp may elect the lane that starts the copy engine, and where a thread is named."""
# Annotations are evaluated where kernels are defined: no `from __future__ import annotations`.

from typing import Any

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench.compiler.device.nvidia import nvrtc
from tileworkbench.kernels import matmul

N = 64


def product() -> Any:
    return matmul(
        128, 128, 256, "float16", out_dtype="float16", block_M=64, block_N=64, num_stages=3
    )


def by_hand() -> Any:
    @T.prim_func
    def kernel(A: T.Tensor((N, N), "float16"), B: T.Tensor((N, N), "float16")):
        with T.Kernel(1, threads=256):
            tile = T.alloc_shared((N, N), "float16")
            loaded = T.alloc_barrier([1])
            with T.ws(1):
                T.tma_copy(A, tile, barrier=loaded[0])
                if T.shuffle_elect(128):
                    T.mbarrier_arrive(loaded[0])
            with T.ws(0):
                T.mbarrier_wait_parity(loaded[0], 0)
                T.copy(tile, B)

    return kernel


def code(program: Any, target: str) -> str:
    return tw.compile(program, target=target).source.partition('extern "C"')[2]


def test_a_producer_elects_and_a_store_names_its_thread() -> None:
    text = code(product(), "cuda:sm_90a")
    before, elected = text.split("warp_index == 4 && elected()")
    assert "elected()" not in before + elected and "for (int k" in elected.split("{")[1]
    assert "tensor_store_2(" in elected.split("if (tx == 0) {")[1]


def test_without_roles_a_thread_is_named() -> None:
    assert "elected()" not in code(product(), "cuda:sm_90")
    assert "elected()" not in code(product(), "cuda:sm_80")


def test_a_thread_that_does_something_else_too() -> None:
    """Its arrival stands behind the bytes that it expects."""
    assert "elected()" not in code(by_hand(), "cuda:sm_90a")


@pytest.mark.nvrtc
def test_any_lane_will_do() -> None:
    """The interpreter elects the last one."""
    if reason := nvrtc.missing_nvrtc():
        pytest.skip(reason)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((128, 256), (256, 128)))
    kernel = tw.compile(product(), target="ptx:sm_90a")
    assert "elect.sync" in kernel.asm and np.array_equal(kernel(a, b), a @ b)
