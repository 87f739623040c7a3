"""Addresses of swizzled rows that have names in front of loops are those that plain sums give."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import tileworkbench as tw
import tileworkbench.language as T
from tests.capability import require
from tileworkbench.compiler.device.nvidia.nvrtc import missing_nvrtc
from tileworkbench.compiler.driver import clear_memory_cache
from tileworkbench.compiler.emit.cuda import addresses
from tileworkbench.kernels import flash_attention, matmul

pytestmark = pytest.mark.nvrtc


def product(M: int, N: int, K: int, **options: Any) -> tuple[Any, list[torch.Tensor]]:
    generator = torch.Generator().manual_seed(M * N + K)
    dtype = options.setdefault("dtype", "float16")
    transposed = options.get("trans_A", False), options.get("trans_B", False)
    shapes = [(K, M) if transposed[0] else (M, K), (N, K) if transposed[1] else (K, N)]
    return matmul(M, N, K, **options), [values(dtype, shape, generator) for shape in shapes]


def values(dtype: str, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    if dtype == "int8":
        return torch.randint(-8, 8, shape, generator=generator).to(torch.int8)
    return torch.randn(shape, generator=generator).to(getattr(torch, dtype))


def attention(dim: int, **options: Any) -> tuple[Any, list[torch.Tensor]]:
    generator = torch.Generator().manual_seed(dim)
    kernel = flash_attention(1, 1, 64, 128, dim, dtype="float16", **options)
    shapes = [(1, 64, 1, dim), (1, 128, 1, dim), (1, 128, 1, dim)]
    return kernel, [values("float16", shape, generator) for shape in shapes]


def twice(M: int) -> tuple[Any, list[torch.Tensor]]:
    """Two loops one after the other over a tile that the first of them declares."""

    @T.prim_func
    def kernel(A: T.Tensor((M, 64), "float16"), C: T.Tensor((2, M, 64), "float32")):
        with T.Kernel(1, threads=128):
            total = T.alloc_fragment((M, 64), "float32")
            rows = T.alloc_shared((M, 64), "float16")
            for half in range(2):
                T.clear(total)
                for step in T.serial(2):
                    T.copy(A, rows)
                    T.gemm(rows, rows, total, transpose_B=True)
                    for i, j in T.Parallel(M, 64):
                        total[i, j] += T.cast(step + half, "float32")
                T.copy(total, C[half, 0, 0])

    generator = torch.Generator().manual_seed(M)
    made = values("float16", (M, 64), generator)
    return kernel, [made, torch.zeros(2, M, 64)]


CASES = {
    "NN": lambda: product(64, 64, 64, block_M=64, block_N=64, block_K=32, num_stages=3),
    "NT": lambda: product(64, 64, 128, block_M=64, block_N=64, block_K=64, trans_B=True),
    "TN": lambda: product(64, 128, 64, block_M=64, block_N=128, block_K=32, trans_A=True),
    "int8": lambda: product(
        64, 64, 128, block_M=64, block_N=64, block_K=64, trans_B=True, dtype="int8"
    ),
    "attention 64": lambda: attention(64, block_M=64, block_N=64),
    "attention 128": lambda: attention(128, block_M=64, block_N=32),
    "two loops": lambda: twice(64),
}


@pytest.fixture
def fresh() -> Iterator[None]:
    """No kernel of this test was compiled before, or is found by a test after it."""
    clear_memory_cache()
    yield
    clear_memory_cache()


@pytest.mark.parametrize("name", CASES)
@pytest.mark.usefixtures("fresh")
def test_named_rows_are_the_plain_sums(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    require("nvrtc", missing_nvrtc())
    results = []
    for kept in (-1, 1000):
        monkeypatch.setattr(addresses, "_KEPT", kept)
        clear_memory_cache()
        program, inputs = CASES[name]()
        kernel = tw.compile(program, target="ptx:sm_80")
        assert ("unsigned rows_of_" in kernel.source) == (kept < 0)
        returned = kernel(*inputs)
        several = returned if isinstance(returned, list) else [returned]
        written = several if returned is not None else inputs
        results.append([each.clone() for each in written])
    assert results[0][0].abs().max() > 0
    for named, plain in zip(*results, strict=True):
        assert torch.equal(named, plain)


def test_six_rows_are_sums_and_more_have_names() -> None:
    few, _ = product(128, 128, 64, block_M=128, block_N=128, block_K=32, num_stages=3)
    assert "rows_of_" not in tw.compile(few, target="cuda:sm_80").source
    many, _ = attention(64, block_M=64, block_N=64)
    text = tw.compile(many, target="cuda:sm_80").source
    names = [line.split()[1] for line in text.splitlines() if "unsigned rows_of_" in line]
    assert len(names) == len(set(names)) > 0
    loop = text.index("for (int", text.index("rows_of_"))
    assert all(text.index(f"unsigned {name} ") < loop for name in names)
