"""Products of matrices whose numbers of all channels lie next to each other."""

from __future__ import annotations

from typing import Any

import tileworkbench.language as T
from cost.case import Case


def triangle_product(L: int, K: int, C: int, block_I: int, block_J: int, block_K: int) -> Any:
    """`sum(sigmoid(U[i, k, c]) * A[i, k, c] * sigmoid(V[j, k, c]) * B[j, k, c] for k)` of A, B, U
    and V (L, K, C), bfloat16, as float32 (C, L, L): a product for each channel.
    """

    @T.prim_func
    def triangle_product(
        A: T.Tensor((L, K, C), "bfloat16"),
        U: T.Tensor((L, K, C), "bfloat16"),
        B: T.Tensor((L, K, C), "bfloat16"),
        V: T.Tensor((L, K, C), "bfloat16"),
    ):
        Y = T.empty((C, L, L), "float32")
        with T.Kernel(T.ceildiv(L, block_J), T.ceildiv(L, block_I), C) as (bx, by, c):
            left = T.alloc_shared((block_I, block_K), "float32")
            right = T.alloc_shared((block_J, block_K), "float32")
            total = T.alloc_fragment((block_I, block_J), "float32")
            T.clear(total)
            for k in T.serial(T.ceildiv(K, block_K)):
                for i, n in T.Parallel(block_I, block_K):
                    row, column = by * block_I + i, k * block_K + n
                    gate = T.sigmoid(T.cast(U[row, column, c], "float32"))
                    left[i, n] = gate * A[row, column, c]
                for j, n in T.Parallel(block_J, block_K):
                    row, column = bx * block_J + j, k * block_K + n
                    gate = T.sigmoid(T.cast(V[row, column, c], "float32"))
                    right[j, n] = gate * B[row, column, c]
                T.gemm(left, right, total, transpose_B=True)
            T.copy(total, Y[c, by * block_I, bx * block_J])
        return Y

    return triangle_product


CASES = (
    Case(
        "products of triangles 24x60x60x80, bfloat16",
        triangle_product,
        {"L": 60, "K": 80, "C": 24},
        {"block_I": (6, 20, 60), "block_J": (6, 60), "block_K": (16, 80)},
    ),
)
