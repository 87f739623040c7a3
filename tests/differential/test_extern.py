"""External functions: C sources, the C library, and what cannot be called."""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

import shutil

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tests.differential.harness import check_everywhere, equals, random_array
from tileworkbench.compiler.diagnostics import TileValueError, UnsupportedError
from tileworkbench.compiler.emit import c_sources
from tileworkbench.compiler.sim import simulate

needs_compiler = pytest.mark.skipif(
    not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="no C compiler is installed"
)

SOURCE = """
#include <stdint.h>
float blend(float a, float b, int32_t weight) { return a + (b - a) * weight / 4; }
int8_t twice(int8_t x, _Bool negative) { return negative ? -2 * x : 2 * x; }
void add_rows(float *out, const float *row, int64_t count, double scale) {
    for (int64_t i = 0; i < count; i++) out[i] += row[i] * scale;
}
"""


@needs_compiler
def test_functions_of_a_source():
    a, b = random_array((4, 16), "float32"), random_array((4, 16), "float32", seed=1)
    c = random_array((4, 16), "int8")

    @T.prim_func
    def kernel(
        A: T.Tensor((4, 16), "float32"),
        B: T.Tensor((4, 16), "float32"),
        C: T.Tensor((4, 16), "int8"),
    ):
        D = T.empty((4, 16), "float32")
        E = T.empty((4, 16), "int8")
        F = T.empty((4, 16), "float32")
        T.import_source(SOURCE)
        with T.Kernel(4, threads=1) as bx:
            for i in T.Parallel(16):
                if i < 12:
                    D[bx, i] = T.call_extern("float32", "blend", A[bx, i], B[bx, i], i)
                else:
                    D[bx, i] = 0.0
                E[bx, i] = T.call_extern("int8", "twice", C[bx, i], i % 2 == 1)
            S = T.alloc_shared((16,), "float32")
            T.copy(A[bx, 0:16], S)
            T.call_extern(
                "handle", "add_rows", S, T.address_of(B[bx, 0]), T.int64(16), T.float64(0.5)
            )
            start = T.access_ptr(S, "rw", offset=8)
            T.call_extern("void", "add_rows", start, B[bx, 8:16], T.int64(8), T.float64(1))
            T.copy(S, F[bx, 0:16])
        return D, E, F

    i = np.arange(16, dtype=np.float32)
    d = np.where(i < 12, a + (b - a) * i / np.float32(4), np.float32(0)).astype(np.float32)
    e = (np.where(i % 2 == 1, -2, 2).astype(np.int8) * c).astype(np.int8)
    f = (a + b.astype(np.float64) * 0.5).astype(np.float32)
    f[:, 8:] += b[:, 8:]

    def check(arrays):
        equals(E=e)(arrays)
        np.testing.assert_allclose(arrays["D"], d, rtol=1e-5, atol=1e-5)  # C may fuse
        np.testing.assert_allclose(arrays["F"], f, rtol=1e-6, atol=1e-6)

    check_everywhere(kernel, {"A": a, "B": b, "C": c}, check)


def test_functions_of_the_c_library():
    a = random_array((64,), "float64")

    @T.prim_func
    def kernel(A: T.Tensor((64,), "float64")):
        B = T.empty((64,), "float64")
        with T.Kernel(2, threads=32) as bx:
            for i in T.Parallel(32):
                B[bx * 32 + i] = T.call_extern(
                    "float64", "copysign", T.float64(2.5), A[bx * 32 + i]
                )
        return B

    check_everywhere(kernel, {"A": a}, equals(B=np.copysign(2.5, a)))


@needs_compiler
def test_two_kernels_have_functions_of_one_name():
    def make(factor):
        @T.prim_func
        def kernel(A: T.Tensor((4,), "int32")):
            with T.Kernel(1, threads=1, prelude=f"int scaled(int x) {{ return x * {factor}; }}"):
                for i in T.serial(4):
                    A[i] = T.call_extern("int32", "scaled", A[i])

        return tw.compile(kernel, target="cpu")

    a = np.arange(4, dtype=np.int32)
    make(3)(a)
    make(5)(a)
    np.testing.assert_array_equal(a, np.arange(4) * 15)


def calling(name, source=None):
    @T.prim_func
    def kernel(A: T.Tensor((4,), "float32")):
        T.import_source(source)
        with T.Kernel(1, threads=1):
            A[0] = T.call_extern("float32", name, A[0])

    return kernel


def rendered(kernel):
    with pytest.raises((UnsupportedError, TileValueError)) as caught:
        tw.compile(kernel, target="cpu")
    assert caught.value.span is not None
    with pytest.raises(type(caught.value)):
        simulate(kernel.program, {"A": np.zeros(4, np.float32)})
    return f"{caught.value.message}\nhint: {caught.value.hint}"


def test_functions_that_do_not_exist():
    assert rendered(calling("no_such_function")) == (
        "there is no function 'no_such_function' to call\n"
        "hint: define it with T.import_source, or call a function of the C library"
    )


def test_cuda_source_on_a_processor():
    source = "__device__ float half_of(float x) { return x / 2; }"
    assert rendered(calling("half_of", source)) == (
        "the kernel's source is CUDA, which target 'cpu' cannot compile\n"
        "hint: write it in C, or compile the kernel for a CUDA target"
    )

    @T.prim_func
    def kernel(A: T.Tensor((4,), "float32")):
        T.CUDASourceCodeKernel(
            4, threads=32, source_code_or_path=f'{source}\nextern "C" __global__ void f() {{}}'
        )

    assert rendered(kernel) == (
        "target 'cpu' cannot run CUDA source\nhint: compile the kernel for a CUDA target"
    )
    with pytest.raises(UnsupportedError) as caught:
        simulate(kernel.program, {"A": np.zeros(4, np.float32)})
    assert caught.value.message == "the simulator does not execute CUDA source"


@needs_compiler
def test_source_that_the_compiler_refuses():
    kernel = calling("half_of", "float half_of(float x) { return y; }")
    with pytest.raises(TileValueError) as caught:
        tw.compile(kernel, target="cpu")
    assert caught.value.message.startswith("the C compiler refuses the kernel's source: 1:")
    assert "y" in caught.value.message


def test_a_machine_without_a_compiler(monkeypatch):
    monkeypatch.setattr(c_sources.shutil, "which", lambda name: None)
    assert rendered(calling("third_of", "float third_of(float x) { return x / 3; }")) == (
        "the kernel's source is C, and this machine has no compiler for it\n"
        "hint: install one of cc, gcc, clang"
    )
    source = 'extern "C" float third_of(float x) { return x / 3; }'
    assert rendered(calling("third_of", source)) == (
        "the kernel's source is C++, and this machine has no compiler for it\n"
        "hint: install one of c++, g++, clang++"
    )


@needs_compiler
def test_every_thread_makes_its_own_call():
    source = "void bump(float *p, float x) { *p += x; } float twice(float x) { return 2 * x; }"

    @T.prim_func
    def kernel(A: T.Tensor((2, 8), "float32"), C: T.Tensor((2, 1), "float32")):
        T.import_source(source)
        with T.Kernel(2, threads=8) as bx:
            tx = T.get_thread_binding()
            T.call_extern("void", "bump", T.address_of(A[bx, tx]), T.cast(tx, "float32"))
            doubled = T.call_extern("float32", "twice", A[bx, tx])
            T.sync_threads()
            A[bx, 7 - tx] = doubled

    @T.prim_func
    def repeated(C: T.Tensor((2, 1), "float32")):
        T.import_source(source)
        with T.Kernel(2, threads=8) as bx:
            T.call_extern("void", "bump", T.address_of(C[bx, 0]), T.float32(1))

    a, c = np.ones((2, 8), np.float32), np.zeros((2, 1), np.float32)
    doubled = 2 * (a + np.arange(8, dtype=np.float32))
    check_everywhere(kernel, {"A": a, "C": c}, equals(A=doubled[:, ::-1]))
    check_everywhere(repeated, {"C": c}, equals(C=c + 8))


SCALE = """__global__ void scale(float *a, float s, int n) {
  int i = blockIdx.x * 32 + threadIdx.x;
  if (i < n) a[i] *= s;
}
"""


def scaling(threads=32):
    N = T.dynamic("N")

    @T.prim_func
    def kernel(A: T.Tensor((N,), "float32"), s: T.float32):
        T.CUDASourceCodeKernel(
            T.ceildiv(N, 32), threads=threads, source_code_or_path=SCALE, entry_name="scale"
        )

    return kernel


def test_cuda_source_is_part_of_the_text():
    kernel = tw.compile(scaling(), target="cuda:sm_80")
    assert SCALE.replace("__global__", 'extern "C" __global__') in kernel.source
    with pytest.raises(UnsupportedError) as caught:
        tw.compile(scaling(threads=(16, 2)), target="cuda:sm_80")
    assert f"{caught.value.message}\nhint: {caught.value.hint}" == (
        "blocks of CUDA source have threads along x only\nhint: compute y and z from threadIdx.x"
    )


@pytest.mark.nvrtc
def test_cuda_source_runs_from_its_ptx():
    a = np.arange(70, dtype=np.float32)
    tw.compile(scaling(), target="ptx:sm_80")(a, 3.0)
    np.testing.assert_array_equal(a, np.arange(70, dtype=np.float32) * 3)
