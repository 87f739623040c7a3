"""`Process`: another process that calls functions for this one.

What it costs: the start, in which it imports this package and what its functions need (1 to 3 s
with torch, once; it then waits for more), some 200 MB of memory, and the copies of arguments and
results, which are pickled. Functions are those of modules; what a notebook's cell defines cannot be
imported there, so kernels travel as traced programs.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import IO, Any

from tileworkbench.compiler.diagnostics import TileError, TileTypeError
from tileworkbench.isolation.child import IDLE_SECONDS

_START_SECONDS = 120.0  # in which a process imports what it needs
_MOST_SECONDS = 1e6  # that the system can wait
_STALE_SECONDS = 0.8 * IDLE_SECONDS  # the process ends by itself soon


class ProcessEndedError(TileError):
    """The process ended while it worked, or was stopped, since it took too long.

    `cause` says why, such as "SIGSEGV (Segmentation fault)"; `timed_out` that it was stopped.
    """

    def __init__(self, cause: str, timed_out: bool = False) -> None:
        super().__init__(f"its process ended: {cause}" if not timed_out else cause)
        self.cause, self.timed_out = cause, timed_out


class ChildError(TileError):
    """A function raised an exception in the process; the message is its last line."""


class Process:
    """A process that calls functions, started by the first call and again after it has ended.

    It begins with ``first(*arguments)``, for which it has two minutes: to import what takes long.
    """

    def __init__(self, first: Callable[..., object] = os.getpid, *arguments: Any) -> None:
        self._first = first, arguments
        self._popen: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._errors: IO[bytes] | None = None
        self._used = 0.0
        self._closed = False
        self._calling = threading.Lock()

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def start(self) -> None:
        """Start the process where it does not run. Raises `ProcessEndedError` where it cannot."""
        with self._calling:
            self._start()

    def call(self, function: Callable[..., Any], *arguments: Any, seconds: float) -> Any:
        """What ``function(*arguments)`` returns there.

        Raises `ProcessEndedError` where the process ends, or takes longer than `seconds` (its start
        does not count) and is stopped; `ChildError` for an exception of the function;
        `TileTypeError` for an argument that cannot be pickled. An interrupt stops the process.
        """
        request = pickled(function, arguments)
        with self._calling:
            try:
                self._start()
                return self._ask(request, seconds)
            except BaseException as error:
                if not isinstance(error, ChildError):
                    self._stop()
                raise

    def close(self) -> None:
        """Stop the process for good: a call under way fails, whichever thread it is of."""
        self._closed = True
        popen = self._popen
        if popen is not None:
            popen.kill()
        if self._calling.acquire(blocking=False):
            self._stop()
            self._calling.release()

    def _start(self) -> None:
        """Begin a process where there is none, or one that has waited for so long that it ends."""
        if self._closed:
            raise ProcessEndedError("it was stopped")
        running = self._popen is not None and self._popen.poll() is None
        if running and time.monotonic() - self._used < _STALE_SECONDS:
            return
        self._stop()
        root = str(Path(__file__).parents[2])
        path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
        mine, its = Pipe()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", "tileworkbench.isolation.child", str(its.fileno())],
                env={**os.environ, "PYTHONPATH": path},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                pass_fds=[its.fileno()],
                start_new_session=True,  # Ctrl-C is for the process that asks
            )
        finally:
            its.close()
        self._connection = mine
        self._ask(pickled(*self._first), _START_SECONDS)

    def _ask(self, request: bytes, seconds: float) -> Any:
        assert self._connection is not None
        try:
            self._connection.send_bytes(request)
            if not self._connection.poll(min(max(seconds, 0.0), _MOST_SECONDS)):
                raise ProcessEndedError(f"took longer than {seconds:g} s", timed_out=True)
            succeeded, answer = pickle.loads(self._connection.recv_bytes())
        except (EOFError, OSError):
            raise ProcessEndedError(self._cause()) from None
        self._used = time.monotonic()
        if not succeeded:
            raise ChildError(answer[1])
        return answer

    def _cause(self) -> str:
        """Why the process ended: a signal, or the last thing that it said."""
        assert self._popen is not None and self._errors is not None
        code = self._popen.wait()
        if self._closed:
            return "it was stopped"
        if code < 0:
            return f"{signal.Signals(-code).name} ({signal.strsignal(-code)})"
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").strip().splitlines()
        return said[-1] if said else f"exit status {code}"

    def _stop(self) -> None:
        if self._popen is not None:
            self._popen.kill()
            self._popen.wait()
        for each in (self._connection, self._errors):
            if each is not None:
                each.close()
        self._popen = self._connection = self._errors = None


def pickled(function: Callable[..., Any], arguments: tuple[Any, ...]) -> bytes:
    """A request. Raises `TileTypeError` for what cannot be pickled."""
    try:
        return pickle.dumps((function, arguments))
    except Exception as error:
        raise TileTypeError(
            f"an argument cannot be sent to another process: {error}",
            hint="pass numpy arrays, tensors of PyTorch or numbers",
        ) from None
