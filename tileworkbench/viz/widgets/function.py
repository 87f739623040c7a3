"""The card of a function of torch operations that runs in kernels."""

from __future__ import annotations

import traitlets

from tileworkbench.viz.model.assets import module, stylesheet
from tileworkbench.viz.model.function import FunctionView, function_html, function_model
from tileworkbench.viz.widgets.base import ViewWidget


class FunctionWidget(ViewWidget):
    """What became of each operation, and a tab per kernel. `tab` is ``function`` or the name of a
    kernel.
    """

    _esm = module("function")
    _css = stylesheet("function")

    function = traitlets.Dict().tag(sync=True)
    tab = traitlets.Unicode("function").tag(sync=True)

    def __init__(self, view: FunctionView, text: str) -> None:
        super().__init__(text, lambda: function_html(view))
        self.function = function_model(view)
