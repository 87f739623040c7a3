"""The kernel card: one frame with a tab per view."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import traitlets

from tileworkbench.compiler.diagnostics import TileError
from tileworkbench.viz.model.assets import module, stylesheet
from tileworkbench.viz.model.bound import bound_answer
from tileworkbench.viz.model.card import BESIDE_LIMIT, card_html, card_model
from tileworkbench.viz.model.layout_steps import layout_steps
from tileworkbench.viz.model.saved import saved_card, saved_lines
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

    sliders = traitlets.List(traitlets.Dict()).tag(sync=True)

    def __init__(self, view: KernelView, tab: str = "card") -> None:
        super().__init__(plain_line(view), lambda: card_html(self.view, BESIDE_LIMIT))
        self.tab = "source" if view.annotated else tab
        self.open_view(view)

    def open_view(self, view: KernelView) -> None:
        """Show this kernel, in place of another one if there was one."""
        self.view = view
        self._text = plain_line(view)
        self.open_passes(view.record)
        self.open_layouts(view.layouts, steps=layout_steps(view.record))
        if view.machine is not None and view.points:
            self.open_roofline(view.points, view.machine)
        self.card = card_model(view)  # last: the browser draws everything anew

    def answers(self) -> dict[str, Answer]:
        return {
            **self.view_answers(),
            **self.pass_answers(),
            **self.layout_answers(),
            **self.roofline_answers(),
            "bound": self._bound,
        }

    def _bound(self, content: dict[str, Any]) -> dict[str, Any]:
        """What bounds the kernel, once the browser asks, and with that its roofline; ``measure``
        lets it measure this machine.
        """
        placed = self.view.placed(bool(content.get("measure")))
        if placed.points and placed.machine and "roofline" not in dict(self.card["tabs"]):
            self.open_roofline(placed.points, placed.machine)
            self.card = card_model(placed)
        return bound_answer(placed)

    def saved(self, room: int) -> dict[str, Any] | None:
        lines = saved_lines(self.view)
        room -= len(lines["lines"])
        return None if room < 0 else {**lines, **(saved_card(self.view, room) or {})}


Compile = Callable[[Mapping[str, Any]], KernelView]


class SlidingCardWidget(CardWidget):
    """A card with a slider per constant; a move compiles the kernel anew, and runs nothing.

    `compile_view` makes the view of a kernel from values of `axes`. What it raises as a
    `TileError` is shown, and the last good card stays.
    """

    def __init__(
        self, view: KernelView, axes: Mapping[str, Sequence[Any]], compile_view: Compile
    ) -> None:
        super().__init__(view)
        self._axes, self._compile = axes, compile_view
        constants = dict(view.record.constants)
        self.sliders = [
            {"name": name, "values": list(map(str, values)), "at": _place(constants, name, values)}
            for name, values in axes.items()
        ]

    def answers(self) -> dict[str, Answer]:
        return {**super().answers(), "slide": self._slide}

    def _slide(self, content: dict[str, Any]) -> dict[str, Any]:
        places = [int(place) for place in content["places"]]
        values = {
            name: choices[place]
            for (name, choices), place in zip(self._axes.items(), places, strict=True)
        }
        try:
            view = self._compile(values)
        except TileError as error:
            return {"error": str(error)}
        sliders = zip(self.sliders, places, strict=True)
        self.sliders = [{**slider, "at": place} for slider, place in sliders]
        self.open_view(view)
        return {}


def _place(constants: Mapping[str, str], name: str, values: Sequence[Any]) -> int:
    """Where the kernel's own value stands among the slider's."""
    texts = list(map(str, values))
    return texts.index(constants[name]) if constants.get(name) in texts else 0
