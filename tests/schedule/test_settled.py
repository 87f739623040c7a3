"""The memory of tiles that a producer fills is used again behind the last product: where it is the
simulator finds no race, and where copies may still come it is not.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontend.golden import program_of
from tileworkbench.compiler.driver import lower_program, resolve_target
from tileworkbench.compiler.ir.parser import parse
from tileworkbench.compiler.ir.printer import print_program
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.stmt import Kernel
from tileworkbench.compiler.passes.plan_shared_memory import PlanSharedMemory
from tileworkbench.compiler.schedule.shared_memory import shared_memories
from tileworkbench.compiler.sim import simulate

KERNEL = """\
@T.prim_func
def kernel(
    A: T.Tensor((128, 320), "float16"),
    B: T.Tensor((320, 64), "float16"),
    C: T.Tensor((128, 64), "float16"),
):
    with T.Kernel(1, threads=256) as bx:
        A_shared = T.alloc_shared((128, 64), "float16")
        B_shared = T.alloc_shared((64, 64), "float16")
        C_shared = T.alloc_shared((128, 64), "float16")
        c = T.alloc_fragment((128, 64), "float32")
        T.clear(c)
        for k in T.Pipelined(5, num_stages=3):
            T.copy(A[0, k * 64], A_shared)
            T.copy(B[k * 64, 0], B_shared)
            T.gemm(A_shared, B_shared, c)
        T.copy(c, C_shared)
        T.copy(C_shared, C)
"""
TARGET = resolve_target("sim:sm_90a")
PRODUCER, USERS = "for k_2 in T.serial(5):", "for k in T.serial(5):"
FULL = "T.barrier_wait(T.address_of(filled[k % 3]), T.int32(k % 6 >= 3))"
TOLD = "T.barrier_signal(T.address_of(filled[k_2 % 3]), arrivals=1, bytes_=24576)"
# What keeps the tiles in use: copies may come that the users do not wait for.
APART = {
    "copies more": (PRODUCER, PRODUCER.replace("5", "7")),
    "one wait less": (USERS, USERS.replace("5", "4")),
    "another phase": (FULL, FULL.replace(">=", "<")),
    "another place": (FULL, FULL.replace("k % 3", "0")),
    "a wait of some iterations": (FULL, f"if k < 4:\n                    {FULL}"),
    "a wait of some threads": (FULL, f"if tx < 128:\n                    {FULL}"),
    "a phase told twice": (TOLD, f"{TOLD}\n                    {TOLD}"),
    "a copy under a condition": (PRODUCER, f"{PRODUCER}\n                    if bx > 0:"),
    "a loop that ends early": (
        FULL,
        f"{FULL}\n                if bx > 3:\n                    break",
    ),
    "tiles that the producer reads": (
        PRODUCER,
        f"C[0, 0] = A_shared[0, 0, 0] + B_shared[0, 0, 0]\n                {PRODUCER}",
    ),
    "a barrier for more arrivals": (
        "T.barrier_init(T.address_of(filled[1]), 1)",
        "T.barrier_init(T.address_of(filled[1]), 2)",
    ),
}


def stage(name: str) -> Program:
    steps = lower_program(program_of(KERNEL), TARGET)
    return next(step.program for step in steps if step.name == name)


def sharers(program: Program) -> tuple[str, ...]:
    """What has bytes of C_shared at another time."""
    (memory,) = shared_memories(PlanSharedMemory(TARGET)(program))
    return next(each.shares for each in memory.buffers if each.name == "C_shared")


def test_the_result_lies_where_the_operands_lay() -> None:
    assert sharers(stage("expand_pipelines")) == ("A_shared",)
    program = stage("insert_barriers")
    rng = np.random.default_rng(0)
    a = rng.integers(-3, 4, (128, 320)).astype(np.float16)
    b = rng.integers(-3, 4, (320, 64)).astype(np.float16)
    found = simulate(program, {"A": a, "B": b, "C": np.zeros((128, 64), np.float16)})
    assert found.report.ok and np.array_equal(found.arrays["C"], a @ b)
    (kernel,) = (stmt for stmt in statements(program.body) if isinstance(stmt, Kernel))
    assert "T.sync_threads(id=15, count=256)" in print_program(program)
    assert kernel.threads == (384,)


@pytest.mark.parametrize("name", APART)
def test_what_may_still_come_has_memory_of_its_own(name: str) -> None:
    text = print_program(stage("expand_pipelines"))
    old, new = APART[name]
    assert text.count(old) == 1
    if name == "a copy under a condition":
        text = indented(text, old)
    assert sharers(parse(text.replace(old, new))) == ()


def indented(text: str, loop: str) -> str:
    """`text` with the body of a loop one level further in."""
    lines = text.splitlines()
    at = next(number for number, line in enumerate(lines) if line.strip() == loop)
    level = len(lines[at]) - len(lines[at].lstrip())
    for number in range(at + 1, len(lines)):
        if len(lines[number]) - len(lines[number].lstrip()) <= level:
            break
        lines[number] = f"    {lines[number]}"
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("name", ["copies more", "the users do not meet"])
def test_the_simulator_sees_what_the_proof_is_for(name: str) -> None:
    text = print_program(stage("insert_barriers"))
    old, new = APART.get(name, ("T.sync_threads(id=15, count=256)", "pass"))
    changed = text.replace(old, new, 1)
    assert changed != text
    arrays = {
        "A": np.ones((128, 320), np.float16),
        "B": np.ones((320, 64), np.float16),
        "C": np.zeros((128, 64), np.float16),
    }
    assert not simulate(parse(changed), arrays).report.ok
