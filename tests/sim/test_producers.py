"""Mistakes around a producer, planted in the code of its kernel's threads and in the PTX: what is
found, in words. The kernels are right as they stand.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontend.golden import program_of
from tileworkbench.compiler.diagnostics import DeadlockError, RunError
from tileworkbench.compiler.driver import lower_program, resolve_target
from tileworkbench.compiler.ir.parser import parse
from tileworkbench.compiler.ir.printer import print_program
from tileworkbench.compiler.sim import simulate

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
ARRIVE = "T.barrier_arrive(T.address_of(emptied[k % 3]))"
RELEASE = f"if tx % 32 == 0:\n                    {ARRIVE}"
WAIT = "T.wait_group(pending=0, engine='wgmma')"
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
    "full: no wait": (FULL, "", "thread 256 waits for parity 0 of 'emptied[2]'"),
    "empty: parity flipped": (
        EMPTY,
        EMPTY.replace("<", ">="),
        "256 waits for parity 0 of 'emptied[0]'",
    ),
    "empty: no wait": (EMPTY, "", "threads 0-255 wait for parity 0 of 'filled[2]'"),
    "release before the wait": (
        f"{WAIT}\n                {RELEASE}",
        f"{RELEASE}\n                {WAIT}",
        UNORDERED,
    ),
    "no release": (RELEASE, "", "which lacks 8 of 8 arrivals"),
    "released by one lane too many": ("if tx % 32 == 0", "if tx % 32 <= 1", "waits for ever"),
    "one arrival too many is waited for": (
        "T.barrier_init(T.address_of(emptied[1]), 8)",
        "T.barrier_init(T.address_of(emptied[1]), 9)",
        "which lacks 1 of 9 arrivals",
    ),
    "one arrival too few is waited for": (
        "T.barrier_init(T.address_of(emptied[1]), 8)",
        "T.barrier_init(T.address_of(emptied[1]), 7)",
        "arrived at more often in one phase than it was made for",
    ),
    "fewer bytes than come": ("bytes_=16384", "bytes_=8192", "bytes"),
    "more registers than there are": (MORE, MORE.replace("232", "240"), "for 18432 more registers"),
    "nothing is given back": (FEWER, "", "others have given back 0"),
    "more with fewer": (MORE, MORE.replace("232", "160"), "not more than the 168 there are"),
    "fewer with more": (FEWER, FEWER.replace("40", "176"), "not fewer than the 168 there are"),
    "no unit of registers": (FEWER, FEWER.replace("40", "44"), "takes multiples of 8"),
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
