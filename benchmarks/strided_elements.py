"""What it gives to take elements that lie a constant number apart one by one, on this processor.

    python benchmarks/strided_elements.py [--quick]

Pixels become planes, planes become pixels, and columns become rows, each with some arithmetic. The
kernels are compiled as they are and with LLVM's gathers and scatters, for all that this processor
has and for AVX2. They are called in turn with torch: one thread.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from in_turn import in_turn, usual
from two_ways import TARGETS, compare_with_torch, compiled_with

import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench.compiler.emit.llvm import expressions
from tileworkbench.compiler.emit.llvm.lane_access import lane_pattern


def main() -> None:
    compare_with_torch("strided_elements", __doc__, "one by one", "gathered", measured)


def measured(seconds: float) -> Iterator[dict[str, Any]]:
    """All kernels, measured so long."""
    for each, target in itertools.product(CASES, TARGETS):
        yield compared(*each, target, seconds)


def planes(H: int, W: int, C: int, dtype: str) -> Any:
    """`2 * X + 1` of pixels X (H, W, C) of any type, as planes (C, H, W), float32."""

    @T.prim_func
    def planes(X: T.Tensor((H, W, C), dtype)):
        Y = T.empty((C, H, W), "float32")
        with T.Kernel(H) as by:
            for c, j in T.Parallel(C, W):
                Y[c, by, j] = T.cast(X[by, j, c], "float32") * 2.0 + 1.0
        return Y

    return planes


def pixels(H: int, W: int, C: int, dtype: str) -> Any:
    """`exp(X)` of planes X (C, H, W), float32, as pixels (H, W, C) of any type."""

    @T.prim_func
    def pixels(X: T.Tensor((C, H, W), "float32")):
        Y = T.empty((H, W, C), dtype)
        with T.Kernel(H) as by:
            for c, j in T.Parallel(C, W):
                Y[by, j, c] = T.cast(T.exp(X[c, by, j]), dtype)
        return Y

    return pixels


def rows(M: int, N: int, dtype: str) -> Any:
    """`exp(X.T)` of X (M, N), as rows of float32, one column of X at a time."""

    @T.prim_func
    def rows(X: T.Tensor((M, N), dtype)):
        Y = T.empty((N, M), "float32")
        with T.Kernel(N) as bx:
            for i in T.Parallel(M):
                Y[bx, i] = T.exp(T.cast(X[i, bx], "float32"))
        return Y

    return rows


Expected = Callable[[torch.Tensor], torch.Tensor]


def case(make: Any, expected: Expected, *sizes: Any) -> tuple[str, Any, Expected]:
    """A label, a program and what torch computes."""
    label = f"{make.__name__} {'x'.join(map(str, sizes[:-1]))}, {sizes[-1]}"
    return label, make(*sizes), expected


def _planes(x: torch.Tensor) -> torch.Tensor:
    return x.permute(2, 0, 1).to(torch.float32, memory_format=torch.contiguous_format) * 2 + 1


def _pixels(dtype: str) -> Expected:
    return lambda x: x.permute(1, 2, 0).contiguous().exp().to(getattr(torch, dtype))


def _rows(x: torch.Tensor) -> torch.Tensor:
    return x.t().contiguous().float().exp()


CASES = (
    *(case(planes, _planes, 240, 320, 3, dtype) for dtype in ("uint8", "bfloat16", "float32")),
    *(case(planes, _planes, 240, 320, c, "float32") for c in (5, 12)),
    *(case(pixels, _pixels(dtype), 240, 320, 3, dtype) for dtype in ("bfloat16", "float32")),
    case(pixels, _pixels("float32"), 240, 320, 12, "float32"),
    *(case(rows, _rows, 500, n, "float32") for n in (40, 1000, 1024)),
)


def compared(
    label: str, program: Any, expected: Expected, target: str, seconds: float
) -> dict[str, Any]:
    """Milliseconds of a call one by one, gathered, and in torch."""
    (param,) = (each.value for each in program.program.params if not each.output)
    shape, dtype = [int(str(extent)) for extent in param.shape], getattr(torch, str(param.dtype))
    x = torch.randn(shape).to(dtype) if dtype.is_floating_point else torch.randint(0, 256, shape)
    x = x.to(dtype)
    kernels = (
        tw.compile(program, target=target),
        compiled_with(expressions, "lane_pattern", near_pattern, program, target),
    )
    for kernel in kernels:
        torch.testing.assert_close(kernel(x), expected(x), rtol=1e-2, atol=1e-2)
    calls = [lambda k=kernel: k(x) for kernel in kernels]
    times = usual(in_turn([*calls, lambda: expected(x)], 100, seconds))
    return {"kernel": label, "target": target, "ms": [float(ms) for ms in times]}


def near_pattern(index: Any, var: Any, lanes: int) -> Any:
    """The patterns that vectors are read for."""
    pattern = lane_pattern(index, var, lanes)
    is_near = pattern is not None and (pattern.stride == 1 or pattern.is_dense(lanes))
    return pattern if is_near else None


if __name__ == "__main__":
    main()
