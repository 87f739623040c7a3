"""Fences between what threads and engines do in shared memory: where they are, where there are
none, and what the simulator says without one.
"""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

from typing import Any

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench.compiler.device.nvidia.nvrtc import compile_cuda
from tileworkbench.compiler.diagnostics import RaceError
from tileworkbench.compiler.ir.rewrite import Rewriter, statements, with_body
from tileworkbench.compiler.ir.simt import Fence
from tileworkbench.compiler.ir.stmt import Seq, Stmt
from tileworkbench.compiler.sim import simulate
from tileworkbench.compiler.sim.ptx import PtxProgram, TensorMap
from tileworkbench.kernels import matmul


def kernel(steps: str) -> Any:
    """Tiles that the engine loads and stores, and threads fill, in this order."""

    @T.prim_func
    def made(
        A: T.Tensor((64, 64), "float16"),
        B: T.Tensor((64, 64), "float16"),
        C: T.Tensor((64, 64), "float16"),
    ):
        with T.Kernel(1, threads=128):
            tile = T.alloc_shared((64, 64), "float16")
            later = T.alloc_shared((64, 64), "float16")
            for step in steps.split():
                if step == "load":
                    T.copy(A, tile)
                if step == "later":  # lies where the other one lay
                    T.copy(A, later)
                    for i, j in T.Parallel(64, 64):
                        C[i, j] = later[63 - i, j]
                if step == "fill":
                    for i, j in T.Parallel(64, 64):
                        tile[i, j] = A[i, j] * 2
                if step == "read":
                    for i, j in T.Parallel(64, 64):
                        B[i, j] = tile[63 - i, j]
                if step == "store":
                    T.copy(tile, B)

    return made


def fences(compiled: tw.Kernel) -> int:
    """Those of the final program, but for that of the memory barriers."""
    program = compiled.compiled.record.snapshots[-1].program
    return sum(stmt == Fence("async") for stmt in statements(program.body)) - 1


STEPS = {
    "load read": 0,
    "load read later": 0,  # threads only read what is overwritten
    "load fill store": 1,
    "fill store later": 1,  # what the store has fenced is so for the load, too
    "fill read load read": 1,
    "fill read later": 1,
    "load fill read load read": 1,
}
RESULTS = dict.fromkeys([each for each in STEPS if each.startswith("load read")], 3)
RESULTS |= dict.fromkeys([each for each in STEPS if "read load read" in each], 3)


@pytest.mark.parametrize("steps", STEPS)
def test_where_fences_are(steps: str) -> None:
    compiled = tw.compile(kernel(steps), target="sim:sm_90a")
    assert fences(compiled) == STEPS[steps]
    a, b, c = (np.full((64, 64), value, np.float16) for value in (3, 0, 0))
    compiled(a, b, c)
    assert (b == RESULTS.get(steps, 6)).all()
    assert (c == (3 if "later" in steps else 0)).all()


def test_a_ring_that_threads_only_read_needs_none() -> None:
    assert fences(tw.compile(matmul(256, 256, 256, "float16"), target="sim:sm_90a")) == 0


@pytest.mark.parametrize("steps", ["fill read load read", "fill read later"])
def test_a_load_over_what_threads_wrote_without_a_fence(steps: str) -> None:
    compiled = tw.compile(kernel(steps), target="sim:sm_90a")
    program = compiled.compiled.record.snapshots[-1].program

    def without(stmt: Stmt) -> Stmt:
        return Seq(()) if stmt == Fence("async") else stmt

    changed = with_body(program, Rewriter(rewrite_stmt=without)(program.body))
    arguments = {name: np.ones(64 * 64, np.float16) for name in "ABC"}
    assert simulate(program, arguments).report.ok
    found = {each.detail for each in simulate(changed, arguments).report.findings}
    assert "written by the copy engine, with no fence behind the write of a thread" in found


@pytest.mark.nvrtc
def test_the_ptx_without_that_fence() -> None:
    module = tw.compile(kernel("fill read later"), target="sim:sm_90a").compiled.module
    text = compile_cuda(module.text, "sm_90a").ptx
    front, fence, behind = text.rpartition("fence.proxy.async.shared::cta;")
    assert fence
    execute(text, module)
    with pytest.raises(RaceError) as caught:
        execute(front + behind, module)
    assert "lets the asynchronous proxy write byte 0 of shared memory" in caught.value.message


def execute(ptx: str, module: Any) -> None:
    (launch,) = module.launches
    arrays = [np.ones((64, 64), np.float16) for _ in "ABC"]
    values = [*arrays, TensorMap(arrays[0], (64, 64))]
    PtxProgram.parse(ptx).launch(launch.entry, (1,), (128,), values, launch.shared_bytes)
