"""Both arms of a branch that splits the threads of a block: each has barriers and memory of its
own, on the CPU, on simulated threads and from the PTX.
"""

from typing import Any

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tests.capability import require
from tileworkbench.compiler.device.nvidia.nvrtc import missing_nvrtc

TARGETS = ("cpu", "sim:sm_80", "ptx:sm_80")
WHOLE = [(64, 128), (64, 256), (32, 128), (96, 128), (128, 256)]


def on_every_target(page: Any, *arguments: Any) -> list[Any]:
    """The last tensor after a run on each target, all equal."""
    require("nvrtc", missing_nvrtc())
    results = []
    for target in TARGETS:
        results.append(arguments[-1].copy())
        tw.compile(page, target=target)(*arguments[:-1], results[-1])
    for found in results[1:]:
        np.testing.assert_array_equal(found, results[0])
    return results[0]


def operators(split: int, threads: int) -> Any:
    """A transposition through shared memory and a sum of rows; another and a maximum of columns."""

    @T.prim_func
    def main(A: T.Tensor((2, 32, 32), "float16"), B: T.Tensor((2, 33, 32), "float32")):
        with T.Kernel(1, threads=threads):
            S = T.alloc_shared((32, 32), "float16")
            R = T.alloc_shared((32, 32), "float16")
            tx = T.get_thread_binding()
            if tx < split:
                F = T.alloc_fragment((32, 32), "float32")
                s = T.alloc_fragment((32,), "float32")
                T.copy(A[0, 0, 0], S)
                for i, j in T.Parallel(32, 32):
                    B[0, i, j] = S[j, i]
                T.copy(S, F)
                T.reduce_sum(F, s, dim=1)
                T.copy(s, B[0, 32, 0:32])
            else:
                G = T.alloc_fragment((32, 32), "float32")
                g = T.alloc_fragment((32,), "float32")
                for k in T.serial(3):
                    T.copy(A[1, 0, 0], R)
                    for i, j in T.Parallel(32, 32):
                        B[1, i, j] = R[j, i]
                    T.copy(R, G)
                    T.reduce_max(G, g, dim=0)
                    T.copy(g, B[1, 32, 0:32])

    return main


@pytest.mark.parametrize(("split", "threads"), WHOLE)
def test_tile_operators(split: int, threads: int) -> None:
    a = np.random.default_rng(0).integers(-8, 8, (2, 32, 32)).astype(np.float16)
    found = on_every_target(operators(split, threads), a, np.zeros((2, 33, 32), np.float32))
    np.testing.assert_array_equal(found[:, :32], a.transpose(0, 2, 1))
    np.testing.assert_array_equal(found[0, 32], a[0].astype(np.float32).sum(1))
    np.testing.assert_array_equal(found[1, 32], a[1].max(0))


def exchanges(split: int, threads: int) -> Any:
    @T.prim_func
    def main(A: T.Tensor((threads,), "float32"), B: T.Tensor((threads,), "float32")):
        with T.Kernel(1, threads=threads):
            S = T.alloc_shared((threads,), "float32")
            tx = T.get_thread_binding()
            if tx < split:
                S[tx] = A[tx]
                B[tx] = S[split - 1 - tx]
            else:
                S[tx] = A[tx] * 2
                B[tx] = S[threads - 1 - (tx - split)]

    return main


@pytest.mark.parametrize(("split", "threads"), WHOLE)
def test_code_of_single_threads(split: int, threads: int) -> None:
    a = np.arange(threads, dtype=np.float32)
    found = on_every_target(exchanges(split, threads), a, np.zeros_like(a))
    np.testing.assert_array_equal(found, np.concatenate([a[:split][::-1], 2 * a[split:][::-1]]))


def test_barriers_of_the_block_in_both_arms() -> None:
    """Even and odd warps come to them from different statements, as often as each other."""

    @T.prim_func
    def main(A: T.Tensor((128,), "float32"), B: T.Tensor((128,), "float32")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((128,), "float32")
            tx = T.get_thread_binding()
            if tx // 32 % 2 == 0:
                S[tx] = A[tx] + 1
                T.sync_threads()
                B[tx] = S[127 - tx]
                T.sync_threads()
            else:
                S[tx] = A[tx] + 2
                for _ in T.serial(2):
                    T.sync_threads()
                B[tx] = S[127 - tx]

    a = np.arange(128, dtype=np.float32)
    found = on_every_target(main, a, np.zeros_like(a))
    np.testing.assert_array_equal(found, (a + 1 + np.arange(128) // 32 % 2)[::-1])
    assert 'asm volatile("barrier.sync 0, 128;"' in tw.compile(main, target="sim:sm_80").source


def test_a_branch_in_a_branch() -> None:
    """The inner threads wait for the outer ones, and these for them."""

    @T.prim_func
    def main(A: T.Tensor((128,), "float32"), B: T.Tensor((3, 128), "float32")):
        with T.Kernel(1, threads=256):
            S = T.alloc_shared((128,), "float32")
            tx = T.get_thread_binding()
            if tx >= 128:
                T.copy(A, S)
                if tx >= 192:
                    for i in T.Parallel(128):
                        B[0, i] = S[127 - i]
                    for i in T.Parallel(128):
                        S[i] = S[i] + B[0, i]
                for i in T.Parallel(128):
                    B[1, i] = S[i]
            else:
                for i in T.Parallel(128):
                    B[2, i] = A[i]

    a = np.arange(128, dtype=np.float32)
    found = on_every_target(main, a, np.zeros((3, 128), np.float32))
    np.testing.assert_array_equal(found, [a[::-1], a + a[::-1], a])


def test_parts_of_warps_on_the_cpu() -> None:
    """What GPU targets refuse (tests/messages/targets)."""
    a = np.arange(2 * 32 * 32).reshape(2, 32, 32) % 9 - 4
    found = np.zeros((2, 33, 32), np.float32)
    tw.compile(operators(40, 128), target="cpu")(a.astype(np.float16), found)
    np.testing.assert_array_equal(found[:, :32], a.transpose(0, 2, 1))
    b, found = np.arange(128, dtype=np.float32), np.zeros(128, np.float32)
    tw.compile(exchanges(40, 128), target="cpu")(b, found)
    np.testing.assert_array_equal(found, np.concatenate([b[:40][::-1], 2 * b[40:][::-1]]))


def test_a_block_has_sixteen_barriers() -> None:
    def groups(count: int) -> Any:
        @T.macro
        def exchange(A, B, S, tx, w):
            if tx // 32 == w:
                S[tx] = A[tx]
                B[tx] = S[w * 32 + 31 - tx % 32]

        @T.prim_func
        def main(A: T.Tensor((512,), "float32"), B: T.Tensor((512,), "float32")):
            with T.Kernel(1, threads=512):
                S = T.alloc_shared((512,), "float32")
                tx = T.get_thread_binding()
                for w in list(range(count)):
                    exchange(A, B, S, tx, w)

        return main

    a = np.arange(512, dtype=np.float32)
    found = on_every_target(groups(15), a, np.zeros_like(a))
    np.testing.assert_array_equal(found.reshape(16, 32)[:15], a.reshape(16, 32)[:15, ::-1])
