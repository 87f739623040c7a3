"""Updates of elements that share a word with their neighbours, on processors and from PTX."""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

import numpy as np
import pytest

import tileworkbench.language as T
from tests.capability import require
from tests.differential.harness import check_everywhere, equals, run_native, storage
from tileworkbench.compiler.device.nvidia.nvrtc import missing_nvrtc

ATOMICS = {"add": T.atomic_add, "max": T.atomic_max, "min": T.atomic_min, "or": T.atomic_or}
INTEGERS = ("int8", "uint8", "int16", "uint16")
FLOATS = ("float8_e4m3fn", "float8_e5m2", "float16", "bfloat16")
CASES = [
    *((kind, dtype) for kind in ATOMICS for dtype in INTEGERS),
    *((kind, dtype) for kind in ("add", "max", "min") for dtype in FLOATS),
]


def check_on_threads(kernel, arguments, check):
    check(run_native(kernel.program, arguments, "sim:sm_80"))
    require("nvrtc", missing_nvrtc())
    check(run_native(kernel.program, arguments, "ptx:sm_80"))


@pytest.mark.covering(1)
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(("kind", "dtype"), CASES)
def test_neighbours_are_updated_at_once(kind, dtype, shared):
    atomic = ATOMICS[kind]

    @T.prim_func
    def kernel(A: T.Tensor((64,), dtype), B: T.Tensor((10,), dtype)):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((10,), dtype)
            T.copy(B, S)
            for i in T.Parallel(64):
                atomic(S[i % 10] if shared else B[i % 10], A[i])
            if shared:
                T.copy(S, B)

    random = np.random.default_rng(0)
    low = 0 if dtype.startswith("u") else -2
    a, b = random.integers(low, 3, 64), random.integers(low, 3, 10)
    update = {"add": np.add, "max": np.maximum, "min": np.minimum, "or": np.bitwise_or}[kind]
    found = b.copy()
    update.at(found, np.arange(64) % 10, a)
    arguments = {"A": a.astype(storage(dtype)), "B": b.astype(storage(dtype))}
    check = equals(B=found.astype(storage(dtype)))
    check_everywhere(kernel, arguments, check)
    check_on_threads(kernel, arguments, check)


@pytest.mark.parametrize("dtype", ["int4", "uint4", "float4_e2m1fn"])
def test_halves_of_a_byte_are_stored_alone(dtype):
    @T.prim_func
    def kernel(A: T.Tensor((64,), "int32"), B: T.Tensor((64,), dtype)):
        with T.Kernel(2, threads=32) as bx:
            for i in T.Parallel(32):
                B[63 - (bx + i * 2)] = T.reinterpret(T.cast(A[bx + i * 2], "uint4"), dtype)

    codes = np.random.default_rng(1).integers(0, 16, 64)
    expected = (codes[::-1][::2] | codes[::-1][1::2] << 4).astype(np.uint8)
    arguments = {"A": codes.astype(np.int32), "B": np.zeros(32, np.uint8)}
    check = equals(B=expected)
    check_everywhere(kernel, arguments, check)
    check_on_threads(kernel, arguments, check)
