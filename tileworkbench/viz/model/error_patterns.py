"""Where wrong elements lie, in the fewest words: by block, warp, lane, register, row, column."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.simt import LANGUAGE_WARP

Array = np.ndarray[Any, Any]

_MODULI = (2, 4, 8, 16, 32, 64, 128)
_MOST_RUNS = 3  # of numbers, in one description
_MOST_PARTS = 4
_MOST_OF_ALL = 0.9  # of a tensor: a description of more says nothing
_WORTH = 0.8  # a part must leave out this much, unless it leaves only wrong elements
_NEARLY_ALL = 0.95  # some elements of what is wrong are right by chance
_AXES = "xyz"


@dataclass(frozen=True, slots=True)
class Part:
    """One property that all wrong elements have: its text, how hard that is to read, and which
    elements have it (flat).
    """

    kind: str
    text: str
    cost: int
    members: Array


def describe_places(wrong: Array, owners: Mapping[str, Array], grid: tuple[int, ...]) -> str:
    """Where the elements of the boolean array `wrong` lie.

    `owners` may hold "block" (x fastest), "thread" and "register", one number for each element,
    below zero where it is not known. A part is named only where it leaves out right elements.
    """
    flat, count = wrong.reshape(-1), int(np.count_nonzero(wrong))
    if count >= _NEARLY_ALL * wrong.size:
        return "everywhere" if count == wrong.size else "nearly everywhere"
    if count == 1:
        place = tuple(map(int, np.argwhere(wrong)[0]))
        return f"only at [{', '.join(map(str, place))}]"
    parts = list(_parts(wrong, owners, grid))
    by_place = _smallest([part for part in parts if part.kind == "place"], flat)
    by_owner = _smallest([part for part in parts if part.kind != "place"], flat)
    if _leaves_out_all(by_place, flat) and _leaves_out_all(by_owner, flat):
        return f"all in {_joined(by_place)}, by {_joined(by_owner)}"
    if not _leaves_out_all(by_place, flat) and not _leaves_out_all(by_owner, flat):
        by_place = _smallest(parts, flat)
    kept = by_place if _leaves_out_all(by_place, flat) or not by_owner else by_owner
    kept = kept if _leaves_out_all(kept, flat) else by_place or kept
    within = int(np.count_nonzero(_within(kept, flat.size)))
    if not kept or within > _MOST_OF_ALL * flat.size:
        return f"scattered, {count} of {flat.size} elements"
    text = f"all in {_joined(kept)}"
    if count >= _NEARLY_ALL * within:
        return text
    return f"{text}, where {count} of {within} elements are wrong"


def _smallest(candidates: list[Part], wrong: Array) -> list[Part]:
    """The fewest parts that leave out most right elements: greedy, the cheapest of equals."""
    count, inside = int(np.count_nonzero(wrong)), np.ones(wrong.size, np.bool_)
    left = sorted(candidates, key=lambda part: part.cost)
    kept: list[Part] = []
    reached = wrong.size
    while left and len(kept) < _MOST_PARTS and reached > count:
        sizes = [int(np.count_nonzero(inside & part.members)) for part in left]
        best = min(range(len(sizes)), key=lambda at: (sizes[at], left[at].cost))
        if sizes[best] > _WORTH * reached and sizes[best] * _NEARLY_ALL > count:
            break
        reached = sizes[best]
        kept.append(left.pop(best))
        inside &= kept[-1].members
    return _needed(kept, wrong.size, reached)


def _within(parts: list[Part], size: int) -> Array:
    inside = np.ones(size, np.bool_)
    for part in parts:
        inside &= part.members
    return inside


def _leaves_out_all(parts: list[Part], wrong: Array) -> bool:
    """Whether the parts describe the wrong elements, and hardly any other."""
    within = np.count_nonzero(_within(parts, wrong.size))
    return bool(parts) and bool(np.count_nonzero(wrong) >= _NEARLY_ALL * within)


def _needed(kept: list[Part], size: int, reached: int) -> list[Part]:
    """The parts without those that the others make superfluous, the costliest first."""
    for part in sorted(kept, key=lambda part: -part.cost):
        others = [other for other in kept if other is not part]
        if np.count_nonzero(_within(others, size)) == reached:
            kept = others
    return kept


def _joined(parts: list[Part]) -> str:
    """The parts in the order of the hierarchy; lanes are those of their warps."""
    order = ("place", "register", "lane", "warp", "block")
    parts = sorted(parts, key=lambda part: order.index(part.kind))
    text = ""
    for before, part in zip([None, *parts], parts, strict=False):
        if before is None:
            text = part.text
        elif part.kind == "warp" or (part.kind == "block" and before.kind != "place"):
            text += f" of {part.text}"
        else:
            text += f" and in {part.text}" if before.kind != part.kind else f" and {part.text}"
    return text


def _parts(wrong: Array, owners: Mapping[str, Array], grid: tuple[int, ...]) -> Iterator[Part]:
    flat = wrong.reshape(-1)
    for kind, name, values, cost in _owner_values(owners, grid):
        if part := _part(kind, name, values, flat, cost):
            yield part
    dims = wrong.ndim
    last, border = np.zeros(wrong.shape, np.bool_), np.zeros(wrong.shape, np.bool_)
    for dim, extent in enumerate(wrong.shape):
        along = np.arange(extent).reshape([-1 if d == dim else 1 for d in range(dims)])
        values = np.broadcast_to(along, wrong.shape).reshape(-1)
        if part := _part("place", _axis(dims, dim), values, flat, 1, extent):
            yield part
        for modulus in _MODULI:
            if 2 * modulus > extent:
                break
            name = f"{_axis(dims, dim)}s whose number modulo {modulus} is"
            if part := _part("place", name, values % modulus, flat, 3):
                yield part
        if extent > 1:
            last |= along == extent - 1
            border |= (along == 0) | (along == extent - 1)
    if dims > 1:
        row, column = np.ogrid[: wrong.shape[-2], : wrong.shape[-1]]
        for name, cost, mask in (
            ("the last row or column", 2, last),
            ("the border", 2, border),
            ("the diagonal", 2, row == column),
            ("the triangle above the diagonal", 2, row < column),
            ("the triangle below the diagonal", 2, row > column),
        ):
            members = np.broadcast_to(mask, wrong.shape).reshape(-1)
            if members[flat].all() and not members.all():
                yield Part("place", name, cost, members)


def _owner_values(
    owners: Mapping[str, Array], grid: tuple[int, ...]
) -> Iterator[tuple[str, str, Array, int]]:
    if "block" in owners:
        blocks = owners["block"].reshape(-1)
        yield "block", "block", blocks, 2
        stride = 1
        for axis, extent in zip(_AXES, grid, strict=False):
            values = np.where(blocks < 0, -1, blocks // stride % extent)
            if len(grid) > 1:
                yield "block", f"blocks with {axis} =", values, 2
            stride *= extent
    if "thread" in owners:
        threads = owners["thread"].reshape(-1)
        yield "warp", "warp", np.where(threads < 0, -1, threads // LANGUAGE_WARP), 2
        yield "lane", "lane", np.where(threads < 0, -1, threads % LANGUAGE_WARP), 2
    if "register" in owners:
        yield "register", "register", owners["register"].reshape(-1), 3


def _part(
    kind: str, name: str, values: Array, wrong: Array, cost: int, extent: int = 0
) -> Part | None:
    """The numbers that wrong elements have, unless one is unknown, or all elements have them."""
    distinct = np.unique(values[wrong])
    if distinct[0] < 0:
        return None
    members = np.isin(values, distinct)
    runs = _runs(distinct)
    if members.all() or len(runs) > _MOST_RUNS:
        return None
    text = _named(name, distinct, runs, extent)
    return Part(kind, text, cost + len(runs), members)


def _named(name: str, members: Array, runs: list[tuple[int, int]], extent: int) -> str:
    numbers = _listed([f"{a}" if a == b else f"{a}-{b}" for a, b in runs])
    if name.endswith(("=", "is")):
        return f"{name} {numbers}"
    if extent and len(members) == 1 and members[0] in (0, extent - 1):
        return f"the {'last' if members[0] else 'first'} {name}"
    return f"{name}{'s' if len(members) > 1 else ''} {numbers}"


def _axis(dims: int, dim: int) -> str:
    if dims == 1:
        return "element"
    at_end = dims - dim
    return {1: "column", 2: "row"}.get(at_end, f"slice of dimension {dim}")


def _runs(numbers: Array) -> list[tuple[int, int]]:
    """The ranges of consecutive numbers, both ends included."""
    cuts = np.flatnonzero(np.diff(numbers) > 1)
    first, last = np.append(0, cuts + 1), np.append(cuts, len(numbers) - 1)
    return [(int(numbers[a]), int(numbers[b])) for a, b in zip(first, last, strict=True)]


def _listed(texts: list[str]) -> str:
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


def describe_values(got: Array, want: Array, wrong: Array) -> str:
    """What the wrong values have in common: NaN, infinity, zero, a factor, a distance; or empty."""
    a, b = got[wrong], want[wrong]
    for said, holds in (
        ("all are NaN", np.isnan(a)),
        ("all are infinite", np.isinf(a)),
        ("all are 0", a == 0),
    ):
        if holds.all() and not np.isnan(b).any():
            return said if len(a) > 1 else said.replace("all are", "it is")
    if np.isnan(b).any():
        return f"the reference is NaN in {int(np.isnan(b).sum())} of them"
    finite = np.isfinite(a) & np.isfinite(b)
    if not finite.all() or len(a) < 2:
        return ""
    distance = float(np.median(a - b))
    if np.allclose(a - b, distance, rtol=1e-2, atol=0):
        return f"each is {abs(distance):.3g} too {'large' if distance > 0 else 'small'}"
    if (b != 0).all():
        factor = float(np.median(a / b))
        # A factor of 1 is what rounding leaves, and no pattern.
        if np.allclose(a, factor * b, rtol=5e-3, atol=0) and abs(factor - 1) > 5e-3:
            return f"each is {factor:.3g} times what is expected"
    return ""
