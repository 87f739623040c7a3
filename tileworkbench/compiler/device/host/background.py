"""LLVM in a thread of its own, while the caller lowers the next kernel.

LLVM runs without Python's lock. What is before it in a compilation holds that lock, so one thread
beside the caller is all that pays.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from tileworkbench.compiler.device.host.llvm import NativeFunction
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.runtime.forks import fresh_lock, not_while_forking

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

Functions = Mapping[str, NativeFunction]

# A compilation calls LLVM thirty times, and waits for Python's lock after each.
_SWITCH_SECONDS = 2e-4


@dataclass(frozen=True, slots=True)
class PendingFunction:
    """Machine code that is being made; asking where it is waits for it."""

    entry: str
    _made: Future[Functions]

    @property
    def address(self) -> int:
        """Where it begins. Raises what making it raised."""
        return self._made.result()[self.entry].address


class _Worker:
    """The thread and what it was given."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool
        self._jobs: list[Future[Functions]] = []

    def start(
        self, make: Callable[[], Functions], entries: Sequence[str]
    ) -> dict[str, PendingFunction]:
        """The functions that `make` will have made."""
        job = self._pool.submit(not_while_forking()(make))
        self._jobs.append(job)
        return {entry: PendingFunction(entry, job) for entry in entries}

    def finish(self) -> None:
        """Wait for all. Raises what the first that failed raised."""
        for job in self._jobs:
            job.result()


_current: ContextVar[_Worker | None] = ContextVar("native_worker", default=None)


def current() -> _Worker | None:
    """The thread that compiles for the caller, None outside of `native_in_background`."""
    return _current.get()


@contextmanager
def native_in_background() -> Iterator[None]:
    """Kernels compiled inside may not be finished when `compile` returns; all are at the end.

    Raises there what LLVM says of any of them.
    """
    from concurrent.futures import ThreadPoolExecutor

    with _quick_switches(), ThreadPoolExecutor(1, "tileworkbench-llvm") as pool:
        worker = _Worker(pool)
        token = _current.set(worker)
        try:
            yield
        finally:
            _current.reset(token)
        worker.finish()


_switching, _before = 0, 0.0
_lock = fresh_lock()


@contextmanager
def _quick_switches() -> Iterator[None]:
    """Threads that wait for Python's lock get it soon."""
    global _switching, _before
    with _lock:
        if not _switching:
            _before = sys.getswitchinterval()
            sys.setswitchinterval(min(_before, _SWITCH_SECONDS))
        _switching += 1
    try:
        yield
    finally:
        with _lock:
            _switching -= 1
            if not _switching:
                sys.setswitchinterval(_before)
