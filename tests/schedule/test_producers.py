"""Which kernels have a producer of their own, and which have none: what the notes say."""

from __future__ import annotations

import pytest

from tests.frontend.golden import program_of
from tileworkbench.compiler.driver import lower_program, resolve_target

KERNEL = """\
@T.prim_func
def kernel(
    A: T.Tensor((128, 256), "float16"),
    B: T.Tensor((256, 128), "float16"),
    n: T.int32,
    N: T.Tensor((4,), "int32"),
    C: T.Tensor((128, 128), "float32"),
):
    with T.Kernel(1, threads=128) as bx:
        A_shared = T.alloc_shared((128, 64), "float16")
        B_shared = T.alloc_shared((64, 128), "float16")
        c = T.alloc_fragment((128, 128), "float32")
        T.clear(c)
        for k in T.Pipelined(4, num_stages=3):
            T.copy(A[0, k * 64], A_shared)
            T.copy(B[k * 64, 0], B_shared)
            T.gemm(A_shared, B_shared, c)
        T.copy(c, C)
"""
LOOP = KERNEL[KERNEL.index("        for k in") : KERNEL.index("        T.copy(c, C)")]
INSIDE = "".join(f"    {line}\n" for line in LOOP.splitlines())
GEMM, END = "            T.gemm(A_shared, B_shared, c)\n", "        T.copy(c, C)\n"
VARIABLE = '        v = T.alloc_var("int32")\n        v = n\n'
DIVIDED = "threads 0 to 127 multiply; threads 128 to 255 start the copies"
PARAMETERS = {
    "as it is": ("", ""),
    "under a condition on a parameter": (LOOP, f"        if n > 1:\n{INSIDE}"),
    "under a condition on a tensor": (LOOP, f"        if N[0] > 1:\n{INSIDE}"),
    "with places from a tensor": ("A[0, k * 64]", "A[0, N[k] * 64]"),
    "in a loop": (LOOP, f"        for z in T.serial(n):\n{INSIDE}"),
    "with a tile that is filled each time": (GEMM, GEMM + "            C[0, k] = A_shared[0, 0]\n"),
}
WITHOUT = {
    "a block has at most 1024 threads": ("threads=128", "threads=1024"),
    "its threads have roles already": (
        "        T.clear(c)\n",
        "        T.clear(c)\n        with T.ws(0):\n            T.sync_threads(3, 128)\n",
    ),
    "all threads of the block exchange values": (
        END,
        f"        x = T.syncthreads_or(n > 0)\n{END}        C[0, 0] = T.float32(x)\n",
    ),
    "blocks wait for each other": (END, f"        T.sync_grid()\n{END}"),
    "it calls functions or takes addresses": (
        END,
        f'        T.call_extern("int32", "f", T.address_of(N[0]))\n{END}',
    ),
    "another loop uses 'A_shared', too": (LOOP, LOOP + LOOP),
    "nobody reads 'B_shared'": (
        ("num_stages=3", GEMM),
        (
            "num_stages=3, order=[0, 1, 2], stage=[0, 0, 2]",
            "            T.gemm(A_shared, A_shared, c, transpose_B=True)\n",
        ),
    ),
    "its statements have more than two stages": (
        "num_stages=3",
        "num_stages=3, order=[0, 1, 2], stage=[0, 1, 2]",
    ),
    "threads write to its tiles, too": (
        GEMM,
        "            for i, j in T.Parallel(128, 64):\n"
        f"                A_shared[i, j] = A_shared[i, j] * T.float16(2)\n{GEMM}",
    ),
    "threads do some of its copies": ("(128, 256)", "(128, 259)"),
    "what it copies depends on 'v', which threads write": (
        LOOP,
        f"{VARIABLE}        if v > 1:\n{INSIDE}",
    ),
    "it stands in a loop that threads end by what they compute": (
        LOOP,
        f"{VARIABLE}        while v > 1:\n            v -= 1\n{INSIDE}",
    ),
    "apart, they need 246016 of 232448 bytes of shared memory": (
        "        T.clear(c)\n",
        """\
        T.clear(c)
        D = T.alloc_shared((128, 288), "float32")
        T.clear(D)
        C[0, 0] = D[1, 1]
""",
    ),
}


def notes(old: str | tuple[str, ...], new: str | tuple[str, ...]) -> list[str]:
    """What is said about the loops of the changed kernel."""
    text = KERNEL
    pairs = [(old, new)] if isinstance(old, str) else zip(old, new, strict=True)
    for before, after in pairs:
        assert before in text
        text = text.replace(str(before), str(after)) if before else text
    program = lower_program(program_of(text), resolve_target("sim:sm_90a"))[-1].program
    return [note for note in program.notes if note.startswith("loop")]


@pytest.mark.parametrize("name", PARAMETERS)
def test_kernels_with_a_producer(name: str) -> None:
    (note,) = notes(*PARAMETERS[name])
    assert note.startswith(f"loop 'k': {DIVIDED} (T.Pipelined, line ")


@pytest.mark.parametrize("reason", WITHOUT)
def test_kernels_without(reason: str) -> None:
    first, *_ = notes(*WITHOUT[reason])
    text = f"loop 'k': its threads start the copies, too, because {reason} (T.Pipelined, line "
    assert first.startswith(text)


def test_registers_go_to_those_who_multiply() -> None:
    (note,) = notes("threads=128", "threads=256")
    assert note == (
        "loop 'k': threads 0 to 255, of 232 registers, multiply; threads 256 to 383, of 40 "
        "registers, start the copies (T.Pipelined, line 14)"
    )


def test_the_pass_can_be_switched_off() -> None:
    target = resolve_target("sim:sm_90a")
    steps = lower_program(program_of(KERNEL), target, disabled=("specialize_warps",))
    assert not any("start the copies" in note for note in steps[-1].program.notes)
