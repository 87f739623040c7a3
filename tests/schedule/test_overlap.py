"""Products that go on during the next iteration: where they do, why not elsewhere, and what the
simulator says of mistakes in it.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontend.golden import program_of
from tileworkbench.compiler.diagnostics import DeadlockError, RunError
from tileworkbench.compiler.driver import lower_program, resolve_target
from tileworkbench.compiler.ir.parser import parse
from tileworkbench.compiler.ir.printer import print_program
from tileworkbench.compiler.sim.simulate import simulate

KERNEL = """\
@T.prim_func
def kernel(
    Q: T.Tensor((128, 64), "float16"),
    K: T.Tensor((256, 64), "float16"),
    V: T.Tensor((256, 64), "float16"),
    n: T.int32,
    O: T.Tensor((128, 64), "float32"),
):
    with T.Kernel(1, threads=256) as bx:
        Q_shared = T.alloc_shared((128, 64), "float16")
        K_shared = T.alloc_shared((64, 64), "float16")
        V_shared = T.alloc_shared((64, 64), "float16")
        s = T.alloc_fragment((128, 64), "float32")
        p = T.alloc_fragment((128, 64), "float16")
        o = T.alloc_fragment((128, 64), "float32")
        T.copy(Q, Q_shared)
        T.clear(o)
        for k in T.Pipelined(n, num_stages=2):
            T.copy(K[k * 64, 0], K_shared)
            T.gemm(Q_shared, K_shared, s, transpose_B=True, clear_accum=True)
            for i, j in T.Parallel(128, 64):
                s[i, j] = s[i, j] * 2
            T.copy(s, p)
            T.copy(V[k * 64, 0], V_shared)
            T.gemm(p, V_shared, o)
        T.copy(o, O)
"""
LOOP = KERNEL[KERNEL.index("        for k in") : KERNEL.index("        T.copy(o, O)")]
INSIDE = "".join(f"    {line}\n" for line in LOOP.splitlines())
LAST = "            T.gemm(p, V_shared, o)\n"
COPY = "            T.copy(s, p)\n"
TURNS = "; the last product of an iteration goes on during the next one, warpgroups in turn"
ALONE = "; the last product of an iteration goes on during the next one"
PLAIN = "        for k in T.Pipelined"
EACH = "            for i, j in T.Parallel(128, 64):\n                "
FILL = '        P_shared = T.alloc_shared((128, 64), "float16")\n'
WIDE = '        x = T.alloc_fragment((128, 512), "float32")\n        T.clear(x)\n'
SUMS = "        for i, j in T.Parallel(128, 512):\n            T.atomic_add(O[i, 0], x[i, j])\n"
REASONS = {
    "statements of the loop follow the last of them": (
        (LAST, f"{LAST}{EACH}o[i, j] = o[i, j] * 2\n"),
    ),
    "'o' is used by both": (
        ("            T.copy(K[k", f"{EACH}o[i, j] = o[i, j] * 2\n            T.copy(K[k"),
    ),
    "threads write 'P_shared' in shared memory": (
        (PLAIN, f"{FILL}{PLAIN}"),
        (COPY, f"{COPY}            T.copy(p, P_shared)\n"),
        ("gemm(p,", "gemm(P_shared,"),
    ),
    "a thread would need about 376 of 232 registers": (
        (PLAIN, f"{WIDE}{PLAIN}"),
        ("        T.copy(o, O)\n", f"        T.copy(o, O)\n{SUMS}"),
    ),
}


def text_of(*changes: tuple[str, str]) -> str:
    """The kernel, changed."""
    text = KERNEL
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


def note_of(*changes: tuple[str, str]) -> str:
    """What is said about the loop of the changed kernel, without where it is."""
    program = lower_program(program_of(text_of(*changes)), resolve_target("sim:sm_90a"))[-1].program
    (note,) = [note for note in program.notes if note.startswith("loop 'k'")]
    return note.split(" (T.Pipelined")[0].split("start the copies")[1]


@pytest.mark.parametrize(("threads", "said"), [(256, TURNS), (128, ALONE)])
def test_the_last_product_goes_on(threads: int, said: str) -> None:
    assert note_of(("threads=256", f"threads={threads}")) == said


def test_products_with_nothing_between_them_are_no_reason_for_a_note() -> None:
    between = (
        "            for i, j in T.Parallel(128, 64):\n                s[i, j] = s[i, j] * 2\n"
    )
    assert note_of((between, "")) == ""


@pytest.mark.parametrize("reason", REASONS)
def test_why_it_does_not(reason: str) -> None:
    assert note_of(*REASONS[reason]) == f"; they wait for each product, because {reason}"


# Results


def run(text: str, n: int) -> tuple[str, bool]:
    """What the simulator finds in the lowered kernel, and whether the result is right."""
    rng = np.random.default_rng(n)
    q, k, v = (rng.integers(-2, 3, (rows, 64)).astype(np.float16) for rows in (128, 256, 256))
    o = np.zeros(128 * 64, np.float32)
    arguments = {"Q": q.reshape(-1), "K": k.reshape(-1), "V": v.reshape(-1), "n": n, "O": o}
    try:
        result = simulate(parse(text), arguments)
    except (DeadlockError, RunError) as error:
        return str(error), False
    k, v = (each[: 64 * n].astype(np.float64) for each in (k, v))
    weights = (q.astype(np.float64) @ k.T * 2).astype(np.float16)
    right = np.array_equal(result.arrays["O"].reshape(128, 64), weights.astype(np.float64) @ v)
    return "".join(found.detail for found in result.report.findings), right


def lowered(*changes: tuple[str, str]) -> str:
    """The changed kernel as threads execute it."""
    program = program_of(text_of(*changes))
    return print_program(lower_program(program, resolve_target("sim:sm_90a"))[-1].program)


@pytest.mark.parametrize("n", [0, 1, 2, 4])
def test_every_number_of_iterations_is_right(n: int) -> None:
    assert run(lowered(), n) == ("", True)


def test_a_loop_that_is_executed_again_counts_its_turns_on() -> None:
    """Three iterations, twice: the second time begins with the other parities."""
    again = (LOOP, f"        for z in T.serial(2):\n            T.clear(o)\n{INSIDE}")
    assert run(lowered(again), 3) == ("", True)


GIVEN = "                    T.barrier_arrive(T.address_of(turn[(tx // 128 + 1) % 2]))\n"
WAIT = "T.wait_group(pending=0, engine='wgmma')\n                if k > 0:"
MISTAKES = {
    "the last product is not waited for in time": (
        (WAIT, WAIT.replace("pending=0", "pending=1")),
        "written while an asynchronous product still reads it",
    ),
    "the first product is not waited for": (
        ("pending=1", "pending=2"),
        "read before the wait for the asynchronous product that writes it",
    ),
    "nobody gives a turn": ((GIVEN, ""), "waits for ever"),
    "the tiles of the next iteration": (
        ("V_shared[(k + 1) % 2", "V_shared[k % 2"),
        "read before the wait for the asynchronous copy that writes it",
    ),
    "tiles are released early": (("emptied_1[(k + 1) % 2]", "emptied_1[k % 2]"), "waits for ever"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_found(name: str) -> None:
    (old, new), finding = MISTAKES[name]
    text = lowered()
    assert old in text
    found, right = run(text.replace(old, new), 4)
    assert found and finding in found, (found, right)
