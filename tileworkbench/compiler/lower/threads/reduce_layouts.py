"""Which threads hold a reduction's parts, and which its results."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

from tileworkbench.compiler.diagnostics import LayoutError
from tileworkbench.compiler.layout.fragment import Fragment
from tileworkbench.compiler.lower.threads.partition import partition
from tileworkbench.compiler.lower.threads.plan import plan_loop


@lru_cache(maxsize=1024)
def reduced_fragment(source: Fragment, dim: int, keep: bool) -> Fragment:
    """The fragment of a reduction of `source` along `dim`, which stays with extent 1 to `keep` it
    (or when it is the only one).
    """
    extent, copies = source.shape[dim], source.replicate
    keep = keep or source.rank == 1
    kept = [1 if d == dim else e for d, e in enumerate(source.shape) if keep or d != dim]

    def threads(*x: Any) -> Any:
        index, rep = list(x[:-1]), x[-1]
        index[dim : dim + keep] = [rep % extent]
        return source.mapping.evaluate((*index, rep // extent))[0]

    replicate = extent * copies
    function = threads if replicate > 1 else lambda *x: threads(*x, 0)
    fragment = Fragment.from_function(kept, function, replicate=replicate).condense()
    return Fragment.from_map(fragment.mapping, source.thread_range)


@lru_cache(maxsize=1024)
def plan_source(shape: tuple[int, ...], dim: int, threads: int, warp: int) -> Fragment:
    """Which of `threads` threads, in warps of `warp`, combines which element of a shared tile.

    Neighbouring lanes read neighbouring elements: along the last dimension when it is reduced, a
    warp or less per row; otherwise along the kept ones.
    """
    kept = tuple(extent for d, extent in enumerate(shape) if d != dim)
    extent, count = shape[dim], prod(kept)
    along_last = dim == len(shape) - 1
    lanes = 1
    while lanes < extent and lanes * 2 <= threads:
        if not (along_last and lanes < warp) and count * lanes * 2 > threads:
            break
        lanes *= 2
    groups = threads // lanes
    rows = plan_loop(kept, 1, groups, False) if kept else None
    slots = -(-extent // lanes)

    def spread(pitch: int) -> Fragment:
        """Parts of one row (or, across rows, the rows of one part) are neighbours."""

        def place(*x: Any) -> tuple[Any, Any]:
            row: tuple[Any, Any] = (0, 0)
            if rows is not None:
                row = rows.evaluate(*(value for d, value in enumerate(x) if d != dim), 0)
            part = x[dim] % lanes
            thread = part + row[0] * lanes if along_last else row[0] + part * pitch
            return thread, row[1] * slots + x[dim] // lanes

        return Fragment(shape, place)

    try:
        fragment = spread(groups)
        partition(fragment, threads)
    except LayoutError:
        fragment = spread(rows.threads if rows is not None else 1)
    return fragment
