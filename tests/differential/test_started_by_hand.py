"""T.tma_copy at a barrier of the kernel's own, and T.wgmma_gemm with its waits: what each target
makes of them, and the result.
"""

from typing import Any

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench.compiler.device.nvidia import nvrtc
from tileworkbench.compiler.diagnostics import DeadlockError

M, N, K = 128, 128, 256


def ring(elect: bool, pending: int, plain: bool = False) -> Any:
    """A role that loads into two stages, and one that multiplies, `pending` products behind."""
    arrivals = 1 if elect else 128
    multiply = T.gemm if plain else T.wgmma_gemm
    wait = (lambda count: None) if plain else T.wait_wgmma

    @T.prim_func
    def kernel(
        A: T.Tensor((M, K), "float16"),
        B: T.Tensor((K, N), "float16"),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(1, threads=256):
            A_shared = T.alloc_shared((2, M, 64), "float16")
            B_shared = T.alloc_shared((2, 64, N), "float16")
            total = T.alloc_fragment((M, N), "float32")
            loaded = T.alloc_barrier([arrivals, arrivals])
            used = T.alloc_barrier([128, 128])
            with T.ws(1):
                for k in range(4):
                    T.mbarrier_wait_parity(used[k % 2], (k // 2) % 2 ^ 1)
                    full = loaded[k % 2]
                    T.tma_copy(A[0, k * 64], A_shared[k % 2, :, :], barrier=full)
                    T.tma_copy(B[k * 64, 0], B_shared[k % 2, :, :], barrier=full)
                    if elect:
                        if T.shuffle_elect(128):
                            T.mbarrier_arrive(loaded[k % 2])
                    else:
                        T.mbarrier_arrive(loaded[k % 2])
            with T.ws(0):
                T.clear(total)
                for k in range(4):
                    T.mbarrier_wait_parity(loaded[k % 2], (k // 2) % 2)
                    multiply(A_shared[k % 2, :, :], B_shared[k % 2, :, :], total)
                    wait(pending)
                    if k >= pending:
                        T.mbarrier_arrive(used[(k - pending) % 2])
                wait(0)
                T.copy(total, C)

    return kernel


def check(program: Any, target: str) -> tw.Kernel:
    kernel = tw.compile(program, target=target)
    rng = np.random.default_rng(0)
    a = rng.standard_normal((M, K)).astype(np.float16)
    b = rng.standard_normal((K, N)).astype(np.float16)
    c = np.zeros((M, N), np.float32)
    kernel(a, b, c)
    np.testing.assert_allclose(c, a.astype(np.float32) @ b.astype(np.float32), atol=1e-3)
    return kernel


def code(kernel: tw.Kernel) -> str:
    return kernel.source.partition('extern "C"')[2]


CASES = [(False, 0), (True, 0), (False, 1), (True, 1)]


@pytest.mark.parametrize(("elect", "pending"), CASES)
def test_loads_and_products_are_started_on_sm_90a(elect: bool, pending: int) -> None:
    text = code(check(ring(elect, pending), "sim:sm_90a"))
    # The loads tell the kernel's own barrier, nobody waits where they start, and the products are
    # waited for where the kernel says.
    assert text.count("mbarrier_expect(smem_address(loaded)") == 2
    assert text.count("tensor_load_2(") == 3 and text.count("mbarrier_try_wait(") == 2
    assert text.count("wgmma_commit()") == 1
    assert [text.count(f"wgmma_wait_{each}()") for each in (0, 1)] == [2 - pending, pending]


@pytest.mark.nvrtc
@pytest.mark.parametrize("case", CASES[::3])
def test_the_ptx_of_sm_90a(case: tuple[bool, int]) -> None:
    if reason := nvrtc.missing_nvrtc():
        pytest.skip(reason)
    check(ring(*case), "ptx:sm_90a")


def test_loads_without_products_of_warpgroups() -> None:
    text = code(check(ring(True, 0, plain=True), "sim:sm_90"))
    assert text.count("mbarrier_expect(smem_address(loaded)") == 2 and "mma_m16n8k16" in text
    assert "wgmma_m64" not in text


def test_threads_do_it_where_there_is_no_engine() -> None:
    text = code(check(ring(False, 1, plain=True), "sim:sm_80"))
    assert "tensor_load_2(" not in text and "wgmma_m64" not in text


def test_a_cpu_does_it_where_it_starts() -> None:
    check(ring(False, 1), "cpu")


def alone(number: int, arrivals: int = 1) -> Any:
    """One load, at whose barrier the thread of that number arrives."""

    @T.prim_func
    def kernel(A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=128):
            tile = T.alloc_shared((64, 64), "float16")
            loaded = T.alloc_barrier(arrivals)
            T.tma_copy(A, tile, barrier=loaded)
            if T.get_thread_binding() == number:
                T.mbarrier_arrive(loaded)
            T.mbarrier_wait_parity(loaded, 0)
            T.copy(tile, B)

    return kernel


@pytest.mark.parametrize(("number", "own"), [(0, 1), (5, 0)])
def test_the_thread_that_starts_a_load_arrives_behind_it_or_all_wait_for_it(
    number: int, own: int
) -> None:
    """The phase must not complete before somebody has said what bytes come."""
    kernel = tw.compile(alone(number), target="sim:sm_90")
    a, b = np.ones((64, 64), np.float16), np.zeros((64, 64), np.float16)
    kernel(a, b)
    assert (a == b).all()
    assert code(kernel).count("mbarrier_expect(smem_address(loaded)") == own
    assert "tensor_load_2(" in code(kernel)


def test_a_barrier_that_counts_arrivals_which_never_come() -> None:
    kernel = tw.compile(alone(0, arrivals=128), target="sim:sm_90a")
    with pytest.raises(DeadlockError) as caught:
        kernel(np.ones((64, 64), np.float16), np.zeros((64, 64), np.float16))
    text = caught.value.render()
    assert "wait for parity 0 of 'loaded[0]', which lacks 127 of 128 arrivals" in text
    line, caret = text.splitlines()[2:4]
    assert line.endswith("| T.mbarrier_wait_parity(loaded, 0)")
    assert caret.endswith("| " + "^" * len("T.mbarrier_wait_parity(loaded, 0)"))
