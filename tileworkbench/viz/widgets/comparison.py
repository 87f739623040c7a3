"""Kernels side by side: rows of every view, and the views themselves beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import traitlets

from tileworkbench.viz.model.assets import module, stylesheet
from tileworkbench.viz.model.bundle import Bundle, in_marimo
from tileworkbench.viz.model.compared import comparison_html, comparison_model
from tileworkbench.viz.model.view import KernelView
from tileworkbench.viz.widgets.base import Answer, ViewWidget
from tileworkbench.viz.widgets.card import CardWidget


class SideWidget(CardWidget):
    """The model of one kernel of a comparison, which brings the code that draws it."""

    _esm = "export default {};"
    _css = ""


class ComparisonWidget(ViewWidget):
    """Several kernels. `tab` is the open view: ``card`` or a name of `viz.model.views.VIEWS`."""

    _esm = module("comparison")
    _css = stylesheet("comparison")

    comparison = traitlets.Dict().tag(sync=True)
    tab = traitlets.Unicode("card").tag(sync=True)

    def __init__(self, views: Sequence[KernelView], names: Sequence[str], text: str) -> None:
        super().__init__(text, lambda: comparison_html(views, names))
        self._views = views
        self.comparison = comparison_model(views, names)

    @cached_property
    def sides(self) -> tuple[SideWidget, ...]:
        """A model per kernel, made when the views are first looked at."""
        return tuple(SideWidget(view.placed()) for view in self._views)

    def answers(self) -> dict[str, Answer]:
        return {"sides": self._names}

    def _repr_mimebundle_(self, **options: Any) -> Bundle:
        if in_marimo():  # which takes models only from a cell that runs
            _ = self.sides
        return super()._repr_mimebundle_(**options)

    def _names(self, _content: dict[str, Any]) -> dict[str, Any]:
        return {"models": [side.model_id for side in self.sides]}
