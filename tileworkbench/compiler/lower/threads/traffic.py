"""What the threads of a loop cost in memory: the score by which free choices are compared.

One access of a warp moves whole lines of memory, and takes an issue slot however little it
moves, so a step costs the larger of the two. Vectors of up to 128 bits count as one step. A
fragment whose register depends on the thread is kept in memory, as registers have no index.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from tileworkbench.compiler.analysis.traces import Trace, UntraceableError
from tileworkbench.compiler.diagnostics import LayoutError
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.expr import Var
from tileworkbench.compiler.ir.rewrite import variables
from tileworkbench.compiler.ir.sizes import strides_of
from tileworkbench.compiler.layout.digits import NotDigitsError
from tileworkbench.compiler.layout.fragment import Fragment
from tileworkbench.compiler.layout.index import Index
from tileworkbench.compiler.layout.maps import evaluate_sum
from tileworkbench.compiler.lower.threads.inference import LayoutMap
from tileworkbench.compiler.lower.threads.nests import FragmentAccess, MemoryAccess, Nest
from tileworkbench.compiler.lower.threads.partition import Partition, partition
from tileworkbench.compiler.machine.machine import LINE_BYTES, VECTOR_BITS

if TYPE_CHECKING:
    from tileworkbench.compiler.layout.digits import Table

_SYMBOLIC_STRIDE = 4099  # elements; prime, so that rows lie in different lines
_BOTH_WAYS = 2  # to local memory and back
_SLOTS = 64  # slots that are looked at; the pattern repeats


def global_traffic(nest: Nest, loop: Fragment, threads: int, lanes: int) -> int:
    """Bytes that the accesses of `nest` to global memory cost with the `threads` of `loop`, in
    warps of `lanes`.
    """
    accesses = [access for access in nest.memory if access.buffer.scope == "global"]
    if not accesses or nest.shape is None:
        return 0
    try:
        index = _positions(loop, threads, lanes)
    except LayoutError:
        return sum(_worst(nest) for access in accesses)
    warps = max(1, threads // lanes)
    return sum(_cost(access, nest, index, warps) for access in accesses)


def register_traffic(nest: Nest, loop: Fragment, layouts: LayoutMap, threads: int) -> int:
    """Bytes that the nest's fragments cost which are indexed by the thread."""
    try:
        shared = partition(loop, threads)
    except LayoutError:
        return 0
    total = 0
    for access in nest.fragments:
        fragment = layouts.fragment(access.buffer)
        if fragment is not None and _depends_on_thread(access, fragment, shared):
            size = max(access.buffer.dtype.bits // 8, 1)
            total += fragment.slots * threads * size * _BOTH_WAYS
    return total


def _depends_on_thread(access: FragmentAccess, fragment: Fragment, shared: Partition) -> bool:
    if access.map is None:
        return False
    box = (*shared.box, *access.map.shape[access.rank :])
    inputs = [Index(box, total) for total in shared.sums[:-1]]
    inputs += Index.variables(box)[len(shared.box) :]
    try:
        slot = fragment.evaluate(*access.map.evaluate(*inputs), 0)[1]
    except (NotDigitsError, LayoutError, ValueError):
        return False
    thread = len(shared.box) - 1
    return isinstance(slot, Index) and any(
        digit.dim == thread for term in slot.sum.terms for digit in term.digits
    )


def _positions(loop: Fragment, threads: int, lanes: int) -> list[Table]:
    """The loop's index for each slot and lane of the first warp: arrays ``(slots, lanes)``."""
    import numpy as np

    shared = partition(loop, threads)
    steps = shared.box[:-1]
    slots = np.arange(min(prod(steps), _SLOTS))
    values: list[Any] = [s[:, None] for s in np.unravel_index(slots, steps)] if steps else []
    values.append(np.arange(min(threads, lanes))[None, :])
    shape = (slots.size, values[-1].size)
    positions = (evaluate_sum(shared.box, total, values) for total in shared.sums[:-1])
    return [np.broadcast_to(position, shape) for position in positions]


def _cost(access: MemoryAccess, nest: Nest, index: list[Table], warps: int) -> int:
    import numpy as np

    values: dict[Var, Any] = dict(zip(nest.op.vars, index, strict=True))
    for position in access.indices:
        for var in variables(position):
            values.setdefault(var, 0)
    address: Any = 0
    try:
        trace = Trace(values)
        for position, stride in zip(access.indices, strides_of(access.buffer), strict=True):
            factor = const_int(stride)
            address = address + trace(position) * (factor or _SYMBOLIC_STRIDE)
    except (UntraceableError, NotDigitsError, ArithmeticError):
        return _worst(nest)
    size = max(access.buffer.dtype.bits // 8, 1)
    slots = index[0].shape[0]
    places = np.broadcast_to(np.asarray(address), index[0].shape)
    width = 1
    while (
        slots % (width * 2) == 0 and size * width * 16 <= VECTOR_BITS and _runs(places, width * 2)
    ):
        width *= 2
    total = 0
    for step in places[::width]:
        lines = np.unique(step * size // LINE_BYTES).size
        total += max(lines * LINE_BYTES, size * width * places.shape[1])
    return int(total) * warps


def _runs(places: Table, width: int) -> bool:
    """Whether every `width` neighbouring slots are neighbours in memory."""
    grouped = places.reshape(-1, width, places.shape[1])
    return bool((grouped[:, 1:] - grouped[:, :-1] == 1).all())


def _worst(nest: Nest) -> int:
    return prod(nest.shape or ()) * LINE_BYTES
