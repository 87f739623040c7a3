"""Inputs that are fetched ahead of their use: large ones that are read in long runs."""

import re

import pytest
import torch

import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench.bench.probes import host_isa
from tileworkbench.compiler.driver import clear_memory_cache
from tileworkbench.compiler.emit.llvm.isa import Isa
from tileworkbench.compiler.emit.llvm.text import FunctionWriter
from tileworkbench.kernels import dequant_gemv, elementwise, matmul, rmsnorm


@pytest.mark.parametrize(
    ("program", "count"),
    [
        (elementwise.add(4096, 4096, "float32"), 2),
        (elementwise.add(1024, 1024, "float32"), 0),  # lies in the last cache
        # Not the weights, which every row reads again. Four vectors at once, of half the bytes.
        (rmsnorm(4096, 4096, "bfloat16"), max(1, 2 * host_isa().vector_bits // 8 // 64)),
        (dequant_gemv(3584, 14336, "int4", 128, "bfloat16"), 1),
        (matmul(4096, 4096, 4096), 0),  # tiles jump from row to row
    ],
    ids=["large", "small", "rows", "packed", "tiles"],
)
def test_what_is_fetched_ahead(program: object, count: int) -> None:
    kernel = tw.compile(program, target="cpu")
    assert kernel.source.count("call void @llvm.prefetch") == count


def test_every_line_of_several_vectors_is_fetched() -> None:
    """Four vectors of a long function are one load."""
    kernel = tw.compile(elementwise.gelu(4096, 4096, "float32"), target="cpu")
    lines = max(1, 4 * host_isa().vector_bits // 8 // 64)
    assert kernel.source.count("call void @llvm.prefetch") == lines
    ahead = {8192 + 64 * line for line in range(lines)}
    assert ahead <= {int(each) for each in re.findall(r"ptr %\w+, i64 (\d+)", kernel.source)}


def test_fetching_past_the_end() -> None:
    x = torch.arange(4096 * 2048, dtype=torch.float32).reshape(4096, 2048)
    kernel = tw.compile(elementwise.add(4096, 2048, "float32"), target="cpu")
    assert "llvm.prefetch" in kernel.source
    assert torch.equal(kernel(x, x), 2 * x)


def column_sums(M: int, N: int, block_M: int, block_N: int) -> object:
    @T.prim_func
    def column_sums(X: T.Tensor((M, N), "float32"), Y: T.Tensor((N,), "float32")):
        with T.Kernel(N // block_N) as bx:
            tile = T.alloc_fragment((block_M, block_N), "float32")
            total = T.alloc_fragment((block_N,), "float32")
            T.clear(total)
            for k in T.serial(M // block_M):
                T.copy(X[k * block_M, bx * block_N], tile)
                T.reduce_sum(tile, total, dim=0, clear=False)
            T.copy(total, Y[bx * block_N])

    return column_sums


@pytest.mark.parametrize("near", [False, True])
def test_rows_of_columns_are_fetched_ahead(near: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run is 512 bytes, so 16 rows of 4 KiB lie between a line and what is fetched, or 8 of them
    and it goes to the first cache.
    """
    monkeypatch.setattr(Isa, "near_rows", near)
    clear_memory_cache()
    kernel = tw.compile(column_sums(4096, 1024, 64, 256), target="cpu")
    places = re.findall(r"(%\w+) = getelementptr i8, ptr %\w+, i64 (\d+)", kernel.source)
    locality, rows = (3, 8) if near else (2, 16)
    call = rf"call void @llvm.prefetch\S*\(ptr (%\w+), i32 0, i32 {locality}"
    fetched = re.findall(call, kernel.source)
    run = {str(rows * 4096 + 64 * line) for line in range(8)}
    assert fetched
    assert {dict(places)[name] for name in fetched} <= run
    x = torch.rand(4096, 1024)
    y = torch.empty(1024)
    kernel(x, y)
    torch.testing.assert_close(y, x.sum(0))
    clear_memory_cache()


@pytest.mark.parametrize(("level", "locality"), [(1, 3), (2, 2)])
def test_the_cache_of_a_level(level: int, locality: int) -> None:
    writer = FunctionWriter("fetch", "void", "ptr %p")
    writer.prefetch("%p", level)
    text = writer.finish().text
    assert f"@llvm.prefetch.p0(ptr %p, i32 0, i32 {locality}, i32 1)" in text
