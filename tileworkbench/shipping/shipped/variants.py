"""The compilations of a GPU kernel: one for every size, and faster ones that assume something of
it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from .formulas import WrappedSizeError, evaluate
from .loader import Call, grid_of

Grid = tuple[int, int, int]


class Variants:
    """What the manifest says of each."""

    def __init__(self, folder: Path, manifest: Mapping[str, Any]) -> None:
        self._folder = folder
        self._name: str = manifest["name"]
        self._names = [each["name"] for each in manifest["parameters"]]
        self._variants: list[dict[str, Any]] = manifest["variants"]

    def choose(self, call: Call) -> tuple[dict[str, Any], list[int], list[Grid]]:
        """The first whose assumptions hold, the bytes of its workspaces, the grids of its launches.

        Raises `ArgumentError` for a grid that cannot be launched.
        """
        general = self._variants[-1]
        fitting = (each for each in self._variants[:-1] if _fits(each, call))
        variant = next(fitting, general)
        sizes = [evaluate(each, call.numbers) for each in variant["workspaces"]]
        grids = [grid_of(self._name, each["grid"], call.numbers) for each in variant["launches"]]
        return variant, sizes, grids

    def read(self, variant: Mapping[str, Any]) -> bytes:
        """The machine code."""
        name: str = variant["code"]
        return (self._folder / name).read_bytes()

    def parameter(self, place: int) -> str:
        """A parameter's name."""
        name: str = self._names[place]
        return name


def _fits(variant: Mapping[str, Any], call: Call) -> bool:
    try:
        holds = all(evaluate(each["formula"], call.numbers) for each in variant["assumptions"])
    except (WrappedSizeError, ZeroDivisionError):
        return False
    pairs = zip(call.slots, variant["alignments"], strict=False)  # symbols have none
    return holds and not any(slot % alignment for slot, alignment in pairs)


class LaunchFacts:
    """One launch of a manifest, as drivers take it."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self.entry: str = facts["entry"]
        self.threads: int = facts["threads"]
        self.shared_bytes: int = facts["shared_bytes"]
        self.cooperative: bool = facts["cooperative"]
        self.cluster: tuple[int, ...] = tuple(facts["cluster"])
        self.early: bool = facts["early"]


class MapFacts(NamedTuple):
    """One tensor map of a call: extents and strides (in bytes), outermost dimension first."""

    address: int
    element: str
    itemsize: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int

    @classmethod
    def of(cls, facts: Mapping[str, Any], call: Call) -> MapFacts:
        """The values of a map for the sizes of a call."""
        shape = tuple(evaluate(each, call.numbers) for each in facts["shape"])
        strides = tuple(evaluate(each, call.numbers) for each in facts["strides"])
        address = call.slots[facts["parameter"]]
        kind = facts["element"], facts["itemsize"]
        return cls(address, *kind, shape, strides, tuple(facts["box"]), facts["swizzle"])
