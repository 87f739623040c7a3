"""How many threads run a grid, and which: the OpenMP team of torch, a pool of our own, or Python
threads.

An OpenMP runtime that is already in the process is used before anything else: its workers spin for
a while after each region, and a second pool would fight them for the cores. Its threads do not
survive a fork, so a child process uses the pool. The pool needs POSIX threads; elsewhere Python
threads do its work.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from tileworkbench.compiler.device.host import processor
from tileworkbench.compiler.device.host.dispatch import dispatch
from tileworkbench.compiler.device.host.dispatch_ir import CODE_WORD, POOL_BYTES
from tileworkbench.compiler.diagnostics import ArgumentError
from tileworkbench.compiler.runtime.forks import fresh_lock

_MAPS = Path("/proc/self/maps")
# About 50 us of pauses: longer than the gap between two launches of a loop, too short to be noticed
# by others.
_POOL_SPINS = 1500


class Team(Protocol):
    """Threads that execute the blocks of a launch record together."""

    def run(self, record: int, threads: int) -> int:
        """Execute the record at address `record` with at most `threads` threads, the caller's
        included: as many as it has queues.

        Returns when no thread is inside it any more: the first nonzero return code, or 0.
        """
        ...


class OpenMPTeam:
    """The workers of an OpenMP runtime, reached through the entry point that compiled regions
    use; `functions` are the addresses of GOMP_parallel and omp_get_thread_num."""

    def __init__(self, functions: tuple[int, int]) -> None:
        run = dispatch().run_openmp
        if run is None:
            raise OSError("this system has no POSIX threads")
        self._functions = (ctypes.c_int64 * 2)(*functions)
        self._address = ctypes.addressof(self._functions)
        self._run = run
        self.native = (dispatch().runners[0], self._address)  # for a sequence

    def run(self, record: int, threads: int) -> int:
        return self._run(record, self._address)


class PoolTeam:
    """`threads` - 1 native threads that wait for work, and the caller. Serves one launch at a time.

    A launch that finds the pool busy with another thread's is executed by its caller alone.
    """

    # The threads of a closed pool may still be on their way out: their memory stays for good.
    _memory: list[Any] = []

    def __init__(self, threads: int) -> None:
        functions = dispatch().pool
        if functions is None:
            raise OSError("this system has no POSIX threads")
        buffer = ctypes.create_string_buffer(POOL_BYTES + 64)
        self._memory.append(buffer)
        self._address = -(-ctypes.addressof(buffer) // 64) * 64
        self._functions = functions
        self.native = (dispatch().runners[1], self._address)  # for a sequence
        self.threads = threads
        # On one core, spinning would only keep the thread that has the work from running.
        functions.init(self._address, _POOL_SPINS if processor.core_count() > 1 else 0)
        _start_native_threads(threads - 1, functions.thread, self._address)

    def run(self, record: int, threads: int) -> int:
        return self._functions.run(record, self._address)

    def close(self) -> None:
        """End the threads; a launch that is running finishes first."""
        self._functions.close(self._address)


class PythonTeam:
    """Python threads around the native worker function. Works everywhere, costs most per launch."""

    def __init__(self, threads: int) -> None:
        from concurrent.futures import ThreadPoolExecutor

        self.threads = threads
        self._reset, self._work = dispatch().reset, dispatch().work
        self._flag = ctypes.c_int32.from_address(dispatch().interrupt_flag)
        self._executor = ThreadPoolExecutor(max(1, threads - 1), "tileworkbench")

    def run(self, record: int, threads: int) -> int:
        self._reset(record)
        job = _Job()
        try:
            for number in range(1, threads):
                self._executor.submit(self._help, job, record, number)
            self._work(record, 0)
        finally:
            self._finish(job)
        return ctypes.c_int32.from_address(record + 8 * CODE_WORD).value

    def close(self) -> None:
        """End the threads when they have nothing to do."""
        self._executor.shutdown(wait=False)

    def _help(self, job: _Job, record: int, number: int) -> None:
        if job.enter():
            try:
                self._work(record, number)
            finally:
                job.leave()

    def _finish(self, job: _Job) -> None:
        # Whoever is inside must leave before the record can be reused. Ctrl-C while waiting tells
        # them to hurry.
        try:
            job.close()
        except KeyboardInterrupt:
            self._flag.value = 1
            job.close()
            raise


class _Job:
    """One launch of a `PythonTeam`: helpers may enter it until it is closed."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._is_open = True
        self._inside = 0

    def enter(self) -> bool:
        with self._changed:
            self._inside += self._is_open
            return self._is_open

    def leave(self) -> None:
        with self._changed:
            self._inside -= 1
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._is_open = False
            self._changed.wait_for(lambda: self._inside == 0)


_lock = fresh_lock()
_requested: int | None = None
_team: OpenMPTeam | PoolTeam | PythonTeam | None = None
_team_saw_torch = False
_is_forked = False


def get_num_threads() -> int:
    """Threads that a launch may use: what `set_num_threads` said, else torch's number, else the
    usable cores."""
    if _requested is not None:
        return _requested
    torch = _loaded_torch()
    return int(torch.get_num_threads()) if torch is not None else processor.core_count()


def set_num_threads(threads: int | None) -> None:
    """Use `threads` threads from the next launch on; None goes back to the default of
    `get_num_threads`."""
    global _requested
    if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int)):
        raise ArgumentError(f"the number of threads must be an integer, not '{threads!r}'")
    if threads is not None and threads < 1:
        raise ArgumentError(f"the number of threads must be at least 1, not {threads}")
    _requested = threads


def team_for(threads: int) -> Team:
    """The team that executes launches of `threads` threads."""
    team = _team
    if team is not None and _still_fits(team, threads):
        return team
    with _lock:
        return _replace_team(threads)


def _still_fits(team: OpenMPTeam | PoolTeam | PythonTeam, threads: int) -> bool:
    if isinstance(team, OpenMPTeam):
        return True
    may_find_openmp = not (_is_forked or _team_saw_torch) and _loaded_torch() is not None
    return team.threads == threads and not may_find_openmp


def _replace_team(threads: int) -> Team:
    global _team, _team_saw_torch
    old = _team
    if old is not None and _still_fits(old, threads):
        return old
    _team_saw_torch = _loaded_torch() is not None
    native = dispatch().pool is not None
    openmp = find_openmp() if native and not _is_forked else None
    if openmp is not None:
        _team = OpenMPTeam(openmp)
    elif native:
        _team = PoolTeam(threads)
    else:
        _team = PythonTeam(threads)
    if isinstance(old, PoolTeam | PythonTeam):
        old.close()
    return _team


def find_openmp() -> tuple[int, int] | None:
    """Addresses of `GOMP_parallel` and `omp_get_thread_num` in an OpenMP runtime that this process
    has mapped, torch's if there are several."""
    try:
        lines = _MAPS.read_text().splitlines()
    except OSError:
        return None
    fields = [line.split(maxsplit=5) for line in lines]
    paths = {field[5] for field in fields if len(field) == 6}
    names = ("libgomp", "libiomp5", "libomp")
    runtimes = [path for path in paths if path.rsplit("/", 1)[-1].startswith(names)]
    for path in sorted(runtimes, key=lambda path: ("torch" not in path, path)):
        try:
            library = ctypes.CDLL(path)
            functions = library.GOMP_parallel, library.omp_get_thread_num
        except (OSError, AttributeError):
            continue
        parallel, number = (ctypes.cast(each, ctypes.c_void_p).value for each in functions)
        if parallel and number:
            return parallel, number
    return None


def _loaded_torch() -> Any:
    """torch if the process has imported it completely, else None."""
    torch = sys.modules.get("torch")
    return torch if hasattr(torch, "get_num_threads") else None


def _start_native_threads(count: int, function: int, argument: int) -> None:
    """Start detached native threads that take no asynchronous signal: those are for Python's main
    thread.

    Fewer start where the system refuses more; a launch never waits for a thread that is not there.
    """
    library = ctypes.CDLL(None)
    create: Callable[..., int] = library.pthread_create
    faults = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT}
    old = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - faults)
    try:
        for _ in range(count):
            thread = ctypes.c_void_p()
            entry, data = ctypes.c_void_p(function), ctypes.c_void_p(argument)
            if create(ctypes.byref(thread), None, entry, data) != 0:
                break
            library.pthread_detach(thread)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, old)


def _forget_threads() -> None:
    """In a forked child: the parent's threads are not there, and neither are those of its OpenMP
    runtime."""
    global _team, _is_forked
    _team = None
    _is_forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)
