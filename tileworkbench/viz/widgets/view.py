"""A widget for one view alone, and what it shares with the card."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import traitlets

from tileworkbench.viz.model.assets import module, stylesheet
from tileworkbench.viz.model.text import plain_line
from tileworkbench.viz.model.view import KernelView
from tileworkbench.viz.model.views import VIEWS, view_html, view_model
from tileworkbench.viz.widgets.base import Answer, ViewWidget


class SelectionTraits(traitlets.HasTraits):
    """What views share: `selection` is what is looked at, in all views of a widget at once.

    Its keys: ``line`` of the user's text, or ``lines`` where it is several, ``buffer`` (name),
    ``element`` (indices). A view shows those that mean something to it.
    """

    selection = traitlets.Dict().tag(sync=True)


class ViewTraits(SelectionTraits):
    """The views of one kernel, which share a selection."""

    view: KernelView

    def view_answers(self) -> dict[str, Answer]:
        """The messages of all views: ``view`` asks for the data of one by its name."""
        answers: dict[str, Answer] = {"view": self._model}
        for each in VIEWS.values():
            for kind, answer in each.answers.items():
                answers[kind] = partial(answer, self.view)
        return answers

    def _model(self, content: dict[str, Any]) -> dict[str, Any]:
        return view_model(self.view, str(content["name"]))


class OneViewWidget(ViewWidget, ViewTraits):
    """One view of one kernel; `view_widget` makes it."""

    def __init__(self, view: KernelView, name: str) -> None:
        super().__init__(plain_line(view), lambda: view_html(view, name))
        self.view = view

    def answers(self) -> dict[str, Answer]:
        return self.view_answers()


def view_widget(view: KernelView, name: str) -> OneViewWidget:
    """The widget of the view `name`; a view with nothing to show says so in a line."""
    return _widget_class(name)(view, name)


@cache
def _widget_class(name: str) -> type[OneViewWidget]:
    """A class per view, because anywidget takes the code from the class."""
    texts = {"_esm": module(name), "_css": stylesheet(name)}
    return type(f"{name.capitalize()}ViewWidget", (OneViewWidget,), texts)
