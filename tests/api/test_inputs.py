"""The inputs of views that run a kernel: those that were given, of a failed check, or made up."""

from __future__ import annotations

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench.workbench.debugging import inputs_of


@tw.jit
def doubled(A: T.Tensor((64,), "float32")):
    B = T.empty((64,), "float32")
    with T.Kernel(1, threads=32):
        for i in T.Parallel(64):
            B[i] = A[i] * 2.0
    return B


def test_inputs_are_made_up_until_a_check_fails_or_some_are_given() -> None:
    kernel = doubled.with_target("cpu").compile()
    given, said = inputs_of(kernel)
    assert (len(given), said) == (1, "made-up inputs (random numbers)")
    ones = np.ones(64, np.float32)
    with pytest.raises(tw.CheckError):
        kernel.check(lambda a: a, ones)
    failed, said = inputs_of(kernel)
    assert failed[0] is ones and said == "the inputs of the check that failed"
    twos = ones * 2
    assert kernel.with_inputs(twos) is kernel
    chosen, said = inputs_of(kernel)
    assert chosen[0] is twos and said == "the inputs that were given"
