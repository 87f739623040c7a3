"""Products of bytes by warpgroups whose operands do not lie along K: threads turn them first."""
# Annotations are evaluated where kernels are defined: no `from __future__ import annotations`.

from typing import Any

import pytest
import torch

import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench.compiler.device.nvidia import nvrtc
from tileworkbench.kernels import matmul

FLOAT8 = {T.float8_e4m3fn: torch.float8_e4m3fn, T.float8_e5m2: torch.float8_e5m2}


def product(
    dtype: Any = T.int8,
    sizes: tuple[int, int, int] = (128, 128, 128),
    block: tuple[int, int, int] = (64, 64, 64),
    **more: Any,
) -> Any:
    m, n, k = block
    names = {"out_dtype": T.float32} if dtype in FLOAT8 else {}
    options = {"num_stages": 2, "threads": 128, **names, **more}
    return matmul(*sizes, dtype, block_M=m, block_N=n, block_K=k, **options)


ROWS: dict[str, tuple[dict[str, Any], str]] = {
    "B along N": ({}, "B_shared_turned"),
    "A along M": ({"trans_A": True, "trans_B": True}, "A_shared_turned"),
    "both": ({"trans_A": True}, "A_shared_turned"),
    "two warpgroups": ({"threads": 256, "block": (128, 64, 64)}, "B_shared_turned"),
    "deep": ({"block": (64, 64, 128), "sizes": (64, 64, 256)}, "B_shared_turned"),
    "wide": ({"block": (64, 128, 32)}, "B_shared_turned"),
    "ragged": ({"sizes": (72, 80, 112)}, "B_shared_turned"),
    "unsigned": ({"dtype": T.uint8}, "B_shared_turned"),
    "e4m3": ({"dtype": T.float8_e4m3fn}, "B_shared_turned"),
    "e5m2": ({"dtype": T.float8_e5m2}, "B_shared_turned"),
}


def operands(name: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    options, _ = ROWS[name]
    m, n, k = options.get("sizes", (128, 128, 128))
    dtype = options.get("dtype", T.int8)
    low = 0 if dtype is T.uint8 else -4
    left, right = (torch.randint(low, 5, shape) for shape in ((m, k), (k, n)))
    kind = FLOAT8.get(dtype, torch.uint8 if dtype is T.uint8 else torch.int8)
    a = (left.T if options.get("trans_A") else left).contiguous().to(torch.float32).to(kind)
    b = (right.T if options.get("trans_B") else right).contiguous().to(torch.float32).to(kind)
    return left, right, a, b


@pytest.mark.parametrize("name", ROWS)
def test_products(name: str) -> None:
    options, turned = ROWS[name]
    left, right, a, b = operands(name)
    kernel = tw.compile(product(**options), target="sim:sm_90a")
    assert torch.equal(kernel(a, b).double(), left.double() @ right.double())
    assert turned in kernel.layouts
    assert "wgmma m64n" in "\n".join(kernel.passes["lower_to_threads"].program.notes)


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ROWS if name != "both"]


@pytest.mark.nvrtc
@pytest.mark.parametrize("name", ["both", *SLOW])
def test_from_ptx(name: str) -> None:
    if reason := nvrtc.missing_nvrtc():
        pytest.skip(reason)
    left, right, a, b = operands(name)
    kernel = tw.compile(product(**ROWS[name][0]), target="ptx:sm_90a")
    assert torch.equal(kernel(a, b).double(), left.double() @ right.double())
    assert "wgmma.mma_async" in kernel.asm and "prmt" in kernel.asm


def test_banks_are_met_in_twos_at_most() -> None:
    kernel = tw.compile(product(block=(128, 128, 64)), target="sim:sm_90a")
    counts = [each for each in kernel.accesses if each.buffer.startswith("B_shared")]
    assert len(counts) >= 4 and max(each.factor for each in counts) <= 2


def test_without_the_pass_warps_multiply() -> None:
    left, right, a, b = operands("B along N")
    kernel = tw.compile(product(), target="sim:sm_90a", disable=("turn_operands",))
    assert torch.equal(kernel(a, b).double(), left.double() @ right.double())
    assert "mma.sync" in "\n".join(kernel.passes["lower_to_threads"].program.notes)
