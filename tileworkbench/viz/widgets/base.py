"""What all widgets share: messages from the browser, and how a notebook shows them."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import anywidget
import traitlets

from tileworkbench.compiler.diagnostics import TileError
from tileworkbench.viz.model.bundle import OUTPUT_BYTES, Bundle, Live, live_form, make_bundle

Answer = Callable[[dict[str, Any]], dict[str, Any]]

MOST_LIVE = 64
"""Outputs of a session that are live: what views stand on is kept for these alone."""

_shown: deque[ViewWidget] = deque()  # the longest unused first


class ViewWidget(anywidget.AnyWidget):
    """Base of the widgets: `text` and `html` stand for it where no widget can be shown.

    The browser asks with a message ``{"type": ..., "request": number, ...}`` and gets
    ``{"type": "answer", "request": number, "value": ...}`` or ``{"error": ...}`` back, so that one
    model may have several views.

    The browser hears of a widget when it is displayed or put into another one (`model_id`), and
    never where no front end is: nbclient stores all that it hears of, and exports then ask a
    server for code to show it. `place` names the element of the outputs that it is drawn in,
    `about` says what one is looking at.
    """

    place = traitlets.Unicode().tag(sync=True)
    about = traitlets.Unicode().tag(sync=True)

    def __init__(self, text: str, html: Callable[[], str], **traits: Any) -> None:
        self._name = uuid4().hex
        super().__init__(model_id=self._name, **traits)
        self._text = text
        self._html = html
        self.on_msg(self._receive)

    def open(self) -> None:
        """Nothing: called for each new widget."""

    @property
    def model_id(self) -> str:
        """The model's name in the browser, which learns of the widget now if it did not."""
        super().open()
        return str(super().model_id)

    def tell(self, text: str) -> None:
        """Add lines to what stands for it where there are no pictures."""
        self._text = f"{self._text}\n{text}"

    def answers(self) -> dict[str, Answer]:
        """What the browser may ask for, by message type."""
        return {}

    def _receive(self, _widget: Any, content: Any, _buffers: Any) -> None:
        """Answer one message; a bad request is answered with its error, never raised."""
        if not isinstance(content, dict) or content.get("type") not in self.answers():
            return
        reply: dict[str, Any] = {"type": "answer", "request": content.get("request")}
        try:
            reply["value"] = self.answers()[content["type"]](content)
        except (TileError, IndexError, KeyError, TypeError, ValueError) as error:
            reply["error"] = str(error)
        self.send(reply)

    def __repr__(self) -> str:
        return self._text

    def _repr_mimebundle_(self, **_options: Any) -> Bundle:
        form, html = live_form(), self._html()
        if form is Live.NEVER:
            return make_bundle(self._text, html, None)
        saved = None
        self._keep()
        if form is Live.PLACED:
            self.place = self._name  # before the browser hears of it
            saved = self.saved(OUTPUT_BYTES - len(json.dumps(html, ensure_ascii=False).encode()))
        return make_bundle(self._text, html, self.model_id, saved)

    def _keep(self) -> None:
        """Stay live, and end the views of the oldest outputs: those show their pictures again."""
        if self in _shown:
            _shown.remove(self)
        _shown.append(self)
        while len(_shown) > MOST_LIVE:
            _shown.popleft().close()

    def close(self) -> None:
        """End the live view; the widget may be displayed again."""
        super().close()
        self.__dict__.pop("_repr_mimebundle_", None)  # ipywidgets hides it for good

    def saved(self, room: int) -> dict[str, Any] | None:
        """What the JupyterLab extension draws where no kernel is, in `room` bytes; None: HTML."""
        return None
