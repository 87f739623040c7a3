"""One process of this user measures the machine at a time: two would each find half of it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path


def lock_path(what: str = "") -> Path:
    """The file that this user's processes on this machine lock for `what`."""
    return Path(tempfile.gettempdir()) / f"tileworkbench-{os.getuid()}{what}.lock"


def open_lock(path: Path) -> int:
    """A handle to lock by `flock`; a process that ends gives it back. Raises `OSError`."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Wait until no other thread or process of this user measures ceilings; none does meanwhile.

    Where the file of the lock cannot be opened nobody waits, and measurements that disturb each
    other say so.
    """
    with contextlib.ExitStack() as opened:
        with contextlib.suppress(OSError):
            handle = open_lock(lock_path("-ceilings"))
            opened.callback(os.close, handle)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
