"""elect.sync: one lane of those that take part, all of which have to come."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ptx.support import compile_program
from tileworkbench.compiler.diagnostics import DeadlockError

pytestmark = pytest.mark.nvrtc

SOURCE = """
extern "C" __global__ void kernel(int* out) {
  unsigned leads = 0, lane = 0;
  if (threadIdx.x < LANES)
    asm volatile("{ .reg .pred p; elect.sync %1|p, 0xffffffff; selp.u32 %0, 1, 0, p; }"
                 : "=r"(leads), "=r"(lane));
  __syncthreads();
  out[2 * threadIdx.x] = leads;
  out[2 * threadIdx.x + 1] = lane;
}
"""


def run(lanes: int) -> np.ndarray:
    out = np.zeros((64, 2), np.int32)
    program = compile_program(SOURCE.replace("LANES", str(lanes)), "sm_90")
    program.launch("kernel", (1, 1, 1), (64, 1, 1), [out])
    return out


def test_each_warp_has_one_leader_and_knows_it() -> None:
    leads, lane = run(64).reshape(2, 32, 2).transpose(2, 0, 1)
    assert leads.sum(axis=1).tolist() == [1, 1]
    assert (lane == leads.argmax(axis=1)[:, None]).all()


def test_lanes_that_do_not_come_are_waited_for() -> None:
    with pytest.raises(DeadlockError, match="warp"):
        run(48)
