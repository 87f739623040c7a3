"""Progress that is seen while a cell runs and is not in what it leaves behind."""

from __future__ import annotations

from typing import Any

from IPython.display import display

from tileworkbench.viz.model.bundle import wants_widgets

_WIDTH = 30  # characters of the bar


class Bar:
    """``[####      ] 12 of 40`` below what the cell has printed; only where somebody is looking."""

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, done: int, total: int) -> None:
        """Draw the bar in place of the last one."""
        if not wants_widgets():
            return
        filled = "#" * (done * _WIDTH // max(total, 1))
        text = {"text/plain": f"[{filled:<{_WIDTH}}] {done} of {total}"}
        if self._handle is None:
            self._handle = display(text, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(text, raw=True)

    def end(self) -> None:
        """Take the bar away: of its output an empty one stays, and no other is touched."""
        if self._handle is not None:
            self._handle.update({}, raw=True)
            self._handle = None
