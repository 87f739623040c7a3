"""The views of a kernel, in one table: what each is called, draws, answers and leaves in a page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.viz.model import (
    about,
    banks,
    code,
    errors,
    footprint,
    html,
    layout,
    numerics,
    passes_static,
    pipeline,
    prints,
    replay,
    replay_static,
    roofline_view,
    sectors,
    smem,
    source,
    source_lines,
)
from tileworkbench.viz.model.chapters import pointer
from tileworkbench.viz.model.passes_static import passes_section
from tileworkbench.viz.model.roofline_view import roofline_missing, roofline_static
from tileworkbench.viz.model.text import title
from tileworkbench.viz.model.view import KernelView

_LIVE = "it depends on the machine: run the cell to see it"

Answer = Callable[[KernelView, dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class View:
    """One view of a kernel: a tab of the card, ``kernel.show(name)``, a section of its page.

    Attributes:
        title: of the tab.
        missing: empty, or in one line why there is nothing to show.
        section: what readers without a kernel see, as sanitiser-safe HTML; the same on every host
            and in every run, or empty. `opened` is whether it stands alone.
        model: what the browser draws, as JSON; asked for when the view is first opened. None for
            a view whose state is in traits of its widget.
        answers: what else the browser may ask, by the type of its message.
        rows: what a comparison says of a kernel: label to text. What depends on the host or was
            measured is left out unless `live`. Asked only of a view that has something to show.
        about: what one is looking at, in a few sentences with the kernel's numbers; empty for a
            view that says so itself. Asked only of a view that has something to show.
        together: several kernels, by name, in one picture for a comparison, as sanitiser-safe HTML;
            empty where each has its own.
    """

    title: str
    missing: Callable[[KernelView], str]
    section: Callable[[KernelView, bool], str]
    rows: Callable[[KernelView, bool], Mapping[str, str]]
    model: Callable[[KernelView], dict[str, Any]] | None = None
    answers: Mapping[str, Answer] = field(default_factory=dict)
    about: Callable[[KernelView], str] = lambda view: ""
    together: Callable[[Sequence[KernelView], Sequence[str], bool], str] = lambda *given: ""


VIEWS: dict[str, View] = {
    "source": View(
        "Source",
        source.missing,
        source.section,
        source.rows,
        source.model,
        {"line": source.line_answer},
        about.source,
        source_lines.together,
    ),
    "passes": View(
        "Passes", lambda view: "", passes_section, passes_static.rows, about=about.passes
    ),
    "layouts": View(
        "Layouts",
        layout.layouts_missing,
        layout.layouts_section,
        layout.rows,
        about=about.layouts,
        together=layout.together,
    ),
    "banks": View(
        "Banks", banks.missing, banks.section, banks.rows, banks.model, {"relower": banks.relower}
    ),
    "global": View("Global memory", sectors.missing, sectors.section, sectors.rows, sectors.model),
    "smem": View(
        "Shared memory",
        smem.missing,
        smem.section,
        smem.rows,
        smem.model,
        {"smem-launch": smem.launch_answer},
    ),
    "pipeline": View(
        "Pipeline",
        pipeline.missing,
        pipeline.section,
        pipeline.rows,
        pipeline.model,
        {
            "pipeline": pipeline.chart_answer,
            "pipeline-launch": pipeline.launch_answer,
            "stages": pipeline.stages_answer,
        },
    ),
    "roofline": View(
        "Roofline",
        roofline_missing,
        roofline_static,
        roofline_view.roofline_rows,
        about=about.roofline,
        together=roofline_view.together,
    ),
    "errors": View(
        "Errors",
        errors.missing,
        errors.section,
        errors.rows,
        errors.model,
        {"errors-window": errors.window_answer, "errors-bisect": errors.bisect_answer},
        errors.about,
    ),
    "footprint": View(
        "Footprint",
        footprint.missing,
        footprint.section,
        footprint.rows,
        footprint.model,
        {
            "footprint-record": footprint.record_answer,
            "footprint-windows": footprint.windows_answer,
        },
        footprint.about,
    ),
    "numerics": View(
        "Numerics",
        numerics.missing,
        numerics.section,
        numerics.rows,
        numerics.model,
        {"numerics-run": numerics.run_answer},
        numerics.about,
    ),
    "prints": View(
        "Prints",
        prints.missing,
        prints.section,
        prints.rows,
        prints.model,
        {"prints-run": prints.run_answer},
        prints.about,
    ),
    "replay": View(
        "Replay",
        replay.missing,
        replay_static.section,
        replay_static.rows,
        replay.model,
        {
            "replay-record": replay.record_answer,
            "replay-page": replay.page_answer,
            "replay-writer": replay.writer_answer,
            "replay-next-write": replay.next_write_answer,
        },
        replay.about,
    ),
    "code": View(
        "Code",
        code.missing,
        code.section,
        code.rows,
        code.model,
        about=about.code,
        together=code.together,
    ),
}
"""Every view but the card, which has them as tabs in this order."""


def available(view: KernelView) -> list[str]:
    """The names of the views that have something to show."""
    return [name for name, each in VIEWS.items() if not each.missing(view)]


def view_model(view: KernelView, name: str) -> dict[str, Any]:
    """What the browser draws in the view `name`: its data, or ``{"missing": why}``.

    Raises:
        KeyError: there is no such view.
        ValueError: its state is in traits.
    """
    each = VIEWS[name]
    why = each.missing(view)
    if why:
        return {"missing": why}
    if each.model is None:
        raise ValueError(f"the view '{name}' has its data in traits")
    data = each.model(view)
    said = " ".join(filter(None, (data.get("about", ""), explanation(view, name))))
    return data | ({"about": said} if said else {})


def explanation(view: KernelView, name: str) -> str:
    """What one is looking at in the view `name`, and the chapter of the course that explains it."""
    return " ".join(filter(None, (VIEWS[name].about(view), pointer(name))))


def view_text(view: KernelView, name: str) -> str:
    """What a terminal, which shows no pictures, says of the view `name`: a line for each row."""
    each = VIEWS[name]
    if why := each.missing(view):
        return f"{each.title}: {why}"
    rows = each.rows(view, True)
    width = max(map(len, rows), default=0)
    return "\n".join(f"{label:{width}}  {value}" for label, value in rows.items())


def view_html(view: KernelView, name: str) -> str:
    """The view `name` on its own for readers without a kernel."""
    each = VIEWS[name]
    if why := each.missing(view):
        return titled(view, html.line(each.title, why))
    body = each.section(view, True)  # first: it may run what is told of
    said = explanation(view, name)
    explained = html.tag("div", f"{html.FAINT};font-size:12px", html.text(said)) if said else ""
    return titled(view, body + explained if body else html.line(each.title, _LIVE))


def titled(view: KernelView, section: str) -> str:
    """A section on its own, under the kernel's name."""
    head = html.tag("b", f"{html.MONO};font-size:14px", html.text(title(view.record)))
    return html.panel(html.tag("div", "", head), section)
