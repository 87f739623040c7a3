"""Vectors that wait on the stack: each lies in one line of the cache."""

import re

import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench.compiler.device.host.llvm import compile_assembly, native_target
from tileworkbench.compiler.diagnostics import UnsupportedError


@T.prim_func
def remainders(x: T.Tensor((64, 256), "float32"), y: T.Tensor((64, 256), "float32")):
    z = T.empty((64, 256), "float32")
    with T.Kernel(64) as bx:
        for i in T.Parallel(256):
            # The remainder is a call, over which what is added to it has to wait.
            z[bx, i] = T.fmod(x[bx, i], y[bx, i]) + x[bx, i] / y[bx, i]
    return z


def assembly(level: str) -> str:
    try:
        target = native_target(level)
    except UnsupportedError:
        pytest.skip(f"this processor has no {level}")
    kernel = tw.compile(remainders, target="cpu" if level == "native" else f"cpu:{level}")
    return compile_assembly(kernel.source, target)


@pytest.mark.parametrize("level", ["native", "avx2"])
def test_vectors_on_the_stack_are_aligned(level: str) -> None:
    text = assembly(level)
    if "%ymm" not in text:
        pytest.skip("every stack has room for these vectors in one line")
    block = text[text.index("remainders_0_block:") :]
    stored = re.findall(r"(vmov\w+)\s+%[yz]mm\d+, -?\d*\(%rsp\)", block)
    assert stored  # else nothing waits
    assert not any(name.startswith(("vmovu", "vmovdqu")) for name in stored)


def test_an_entry_aligns_its_stack() -> None:
    """What it calls relies on that."""
    text = assembly("avx2")
    entry = text[text.index("\nremainders_0:") :]
    assert "andq\t$-64, %rsp" in entry[: entry.index("callq")]
