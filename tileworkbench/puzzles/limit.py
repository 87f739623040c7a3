"""Ending what does not end: Python code, the simulator or a kernel, after some seconds."""

from __future__ import annotations

import _thread
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from tileworkbench.compiler.diagnostics import RunError, Span, UnsupportedError


@contextmanager
def time_limit(seconds: float, file: str) -> Iterator[None]:
    """Whatever runs within is interrupted after `seconds`, as by Ctrl-C.

    Raises:
        RunError: it did not end in time; the span is the line of `file` that ran, where known.
        UnsupportedError: this is not the main thread, the only one that can be interrupted.
    """
    if threading.current_thread() is not threading.main_thread():
        raise UnsupportedError(
            "a puzzle is judged in the main thread, and this cell runs in another one",
            hint="run it in the notebook itself, not in a subshell or a thread",
        )
    state = _State()
    before = signal.signal(signal.SIGINT, state.handle)
    state.previous = before
    timer = threading.Timer(seconds, state.expire)
    timer.daemon = True
    timer.start()
    try:
        yield
    except KeyboardInterrupt as error:
        if not state.expired:
            raise
        raise RunError(
            f"this did not end within {seconds:g} s, and was stopped",
            hint="does every loop come to its end? The notebook and its variables are as before",
            span=_place(error, file),
        ) from None
    finally:
        state.ended = True
        timer.cancel()
        timer.join()
        signal.signal(signal.SIGINT, signal.default_int_handler if before is None else before)


class _State:
    """What the timer's thread and the handler in the main thread know of each other."""

    def __init__(self) -> None:
        self.expired = self.ended = False
        self.previous: Any = None

    def expire(self) -> None:
        """In the timer's thread: wake the main thread, even out of a system call."""
        self.expired = True
        if hasattr(signal, "pthread_kill"):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        else:
            _thread.interrupt_main()

    def handle(self, number: int, frame: FrameType | None) -> None:
        """In the main thread. A signal of the timer that comes too late says nothing."""
        if not self.expired:
            if callable(self.previous):
                self.previous(number, frame)
        elif not self.ended:
            raise KeyboardInterrupt


def _place(error: KeyboardInterrupt, file: str) -> Span | None:
    """The line of `file` that was running: the simulator says it, or the traceback."""
    span = getattr(error, "span", None)
    if isinstance(span, Span):
        return span
    trace, line = error.__traceback__, 0
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    return Span(file, line) if line else None
