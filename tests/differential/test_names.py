"""Names of the user's in generated code: any identifier of Python is one."""

from __future__ import annotations

import pytest
import torch

import tileworkbench as tw
import tileworkbench.language as T
from tests.capability import require
from tileworkbench.compiler.device.nvidia.nvrtc import missing_nvrtc


@T.prim_func
def größe(ä: T.Tensor((64,), "float32"), λ: T.Tensor((64,), "float32"), 数: T.int32):
    with T.Kernel(1, threads=32) as ブ:
        é = T.alloc_shared((64,), "float32")
        T.copy(ä, é)
        for ö in T.Parallel(64):
            å = é[ö] + 数
            λ[ö] = å + ブ


@pytest.mark.parametrize("target", ["cpu", "sim:sm_80", "ptx:sm_80"])
def test_letters_beyond_ascii(target: str) -> None:
    if target.startswith("ptx"):
        require("nvrtc", missing_nvrtc())
    kernel = tw.compile(größe, target=target)
    a, b = torch.randn(64), torch.zeros(64)
    kernel(a, b, 3)
    torch.testing.assert_close(b, a + 3)
    assert kernel.name == "größe"
