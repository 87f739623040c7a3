"""Bugs planted in a pipelined gemm and in small kernels: each is caught, and says where."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.ptx.gemm import run_gemm
from tests.ptx.support import compile_program
from tileworkbench.compiler.diagnostics import (
    DeadlockError,
    OutOfBoundsError,
    RaceError,
    UnsupportedError,
)
from tileworkbench.compiler.sim.ptx import (
    MisalignedAccessError,
    PtxProgram,
    PtxSyntaxError,
    UninitializedReadError,
)

pytestmark = pytest.mark.nvrtc


@pytest.mark.parametrize("mode", ["lazy", "eager"])
@pytest.mark.parametrize("shape", [(64, 64, 32), (64, 64, 64), (60, 64, 160), (130, 128, 96)])
def test_the_gemm_without_bugs_is_exact_and_free_of_conflicts(
    shape: tuple[int, int, int], mode: str
) -> None:
    exact, run = run_gemm(shape=shape, mode=mode)
    assert exact
    shared = [access for access in run.accesses if access.space == "shared"]
    assert shared and all(access.units == access.ideal for access in shared)


def test_the_gemm_in_brain_floats() -> None:
    exact, _ = run_gemm('KIND "bf16"', dtype=ml_dtypes.bfloat16)
    assert exact


@pytest.mark.parametrize(
    ("planted", "message"),
    [
        ("WAIT", "while the asynchronous copy .* may still write there"),
        (
            'WAIT asm volatile("cp.async.wait_group 2;" ::: "memory")',
            "while the asynchronous copy .* may still write there",
        ),
        ("BARRIER", "with no synchronisation between|may still write there"),
        ("BARRIER __syncwarp()", "with no synchronisation between|may still write there"),
        ("NEXT (k + 1) % 3", "asynchronous copy|no synchronisation"),
        ("NEXT k % 3", "asynchronous copy|no synchronisation"),
    ],
)
def test_missing_synchronisation_is_a_race(planted: str, message: str) -> None:
    with pytest.raises(RaceError, match=message):
        run_gemm(planted)


@pytest.mark.parametrize("planted", ["WAIT", "NEXT (k + 1) % 3"])
def test_late_copies_show_without_detectors_too(planted: str) -> None:
    exact, _ = run_gemm(planted, detectors=False)
    assert not exact


@pytest.mark.parametrize(
    "planted", ["SWIZZLE_A_READ(row, chunk) (chunk)", 'TRANS ""', "PRESENT(row) 8"]
)
def test_wrong_places_give_wrong_results(planted: str) -> None:
    exact, _ = run_gemm(planted)
    assert not exact


def test_dropping_a_swizzle_on_both_sides_shows_as_conflicts() -> None:
    exact, run = run_gemm("SWIZZLE_B(row, chunk) (chunk)")
    assert exact
    worst = max(run.accesses, key=lambda access: access.ratio)
    assert worst.opcode.startswith("ldmatrix")
    assert worst.ratio == 8


def test_a_row_too_many_is_out_of_bounds() -> None:
    with pytest.raises(OutOfBoundsError, match="copies 16 bytes at byte 11520 of argument 0"):
        run_gemm("PRESENT(row) 16", shape=(60, 64, 96))


SMALL = """
extern "C" __global__ void bounds(const float* x, float* y, int n) {
    int i = blockIdx.x * 32 + threadIdx.x;
    y[i] = x[i + n];
}
extern "C" __global__ void misaligned(const char* x, float4* y) {
    y[0] = *(const float4*)(x + 4);
}
extern "C" __global__ void unwritten(float* y) {
    __shared__ float s[64];
    if (threadIdx.x < 40) s[threadIdx.x] = 1;
    __syncthreads();
    y[threadIdx.x] = s[threadIdx.x];
}
extern "C" __global__ void no_barrier(int* y) {
    __shared__ int s[64];
    s[threadIdx.x] = threadIdx.x;
    y[threadIdx.x] = s[threadIdx.x ^ 33];
}
extern "C" __global__ void no_warp_barrier(int* y) {
    __shared__ int s[64];
    s[threadIdx.x] = threadIdx.x;
    y[threadIdx.x] = s[threadIdx.x ^ 1];
}
extern "C" __global__ void read_then_write(int* y) {
    __shared__ int s[64];
    s[threadIdx.x] = threadIdx.x;
    __syncthreads();
    int v = s[63 - threadIdx.x];
    s[threadIdx.x] = v;
    __syncthreads();
    y[threadIdx.x] = s[threadIdx.x];
}
extern "C" __global__ void both_write(int* y) {
    __shared__ int s[2];
    s[0] = threadIdx.x / 32;
    __syncthreads();
    y[threadIdx.x] = s[0];
}
extern "C" __global__ void same_value(int* y) {
    __shared__ int s[2];
    s[0] = 5;
    __syncthreads();
    y[threadIdx.x] = s[0];
}
extern "C" __global__ void divergent(int* y) {
    if (threadIdx.x < 40) asm volatile("bar.sync 0;" ::: "memory");
    else asm volatile("bar.sync 1;" ::: "memory");
    y[threadIdx.x] = 1;
}
extern "C" __global__ void uneven(int* y) {
    asm volatile("bar.sync 3, 96;" ::: "memory");
    y[threadIdx.x] = 1;
}
extern "C" __global__ void leaves_early(int* y) {
    if (threadIdx.x >= 32) return;
    __syncthreads();
    y[threadIdx.x] = 1;
}
"""


def run_small(name: str, *args: object, threads: int = 64) -> np.ndarray:
    y = np.zeros(64, dtype=np.int32)
    compile_program(SMALL).launch(name, (1,), (threads,), [y, *args])
    return y


def test_an_overrun_names_thread_buffer_and_lines() -> None:
    x, y = np.zeros(64, np.float32), np.zeros(64, np.float32)
    program = compile_program(SMALL)
    with pytest.raises(OutOfBoundsError) as caught:
        program.launch("bounds", (2,), (32,), [x, y, 3])
    text = str(caught.value)
    assert text.startswith(
        "thread (29, 0, 0) of block (1, 0, 0) reads 4 bytes at byte 256 of argument 0, which has "
        "256 bytes: 'ld.global"
    )
    assert "at PTX line " in text
    assert "(source line 4)" in text
    with pytest.raises(OutOfBoundsError, match=r"at byte -4 of argument 0|in no buffer"):
        program.launch("bounds", (1,), (32,), [x, y, -1])


def test_what_is_read_only_is_not_written() -> None:
    x, y = np.zeros(64, np.float32), np.zeros(64, np.float32)
    y.setflags(write=False)
    with pytest.raises(OutOfBoundsError, match="which is read-only"):
        compile_program(SMALL).launch("bounds", (1,), (32,), [x, y, 0])


def test_an_address_must_be_aligned() -> None:
    x, y = np.zeros(64, np.uint8), np.zeros(4, np.float32)
    with pytest.raises(MisalignedAccessError, match="reads 16 bytes at byte 4 of argument 0, "):
        compile_program(SMALL).launch("misaligned", (1,), (1,), [x, y])


def test_reading_what_nobody_wrote() -> None:
    with pytest.raises(UninitializedReadError, match=r"thread \(40, 0, 0\) .* byte 160 of shared"):
        run_small("unwritten")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_barrier", r"thread \(0, 0, 0\) .* reads byte 132 .*, which thread 33 wrote"),
        ("no_warp_barrier", r"thread \(0, 0, 0\) .* reads byte 4 .*, which thread 1 wrote"),
        ("read_then_write", r"thread \(0, 0, 0\) .* writes byte 0 .*, which thread 63 read"),
        ("both_write", r"and thread \d+ write different values to byte 0"),
    ],
)
def test_races(name: str, message: str) -> None:
    with pytest.raises(RaceError, match=message):
        run_small(name)


def test_writing_the_same_value_disturbs_nobody() -> None:
    assert (run_small("same_value") == 5).all()


def test_a_barrier_that_not_all_reach() -> None:
    with pytest.raises(DeadlockError) as caught:
        run_small("divergent")
    assert str(caught.value).startswith("every thread waits: thread (0, 0, 0) of block (0, 0, 0)")
    assert "which 32 of 64 have reached" in str(caught.value)
    with pytest.raises(DeadlockError, match="which 64 of 96 have reached"):
        run_small("uneven")
    assert run_small("leaves_early").sum() == 32


def test_what_is_not_modelled_is_named() -> None:
    text = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k() {
.reg .b32 %r<3>;
  tex.1d.v4.f32.s32 {%r0, %r1, %r2, %r0}, [%r0, {%r1}];
}"""
    with pytest.raises(UnsupportedError) as caught:
        PtxProgram.parse(text).launch("k", (1,), (32,), [])
    assert str(caught.value) == (
        "the PTX interpreter does not execute 'tex.1d.v4.f32.s32': 'tex.1d.v4.f32.s32 "
        "{%r0, %r1, %r2, %r0}, [%r0, {%r1}]' at PTX line 6"
    )


def test_inlined_code_is_named_by_the_line_that_calls_it() -> None:
    source = """__device__ float inner(const float* x) { return x[999]; }
__device__ float outer(const float* x) {
    return inner(x) + 1;
}
extern "C" __global__ void k(const float* x, float* y) {
    y[0] = x[0];
    y[1] = outer(x);
}"""
    x, y = np.zeros(4, np.float32), np.zeros(4, np.float32)
    with pytest.raises(OutOfBoundsError, match=r"byte 3996 of argument 0.*\(source line 7\)"):
        compile_program(source).launch("k", (1,), (1,), [x, y])


def test_what_is_no_ptx_names_the_line() -> None:
    with pytest.raises(PtxSyntaxError) as caught:
        PtxProgram.parse(".version 8.0\n.visible .entry k() {\n  mov.u32 %r1, 5;\n}")
    assert str(caught.value) == "PTX line 3: '%r1' is not declared"
    with pytest.raises(PtxSyntaxError, match="PTX line 1 has a character that is no PTX: '\\?'"):
        PtxProgram.parse("?")
