"""Threads that exchange data without a barrier of their own: the compiler puts one, everywhere."""

from __future__ import annotations

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tests.differential.harness import check_everywhere


@T.prim_func
def reversed_row(X: T.Tensor((4, 128), "float32"), Y: T.Tensor((4, 128), "float32")):
    with T.Kernel(4, threads=128) as row:
        t = T.get_thread_binding()
        S = T.alloc_shared((128,), "float32")
        S[t] = X[row, t]
        Y[row, t] = S[127 - t]


@T.prim_func
def running_maximum(X: T.Tensor((4, 128), "float32"), Y: T.Tensor((4, 128), "float32")):
    with T.Kernel(4, threads=128) as row:
        t = T.get_thread_binding()
        S = T.alloc_shared((2, 128), "float32")
        S[0, t] = X[row, t]
        for step in T.serial(7):
            distance = 1 << step
            left = T.max(t - distance, 0)
            S[(step + 1) % 2, t] = T.max(S[step % 2, t], S[step % 2, left])
        Y[row, t] = S[1, t]


@T.prim_func
def half_barrier(X: T.Tensor((4, 128), "float32"), Y: T.Tensor((4, 128), "float32")):
    with T.Kernel(4, threads=128) as row:
        t = T.get_thread_binding()
        S = T.alloc_shared((128,), "float32")
        S[t] = X[row, t]
        if t < 64:
            T.sync_threads(1, 64)  # not all threads: no help for what follows
        Y[row, t] = S[127 - t]


EXPECTED = {
    "reversed_row": lambda x: x[:, ::-1],
    "running_maximum": lambda x: np.maximum.accumulate(x, axis=1),
    "half_barrier": lambda x: x[:, ::-1],
}
KERNELS = {name: globals()[name] for name in EXPECTED}


def arguments() -> dict[str, np.ndarray]:
    x = np.random.default_rng(0).standard_normal((4, 128)).astype(np.float32)
    return {"X": x, "Y": np.zeros_like(x)}


@pytest.mark.parametrize("name", KERNELS)
def test_on_the_cpu(name):
    given = arguments()
    expected = EXPECTED[name](given["X"])
    check_everywhere(
        KERNELS[name], given, lambda found: np.testing.assert_array_equal(found["Y"], expected)
    )


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize(
    "target", ["sim:sm_80", pytest.param("ptx:sm_80", marks=pytest.mark.nvrtc)]
)
def test_on_a_gpus_threads(name, target):
    given = arguments()
    tw.compile(KERNELS[name], target=target)(given["X"], given["Y"])
    np.testing.assert_array_equal(given["Y"], EXPECTED[name](given["X"]))
