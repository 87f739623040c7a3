"""What a tile's accesses would cost under other layouts, and the line that chooses one.

Two ways: `alternatives` moves the addresses of the compiled code, as the browser does; `relowered`
compiles the kernel again with the layout, which is what the line will give.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tileworkbench.compiler.diagnostics import ArgumentError, CompileError, LayoutError
from tileworkbench.compiler.driver import lower_program
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import replace_buffers, statements
from tileworkbench.compiler.ir.stmt import Alloc
from tileworkbench.compiler.layout import Layout
from tileworkbench.compiler.layout.text import format_map, index_names
from tileworkbench.compiler.record import CompileRecord
from tileworkbench.compiler.sim.threads.listing import list_requests
from tileworkbench.compiler.sim.threads.requests import WarpAccess
from tileworkbench.compiler.target import parse_target
from tileworkbench.viz.model.tiles import (
    MisfitError,
    SharedTile,
    bytes_of,
    rearranged,
    refuse_fixed,
    total,
)

SWIZZLES = (32, 64, 128)
NAMES = ("none", "padding", *(f"swizzle{width}" for width in SWIZZLES))
MOST_PADDING = 16  # bytes that are tried behind a row


@dataclass(frozen=True, slots=True)
class Alternative:
    """One layout of a tile and what its accesses cost with it.

    Attributes:
        name: ``none`` (row-major), ``padding``, ``swizzle32``, ``swizzle64``, ``swizzle128``,
            or for a layout that is none of these ``yours`` or ``compiled``.
        layout: the places, None where the tile cannot have such a layout.
        chosen: whether the kernel has it now.
        accesses: with their counts; empty with `problem`.
        tile_bytes: shared memory of the tile, all its versions.
        shared_bytes: shared memory of the block; None unless the kernel was lowered with it.
        problem: empty, or why the accesses cannot be made with it.
        line: the line of a kernel that chooses it.
    """

    name: str
    layout: Layout | None
    chosen: bool
    accesses: tuple[WarpAccess, ...] = ()
    tile_bytes: int = 0
    shared_bytes: int | None = None
    problem: str = ""
    line: str = ""

    @property
    def wavefronts(self) -> int:
        """Of all accesses of the tile together."""
        return total(self.accesses)[0]

    @property
    def ideal(self) -> int:
        """The wavefronts that the bytes of all accesses need."""
        return total(self.accesses)[1]

    def __str__(self) -> str:
        now = ", now" if self.chosen else ""
        if self.problem:
            return f"{self.name}{now}: {self.problem}"
        factor = self.wavefronts / self.ideal if self.ideal else 1.0
        cost = f"{self.wavefronts} wavefronts, {self.tile_bytes} bytes"
        return f"{self.name}{now}: {factor:.2f}x, {cost}"

    def to_dict(self) -> dict[str, Any]:
        """Everything but the addresses as plain data."""
        return {
            "name": self.name,
            "layout": None if self.layout is None else self.layout.to_text(),
            "chosen": self.chosen,
            "wavefronts": self.wavefronts,
            "ideal": self.ideal,
            "tile_bytes": self.tile_bytes,
            "shared_bytes": self.shared_bytes,
            "problem": self.problem,
            "line": self.line,
            "accesses": [described(access) for access in self.accesses],
        }


def described(access: WarpAccess) -> dict[str, Any]:
    """An access without its addresses as plain data."""
    made = access.to_dict()
    del made["requests"]
    return made


def alternatives(tile: SharedTile) -> tuple[Alternative, ...]:
    """The layouts worth comparing, best first: those with problems last, then by wavefronts, then
    by bytes, and of equals the chosen one first.
    """
    return ranked([_measured(tile, each) for each in candidates(tile)])


def ranked(alternatives: Sequence[Alternative]) -> tuple[Alternative, ...]:
    """Best first, as in `alternatives`."""

    def key(each: Alternative) -> tuple[Any, ...]:
        return bool(each.problem), each.wavefronts, each.tile_bytes, not each.chosen

    return tuple(sorted(alternatives, key=key))


def candidates(tile: SharedTile) -> list[Alternative]:
    """The standard layouts of a tile, not measured, and its own where it is none of them."""
    made = [_candidate(tile, "none", Layout.row_major(tile.shape))]
    made.append(_candidate(tile, "padding", best_padding(tile)))
    for width in SWIZZLES:
        try:
            layout = Layout.swizzled(tile.shape, tile.bits, width)
        except LayoutError as error:
            made.append(Alternative(f"swizzle{width}", None, False, problem=error.message))
        else:
            made.append(_candidate(tile, f"swizzle{width}", layout))
    if not any(each.chosen for each in made):
        made.append(_candidate(tile, "yours" if tile.annotated else "compiled", tile.layout))
    return made


def choose(tile: SharedTile, name: str) -> Alternative:
    """The standard layout of that name, measured.

    Raises `ArgumentError` for a name that is none of `NAMES`, a tile that keeps its layout, and a
    layout that the tile or its accesses cannot have.
    """
    if name not in NAMES:
        raise ArgumentError(f"'{name}' is not a layout", f"choose one of {', '.join(NAMES)}")
    refuse_fixed(tile)
    alternative = next(each for each in candidates(tile) if each.name == name)
    measured = _measured(tile, alternative)
    if measured.problem:
        raise ArgumentError(f"'{tile.name}' cannot have the layout '{name}': {measured.problem}")
    return measured


def best_padding(tile: SharedTile) -> Layout:
    """Row-major order with rows up to 16 bytes further apart: of the least wavefronts, then of the
    least bytes.
    """
    least = total(tile.accesses)[1]
    paddings = []
    for pad in range(1, max(MOST_PADDING * 8 // tile.bits, 1) + 1):
        layout = Layout.padded(tile.shape, tile.shape[-1] + pad)
        made = _measured(tile, _candidate(tile, "padding", layout))
        paddings.append((bool(made.problem), made.wavefronts, made.tile_bytes, pad, layout))
        if not made.problem and made.wavefronts == least:
            break
    return min(paddings, key=lambda each: each[:-1])[-1]


def _candidate(tile: SharedTile, name: str, layout: Layout) -> Alternative:
    size = tile.versions * bytes_of(layout, tile.bits)
    chosen = size == tile.bytes_ and bool((layout.table() == tile.layout.table()).all())
    return Alternative(name, layout, chosen, (), size, line=annotation(tile.name, layout))


def _measured(tile: SharedTile, each: Alternative) -> Alternative:
    if each.layout is None:
        return each
    try:
        moved = tuple(rearranged(tile, access, each.layout) for access in tile.accesses)
    except MisfitError as error:
        return replace(each, problem=str(error))
    return replace(each, accesses=moved)


def annotation(name: str, layout: Layout) -> str:
    """The line of a kernel that gives the tile `name` this layout; empty for a layout that is a
    table, which has no formula.
    """
    if layout.digits is None:
        return ""
    return f"T.annotate_layout({{{name}: {format_map(layout.mapping, index_names(layout.rank))}}})"


# Compiled again


def relowered(record: CompileRecord, name: str, layout: Layout) -> Alternative:
    """The kernel with that layout of the tile `name`, lowered again by the compiler: nothing is
    moved or guessed. Its `problem` is the compiler's message where it refuses.

    Raises `ArgumentError` where the kernel declares no such tile.
    """
    declared = [
        stmt.buffer
        for stmt in statements(record.program.body)
        if isinstance(stmt, Alloc) and stmt.buffer.scope == "shared" and stmt.buffer.name == name
    ]
    if not declared:
        raise ArgumentError(f"'{name}' is no tile in shared memory of '{record.name}'")
    made = Alternative("", layout, False, line=annotation(name, layout))
    changed = {declared[0]: replace(declared[0], layout=layout)}
    try:
        snapshots = lower_program(
            replace_buffers(record.program, changed), parse_target(record.target)
        )
    except CompileError as error:
        return replace(made, problem=error.message)
    lowered = snapshots[-1].program
    mine = tuple(a for a in list_requests(lowered) if a.count.buffer == name)
    size = sum(access.places * access.bits // 8 for access in mine[:1])
    return replace(made, accesses=mine, tile_bytes=size, shared_bytes=shared_bytes(lowered))


def shared_bytes(lowered: Program) -> int:
    """Shared memory of a block of a lowered program."""
    return lowered.scratch_bytes


def compiled_alternatives(record: CompileRecord, tile: SharedTile) -> tuple[Alternative, ...]:
    """`alternatives`, each lowered again."""
    alternatives = []
    for each in candidates(tile):
        if each.layout is not None:
            made = relowered(record, tile.name, each.layout)
            each = replace(made, name=each.name, chosen=each.chosen)
        alternatives.append(each)
    return ranked(alternatives)
