"""What CUDA text cannot express of programs in the SIMT stage: no kernel reaches these."""

from __future__ import annotations

import pytest

from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.compiler.emit.cuda.dialect import generate_cuda
from tileworkbench.compiler.ir.parser import parse
from tileworkbench.compiler.target import parse_target

PROGRAM = """
@T.program(stage="simt")
def kernel(A: T.Tensor((256,), "float32"), B: T.Tensor((256,), "int32"), n: T.int32):
    with T.Kernel(1, threads=32, thread_vars=["tx"]) as bx:
        x = T.alloc_local((8,), "float32")
        y = T.alloc_local((8,), "int32")
        z = T.alloc_var("float32", 0.0)
{body}
"""
CASES = {
    "A[T.Ramp(0, 2, 4)] = T.Broadcast(1.0, 4)": "a vector of 'A' is not contiguous",
    "A[T.Ramp(0, 1, 4)] = A[T.Ramp(0, 2, 4)] + 1.0": "a vector of 'A' is not contiguous",
    "A[T.Ramp(0, 1, 3)] = A[T.Ramp(4, 1, 3)]": "a vector of 96 bits has no access of its own",
    "z[T.Ramp(0, 1, 4)] = A[T.Ramp(0, 1, 4)] + 1.0": "'z' is a scalar and takes no vector",
    "B[tx] = T.sin(B[tx])": "CUDA emission does not know 'T.sin' of 'int32'",
    'A[T.Ramp(0, 1, 2)] = T.reinterpret(T.int64(B[tx]), "float32x2")': (
        "CUDA emission cannot reinterpret 'int64' as 'float32x2' yet"
    ),
    'A[tx] = T.float32(T.reinterpret(x[T.Ramp(0, 1, 2)], "float64"))': (
        "CUDA emission cannot read 'x[T.Ramp(0, 1, 2)]' as 'float64'"
    ),
    "T.mma(T.address_of(y[0]), T.address_of(y[4]), T.address_of(x[0]), m=16, n=8, k=8)": (
        "sm_80 has no mma of 16 x 8 x 8 elements of int32, int32 and float32"
    ),
    "T.cluster_sync()": (
        "a cluster of blocks needs sm_90, the target is sm_80\n"
        "hint: compile for 'cuda:sm_90' or later"
    ),
}


def refused(text: str, target: str = "cuda:sm_80") -> str:
    with pytest.raises(UnsupportedError) as caught:
        generate_cuda(parse(text), parse_target(target))
    return caught.value.render()


@pytest.mark.parametrize("body", CASES)
def test_statements(body: str) -> None:
    lines = "\n".join(f"        {line}" for line in body.splitlines())
    assert refused(PROGRAM.format(body=lines)) == f"UnsupportedError: {CASES[body]}"


def test_launches() -> None:
    text = PROGRAM.format(body="        A[tx] = 0.0")
    assert refused(text, "cpu") == "UnsupportedError: target 'cpu' is not a CUDA target"
    head, launch = text.split("    with", 1)
    inside = "\n    ".join(("    with" + launch).splitlines())
    looped = f"{head}    for i in T.serial(2):\n    {inside}\n"
    assert refused(looped) == (
        "UnsupportedError: 'For' around a launch is not possible on a GPU\n"
        "hint: launch the kernel from Python for each case"
    )
