"""Cache lines and vector lanes of a CPU's accesses: what banks and sectors are on a GPU."""

from __future__ import annotations

from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from tileworkbench.compiler.analysis.effects import owners
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.ir.program import Stage
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.stmt import Alloc
from tileworkbench.compiler.ir.tile import MicroGemm, Pack
from tileworkbench.compiler.layout import Layout
from tileworkbench.compiler.sim.vector_requests import CACHE_LINE, MOST_VECTORS, VectorAccess
from tileworkbench.viz.model import html
from tileworkbench.viz.model.packing import packed_text
from tileworkbench.viz.model.palette import PALETTE
from tileworkbench.viz.model.text import numbered
from tileworkbench.viz.model.tiles import NOT_LOWERED, lowered_program
from tileworkbench.viz.model.view import KernelView

TILES, TENSORS = ("shared", "local"), ("global",)


def vector_accesses(view: KernelView, scopes: tuple[str, ...]) -> list[VectorAccess]:
    """The accesses of a CPU kernel to buffers of these scopes, tile by tile."""
    accesses = [each for each in view.requests() if isinstance(each, VectorAccess)]
    mine = [each for each in accesses if each.scope in scopes]
    first = {each.buffer: at for at, each in reversed(list(enumerate(mine)))}
    return sorted(mine, key=lambda each: first[each.buffer])


def missing(view: KernelView, scopes: tuple[str, ...]) -> str:
    """Why there is nothing to show; empty where there is."""
    lowered = lowered_program(view, Stage.CPU)
    if lowered is None:
        return NOT_LOWERED
    if scopes == TENSORS:
        return ""
    allocs = (stmt for stmt in statements(lowered.body) if isinstance(stmt, Alloc))
    tiles = (stmt for stmt in allocs if stmt.buffer.scope in scopes)
    return "" if any(tiles) else "the kernel has no tile"


def model(view: KernelView, scopes: tuple[str, ...]) -> dict[str, Any]:
    """Accesses with the address of each lane of their first vectors, and the buffers."""
    accesses = vector_accesses(view, scopes)
    names = list(dict.fromkeys(each.buffer for each in accesses))
    return {
        "unit": "line",
        "about": about(accesses),
        "target": view.record.target,
        "level": view.record.level,
        "line_bytes": CACHE_LINE,
        "tiles": [_buffer(view, name, accesses) for name in names],
        "accesses": [_access(each) for each in accesses],
        "palette": PALETTE,
        "routines": routines(view, scopes),
    }


def _access(access: VectorAccess) -> dict[str, Any]:
    made = access.to_dict()
    rows = np.full((len(access.vectors), access.lanes), -1, np.int64)
    for row, vector in zip(rows, access.vectors, strict=True):
        row[: len(vector)] = vector
    factor = access.factor
    return made | {
        "tile": access.buffer,
        "side": {"load": "read", "store": "write"}.get(access.kind, "update"),
        "factor": factor,
        "vectors": {"rows": len(rows), **packed_text(rows.reshape(-1))},
        "why": why_narrow(access),
    }


def why_narrow(access: VectorAccess) -> str:
    """Why an access is not a vector of neighbours; empty where it is."""
    match access.pattern:
        case "scalar":
            return "one element at a time: the loop around it is not a vector loop"
        case "uniform":
            return "all lanes read one element, which is loaded once and copied"
        case "scattered":
            steps = {b - a for v in access.vectors for a, b in pairwise(v)}
            apart = f"{min(steps)} bytes apart" if len(steps) == 1 else "at different distances"
            return f"the lanes are {apart}, so each is loaded or stored by itself"
    return ""


def _buffer(view: KernelView, name: str, accesses: list[VectorAccess]) -> dict[str, Any]:
    """What is known of a buffer: its own shape, and the place of each element for a tile."""
    access = next(each for each in accesses if each.buffer == name)
    shape = _declared(view).get(name, ())
    layout = {each.name: each.layout for each in view.layouts}.get(name)
    # A pass may have made the tile larger; a layout of another memory is not drawn.
    room = (access.places, prod(shape))
    if not isinstance(layout, Layout) or int(layout.table().max()) + 1 not in room:
        layout = Layout.row_major(shape) if access.scope != "global" and shape else None
    if access.scope != "global" and layout is None and access.places:
        layout = Layout.row_major((access.places,))
    made: dict[str, Any] = {
        "name": name,
        "bits": access.bits,
        "base": access.base,
        "shape": list(layout.shape if layout is not None else shape),
        "scope": access.scope,
    }
    if layout is not None:
        made["layout"] = {
            "text": str(layout),
            "size": int(layout.table().max()) + 1,
            "table": packed_text(layout.table().reshape(-1)),
        }
    return made


def _declared(view: KernelView) -> dict[str, tuple[int, ...]]:
    """The constant shapes of the user's tiles and tensors."""
    program = view.record.program
    buffers = [stmt.buffer for stmt in statements(program.body) if isinstance(stmt, Alloc)]
    buffers += [param.value for param in program.params if isinstance(param.value, Buffer)]
    shapes = {buffer.name: [const_int(extent) for extent in buffer.shape] for buffer in buffers}
    return {
        name: tuple(extent for extent in shape if extent is not None)
        for name, shape in shapes.items()
        if None not in shape
    }


def routines(view: KernelView, scopes: tuple[str, ...]) -> list[str]:
    """What the routines of T.gemm read and write in their own order, a sentence each."""
    lowered = view.record.snapshots[-1].program
    names = {alias.name: owner.name for alias, owner in owners(lowered.body).items()}
    lines: dict[str, None] = {}
    for stmt in statements(lowered.body):
        span = lowered.span(getattr(stmt, "site", 0))
        where = f"line {span.line}: " if span is not None else ""
        match stmt:
            case MicroGemm(a=a, b=b, c=c):
                used = [each.buffer for each in (a, b, c) if each.buffer.scope in scopes]
                what = f"its micro-kernel multiplies {stmt.mr} x {stmt.nr} blocks in registers"
            case Pack(src=source):
                used = [source.buffer] if source.buffer.scope in scopes else []
                what = f"it is copied into panels of {stmt.width}"
            case _:
                continue
        if used:
            listed = ", ".join(dict.fromkeys(names.get(b.name, b.name) for b in used))
            lines[f"{where}{listed}: {what}"] = None
    return list(lines)


def about(accesses: list[VectorAccess]) -> str:
    """What the pictures mean, with this kernel's numbers."""
    lines, ideal = sum(each.lines for each in accesses), sum(each.ideal for each in accesses)
    return (
        "A CPU moves memory by cache lines of 64 bytes. A vector of neighbours touches as few "
        "lines as its bytes need; lanes that are apart touch a line each, and the rest of each "
        f"line is moved for nothing. The vectors listed here touch {lines} lines where their "
        f"bytes need {ideal}: the first ones of each access, up to {MOST_VECTORS}."
    )


def rows(view: KernelView, scopes: tuple[str, ...], live: bool) -> dict[str, str]:
    """What a comparison says of each access, for the machine that runs the kernel."""
    if not live:
        return {}
    return numbered(
        (
            f"{each.buffer}: {each.kind}",
            f"{each.pattern}, {each.lanes} lane{'s' if each.lanes != 1 else ''}: "
            f"{each.factor:.2f}x the cache lines",
        )
        for each in vector_accesses(view, scopes)
    )


def section(view: KernelView, scopes: tuple[str, ...], title: str, opened: bool = False) -> str:
    """A table of the accesses. The vectors depend on the host, so it stands alone only."""
    if not opened:
        return ""
    rows = [_row(each) for each in vector_accesses(view, scopes)]
    heads = ("buffer", "line", "access", "lanes", "lines", "ideal", "")
    listed = [html.tag("div", "", html.text(text)) for text in routines(view, scopes)]
    text = html.text(about(vector_accesses(view, scopes)))
    explained = html.tag("div", f"{html.FAINT};font-size:12px", text)
    return html.details(title, html.table(rows, heads), *listed, explained, opened=True)


def _row(access: VectorAccess) -> list[str]:
    worse = access.lines > access.ideal
    style = f"{html.tone(html.BAD)};font-weight:bold" if worse else ""
    return [
        html.tag("span", html.MONO, html.text(access.buffer)),
        str(access.span.line if access.span is not None else ""),
        html.text(f"{access.kind}, {access.pattern}"),
        str(access.lanes),
        str(access.lines),
        str(access.ideal),
        html.tag("span", style, f"{access.factor:.2f}x"),
    ]
