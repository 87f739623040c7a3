"""Accesses of global memory as a view: the sectors of each request, and why vectors are as wide as
they are. For a CPU the cache lines of its accesses to tensors.
"""

from __future__ import annotations

from typing import Any

from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.ir.program import Program, Stage
from tileworkbench.compiler.lower.threads.widths import Widths
from tileworkbench.compiler.sim.report import AccessCount
from tileworkbench.compiler.sim.threads.pieces import ENGINES
from tileworkbench.compiler.sim.threads.requests import WarpAccess
from tileworkbench.compiler.target import parse_target
from tileworkbench.viz.model import cache_lines, html
from tileworkbench.viz.model.banks import Patterns, memory_of
from tileworkbench.viz.model.palette import PALETTE
from tileworkbench.viz.model.text import numbered
from tileworkbench.viz.model.tiles import NOT_LOWERED, lowered_program, unlisted
from tileworkbench.viz.model.view import KernelView

_MOST_ROWS = 8  # accesses in the section of a card


def missing(view: KernelView) -> str:
    """Why there is nothing to show; empty where there is."""
    if view.target_kind == "cpu":
        return cache_lines.missing(view, cache_lines.TENSORS)
    if lowered_program(view, Stage.SIMT) is None:
        return NOT_LOWERED
    if global_accesses(view):
        return ""
    left_out = "; ".join(unlisted(view, "global")[:3])
    why = "no access of a tensor has an address known beforehand"
    return f"{why}: {left_out}" if left_out else why


def global_accesses(view: KernelView) -> list[WarpAccess]:
    """The accesses of a GPU kernel to tensors, in program order."""
    accesses = (each for each in view.requests() if isinstance(each, WarpAccess))
    return [each for each in accesses if each.count.scope == "global"]


def model(view: KernelView) -> dict[str, Any]:
    """Accesses with the addresses of their requests as in `banks.model`, and the tensors."""
    if view.target_kind == "cpu":
        return cache_lines.model(view, cache_lines.TENSORS)
    accesses, widths = global_accesses(view), widths_of(view)
    patterns = Patterns()
    return {
        "unit": "sector",
        "about": about(accesses),
        "target": view.record.target,
        "threads": view.threads,
        "tensors": tensors(view.record.program),
        "accesses": [_access(widths, access, patterns) for access in accesses],
        "unlisted": unlisted(view, "global"),
        "patterns": patterns.table(),
        "memory": memory_of(view, accesses),
        "palette": PALETTE,
    }


def tensors(program: Program) -> list[dict[str, Any]]:
    """Name, dtype and shape of each tensor; an extent that is a symbol is None."""
    buffers = (param.value for param in program.params if isinstance(param.value, Buffer))
    return [
        {
            "name": buffer.name,
            "dtype": str(buffer.dtype),
            "bits": buffer.dtype.bits if buffer.dtype.bits == 4 else 8 * buffer.dtype.bytes,
            "shape": [const_int(extent) for extent in buffer.shape],
            "dense": not buffer.strides,
        }
        for buffer in buffers
    ]


def _access(widths: Widths | None, access: WarpAccess, patterns: Patterns) -> dict[str, Any]:
    count = access.count
    return {
        "line": count.span.line if count.span is not None else 0,
        "buffer": count.buffer,
        "kind": count.kind,
        "side": side(count),
        "width": count.width,
        "count": count.count,
        "sectors": count.sectors,
        "ideal": count.ideal_sectors,
        "why": why(widths, access),
        "requests": patterns.requests(access.requests),
    }


def side(count: AccessCount) -> str:
    """Whether an access of global memory reads or writes it."""
    if count.kind == "atomic":
        return "update"
    return "write" if count.writes else "read"


def widths_of(view: KernelView) -> Widths | None:
    """What chose the widths of accesses; None for a program that was given lowered."""
    planned = [s.program for s in view.record.snapshots if s.program.stage is Stage.PLANNED]
    return Widths(planned[0], parse_target(view.record.target)) if planned else None


def why(widths: Widths | None, access: WarpAccess) -> str:
    """The width of an access and why it is not twice that, as a sentence."""
    count, bits = access.count, access.bits
    elements = max(8 * count.width // bits, 1)
    many = f"{elements} elements" if elements > 1 else "1 element"
    size = f"{count.width} byte{'s' if count.width > 1 else ''}"
    chosen = f"A lane accesses {size} at once ({many})"
    if count.kind in ENGINES:
        return f"The copy engine moves whole boxes; {size} of one are drawn as a lane's"
    reason = "" if widths is None else widths.why_not_wider(count.site, count.buffer, count.width)
    if reason:
        return f"{chosen}; not more, because {reason}"
    return f"{chosen}; the statement says so, no copy or parallel loop chose it"


def about(accesses: list[WarpAccess]) -> str:
    """What the pictures mean, with this kernel's numbers."""
    used = sum(each.count.sectors for each in accesses)
    ideal = sum(each.count.ideal_sectors for each in accesses)
    return (
        "Global memory is moved in sectors of 32 bytes. A request is an instruction of a warp: it "
        "moves every sector that one of its 32 lanes touches, whole. Lanes next to each other that "
        "access bytes next to each other need the fewest sectors. A block of this kernel moves "
        f"{used} sectors where its bytes need {ideal}, counted for one iteration of each loop and "
        "without what caches save."
    )


def rows(view: KernelView, live: bool) -> dict[str, str]:
    """What a comparison says of each access: its instruction, sectors and those it needs."""
    if view.target_kind == "cpu":
        return cache_lines.rows(view, cache_lines.TENSORS, live)
    labelled = [("all accesses", f"{count(view)} sectors")]
    for access in global_accesses(view):
        each = access.count
        text = f"{each.kind} of {each.width} B: {each.sectors} sectors"
        if each.sectors > each.ideal_sectors:
            text += f" for {each.ideal_sectors}"
        labelled.append((f"{each.buffer}: {side(each)}", text))
    return numbered(labelled)


def count(view: KernelView) -> str:
    """``192 for 128``: sectors that a block moves, and how many its bytes need, if any."""
    counts = [access.count for access in global_accesses(view)]
    used, ideal = sum(a.sectors for a in counts), sum(a.ideal_sectors for a in counts)
    return f"{used} for {ideal}" if used else ""


def section(view: KernelView, opened: bool = False) -> str:
    """A table of the accesses."""
    if view.target_kind == "cpu":
        return cache_lines.section(view, cache_lines.TENSORS, "Global memory", opened)
    accesses, widths = global_accesses(view), widths_of(view)
    shown = sorted(accesses, key=lambda each: -each.count.factor)
    left = 0 if opened else max(len(accesses) - _MOST_ROWS, 0)
    rows = [_row(widths, access) for access in (shown[:_MOST_ROWS] if left else accesses)]
    if left:
        rows.append([html.tag("span", html.FAINT, f"and {left} more")])
    heads = ("tensor", "line", "access", "bytes", "sectors", "ideal", "", "width")
    table = html.table(rows, heads)
    left_out = [
        html.tag("div", "", html.text(f"not counted: {text}"))
        for text in unlisted(view, "global")[:_MOST_ROWS]
    ]
    explained = html.tag("div", f"{html.FAINT};font-size:12px", html.text(about(accesses)))
    return html.details(
        "Global memory", table, *left_out, explained, note=note(accesses), opened=opened
    )


def note(accesses: list[WarpAccess]) -> str:
    """What is moved for nothing, in a few words."""
    used = sum(each.count.sectors for each in accesses)
    ideal = sum(each.count.ideal_sectors for each in accesses)
    if used <= ideal:
        return "every sector is used whole"
    return f"{used / max(ideal, 1):.2f}x the sectors that its bytes need"


def _row(widths: Widths | None, access: WarpAccess) -> list[str]:
    count = access.count
    worse = count.sectors > count.ideal_sectors
    style = f"{html.tone(html.BAD)};font-weight:bold" if worse else ""
    return [
        html.tag("span", html.MONO, html.text(count.buffer)),
        str(count.span.line if count.span is not None else ""),
        html.text(count.described.rpartition(" ")[0]),
        str(count.width),
        str(count.sectors),
        str(count.ideal_sectors),
        html.tag("span", style, f"{count.factor:.2f}x"),
        html.tag("span", html.FAINT, html.text(why(widths, access).partition("; ")[2])),
    ]
