"""The roofline of one or several kernels."""

from __future__ import annotations

from collections.abc import Sequence

import traitlets

from tileworkbench.viz.model.assets import module, stylesheet
from tileworkbench.viz.model.roofline import Machine, Point
from tileworkbench.viz.model.roofline_view import roofline_html, roofline_line, roofline_model
from tileworkbench.viz.widgets.base import ViewWidget


class RooflineTraits(traitlets.HasTraits):
    """State of a roofline: the drawing, the points' verdicts and the table of ceilings."""

    roofline = traitlets.Dict().tag(sync=True)

    def open_roofline(self, points: Sequence[Point], machine: Machine) -> None:
        """Fill the trait from measurements."""
        self.roofline = roofline_model(points, machine)


class RooflineWidget(ViewWidget, RooflineTraits):
    """Measured points under a machine's ceilings."""

    _esm = module("roofline")
    _css = stylesheet("roofline")

    def __init__(self, points: Sequence[Point], machine: Machine) -> None:
        super().__init__(roofline_line(points), lambda: roofline_html(points, machine))
        self.open_roofline(points, machine)
