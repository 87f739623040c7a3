"""The pass explorer: what each pass did, as differences fetched one by one."""

from __future__ import annotations

from typing import Any

import traitlets

from tileworkbench.viz.model.assets import module, stylesheet
from tileworkbench.viz.model.passes import PassBrowser, diff_section, diff_text, passes_text
from tileworkbench.viz.model.text import plain_line
from tileworkbench.viz.model.view import KernelView
from tileworkbench.viz.model.views import titled, view_html
from tileworkbench.viz.widgets.base import Answer, ViewWidget


class PassesTraits(traitlets.HasTraits):
    """State of a pass explorer: the list, the pass that is looked at, and the user's source."""

    passes = traitlets.Dict().tag(sync=True)
    source = traitlets.Dict().tag(sync=True)
    selected_pass = traitlets.Int(0).tag(sync=True)

    _browser: PassBrowser

    def open_passes(self, view: KernelView, selected: str = "") -> None:
        """Fill the traits from a kernel; the first pass that changed something is selected.

        Raises:
            ValueError: `selected` is no pass of this kernel.
        """
        browser = self._browser = PassBrowser(view.record)
        record = view.record
        self.selected_pass = browser.find(selected) if selected else browser.first_changed()
        self.passes = browser.overview(live=True) | {"diff": browser.diff(self.selected_pass)}
        self.source = {"first": record.first_line, "lines": record.source.splitlines()}

    def pass_answers(self) -> dict[str, Answer]:
        """The messages of this view."""
        return {"diff": self._diff, "search": self._search}

    def _diff(self, content: dict[str, Any]) -> dict[str, Any]:
        return self._browser.diff(int(content["index"]))

    def _search(self, content: dict[str, Any]) -> dict[str, Any]:
        return self._browser.search(str(content["query"]))


class PassesWidget(ViewWidget, PassesTraits):
    """The passes of one kernel; without a browser their list, or with `as_diff` the change that the
    selected one made.
    """

    _esm = module("passes")
    _css = stylesheet("passes")

    def __init__(self, view: KernelView, selected: str = "", as_diff: bool = False) -> None:
        super().__init__(plain_line(view), lambda: view_html(view, "passes"))
        self.open_passes(view, selected)
        text, at = passes_text(view), self.selected_pass
        if as_diff:
            text, self._html = diff_text(view, at), lambda: titled(view, diff_section(view, at))
        self._text = f"{self._text}\n{text}"

    def answers(self) -> dict[str, Answer]:
        return self.pass_answers()
