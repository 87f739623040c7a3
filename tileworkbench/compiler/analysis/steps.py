"""How long loops take, roughly: the number of statements they execute."""

from __future__ import annotations

from tileworkbench.compiler.analysis.linear import combine
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir import tile
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.loops import iterations

UNKNOWN_TRIPS = 1 << 16
"""What a loop is taken to run when its bounds are not constants."""
_SECONDS = 1 << 28  # statements


def steps(stmt: st.Stmt) -> int:
    """Statements that `stmt` executes, a vector loop and a vector of a micro-kernel as one each;
    both branches of a condition count.
    """
    match stmt:
        case st.For(kind=st.LoopKind.VECTORIZED):
            return 1
        case st.For():
            return trips(stmt) * steps(stmt.body)
        case st.While():
            return UNKNOWN_TRIPS * steps(stmt.body)
        case tile.MicroGemm():
            return max(stmt.m * stmt.n * stmt.k // 64, 1)
        case tile.Pack():
            return max(stmt.rows * stmt.cols // 16, 1)
    inside = [steps(child) for child in stmt.children() if isinstance(child, st.Stmt)]
    return max(sum(inside), 1)


def trips(loop: st.For) -> int:
    """Iterations of a loop, `UNKNOWN_TRIPS` where they are not constant."""
    values = iterations(loop)
    return UNKNOWN_TRIPS if values is None else _count(values)


def _count(values: range) -> int:
    return (values[-1] - values[0]) // values.step + 1 if values else 0


def may_be_endless(loop: st.For, vectors: bool) -> bool:
    """Whether it is not known that an innermost loop ends within seconds.

    A loop over vectors with 32-bit bounds does end: it cannot pass over more memory than that.
    """
    values = iterations(loop)
    if values is not None:
        return _count(values) * steps(loop.body) >= _SECONDS
    return not vectors or loop.var.dtype.bits == 64


def may_take_seconds(loop: st.For, ranges: Ranges) -> bool:
    """Whether it is not known that a loop around others ends sooner, from its bounds or from the
    values that they are computed from.
    """
    values = iterations(loop)
    if values is not None:
        most: int | None = _count(values)
    else:
        pairs = [(ranges.linear(loop.stop), 1), (ranges.linear(loop.start), -1)]
        most = ranges.linear_bounds(combine(pairs)).high if const_int(loop.step) == 1 else None
    return most is None or most * steps(loop.body) >= _SECONDS


def runs_at_least_once(loop: st.For) -> bool:
    """Whether the loop is known to have an iteration."""
    return bool(iterations(loop))
