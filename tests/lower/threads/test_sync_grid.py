"""Barriers of the grid: blocks that wait for each other, simulated and executed from the PTX with
all blocks side by side.
"""

from typing import Any

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tests.capability import require
from tileworkbench.compiler.device.gpu import GpuKernel
from tileworkbench.compiler.device.nvidia.nvrtc import missing_nvrtc
from tileworkbench.compiler.diagnostics import RaceError, RunError
from tileworkbench.compiler.sim.ptx.launch import PtxProgram

BLOCKS, THREADS = 40, 256  # more than the interpreter runs side by side otherwise


def rotations(times: int, meet: bool = True) -> Any:
    """Each block takes the row of the next one, some times; `grid_barrier` is the user's name."""

    @T.prim_func
    def main(
        grid_barrier: T.Tensor((BLOCKS, THREADS), "float32"),
        B: T.Tensor((BLOCKS, THREADS), "float32"),
    ):
        with T.Kernel(BLOCKS // 2, 2, threads=THREADS) as (bx, by):
            tx = T.get_thread_binding()
            block = by * (BLOCKS // 2) + bx
            W = T.alloc_shared((THREADS,), "float32")
            T.copy(grid_barrier[block, :], W)
            for k in T.serial(times):
                B[block, tx] = W[THREADS - 1 - tx]
                if meet:
                    T.sync_grid()
                T.copy(B[(block + 1) % BLOCKS, :], W)
                if meet:
                    T.sync_grid()
            B[block, tx] = W[tx]

    return main


@pytest.mark.parametrize("target", ["sim:sm_80", "ptx:sm_75", "ptx:sm_90"])
@pytest.mark.parametrize("times", [1, 3])
def test_blocks_hand_rows_on(target: str, times: int) -> None:
    require("nvrtc", missing_nvrtc())
    a = np.random.default_rng(0).standard_normal((BLOCKS, THREADS)).astype(np.float32)
    kernel, found = tw.compile(rotations(times), target=target), np.zeros_like(a)
    for _ in range(2):  # the barrier is as it was
        kernel(a.copy(), found)
        expected = np.roll(a, -times, 0)
        np.testing.assert_array_equal(found, expected[:, ::-1] if times % 2 else expected)


def test_without_the_barrier_it_is_a_race() -> None:
    a = np.zeros((BLOCKS, THREADS), np.float32)
    with pytest.raises(RaceError):
        tw.compile(rotations(1, meet=False), target="sim:sm_80")(a, a.copy())


def test_launches_are_cooperative_where_blocks_wait() -> None:
    kernel: GpuKernel = tw.compile(rotations(1), target="sim:sm_80")._compiled
    assert [launch.cooperative for launch in kernel.module.launches] == [True]
    assert [buffer.name for buffer in kernel.module.workspaces] == ["grid_barrier"]
    alone: GpuKernel = tw.compile(rotations(1, meet=False), target="sim:sm_80")._compiled
    assert not alone.module.launches[0].cooperative and not alone.module.workspaces


def test_blocks_one_batch_after_another_never_meet() -> None:
    require("nvrtc", missing_nvrtc())
    kernel: GpuKernel = tw.compile(rotations(1), target="ptx:sm_80")._compiled
    program, launch = PtxProgram.parse(kernel.compiled().ptx), kernel.module.launches[0]
    a, counter = np.zeros((BLOCKS, THREADS), np.float32), np.zeros(1, np.uint32)
    args = (launch.entry, (BLOCKS // 2, 2), (THREADS,), [a, a.copy(), counter], launch.shared_bytes)
    program.launch(*args, cooperative=True)
    with pytest.raises(RunError, match="did not end within 20000 instructions"):
        program.launch(*args, instruction_limit=20000)


def test_what_others_write_is_not_kept_in_registers() -> None:
    """A tensor that threads exchange data through may change behind a barrier."""
    source = tw.compile(rotations(1), target="sim:sm_80").source
    assert "float* B" in source and "const float* __restrict__ grid_barrier_1" in source
