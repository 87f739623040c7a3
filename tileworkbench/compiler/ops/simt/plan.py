"""How threads share a nest that nothing constrains: neighbours take neighbouring vectors."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

from tileworkbench.compiler.layout.digits import NotDigitsError
from tileworkbench.compiler.layout.fragment import Fragment
from tileworkbench.compiler.layout.index import Index
from tileworkbench.compiler.layout.layout import Layout
from tileworkbench.compiler.layout.maps import build_map, flatten, make_digit_map


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
    """The same one dimension after the other, the last first; a dimension that does not divide the
    threads that are left takes the next power of two of them.
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
