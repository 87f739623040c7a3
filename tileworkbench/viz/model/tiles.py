"""Tiles in shared memory: their shapes, layouts and accesses, and the same under another layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from tileworkbench.compiler.analysis.effects import owners
from tileworkbench.compiler.diagnostics import ArgumentError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.ir.program import Program, Stage
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.stmt import Alloc
from tileworkbench.compiler.layout import Layout
from tileworkbench.compiler.sim.threads.counters import wavefronts
from tileworkbench.compiler.sim.threads.requests import Request, WarpAccess
from tileworkbench.viz.model.view import KernelView

Array = np.ndarray[Any, Any]


NOT_LOWERED = "the kernel was not lowered"
ENGINES_ABOUT = (
    "What the copy engine (TMA) and the tensor cores (wgmma) do by themselves is drawn as if each "
    "lane accessed a piece of 16 bytes."
)


def lowered_program(view: KernelView, stage: Stage) -> Program | None:
    """The program after the last pass; None where it is not of that stage."""
    snapshots = view.record.snapshots
    program = snapshots[-1].program if snapshots else None
    return program if program is not None and program.stage is stage else None


@dataclass(frozen=True)
class SharedTile:
    """A tile in shared memory with all that goes to it.

    Attributes:
        name, dtype, shape: as the user declared it; one flat dimension for what the compiler made.
        bits: of an element.
        layout: the place of each element, in elements.
        versions: copies of it that a pipeline keeps, one after the other.
        base: its first byte in shared memory.
        line: of the user's source that declares it, 0 where it is not known.
        accesses: in program order; those of views of its memory too.
        annotated: whether the layout is the user's.
        fixed: empty, or why no other layout can be chosen for it.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    bits: int
    layout: Layout
    versions: int
    base: int
    line: int
    accesses: tuple[WarpAccess, ...]
    annotated: bool
    fixed: str

    @property
    def bytes_(self) -> int:
        """What it takes of shared memory, all versions and holes."""
        return self.versions * bytes_of(self.layout, self.bits)

    @cached_property
    def elements(self) -> Array:
        """The row-major number of the element in each place of a version, -1 where none is."""
        table = self.layout.table().reshape(-1)
        numbers = np.full(prod(self.layout.output_shape), -1, np.int64)
        numbers[table] = np.arange(table.size)
        return numbers


def bytes_of(layout: Layout, bits: int) -> int:
    """The size of a tile of that layout, holes included."""
    return -(-prod(layout.output_shape) * bits // 8)


def shared_tiles(view: KernelView) -> tuple[SharedTile, ...]:
    """The tiles that the accesses of a GPU kernel go to, in the order of their offsets."""
    accesses = [each for each in view.requests() if isinstance(each, WarpAccess)]
    shared = [each for each in accesses if each.count.scope == "shared"]
    if not shared:
        return ()
    lowered = view.record.snapshots[-1].program
    views = {alias.name: owner.name for alias, owner in owners(lowered.body).items()}
    allocated = {each.buffer.name: each for each in _allocs(lowered)}
    declared = {each.buffer.name: each for each in _allocs(view.record.program)}
    layouts = {each.name: each.layout for each in view.layouts}
    names = {views.get(access.count.buffer, access.count.buffer): None for access in shared}
    tiles = []
    for name in names:
        mine = tuple(a for a in shared if views.get(a.count.buffer, a.count.buffer) == name)
        flat, own = allocated[name].buffer, declared.get(name)
        viewed = sorted(alias for alias, owner in views.items() if owner == name)
        span = view.record.program.span(own.site) if own is not None else None
        tile = _tile(name, flat, own.buffer if own is not None else None, layouts.get(name), mine)
        fixed = tile.fixed or (f"its memory is also '{viewed[0]}'" if viewed else "")
        tiles.append(replace(tile, line=span.line if span else 0, fixed=fixed))
    return tuple(sorted(tiles, key=lambda tile: tile.base))


def find_tile(view: KernelView, name: str) -> SharedTile:
    """The tile of that name. Raises `ArgumentError` where there is none."""
    tiles = {tile.name: tile for tile in shared_tiles(view)}
    if name in tiles:
        return tiles[name]
    known = f"one of {', '.join(tiles)}" if tiles else "it has no tiles in banked memory"
    raise ArgumentError(f"'{view.record.name}' accesses no tile '{name}' in shared memory", known)


def movable_tile(view: KernelView, name: str) -> SharedTile:
    """The tile of that name. Raises `ArgumentError` where there is none, or it keeps its layout."""
    tile = find_tile(view, name)
    refuse_fixed(tile)
    return tile


def refuse_fixed(tile: SharedTile) -> None:
    """Raise `ArgumentError` for a tile that keeps its layout."""
    if tile.fixed:
        raise ArgumentError(f"the layout of '{tile.name}' cannot be changed: {tile.fixed}")


def _allocs(program: Program) -> list[Alloc]:
    allocs = [stmt for stmt in statements(program.body) if isinstance(stmt, Alloc)]
    return [stmt for stmt in allocs if stmt.buffer.scope == "shared"]


def _tile(
    name: str, flat: Buffer, own: Buffer | None, planned: Any, accesses: tuple[WarpAccess, ...]
) -> SharedTile:
    """The tile of the flat buffer `flat`, declared as `own`, with the layout that was `planned`."""
    base, bits = accesses[0].base, accesses[0].bits
    places = const_int(flat.shape[0]) or 1
    extents = [const_int(extent) for extent in own.shape] if own is not None else [None]
    shape = tuple(extent for extent in extents if extent is not None)
    made = SharedTile(
        name, str(flat.dtype), (places,), bits, Layout.row_major((places,)), 1, base, 0, accesses,
        False, "the compiler made it",
    )  # fmt: skip
    if own is None or len(shape) < len(extents):
        return made
    layout = planned if isinstance(planned, Layout) else Layout.row_major(shape)
    size = prod(layout.output_shape)
    if layout.shape != shape or places % size:
        return made
    annotated = isinstance(own.layout, Layout)
    return replace(
        made,
        shape=shape,
        layout=layout,
        versions=places // size,
        annotated=annotated,
        fixed="" if len(shape) > 1 else "a tile of one dimension has no other layout",
    )


class MisfitError(Exception):
    """A layout takes what one instruction accesses apart; the message says which and why."""


def rearranged(tile: SharedTile, access: WarpAccess, layout: Layout) -> WarpAccess:
    """`access` of the tile as it would be if the tile had `layout`: the same lanes access the same
    elements by the same instruction.

    Raises `MisfitError` where their bytes are no longer neighbours or no longer aligned.
    """
    size, wider = prod(tile.layout.output_shape), prod(layout.output_shape)
    table = layout.table().reshape(-1)
    width, bits = access.count.width, tile.bits
    lanes = max(width * 8 // bits, 1)
    used = ideal = 0
    requests = []
    for request in access.requests:
        places = (request.addresses[request.active] - tile.base) * 8 // bits
        version, first = places // size, places % size
        elements = tile.elements[first[:, None] + np.arange(lanes)]
        if (elements < 0).any():
            raise MisfitError(f"'{access.count.described}' reads what lies between the elements")
        moved = table[elements]
        if (moved - moved[:, :1] != np.arange(lanes)).any():
            raise MisfitError(f"the {width} bytes of a lane ({access.count.kind}) are not together")
        starts = tile.base + (version * wider + moved[:, 0]) * bits // 8
        if ((starts - tile.base) % width).any():
            raise MisfitError(
                f"the {width} bytes of a lane ({access.count.kind}) do not begin at a multiple of "
                f"{width} bytes"
            )
        addresses = np.zeros_like(request.addresses)
        addresses[request.active] = starts
        counts = wavefronts(addresses, request.active, access.service)
        used, ideal = used + counts[0] * request.times, ideal + counts[1] * request.times
        requests.append(Request(addresses, request.active, request.register, request.times))
    count = replace(access.count, wavefronts=used, ideal=ideal)
    return replace(access, count=count, requests=tuple(requests), places=tile.versions * wider)


def total(accesses: Sequence[WarpAccess]) -> tuple[int, int]:
    """(wavefronts, ideal) of accesses together."""
    return (
        sum(access.count.wavefronts for access in accesses),
        sum(access.count.ideal for access in accesses),
    )


def unlisted(view: KernelView, scope: str) -> list[str]:
    """A line for each access of a memory that cannot be listed, with the reason."""
    return [text for where, text in view.unlisted() if where == scope]
