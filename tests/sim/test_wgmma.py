"""Mistakes around products of warpgroups, planted in the code of threads: what is found, in words.

The kernel is right as it stands; each row changes the text of its IR.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontend.golden import program_of
from tileworkbench.compiler.diagnostics import RunError, UnsupportedError
from tileworkbench.compiler.driver import lower_program, resolve_target
from tileworkbench.compiler.emit.cuda.dialect import generate_cuda
from tileworkbench.compiler.ir.parser import parse
from tileworkbench.compiler.ir.printer import print_program
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.sim import SimResult, simulate
from tileworkbench.compiler.target import parse_target

KERNEL = """\
@T.prim_func
def kernel(
    A: T.Tensor((128, 128), "float16"),
    B: T.Tensor((128, 64), "float16"),
    C: T.Tensor((128, 64), "float32"),
):
    with T.Kernel(1, threads=256) as bx:
        A_shared = T.alloc_shared((128, 64), "float16")
        B_shared = T.alloc_shared((64, 64), "float16")
        C_local = T.alloc_fragment((128, 64), "float32")
        T.clear(C_local)
        for k in T.Pipelined(2, num_stages=1):
            T.copy(A[0, k * 64], A_shared)
            for i, j in T.Parallel(64, 64):  # so that threads fill the tile
                B_shared[i, j] = B[k * 64 + i, j] * T.float16(2.0)
            T.gemm(A_shared, B_shared, C_local)
        T.copy(C_local, C)
"""
REGISTERS = KERNEL.replace(
    "            T.gemm(A_shared,",
    """\
            A_local = T.alloc_fragment((128, 64), "float16")
            T.copy(A_shared, A_local)
            T.gemm(A_local,""",
)
WAIT = "T.wait_group(pending=0, engine='wgmma')"
TOO_EARLY = "read before the wait for the asynchronous product that writes it"
NOT_FENCED = "read by the copy engine or tensor cores, with no fence behind the write of a thread"
FENCE = "used by an asynchronous product with no fence behind an access of a thread"
OUTSIDE = "a matrix descriptor reads outside the tile"
FENCED = "T.fence(kind='async')\n            T.sync_threads()"
STARTED = 'with T.started("wgmma"):'
FORM_A, FORM_B = "a_form=(16, 1024, 128, 0)", "b_form=(16, 1024, 128, 1)"

# What changes, and what is found; "" where only the result is wrong.
MISTAKES = {
    "no wait": (KERNEL, WAIT, "", TOO_EARLY),
    "wait count + 1": (KERNEL, WAIT, WAIT.replace("0", "1"), TOO_EARLY),
    "no commit": (KERNEL, "T.commit_group(engine='wgmma')", "", TOO_EARLY),
    "wait before the commit": (
        KERNEL,
        f"T.commit_group(engine='wgmma')\n            {WAIT}",
        f"{WAIT}\n            T.commit_group(engine='wgmma')",
        TOO_EARLY,
    ),
    "no fence of the stores": (KERNEL, FENCED, "T.sync_threads()", NOT_FENCED),
    "no fence of the accumulator": (KERNEL, "T.fence(kind='wgmma')", "", FENCE),
    "no fence of the operand": (REGISTERS, "T.fence(kind='wgmma')", "", FENCE),
    "no barrier": (
        KERNEL,
        FENCED,
        "T.fence(kind='async')",
        "one thread reads what another one writes",
    ),
    "another distance": (KERNEL, FORM_A, "a_form=(16, 512, 128, 0)", ""),
    "a distance beyond the tile": (KERNEL, FORM_A, "a_form=(16, 2048, 128, 0)", OUTSIDE),
    "another swizzle of A": (KERNEL, FORM_A, "a_form=(16, 1024, 64, 0)", ""),
    "another swizzle of B": (KERNEL, FORM_B, "b_form=(16, 1024, 0, 1)", OUTSIDE),
    "B as it is": (KERNEL, FORM_B, "b_form=(16, 1024, 128, 0)", ""),
    "another step along K": (KERNEL, "k_1 * 2 * 8]", "k_1 * 8 * 8]", OUTSIDE),
    "a start between units": (
        KERNEL,
        "k_1 * 2 * 8]",
        "k_1 * 2 * 8 + 4]",
        "a matrix descriptor begins at no multiple of 16 bytes",
    ),
    "A used while it is read": (
        REGISTERS,
        "T.commit_group(engine='wgmma')",
        "T.commit_group(engine='wgmma')\n            A_local[0] = T.float16(1.0)",
        "written while an asynchronous product still reads it",
    ),
    "the accumulator written in between": (
        KERNEL,
        "T.commit_group(engine='wgmma')",
        "T.commit_group(engine='wgmma')\n            C_local[0] = 1.0",
        "written while an asynchronous product into it is under way",
    ),
    "the tile written in between": (
        KERNEL,
        "T.commit_group(engine='wgmma')",
        "T.commit_group(engine='wgmma')\n            A_shared[tx] = T.float16(1.0)",
        "written while an asynchronous product still reads it",
    ),
}


def lowered(kernel: str) -> Program:
    return lower_program(program_of(kernel), resolve_target("sim:sm_90a"))[-1].program


def run(program: Program) -> tuple[SimResult, bool]:
    """The run, and whether the result is right."""
    rng = np.random.default_rng(3)
    a = rng.integers(-3, 4, (128, 128)).astype(np.float16)
    b = rng.integers(-3, 4, (128, 64)).astype(np.float16)
    c = np.zeros(128 * 64, np.float32)
    result = simulate(program, {"A": a.reshape(-1), "B": b.reshape(-1), "C": c})
    expected = 2 * a.astype(np.float32) @ b.astype(np.float32)
    return result, np.array_equal(result.arrays["C"].reshape(128, 64), expected)


def changed(kernel: str, old: str, new: str) -> Program:
    text = print_program(lowered(kernel))
    assert old in text, text
    return parse(text.replace(old, new))


@pytest.mark.parametrize("kernel", [KERNEL, REGISTERS], ids=["shared", "registers"])
def test_the_kernel_is_right(kernel):
    program = lowered(kernel)
    assert parse(print_program(program)) == program
    result, right = run(program)
    assert right and result.report.ok, str(result.report)


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_found(name):
    kernel, old, new, finding = MISTAKES[name]
    result, right = run(changed(kernel, old, new))
    details = {found.detail for found in result.report.findings}
    if finding:
        assert any(finding in detail for detail in details), details or right
    else:
        assert not right


def test_a_warpgroup_is_whole():
    program = changed(KERNEL, STARTED, f"if tx < 96:\n              {STARTED}")
    with pytest.raises(RunError) as error:
        run(program)
    assert error.value.message == (
        "'wgmma' is executed by 96 of the 128 threads of warpgroup 0, which begins at thread 0 in "
        "block (0)"
    )


def test_a_warpgroup_begins_at_a_multiple_of_four_warps():
    program = changed(KERNEL, STARTED, f"if tx >= 32 and tx < 160:\n              {STARTED}")
    with pytest.raises(RunError) as error:
        run(program)
    assert error.value.message == (
        "'wgmma' is executed by 96 of the 128 threads of warpgroup 0, which begins at thread 0 in "
        "block (0)"
    )


def test_threads_of_a_warpgroup_name_one_place():
    with pytest.raises(RunError) as error:
        run(changed(KERNEL, "k_1 * 2 * 8]", "k_1 * 2 * 8 + tx % 2 * 64]"))
    assert error.value.message == "threads of a warpgroup name different places of 'A_shared'"


def test_a_shape_that_no_instruction_has():
    program = changed(KERNEL, "n=64, k=16", "n=60, k=16")
    with pytest.raises(UnsupportedError) as error:
        generate_cuda(program, parse_target("cuda:sm_90a"))
    assert error.value.message == (
        "sm_90a has no wgmma of 64 x 60 x 16 elements of float16, float16 and float32"
    )
