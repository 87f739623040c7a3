"""What kernels print: written to the standard output, and told to those who watch."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from tileworkbench.compiler.sim.values import Mask

if TYPE_CHECKING:
    from tileworkbench.compiler.ir.stmt import Print
    from tileworkbench.compiler.sim.frame import Frame


def print_lines(
    frame: Frame,
    stmt: Print,
    values: list[Any],
    counters: list[Any],
    mask: Mask,
    lanes: tuple[int, ...],
) -> None:
    """A line for every lane in which `mask` holds: written where the run's options say so."""
    arrays, numbers = (
        [np.broadcast_to(np.asarray(value), lanes) for value in each] for each in (values, counters)
    )
    chosen = np.broadcast_to(np.asarray(mask), lanes)
    threads = np.broadcast_to(np.asarray(frame.threads_of(lanes)), lanes)
    for lane in np.ndindex(*lanes):
        if not chosen[lane]:
            continue
        texts = [_number_text(array[lane]) for array in arrays]
        text = stmt.parts[0] + "".join(map(operator.add, texts, stmt.parts[1:]))
        if frame.options.prints:
            print(text)
        loops = dict(zip(stmt.loops, [int(array[lane]) for array in numbers], strict=True))
        for observer in frame.observers:
            observer.printed(frame, stmt, int(threads[lane]), loops, text)


def _number_text(value: Any) -> str:
    """A value as native code prints it."""
    return f"{float(value):g}" if value.dtype.kind in "fV" else str(int(value))
