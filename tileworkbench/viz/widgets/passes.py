"""The pass explorer: what each pass did, as differences fetched one by one."""

from __future__ import annotations

from typing import Any

import traitlets

from tileworkbench.compiler.record import CompileRecord
from tileworkbench.viz.model.assets import module, stylesheet
from tileworkbench.viz.model.edit import ir_cell
from tileworkbench.viz.model.passes import PassBrowser
from tileworkbench.viz.model.passes_static import (
    diff_section,
    diff_text,
    passes_text,
    stopped_html,
    stopped_text,
)
from tileworkbench.viz.model.text import plain_line
from tileworkbench.viz.model.view import KernelView
from tileworkbench.viz.model.views import titled, view_html
from tileworkbench.viz.model.without import without
from tileworkbench.viz.widgets.base import Answer, ViewWidget
from tileworkbench.viz.widgets.view import ViewTraits


class PassesTraits(traitlets.HasTraits):
    """State of a pass explorer: the list, the pass that is looked at, and the user's source."""

    passes = traitlets.Dict().tag(sync=True)
    source = traitlets.Dict().tag(sync=True)
    selected_pass = traitlets.Int(0).tag(sync=True)

    _browser: PassBrowser

    def open_passes(self, record: CompileRecord, selected: str = "") -> None:
        """Fill the traits from a record; a pass that failed is selected, else the first one that
        changed something.

        Raises:
            ValueError: `selected` is no pass of this kernel.
        """
        browser = self._browser = PassBrowser(record)
        self.selected_pass = browser.find(selected) if selected else browser.first_shown()
        self.passes = browser.overview(live=True) | {"diff": browser.diff(self.selected_pass)}
        self.source = {"first": record.first_line, "lines": record.source.splitlines()}

    def pass_answers(self) -> dict[str, Answer]:
        """The messages of this view."""
        return {
            "diff": lambda content: self._browser.diff(int(content["index"])),
            "tree": lambda content: self._browser.tree(int(content["index"])),
            "rules": lambda content: self._browser.rules(int(content["index"])),
            "search": lambda content: self._browser.search(str(content["query"])),
            "name": self._describe,
            "without": lambda content: without(self._browser.record, content["names"]),
            "cell": self._ir_cell,
        }

    def _describe(self, content: dict[str, Any]) -> dict[str, Any]:
        return self._browser.describe(int(content["index"]), str(content["name"]))

    def _ir_cell(self, content: dict[str, Any]) -> dict[str, Any]:
        return {"text": ir_cell(self._browser.record, int(content["index"]))}


class PassesWidget(ViewWidget, ViewTraits, PassesTraits):
    """The passes of one kernel; without a browser their list, or with `as_diff` the change that the
    selected one made.
    """

    _esm = module("passes")
    _css = stylesheet("passes")

    def __init__(self, view: KernelView, selected: str = "", as_diff: bool = False) -> None:
        super().__init__(plain_line(view), lambda: view_html(view, "passes"))
        self.open_passes(view.record, selected)
        text, at = passes_text(view), self.selected_pass
        if as_diff:
            text, self._html = diff_text(view, at), lambda: titled(view, diff_section(view, at))
        self.tell(text)

    def answers(self) -> dict[str, Answer]:
        return self.pass_answers()


class StoppedPassesWidget(ViewWidget, ViewTraits, PassesTraits):
    """The passes of a compilation that one of them ended, closed until somebody looks."""

    _esm = module("stopped")
    _css = stylesheet("stopped")

    summary = traitlets.Unicode().tag(sync=True)

    def __init__(self, record: CompileRecord) -> None:
        super().__init__(stopped_text(record), lambda: stopped_html(record))
        self.open_passes(record)
        self.summary = stopped_text(record)

    def answers(self) -> dict[str, Answer]:
        return self.pass_answers()
