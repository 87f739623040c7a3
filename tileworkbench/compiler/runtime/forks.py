"""Forks beside threads that compile.

A forked child has the memory of its parent and one of its threads. What another thread was doing
stays half done there for ever: a lock that it held, an import, a collector of garbage that was
switched off. Therefore a fork waits until other threads have finished what they compile
(`not_while_forking`) and are outside LLVM, and locks made by `fresh_lock` are free in the child.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

_changed = threading.Condition()
_inside: Counter[int] = Counter()  # by thread
_forks = 0  # threads that are about to fork
_locks: WeakSet[Any] = WeakSet()


def fresh_lock() -> Any:
    """A `threading.Lock` that nobody holds in a forked child."""
    made = threading.Lock()
    _locks.add(made)
    return made


@contextmanager
def not_while_forking() -> Iterator[None]:
    """No other thread forks inside."""
    thread = threading.get_ident()
    with _changed:
        _changed.wait_for(lambda: not _forks or _inside[thread])
        _inside[thread] += 1
    try:
        yield
    finally:
        with _changed:
            _inside[thread] -= 1
            if not _inside[thread]:
                del _inside[thread]
            _changed.notify_all()


def _llvm_lock() -> Any:
    """llvmlite's own lock, which is held inside LLVM; None before it was loaded."""
    module = sys.modules.get("llvmlite.binding.ffi")
    return getattr(getattr(module, "lib", None), "_lock", None)


_held: list[Any] = []  # by a fork that is under way


def _before() -> None:
    global _forks
    thread = threading.get_ident()
    with _changed:
        _forks += 1
        _changed.wait_for(lambda: all(other == thread for other in _inside))
    lock = _llvm_lock()
    if lock is not None:
        lock.__enter__()
        _held.append(lock)


def _release() -> None:
    if _held:
        _held.pop().__exit__(None, None, None)


def _after_in_parent() -> None:
    global _forks
    _release()
    with _changed:
        _forks -= 1
        _changed.notify_all()


def _after_in_child() -> None:
    global _changed, _forks
    _release()
    _changed, _forks = threading.Condition(), 0
    for lock in _locks:
        lock._at_fork_reinit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
    )
