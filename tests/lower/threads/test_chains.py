"""Products whose results feed other products: the warps share them by rows without being told."""

from __future__ import annotations

import pytest
import torch

import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.tile import Gemm

ROWS, KEYS, DIM = 64, 64, 32


def causal_attention(threads: int = 128) -> T.prim_func:
    """Scores below the diagonal, without a maximum, times values; a product apart from both."""

    @T.prim_func
    def attention(
        Q: T.Tensor((ROWS, DIM), "float16"),
        K: T.Tensor((KEYS, DIM), "float16"),
        V: T.Tensor((KEYS, DIM), "float16"),
        O: T.Tensor((ROWS, DIM), "float32"),  # noqa: E741
        E: T.Tensor((ROWS, KEYS), "float32"),
    ):
        with T.Kernel(1, threads=threads):
            Q_shared = T.alloc_shared((ROWS, DIM), "float16")
            K_shared = T.alloc_shared((KEYS, DIM), "float16")
            V_shared = T.alloc_shared((KEYS, DIM), "float16")
            S = T.alloc_fragment((ROWS, KEYS), "float32")
            P = T.alloc_fragment((ROWS, KEYS), "float16")
            total = T.alloc_fragment((ROWS,), "float32")
            out = T.alloc_fragment((ROWS, DIM), "float32")
            other = T.alloc_fragment((ROWS, KEYS), "float32")
            T.copy(Q, Q_shared)
            T.copy(K, K_shared)
            T.copy(V, V_shared)
            T.gemm(Q_shared, K_shared, S, transpose_B=True, clear_accum=True)
            for i, j in T.Parallel(ROWS, KEYS):
                S[i, j] = T.if_then_else(j <= i, T.exp(S[i, j]), 0.0)
            T.reduce_sum(S, total, dim=1)
            T.copy(S, P)
            T.gemm(P, V_shared, out, clear_accum=True)
            for i, j in T.Parallel(ROWS, DIM):
                out[i, j] = out[i, j] / total[i]
            T.copy(out, O)
            T.gemm(Q_shared, K_shared, other, transpose_B=True, clear_accum=True)
            T.copy(other, E)

    return attention


def policies(kernel: tw.Kernel) -> list[str]:
    program = kernel.passes["infer_thread_layouts"].program
    return [str(stmt.policy) for stmt in statements(program.body) if isinstance(stmt, Gemm)]


def test_a_chain_is_shared_by_rows_and_what_is_apart_as_asked() -> None:
    kernel = tw.compile(causal_attention(), target="sim:sm_80")
    assert policies(kernel) == ["full_row", "full_row", "square"]
    q, k, v = (torch.randn(64, DIM, generator=torch.manual_seed(0)).half() / 4 for _ in range(3))
    out, other = torch.zeros(ROWS, DIM), torch.zeros(ROWS, KEYS)
    kernel(q, k, v, out, other)
    scores = q.float() @ k.float().T
    weights = scores.masked_fill(~torch.ones(ROWS, KEYS).tril().bool(), -torch.inf).softmax(-1)
    torch.testing.assert_close(out, weights @ v.float(), rtol=2e-3, atol=2e-3)
    torch.testing.assert_close(other, scores, rtol=1e-3, atol=1e-3)


def test_a_chain_into_operand_b_has_its_rows_as_columns() -> None:
    @T.prim_func
    def transposed(
        A: T.Tensor((64, 32), "float16"),
        B: T.Tensor((32, 64), "float16"),
        C: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            A_shared = T.alloc_shared((64, 32), "float16")
            B_shared = T.alloc_shared((32, 64), "float16")
            S = T.alloc_fragment((64, 64), "float32")
            P = T.alloc_fragment((64, 64), "float16")
            W = T.alloc_shared((64, 64), "float16")
            out = T.alloc_fragment((64, 64), "float32")
            T.copy(A, A_shared)
            T.copy(B, B_shared)
            T.gemm(A_shared, B_shared, S, clear_accum=True)
            T.fill(W, 0.5)
            T.copy(S, P)
            T.gemm(W, P, out, transpose_B=True, clear_accum=True)
            T.copy(out, C)

    kernel = tw.compile(transposed, target="sim:sm_80")
    assert policies(kernel) == ["full_row", "full_col"]
    a, b = torch.randn(64, 32).half() / 4, torch.randn(32, 64).half() / 4
    c = torch.zeros(64, 64)
    kernel(a, b, c)
    expected = 0.5 * (a.float() @ b.float()).sum(1)[None].expand(64, 64)
    torch.testing.assert_close(c, expected, rtol=1e-2, atol=1e-2)


def test_too_few_rows_for_the_warps_say_how_many_would_do() -> None:
    with pytest.raises(tw.LayoutError) as caught:
        tw.compile(causal_attention(threads=256), target="sim:sm_80")
    assert caught.value.render().splitlines()[-1] == (
        "hint: use threads=128, or tiles of 128 rows: each warp must have whole rows of what the "
        "next product reads"
    )
