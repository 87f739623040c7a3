"""Tiles through which results go from registers to global memory: their layout has no conflicts."""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T

M = N = K = 128


def product(columns, dtype, threads=128, reads=False):
    """A product whose result is staged; with `reads` threads also read single elements of it."""

    @T.prim_func
    def kernel(
        A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), dtype)
    ):
        with T.Kernel(1, threads=threads):
            A_shared = T.alloc_shared((M, 32), "float16")
            B_shared = T.alloc_shared((32, columns), "float16")
            C_shared = T.alloc_shared((M, columns), dtype)
            total = T.alloc_fragment((M, columns), "float32")
            T.clear(total)
            for k in T.Pipelined(K // 32, num_stages=2):
                T.copy(A[0, k * 32], A_shared)
                T.copy(B[k * 32, 0], B_shared)
                T.gemm(A_shared, B_shared, total)
            T.copy(total, C_shared)
            if reads:
                for i, j in T.Parallel(M, columns):
                    C[i, j] = C_shared[i, j]
            else:
                T.copy(C_shared, C[0:M, 0:columns])

    return kernel


def ratios(kernel):
    """Wavefronts over the least, of the accesses to the staging tile."""
    return [each.factor for each in kernel.accesses if each.buffer == "C_shared"]


OTHERS = [pytest.param(arch, marks=pytest.mark.slow) for arch in ("sm_75", "sm_90")]


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", *OTHERS])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("columns", [32, 64, 128])
def test_stores_and_loads_take_the_fewest_wavefronts(columns, dtype, target):
    kernel = tw.compile(product(columns, dtype), target=f"sim:{target}")
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, (128, 128)).astype(np.float16) for _ in range(2))
    c = np.zeros((M, N), dtype)
    kernel(a, b, c)
    assert np.array_equal(c[:, :columns], (a @ b)[:, :columns].astype(dtype))
    assert ratios(kernel) and max(ratios(kernel)) == 1


def test_the_note_says_why():
    kernel = tw.compile(product(64, "float16"), target="sim:sm_80")
    notes = kernel.compiled.record.snapshots[-1].program.notes
    assert any(
        note.startswith("C_shared: (i, j) -> 64*i + 8*(i%8 ^ j//8) + j%8, it takes results from")
        for note in notes
    )


def test_a_tile_with_other_readers_stays_as_it_is():
    kernel = tw.compile(product(64, "float16", reads=True), target="sim:sm_80")
    assert "C_shared" not in kernel.layouts
