"""The layout explorer: elements to threads or addresses, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import traitlets

from tileworkbench.compiler.layout import Fragment, Layout
from tileworkbench.viz.model.assets import module, stylesheet
from tileworkbench.viz.model.layout import elements_of, layout_html, layout_line, layout_model
from tileworkbench.viz.model.layout import locate as locate_element
from tileworkbench.viz.widgets.base import Answer, ViewWidget
from tileworkbench.viz.widgets.view import SelectionTraits
from tileworkbench.workbench.results import BufferLayout

NONE = -1  # no thread is selected


class LayoutsTraits(traitlets.HasTraits):
    """State of a layout explorer.

    Set `layout_name`, `layout_lead`, `selected_element` or `selected_thread` from Python or by the
    mouse. `layout_data` holds the tables of the chosen slice alone, and of a fragment with very
    many copies those from `layout_copy` on. `selected_thread` (an address for a `Layout`; -1 for
    none) makes Python fill `thread_elements`. `layout_steps` says how the layouts came about.
    `first_paint_ms` is what the browser measured from the start of rendering to the first picture.
    """

    layout_names = traitlets.List(traitlets.Dict()).tag(sync=True)
    layout_name = traitlets.Unicode("").tag(sync=True)
    layout_lead = traitlets.List(traitlets.Int()).tag(sync=True)
    layout_copy = traitlets.Int(0).tag(sync=True)
    layout_data = traitlets.Dict().tag(sync=True)
    layout_steps = traitlets.List(traitlets.Dict()).tag(sync=True)
    selected_element = traitlets.List(traitlets.Int()).tag(sync=True)
    selected_thread = traitlets.Int(NONE).tag(sync=True)
    thread_elements: traitlets.List[list[int]] = traitlets.List().tag(sync=True)
    first_paint_ms = traitlets.Float(0.0).tag(sync=True)

    _layouts: dict[str, BufferLayout]

    def open_layouts(
        self,
        layouts: Sequence[BufferLayout],
        selected: str = "",
        steps: Sequence[dict[str, Any]] = (),
    ) -> None:
        """Fill the traits; `selected` is the buffer shown first, else the first one. `steps` are
        what `layout_steps` of viz.model found.

        Raises:
            ValueError: `selected` is none of the buffers.
        """
        self._layouts = {buffer.name: buffer for buffer in layouts}
        if selected and selected not in self._layouts:
            raise ValueError(f"'{selected}' has no layout; there are {sorted(self._layouts)}")
        self.layout_names = [
            {
                "name": buffer.name,
                "kind": type(buffer.layout).__name__,
                "shape": list(buffer.layout.shape),
                "role": buffer.role,
            }
            for buffer in layouts
        ]
        self.layout_steps = list(steps)
        self.observe(self._choose_buffer, "layout_name")
        self.observe(self._choose_slice, ["layout_lead", "layout_copy"])
        self.observe(self._choose_element, "selected_element")
        self.observe(self._choose_thread, "selected_thread")
        if layouts:
            kept = self.layout_name if self.layout_name in self._layouts else layouts[0].name
            self.layout_name = selected or kept
            self._choose_buffer(None)  # a layout of the same name may be another one

    def layout_answers(self) -> dict[str, Answer]:
        """The messages of this view."""
        return {"locate": self._locate}

    def _chosen(self) -> BufferLayout | None:
        return self._layouts.get(self.layout_name)

    def _choose_buffer(self, _change: Any) -> None:
        buffer = self._chosen()
        if buffer is None:
            return
        with self.hold_trait_notifications():
            self.layout_data = layout_model(buffer)
            self.layout_lead = self.layout_data["lead"]
            self.layout_copy = 0
            self.selected_element = []
            self.selected_thread = NONE

    def _choose_slice(self, _change: Any) -> None:
        buffer = self._chosen()
        shown = (self.layout_data.get("lead"), self.layout_data.get("copy", 0))
        if buffer is not None and shown != (self.layout_lead, self.layout_copy):
            self.layout_data = layout_model(buffer, self.layout_lead, self.layout_copy)

    def _choose_element(self, _change: Any) -> None:
        """Show the slice that it is in."""
        if self.selected_element:
            self.layout_lead = self.selected_element[:-2]

    def _choose_thread(self, _change: Any) -> None:
        buffer = self._chosen()
        chosen = buffer is not None and self.selected_thread != NONE
        layout = buffer.layout if buffer is not None else None
        self.thread_elements = (
            elements_of(layout, self.selected_thread) if chosen and layout else []
        )

    def _locate(self, content: dict[str, Any]) -> dict[str, Any]:
        buffer = self._layouts[str(content["name"])]
        return locate_element(buffer.layout, content["index"])


class LayoutsWidget(ViewWidget, SelectionTraits, LayoutsTraits):
    """The layouts of some buffers."""

    _esm = module("layouts")
    _css = stylesheet("layouts")

    def __init__(
        self,
        layouts: Sequence[BufferLayout],
        text: str,
        html: Any,
        selected: str = "",
        steps: Sequence[dict[str, Any]] = (),
    ) -> None:
        super().__init__(text, html)
        self.open_layouts(layouts, selected, steps)

    def answers(self) -> dict[str, Answer]:
        return self.layout_answers()


def layout_widget(
    layout: Layout | Fragment, name: str = "", element_bytes: int = 4
) -> LayoutsWidget:
    """The explorer of one layout or fragment, with or without a kernel."""
    buffer = BufferLayout(name or type(layout).__name__, layout, "", element_bytes)
    return LayoutsWidget(
        [buffer], layout_line(name, layout), lambda: layout_html(layout, name, element_bytes)
    )
