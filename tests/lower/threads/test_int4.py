"""Products of 4-bit integers on tensor cores that have them, of bytes on those without (sm_90)."""

import re
from typing import Any

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tests.capability import require
from tileworkbench.compiler.device.nvidia.nvrtc import missing_nvrtc
from tileworkbench.compiler.sim.ptx.launch import PtxProgram
from tileworkbench.kernels import matmul

LEAST = {"int4": -8, "uint4": 0}


def small(shape: tuple[int, int], dtype: str, seed: int) -> Any:
    least = LEAST[dtype]
    return np.random.default_rng(seed).integers(least, least + 16, shape).astype(np.int32)


def pack(values: Any, dtype: str) -> Any:
    """Two neighbours in a byte, the first in the low half."""
    pairs = values.astype(np.uint8) & 15
    return (pairs[:, ::2] | pairs[:, 1::2] << 4).view(np.int8 if dtype == "int4" else np.uint8)


def instructions(source: str) -> set[str]:
    return {name.removeprefix("mma_") for name in re.findall(r"mma_m\w+", source)}


CASES = [
    ("sm_75", 64, "m8n8k32", "int4", False, False),
    ("sm_75", 64, "m8n8k32", "uint4", False, True),
    ("sm_80", 64, "m16n8k64", "int4", False, False),
    ("sm_80", 64, "m16n8k64", "int4", False, True),
    ("sm_80", 64, "m16n8k64", "int4", True, False),
    ("sm_80", 64, "m16n8k64", "uint4", True, True),
    ("sm_80", 32, "m16n8k32", "uint4", False, False),
    ("sm_80", 32, "m16n8k32", "int4", False, True),
    ("sm_89", 128, "m16n8k64", "int4", False, True),
    ("sm_90", 64, "m16n8k32", "int4", False, True),
    ("sm_90", 64, "m16n8k32", "uint4", False, False),
]


@pytest.mark.parametrize(("arch", "deep", "name", "dtype", "trans_a", "trans_b"), CASES)
def test_products_at_ragged_edges(
    arch: str, deep: int, name: str, dtype: str, trans_a: bool, trans_b: bool
) -> None:
    require("nvrtc", missing_nvrtc())
    m, n, k = 38, 72, 130
    a = small((k, m) if trans_a else (m, k), dtype, 1)
    b = small((n, k) if trans_b else (k, n), dtype, 2)
    expected = (a.T if trans_a else a) @ (b.T if trans_b else b)
    page = matmul(
        *(m, n, k, dtype), trans_A=trans_a, trans_B=trans_b, block_M=32, block_N=64, block_K=deep,
        num_stages=1 if arch == "sm_75" else 2,
    )  # fmt: skip
    for execution in ("sim", "ptx"):
        kernel = tw.compile(page, target=f"{execution}:{arch}")
        np.testing.assert_array_equal(kernel(pack(a, dtype), pack(b, dtype)), expected)
    kind = dtype[0].replace("i", "s") + ("8" if arch == "sm_90" else "4")
    assert instructions(kernel.source) == {f"{name}_{kind}"}


@pytest.mark.parametrize("dtype", LEAST)
def test_an_operand_in_registers(dtype: str) -> None:
    require("nvrtc", missing_nvrtc())

    @T.prim_func
    def main(A: T.Tensor((64, 64), dtype), B: T.Tensor((64, 64), dtype)):
        C = T.empty((64, 64), "int32")
        with T.Kernel(1, threads=128):
            a, b = T.alloc_fragment((64, 64), dtype), T.alloc_shared((64, 64), dtype)
            c = T.alloc_fragment((64, 64), "int32")
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, b, c, transpose_B=True, clear_accum=True)
            T.copy(c, C)
        return C

    a, b = small((64, 64), dtype, 1), small((64, 64), dtype, 2)
    for execution in ("cpu", "sim:sm_80", "ptx:sm_80"):
        kernel = tw.compile(main, target=execution)
        np.testing.assert_array_equal(kernel(pack(a, dtype), pack(b, dtype)), a @ b.T)
    assert "ldmatrix" in kernel.source and "A_" not in kernel.source


@pytest.mark.parametrize(
    ("kind", "pattern", "into"),
    [
        ("other signs", r"s32\.s4\.s4\.s32", "s32.u4.u4.s32"),
        ("registers of A exchanged", r"(\}, \{)(%r\d+)(,\s*)(%r\d+)", r"\1\4\3\2"),
        ("half of the products", r"(mma\.sync\S*s4\S*[^;]*;)", ""),
        ("rows moved", r"(ldmatrix\S*\s+\{[^}]*\},\s*\[%r\d+)(\+\d+)?\]", r"\g<1>+1024]"),
    ],
)
def test_mistakes_in_the_ptx_are_seen(kind: str, pattern: str, into: str) -> None:
    require("nvrtc", missing_nvrtc())
    page = matmul(32, 32, 128, "int4", block_M=32, block_N=32, block_K=64, trans_B=True)
    compiled = tw.compile(page, target="ptx:sm_80")._compiled
    text, launch = compiled.compiled().ptx, compiled.module.launches[0]
    a, b = small((32, 128), "int4", 1), small((32, 128), "int4", 2)

    def run(ptx: str) -> bool:
        c = np.zeros((32, 32), np.int32)
        values = [pack(a, "int4"), pack(b, "int4"), c]
        program = PtxProgram.parse(ptx)
        try:
            program.launch(launch.entry, (1,), (launch.threads,), values, launch.shared_bytes)
        except tw.TileError:
            return False
        return bool((c == a @ b.T).all())

    assert run(text)
    changed, count = re.subn(pattern, into, text, count=1)
    assert count and not run(changed)
