"""Progress that is seen while a cell runs and is not in what it leaves behind."""

from __future__ import annotations

from IPython.display import clear_output

from tileworkbench.viz.model.bundle import wants_widgets

_WIDTH = 30  # characters of the bar


def show_progress(done: int, total: int) -> None:
    """Draw ``[####      ] 12 of 40`` in place of the last one; only where somebody is looking."""
    if wants_widgets():
        filled = "#" * (done * _WIDTH // max(total, 1))
        clear_output(wait=True)  # type: ignore[no-untyped-call]
        print(f"[{filled:<{_WIDTH}}] {done} of {total}", flush=True)


def end_progress() -> None:
    """Take the last one away."""
    if wants_widgets():
        clear_output(wait=True)  # type: ignore[no-untyped-call]
