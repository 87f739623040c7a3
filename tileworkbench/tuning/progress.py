"""A bar of progress where somebody is looking, of which nothing stays in the output."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tileworkbench.viz.model.bundle import wants_widgets

if TYPE_CHECKING:
    from tileworkbench.viz.magics.progress import Bar


class Progress:
    """The progress of `steps` steps; nothing is shown for a single one, or outside a notebook."""

    def __init__(self, steps: int) -> None:
        self._bar: Bar | None = None
        if steps > 1 and wants_widgets():
            from tileworkbench.viz.magics.progress import Bar

            self._bar = Bar()

    def show(self, done: int, total: int) -> None:
        """Say that `done` of `total` steps are done."""
        if self._bar is not None:
            self._bar.show(done, total)

    def end(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.end()
