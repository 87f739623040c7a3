"""What it gives that vectors on the stack lie in whole lines of the cache, on this processor.

    python benchmarks/aligned_stack.py [--quick]

Kernels of `cost/`, with tiles from the middle of their lists, and two that call functions
in loops: those in whose code vectors wait on the stack are compiled as they are, and with a
stack that is aligned to 16 bytes only, as the system has it. Where that begins in a line is chance;
here it is at each of the four places, in turn. For all that this processor has and for AVX2; one
thread.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from typing import Any

from common import environment, write_results
from cost import CASES
from cost.case import Case
from two_ways import TARGETS, compiled_with, milliseconds, told

import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench.compiler.device.host import kernel as host_kernel
from tileworkbench.compiler.device.host.llvm import compile_assembly, native_target
from tileworkbench.compiler.emit.llvm.program import ALIGNED_STACK

PLACES = (0, 16, 32, 48)  # bytes from the beginning of a line
# An entry moves its stack by so many bytes, which LLVM must not know.
MOVED = """entry:
  %line = alloca i8, i64 64, align 64
  store volatile i8 0, ptr %line
  %bytes = load volatile i64, ptr @moved
  %space = alloca i8, i64 %bytes, align 16
  store volatile i8 0, ptr %space
"""
ON_STACK = re.compile(r"%[yz]mm\d+, -?\d*\(%r[sb]p\)|-?\d*\(%r[sb]p\), %[yz]mm")


def quotients(M: int, N: int, block_M: int = 4) -> Any:
    """Quotients of x and y (M, N), float32, rounded down."""

    @T.prim_func
    def quotients(x: T.Tensor((M, N), "float32"), y: T.Tensor((M, N), "float32")):
        whole = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            for i, j in T.Parallel(block_M, N):
                row = bx * block_M + i
                rest = T.fmod(x[row, j], y[row, j])
                below = T.if_then_else((rest < 0.0) != (y[row, j] < 0.0), 1.0, 0.0)
                whole[row, j] = T.round((x[row, j] - rest) / y[row, j]) - below
        return whole

    return quotients


def waves(M: int, N: int, block_M: int = 4) -> Any:
    """`x * sin(y) + y * cos(x)` of x and y (M, N), float32."""

    @T.prim_func
    def waves(x: T.Tensor((M, N), "float32"), y: T.Tensor((M, N), "float32")):
        z = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            for i, j in T.Parallel(block_M, N):
                a, b = x[bx * block_M + i, j], y[bx * block_M + i, j]
                z[bx * block_M + i, j] = a * T.sin(b) + b * T.cos(a)
        return z

    return waves


SIZES = {"M": 512, "N": 1024}
CALLING = (
    Case("quotients 512x1024", quotients, SIZES, {"block_M": (4,)}),
    Case("waves 512x1024", waves, SIZES, {"block_M": (4,)}),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of it, nothing written")
    options = parser.parse_args()
    facts = environment(("tileworkbench", "llvmlite"))
    tw.set_num_threads(1)
    seconds = 0.2 if options.quick else 1.2
    data = [row for case in (*CALLING, *CASES) for row in compared(case, seconds)]
    text = told(("aligned, ms", "by chance, ms"), data)
    text += " By chance is the mean of the four places."
    print(text)
    if not options.quick:
        print(f"\nwritten to {write_results('aligned_stack', facts, data, text)}")


def compared(case: Case, seconds: float) -> Iterator[dict[str, Any]]:
    """Milliseconds of a call by target; nothing where no vector waits on the stack."""
    program = case.make(**case.constants, **case.middle)
    for target in TARGETS:
        kernel = tw.compile(program, target=target)
        level = native_target(target.partition(":")[2] or "native")
        if ON_STACK.search(compile_assembly(kernel.source, level)):
            kernels = [kernel, *(moved(program, target, place) for place in PLACES)]
            times = milliseconds(kernels, 100, seconds)
            yield {"kernel": case.label(case.middle), "target": target, "ms": times}


def moved(program: Any, target: str, place: int) -> Any:
    """A kernel whose stack begins at this place of a line."""
    build = host_kernel.build_native

    def build_moved(text: str, *rest: Any, **named: Any) -> Any:
        text = text.replace(ALIGNED_STACK, f"@moved = internal global i64 {place or 64}")
        text = text.replace('"stackrealign" {\nentry:\n', f'"stackrealign" {{\n{MOVED}')
        return build(text, *rest, **named)

    return compiled_with(host_kernel, "build_native", build_moved, program, target)


if __name__ == "__main__":
    main()
