"""Tensor copies, warpgroup products and warp specialisation, in a gemm and with bugs planted."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.ptx.support import compile_program
from tileworkbench.compiler.diagnostics import ArgumentError, DeadlockError, RaceError, RunError
from tileworkbench.compiler.sim.ptx import PtxRun, TensorMap, UninitializedReadError

pytestmark = pytest.mark.nvrtc

# C[M, N] = A[M, K] B, with B[N, K] or, with TRANS 1, B[K, N]; tiles of 128 x 64 x 64 in a ring of
# three stages; one producer warp, two warpgroups that multiply.
SOURCE = """
#ifndef TRANS
#define TRANS 0
#endif
#ifndef BYTES
#define BYTES (STAGE)
#endif
#ifndef PARITY
#define PARITY(i) ((i) / 3 & 1)
#endif
#ifndef RELEASE
#define RELEASE(k) arrive(&empty[(k) % 3])
#endif
#ifndef PRODUCT_WAIT
#define PRODUCT_WAIT asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory")
#endif
#ifndef PRODUCT_FENCE
#define PRODUCT_FENCE asm volatile("wgmma.fence.sync.aligned;" ::: "memory")
#endif
#ifndef CONSUMERS
#define CONSUMERS 256
#endif
#ifndef STORE_WAIT
#define STORE_WAIT asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory")
#endif
#ifndef FENCE
#define FENCE asm volatile("fence.proxy.async.shared::cta;" ::: "memory")
#endif
#define STAGE (128 * 128 + 64 * 128)
typedef unsigned long long u64;
struct __align__(64) Map { u64 opaque[16]; };
__device__ unsigned at(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ void init(u64* b, int n) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(at(b)), "r"(n) : "memory");
}
__device__ void arrive(u64* b) {
    asm volatile("{ .reg .b64 s; mbarrier.arrive.shared::cta.b64 s, [%0]; }"
                 :: "r"(at(b)) : "memory");
}
__device__ void expect(u64* b, int n) {
    asm volatile("{ .reg .b64 s; mbarrier.arrive.expect_tx.shared::cta.b64 s, [%0], %1; }"
                 :: "r"(at(b)), "r"(n) : "memory");
}
__device__ void wait(u64* b, int parity) {
    asm volatile("{ .reg .pred p; AGAIN: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;"
                 " @p bra DONE; bra AGAIN; DONE: }" :: "r"(at(b)), "r"(parity) : "memory");
}
__device__ void bring(unsigned to, const Map* m, int x, int y, u64* b) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%2, %3}], [%4];"
                 :: "r"(to), "l"(m), "r"(x), "r"(y), "r"(at(b)) : "memory");
}
__device__ u64 describe(unsigned address, int stride) {
    return (u64)(address >> 4 & 0x3FFF) | (u64)1 << 16 | (u64)(stride >> 4) << 32 | (u64)1 << 62;
}
extern "C" __global__ void __launch_bounds__(384, 1)
gemm(const __grid_constant__ Map A, const __grid_constant__ Map B,
     const __grid_constant__ Map C, int K) {
    extern __shared__ __align__(1024) char ring[];
    __shared__ __align__(8) u64 full[3], empty[3];
    unsigned base = (at(ring) + 1023) & ~1023;
    int t = threadIdx.x, group = t / 128, steps = K / 64;
    if (t == 0) {
        for (int i = 0; i < 3; i++) { init(&full[i], 1); init(&empty[i], CONSUMERS); }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (group == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (t == 0)
            for (int k = 0; k < steps; k++) {
                wait(&empty[k % 3], PARITY(k) ^ 1);
                expect(&full[k % 3], BYTES);
                unsigned to = base + k % 3 * STAGE;
                bring(to, &A, k * 64, blockIdx.y * 128, &full[k % 3]);
                if (TRANS) bring(to + 128 * 128, &B, blockIdx.x * 64, k * 64, &full[k % 3]);
                else bring(to + 128 * 128, &B, k * 64, blockIdx.x * 64, &full[k % 3]);
            }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        float c[32] = {};
        for (int k = 0; k < steps; k++) {
            wait(&full[k % 3], PARITY(k));
            unsigned a = base + k % 3 * STAGE + (group - 1) * 64 * 128;
            unsigned b = base + k % 3 * STAGE + 128 * 128;
            PRODUCT_FENCE;
            for (int i = 0; i < 4; i++) {
                u64 da = describe(a + i * 32, 1024);
                u64 db = describe(b + (TRANS ? i * 2048 : i * 32), 1024);
                asm volatile("{ .reg .pred p; setp.ne.b32 p, %34, 0;"
                    " wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16"
                    " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,"
                    "%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, %32, %33, p, 1, 1, 0, %35; }"
                    : LIST(c) : "l"(da), "l"(db), "r"(k + i), "n"(TRANS));
            }
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
            PRODUCT_WAIT;
            RELEASE(k);
        }
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        asm volatile("bar.sync 1, 256;" ::: "memory");
        float* out = (float*)(ring + (base - at(ring)));
        int lane = t % 32, row = (t - 128) / 32 * 16 + lane / 4;
        for (int i = 0; i < 32; i++)
            out[(row + i / 2 % 2 * 8) * 64 + i / 4 * 8 + lane % 4 * 2 + i % 2] = c[i];
        FENCE;
        asm volatile("bar.sync 1, 256;" ::: "memory");
        if (t == 128) {
            asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group"
                " [%0, {%1, %2}], [%3];" :: "l"(&C), "r"(blockIdx.x * 64), "r"(blockIdx.y * 128),
                "r"(base) : "memory");
            asm volatile("cp.async.bulk.commit_group;" ::: "memory");
            STORE_WAIT;
        }
        asm volatile("bar.sync 1, 256;" ::: "memory");
        out[t - 128] = -1;
    }
}
""".replace("LIST(c)", ", ".join(f'"+f"(c[{i}])' for i in range(32)))


def run_gemm(
    *macros: str, shape: tuple[int, int, int] = (128, 64, 320), mode: str = "lazy",
    transposed: bool = False, detectors: bool = True,
) -> tuple[bool, PtxRun]:  # fmt: skip
    """Run the gemm with some macros replaced: whether the result is exact, and what it did."""
    m, n, k = shape
    names = (*macros, f"TRANS {int(transposed)}")
    program = compile_program("".join(f"#define {each}\n" for each in names) + SOURCE, "sm_90a")
    rng = np.random.default_rng(0)
    a = rng.integers(-3, 4, (m, k)).astype(np.float16)
    b = rng.integers(-3, 4, (k, n) if transposed else (n, k)).astype(np.float16)
    c = np.zeros((m, n), dtype=np.float32)
    maps = [
        TensorMap(a, (64, 128), "128B"),
        TensorMap(b, (64, 64), "128B"),
        TensorMap(c, (64, 128)),
    ]
    run = program.launch(
        "gemm", (-(-n // 64), -(-m // 128)), (384,), [*maps, k], 3 * 24576 + 1024,
        mode=mode, detectors=detectors,
    )  # fmt: skip
    right = b if transposed else b.T
    return bool((c == a.astype(np.float32) @ right.astype(np.float32)).all()), run


@pytest.mark.parametrize("mode", ["lazy", "eager"])
@pytest.mark.parametrize("transposed", [False, True])
def test_the_gemm_without_bugs_is_exact(transposed: bool, mode: str) -> None:
    exact, run = run_gemm(transposed=transposed, mode=mode)
    assert exact
    assert run.instructions["wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16"] == 5 * 4 * 8


def test_boxes_that_leave_the_tensor() -> None:
    exact, _ = run_gemm(shape=(200, 104, 192))
    assert exact


@pytest.mark.parametrize(
    ("planted", "error"),
    [
        ("BYTES (STAGE + 16)", DeadlockError),
        ("BYTES (STAGE - 16)", RunError),
        ("PARITY(i) (((i) / 3 & 1) ^ 1)", UninitializedReadError),
        ("PARITY(i) ((i) & 1)", RunError),
        ("RELEASE(k)", DeadlockError),
        ("RELEASE(k) if (t % 32) arrive(&empty[(k) % 3])", DeadlockError),
        ("CONSUMERS 128", RunError),
    ],
)
def test_wrong_barriers_are_found(planted: str, error: type[RunError]) -> None:
    with pytest.raises(error):
        run_gemm(planted, shape=(128, 64, 576))


def test_a_wait_that_never_ends_says_what_is_lacking() -> None:
    with pytest.raises(DeadlockError) as caught:
        run_gemm("BYTES (STAGE + 16)")
    assert re.search(
        r"for phase 0 of the barrier at byte \d+, which lacks 0 of 1 arrivals and 16 bytes",
        str(caught.value),
    )


def test_a_stage_released_before_its_product_is_done() -> None:
    late = 'PRODUCT_WAIT asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory")'
    with pytest.raises(RaceError, match=r"while the asynchronous copy .*: 'wgmma"):
        run_gemm(late, shape=(128, 64, 576))
    one_behind = "RELEASE(k) if (k) arrive(&empty[(k - 1) % 3])"
    exact, _ = run_gemm(late, one_behind, shape=(128, 64, 576))
    assert exact


def test_a_product_of_registers_without_a_fence() -> None:
    with pytest.raises(RaceError) as caught:
        run_gemm("PRODUCT_FENCE")
    said = re.sub(r"m64n64.*line \d+\)", "", str(caught.value))
    assert said == (
        "a product uses registers that were written behind the last wgmma.fence of the warp: "
        "'wgmma.mma_async.sync.aligned."
        "\nhint: execute 'wgmma.fence.sync.aligned' behind the writes"
    )


def test_shared_memory_overwritten_before_a_store_has_read_it() -> None:
    exact, _ = run_gemm("STORE_WAIT")
    assert not exact
    exact, _ = run_gemm("STORE_WAIT", mode="eager")
    assert exact


def test_writes_of_threads_need_a_fence_before_a_tensor_copy_reads_them() -> None:
    with pytest.raises(RaceError, match=r"lets the asynchronous proxy read byte .* no proxy fence"):
        run_gemm("FENCE")


def test_tensor_maps_are_checked() -> None:
    x = np.zeros((8, 64), dtype=np.float16)
    with pytest.raises(ArgumentError) as caught:
        TensorMap(x, (64, 8), "256B")
    assert str(caught.value) == "'256B' is none of ['128B', '32B', '64B', 'none']"
    with pytest.raises(ArgumentError) as caught:
        TensorMap(x, (64,))
    assert str(caught.value) == ("a tensor map's box has as many extents as its tensor, 1 to 5")
    with pytest.raises(ArgumentError) as caught:
        TensorMap(x, (64, 8), "64B")
    assert str(caught.value) == (
        "the inner extent of a box is 128 bytes; it must be a multiple of 16 and at most 64"
    )
    with pytest.raises(ArgumentError) as caught:
        TensorMap(x, (64, 300))
    assert str(caught.value) == "an extent of a tensor map's box is between 1 and 256"


BULK = """
__device__ unsigned at(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
extern "C" __global__ void move(const int* x, int* y) {
    __shared__ __align__(16) int s[64];
    __shared__ __align__(8) unsigned long long b;
    int t = threadIdx.x;
    if (t == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(at(&b)) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 256;"
                     :: "r"(at(&b)) : "memory");
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                     " [%0], [%1], 256, [%2];" :: "r"(at(s)), "l"(x), "r"(at(&b)) : "memory");
    }
    __syncthreads();
    asm volatile("{ .reg .pred p; AGAIN: mbarrier.test_wait.parity.shared::cta.b64 p, [%0], 0;"
                 " @!p bra AGAIN; }" :: "r"(at(&b)) : "memory");
    int v = s[63 - t];
    __syncthreads();
    s[t] = 2 * v;
    __syncthreads();
    if (t == 0) {
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 256;"
                     :: "l"(y), "r"(at(s)) : "memory");
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
}
"""


@pytest.mark.parametrize("mode", ["lazy", "eager"])
def test_bulk_copies_without_a_tensor_map(mode: str) -> None:
    x, y = np.arange(64, dtype=np.int32), np.zeros(64, dtype=np.int32)
    compile_program(BULK, "sm_90").launch("move", (1,), (64,), [x, y], mode=mode)
    assert (y == 2 * x[::-1]).all()


def test_a_barrier_that_engines_do_not_know_of() -> None:
    fence = 'asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");'
    assert fence in BULK
    x, y = np.arange(64, dtype=np.int32), np.zeros(64, dtype=np.int32)
    with pytest.raises(RaceError) as caught:
        compile_program(BULK.replace(fence, ""), "sm_90").launch("move", (1,), (64,), [x, y])
    place = re.search(r"'cp.async.bulk.*$", str(caught.value), re.M)
    assert place is not None
    assert str(caught.value) == (
        "a copy tells the barrier at byte 256 of shared memory, with no fence behind its "
        f"initialisation: {place[0]}\n"
        "hint: execute 'fence.proxy.async' or 'fence.mbarrier_init' behind it"
    )
