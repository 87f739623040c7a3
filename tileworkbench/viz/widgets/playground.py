"""Layouts without a kernel, typed and operated on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import traitlets

from tileworkbench.viz.model.assets import module, stylesheet
from tileworkbench.viz.model.playground import Sheet, Typed, menu, play_html, play_model
from tileworkbench.viz.widgets.base import Answer, ViewWidget


class PlaygroundWidget(ViewWidget):
    """Fields for layouts and an operation; `typed` is what stands in them (`Typed`).

    The browser asks for what was typed and gets the sheets as data, or what is wrong.
    """

    _esm = module("playground")
    _css = stylesheet("playground")

    typed = traitlets.Dict().tag(sync=True)
    menu = traitlets.Dict().tag(sync=True)

    def __init__(
        self,
        typed: Typed,
        sheets: Sequence[Sheet],
        names: Callable[[], Mapping[str, Any]],
        text: str,
    ) -> None:
        super().__init__(text, lambda: play_html(sheets, typed.element_bytes))
        self._names = names
        self.menu = menu()
        self.typed = asdict(typed)

    def answers(self) -> dict[str, Answer]:
        return {"play": lambda content: play_model(content, self._names())}
