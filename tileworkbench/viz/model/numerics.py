"""Rounding errors as a view: after each statement, how far a block is from float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tileworkbench.compiler.diagnostics import TileError
from tileworkbench.compiler.sim.numerics.result import LineErrors, Numerics, Origin, Step, apart
from tileworkbench.viz.model import html
from tileworkbench.viz.model.numerics_svg import (
    METRICS,
    WIDTH,
    Curve,
    numerics_svg,
)
from tileworkbench.viz.model.svg import THEMED, as_image
from tileworkbench.viz.model.text import block_text
from tileworkbench.viz.model.view import KernelView

MOST_POINTS = 300
"""Of one line of the picture: of more steps each point is the worst of several neighbours."""

MOST_CURVES = 14
SECONDS = 20.0
"""How long each of the two runs of a view may take."""

_ROWS = 12  # lines in the page of a reader without a kernel


def missing(view: KernelView) -> str:
    """Why there is nothing to show; empty where a block can be replayed in float64."""
    if view.debugging is None:
        return "nothing is known of its numbers"
    return view.debugging.numerics_missing


def about(view: KernelView) -> str:
    """What one looks at."""
    run = _last(view)
    if run is None:
        return (
            "One block of the kernel runs twice in the simulator, as it is and with every "
            "floating-point number in float64. The difference is what rounding does. Nothing has "
            "run yet."
        )
    return (
        f"The {len(run.steps)} statements of {block_text(run.block)} that write floating-point "
        f"numbers, on {run.inputs}, each beside the same statement in float64. A unit in the "
        "last place (ulp) is the distance between neighbouring numbers of the tile's type; errors "
        "are in units of its largest element, since one near zero that is the difference of large "
        "ones is many of its own units off without harm. 0.5 is the best that rounding once can "
        "do, and a line that climbs over the iterations loses digits. This is the program as you "
        "wrote it: a device may add in another order, and matrix instructions may round operands "
        "further."
    )


def model(view: KernelView) -> dict[str, Any]:
    """What was found; ``{"ran": False}`` where nothing has run yet."""
    run = _last(view)
    return {"ran": False} if run is None else _drawn(run)


def run_answer(view: KernelView, content: dict[str, Any]) -> dict[str, Any]:
    """Run the block with the indices ``block`` (absent: the first); the model, or an ``error``."""
    assert view.debugging is not None  # see `missing`
    block = content.get("block")
    try:
        chosen = None if block is None else tuple(int(at) for at in block)
        run = view.debugging.numerics(block=chosen, seconds=SECONDS)
    except TileError as error:
        return {"error": str(error)}
    return _drawn(run) | {"about": about(view)}


def _last(view: KernelView) -> Numerics | None:
    return None if view.debugging is None else view.debugging.last_numerics


def _drawn(run: Numerics) -> dict[str, Any]:
    curves, exact = curves_of(run)
    shown = sorted({at for curve in curves for at, _ in curve.steps})
    return {
        "ran": True,
        "block": list(run.block),
        "inputs": run.inputs,
        "stopped": run.stopped,
        "sentence": worst_sentence(run),
        "origins": [{"text": str(origin), **_place(origin)} for origin in run.origins],
        "exact": exact,
        "charts": {
            metric: numerics_svg(curves, metric, THEMED, True) if curves else ""
            for metric in METRICS
        },
        "metrics": METRICS,
        "steps": {str(at): _facts(run.steps[at]) for at in shown},
        "lines": [_row(each) for each in run.lines],
    }


def curves_of(run: Numerics) -> tuple[list[Curve], list[str]]:
    """The lines of the picture, and the buffers that are exact throughout, which have none."""
    groups: dict[str, list[tuple[int, Step]]] = {}
    for at, step in enumerate(run.steps):
        if step.comparable:
            groups.setdefault(step.buffer, []).append((at, step))
    wrong = {name: steps for name, steps in groups.items() if any(s.absolute > 0 for _, s in steps)}
    exact = [name for name in groups if name not in wrong]
    kept = sorted(wrong, key=lambda name: -max(step.scaled for _, step in wrong[name]))[
        :MOST_CURVES
    ]
    return [Curve(name, _thinned(wrong[name])) for name in wrong if name in kept], exact


def _thinned(steps: Sequence[tuple[int, Step]]) -> tuple[tuple[int, Step], ...]:
    size = -(-len(steps) // MOST_POINTS)
    groups = (steps[start : start + size] for start in range(0, len(steps), size))
    return tuple(max(group, key=lambda pair: pair[1].scaled) for group in groups)


def worst_sentence(run: Numerics) -> str:
    """The largest error in words."""
    worst = run.worst
    if worst is None:
        return "No statement wrote a floating-point number that float64 writes too."
    if worst.scaled == 0:
        return "Every number is what float64 gives: nothing was lost to rounding."
    return f"{_capital(run.worst_text)}."


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _place(origin: Origin | Step) -> dict[str, Any]:
    return {"line": origin.line, "buffer": origin.buffer, "element": list(origin.element)}


def _facts(step: Step) -> dict[str, Any]:
    """What the browser says of a step."""
    loops = ", ".join(f"{name} = {count}" for name, count in step.loops)
    value, exact = apart(step.value, step.exact)
    return {
        **_place(step),
        "number": step.number,
        "where": loops,
        "elements": step.elements,
        "value": value,
        "exact": exact,
        **{metric: error_text(getattr(step, metric)) for metric in METRICS},
        "dtype": step.dtype,
    }


def _row(each: LineErrors) -> dict[str, Any]:
    """A row of the table of lines."""
    facts = _facts(each.worst)
    if not each.worst.comparable:
        facts |= dict.fromkeys((*METRICS, "value", "exact"), "other elements")
    return facts | {"executions": each.executions, "first": error_text(each.first)}


def error_text(value: float) -> str:
    """An error with two digits that count."""
    return f"{float(f'{value:.2g}'):g}"


def rows(view: KernelView, live: bool) -> dict[str, str]:
    """What a comparison says; how large errors are depends a little on the host."""
    run = _last(view)
    if run is None:
        return {"beside float64": "has not run"}
    if not live:
        return {"beside float64": f"has run on {run.inputs}"}
    said = {"largest error": worst_sentence(run)}
    return said | {f"first {origin.kind}": str(origin) for origin in run.origins}


def section(view: KernelView, opened: bool) -> str:
    """The picture and the lines for readers without a kernel: of the last run, and where the view
    stands alone of one on the kernel's inputs.
    """
    run = _last(view)
    if run is None and opened:
        assert view.debugging is not None  # see `missing`
        try:
            run = view.debugging.numerics(seconds=SECONDS)
        except TileError as error:
            return html.line("Numerics", str(error))
    if run is None:
        return ""
    curves, exact = curves_of(run)
    origins = [_capital(str(origin)) for origin in run.origins]
    body = [html.tag("div", html.tone(html.BAD), html.text(text)) for text in origins]
    body.append(html.tag("div", "", html.text(worst_sentence(run))))
    if curves:
        picture = numerics_svg(curves, "scaled")
        told = f"{METRICS['scaled']} over executed statements, a line for each of "
        told += ", ".join(curve.buffer for curve in curves)
        body.append(html.image(as_image(picture), told, WIDTH))
    if exact:
        body.append(html.tag("div", html.FAINT, html.text(f"exact throughout: {', '.join(exact)}")))
    worst = sorted(run.lines, key=lambda each: -each.worst.scaled)[:_ROWS]
    body.append(html.table([_cells(each) for each in worst], _HEADS))
    if run.stopped:
        body.append(html.tag("div", html.FAINT, html.text(_capital(run.stopped))))
    note = f"{block_text(run.block)} beside float64"
    return html.details("Numerics", *body, note=note, opened=opened)


_HEADS = (
    *("line", "writes", "times", "first", "worst", "in ulp of", "of its own", "where", "is"),
    "float64",
)


def _cells(each: LineErrors) -> list[str]:
    row = _row(each)
    element = f"{row['buffer']}[{', '.join(map(str, row['element']))}]" if row["element"] else ""
    where = f"{element} at {row['where']}" if row["where"] and element else element
    return [
        html.text(text)
        for text in (
            *(row["line"], row["buffer"], row["executions"], row["first"], row["scaled"]),
            *(row["dtype"], row["ulp"], where, row["value"], row["exact"]),
        )
    ]
