"""Kernels with the configurations that `cost_model.py` predicts and measures on this processor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tileworkbench.language as T
from tileworkbench import kernels

ROWS = (1, 2, 4, 8, 16, 32)
TILES = (8, 16, 64, 256)


def log_softmax(M: int, N: int, block_M: int = 1) -> Any:
    """`Y = X - max - log(sum(exp(X - max)))` of rows, all (M, N) of float32."""

    @T.prim_func
    def log_softmax(X: T.Tensor((M, N), "float32")):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            X_local = T.alloc_fragment((block_M, N), "float32")
            powers = T.alloc_fragment((block_M, N), "float32")
            row_max = T.alloc_fragment((block_M,), "float32")
            row_sum = T.alloc_fragment((block_M,), "float32")
            T.copy(X[bx * block_M, 0], X_local)
            T.reduce_max(X_local, row_max, dim=1)
            for i, j in T.Parallel(block_M, N):
                powers[i, j] = T.exp(X_local[i, j] - row_max[i])
            T.reduce_sum(powers, row_sum, dim=1)
            for i, j in T.Parallel(block_M, N):
                Y[bx * block_M + i, j] = X_local[i, j] - row_max[i] - T.log(row_sum[i])
        return Y

    return log_softmax


def column_sums(M: int, N: int, block_M: int = 16, block_N: int = 64) -> Any:
    """`y[j] = sum(X[i, j] for i)` of an (M, N) float32 matrix, a tile of rows at a time."""

    @T.prim_func
    def column_sums(X: T.Tensor((M, N), "float32")):
        y = T.empty((N,), "float32")
        with T.Kernel(T.ceildiv(N, block_N)) as bx:
            tile = T.alloc_fragment((block_M, block_N), "float32")
            total = T.alloc_fragment((block_N,), "float32")
            T.clear(total)
            for k in T.serial(T.ceildiv(M, block_M)):
                T.copy(X[k * block_M, bx * block_N], tile)
                T.reduce_sum(tile, total, dim=0, clear=False)
            T.copy(total, y[bx * block_N])
        return y

    return column_sums


def layernorm_backward(M: int, N: int, block_M: int = 1) -> Any:
    """The gradient of x in a normalisation of rows without weights: `(dy - mean(dy) - xhat *
    mean(dy * xhat)) * rstd`; X, dY and dX are (M, N), mean and rstd (M,), float32.
    """

    @T.prim_func
    def layernorm_backward(
        X: T.Tensor((M, N), "float32"),
        dY: T.Tensor((M, N), "float32"),
        mean: T.Tensor((M,), "float32"),
        rstd: T.Tensor((M,), "float32"),
    ):
        dX = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            normal = T.alloc_fragment((block_M, N), "float32")
            slope = T.alloc_fragment((block_M, N), "float32")
            product = T.alloc_fragment((block_M, N), "float32")
            first = T.alloc_fragment((block_M,), "float32")
            second = T.alloc_fragment((block_M,), "float32")
            T.copy(dY[bx * block_M, 0], slope)
            for i, j in T.Parallel(block_M, N):
                row = bx * block_M + i
                normal[i, j] = (X[row, j] - mean[row]) * rstd[row]
                product[i, j] = normal[i, j] * slope[i, j]
            T.reduce_sum(slope, first, dim=1)
            T.reduce_sum(product, second, dim=1)
            for i, j in T.Parallel(block_M, N):
                row = bx * block_M + i
                dX[row, j] = (slope[i, j] - first[i] / N - normal[i, j] * second[i] / N) * rstd[row]
        return dX

    return layernorm_backward


@dataclass(frozen=True)
class Case:
    """A kernel with what stays and what is varied; `seen` says that the model's constants were
    chosen with it in view.
    """

    name: str
    make: Callable[..., Any]
    constants: Mapping[str, Any]
    axes: Mapping[str, tuple[Any, ...]]
    seen: bool = False


SEEN = (
    Case(
        "matmul 512, float32",
        kernels.matmul,
        {"M": 512, "N": 512, "K": 512, "dtype": "float32"},
        {"block_M": (16, 32, 64, 128), "block_N": (16, 64, 128), "block_K": (16, 64)},
        seen=True,
    ),
    Case(
        "softmax 2048x1024",
        kernels.softmax,
        {"M": 2048, "N": 1024},
        {"block_M": ROWS},
        seen=True,
    ),
    Case(
        "layernorm 1024x1536",
        kernels.layernorm,
        {"M": 1024, "N": 1536},
        {"block_M": ROWS},
        seen=True,
    ),
    Case(
        "add 1024x1024",
        kernels.add,
        {"M": 1024, "N": 1024},
        {"block_M": (1, *TILES), "block_N": (16, 64, 256, 1024)},
        seen=True,
    ),
    Case(
        "online softmax 512x8192",
        kernels.online_softmax,
        {"M": 512, "N": 8192},
        {"block_M": (1, 4, 16), "block_N": (128, 512, 2048, 8192)},
        seen=True,
    ),
    Case(
        "cross entropy 256x16384",
        kernels.cross_entropy,
        {"M": 256, "N": 16384},
        {"block_M": (1, 4, 16), "block_N": (128, 512, 2048, 8192)},
        seen=True,
    ),
    Case(
        "column sums 2048x1024",
        column_sums,
        {"M": 2048, "N": 1024},
        {"block_M": (1, 8, 64, 256), "block_N": (16, 64, 256, 512)},
        seen=True,
    ),
    Case(
        "rope 1x512x8x64",
        kernels.rope,
        {"batch": 1, "seq_len": 512, "heads": 8, "dim": 64},
        {"block_S": (1, 2, 8, 32, 128), "interleaved": (False, True)},
        seen=True,
    ),
)

HELD_OUT = (
    Case(
        "matmul 384x768x256, bfloat16",
        kernels.matmul,
        {"M": 384, "N": 768, "K": 256, "dtype": "bfloat16"},
        {"block_M": (16, 32, 64, 128), "block_N": (32, 64, 128), "block_K": (32, 64)},
    ),
    Case(
        "flash attention 512, D 64",
        kernels.flash_attention,
        {"batch": 1, "heads": 4, "seq_q": 512, "seq_kv": 512, "dim": 64},
        {"block_M": (16, 32, 64, 128), "block_N": (16, 32, 64, 128)},
    ),
    Case(
        "int4 matmul 64x512x1024",
        kernels.dequant_matmul,
        {"M": 64, "N": 512, "K": 1024, "dtype": "float32"},
        {"block_M": (16, 32, 64), "block_N": (32, 64, 128), "block_K": (32, 64, 128)},
    ),
    Case("rmsnorm 2048x768", kernels.rmsnorm, {"M": 2048, "N": 768}, {"block_M": ROWS}),
    Case("add_rmsnorm 1024x2048", kernels.add_rmsnorm, {"M": 1024, "N": 2048}, {"block_M": ROWS}),
    Case("log_softmax 1024x1280", log_softmax, {"M": 1024, "N": 1280}, {"block_M": ROWS}),
    Case(
        "layernorm backward 2048x512",
        layernorm_backward,
        {"M": 2048, "N": 512},
        {"block_M": (*ROWS, 64)},
    ),
    Case(
        "gemv 2048x2048",
        kernels.gemv,
        {"N": 2048, "K": 2048},
        {"block_N": (1, 4, 16), "block_K": (16, 64, 256, 1024)},
    ),
    Case(
        "gelu 1024x512",
        kernels.gelu,
        {"M": 1024, "N": 512},
        {"block_M": (1, 4, 64), "block_N": (4, 16, 64, 512)},
    ),
    Case(
        "linear 256x512x768",
        kernels.linear,
        {"M": 256, "N": 512, "K": 768},
        {"block_M": (16, 32, 64, 128), "block_N": (32, 64, 128), "block_K": (32, 64)},
    ),
    Case(
        "add_layernorm 1024x1024", kernels.add_layernorm, {"M": 1024, "N": 1024}, {"block_M": ROWS}
    ),
    Case(
        "rmsnorm backward 1024x1024",
        kernels.rmsnorm_backward,
        {"M": 1024, "N": 1024},
        {"block_M": (8, 32, 128), "block_N": (16, 256, 1024)},
    ),
    Case(
        "split-k matmul 64x256x4096",
        kernels.split_k_matmul,
        {"M": 64, "N": 256, "K": 4096},
        {"block_M": (16, 32, 64), "block_N": (32, 64, 128), "splits": (2, 8)},
    ),
)

CASES = (*SEEN, *HELD_OUT)
