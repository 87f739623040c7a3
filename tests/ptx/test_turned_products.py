"""Products by warpgroups whose B is in registers: the instruction forms C's transpose."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench.kernels.page import PrimFunc

M, N, K = 128, 128, 64


def product(
    turn_a: bool = False,
    turn_b: bool = True,
    dtype: Any = T.float16,
    total: Any = T.float32,
    threads: int = 128,
    **more: Any,
) -> PrimFunc:
    """C = A @ (2 B), where 2 B is formed in registers."""
    shape_a, shape_b = (K, M) if turn_a else (M, K), (N, K) if turn_b else (K, N)

    @T.prim_func
    def product(A: T.Tensor(shape_a, dtype), B: T.Tensor(shape_b, dtype)):
        C = T.empty((M, N), total)
        with T.Kernel(1, threads=threads):
            A_shared = T.alloc_shared(shape_a, dtype)
            B_shared = T.alloc_shared(shape_b, dtype)
            B_local = T.alloc_fragment(shape_b, dtype)
            C_local = T.alloc_fragment((M, N), total)
            T.clear(C_local)
            T.copy(A, A_shared)
            T.copy(B, B_shared)
            for i, j in T.Parallel(*shape_b):
                B_local[i, j] = B_shared[i, j] + B_shared[i, j]
            T.gemm(A_shared, B_local, C_local, transpose_A=turn_a, transpose_B=turn_b, **more)
            T.copy(C_local, C)
        return C

    return product


def notes(program: PrimFunc) -> str:
    kernel = tw.compile(program, target="sim:sm_90a")
    return "\n".join(kernel.passes["lower_to_threads"].program.notes)


ROWS: dict[str, dict[str, Any]] = {
    "along K": {},
    "along N": {"turn_b": False},
    "A along M": {"turn_a": True},
    "both turned": {"turn_a": True, "turn_b": False},
    "two warpgroups": {"threads": 256},
    "two warpgroups along M": {"threads": 256, "policy": T.GemmWarpPolicy.FullRow},
    "bfloat16": {"dtype": T.bfloat16},
    "bytes": {"dtype": T.int8, "total": T.int32},
}


@pytest.mark.covering(1)
@pytest.mark.parametrize("target", ["sim:sm_90a", "ptx:sm_90a"])
@pytest.mark.parametrize("name", list(ROWS))
def test_products_of_registers_are_right(name: str, target: str) -> None:
    options = ROWS[name]
    dtype = getattr(torch, str(options.get("dtype", T.float16)))
    left, right = (torch.randint(-4, 5, shape).to(dtype) for shape in ((M, K), (K, N)))
    a = left.T.contiguous() if options.get("turn_a") else left
    b = right.T.contiguous() if options.get("turn_b", True) else right
    c = tw.compile(product(**options), target=target)(a, b)
    assert torch.equal(c.double(), left.double() @ (2 * right.double()))


@pytest.mark.parametrize("name", list(ROWS))
def test_the_instruction_is_one_of_warpgroups(name: str) -> None:
    said = notes(product(**ROWS[name]))
    assert "wgmma m64n" in said
    assert "C's transpose, B.T @ A.T; B in registers; A in shared memory" in said


def test_bytes_along_n_are_left_to_warps() -> None:
    said = notes(product(turn_b=False, dtype=T.int8, total=T.int32))
    assert "mma.sync, because B, 'B_local', is not stored along K" in said


def test_what_another_product_uses_too_stays_with_warps() -> None:
    @T.prim_func
    def twice(A: T.Tensor((M, K), T.float16), B: T.Tensor((N, K), T.float16)):
        C = T.empty((M, N), T.float32)
        with T.Kernel(1, threads=128):
            A_shared = T.alloc_shared((M, K), T.float16)
            B_shared = T.alloc_shared((N, K), T.float16)
            B_local = T.alloc_fragment((N, K), T.float16)
            C_local = T.alloc_fragment((M, N), T.float32)
            T.clear(C_local)
            T.copy(A, A_shared)
            T.copy(B, B_shared)
            T.copy(B_shared, B_local)
            T.gemm(A_shared, B_local, C_local, transpose_B=True)
            T.gemm(A_shared, B_shared, C_local, transpose_B=True)
            T.copy(C_local, C)
        return C

    assert "T.gemm: mma.sync, because with wgmma: " in notes(twice)
    a, b = (torch.randint(-4, 5, (M, K)).half() for _ in range(2))
    c = tw.compile(twice, target="ptx:sm_90a")(a, b)
    assert torch.equal(c.double(), 2 * a.double() @ b.double().T)
