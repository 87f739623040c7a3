"""Who may work on this machine now: any number compile, or one measures."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tileworkbench.bench.alone import lock_path, open_lock
from tileworkbench.compiler.diagnostics import UnsupportedError


def lock_file() -> Path:
    """The file that this user's processes on this machine lock."""
    return lock_path()


@contextmanager
def compiling() -> Iterator[None]:
    """Wait until nobody measures; nobody does meanwhile."""
    with _locked(fcntl.LOCK_SH):
        yield


@contextmanager
def measuring() -> Iterator[None]:
    """Wait until nobody compiles or measures; nobody does meanwhile.

    This holds among all threads and processes of this user on this machine, workers of executors
    among them, that ask for a turn (`flock`). A process that ends gives its turn back.
    """
    with _locked(fcntl.LOCK_EX):
        yield


@contextmanager
def _locked(kind: int) -> Iterator[None]:
    try:
        handle = open_lock(lock_file())
    except OSError as error:
        raise UnsupportedError(
            f"nothing can be measured, since '{lock_file()}' cannot be opened: {error.strerror}",
            hint="name another folder for temporary files in TMPDIR",
        ) from None
    try:
        fcntl.flock(handle, kind)
        yield
    finally:
        os.close(handle)
