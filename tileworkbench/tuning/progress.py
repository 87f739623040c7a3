"""A bar of progress where somebody is looking, of which nothing stays in the output."""

from __future__ import annotations

from tileworkbench.viz.model.bundle import wants_widgets


class Progress:
    """The progress of `steps` steps; nothing is shown for a single one."""

    def __init__(self, steps: int) -> None:
        self._seen = steps > 1 and wants_widgets()

    def show(self, done: int, total: int) -> None:
        """Say that `done` of `total` steps are done."""
        if self._seen:
            from tileworkbench.viz.magics.progress import show_progress

            show_progress(done, total)

    def end(self) -> None:
        """Take the bar away."""
        if self._seen:
            from tileworkbench.viz.magics.progress import end_progress

            end_progress()
