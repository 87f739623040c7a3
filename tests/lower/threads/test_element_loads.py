"""Tiles that T.Parallel fills beside one of the copy engine: the result, and who does it."""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

from typing import Any

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench.compiler.device.nvidia import nvrtc

N, K = 64, 256


def product(kind: str, stages: int = 2) -> Any:
    @T.prim_func
    def kernel(
        A: T.Tensor((N, K), "float16"),
        B: T.Tensor((K, N), "float16"),
        B8: T.Tensor((K, N), "int8"),
        rows: T.Tensor((K,), "int32"),
        C: T.Tensor((N, N), "float32"),
    ):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((N, 64), "float16")
            b = T.alloc_shared((64, N), "float16")
            c = T.alloc_fragment((N, N), "float32")
            T.clear(c)
            for k in T.Pipelined(K // 64, num_stages=stages):
                T.copy(A[0, k * 64], a)
                for i, j in T.Parallel(64, N):
                    if kind == "rows":
                        b[i, j] = B[rows[k * 64 + i], j]
                    elif kind == "columns":
                        b[i, j] = B[k * 64 + i, rows[j]]
                    elif kind == "plain":
                        b[i, j] = B[k * 64 + i, j]
                    elif kind == "converted":
                        b[i, j] = T.cast(B8[k * 64 + i, j], "float16")
                    else:
                        b[i, j] = T.cast(B8[k * 64 + i, j], "float16") * T.float16(2)
                T.gemm(a, b, c)
            T.copy(c, C)

    return kernel


SAID = {
    "rows": "B: cp.async, because 'rows' says which of its elements are copied",
    "columns": "B: threads, because 'rows' says which of its elements are copied",
    "plain": "B: cp.async, because it is copied by element, not by T.copy",
    "converted": "B8: threads, because 'int8' and 'float16' are converted",
    "computed": "B8: threads, because 'b' is computed from its elements",
}


def check(kind: str, target: str, stages: int = 2) -> tw.Kernel:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((N, K), (K, N)))
    b8, rows = b.astype(np.int8), rng.permutation(K).astype(np.int32)
    if kind == "columns":
        rows %= N
    c = np.zeros((N, N), np.float32)
    kernel = tw.compile(product(kind, stages), target=target)
    kernel(a, b, b8, rows, c)
    right = b[rows] if kind == "rows" else b[:, rows[:N]] if kind == "columns" else b
    times = 2 if kind == "computed" else 1
    assert np.array_equal(c, times * a.astype(np.float32) @ right.astype(np.float32))
    return kernel


@pytest.mark.parametrize("kind", SAID)
def test_the_sentence_and_the_result(kind: str) -> None:
    kernel = check(kind, "sim:sm_90a")
    notes = kernel.compiled.record.snapshots[-1].program.notes
    found = [note for note in notes if "(T.Parallel, line" in note and note.startswith("B")]
    assert [note.partition(" (T.Parallel")[0] for note in found] == [SAID[kind]]
    assert any(note.startswith("A: TMA, 128-byte swizzle") for note in notes)
    assert any("start the copies (T.Pipelined" in note for note in notes)


@pytest.mark.nvrtc
@pytest.mark.parametrize("kind", ["rows", *(pytest.param(k, marks=pytest.mark.slow) for k in SAID)])
def test_from_ptx(kind: str) -> None:
    if reason := nvrtc.missing_nvrtc():
        pytest.skip(reason)
    check(kind, "ptx:sm_90a", stages=3)
