"""Mistakes around a producer, planted in the code of its kernel's threads and in the PTX: what is
found, in words. The kernels are right as they stand.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontend.golden import program_of
from tileworkbench.compiler.device.nvidia.nvrtc import compile_cuda
from tileworkbench.compiler.diagnostics import DeadlockError, RunError
from tileworkbench.compiler.driver import lower_program, resolve_target
from tileworkbench.compiler.emit.cuda.dialect import generate_cuda
from tileworkbench.compiler.ir.parser import parse
from tileworkbench.compiler.ir.printer import print_program
from tileworkbench.compiler.sim import simulate
from tileworkbench.compiler.sim.ptx import PtxProgram, TensorMap
from tileworkbench.compiler.target import parse_target

KERNEL = """\
@T.prim_func
def kernel(
    A: T.Tensor((128, 256), "float16"),
    B: T.Tensor((256, 128), "float16"),
    C: T.Tensor((128, 128), "float32"),
):
    with T.Kernel(1, threads=256) as bx:
        A_shared = T.alloc_shared((128, 32), "float16")
        B_shared = T.alloc_shared((32, 128), "float16")
        c = T.alloc_fragment((128, 128), "float32")
        T.clear(c)
        for k in T.Pipelined(8, num_stages=3):
            T.copy(A[0, k * 32], A_shared)
            T.copy(B[k * 32, 0], B_shared)
            T.gemm(A_shared, B_shared, c)
        T.copy(c, C)
"""
RELEASE = "T.barrier_arrive(T.address_of(emptied[(k + 2) % 3]))"
EARLY = "T.barrier_arrive(T.address_of(emptied[k % 3]))"
FULL = "T.barrier_wait(T.address_of(filled[k % 3]), T.int32(k % 6 >= 3))"
EMPTY = "T.barrier_wait(T.address_of(emptied[k_2 % 3]), T.int32(k_2 % 6 < 3))"
FEWER = "T.set_registers(count=40, increase=False)"
MORE = "T.set_registers(count=232, increase=True)"
UNORDERED = "one thread reads what another one writes, unordered by a barrier"

# What changes, and what is found.
MISTAKES = {
    "full: parity flipped": (
        FULL,
        FULL.replace(">=", "<"),
        "0-255 wait for parity 1 of 'filled[0]'",
    ),
    "full: no wait": (FULL, "", "thread 256 waits for parity 0 of 'emptied[1]'"),
    "empty: parity flipped": (
        EMPTY,
        EMPTY.replace("<", ">="),
        "256 waits for parity 0 of 'emptied[0]'",
    ),
    "empty: no wait": (EMPTY, "", "threads 0-255 wait for parity 0 of 'filled[2]'"),
    "released before the product is done": (
        f"if k > 0:\n                    if tx % 32 == 0:\n                        {RELEASE}",
        f"if k >= 0:\n                    if tx % 32 == 0:\n                        {EARLY}",
        UNORDERED,
    ),
    "wait count + 1": ("T.wait_group(pending=1,", "T.wait_group(pending=2,", UNORDERED),
    "no release": (RELEASE, "pass", "which lacks 8 of 8 arrivals"),
    "released by one lane too many": ("if tx % 32 == 0", "if tx % 32 <= 1", "waits for ever"),
    "one arrival too many is waited for": (
        "T.barrier_init(T.address_of(emptied[1]), 8)",
        "T.barrier_init(T.address_of(emptied[1]), 9)",
        "which lacks 1 of 9 arrivals",
    ),
    "one arrival too few is waited for": (
        "T.barrier_init(T.address_of(emptied[1]), 8)",
        "T.barrier_init(T.address_of(emptied[1]), 7)",
        "arrived at more often in one phase than it was made for: count 7",
    ),
    "fewer bytes than come": ("bytes_=16384", "bytes_=8192", "bytes"),
    "more registers than there are": (MORE, MORE.replace("232", "240"), "for 18432 more registers"),
    "nothing is given back": (FEWER, "", "others have given back 0"),
    "more with fewer": (
        MORE,
        MORE.replace("232", "160"),
        "'setmaxnreg' asks for 160 registers, not more than the 168 there are",
    ),
    "fewer with more": (
        FEWER,
        FEWER.replace("40", "176"),
        "'setmaxnreg' asks for 176 registers, not fewer than the 168 there are",
    ),
    "no unit of registers": (
        FEWER,
        FEWER.replace("40", "44"),
        "'setmaxnreg' takes multiples of 8 from 24 to 256, not 44",
    ),
    "a part of a warpgroup": (
        MORE,
        f"if tx < 96:\n                {MORE}",
        "'setmaxnreg' is executed by 96 of the 128 threads of warpgroup 0",
    ),
}


def lowered() -> str:
    steps = lower_program(program_of(KERNEL), resolve_target("sim:sm_90a"))
    return print_program(steps[-1].program)


def run(text: str) -> tuple[str, bool]:
    """What is found, and whether the result is right."""
    rng = np.random.default_rng(3)
    a = rng.integers(-3, 4, (128, 256)).astype(np.float16)
    b = rng.integers(-3, 4, (256, 128)).astype(np.float16)
    c = np.zeros(128 * 128, np.float32)
    try:
        result = simulate(parse(text), {"A": a.reshape(-1), "B": b.reshape(-1), "C": c})
    except (DeadlockError, RunError) as error:
        return str(error), False
    expected = a.astype(np.float32) @ b.astype(np.float32)
    right = np.array_equal(result.arrays["C"].reshape(128, 128), expected)
    return "".join(found.detail for found in result.report.findings), right


def test_the_kernel_is_right() -> None:
    assert run(lowered()) == ("", True)


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_found(name: str) -> None:
    old, new, finding = MISTAKES[name]
    text = lowered()
    assert old in text, text
    found, _ = run(text.replace(old, new))
    assert finding and finding in found, found


# The same in the PTX: what a pattern becomes, and what is found.
INC = "setmaxnreg.inc.sync.aligned.u32 232;"
DEC = "setmaxnreg.dec.sync.aligned.u32 40;"
CHANGED_PTX = {
    "more registers than there are": (
        INC,
        INC.replace("232", "240"),
        "for 240 registers each, and others have given back",
    ),
    "more with fewer": (
        INC,
        INC.replace("232", "160"),
        "160 registers are not more than the 168 that a thread has: 'setmaxnreg",
    ),
    "fewer with more": (
        DEC,
        DEC.replace("40", "176"),
        "176 registers are not fewer than the 168 that a thread has: 'setmaxnreg",
    ),
    "no unit of registers": (
        DEC,
        DEC.replace("40", "44"),
        "setmaxnreg takes multiples of 8 from 24 to 256, not 44: 'setmaxnreg",
    ),
    "nothing is given back": (DEC, "", "and others have given back 0"),
    "only some warps give registers back": (
        DEC,
        f"{{ .reg .u32 %own; .reg .pred %some; mov.u32 %own, %tid.x; "
        f"setp.lt.u32 %some, %own, 320; @%some {DEC} }}",
        "127 more at 'setmaxnreg.inc.sync.aligned.u32 232'",
    ),
    "some warps more": (
        DEC,
        f"{DEC} {{ .reg .u32 %own; .reg .pred %some; mov.u32 %own, %tid.x; "
        f"setp.lt.u32 %some, %own, 320; @%some {DEC.replace('40', '32')} }}",
        "not all warps of a warpgroup, of warps 8 to 11, execute it: '@%some setmaxnreg",
    ),
    "products are still under way": (
        "wgmma.wait_group.sync.aligned 1;",
        "wgmma.wait_group.sync.aligned 2;",
        "of shared memory while the asynchronous copy 'cp.async.bulk",
    ),
}


def run_ptx(text: str) -> str:
    """What is found in the executed PTX, empty where the result is right."""
    rng = np.random.default_rng(3)
    a = rng.integers(-3, 4, (128, 256)).astype(np.float16)
    b = rng.integers(-3, 4, (256, 128)).astype(np.float16)
    c = np.zeros((128, 128), np.float32)
    maps = [TensorMap(a, (32, 128), "64B"), TensorMap(b, (64, 32), "128B")]
    try:
        program = PtxProgram.parse(text)
        program.launch("kernel", (1,), (384,), [a, b, c, *maps], 3 * 16384 + 256)
    except RunError as error:
        return str(error)
    return "" if np.array_equal(c, a.astype(np.float32) @ b.astype(np.float32)) else "wrong"


@pytest.fixture(scope="module")
def ptx() -> str:
    module = generate_cuda(parse(lowered()), parse_target("cuda:sm_90a"))
    return compile_cuda(module.text, "sm_90a").ptx


@pytest.mark.nvrtc
def test_the_ptx_is_right(ptx: str) -> None:
    assert run_ptx(ptx) == ""


@pytest.mark.nvrtc
@pytest.mark.parametrize("name", CHANGED_PTX)
def test_a_mistake_in_the_ptx_is_found(name: str, ptx: str) -> None:
    old, new, finding = CHANGED_PTX[name]
    assert old in ptx
    found = run_ptx(ptx.replace(old, new))
    assert finding and finding in found, found
