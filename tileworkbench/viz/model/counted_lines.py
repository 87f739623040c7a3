"""What each line of the user's text moves, counted from a run, beside what the model expects: a
table, the same in live views and static ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tileworkbench.bench.points import CountedLevel
from tileworkbench.bench.units import format_bytes, format_count
from tileworkbench.viz.model import html
from tileworkbench.viz.model.text import clip
from tileworkbench.viz.model.view import KernelView, LineTraffic

Groups = list[tuple[str, tuple[str, ...]]]

_CHARACTERS = 60
_NONE = "–"
_MODEL = {"L1": "l1_bytes", "L2": "l2_bytes", "L3": "l3_bytes", "DRAM": "dram_bytes"}
_CPU = (
    "The model is an estimate from the sizes of the caches. In both, bytes that are written are "
    "among them; counted are whole cache lines behind L1, those fetched for stores too. What one "
    "line does for another (they are fused, or it reads where the data lie) is counted there."
)
_GPU = (
    "As written: bytes of the text's copies and accesses. L2 and DRAM: bytes of sectors, as if "
    "multiprocessors had no caches. Wavefronts of shared memory and sectors of global memory "
    "are those of all blocks and iterations, beside the fewest that would do."
)


def model(view: KernelView) -> dict[str, Any] | None:
    """The table as texts: `note`, `groups` (head, heads below it), and `rows` with their line (0:
    several or none), name, and a text per column, of lines that move something. None where
    nothing was asked for.
    """
    counted = view.line_traffic
    if counted is None:
        return None
    if isinstance(counted, str):
        return {"note": f"{counted[:1].upper()}{counted[1:]}.", "groups": [], "rows": []}
    costs = {cost["line"]: cost for cost in view.line_costs()}
    on_cpu = view.target_kind == "cpu"
    make = _cpu_numbers if on_cpu else _gpu_numbers
    moved = {line for line, levels in counted.lines.items() if any(each.bytes_ for each in levels)}
    lines = sorted((costs.keys() | moved | counted.requests.keys()) - {0})
    numbers = {line: make(counted, line, costs.get(line, {})) for line in (*lines, 0)}
    total = [math.fsum(column) for column in zip(*numbers.values(), strict=True)]
    heads = [name for _, names in _groups(counted, on_cpu) for name in names]
    moving = [line for line in lines if any(numbers[line])]
    shown = [_row(line, _name(view, line), numbers[line], heads) for line in moving]
    if any(numbers[0]):
        shown.append(_row(0, "no line of the text: arguments, other files", numbers[0], heads))
    shown.append(_row(0, "together", total, heads))
    how = f"{counted.note[:1].upper()}{counted.note[1:]}. {_CPU if on_cpu else _GPU}"
    return {"note": how, "groups": _groups(counted, on_cpu), "rows": shown}


def _groups(counted: LineTraffic, on_cpu: bool) -> Groups:
    if on_cpu:
        return [(level.name, ("counted", "model")) for level in counted.levels]
    return [
        ("global memory", ("as written",)),
        *((level.name, ("counted",)) for level in counted.levels),
        ("shared memory", ("wavefronts", "fewest")),
        ("global memory", ("sectors", "fewest")),
    ]


def _cpu_numbers(counted: LineTraffic, line: int, cost: Mapping[str, Any]) -> Sequence[float]:
    own = counted.lines.get(line, ())
    return [
        number
        for level in counted.levels
        for number in (_bytes(own, level.name), cost.get(_MODEL[level.name], 0.0))
    ]


def _gpu_numbers(counted: LineTraffic, line: int, cost: Mapping[str, Any]) -> Sequence[float]:
    own = counted.lines.get(line, ())
    levels = [_bytes(own, level.name) for level in counted.levels]
    requests = counted.requests.get(line, (0.0,) * 4)
    return [cost.get("global_bytes", 0.0), *levels, *requests]


def _bytes(levels: Sequence[CountedLevel], name: str) -> float:
    return sum(level.bytes_ for level in levels if level.name == name)


def _name(view: KernelView, line: int) -> str:
    place = line - view.record.first_line
    lines = view.record.source.splitlines()
    return clip(lines[place].strip(), _CHARACTERS) if 0 <= place < len(lines) else ""


def _row(line: int, name: str, numbers: Sequence[float], heads: Sequence[str]) -> dict[str, Any]:
    cells = [_text(each, head) for each, head in zip(numbers, heads, strict=True)]
    return {"line": line, "name": name, "cells": cells}


def _text(number: float, head: str) -> str:
    if math.isnan(number):
        return _NONE
    if head in ("counted", "model", "as written"):
        return format_bytes(number) if number else "0"
    return format_count(number) if number >= 1e4 else f"{number:.0f}"


def section(view: KernelView) -> str:
    """The table as static HTML; empty where nothing was asked for."""
    made = model(view)
    if made is None:
        return ""
    note = html.tag("div", f"font-size:12px;{html.FAINT}", html.text(made["note"]))
    return (html.code_block(_lines(made)) if made["rows"] else "") + note


def _lines(made: Mapping[str, Any]) -> Iterator[str]:
    """The table as lines of preformatted HTML: cells of a real one take seven times the room of a
    saved notebook.
    """
    heads = [name for _, names in made["groups"] for name in names]
    columns = zip(heads, *(row["cells"] for row in made["rows"]), strict=True)
    widths = [max(map(len, column)) for column in columns]
    names = max(len(row["name"]) for row in made["rows"])
    above, left = "", 0
    for group, below in made["groups"]:
        last = left + len(below)
        room = sum(widths[left:last]) + 2 * len(below)
        widths[left] += max(0, len(group) + 2 - room)
        above += group.rjust(max(room, len(group) + 2))
        left = last
    yield html.tag("span", html.FAINT, html.text(" " * (names + 6) + above))
    for line, name, cells in (
        ("line", "", heads),
        *((row["line"] or "", row["name"], row["cells"]) for row in made["rows"]),
    ):
        numbers = "".join(f"  {c:>{width}}" for c, width in zip(cells, widths, strict=True))
        yield html.tag("span", html.FAINT, f"{line:>4}  ") + html.text(f"{name:{names}}{numbers}")
