"""The roofline of one or several kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import traitlets

if TYPE_CHECKING:
    from matplotlib.figure import Figure

from tileworkbench.bench.points import Machine, Point
from tileworkbench.viz.model.assets import module, stylesheet
from tileworkbench.viz.model.roofline_view import roofline_html, roofline_line, roofline_model
from tileworkbench.viz.model.trail import join_trails
from tileworkbench.viz.widgets.base import Answer, ViewWidget

_SESSION = uuid4().hex[:12]  # tells versions of this process from those that a notebook kept


class RooflineTraits(traitlets.HasTraits):
    """State of a roofline: the drawing, the points' verdicts and the table of ceilings."""

    roofline = traitlets.Dict().tag(sync=True)

    def open_roofline(self, points: Sequence[Point], machine: Machine) -> None:
        """Fill the trait from measurements."""
        self._points, self._machine, self._session = tuple(points), machine, _SESSION
        self.roofline = roofline_model(points, machine)

    def roofline_answers(self) -> dict[str, Answer]:
        """What the browser may ask of a roofline."""
        return {"join-trails": self._join_trails}

    def _join_trails(self, content: dict[str, Any]) -> dict[str, Any]:
        """Draw the trails that the notebook kept (``trails``: name to steps) before this session's;
        answers with what it is to keep now.
        """
        kept: dict[str, list[dict[str, Any]]] = {}
        joined = []
        for point in self._points:
            steps = content["trails"].get(point.name)
            if isinstance(steps, list):
                point, kept[point.name] = join_trails(
                    point, self._machine.name, steps, self._session
                )
            joined.append(point)
        self.roofline = roofline_model(joined, self._machine) | {"joined": True}
        return {"kept": kept}


class RooflineWidget(ViewWidget, RooflineTraits):
    """Measured points under a machine's ceilings."""

    _esm = module("roofline")
    _css = stylesheet("roofline")

    def __init__(self, points: Sequence[Point], machine: Machine) -> None:
        super().__init__(roofline_line(points), lambda: roofline_html(points, machine))
        self.open_roofline(points, machine)

    def answers(self) -> dict[str, Answer]:
        return self.roofline_answers()

    def figure(self) -> Figure:
        """The same as a matplotlib figure, for papers: ``figure().savefig("roofline.pdf")``."""
        from tileworkbench.viz.widgets.figure import roofline_figure

        return roofline_figure(self._points, self._machine)
