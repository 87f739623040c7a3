"""Bank conflicts as a view: every access of shared memory with the bytes its lanes go to, and what
other layouts would make of it. For a CPU the cache lines of the same tiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from tileworkbench.bench.units import format_bytes
from tileworkbench.compiler.diagnostics import ArgumentError
from tileworkbench.compiler.ir.program import Stage
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.stmt import Alloc
from tileworkbench.compiler.layout import Layout
from tileworkbench.compiler.machine.rates import rates_of
from tileworkbench.compiler.sim.threads.counters import MEMORY
from tileworkbench.compiler.sim.threads.pieces import ENGINES
from tileworkbench.compiler.sim.threads.requests import Phase, Request, WarpAccess
from tileworkbench.viz.model import cache_lines, html, swizzles
from tileworkbench.viz.model.annotated_cell import cell_with
from tileworkbench.viz.model.packing import packed_text
from tileworkbench.viz.model.palette import EMPTY, PALETTE
from tileworkbench.viz.model.png import png_address
from tileworkbench.viz.model.text import numbered
from tileworkbench.viz.model.tiles import (
    ENGINES_ABOUT,
    NOT_LOWERED,
    SharedTile,
    lowered_program,
    shared_tiles,
    total,
    unlisted,
)
from tileworkbench.viz.model.view import KernelView
from tileworkbench.viz.model.what_if import Alternative, alternatives, relowered

_CELL = 12  # pixels of a place in a punch card
_GOOD, _BAD = (68, 187, 153), (211, 48, 47)
_MOST_CARDS = 4  # punch cards in a section
_MOST_ROWS = 8  # accesses in the section of a card
_CONFLICT = "CONFLICT"
_MARK = "T.the_line()"


def missing(view: KernelView) -> str:
    """Why there is nothing to show; empty where there is."""
    if view.target_kind == "cpu":
        return cache_lines.missing(view, cache_lines.TILES)
    lowered = lowered_program(view, Stage.SIMT)
    if lowered is None:
        return NOT_LOWERED
    allocs = (stmt for stmt in statements(lowered.body) if isinstance(stmt, Alloc))
    if any(stmt.buffer.scope == "shared" for stmt in allocs):
        return ""
    return "the kernel has no tile in shared memory"


def conflicts(view: KernelView) -> list[WarpAccess]:
    """The accesses of shared memory that take more wavefronts than their bytes need."""
    accesses = (each for each in view.requests() if isinstance(each, WarpAccess))
    return [each for each in accesses if each.count.wavefronts > each.count.ideal]


def model(view: KernelView) -> dict[str, Any]:
    """Accesses with the addresses of their requests, and tiles with other layouts.

    Of request ``r`` of an access, thread ``t`` goes to byte ``base[r] + patterns[pattern[r]][t]``.
    """
    if view.target_kind == "cpu":
        return cache_lines.model(view, cache_lines.TILES)
    tiles = shared_tiles(view)
    patterns = Patterns()
    accesses = [_access(tile, access, patterns) for tile in tiles for access in tile.accesses]
    return {
        "unit": "bank",
        "about": about(view),
        "target": view.record.target,
        "threads": view.threads,
        "tiles": [_tile(view, tile) for tile in tiles],
        "accesses": accesses,
        "unlisted": unlisted(view, "shared"),
        "patterns": patterns.table(),
        "memory": memory_of(view, accesses_of(tiles)),
        "palette": PALETTE,
    }


def accesses_of(tiles: Sequence[SharedTile]) -> list[WarpAccess]:
    """The accesses of all tiles."""
    return [access for tile in tiles for access in tile.accesses]


def memory_of(view: KernelView, accesses: Sequence[WarpAccess]) -> dict[str, Any]:
    """How the machine serves warps: banks, threads of a warp and the vendor's word for it, and the
    order of lanes in loads of so many bytes where it is not their own.
    """
    warp, memory = (accesses[0].warp, accesses[0].memory) if accesses else (32, MEMORY)
    orders = {str(width): list(order) for width, order in memory.read_order.items()}
    return {"banks": memory.banks, "warp": warp, "called": warp_word(view), "orders": orders}


def warp_word(view: KernelView) -> str:
    """What the vendor calls a warp."""
    rates = rates_of(view.record.target.partition(":")[2])
    return rates.warp if rates is not None else "warp"


class Patterns:
    """The addresses of requests without where they begin, each pattern once."""

    def __init__(self) -> None:
        self._found: dict[bytes, int] = {}
        self._rows: list[np.ndarray[Any, Any]] = []

    def add(self, request: Request) -> tuple[int, int]:
        """(number of its pattern, first byte)."""
        base = int(request.addresses[request.active].min()) if request.active.any() else 0
        row = np.where(request.active, request.addresses - base, -1)
        number = self._found.setdefault(row.tobytes(), len(self._rows))
        if number == len(self._rows):
            self._rows.append(row)
        return number, base

    def table(self) -> dict[str, Any]:
        """All patterns, one after the other."""
        rows = np.stack(self._rows) if self._rows else np.zeros((0, 0), np.int64)
        return {"threads": rows.shape[1], **packed_text(rows.reshape(-1))}

    def requests(self, requests: Sequence[Request]) -> dict[str, Any]:
        """The requests of an access as columns."""
        placed = [self.add(request) for request in requests]
        return {
            "pattern": [number for number, _ in placed],
            "base": [base for _, base in placed],
            "times": [request.times for request in requests],
            "register": [request.register for request in requests],
        }


def side(access: WarpAccess) -> str:
    """Whether an access of shared memory reads or writes it."""
    return "write" if access.count.writes else "read"


def _access(tile: SharedTile, access: WarpAccess, patterns: Patterns) -> dict[str, Any]:
    count = access.count
    return {
        "line": count.span.line if count.span is not None else 0,
        "buffer": count.buffer,
        "tile": tile.name,
        "kind": count.kind,
        "side": "update" if count.kind == "atomic" else side(access),
        "width": count.width,
        "count": count.count,
        "wavefronts": count.wavefronts,
        "ideal": count.ideal,
        "degree": access.degree,
        "requests": patterns.requests(access.requests),
    }


def _tile(view: KernelView, tile: SharedTile) -> dict[str, Any]:
    before, _, after = cell_with(view.record, tile, _MARK, view.line).partition(_MARK)
    return {
        "name": tile.name,
        "dtype": tile.dtype,
        "shape": list(tile.shape),
        "bits": tile.bits,
        "base": tile.base,
        "versions": tile.versions,
        "line": tile.line,
        "fixed": tile.fixed,
        "annotated": tile.annotated,
        "layout": {
            "text": str(tile.layout),
            "size": tile.elements.size,
            "table": packed_text(tile.layout.table().reshape(-1)),
        },
        "choices": [] if tile.fixed else [_choice(tile, each) for each in alternatives(tile)],
        "cell": [before, after],
    }


def _choice(tile: SharedTile, each: Alternative) -> dict[str, Any]:
    columns, rows = tile.shape[-1], prod(tile.shape[:-1])
    size = prod(each.layout.output_shape) if each.layout is not None else 0
    return {
        "name": each.name,
        "chosen": each.chosen,
        "pitch": (size - columns) // (rows - 1) if rows > 1 else columns,  # of padded rows
        "line": each.line,
        "layout": each.layout.to_text() if each.layout is not None else "",
        "problem": each.problem,
    }


def relower(view: KernelView, message: dict[str, Any]) -> dict[str, Any]:
    """The answer to ``{"buffer", "layout"}``: the kernel lowered again with that layout."""
    layout = Layout.from_text(str(message["layout"]))
    try:
        return relowered(view.record, str(message["buffer"]), layout).to_dict()
    except ArgumentError as error:
        raise ValueError(str(error)) from None


def about(view: KernelView) -> str:
    """What the pictures mean, with this kernel's numbers."""
    accesses = [each for each in view.requests() if isinstance(each, WarpAccess)]
    shared = [each.count for each in accesses if each.count.scope == "shared"]
    used, ideal = sum(c.wavefronts for c in shared), sum(c.ideal for c in shared)
    worst = max(conflicts(view), key=lambda each: each.degree, default=None)
    first = next((each for each in accesses if each.count.scope == "shared"), None)
    memory, warp = (first.memory, first.warp) if first is not None else (MEMORY, 32)
    narrow, pair, vector = (memory.served(warp, width) for width in (4, 8, 16))
    # What serves loads in an order of its own has no instruction for matrices.
    matrix = "" if memory.read_order else ", or the 8 rows of a matrix"
    text = (
        f"Shared memory has {memory.banks} banks of 4 bytes. It serves the lanes of a phase at "
        f"once: {narrow} lanes of at most 4 bytes, {pair} of 8, {vector} of 16{matrix}. Lanes that "
        "want different words of one bank wait for each other; the same word is given to all of "
        "them at once. A phase takes as many wavefronts as its busiest bank has different words. A "
        f"block of this kernel takes {used} wavefronts where its bytes need {ideal}"
    )
    counted = "Counted for one iteration of each loop."
    if (word := warp_word(view)) != "warp":
        counted += f" A wavefront is one pass over the banks here, not a {word} of {warp} lanes."
    if any(each.kind in ENGINES for each in shared):
        counted += f" {ENGINES_ABOUT}"
    if worst is None:
        return f"{text}: no lane waits for another. {counted}"
    return (
        f"{text}. The worst phase is in '{worst.count.described}' of '{worst.count.buffer}': "
        f"{worst.degree} words of one bank. {counted}"
    )


def rows(view: KernelView, live: bool) -> dict[str, str]:
    """What a comparison says of each access: its instruction, wavefronts and those it needs."""
    if view.target_kind == "cpu":
        return cache_lines.rows(view, cache_lines.TILES, live)
    lines = [("all accesses", f"{count(view)} wavefronts"), ("conflicts", note(view))]
    for tile in shared_tiles(view):
        lines.append((f"{tile.name}: layout", str(tile.layout)))
        for access in tile.accesses:
            each = access.count
            text = f"{each.kind} of {each.width} B: {each.wavefronts} wavefronts"
            if each.wavefronts > each.ideal:
                text += f" for {each.ideal}, {access.degree} in the worst phase {_CONFLICT}"
            lines.append((f"{tile.name}: {side(access)}", text))
    return numbered(lines)


def count(view: KernelView) -> str:
    """``192 for 128``: wavefronts of a block, and how many its bytes need; empty without any."""
    counts = [a.count for a in view.requests() if isinstance(a, WarpAccess)]
    used = sum(each.wavefronts for each in counts if each.scope == "shared")
    ideal = sum(each.ideal for each in counts if each.scope == "shared")
    return f"{used} for {ideal}" if used else ""


# Without a kernel


def section(view: KernelView, opened: bool = False) -> str:
    """A table of the accesses, and the punch card of each that conflicts, at its worst phase."""
    if view.target_kind == "cpu":
        return cache_lines.section(view, cache_lines.TILES, "Banks", opened)
    tiles = shared_tiles(view)
    rows = [_row(tile, access) for tile in tiles for access in tile.accesses]
    if not opened and len(rows) > _MOST_ROWS:
        rows.sort(key=lambda row: _CONFLICT not in row[-1])
        more = html.tag("span", html.FAINT, f"and {len(rows) - _MOST_ROWS} more")
        rows = [*rows[:_MOST_ROWS], [more]]
    heads = ("tile", "line", "access", "bytes", "wavefronts", "ideal", "worst phase", "")
    bad = sorted(conflicts(view), key=lambda each: -each.degree)
    cards = [_card(access) for access in bad[:_MOST_CARDS]]
    if len(bad) > _MOST_CARDS:
        left = f"{len(bad) - _MOST_CARDS} further accesses conflict: see the table"
        cards.append(html.tag("div", html.FAINT, left))
    best = [swizzles.advice(tile) for tile in tiles] if opened else []
    texts = [*advices(tiles), *filter(None, best)]
    advice = [html.tag("div", "", html.text(text)) for text in texts]
    left_out = unlisted(view, "shared")[:_MOST_ROWS]
    advice += [html.tag("div", "", html.text(f"not counted: {text}")) for text in left_out]
    explained = html.tag("div", f"{html.FAINT};font-size:12px", html.text(about(view)))
    table = html.table(rows, heads)
    return html.details("Banks", table, *cards, *advice, explained, note=note(view), opened=opened)


def note(view: KernelView) -> str:
    """``no bank conflicts``, or how many accesses conflict and how badly."""
    bad = conflicts(view)
    if not bad:
        return "no bank conflicts"
    several = f"{len(bad)} accesses conflict" if len(bad) > 1 else "1 access conflicts"
    return f"CONFLICTS: {several}, up to {max(each.degree for each in bad)} words of one bank"


def advices(tiles: Sequence[SharedTile]) -> list[str]:
    """For each tile that another layout serves better, the best one and its line."""
    texts = []
    for tile in tiles:
        used, ideal = total(tile.accesses)
        if tile.fixed or used <= ideal:
            continue
        ranking = alternatives(tile)
        now = next((each for each in ranking if each.chosen), None)
        best = ranking[0]
        if now is None or best.problem or best.wavefronts >= now.wavefronts:
            continue
        more = best.tile_bytes - now.tile_bytes
        cost = f" and {format_bytes(more)} more of shared memory" if more > 0 else ""
        texts.append(
            f"{tile.name}: {best.wavefronts} wavefronts{cost} instead of {now.wavefronts} with "
            f"{best.line}"
        )
    return texts


def _row(tile: SharedTile, access: WarpAccess) -> list[str]:
    count = access.count
    worse = count.wavefronts > count.ideal
    verdict = f"{count.factor:.2f}x {_CONFLICT}" if worse else f"{count.factor:.2f}x"
    style = f"{html.tone(html.BAD)};font-weight:bold" if worse else ""
    line = count.span.line if count.span is not None else 0
    return [
        html.tag("span", html.MONO, html.text(tile.name)),
        str(line or ""),
        html.text(count.described.rpartition(" ")[0]),
        str(count.width),
        str(count.wavefronts),
        str(count.ideal),
        f"{access.degree} wavefront{'s' if access.degree != 1 else ''}",
        html.tag("span", style, verdict),
    ]


def worst_phase(access: WarpAccess) -> Phase:
    """The first of the phases that take most wavefronts."""
    degree = access.degree
    at = next(at for at in range(len(access.requests)) if access.costs(at).max() == degree)
    return next(phase for phase in access.phases(at) if phase.degree == degree)


def punch_card(phase: Phase) -> np.ndarray[Any, Any]:
    """Pixels ``(rows, columns, 3)``: a row per lane, a column per bank; red where the lane wants
    one of several words of the bank.
    """
    cells = np.full((max(len(phase.lanes), 1), phase.bank_count, 3), EMPTY, np.uint8)
    for bank, words in phase.banks.items():
        for lanes in words.values():
            for lane in lanes:
                cells[phase.lanes.index(lane), bank] = _BAD if len(words) > 1 else _GOOD
    pixels = cells.repeat(_CELL, axis=0).repeat(_CELL, axis=1)
    pixels[_CELL - 1 :: _CELL] = pixels[:, _CELL - 1 :: _CELL] = 255
    return pixels


def runs(lanes: Sequence[int]) -> str:
    """``lanes 0-3, 20-23``: numbers that follow one another by their ends."""
    parts: list[list[int]] = []
    for lane in lanes:
        if parts and lane == parts[-1][-1] + 1:
            parts[-1][1:] = [lane]
        else:
            parts.append([lane])
    return f"lanes {', '.join('-'.join(map(str, part)) for part in parts)}"


def _card(access: WarpAccess) -> str:
    phase, count = worst_phase(access), access.count
    pixels = punch_card(phase)
    lanes = f"{runs(phase.lanes)} of warp {phase.warp}"
    title = f"{count.buffer}: {count.described}, {lanes}: {phase.degree} wavefronts"
    alt = f"{title}; a row per lane, a column per bank, red where lanes wait for each other"
    picture = html.image(png_address(pixels), alt, pixels.shape[1])
    banks = f"banks 0 to {phase.bank_count - 1}"
    axes = f"rows: lanes; columns: {banks}; green: one word of a bank, red: one of several"
    return html.tag(
        "div",
        "margin:6px 0",
        html.tag("div", html.MONO, html.text(title)),
        html.tag("div", "", picture),
        html.tag("div", f"{html.FAINT};font-size:11px", html.text(axes)),
    )
