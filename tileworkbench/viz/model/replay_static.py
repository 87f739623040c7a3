"""The replay view for readers without a kernel: the moment it opens at, and the last steps."""

from __future__ import annotations

from math import ceil, prod
from typing import Any

import numpy as np

from tileworkbench.compiler.sim.masked import index_text
from tileworkbench.compiler.sim.replay.model import Contents, Replay
from tileworkbench.viz.model import html
from tileworkbench.viz.model.png import png_address
from tileworkbench.viz.model.replay import extent
from tileworkbench.viz.model.view import KernelView

Array = np.ndarray[Any, Any]

_ROWS = 12
_FLAT, _HIGH = 2, 12  # pictures of so few rows have cells at least so high, in pixels


def rows(view: KernelView, live: bool) -> dict[str, str]:
    """What a comparison says of the last replay."""
    made = _last(view)
    if made is None:
        return {"recorded": "not yet: kernel.replay() records a block"}
    facts = {
        "blocks": ", ".join(map(index_text, made.blocks)),
        "stage": made.stage,
        "steps": str(made.total),
    }
    for number, each in enumerate(made.moments[:4], 1):
        facts[f"finding {number}"] = f"{each.kind} at step {each.step}: {each.message}"
    return facts


def section(view: KernelView, opened: bool) -> str:
    """The moment the replay opens at: what is wrong, the last steps, the memory as pictures."""
    made = _last(view)
    if made is None or not made.steps:
        return ""
    at = made.moments[0].step if made.moments else made.last
    at = min(max(at, made.first), made.last)
    body = [
        html.tag("div", html.tone(html.BAD), html.text(f"{each.kind}: {each.message}"))
        + (html.tag("div", "", html.text(f"→ {each.hint}")) if each.hint else "")
        for each in [each for each in made.moments if each.kind != "breakpoint"][:4]
    ]
    listed = []
    for number in range(max(at - _ROWS + 1, made.first), at + 1):
        step = made.step(number)
        line = made.line(step.site)
        cells = (number, line or "–", step.threads or "block", step.text)
        listed.append([html.text(cell) for cell in cells])
    body.append(html.table(listed, ["step", "line", "threads", "statement"]))
    state = made.at(at)
    pictures = [
        _picture(made.buffers[number], state.undefined[name], state.dirty.get(name), at)
        for name, number in made.visible(at).items()
    ]
    body.append(html.tag("div", "", *pictures))
    body += [html.tag("div", html.FAINT, html.text(note)) for note in made.notes]
    note = f"block {index_text(made.step(at).block)}, after step {at} of {made.last}"
    return html.details("Replay", *body, note=note, opened=opened)


def _last(view: KernelView) -> Replay | None:
    return None if view.replays is None else view.replays.last_replay


def _picture(buffer: Contents, undefined: Array, dirty: Array | None, at: int) -> str:
    """Which elements hold something, and which the step wrote."""
    rows, columns = extent(buffer.shape, buffer.lanes)
    size = prod(buffer.shape)
    written = np.zeros(rows * columns, np.int8)  # 1: holds something, 2: of this step
    written[:size] = ~undefined.reshape(-1)
    if dirty is not None:
        written[:size][dirty.reshape(-1)] = 2
    step = max(ceil(rows / 96), ceil(columns / 96))
    padded = np.full((ceil(rows / step) * step, ceil(columns / step) * step), -1, np.int8)
    padded[:rows, :columns] = written.reshape(rows, columns)
    grid = padded.reshape(padded.shape[0] // step, step, padded.shape[1] // step, step)
    colours = np.array([[136, 136, 136], [187, 187, 221], [68, 187, 153]], np.uint8)
    pixels = colours[np.maximum(grid.max(axis=(1, 3)), 0)]
    zoom = max(1, min(10, 160 // max(pixels.shape[:2])))
    high = zoom if len(pixels) > _FLAT else max(zoom, _HIGH)
    pixels = pixels.repeat(high, axis=0).repeat(zoom, axis=1)
    count = 0 if dirty is None else int(dirty.sum())
    said = f"{buffer.name}: {count} elements written by step {at}, "
    said += f"{int(undefined.sum())} never written"
    caption = f"{buffer.name} {'×'.join(map(str, buffer.shape))} {buffer.dtype}"
    picture = html.image(png_address(pixels), said, pixels.shape[1])
    name = html.tag("div", html.MONO, html.text(caption))
    return html.tag("div", "display:inline-block;margin-right:12px", name, picture)
