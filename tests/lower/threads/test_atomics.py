"""Atomic additions to neighbours are one instruction where the architecture has it: the threads
that a kernel is lowered to, and the PTX of its CUDA, agree with numpy.
"""

import re
from typing import Any

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tests.capability import require
from tests.differential.harness import storage
from tileworkbench.compiler.device.nvidia.nvrtc import missing_nvrtc
from tileworkbench.compiler.machine.tables import machine_of

FORMS = {  # dtype -> architecture -> what adds a tile
    "float32": {"sm_75": "atomicAdd", "sm_80": "atomicAdd", "sm_90": "global_add_f32x4"},
    "float16": {s: "global_add_f16x2" for s in ("sm_75", "sm_80")} | {"sm_90": "global_add_f16x4"},
    "bfloat16": {"sm_80": "atomic_add_bf16", "sm_90": "global_add_bf16x4"},
    "int32": {"sm_80": "atomicAdd", "sm_90": "atomicAdd"},
}
CASES = [(dtype, arch) for dtype, found in FORMS.items() for arch in found]


def small(shape: tuple[int, ...], dtype: str, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(-8, 8, shape).astype(storage(dtype))


def run(page: Any, arch: str, *arguments: Any) -> str:
    """Run on simulated threads and from the PTX, in place on the last of `arguments`, which must
    agree; the calls of the CUDA text that add.
    """
    require("nvrtc", missing_nvrtc())
    results = []
    for target in ("sim", "ptx"):
        kernel = tw.compile(page, target=f"{target}:{arch}")
        results.append(arguments[-1].copy())
        kernel(*arguments[:-1], results[-1])
    np.testing.assert_array_equal(*(found.astype(np.float64) for found in results))
    arguments[-1][...] = results[0]
    lines = [line for line in kernel.source.splitlines() if not line.startswith(("__", "  //"))]
    return " ".join(re.findall(r"\w*(?:_add_|atomicAdd)\w*(?=\()", "\n".join(lines)))


@pytest.mark.parametrize(("dtype", "arch"), CASES)
def test_a_tile_of_registers(dtype: str, arch: str) -> None:
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float32"), C: T.Tensor((16, 64), dtype)):
        with T.Kernel(4, threads=64) as bx:
            F = T.alloc_fragment((16, 64), "float32")
            T.copy(A[bx * 16, 0], F)
            T.atomic_add(C, F)

    a, c = small((64, 64), "float32"), small((16, 64), dtype, 1)
    expected = c.astype(np.float64) + a.reshape(4, 16, 64).sum(0)
    assert run(main, arch, a, c) == FORMS[dtype][arch]
    np.testing.assert_array_equal(c.astype(np.float64), expected)


@pytest.mark.covering(1)
@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize(("dtype", "arch"), CASES)
def test_neighbours_that_the_user_names(dtype: str, arch: str, count: int) -> None:
    @T.prim_func
    def main(A: T.Tensor((32, 64), dtype), C: T.Tensor((64,), dtype)):
        with T.Kernel(1, threads=64):
            for i, j in T.Parallel(32, 64 // count):
                if count == 2:
                    T.atomic_addx2(C[j * 2], A[i, j * 2])
                else:
                    T.atomic_addx4(C[j * 4], A[i, j * 4])

    a, c = small((32, 64), dtype), small((64,), dtype, 1)
    expected = c.astype(np.float64) + a.astype(np.float64).sum(0)
    most = machine_of(arch).atomic_lanes(dtype, "global")
    calls = run(main, arch, a, c)
    assert calls.endswith(f"x{min(count, most)}") if most > 1 else "x" not in calls
    np.testing.assert_array_equal(c.astype(np.float64), expected)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_several_in_one_loop_and_in_code_of_threads(arch: str) -> None:
    @T.prim_func
    def main(A: T.Tensor((64,), "float16"), C: T.Tensor((3, 64), "float16")):
        with T.Kernel(1, threads=32):
            tx = T.get_thread_binding()
            T.atomic_addx2(C[0, tx * 2], A[tx * 2])
            for i in T.Parallel(16):
                T.atomic_addx4(C[1, i * 4], A[i * 4])
                T.atomic_addx2(C[2, i * 4], A[i * 4])

    a, c = small((64,), "float16"), small((3, 64), "float16", 1)
    expected = c + a
    expected[2].reshape(16, 4)[:, 2:] = c[2].reshape(16, 4)[:, 2:]
    wide = "global_add_f16x2 global_add_f16x2" if arch == "sm_80" else "global_add_f16x4"
    assert run(main, arch, a, c) == f"global_add_f16x2 {wide} global_add_f16x2"
    np.testing.assert_array_equal(c, expected)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_pairs_in_shared_memory_and_ragged_edges(arch: str) -> None:
    @T.prim_func
    def main(A: T.Tensor((40, 56), "float16"), C: T.Tensor((56,), "float16")):
        with T.Kernel(2, threads=32) as bx:
            F = T.alloc_fragment((32, 64), "float16")
            S = T.alloc_shared((64,), "float16")
            T.copy(A[bx * 32, 0], F)
            T.clear(S)
            for i, j in T.Parallel(32, 64):
                T.atomic_add(S[j], F[i, j])
            T.atomic_add(C, S[0:56])

    a, c = small((40, 56), "float16"), small((56,), "float16", 1)
    expected = (c.astype(np.float64) + a.astype(np.float64).sum(0)).astype(np.float16)
    assert run(main, arch, a, c).startswith("shared_add_f16x2 global_add_f16x")
    np.testing.assert_array_equal(c, expected)


@pytest.mark.parametrize("width", [66, 65])
def test_rows_that_are_not_aligned(width: int) -> None:
    """Rows of 66 elements are aligned for pairs, those of 65 for single elements."""

    @T.prim_func
    def main(A: T.Tensor((8, width), "float32"), C: T.Tensor((8, width), "float32")):
        with T.Kernel(1, threads=32):
            F = T.alloc_fragment((8, 64), "float32")
            T.copy(A[0:8, 0:64], F)
            T.atomic_add(C[0:8, 0:64], F)

    a, c = small((8, width), "float32"), small((8, width), "float32", 1)
    expected = c.copy()
    expected[:, :64] += a[:, :64]
    assert run(main, "sm_90", a, c) == {66: "global_add_f32x2", 65: "atomicAdd"}[width]
    np.testing.assert_array_equal(c, expected)


def test_what_is_asked_for_is_added_alone() -> None:
    """A result, a condition or another access keeps additions apart."""

    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), C: T.Tensor((3, 64), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(64):
                before = T.atomic_add(C[0, i], A[i], return_prev=True)
                C[1, i] = before
            for i in T.Parallel(64):
                if A[i] > 0:
                    T.atomic_add(C[2, i], A[i])

    a, c = small((64,), "float32"), small((3, 64), "float32", 1)
    first = c.copy()
    assert set(run(main, "sm_90", a, c).split()) == {"atomicAdd"}
    np.testing.assert_array_equal(c[0], first[0] + a)
    np.testing.assert_array_equal(c[1], first[0])
    np.testing.assert_array_equal(c[2], first[2] + np.maximum(a, 0))
