"""CUDA kernels compiled by NVRTC and executed, against numpy."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from tests.ptx.support import compile_program
from tileworkbench.compiler.diagnostics import (
    ArgumentError,
    DeviceAssertError,
    RunError,
    TileValueError,
)
from tileworkbench.compiler.sim.ptx import PtxProgram

pytestmark = pytest.mark.nvrtc

ELEMENTWISE = """
extern "C" __global__ void saxpy(float a, const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
struct Pack { int scale; float bias[3]; };
__constant__ float table[4] = {1, 2, 4, 8};
__device__ __noinline__ float helper(float x, int n) {
    float s = 0;
    for (int i = 0; i < n; i++) s += x * table[i & 3];
    return s;
}
extern "C" __global__ void calls(const float* x, float* y, Pack p) {
    int i = threadIdx.x;
    if (i % 3 != 1) y[i] = helper(x[i], i) * p.scale + p.bias[i % 3];
}
extern "C" __global__ void steps(const unsigned* x, unsigned* y) {
    unsigned v = x[threadIdx.x], n = 0;
    while (v != 1) { v = v & 1 ? 3 * v + 1 : v / 2; n++; }
    y[threadIdx.x] = n;
}
extern "C" __global__ void cases(const int* x, int* y) {
    int i = threadIdx.x, r = 0;
    switch (x[i]) {
        case 0: r = i * 7; break;   case 1: r = i ^ 21; break;  case 2: r = __popc(i); break;
        case 3: r = i - 100; break; case 4: r = i << 3; break;  case 5: r = 12345 / (i + 1); break;
        case 6: r = -i; break;      default: r = 99;
    }
    y[i] = r;
}
extern "C" __global__ void mathematics(const float* x, float* y, const double* d, double* e) {
    int i = threadIdx.x;
    y[i] = expf(x[i]) + sinf(100 * x[i]) + logf(1 + x[i]) / sqrtf(x[i] + 2) + tanhf(x[i]);
    e[i] = exp(d[i]) / sqrt(d[i] + 1) + fma(d[i], d[i], 0.5);
}
extern "C" __global__ void grid3(int* y) {
    int b = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    int t = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    y[b * blockDim.x * blockDim.y * blockDim.z + t] = b * 1000 + t;
}
extern "C" __global__ void prints(int n) {
    if (threadIdx.x < 2) printf("thread %d of %5.2f, %x %s\\n", threadIdx.x, n * 0.5, 255, "ok");
}
"""


def test_threads_beyond_the_end_do_nothing() -> None:
    program = compile_program(ELEMENTWISE)
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 1000)).astype(np.float32)
    expected = (np.float64(2.5) * x + y).astype(np.float32)  # one rounding: it is fused
    run = program.launch("saxpy", (8,), (128,), [np.float32(2.5), x, y, 1000])
    np.testing.assert_array_equal(y, expected)
    assert run.divergent_branches == 1
    assert run.instructions["ld.global.f32"] + run.instructions.get("ld.global.nc.f32", 0) == 64


def test_functions_structures_and_constants() -> None:
    x = np.arange(64, dtype=np.float32) / 8
    y = np.full(64, -1, dtype=np.float32)
    packed = struct.pack("ifff", 3, 0.25, 0.5, 0.75)
    compile_program(ELEMENTWISE).launch("calls", (1,), (64,), [x, y, packed])
    for i in range(64):
        weight = sum((1, 2, 4, 8)[k & 3] for k in range(i))
        wanted = -1 if i % 3 == 1 else x[i] * weight * 3 + (0.25, 0.5, 0.75)[i % 3]
        assert y[i] == wanted


def test_loops_that_end_at_different_times() -> None:
    x = np.arange(1, 97, dtype=np.uint32)
    y = np.zeros(96, dtype=np.uint32)
    run = compile_program(ELEMENTWISE).launch("steps", (1,), (96,), [x, y])

    def collatz(v: int) -> int:
        return 0 if v == 1 else 1 + collatz(3 * v + 1 if v & 1 else v // 2)

    assert y.tolist() == [collatz(int(v)) for v in x]
    assert run.divergent_branches > 5


def test_switches() -> None:
    x = (np.arange(96) % 8).astype(np.int32)
    y = np.zeros(96, dtype=np.int32)
    compile_program(ELEMENTWISE).launch("cases", (1,), (96,), [x, y])
    define = (
        lambda i: i * 7, lambda i: i ^ 21, lambda i: i.bit_count(), lambda i: i - 100,
        lambda i: i << 3, lambda i: 12345 // (i + 1), lambda i: -i, lambda i: 99,
    )  # fmt: skip
    assert y.tolist() == [define[i % 8](i) for i in range(96)]


def test_the_mathematics_library() -> None:
    x = np.linspace(0, 3, 64).astype(np.float32)
    d, e = np.linspace(0, 3, 64), np.zeros(64)
    y = np.zeros(64, dtype=np.float32)
    compile_program(ELEMENTWISE).launch("mathematics", (1,), (64,), [x, y, d, e])
    wide = x.astype(np.float64)
    sine = np.sin((100 * x).astype(np.float64))
    expected = np.exp(wide) + sine + np.log1p(wide) / np.sqrt(wide + 2) + np.tanh(wide)
    np.testing.assert_allclose(y, expected, rtol=2e-6, atol=2e-6)
    np.testing.assert_allclose(e, np.exp(d) / np.sqrt(d + 1) + d * d + 0.5, rtol=1e-14)


def test_grids_and_blocks_have_three_dimensions() -> None:
    y = np.zeros(3 * 2 * 5 * 24, dtype=np.int32)
    compile_program(ELEMENTWISE).launch("grid3", (3, 2, 5), (4, 3, 2), [y])
    assert (y.reshape(30, 24) == np.arange(30)[:, None] * 1000 + np.arange(24)).all()


def test_text_that_a_kernel_prints() -> None:
    run = compile_program(ELEMENTWISE).launch("prints", (1,), (32,), [7])
    assert run.printed == "thread 0 of  3.50, ff ok\nthread 1 of  3.50, ff ok\n"


COLLECTIVE = """
extern "C" __global__ void sum(const float* x, float* y, int n) {
    __shared__ float part[32];
    float v = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) v += x[i];
    for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    if (threadIdx.x < 32) {
        v = threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : 0;
        for (int o = 16; o; o >>= 1) v += __shfl_down_sync(~0u, v, o);
        if (threadIdx.x == 0) atomicAdd(y, v);
    }
}
template <int PAD> __device__ void turn(const float* x, float* y, int n) {
    __shared__ float tile[32][32 + PAD];
    int r = blockIdx.y * 32, c = blockIdx.x * 32;
    for (int i = threadIdx.y; i < 32; i += blockDim.y)
        tile[i][threadIdx.x] = x[(r + i) * n + c + threadIdx.x];
    __syncthreads();
    for (int i = threadIdx.y; i < 32; i += blockDim.y)
        y[(c + i) * n + r + threadIdx.x] = tile[threadIdx.x][i];
}
extern "C" __global__ void transpose(const float* x, float* y, int n) { turn<1>(x, y, n); }
extern "C" __global__ void transpose_slow(const float* x, float* y, int n) { turn<0>(x, y, n); }
extern "C" __global__ void histogram(const unsigned char* x, unsigned* y, int n) {
    __shared__ unsigned bins[256];
    for (int i = threadIdx.x; i < 256; i += blockDim.x) bins[i] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) atomicAdd(&bins[x[i]], 1);
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += blockDim.x) atomicAdd(&y[i], bins[i]);
}
extern "C" __global__ void atomics(int* i, unsigned* u, unsigned long long* l, double* d) {
    int t = threadIdx.x;
    atomicMax(i, t * 7 % 50); atomicMin(i + 1, -t);
    atomicXor(i + 2, t); atomicOr(i + 3, 1 << t % 32); atomicAnd(i + 4, ~(1 << t % 30));
    atomicInc(u, 9); atomicExch(u + 1, 5); atomicAdd(l, 1ull << 40); atomicAdd(d, 0.5);
    int old, seen = i[5];
    do { old = seen; seen = atomicCAS(i + 5, old, old + t); } while (seen != old);
}
extern "C" __global__ void votes(unsigned* y) {
    int t = threadIdx.x;
    y[t] = __ballot_sync(~0u, t % 3 == 0);
    y[32 + t] = __any_sync(~0u, t == 5) + 2 * __all_sync(~0u, t < 32) + 4 * __all_sync(~0u, t < 31);
    y[64 + t] = __match_any_sync(~0u, t / 5);
    y[96 + t] = __reduce_add_sync(~0u, t);
    y[128 + t] = __reduce_max_sync(~0u, (t * 13) % 32);
    y[160 + t] = __shfl_up_sync(~0u, t, 3, 8);
    y[192 + t] = __shfl_sync(~0u, t, t * 2 + 1, 16);
    if (t % 4 == 1) { y[224 + t] = __activemask(); y[224 + t] += __shfl_sync(0x22222222, t, 5); }
    else y[224 + t] = 0;
    y[256 + t] = __syncthreads_count(t % 5 == 0) + 100 * __syncthreads_or(t == 77);
}
extern "C" __global__ void named(int* y) {
    __shared__ int s[64];
    int t = threadIdx.x, half = t / 64;
    if (half == 0) { s[t] = t; asm volatile("bar.arrive 1, 128;" ::: "memory"); }
    else { asm volatile("bar.sync 1, 128;" ::: "memory"); y[t - 64] = s[127 - t]; }
}
"""


def test_reduction_through_shuffles() -> None:
    x = np.random.default_rng(0).integers(-8, 8, 3000).astype(np.float32)
    y = np.zeros(1, dtype=np.float32)
    program = compile_program(COLLECTIVE)
    for threads in (128, 256):
        y[0] = 0
        program.launch("sum", (1,), (threads,), [x, y, 3000])
        assert y[0] == x.sum()


def test_transposing_through_shared_memory_counts_bank_conflicts() -> None:
    program = compile_program(COLLECTIVE)
    x = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    for name, worst in (("transpose", 1), ("transpose_slow", 32)):
        y = np.zeros_like(x)
        run = program.launch(name, (2, 2), (32, 8), [x, y, 64])
        assert (y == x.T).all()
        shared = [access for access in run.accesses if access.space == "shared"]
        assert max(access.ratio for access in shared) == worst
        assert min(access.ratio for access in shared) == 1
        assert {access.ratio for access in run.accesses if access.space == "global"} == {1.0}
        assert run.barriers == 4


def test_addresses_of_32_bits_wrap() -> None:
    text = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 p0)
{
.reg .b32 %a, %v, %x;
.reg .b64 %at;
.shared .align 4 .b8 tile[8];
mov.u32 %x, 7;
mov.u32 %a, tile;
st.shared.u32 [%a+4], %x;
add.s32 %a, %a, -8;
ld.shared.u32 %v, [%a+12];
ld.param.u64 %at, [p0];
st.global.u32 [%at], %v;
ret;
}"""
    out = np.zeros(1, np.uint32)
    PtxProgram.parse(text).launch("k", (1,), (1,), [out])
    assert out[0] == 7


def test_atomic_updates() -> None:
    program = compile_program(COLLECTIVE)
    x = np.random.default_rng(0).integers(0, 256, 1000).astype(np.uint8)
    y = np.zeros(256, dtype=np.uint32)
    program.launch("histogram", (2,), (96,), [x, y, 1000])
    assert (y == 2 * np.bincount(x, minlength=256)).all()
    i = np.array([0, 0, 0, 0, -1, 100], dtype=np.int32)
    u, n, d = np.zeros(2, np.uint32), np.zeros(1, np.uint64), np.zeros(1)
    program.launch("atomics", (1,), (64,), [i, u, n, d])
    xor = 0
    for t in range(64):
        xor ^= t
    assert i.tolist() == [49, -63, xor, -1, ~((1 << 30) - 1), 100 + sum(range(64))]
    assert (u.tolist(), int(n[0]), float(d[0])) == ([64 % 10, 5], 64 << 40, 32.0)


def test_instructions_of_a_warp() -> None:
    y = np.zeros(300, dtype=np.uint32)
    compile_program(COLLECTIVE).launch("votes", (1,), (32,), [y])
    t = np.arange(32)
    rows = y[:288].reshape(9, 32)
    assert (rows[0] == sum(1 << k for k in range(0, 32, 3))).all()
    assert (rows[1] == 3).all()
    assert rows[2].tolist() == [sum(1 << k for k in range(32) if k // 5 == j // 5) for j in t]
    assert (rows[3] == t.sum()).all()
    assert (rows[4] == 31).all()
    assert (rows[5] == np.where(t % 8 >= 3, t - 3, t)).all()
    assert (rows[6] == t // 16 * 16 + (t * 2 + 1) % 16).all()
    assert (rows[7] == np.where(t % 4 == 1, 0x22222222 + 5, 0)).all()
    assert (rows[8] == 7).all()


def test_barriers_of_a_part_of_the_block() -> None:
    y = np.zeros(64, dtype=np.int32)
    compile_program(COLLECTIVE).launch("named", (1,), (128,), [y])
    assert y.tolist() == list(range(63, -1, -1))


COPIES = """
__device__ unsigned at(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
extern "C" __global__ void padded(const float* x, float* y, int n) {
    __shared__ __align__(16) float s[64 * 4];
    int t = threadIdx.x, left = n - t * 4;
    int bytes = left >= 4 ? 16 : left > 0 ? left * 4 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"(at(s + t * 4)), "l"(x + t * 4), "r"(bytes) : "memory");
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    for (int k = 0; k < 4; k++) y[t * 4 + k] = s[(63 - t) * 4 + k];
}
extern "C" __global__ void ring(const int* x, int* y, int n) {
    __shared__ __align__(16) int s[2][32];
    __shared__ __align__(8) unsigned long long full[2], empty[2];
    int t = threadIdx.x;
    if (t == 0)
        for (int k = 0; k < 2; k++) {
            asm volatile("mbarrier.init.shared.b64 [%0], 32;" :: "r"(at(&full[k])) : "memory");
            asm volatile("mbarrier.init.shared.b64 [%0], 32;" :: "r"(at(&empty[k])) : "memory");
        }
    __syncthreads();
    auto wait = [&](unsigned long long* b, int parity) {
        asm volatile("{ .reg .pred p; AGAIN: mbarrier.try_wait.parity.shared.b64 p, [%0], %1;"
                     " @p bra DONE; bra AGAIN; DONE: }" :: "r"(at(b)), "r"(parity) : "memory");
    };
    if (t < 32) {
        for (int i = 0; i < n; i++) {
            wait(&empty[i % 2], i / 2 % 2 ^ 1);
            asm volatile("cp.async.ca.shared.global [%0], [%1], 4;"
                         :: "r"(at(&s[i % 2][t])), "l"(x + i * 32 + t) : "memory");
            asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];"
                         :: "r"(at(&full[i % 2])) : "memory");
        }
    } else {
        for (int i = 0; i < n; i++) {
            wait(&full[i % 2], i / 2 % 2);
            y[i * 32 + t - 32] = s[i % 2][63 - t];
            asm volatile("{ .reg .b64 r; mbarrier.arrive.shared.b64 r, [%0]; }"
                         :: "r"(at(&empty[i % 2])) : "memory");
        }
    }
}
"""


@pytest.mark.parametrize("mode", ["lazy", "eager"])
def test_copies_fill_what_is_missing_with_zeros(mode: str) -> None:
    x = np.arange(1, 251, dtype=np.float32)[:247]
    y = np.zeros(256, dtype=np.float32)
    compile_program(COPIES, "sm_90").launch("padded", (1,), (64,), [x, y, 247], mode=mode)
    whole = np.pad(x, (0, 9)).reshape(64, 4)
    assert (y.reshape(64, 4) == whole[::-1]).all()


@pytest.mark.parametrize("mode", ["lazy", "eager"])
def test_a_ring_between_a_producing_and_a_consuming_warp(mode: str) -> None:
    x = np.arange(7 * 32, dtype=np.int32)
    y = np.zeros_like(x)
    compile_program(COPIES, "sm_90").launch("ring", (1,), (64,), [x, y, 7], mode=mode)
    assert (y.reshape(7, 32) == x.reshape(7, 32)[:, ::-1]).all()


SPINS = """
extern "C" __global__ void flag(volatile int* f, int* y) {
    if (threadIdx.x == 0) { while (f[0] == 0) {} y[0] = f[0]; }
    if (threadIdx.x == 63) f[0] = 17;
}
extern "C" __global__ void forever(volatile int* f) { while (f[0] == 0) {} }
extern "C" __global__ void checks(const int* x) { if (x[threadIdx.x] == 5) __trap(); }
"""


def test_a_loop_that_waits_for_another_thread_ends() -> None:
    f, y = np.zeros(1, dtype=np.int32), np.zeros(1, dtype=np.int32)
    compile_program(SPINS).launch("flag", (1,), (64,), [f, y])
    assert y[0] == 17


def test_a_loop_without_end_is_stopped() -> None:
    f = np.zeros(1, dtype=np.int32)
    with pytest.raises(RunError, match="the kernel did not end within 5000 instructions"):
        compile_program(SPINS).launch("forever", (1,), (32,), [f], instruction_limit=5000)


def test_a_trap_names_the_thread() -> None:
    with pytest.raises(DeviceAssertError, match=r"thread \(5, 0, 0\) of block \(0, 0, 0\) stops"):
        compile_program(SPINS).launch("checks", (1,), (32,), [np.arange(32, dtype=np.int32)])


def test_arguments_are_checked() -> None:
    program = compile_program(SPINS)
    with pytest.raises(ArgumentError) as caught:
        program.launch("forever", (1,), (32,), [])
    assert str(caught.value) == "'forever' takes 1 arguments, not 0"
    with pytest.raises(ArgumentError) as caught:
        program.launch("forever", (1,), (32,), [np.float32(1)])
    assert str(caught.value) == "argument 0 has 4 bytes where the kernel takes 8"
    with pytest.raises(ArgumentError) as caught:
        program.launch("forever", (1,), (32,), ["x"])
    assert str(caught.value) == "argument 0 is a 'str', not an array or a number"
    with pytest.raises(TileValueError) as unknown:
        program.launch("other", (1,), (32,), [])
    assert str(unknown.value) == (
        "the PTX module has no kernel 'other'\nhint: it has flag, forever, checks"
    )
    with pytest.raises(TileValueError, match="'late' is not a mode"):
        program.launch("forever", (1,), (32,), [np.ones(1, np.int32)], mode="late")


def test_one_program_launches_many_times() -> None:
    program: PtxProgram = compile_program(ELEMENTWISE)
    y = np.zeros(40, dtype=np.float32)
    for _ in range(3):
        program.launch("saxpy", (1,), (64,), [1.0, np.ones(40, np.float32), y, 40])
    assert (y == 3).all()
