"""What was counted in a run, as plain data."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from tileworkbench.compiler.diagnostics import ArgumentError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.sim.footprint.recorder import Side


@dataclass(frozen=True, slots=True)
class TensorFootprint:
    """How often each element of one tensor parameter is loaded and stored, and by whom.

    The arrays of `loads` and `stores` (see `Side`) have an entry for each element in row-major
    order; of a large tensor one for each run of `cell` neighbours. `shape` is that of the memory
    where it has holes.
    """

    name: str
    shape: tuple[int, ...]
    elements: int
    cell: int
    loads: Side
    stores: Side

    @property
    def loaded(self) -> int:
        """How many elements (or runs of them) are loaded."""
        return int(np.count_nonzero(self.loads.times))

    @property
    def stored(self) -> int:
        """How many are stored."""
        return int(np.count_nonzero(self.stores.times))

    @property
    def untouched(self) -> int:
        """How many are neither loaded nor stored."""
        return int(np.count_nonzero((self.loads.times == 0) & (self.stores.times == 0)))

    @property
    def reuse(self) -> float:
        """How often an element that is loaded is loaded, on average; 0 where none is."""
        each = self.loads.times.sum() / self.cell / self.loaded if self.loaded else 0.0
        return float(each)

    def row(self) -> dict[str, Any]:
        """The counts as plain data."""
        return {
            "tensor": self.name,
            "shape": list(self.shape),
            "run": self.cell,
            "loaded": self.loaded,
            "stored": self.stored,
            "untouched": self.untouched,
            "loads": int(self.loads.times.sum()),
            "stores": int(self.stores.times.sum()),
            "reuse": self.reuse,
            "most_loads": int(self.loads.times.max(initial=0)),
            "loaded_by_several_blocks": int(np.count_nonzero(self.loads.blocks > 1)),
            "stored_by_several_blocks": int(np.count_nonzero(self.stores.blocks > 1)),
        }


@dataclass(frozen=True, slots=True)
class LineLanes:
    """One kind of access ("load", "store", "atomic") of a tensor in one line: of `lanes` elements
    that its lanes asked for, `active` were accessed; predicates, branches and the tensor's bounds
    masked the others.
    """

    line: int
    tensor: str
    access: str
    active: int
    lanes: int

    @property
    def masked(self) -> float:
        """The share of masked lanes, from 0 to 1."""
        return 1 - self.active / self.lanes if self.lanes else 0.0

    def row(self) -> dict[str, Any]:
        """The same as plain data."""
        return {
            "line": self.line,
            "tensor": self.tensor,
            "access": self.access,
            "lanes": self.lanes,
            "active": self.active,
            "masked": self.masked,
        }


@dataclass(frozen=True, slots=True)
class TileUse:
    """How many elements of a tile in shared memory are loaded and stored by all blocks."""

    name: str
    loads: int
    stores: int

    @property
    def reuse(self) -> float:
        """How often a stored element is loaded, on average; 0 where none is stored."""
        return self.loads / self.stores if self.stores else 0.0

    def row(self) -> dict[str, Any]:
        """The same as plain data."""
        counts = {"loads": self.loads, "stores": self.stores}
        return {"tile": self.name, **counts, "reuse": self.reuse}


@dataclass(frozen=True, slots=True)
class Footprint:
    """What the blocks of one call touch, as plain data.

    Attributes:
        kernel: its name.
        program: which program was simulated: "as written" or "lowered".
        inputs: on which inputs, in a few words.
        tensors, lines, tiles: see there.
        launches: the grid of each launch; blocks are numbered over all of them, x fastest.
        blocks: how many were recorded; `total` of how many, 0 where that is not known.
        block: the number of the only block that was recorded, with its threads; -1 of several.
        why_not: why not all blocks were recorded; else empty.
    """

    kernel: str
    program: str
    inputs: str
    tensors: tuple[TensorFootprint, ...]
    lines: tuple[LineLanes, ...]
    tiles: tuple[TileUse, ...]
    launches: tuple[tuple[int, ...], ...]
    blocks: int
    total: int
    block: int
    why_not: str

    @property
    def recorded(self) -> str:
        """How much was: ``all 4 blocks``, ``12 of 64 blocks because ...``."""
        counted = "1 block" if self.total == 1 else f"{self.total} blocks"
        if not self.why_not and self.blocks == self.total:
            return "the only block" if self.total == 1 else f"all {counted}"
        extent = f"{self.blocks} of {counted}" if self.total else f"{self.blocks} blocks"
        return f"{extent} because {self.why_not}" if self.why_not else extent

    def tensor(self, name: str) -> TensorFootprint:
        """The tensor of that name. Raises `ArgumentError` where there is none."""
        for each in self.tensors:
            if each.name == name:
                return each
        known = ", ".join(each.name for each in self.tensors) or "it has none"
        raise ArgumentError(f"'{name}' is no tensor of '{self.kernel}'", f"its tensors: {known}")

    def block_at(self, number: int) -> tuple[int, ...]:
        """The indices of a block in its launch, x first; empty where there is no such block."""
        for grid in self.launches:
            if 0 <= number < prod(grid):
                return tuple(map(int, np.unravel_index(number, grid, order="F")))
            number -= prod(grid)
        return ()

    def rows(self) -> list[dict[str, Any]]:
        """A row for each tensor."""
        return [tensor.row() for tensor in self.tensors]

    def to_dict(self) -> dict[str, Any]:
        """The counts without the arrays."""
        return {
            "kernel": self.kernel,
            "program": self.program,
            "inputs": self.inputs,
            "recorded": self.recorded,
            "launches": [list(grid) for grid in self.launches],
            "tensors": self.rows(),
            "lines": [line.row() for line in self.lines],
            "tiles": [tile.row() for tile in self.tiles],
        }

    def __str__(self) -> str:
        said = [f"{self.kernel}: recorded {self.recorded}"]
        for tensor in self.tensors:
            each = tensor.row()
            said.append(
                f"  {tensor.name}: {each['loaded']} elements loaded {tensor.reuse:.3g} times each, "
                f"{each['stored']} stored, {each['untouched']} never touched"
            )
        return "\n".join(said)
