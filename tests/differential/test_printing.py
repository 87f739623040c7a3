"""What a kernel prints is the same text in the simulator and natively."""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

import numpy as np
import pytest

import tileworkbench.language as T
from tests.differential.harness import run_native
from tileworkbench.compiler.driver import lower_program, resolve_target
from tileworkbench.compiler.sim import simulate


@T.prim_func
def kernel(A: T.Tensor((2, 2), "float32"), n: T.uint32):
    with T.Kernel(2, 1, threads=64) as (bx, _by):
        S = T.alloc_shared((2,), "float16")
        if bx == 1:
            T.copy(A[bx, 0:2], S)
            T.print(S, msg="tile")
            T.print(n + T.uint32(1), "100 % {sure}\u00e9")
            T.print(msg="here")
            for i in T.Parallel(2):
                if i > 0:
                    T.print(A[bx, i] * 1e10)
            T.print(A[1, 0] > 0)


LINES = """\
msg='tile' BlockIdx=(1, 0, 0): buffer=S, dtype=float16, index=0 value=2.5
msg='tile' BlockIdx=(1, 0, 0): buffer=S, dtype=float16, index=1 value=-0.333252
msg='100 % {sure}\u00e9' BlockIdx=(1, 0, 0): dtype=uint32 value=4000000001
msg='here' BlockIdx=(1, 0, 0)
msg='' BlockIdx=(1, 0, 0): dtype=float32 value=-3.33333e+09
msg='' BlockIdx=(1, 0, 0): dtype=bool value=1
"""
ARGUMENTS = {"A": np.array([[0, 0], [2.5, -1 / 3]], np.float32), "n": 4_000_000_000}


def test_the_simulator_prints_at_every_stage(capfd: pytest.CaptureFixture[str]) -> None:
    simulate(kernel.program, ARGUMENTS)
    assert capfd.readouterr().out == LINES
    last = lower_program(kernel.program, resolve_target("cpu"))[-1].program
    simulate(last, ARGUMENTS, signature=kernel.program)
    assert capfd.readouterr().out == LINES


@pytest.mark.parametrize("level", ["native", "generic"])
def test_native_code_prints_the_same(level: str, capfd: pytest.CaptureFixture[str]) -> None:
    run_native(kernel.program, ARGUMENTS, f"cpu:{level}")
    assert capfd.readouterr().out == LINES
