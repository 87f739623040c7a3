"""Operators that a GPU may finish later, and the waits for them.

Here each is finished before the next statement starts, which every program that waits as it must
cannot tell apart; the waits do nothing.
"""

from __future__ import annotations

from typing import Any

from tileworkbench.compiler.diagnostics import TileTypeError, TileValueError
from tileworkbench.compiler.frontend.builder import in_kernel
from tileworkbench.compiler.frontend.values import describe
from tileworkbench.language.tile import GemmWarpPolicy, copy, gemm


def async_copy(src: Any, dst: Any, annotations: Any = None) -> None:
    """`T.copy` whose result may be read after `T.ptx_commit_group` and `T.ptx_wait_group`."""
    copy(src, dst)


def ptx_commit_group() -> None:
    """End a group of asynchronous copies: no effect."""
    in_kernel("T.ptx_commit_group")


def ptx_wait_group(count: int = 0) -> None:
    """Wait until at most `count` groups of asynchronous copies are left: no effect."""
    _wait("T.ptx_wait_group", count)


def wgmma_gemm(
    A: Any,
    B: Any,
    C: Any,
    transpose_A: bool = False,
    transpose_B: bool = False,
    policy: Any = GemmWarpPolicy.Square,
    clear_accum: Any = False,
    annotations: Any = None,
) -> None:
    """`T.gemm` whose result may be read after `T.wait_wgmma`."""
    gemm(A, B, C, transpose_A, transpose_B, policy, clear_accum)


def tcgen05_gemm(
    A: Any,
    B: Any,
    C: Any,
    transpose_A: bool = False,
    transpose_B: bool = False,
    policy: Any = GemmWarpPolicy.Square,
    clear_accum: Any = False,
    *,
    mbar: Any,
    use_2cta: bool = False,
    annotations: Any = None,
) -> None:
    """`T.gemm` whose result may be read once the memory barrier `mbar` has its arrival."""
    gemm(A, B, C, transpose_A, transpose_B, policy, clear_accum, mbar=mbar)


def wait_wgmma(count: int = 0) -> None:
    """Wait until at most `count` asynchronous products are left: no effect."""
    _wait("T.wait_wgmma", count)


def _wait(construct: str, count: Any) -> None:
    in_kernel(construct)
    if isinstance(count, bool) or not isinstance(count, int):
        raise TileTypeError(f"{construct} takes an integer, not {describe(count)}")
    if count < 0:
        raise TileValueError(f"{construct} cannot wait for {count} operations")
