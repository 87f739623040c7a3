"""A measurement on its own."""

from __future__ import annotations

import traitlets

from tileworkbench.compiler.record import RunRecord
from tileworkbench.viz.model.assets import module, stylesheet
from tileworkbench.viz.model.bench import bench_html, bench_line, bench_model
from tileworkbench.viz.widgets.base import ViewWidget


class BenchWidget(ViewWidget):
    """The times and rates of one measured callable."""

    _esm = module("bench")
    _css = stylesheet("bench")

    bench = traitlets.Dict().tag(sync=True)

    def __init__(self, run: RunRecord) -> None:
        super().__init__(bench_line(run), lambda: bench_html(run))
        self.bench = {"name": run.name, **bench_model(run)}
