"""Architectures that are rows of tables: what the library computes on them, without a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tests.kernels.test_gpu import CASES, run
from tileworkbench import kernels
from tileworkbench.compiler.diagnostics import ResourceError, UnsupportedError
from tileworkbench.compiler.machine.tables import machine_of

NEW = ("sm_100", "sm_120")


@pytest.mark.covering(1)
@pytest.mark.parametrize("arch", NEW)
@pytest.mark.parametrize("name", ["matmul", "flash_attention", "softmax"])
def test_kernels_on_simulated_threads(arch: str, name: str) -> None:
    run(name, f"sim:{arch}")


@pytest.mark.nvrtc
@pytest.mark.parametrize("arch", NEW)
@pytest.mark.parametrize("name", ["matmul", "softmax"])
def test_kernels_from_their_ptx(arch: str, name: str) -> None:
    run(name, f"ptx:{arch}")


@pytest.mark.slow
@pytest.mark.nvrtc
@pytest.mark.parametrize("arch", NEW)
@pytest.mark.parametrize("execution", ["sim", "ptx"])
@pytest.mark.parametrize("name", CASES)
def test_every_kernel_of_the_library(name: str, execution: str, arch: str) -> None:
    run(name, f"{execution}:{arch}")


@pytest.mark.parametrize("arch", NEW)
def test_products_are_mma_sync(arch: str) -> None:
    for dtype, name in (("float16", "m16n8k16_f16"), ("float8_e4m3fn", "m16n32k32_e4m3")):
        page = kernels.matmul(64, 64, 64, dtype, block_M=64, block_N=64, block_K=32)
        source = tw.compile(page, target=f"sim:{arch}").source
        # Tiles come by the copy engine, which sm_100 and sm_120 have from sm_90.
        assert f"mma_{name}" in source and "tensor_load_2" in source and "wgmma" not in source
    machine = machine_of(arch)
    assert machine.box_copies("shared") is not None and machine.box_copies("global") is not None
    assert {row.name for row in machine.matrices} == {"mma.sync"}
    assert machine.atomic_lanes("float32", "global") == 4
    assert "int4" not in {row.a.dtype for row in machine.matrices}


def test_a_block_of_sm_120_has_99_kib() -> None:
    page = kernels.matmul(256, 256, 256, "float16", block_K=64, num_stages=4)
    # Four stages of two tiles, and a memory barrier for each stage, behind the tiles.
    assert tw.compile(page, target="sim:sm_100").stats.shared_bytes == 128 * 1024 + 128
    with pytest.raises(ResourceError) as caught:
        tw.compile(page, target="sim:sm_120")
    assert "'sm_120' has 101376" in str(caught.value)
    assert caught.value.hint == "num_stages=3 would fit"


def test_a_product_in_tensor_memory_is_refused_also_where_another_one_was_compiled() -> None:
    def kernel(product):  # type: ignore[no-untyped-def]
        @T.prim_func
        def main(A: T.Tensor((32, 32), "float16"), C: T.Tensor((32, 32), "float32")):
            with T.Kernel(1, threads=128):
                tile = T.alloc_shared((32, 32), "float16")
                total = T.alloc_fragment((32, 32), "float32")
                done = T.alloc_barrier([1])
                T.copy(A, tile)
                product(tile, tile, total, clear_accum=True, mbar=done[0])
                T.mbarrier_wait_parity(done[0], 0)
                T.copy(total, C)

        return main

    tw.compile(kernel(T.gemm), target="sim:sm_100")
    with pytest.raises(UnsupportedError, match=r"T\.tcgen05_gemm needs tensor memory"):
        tw.compile(kernel(T.tcgen05_gemm), target="sim:sm_100")
    tw.compile(kernel(T.tcgen05_gemm), target="cpu")


@T.prim_func
def in_tensor_memory(A: T.Tensor((32, 32), "float16"), C: T.Tensor((32, 32), "float32")):
    with T.Kernel(1, threads=128):
        total = T.alloc_tmem((32, 32), "float32")
        T.clear(total)
        T.copy(total, C)


def by_tensor_cores() -> Any:
    @T.prim_func
    def main(A: T.Tensor((32, 32), "float16"), C: T.Tensor((32, 32), "float32")):
        with T.Kernel(1, threads=128):
            tile = T.alloc_shared((32, 32), "float16")
            total = T.alloc_fragment((32, 32), "float32")
            done = T.alloc_barrier([1])
            T.copy(A, tile)
            T.tcgen05_gemm(tile, tile, total, clear_accum=True, mbar=done[0])
            T.mbarrier_wait_parity(done[0], 0)
            T.copy(total, C)

    return main


@pytest.mark.parametrize(
    "target",
    ["sim:sm_100", "ptx:sm_100", "cuda:sm_100", "sim:sm_120", "sim:sm_90a", "cuda:sm_80"],
)
@pytest.mark.parametrize(
    ("kernel", "name", "hint"),
    [
        (
            lambda: in_tensor_memory,
            "T.alloc_tmem",
            "use T.alloc_fragment for what is summed up, T.alloc_shared for operands",
        ),
        (by_tensor_cores, "T.tcgen05_gemm", "use T.gemm, which multiplies with mma.sync"),
    ],
)
def test_tensor_memory_is_refused_on_every_gpu(
    target: str, kernel: Callable[[], Any], name: str, hint: str
) -> None:
    with pytest.raises(UnsupportedError) as caught:
        tw.compile(kernel(), target=target)
    arch = target.partition(":")[2]
    found = caught.value
    assert found.message == f"{name} needs tensor memory, and there is no code for it on '{arch}'"
    assert found.hint == hint and found.span is not None
