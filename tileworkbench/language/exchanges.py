"""Values that a thread gets from the other threads of its warp or block.

All threads that take part execute the call together. A segment of `width` lanes exchanges within
itself. `mask` names the lanes of the warp that take part, all by default.
"""

from __future__ import annotations

from typing import Any

from tileworkbench.compiler.diagnostics import TileTypeError
from tileworkbench.compiler.frontend.threads import emit_exchange, to_predicate
from tileworkbench.compiler.frontend.values import Value, to_value
from tileworkbench.compiler.ir import build
from tileworkbench.compiler.ir.expr import Expr
from tileworkbench.compiler.ir.simt import LANGUAGE_WARP
from tileworkbench.compiler.ir.types import INT32


def shfl_sync(value: Any, lane: Any, width: int = LANGUAGE_WARP, mask: Any = None) -> Value:
    """The value that lane `lane` of the segment has.

    >>> B[tx] = T.shfl_sync(A[tx], 0)
    """
    return _shuffle("T.shfl_sync", "shfl", value, lane, width, mask)


def shfl_xor(value: Any, delta: Any, width: int = LANGUAGE_WARP, mask: Any = None) -> Value:
    """The value of the lane whose index differs in the bits of `delta`.

    >>> B[tx] = T.shfl_xor(A[tx], 16)
    """
    return _shuffle("T.shfl_xor", "shfl_xor", value, delta, width, mask)


def shfl_up(value: Any, delta: Any, width: int = LANGUAGE_WARP, mask: Any = None) -> Value:
    """The value of the lane `delta` below; the thread's own where the segment has none.

    >>> B[tx] = T.shfl_up(A[tx], 1)
    """
    return _shuffle("T.shfl_up", "shfl_up", value, delta, width, mask)


def shfl_down(value: Any, delta: Any, width: int = LANGUAGE_WARP, mask: Any = None) -> Value:
    """The value of the lane `delta` above; the thread's own where the segment has none.

    >>> B[tx] = T.shfl_down(A[tx], 1)
    """
    return _shuffle("T.shfl_down", "shfl_down", value, delta, width, mask)


def _shuffle(construct: str, kind: str, value: Any, lane: Any, width: Any, mask: Any) -> Value:
    operand, other = to_value(value).expr, to_value(lane).expr
    if not other.dtype.is_int:
        raise TileTypeError(f"the lane of {construct} must be an integer, not '{other.dtype}'")
    return emit_exchange(construct, kind, (operand, build.cast(other, INT32)), width, mask)


# Votes


def any_sync(predicate: Any, mask: Any = None) -> Value:
    """1 when the predicate holds in some lane, else 0 (int32).

    >>> N[tx] = T.any_sync(A[tx] > 0)
    """
    return _vote("T.any_sync", "any_sync", predicate, mask)


def all_sync(predicate: Any, mask: Any = None) -> Value:
    """1 when the predicate holds in all lanes, else 0 (int32).

    >>> N[tx] = T.all_sync(A[tx] > 0)
    """
    return _vote("T.all_sync", "all_sync", predicate, mask)


def ballot(predicate: Any) -> Value:
    """The lanes in which the predicate holds, one bit for each (uint64).

    >>> W[tx] = T.ballot(A[tx] > 0)
    """
    return _vote("T.ballot", "ballot", predicate, None)


def ballot_sync(predicate: Any, mask: Any = None) -> Value:
    """The lanes of `mask` in which the predicate holds, one bit for each (uint64).

    >>> W[tx] = T.ballot_sync(A[tx] > 0)
    """
    return _vote("T.ballot_sync", "ballot", predicate, mask)


def _vote(construct: str, kind: str, predicate: Any, mask: Any) -> Value:
    return emit_exchange(construct, kind, (to_predicate(construct, predicate),), mask=mask)


def activemask() -> Value:
    """The lanes that execute this together, one bit for each (uint64).

    >>> W[tx] = T.activemask()
    """
    return emit_exchange("T.activemask", "activemask", ())


def match_any_sync(value: Any, mask: Any = None) -> Value:
    """The lanes that have the same value, one bit for each (uint64).

    >>> W[tx] = T.match_any_sync(N[tx])
    """
    return emit_exchange("T.match_any_sync", "match_any", (to_value(value).expr,), mask=mask)


def match_all_sync(value: Any, mask: Any = None) -> Value:
    """All lanes that take part when they have one value, else 0 (uint64).

    >>> W[tx] = T.match_all_sync(N[tx])
    """
    return emit_exchange("T.match_all_sync", "match_all", (to_value(value).expr,), mask=mask)


# Barriers that combine


def syncthreads_count(predicate: Any) -> Value:
    """A barrier of the block; the number of threads in which the predicate holds (int32).

    >>> N[tx] = T.syncthreads_count(A[tx] > 0)
    """
    return _vote("T.syncthreads_count", "block_count", predicate, None)


def syncthreads_and(predicate: Any) -> Value:
    """A barrier of the block; 1 when the predicate holds in all threads, else 0 (int32).

    >>> N[tx] = T.syncthreads_and(A[tx] > 0)
    """
    return _vote("T.syncthreads_and", "block_all", predicate, None)


def syncthreads_or(predicate: Any) -> Value:
    """A barrier of the block; 1 when the predicate holds in some thread, else 0 (int32).

    >>> N[tx] = T.syncthreads_or(A[tx] > 0)
    """
    return _vote("T.syncthreads_or", "block_any", predicate, None)


# Reductions over a warp


def warp_reduce_sum(value: Any) -> Value:
    """The sum over the 32 lanes of the warp, in all of them.

    >>> B[tx] = T.warp_reduce_sum(A[tx])
    """
    return _reduction("T.warp_reduce_sum", "warp_sum", value)


def warp_reduce_max(value: Any) -> Value:
    """The largest value of the 32 lanes of the warp, in all of them.

    >>> B[tx] = T.warp_reduce_max(A[tx])
    """
    return _reduction("T.warp_reduce_max", "warp_max", value)


def warp_reduce_min(value: Any) -> Value:
    """The smallest value of the 32 lanes of the warp, in all of them.

    >>> B[tx] = T.warp_reduce_min(A[tx])
    """
    return _reduction("T.warp_reduce_min", "warp_min", value)


def warp_reduce_bitand(value: Any) -> Value:
    """The bits that are set in all 32 lanes of the warp, in all of them.

    >>> N[tx] = T.warp_reduce_bitand(N[tx])
    """
    return _reduction("T.warp_reduce_bitand", "warp_and", value)


def warp_reduce_bitor(value: Any) -> Value:
    """The bits that are set in some of the 32 lanes of the warp, in all of them.

    >>> N[tx] = T.warp_reduce_bitor(N[tx])
    """
    return _reduction("T.warp_reduce_bitor", "warp_or", value)


def _reduction(construct: str, kind: str, value: Any) -> Value:
    operand: Expr = to_value(value).expr
    if operand.dtype.is_bool:
        operand = build.cast(operand, INT32)
    if "_bit" in construct and not operand.dtype.is_int:
        raise TileTypeError(f"{construct} needs an integer, not '{operand.dtype}'")
    return emit_exchange(construct, kind, (operand,))
