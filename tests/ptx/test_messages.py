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
from tileworkbench.compiler.diagnostics import (
    ArgumentError,
    DeviceAssertError,
    RunError,
    TileError,
    TileValueError,
)
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


def test_a_barrier_that_nobody_initialised() -> None:
    body = "setp.eq.u32 %p, %t, 0;\n@%p mbarrier.arrive.shared.b64 _, [s];\n"
    program = PtxProgram.parse(f"{HEAD}{body}ret;\n}}\n")
    arrays = [np.zeros(64, np.int32), np.zeros(64, np.int32)]
    with pytest.raises(RunError) as caught:
        program.launch("k", (1,), (32,), arrays, detectors=False)
    assert str(caught.value) == (
        "there is no initialised barrier at byte 0 of shared memory: "
        "'@%p mbarrier.arrive.shared.b64 _, [s]' at PTX line 10"
    )


ASSERTION = """.version 8.0
.target sm_90
.address_size 64
.extern .func __assertfail (
  .param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n, .param .b64 c);
.global .align 1 .b8 text[6] = {120, 32, 62, 32, 48, 0};
.global .align 1 .b8 file[5] = {107, 46, 99, 117, 0};
.visible .entry k() {
.reg .b64 %a, %b; .reg .b32 %l;
mov.u64 %a, text;
mov.u64 %b, file;
cvta.global.u64 %a, %a;
cvta.global.u64 %b, %b;
mov.u32 %l, 7;
{
.param .b64 p0; .param .b64 p1; .param .b32 p2; .param .b64 p3; .param .b64 p4;
st.param.b64 [p0], %a;
st.param.b64 [p1], %b;
st.param.b32 [p2], %l;
st.param.b64 [p3], %b;
st.param.b64 [p4], %a;
call.uni __assertfail, (p0, p1, p2, p3, p4);
}
ret;
}
"""


def test_an_assertion_of_the_kernel() -> None:
    with pytest.raises(DeviceAssertError) as caught:
        PtxProgram.parse(ASSERTION).launch("k", (1,), (1,), [])
    assert str(caught.value) == (
        "thread (0, 0, 0) of block (0, 0, 0): assertion 'x > 0' failed, k.cu, line 7"
    )


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
