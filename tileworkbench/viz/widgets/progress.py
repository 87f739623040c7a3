"""A bar of progress below the cell that runs."""

from __future__ import annotations

import anywidget
import traitlets

from tileworkbench.viz.model.assets import script, stylesheet


class ProgressWidget(anywidget.AnyWidget):
    """`done` of `total` steps. The browser draws it when it hears of it, beside the outputs and not
    in one, and takes it away when it has `ended`.
    """

    _esm = f"{script('progress')}\nexport default {{ initialize: $progress.initialize }};\n"
    _css = stylesheet("progress")

    done = traitlets.Int().tag(sync=True)
    total = traitlets.Int().tag(sync=True)
    ended = traitlets.Bool(False).tag(sync=True)
