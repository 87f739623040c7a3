"""What all widgets share: messages from the browser, and how a notebook shows them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anywidget

from tileworkbench.viz.model.bundle import Bundle, make_bundle

Answer = Callable[[dict[str, Any]], dict[str, Any]]


class ViewWidget(anywidget.AnyWidget):
    """Base of the widgets: `text` and `html` stand for it where no widget can be shown.

    The browser asks with a message ``{"type": ..., "request": number, ...}`` and gets
    ``{"type": "answer", "request": number, "value": ...}`` or ``{"error": ...}`` back, so that one
    model may have several views.
    """

    def __init__(self, text: str, html: Callable[[], str], **traits: Any) -> None:
        super().__init__(**traits)
        self._text = text
        self._html = html
        self.on_msg(self._receive)

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
        except (IndexError, KeyError, TypeError, ValueError) as error:
            reply["error"] = str(error)
        self.send(reply)

    def __repr__(self) -> str:
        return self._text

    def _repr_mimebundle_(self, **_options: Any) -> Bundle:
        return make_bundle(self._text, self._html(), self.model_id)
