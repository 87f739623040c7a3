"""What addresses must be multiples of: the widest access of lowered code."""

from __future__ import annotations

from typing import Any

import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench.compiler.analysis.alignment import needed_alignment


def needed(program: Any, target: str = "sim:sm_80") -> dict[str, int]:
    return needed_alignment(tw.compile(program, target=target).passes[-1].program)


def copied(dtype: str, count: int) -> Any:
    @T.prim_func
    def copied(A: T.Tensor((count,), dtype), B: T.Tensor((count,), dtype)):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(count):
                B[i] = A[i]

    return copied


@pytest.mark.parametrize(
    ("dtype", "count", "bytes_"),
    [
        *(("float32", 128, 16), ("float32", 64, 8), ("float32", 32, 4), ("float16", 128, 8)),
        *(("int8", 32, 1), ("float64", 64, 16), ("int4", 256, 4)),
    ],
)
def test_the_widest_vector_counts(dtype: str, count: int, bytes_: int) -> None:
    assert needed(copied(dtype, count)) == {"A": bytes_, "B": bytes_}


def test_asynchronous_copies_count() -> None:
    n = T.dynamic("n")

    @T.prim_func
    def summed(A: T.Tensor((n, 256), "float16"), B: T.Tensor((256,), "float32")):
        with T.Kernel(1, threads=32):
            tile = T.alloc_shared((1, 256), "float16")
            total = T.alloc_fragment((256,), "float32")
            T.clear(total)
            for k in T.Pipelined(n, num_stages=2):
                T.copy(A[k, 0], tile)
                for i in T.Parallel(256):
                    total[i] += tile[0, i]
            T.copy(total, B)

    assert needed(summed)["A"] == 16


def test_addresses_that_are_given_away_count_most() -> None:
    @T.prim_func
    def called(A: T.Tensor((32,), "float32"), B: T.Tensor((32,), "float32")):
        T.import_source("__device__ void twice(float* x) { *x = 2 * *x; }")
        with T.Kernel(1, threads=32):
            i = T.get_thread_binding(0)
            T.call_extern("handle", "twice", T.address_of(A[i]))
            B[i] = A[i]

    assert needed(called) == {"A": 16, "B": 4}
