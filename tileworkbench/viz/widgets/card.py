"""The kernel card: one frame with a tab per view."""

from __future__ import annotations

import traitlets

from tileworkbench.viz.model.assets import module, stylesheet
from tileworkbench.viz.model.card import card_html, card_model
from tileworkbench.viz.model.text import plain_line
from tileworkbench.viz.model.view import KernelView
from tileworkbench.viz.widgets.base import Answer, ViewWidget
from tileworkbench.viz.widgets.layouts import LayoutsTraits
from tileworkbench.viz.widgets.passes import PassesTraits
from tileworkbench.viz.widgets.roofline import RooflineTraits
from tileworkbench.viz.widgets.view import ViewTraits


class CardWidget(ViewWidget, ViewTraits, PassesTraits, LayoutsTraits, RooflineTraits):
    """Everything about one kernel. `tab` is the open view: a name of `viz.model.card.tabs`."""

    _esm = module("card")
    _css = stylesheet("card")

    card = traitlets.Dict().tag(sync=True)
    tab = traitlets.Unicode("card").tag(sync=True)

    def __init__(self, view: KernelView, tab: str = "card") -> None:
        super().__init__(plain_line(view), lambda: card_html(view))
        self.view = view
        self.card = card_model(view)
        self.tab = tab
        self.open_passes(view)
        self.open_layouts(view.layouts)
        if view.machine is not None and view.points:
            self.open_roofline(view.points, view.machine)

    def answers(self) -> dict[str, Answer]:
        return {**self.view_answers(), **self.pass_answers(), **self.layout_answers()}
