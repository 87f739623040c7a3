"""Inputs that are fetched ahead of their use: large ones that are read in long runs."""

import re

import pytest
import torch

import tileworkbench as tw
from tileworkbench.bench.probes import host_isa
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
    kernel = tw.compile(elementwise.gelu(4096, 2048, "float32"), target="cpu")
    lines = max(1, 4 * host_isa().vector_bits // 8 // 64)
    assert kernel.source.count("call void @llvm.prefetch") == lines
    ahead = {4096 + 64 * line for line in range(lines)}
    assert ahead <= {int(each) for each in re.findall(r"ptr %\w+, i64 (\d+)", kernel.source)}


def test_fetching_past_the_end() -> None:
    x = torch.arange(2048 * 2048, dtype=torch.float32).reshape(2048, 2048)
    kernel = tw.compile(elementwise.add(2048, 2048, "float32"), target="cpu")
    assert "llvm.prefetch" in kernel.source
    assert torch.equal(kernel(x, x), 2 * x)
