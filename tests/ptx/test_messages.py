"""What executed PTX is told, as text; no compiler is needed for it.

A case of `messages.txt` is the body of a kernel, with a thread index `%t`, the addresses `%a` of a
tensor and `fixed` of one that is read-only, and shared memory `s`. `python -m
tests.ptx.test_messages` fills in the texts that are still empty.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.frontend.golden import Case, read_cases
from tileworkbench.compiler.diagnostics import ArgumentError, TileError, TileValueError
from tileworkbench.compiler.sim.ptx import PtxProgram, PtxSyntaxError
from tileworkbench.compiler.sim.ptx.tensormap import TensorMap

FILE = Path(__file__).parent / "messages.txt"
HEAD = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 tensor, .param .u64 fixed) {
.reg .b32 %t, %x, %y, %z; .reg .b64 %a; .reg .pred %p;
.shared .align 16 .b8 s[256];
mov.u32 %t, %tid.x;
ld.param.u64 %a, [tensor];
"""


def output_of(body: str) -> str:
    """The error of 32 threads that execute `body`."""
    fixed = np.zeros(64, np.int32)
    fixed.setflags(write=False)
    try:
        program = PtxProgram.parse(f"{HEAD}{body}ret;\n}}\n")
        arrays = [np.zeros(64, np.int32), fixed]
        program.launch("k", (1,), (32,), arrays, instruction_limit=500)
    except TileError as error:
        return error.render() + "\n"
    return "done\n"


@pytest.mark.parametrize("case", read_cases(FILE), ids=lambda case: case.name)
def test_message(case: Case) -> None:
    assert output_of(case.source) == case.expected


def test_calls_that_are_wrong() -> None:
    program = PtxProgram.parse(f"{HEAD}ret;\n}}\n")
    arrays = [np.zeros(64, np.int32), np.zeros(64, np.int32)]
    with pytest.raises(TileValueError) as caught:
        program.launch("k", (1,), (32,), arrays, mode="late")
    assert caught.value.render() == (
        "TileValueError: 'late' is not a mode\nhint: use 'lazy' or 'eager'"
    )
    with pytest.raises(ArgumentError) as refused:
        program.launch("k", (1,), (32,), [np.zeros((8, 8), np.int32).T, arrays[0]])
    assert str(refused.value) == "an array of a launch must be contiguous"


def test_text_that_ends_too_soon() -> None:
    for text in (
        ".visible .entry k() {\n  mov.u32",
        ".visible .entry k() { add.s32 a, -",
        ".pragma x",
    ):
        with pytest.raises(PtxSyntaxError) as caught:
            PtxProgram.parse(f".version 8.0\n{text}")
        assert str(caught.value) == "the PTX text ends in the middle of a statement"
    with pytest.raises(PtxSyntaxError) as refused:
        PtxProgram.parse("?")
    assert str(refused.value) == "PTX line 1 has a character that is no PTX: '?'"


def test_a_box_of_no_whole_chunks() -> None:
    with pytest.raises(ArgumentError) as caught:
        TensorMap(np.zeros((8, 8), np.float16), (4, 8))
    assert str(caught.value) == "the inner extent of a box is 8 bytes; it must be a multiple of 16"


if __name__ == "__main__":
    cases = [
        case if case.expected.strip() else replace(case, expected=output_of(case.source))
        for case in read_cases(FILE)
    ]
    FILE.write_text("\n".join(case.text for case in cases), encoding="utf-8")
