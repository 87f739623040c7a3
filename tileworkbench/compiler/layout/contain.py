"""Containment of fragments: whoever owns an element under one also owns it under another."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING

from tileworkbench.compiler.diagnostics import LayoutError

from .digits import DigitSum, NotDigitsError, Term, make_sum
from .fragment import Fragment
from .layout import Layout
from .maps import DigitMap

if TYPE_CHECKING:
    from .digits import Table

ENUMERATION_LIMIT = 2**22
"""Most (element, replica) pairs that are compared one by one."""


@lru_cache(maxsize=1024)
def contains(
    small: Fragment,
    large: Fragment,
    small_access: Layout | None = None,
    large_access: Layout | None = None,
    same_slot: bool = False,
) -> bool:
    """Whether every thread that owns an element under `small` owns it under `large`.

    The element at a loop index is ``small_access(loop)`` of the one and ``large_access(loop)`` of
    the other; without an access it is the loop index itself. With `same_slot` it must also be at
    the same slot of both. Threads are compared in the block: `thread_range` counts.

    Raises:
        LayoutError: the loops differ in shape, or digits do not decide and there are more than
            2**22 (element, replica) pairs.
    """
    first = small @ small_access if small_access else small
    second = large @ large_access if large_access else large
    if first.shape != second.shape:
        raise LayoutError(
            f"Cannot compare fragments over different loops '{first.shape}' and '{second.shape}'."
        )
    if same_slot and not _same_slots(first, second):
        return False
    shift = (first.thread_range or (0, 0))[0] - (second.thread_range or (0, 0))[0]
    if isinstance(first.mapping, DigitMap) and isinstance(second.mapping, DigitMap):
        try:
            decided = _decide(first.mapping, second.mapping, shift)
        except NotDigitsError:
            decided = None
        if decided is not None:
            return decided
    return _enumerate(first, second, shift)


def _same_slots(first: Fragment, second: Fragment) -> bool:
    if isinstance(first.mapping, DigitMap) and isinstance(second.mapping, DigitMap):
        return first.mapping.sums[1] == second.mapping.sums[1]
    return bool((first.table()[1] == second.table()[1]).all())


def _decide(first: DigitMap, second: DigitMap, shift: int) -> bool | None:
    """Containment on digits: None where they do not decide.

    What is needed of the second's replica is the first's thread less the part of the second's
    thread that the index fixes.
    """
    replica = len(second.shape) - 1
    fixed: list[Term] = []
    free: list[Term] = []
    for term in second.sums[0].terms:
        dims = {digit.dim for digit in term.digits}
        if replica in dims and len(dims) > 1:
            return None
        (free if replica in dims else fixed).append(term)
    constant = first.sums[0].constant - second.sums[0].constant + shift
    terms = [*first.sums[0].terms, *(Term(term.digits, -term.stride) for term in fixed)]
    needed = make_sum(first.shape, constant, terms)
    places = _places(free)
    if places is None:
        return None
    if _fits(needed, places):
        return True
    if any(  # every term takes each of its values while the others are 0
        not _reachable(needed.constant + term.stride * value, places)
        for term in needed.terms
        for value in (1, term.extent - 1)
    ):
        return False
    return None


def _places(terms: list[Term]) -> list[tuple[int, int]] | None:
    """Mixed-radix places ``(stride, extent)`` that the terms fill, smallest first."""
    places = sorted((term.stride, term.extent) for term in terms)
    reach = 0
    for stride, extent in places:
        if stride <= reach:
            return None
        reach += stride * (extent - 1)
    return places


def _fits(needed: DigitSum, places: list[tuple[int, int]]) -> bool:
    """Whether each term can be spent on places without ever carrying out of one."""
    room = {stride: extent - 1 for stride, extent in places}
    pending = [(term.stride, term.extent) for term in needed.terms]
    if needed.constant:
        pending.append((needed.constant, 2))
    while pending:
        stride, extent = pending.pop()
        hosts = [p for p in places if p[0] <= stride < p[0] * p[1] and stride % p[0] == 0]
        if not hosts:
            return False
        low, size = hosts[0]
        inside = extent
        if stride * extent > low * size:
            inside, rest = divmod(low * size, stride)
            if rest or extent % inside:
                return False
            pending.append((low * size, extent // inside))
        room[low] -= stride // low * (inside - 1)
        if room[low] < 0:
            return False
    return True


def _reachable(value: int, places: list[tuple[int, int]]) -> bool:
    """Whether `value` is a sum of the places' digits."""
    if value < 0:
        return False
    for stride, extent in reversed(places):
        value -= min(value // stride, extent - 1) * stride
    return value == 0


def _enumerate(first: Fragment, second: Fragment, shift: int) -> bool:
    """Containment by comparing all owners of all elements."""
    import numpy as np

    pairs = prod(first.shape) * (first.replicate + second.replicate)
    if pairs > ENUMERATION_LIMIT:
        raise LayoutError(
            f"Cannot compare the owners of {prod(first.shape)} elements with {first.replicate} and "
            f"{second.replicate} replicas: the digits do not decide."
        )
    span = max(first.threads + abs(shift), second.threads)
    owners = _keys(first.table()[0] + shift, span)
    if owners is None:
        return False
    others = _keys(second.table()[0], span)
    return others is not None and bool(np.isin(owners, others).all())


def _keys(threads: Table, span: int) -> Table | None:
    """One number per (element, thread); None if a thread lies below all others' range."""
    import numpy as np

    if threads.min() < 0:
        return None
    flat = threads.reshape(-1, threads.shape[-1])
    return np.unique(np.arange(len(flat))[:, None] * span + flat)
