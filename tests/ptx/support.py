"""What the interpreter's tests share: CUDA compiled once, and kernels of a single instruction."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import hypothesis
import numpy as np
from numpy.typing import NDArray

from tests.capability import require
from tileworkbench.compiler.device.nvidia.nvrtc import compile_cuda, missing_nvrtc
from tileworkbench.compiler.sim.ptx import PtxProgram

Array = NDArray[Any]

# An example is many rows of numbers at once: making it smaller would take long and tell nothing.
_PHASES = (hypothesis.Phase.explicit, hypothesis.Phase.generate)


def examples(count: int) -> hypothesis.settings:
    """Settings for a test that takes `count` examples and does not shrink them."""
    return hypothesis.settings(max_examples=count, phases=_PHASES)


@functools.cache
def compile_text(source: str, arch: str = "sm_80") -> str:
    """The PTX of a CUDA source; skips the test where NVRTC is missing."""
    require("nvrtc", missing_nvrtc())
    return compile_cuda(source, arch).ptx


@functools.cache
def compile_program(source: str, arch: str = "sm_80") -> PtxProgram:
    return PtxProgram.parse(compile_text(source, arch))


_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def run_instruction(text: str, kinds: Sequence[str], result: str, *columns: Array) -> Array:
    """Execute one instruction for every row of `columns`, a thread a row.

    `text` uses %a, %b, %c ... as sources of the PTX types `kinds` (b16, b32 or b64) and %d of type
    `result` as destination.
    """
    names = "abcefg"[: len(kinds)]
    parameters = ", ".join(f".param .u64 p{n}" for n in range(len(kinds) + 1))
    lines = [".version 8.0", ".target sm_90", ".address_size 64"]
    lines += [f".visible .entry k({parameters})", "{", ".reg .pred %p, %q;"]
    lines += [".reg .b32 %t; .reg .b64 %at, %by; .reg .b32 %x, %y, %z;"]
    lines += [f".reg .{result} %d;", "mov.u32 %t, %tid.x;"]
    sizes = [int(kind[1:]) // 8 for kind in (*kinds, result)]
    for number, (name, kind) in enumerate(zip(names, kinds, strict=True)):
        lines += [f".reg .{kind} %{name};", f"ld.param.u64 %at, [p{number}];"]
        lines += [f"mul.wide.u32 %by, %t, {sizes[number]};", "add.s64 %at, %at, %by;"]
        lines += [f"ld.global.{kind} %{name}, [%at];"]
    lines += [text, f"ld.param.u64 %at, [p{len(kinds)}];"]
    lines += [f"mul.wide.u32 %by, %t, {sizes[-1]};", "add.s64 %at, %at, %by;"]
    lines += [f"st.global.{result} [%at], %d;", "ret;", "}"]
    count = len(columns[0])
    arrays = [
        np.ascontiguousarray(column).view(_UNSIGNED[size])
        for column, size in zip(columns, sizes[:-1], strict=True)
    ]
    out = np.zeros(count, dtype=_UNSIGNED[sizes[-1]])
    program = PtxProgram.parse("\n".join(lines))
    program.launch("k", (1,), (count,), [*arrays, out])
    return out
