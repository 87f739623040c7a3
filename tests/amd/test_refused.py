"""What AMD's GPUs do not have is refused at the line that asks for it, with what they have."""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tests.amd.test_text import refused
from tileworkbench.compiler.diagnostics import TileValueError, UnsupportedError
from tileworkbench.kernels import matmul

OTHERS = {
    "gfx942": "use '{}', which MFMA multiplies here, or ",
    "gfx950": "use '{}', which MFMA multiplies here, or ",
    "gfx90a": "",
}


@pytest.mark.parametrize("kind", ["hip", "sim"])
@pytest.mark.parametrize(
    ("arch", "dtype", "like"),
    [
        ("gfx942", "float8_e4m3fn", "float8_e4m3fnuz"),
        ("gfx942", "float8_e5m2", "float8_e5m2fnuz"),
        ("gfx950", "float8_e4m3fnuz", "float8_e4m3fn"),
        ("gfx950", "float8_e5m2fnuz", "float8_e5m2"),
        ("gfx90a", "float8_e4m3fn", ""),
        ("gfx90a", "float8_e4m3fnuz", ""),
    ],
)
def test_a_kind_of_float8_that_a_machine_lacks(arch, dtype, like, kind):
    with pytest.raises(UnsupportedError) as caught:
        tw.compile(matmul(128, 128, 128, dtype), target=f"{kind}:{arch}")
    assert caught.value.message == f"T.gemm of '{dtype}' is not there on '{arch}'"
    own = OTHERS[arch].format(like)
    assert caught.value.hint == f"{own}convert the operands to 'float16' first"
    assert "T.gemm(" in caught.value.render()


def test_wgmma():
    @T.prim_func
    def kernel(A: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.copy(A, a)
            T.wgmma_gemm(a, a, c, clear_accum=True)
            T.wait_wgmma(0)
            T.copy(c, C)

    assert refused(kernel) == (
        "T.wgmma_gemm(a, a, c, clear_accum=True)",
        "UnsupportedError: T.wgmma_gemm is not there on 'gfx942'\n"
        "hint: use T.gemm, which multiplies with MFMA",
    )


def test_memory_barriers():
    @T.prim_func
    def kernel(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            done = T.alloc_barrier(64)
            T.mbarrier_arrive(done)
            T.mbarrier_wait_parity(done, 0)
            A[T.get_thread_binding()] = 1.0

    assert refused(kernel) == (
        "done = T.alloc_barrier(64)",
        "UnsupportedError: T.alloc_barrier is not there on 'gfx942'\n"
        "hint: use T.sync_threads, for which the machine has s_barrier",
    )


def test_tma_by_hand():
    @T.prim_func
    def kernel(A: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=64):
            a = T.alloc_shared((64, 64), "float16")
            T.fill(a, 1)
            T.tma_copy(a, A)
            T.tma_store_arrive()
            T.tma_store_wait(0)

    assert refused(kernel) == (
        "T.tma_copy(a, A)",
        "UnsupportedError: T.tma_copy is not there on 'gfx942'\n"
        "hint: use T.copy, whose threads load into registers and store to LDS",
    )


CUDA = [
    "#include <cuda_fp16.h>",
    '__device__ int lane() { int x; asm("mov.u32 %0, %laneid;" : "=r"(x)); return x; }',
    "__device__ int sum(int x) { return __reduce_add_sync(~0u, x); }",
    "__device__ int sum(int x) { return __shfl_xor_sync(~0u, x, 1); }",
]


@pytest.mark.parametrize("source", CUDA)
def test_cuda_in_a_source(source):
    @T.prim_func
    def kernel(A: T.Tensor((64,), "float32")):
        T.import_source(source)
        with T.Kernel(1, threads=64):
            A[T.get_thread_binding()] = 1.0

    assert refused(kernel, "hip:gfx90a")[1] == (
        "UnsupportedError: CUDA C++ in T.import_source is not there on 'gfx90a'\n"
        "hint: use what HIP has too, or clang's __builtin_amdgcn functions"
    )


def test_a_source_of_both_is_taken():
    @T.prim_func
    def kernel(A: T.Tensor((64,), "float32")):
        T.import_source("__device__ float twice(float x) { return 2 * x; }")
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            A[tx] = T.call_extern("float32", "twice", A[tx])

    assert "return 2 * x;" in tw.compile(kernel, target="hip:gfx942").source


@pytest.mark.parametrize(
    ("name", "near"), [("hip:gfx943", "gfx942, gfx950, gfx90a"), ("sim:gfx90b", "gfx950, gfx90a")]
)
def test_a_name_that_is_nearly_one(name, near):
    with pytest.raises(TileValueError) as caught:
        tw.compile(matmul(128, 128, 128, "float16"), target=name)
    assert caught.value.message == f"'{name}' is not a target"
    assert caught.value.hint is not None and caught.value.hint.startswith(f"near it: {near}")
