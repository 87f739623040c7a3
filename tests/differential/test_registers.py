"""Registers that roles move between them with T.set_max_nreg: on the target that can, and its
results there and elsewhere.
"""

from typing import Any

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench.compiler.device.nvidia import nvrtc


@T.prim_func
def kernel(A: T.Tensor((2, 128), "float32"), B: T.Tensor((2, 128), "float32")):
    with T.Kernel(1, threads=384):
        tx = T.get_thread_binding()
        with T.ws(0):
            T.set_max_nreg(40, 0)
        with T.ws(1):
            T.set_max_nreg(232, 1)
            B[0, tx - 128] = A[0, tx - 128] + 1
        with T.ws(2):
            T.inc_max_nreg(232)
            B[1, tx - 256] = A[1, tx - 256] + 2


def check(target: str) -> Any:
    compiled = tw.compile(kernel, target=target)
    a, b = np.arange(256, dtype=np.float32).reshape(2, 128), np.zeros((2, 128), np.float32)
    compiled(a, b)
    np.testing.assert_array_equal(b, a + np.array([[1], [2]], np.float32))
    return compiled


def test_registers_are_moved_on_sm_90a() -> None:
    text = check("sim:sm_90a").source.partition('extern "C"')[2]
    assert "__launch_bounds__(384, 1)" in text
    assert (text.count("dec_registers_40()"), text.count("inc_registers_232()")) == (1, 2)


@pytest.mark.nvrtc
def test_the_ptx_of_sm_90a() -> None:
    if reason := nvrtc.missing_nvrtc():
        pytest.skip(reason)
    check("ptx:sm_90a")


def test_on_a_cpu_it_has_no_effect() -> None:
    assert "registers_" not in check("cpu").source


@T.prim_func
def product(A: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float32")):
    with T.Kernel(1, threads=128):
        a = T.alloc_shared((64, 64), "float16")
        c = T.alloc_fragment((64, 64), "float32")
        T.copy(A, a)
        T.wgmma_gemm(a, a, c, clear_accum=True)
        T.wait_wgmma(0)
        T.copy(c, C)


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_89", "sm_90", "sm_100", "sm_120", "gfx942"])
@pytest.mark.parametrize(
    ("written", "line", "construct", "hint"),
    [
        (
            kernel,
            "T.set_max_nreg(40, 0)",
            "T.set_max_nreg",
            "leave it out: every thread has an equal share here",
        ),
        (
            product,
            "T.wgmma_gemm(a, a, c, clear_accum=True)",
            "T.wgmma_gemm",
            "use T.gemm, which multiplies with",
        ),
    ],
)
def test_what_only_sm_90a_has(
    written: Any, line: str, construct: str, hint: str, arch: str
) -> None:
    with pytest.raises(tw.UnsupportedError) as caught:
        tw.compile(written, target=f"sim:{arch}")
    assert caught.value.message == f"{construct} is not there on '{arch}'"
    after = {"T.wgmma_gemm": " MFMA" if arch == "gfx942" else " mma.sync"}.get(construct, "")
    before = "" if arch == "gfx942" else "compile for 'sm_90a', or "
    assert caught.value.hint == before + hint + after
    assert line in caught.value.render()
