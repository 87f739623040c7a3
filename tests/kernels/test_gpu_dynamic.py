"""Symbolic extents on GPUs: sizes that no tile divides, sizes of zero, and how wide accesses are
where it is known what divides them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench.compiler.diagnostics import ArgumentError
from tileworkbench.compiler.driver import clear_memory_cache

NARROW = "K % 8 == 0 and N % 8 == 0"
TARGETS = ["sim:sm_80", pytest.param("ptx:sm_80", marks=pytest.mark.nvrtc)]


def product(whole_vectors: bool) -> Any:
    """`C = A @ B` of any shape; with `whole_vectors` of rows that 8 divides."""
    M, N, K = T.dynamic("M"), T.dynamic("N"), T.dynamic("K")

    @T.prim_func
    def product(
        A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N))
    ):
        if whole_vectors:
            T.assume(K % 8 == 0)
            T.assume(N % 8 == 0)
        with T.Kernel(T.ceildiv(N, 32), T.ceildiv(M, 32), threads=64) as (bx, by):
            a = T.alloc_shared((32, 32), "float16")
            b = T.alloc_shared((32, 32), "float16")
            c = T.alloc_fragment((32, 32), "float32")
            T.clear(c)
            for k in T.Pipelined(T.ceildiv(K, 32), num_stages=2):
                T.copy(A[by * 32, k * 32], a)
                T.copy(B[k * 32, bx * 32], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * 32, bx * 32])

    return product


def run(kernel: tw.Kernel, m: int, n: int, k: int) -> None:
    random = np.random.default_rng(m + n + k)
    a, b = random.standard_normal((m, k)), random.standard_normal((k, n))
    a, b, c = a.astype(np.float16), b.astype(np.float16), np.full((m, n), 7.0, np.float32)
    kernel(a, b, c)
    np.testing.assert_allclose(c, a.astype(np.float64) @ b.astype(np.float64), atol=1e-4)


@pytest.mark.covering(1)
@pytest.mark.parametrize("whole_vectors", [False, True])
@pytest.mark.parametrize("target", TARGETS)
def test_one_kernel_for_every_size(target: str, whole_vectors: bool) -> None:
    kernel = tw.compile(product(whole_vectors), target=target)
    sizes = [(33, 40, 48), (1, 8, 8), (64, 64, 64), (16, 16, 0)]
    for size in [*sizes, *([] if whole_vectors else [(35, 41, 7), (31, 1, 33)])]:
        run(kernel, *size)


@pytest.mark.parametrize("target", TARGETS)
def test_a_call_takes_the_code_that_fits(target: str) -> None:
    """Whatever code runs, the result is that of torch."""
    torch = pytest.importorskip("torch")
    kernel = tw.compile(product(False), target=target)
    (aligned,) = kernel.variants
    assert (kernel.assumes, aligned.assumes) == ((), ("K % 8 == 0", "N % 8 == 0"))
    assert kernel.view().variants == ("code for every size", f"code where {NARROW}")
    random = torch.Generator().manual_seed(0)
    sizes = {(33, 40, 48): 1, (35, 41, 7): 0, (16, 8, 12): 0, (16, 12, 8): 0, (64, 64, 64): 1}
    for (m, n, k), taken in {**sizes, (16, 16, 0): 1, (16, 15, 0): 0}.items():
        a = torch.randn(m, k, generator=random).half()
        b = torch.randn(k, n, generator=random).half()
        c = torch.full((m, n), 7.0)
        kernel(a, b, c)
        torch.testing.assert_close(c.double(), a.double() @ b.double(), atol=1e-4, rtol=1e-5)
        lines = kernel.view().variants
        assert [line.endswith(": taken by the last call") for line in lines] == [not taken, taken]


@pytest.mark.parametrize("target", TARGETS)
def test_tensors_that_begin_between_vectors_take_the_code_by_element(target: str) -> None:
    kernel = tw.compile(product(False), target=target)
    m, n, k = 32, 32, 32
    for offset in (0, 1, 8):
        memory = np.arange(m * k + 8, dtype=np.float16) % 7
        a = memory[offset : offset + m * k].reshape(m, k)
        b, c = np.ones((k, n), np.float16), np.zeros((m, n), np.float32)
        kernel(a, b, c)
        np.testing.assert_array_equal(c, a.astype(np.float32) @ b.astype(np.float32))
        assert kernel.view().variants[int(offset % 8 == 0)].endswith(" by the last call")
    with pytest.raises(ArgumentError) as wrong:
        kernel.variants[0](memory[1 : 1 + m * k].reshape(m, k), b, c)
    assert wrong.value.message == ("'product': 'A' begins at an address that is no multiple of 16")


def test_code_for_whole_vectors_moves_16_bytes_at_once() -> None:
    kernel = tw.compile(product(False), target="sim:sm_80")
    (aligned,) = kernel.variants

    def widths(of: tw.Kernel, scope: str) -> dict[tuple[str, str], int]:
        return {(x.buffer, x.kind): x.width for x in of.accesses if x.scope == scope}

    assert widths(kernel, "global") == {("A", "load"): 2, ("B", "load"): 2, ("C", "store"): 4}
    assert widths(aligned, "global") == {
        **{("A", "cp.async"): 16, ("B", "cp.async"): 16},
        ("C", "store"): 8,
    }

    def sectors(of: tw.Kernel) -> float:
        m, n, k = 64, 64, 64
        a, b = np.ones((m, k), np.float16), np.ones((k, n), np.float16)
        report = of.simulate(a, b, np.zeros((m, n), np.float32)).report
        found = [x for x in report.accesses if x.buffer == "C"]
        return sum(x.sectors for x in found) / sum(x.ideal_sectors for x in found)

    assert sectors(kernel) == 2 and sectors(aligned) == 1


@pytest.mark.parametrize("target", TARGETS)
def test_vector_loops_of_single_threads_count_too(target: str) -> None:
    m, n = T.dynamic("m, n")

    @T.prim_func
    def double(A: T.Tensor((m, n), "float32"), B: T.Tensor((m, n), "float32")):
        T.assume(n >= 128)
        with T.Kernel(m, threads=32) as row:
            thread = T.get_thread_binding(0)
            for i in T.vectorized(4):
                B[row, thread * 4 + i] = A[row, thread * 4 + i] * 2

    kernel = tw.compile(double, target=target)
    (aligned,) = kernel.variants
    assert aligned.assumes == ("n % 4 == 0",)
    assert [{x.width for x in of.accesses} for of in (kernel, aligned)] == [{4}, {16}]
    for size in (128, 130):
        a = np.arange(3.0 * size, dtype=np.float32).reshape(3, size)
        b = np.zeros_like(a)
        kernel(a, b)
        np.testing.assert_array_equal(b[:, :128], 2 * a[:, :128])


def test_a_variant_is_a_kernel_of_its_own() -> None:
    """It checks what it assumes, and says in every view what that is."""
    kernel = tw.compile(product(False), target="sim:sm_80")
    (aligned,) = kernel.variants
    assert repr(kernel).endswith(", 10 changed | 2 variants>")
    assert repr(aligned).endswith(f", 10 changed | where {NARROW}>")
    assert "cp_async_16" in aligned.source and "T.assume(K % 8 == 0)" in str(aligned.program)
    assert [timing.step for timing in kernel.stats.timings] == [
        *("analysis", "passes", "variant", "codegen")
    ]
    assert aligned.passes[-1].program != kernel.passes[-1].program
    with pytest.raises(ArgumentError) as wrong:
        run(aligned, 16, 12, 8)
    assert wrong.value.message == "'product': the kernel assumes 'N % 8 == 0', and N = 12"


@pytest.mark.nvrtc
def test_code_is_compiled_by_nvrtc_once_a_call_takes_it() -> None:
    clear_memory_cache()
    kernel = tw.compile(product(False), target="ptx:sm_80")
    (aligned,) = kernel.variants
    assert kernel.stats.resources == aligned.stats.resources == ()
    run(kernel, 16, 16, 16)
    assert kernel.stats.resources == () and len(aligned.stats.resources) == 1
    run(kernel, 16, 15, 16)
    assert len(kernel.stats.resources) == 1
    assert kernel.stats.timings[-1].step == "nvrtc"


def test_no_variant_where_it_would_be_the_same_code() -> None:
    """The program says so itself, vectors are whole anyway, or nothing is moved by tile."""
    n = T.dynamic("n")

    @T.prim_func
    def rows(A: T.Tensor((n, 64), "float16"), B: T.Tensor((n, 64), "float16")):
        with T.Kernel(n, threads=32) as bx:
            tile = T.alloc_fragment((64,), "float16")
            T.copy(A[bx, 0], tile)
            T.copy(tile, B[bx, 0])

    @T.prim_func
    def one_by_one(A: T.Tensor((n,), "float32")):
        with T.Kernel(1, threads=1):
            for i in T.serial(n):
                A[i] = A[i] * 2.0

    @T.prim_func
    def permuted(A: T.Tensor((n,), "float32"), P: T.Tensor((n,), "int32")):
        with T.Kernel(T.ceildiv(n, 32), threads=32) as bx:
            for i in T.Parallel(32):
                A[P[bx * 32 + i]] = 1.0

    for program in (product(True), rows, one_by_one, permuted):
        assert tw.compile(program, target="sim:sm_80").variants == ()
    assert tw.compile(product(False), target="cpu").variants == ()


def test_rows_of_any_length_are_read_by_element() -> None:
    source = tw.compile(product(False), target="sim:sm_80").source
    assert "cp_async" not in source and "float2" not in source
    assert "< M &&" in source and "< K ? A[" in source


def test_rows_of_whole_vectors_are_read_by_vector() -> None:
    """The last block is still cut: by vectors, none of which lies across the edge."""
    source = tw.compile(product(True), target="sim:sm_80").source
    assert "cp_async_16_or_zero(" in source and "cp_async_4" not in source
    assert "*(float2*)(&C[" in source and "< N) {" in source


@pytest.mark.parametrize("target", ["cpu", *TARGETS])
def test_what_a_kernel_assumes_is_checked(target: str) -> None:
    kernel = tw.compile(product(True), target=target)
    with pytest.raises(ArgumentError) as wrong:
        run(kernel, 16, 16, 7)
    assert wrong.value.message == "'product': the kernel assumes 'K % 8 == 0', and K = 7"


@pytest.mark.parametrize("target", ["cpu", *TARGETS])
def test_a_tensor_of_nothing(target: str) -> None:
    kernel = tw.compile(product(False), target=target)
    for size in ((0, 8, 16), (16, 0, 16)):
        with pytest.raises(ArgumentError) as wrong:
            run(kernel, *size)
        assert wrong.value.message == "'product': the grid is empty, there is no block to run"


@pytest.mark.parametrize("target", TARGETS)
def test_a_nest_of_symbolic_extent(target: str) -> None:
    n = T.dynamic("n")

    @T.prim_func
    def scale(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
        with T.Kernel(2, threads=32) as bx:
            for i in T.Parallel(n):
                if i % 2 == bx:
                    B[i] = A[i] * 2.0

    kernel = tw.compile(scale, target=target)
    for size in (0, 1, 31, 100):
        a, b = np.arange(size, dtype=np.float32), np.zeros(size, np.float32)
        kernel(a, b)
        np.testing.assert_array_equal(b, a * 2)
