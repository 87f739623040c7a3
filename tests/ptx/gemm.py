"""A pipelined half-precision gemm in CUDA, with places where a bug can be planted by a macro."""

from __future__ import annotations

import numpy as np

from tests.ptx.support import Array, compile_program
from tileworkbench.compiler.sim.ptx import PtxRun

# C[M, N] = A[M, K] B[K, N] in tiles of 64 x 64 x 32; four warps of 32 x 32; a ring of three stages.
SOURCE = """
#ifndef KIND
#define KIND "f16"
#endif
#ifndef WAIT
#define WAIT asm volatile("cp.async.wait_group 1;" ::: "memory")
#endif
#ifndef BARRIER
#define BARRIER __syncthreads()
#endif
#ifndef TRANS
#define TRANS ".trans"
#endif
#ifndef NEXT
#define NEXT (k + 2) % 3
#endif
#ifndef PRESENT
#define PRESENT(row) ((row) < M ? 16 : 0)
#endif
#ifndef SWIZZLE_A
#define SWIZZLE_A(row, chunk) ((chunk) ^ (row) / 2 % 4)
#endif
#ifndef SWIZZLE_A_READ
#define SWIZZLE_A_READ SWIZZLE_A
#endif
#ifndef SWIZZLE_B
#define SWIZZLE_B(row, chunk) ((chunk) ^ (row) % 8)
#endif
#define A_BYTES (64 * 64)
#define STAGE_BYTES (2 * 64 * 64)
__device__ unsigned at(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ void copy(unsigned to, const void* from, int bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"(to), "l"(from), "r"(bytes) : "memory");
}
extern "C" __global__ void __launch_bounds__(128)
gemm(const unsigned short* A, const unsigned short* B, float* C, int M, int N, int K) {
    extern __shared__ __align__(128) char ring[];
    int t = threadIdx.x, lane = t % 32, warp = t / 32;
    int m = blockIdx.y * 64, n = blockIdx.x * 64, wm = warp % 2 * 32, wn = warp / 2 * 32;
    float c[2][4][4] = {};
    auto load = [&](int stage, int k) {
        unsigned a = at(ring) + stage * STAGE_BYTES, b = a + A_BYTES;
        for (int j = 0; j < 2; j++) {
            int i = t + j * 128;
            int row = i / 4, chunk = i % 4;
            copy(a + row * 64 + SWIZZLE_A(row, chunk) * 16,
                 A + (m + row) * K + k * 32 + chunk * 8, PRESENT(m + row));
            row = i / 8, chunk = i % 8;
            copy(b + row * 128 + SWIZZLE_B(row, chunk) * 16,
                 B + (k * 32 + row) * N + n + chunk * 8, 16);
        }
    };
    int steps = K / 32;
    for (int k = 0; k < 2; k++) {
        if (k < steps) load(k, k);
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    for (int k = 0; k < steps; k++) {
        WAIT;
        BARRIER;
        if (k + 2 < steps) load(NEXT, k + 2);
        asm volatile("cp.async.commit_group;" ::: "memory");
        unsigned sa = at(ring) + k % 3 * STAGE_BYTES, sb = sa + A_BYTES;
        for (int kk = 0; kk < 2; kk++) {
            unsigned a[2][4], b[4][2];
            for (int i = 0; i < 2; i++) {
                int row = wm + i * 16 + lane % 16, chunk = kk * 2 + lane / 16;
                asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                    : "=r"(a[i][0]), "=r"(a[i][1]), "=r"(a[i][2]), "=r"(a[i][3])
                    : "r"(sa + row * 64 + SWIZZLE_A_READ(row, chunk) * 16) : "memory");
            }
            for (int j = 0; j < 2; j++) {
                int row = kk * 16 + lane % 16, chunk = wn / 8 + j * 2 + lane / 16;
                asm volatile("ldmatrix.sync.aligned.m8n8.x4" TRANS
                    ".shared.b16 {%0,%1,%2,%3}, [%4];"
                    : "=r"(b[2 * j][0]), "=r"(b[2 * j][1]),
                      "=r"(b[2 * j + 1][0]), "=r"(b[2 * j + 1][1])
                    : "r"(sb + row * 128 + SWIZZLE_B(row, chunk) * 16) : "memory");
            }
            for (int i = 0; i < 2; i++)
                for (int j = 0; j < 4; j++)
                    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." KIND "." KIND ".f32"
                        " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                        : "+f"(c[i][j][0]), "+f"(c[i][j][1]), "+f"(c[i][j][2]), "+f"(c[i][j][3])
                        : "r"(a[i][0]), "r"(a[i][1]), "r"(a[i][2]), "r"(a[i][3]),
                          "r"(b[j][0]), "r"(b[j][1]));
        }
    }
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 4; j++)
            for (int h = 0; h < 2; h++) {
                int row = m + wm + i * 16 + lane / 4 + h * 8;
                int column = n + wn + j * 8 + lane % 4 * 2;
                if (row < M) {
                    C[row * N + column] = c[i][j][2 * h];
                    C[row * N + column + 1] = c[i][j][2 * h + 1];
                }
            }
}
"""


def run_gemm(
    *macros: str,
    shape: tuple[int, int, int] = (64, 64, 96),
    dtype: type = np.float16,
    mode: str = "lazy",
    detectors: bool = True,
) -> tuple[bool, PtxRun]:
    """Run the gemm with some macros replaced: whether the result is exact, and what it did."""
    defines = "".join(f"#define {macro}\n" for macro in macros)
    program = compile_program(defines + SOURCE)
    m, n, k = shape
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, size).astype(dtype) for size in ((m, k), (k, n)))
    c = np.zeros((m, n), dtype=np.float32)
    bits: list[Array] = [each.view(np.uint16) for each in (a, b)]
    run = program.launch(
        "gemm", (n // 64, -(-m // 64)), (128,), [*bits, c, m, n, k], 3 * 8192,
        mode=mode, detectors=detectors,
    )  # fmt: skip
    expected = a.astype(np.float32) @ b.astype(np.float32)
    return bool((c == expected).all()), run
