"""How a kernel shows itself: `mimebundle` for a cell's last expression, `show` for one view."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tileworkbench.compiler.diagnostics import ArgumentError, UnsupportedError
from tileworkbench.viz.model.bench import bench_html, bench_line
from tileworkbench.viz.model.bundle import Bundle, in_notebook, make_bundle, wants_widgets
from tileworkbench.viz.model.card import card_html
from tileworkbench.viz.model.compared import comparison_html
from tileworkbench.viz.model.function import FunctionView, function_html
from tileworkbench.viz.model.layout import layout_html, layout_line
from tileworkbench.viz.model.layout_steps import layout_steps
from tileworkbench.viz.model.passes_static import stopped_html, stopped_text
from tileworkbench.viz.model.playground import Sheet, Typed, play_html
from tileworkbench.viz.model.text import plain_line
from tileworkbench.viz.model.view import KernelView
from tileworkbench.viz.model.views import VIEWS, explanation, view_html, view_text

if TYPE_CHECKING:
    from tileworkbench.bench.timing import BenchResult
    from tileworkbench.compiler.layout import Fragment, Layout
    from tileworkbench.compiler.record import CompileRecord
    from tileworkbench.viz.widgets.base import ViewWidget

NAMES = ("card", *VIEWS, "all")


def mimebundle(view: KernelView, name: str | None = None) -> Bundle:
    """An output ``(data, metadata)`` of a view (the card): widget where wanted, HTML, plain text.

    Raises:
        ArgumentError: as for `show`.
    """
    if name in (None, "card") and not wants_widgets():
        return make_bundle(plain_line(view), card_html(view), None)
    return show(view, name or "card")._repr_mimebundle_()


def layout_mimebundle(
    layout: Layout | Fragment, name: str = "", element_bytes: int = 4, **_options: Any
) -> Bundle:
    """An output of a layout or fragment on its own: explorer where wanted, picture, plain text.

    IPython's mimebundle formatter passes further options, which mean nothing here.
    """
    if wants_widgets():
        from tileworkbench.viz.widgets.layouts import layout_widget

        return layout_widget(layout, name, element_bytes)._repr_mimebundle_()
    html = layout_html(layout, name, element_bytes)
    return make_bundle(layout_line(name, layout), html, None)


def playground_mimebundle(
    typed: Typed, sheets: Sequence[Sheet], names: Callable[[], dict[str, Any]], line: str, text: str
) -> Bundle:
    """An output of a playground: fields and grids where wanted, pictures, plain text.

    `names` gives what Python in the fields may use; a notebook keeps `line`, a terminal shows
    `text`.
    """
    if wants_widgets():
        from tileworkbench.viz.widgets.playground import PlaygroundWidget

        return PlaygroundWidget(typed, sheets, names, line)._repr_mimebundle_()
    content = play_html(sheets, typed.element_bytes)
    return make_bundle(line if in_notebook() else text, content, None)


def bench_mimebundle(result: BenchResult, **_options: Any) -> Bundle:
    """An output of a measurement: its numbers live, and nothing that changes with every run.

    Outside a notebook the text has the numbers: nobody compares what a terminal showed.
    """
    if wants_widgets():
        from tileworkbench.viz.widgets.bench import BenchWidget

        return BenchWidget(result.record)._repr_mimebundle_()
    text = bench_line(result.record) if in_notebook() else str(result)
    return make_bundle(text, bench_html(result.record), None)


def comparison_mimebundle(views: Sequence[KernelView], names: Sequence[str], text: str) -> Bundle:
    """An output of kernels side by side: views beside each other where wanted, tables, a line."""
    if wants_widgets():
        from tileworkbench.viz.widgets.comparison import ComparisonWidget

        return ComparisonWidget(views, names, text)._repr_mimebundle_()
    return make_bundle(text, comparison_html(views, names), None)


def function_mimebundle(view: FunctionView, text: str) -> Bundle:
    """An output of a function of torch operations: its operations and kernels, tables, a line."""
    if wants_widgets():
        from tileworkbench.viz.widgets.function import FunctionWidget

        return FunctionWidget(view, text)._repr_mimebundle_()
    return make_bundle(text, function_html(view), None)


def stopped_mimebundle(record: CompileRecord) -> Bundle:
    """An output of a compilation that a pass ended: its passes so far, and what failed."""
    if wants_widgets():
        from tileworkbench.viz.widgets.passes import StoppedPassesWidget

        return StoppedPassesWidget(record)._repr_mimebundle_()
    return make_bundle(stopped_text(record), stopped_html(record), None)


def failed_mimebundle(view: KernelView) -> Bundle:
    """An output of a check that failed: where the wrong elements are."""
    if wants_widgets():
        return show(view, "errors")._repr_mimebundle_()
    return make_bundle(str(view.errors), view_html(view, "errors"), None)


def replayed_mimebundle(view: KernelView) -> Bundle:
    """An output of a call that went wrong in the simulator, which has been replayed: its block at
    that moment.
    """
    if wants_widgets():
        return show(view, "replay")._repr_mimebundle_()
    last = None if view.replays is None else view.replays.last_replay
    return make_bundle(str(last), view_html(view, "replay"), None)


def show(view: KernelView, which: str = "card") -> ViewWidget:
    """The widget of one view: a name of `NAMES`, ``passes:PASS`` or ``layouts:BUFFER``.

    ``diff`` and ``diff:PASS`` are the passes, of which a reader without a kernel sees what the pass
    (by default the first that changed something) did to the IR.
    ``all`` is the card, which has a tab for each view. A view that has nothing to show says why.
    Where no notebook keeps the output, its text has the view's numbers, too.

    Raises:
        ArgumentError: no such view, pass or buffer.
        UnsupportedError: anywidget is not installed.
    """
    name, _, selected = which.partition(":")
    if name not in NAMES and name != "diff":
        raise ArgumentError(f"'{name}' is not a view", f"choose one of {', '.join(NAMES)}")
    try:
        made = _make(view, name, selected)
        shown = "passes" if name == "diff" else name
        if shown in VIEWS and not VIEWS[shown].missing(view):
            made.about = explanation(view, shown)
        if shown in VIEWS and shown != "passes" and not in_notebook():  # which keeps one line
            made.tell(view_text(view, shown))
        return made
    except ValueError as error:
        raise ArgumentError(str(error)) from None
    except ModuleNotFoundError as error:
        message = f"the view '{name}' needs '{error.name}', which is not installed"
        raise UnsupportedError(message, hint=f"pip install {error.name}") from None


def _make(view: KernelView, name: str, selected: str) -> ViewWidget:
    # Importing ipywidgets costs more than drawing a card, so only a shown widget pays for it.
    if name in ("card", "all"):
        from tileworkbench.viz.widgets.card import CardWidget

        return CardWidget(view)
    if name in ("passes", "diff"):
        from tileworkbench.viz.widgets.passes import PassesWidget

        return PassesWidget(view, selected, as_diff=name == "diff")
    if name == "layouts" and view.layouts:
        from tileworkbench.viz.widgets.layouts import LayoutsWidget

        steps = layout_steps(view.record)
        wanted = tuple(each for each in view.layouts if selected in ("", each.name))
        saved = replace(view, layouts=wanted)  # the still form has no list to choose from
        return LayoutsWidget(
            view.layouts, plain_line(view), lambda: view_html(saved, name), selected, steps
        )
    if name == "roofline" and view.machine is not None and view.points:
        from tileworkbench.viz.widgets.roofline import RooflineWidget

        return RooflineWidget(view.points, view.machine)
    from tileworkbench.viz.widgets.view import view_widget

    return view_widget(view, name)
