"""What it gives to turn what is read down columns, on this processor.

    python benchmarks/turned_reads.py [--quick]

Kernels that transpose float32, from a tile and straight from a tensor, are compiled as they are and
with reads element by element, for all that this processor has and for AVX2. They are called in turn
with torch, which copies the transposed matrix: one thread.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch
from cost.moves import transpose
from in_turn import in_turn, usual
from two_ways import TARGETS, compare_with_torch, compiled_with

import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench.compiler.lower.vectors import panels

SIZES = (256, 1000, 1024, 4096)
TILES = ((16, 16), (32, 32), (64, 64))


def main() -> None:
    compare_with_torch("turned_reads", __doc__, "turned", "by elements", rows)


def rows(seconds: float) -> Iterator[dict[str, Any]]:
    """All kernels, measured so long."""
    for make, size, tile, target in itertools.product((transpose, straight), SIZES, TILES, TARGETS):
        yield compared(make, size, tile, target, seconds)


def straight(M: int, N: int, block_M: int = 32, block_N: int = 32) -> Any:
    """`Y = X.T` of an (M, N) float32 matrix, without a tile."""

    @T.prim_func
    def straight(X: T.Tensor((M, N), "float32")):
        Y = T.empty((N, M), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            for i, j in T.Parallel(block_M, block_N):
                Y[bx * block_N + j, by * block_M + i] = X[by * block_M + i, bx * block_N + j]
        return Y

    return straight


def compared(
    make: Any, size: int, tile: tuple[int, int], target: str, seconds: float
) -> dict[str, Any]:
    """Milliseconds of a call as it is, by elements, and in torch."""
    program, x = make(size, size, *tile), torch.randn(size, size)
    kernels = (
        tw.compile(program, target=target),
        compiled_with(panels, "_TURNED", (), program, target),
    )
    calls = [lambda k=kernel: k(x) for kernel in kernels]
    times = usual(in_turn([*calls, lambda: x.t().contiguous()], 100, seconds))
    label = f"{program.name} {size}x{size}, tiles of {tile[0]}x{tile[1]}"
    return {"kernel": label, "target": target, "ms": [float(ms) for ms in times]}


if __name__ == "__main__":
    main()
