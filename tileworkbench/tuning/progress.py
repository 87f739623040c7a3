"""A bar of progress where somebody is looking, of which nothing stays in the output."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tileworkbench.viz.model.bundle import Live, live_form

if TYPE_CHECKING:
    from tileworkbench.viz.widgets.progress import ProgressWidget


class Progress:
    """Steps of something that takes long; shown from the second on, in a notebook whose front end
    draws views beside its outputs.
    """

    def __init__(self) -> None:
        self._bar: ProgressWidget | None = None

    def show(self, done: int, total: int) -> None:
        """Say that `done` of `total` steps are done."""
        if total < 2 or live_form() is not Live.PLACED:
            return
        if self._bar is None:
            from tileworkbench.viz.widgets.progress import ProgressWidget

            self._bar = ProgressWidget(done=done, total=total)
        self._bar.done = done

    def end(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.ended = True
            self._bar.close()
            self._bar = None
