"""Products of bytes whose B has its rows along N: neighbours of a row are read as a word, turned in
registers, and multiplied by several instructions whose columns take turns.
"""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

import ml_dtypes
import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tests.differential.harness import check_on_threads, equals, run_native

pytestmark = pytest.mark.nvrtc

TARGETS = {"int8": "sm_80", "uint8": "sm_75", "float8_e4m3fn": "sm_89", "float8_e5m2": "sm_120"}


def numbers(shape, dtype, seed):
    """Small whole numbers, whose sums of products are exact in every dtype here."""
    low = 0 if dtype == "uint8" else -3
    made = np.random.default_rng(seed).integers(low, 4, shape)
    return made.astype(getattr(ml_dtypes, dtype, None) or dtype)


def product(dtype, m, n, k, *, threads=128, place="fragment", transpose_a=False):
    total = "float32" if dtype.startswith("float") else "int32"
    shape = (k, m) if transpose_a else (m, k)

    @T.prim_func
    def kernel(A: T.Tensor(shape, dtype), B: T.Tensor((k, n), dtype)):
        C = T.empty((m, n), total)
        with T.Kernel(1, threads=threads):
            a, b = T.alloc_shared(shape, dtype), T.alloc_shared((k, n), dtype)
            c = T.alloc_fragment((m, n), total) if place == "fragment" else T.alloc_shared(
                (m, n), total)  # fmt: skip
            T.copy(A, a)
            T.copy(B, b)
            T.clear(c)
            T.gemm(a, b, c, transpose_A=transpose_a)
            T.copy(c, C)
        return C

    return kernel


CASES = [
    ((64, 128, 64), {}),
    ((64, 64, 64), {}),
    ((32, 48, 32), {"threads": 32}),  # 16 columns at a time
    ((16, 24, 32), {"threads": 32}),  # no neighbours
    ((64, 96, 32), {"threads": 96}),
    ((32, 32, 64), {"place": "shared"}),
    ((64, 64, 32), {"transpose_a": True}),
]


@pytest.mark.covering(1)
@pytest.mark.parametrize("dtype", TARGETS)
@pytest.mark.parametrize(("extents", "how"), CASES)
def test_rows_of_b_are_read_by_words(dtype, extents, how):
    m, n, k = extents
    page = product(dtype, m, n, k, **how)
    transposed = how.get("transpose_a", False)
    arguments = {"A": numbers((k, m) if transposed else (m, k), dtype, 1)}
    arguments["B"] = numbers((k, n), dtype, 2)
    left, right = (arguments[name].astype(np.float64) for name in "AB")
    total = np.float32 if dtype.startswith("float") else np.int32
    check = equals(C=((left.T if transposed else left) @ right).astype(total))
    target = TARGETS[dtype]
    check_on_threads(page, arguments, check, f"sim:{target}")
    check(run_native(page.program, arguments, f"ptx:{target}"))


def test_both_orders_of_b_add_to_one_result():
    """One instruction after the other fits both, several across only the first."""

    @T.prim_func
    def kernel(A: T.Tensor((32, 32), "int8"), B: T.Tensor((32, 64), "int8")):
        C = T.empty((32, 64), "int32")
        with T.Kernel(1, threads=64):
            a, b = T.alloc_shared((32, 32), "int8"), T.alloc_shared((32, 64), "int8")
            turned = T.alloc_shared((64, 32), "int8")
            c = T.alloc_fragment((32, 64), "int32")
            T.copy(A, a)
            T.copy(B, b)
            for i, j in T.Parallel(64, 32):
                turned[i, j] = B[j, i]
            T.clear(c)
            T.gemm(a, b, c)
            T.gemm(a, turned, c, transpose_B=True)
            T.copy(c, C)
        return C

    arguments = {"A": numbers((32, 32), "int8", 3), "B": numbers((32, 64), "int8", 4)}
    left, right = (arguments[name].astype(np.int32) for name in "AB")
    check = equals(C=2 * (left @ right))
    check_on_threads(kernel, arguments, check, "sim:sm_80")
    check(run_native(kernel.program, arguments, "ptx:sm_80"))
    assert "mma_m16n8k32_s8" in tw.compile(kernel, target="cuda:sm_80").source


@pytest.mark.parametrize(("columns", "name"), [(128, "m16n32k32"), (48, "m16n16k32")])
def test_a_row_is_read_in_words_without_conflicts(columns, name):
    kernel = tw.compile(product("int8", 64, columns, 64, threads=32), target="sim:sm_80")
    assert f"mma_{name}_s8" in kernel.source
    (read,) = (each for each in kernel.accesses if each.buffer == "b" and each.kind == "load")
    assert read.width == int(name[4:6]) // 8
    assert columns == 48 or read.wavefronts == read.ideal
