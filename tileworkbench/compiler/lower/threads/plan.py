"""How threads share a nest that nothing constrains: neighbours take neighbouring vectors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any

from tileworkbench.compiler.layout.digits import NotDigitsError
from tileworkbench.compiler.layout.fragment import Fragment
from tileworkbench.compiler.layout.index import Index
from tileworkbench.compiler.layout.layout import Layout
from tileworkbench.compiler.layout.maps import build_map, flatten, make_digit_map
from tileworkbench.compiler.lower.threads.context import ThreadContext
from tileworkbench.compiler.lower.threads.inference import LayoutMap
from tileworkbench.compiler.lower.threads.nests import AccessKind, Nest, update_lanes
from tileworkbench.compiler.lower.threads.vectors import (
    SHARED,
    Motion,
    motions,
    step_box,
    vector_width,
)
from tileworkbench.compiler.machine.machine import VECTOR_BITS


@lru_cache(maxsize=1024)
def plan_loop(
    shape: tuple[int, ...], vector: int, threads: int, replicate: bool, fast: int = -1
) -> Fragment:
    """The nest of `shape`, flattened row-major with dimension `fast` last, in vectors of `vector`
    iterations.

    Thread `t` takes the vectors ``t``, ``t + threads``, and so on. With `replicate`, a nest of too
    few vectors is repeated on the threads left over. `vector` divides the extent of `fast`.
    """
    fast %= len(shape)
    if fast != len(shape) - 1:
        order = [*(d for d in range(len(shape)) if d != fast), fast]
        ordered = plan_loop(tuple(shape[d] for d in order), vector, threads, replicate)
        return ordered @ Layout(shape, lambda *x: tuple(x[d] for d in order))
    total = prod(shape)
    copies = 1
    if replicate and total // vector < threads and threads % (total // vector) == 0:
        copies = threads // (total // vector)

    def place(*x: Any) -> tuple[Any, Any]:
        flat = flatten(shape, x[:-1])
        number = flat // vector
        thread = number % threads + x[-1] * (threads // copies if copies > 1 else 0)
        return thread, number // threads * vector + flat % vector

    box = (*shape, copies)
    try:
        return Fragment.from_map(make_digit_map(box, place(*Index.variables(box))))
    except NotDigitsError:
        return _by_dimension(shape, vector, threads)


def _by_dimension(shape: tuple[int, ...], vector: int, threads: int) -> Fragment:
    """The same, dimension by dimension from the last one on. A dimension whose extent does not
    divide the number of threads left takes the next power of two of them.
    """

    def place(*x: Any) -> tuple[Any, Any]:
        thread: Any = 0
        slot: Any = x[-2] % vector if vector > 1 else 0
        reach, slots = 1, vector
        for d in reversed(range(len(shape))):
            value = x[d] // vector if d == len(shape) - 1 and vector > 1 else x[d]
            extent = shape[d] // vector if d == len(shape) - 1 else shape[d]
            room = threads // reach
            taken = min(1 << (extent - 1).bit_length(), 1 << room.bit_length() - 1)
            if extent > taken:
                thread = thread + value % taken * reach
                slot = slot + value // taken * slots
                slots *= -(-extent // taken)
            else:
                thread = thread + value * reach
            reach *= taken
        return thread, slot

    return Fragment.from_map(build_map((*shape, 1), place))


def plan_nest(nest: Nest, layouts: LayoutMap, context: ThreadContext) -> Fragment:
    """The loop where no fragment says more: consecutive threads access consecutive vectors."""
    shape = nest.shape
    assert shape is not None  # callers have asked
    fast, width = plan_vector(nest, layouts, context)
    total, threads = prod(shape), context.threads
    widths = [1 << power for power in range(width.bit_length())]
    # The least work with the last threads' share rounded up; the wider of two that do as well.
    width = min(widths, key=lambda w: (-(-total // (threads * w)) * w, -w))
    replicate = bool(nest.fragments) and not nest.runs_once
    loop = plan_loop(shape, width, threads, replicate, fast)
    if context.start:
        return loop.bind_thread_range(context.start, threads)
    return loop


def plan_vector(nest: Nest, layouts: LayoutMap, context: ThreadContext) -> tuple[int, int]:
    """The dimension that neighbouring threads share, and how many iterations along it a thread
    takes at once: what all accesses that move along it allow.
    """
    box = step_box(nest.shape or (None,) * len(nest.op.vars))
    ranges = context.ranges
    moved = [motions(a.indices, nest.op.vars, box, ranges) for a in nest.memory]
    best, best_score = len(box) - 1, 0
    for dim in reversed(range(len(box))):
        score = 0
        for access, motion in zip(nest.memory, moved, strict=True):
            if motion and box[dim] > 1:
                unit = any(
                    t.stride == 1 and t.digits[0].dim == dim and t.digits[0].divisor == 1
                    for t in motion[-1].loop.terms
                )
                score += unit * (4 if access.buffer.scope == "global" else 1)
        if score > best_score:
            best, best_score = dim, score
    width = _lane_limit(nest, box[best])
    for access, motion in zip(nest.memory, moved, strict=True):
        place = layouts.get(access.buffer) or access.buffer.layout
        if not any(part.moves(best, box[best] + 1) for part in motion):
            continue
        if access.kind is AccessKind.UPDATE:
            # No wider than one atomic instruction: other neighbours are left to other threads.
            width = min(width, update_lanes(nest.op.body, access.buffer, context.target))
        given = (access.buffer, place, access.indices, motion, best, width, ranges)
        wide = vector_width(*given)
        if wide == 1 and access.kind is AccessKind.LOAD:
            wide = max(vector_width(*given, count) * count for count in (1, *fitting(motion, best)))
        width = min(width, wide)
    return best, width


def fitting(motion: Sequence[Motion], dim: int) -> list[int]:
    """How many neighbouring iterations along `dim` may share an element: codes of a few bits in
    bytes and words.
    """
    return [count for count in SHARED if not any(part.moves(dim, count) for part in motion)]


def _lane_limit(nest: Nest, extent: int) -> int:
    """The most iterations along a dimension that a vector can hold, a power of two that divides the
    extent.
    """
    narrowest = min((max(a.buffer.dtype.bits, 4) for a in nest.memory), default=VECTOR_BITS)
    asked = nest.op.coalesced_width
    limit = min(VECTOR_BITS // narrowest, asked or VECTOR_BITS)
    return min(limit & -limit, extent & -extent)
