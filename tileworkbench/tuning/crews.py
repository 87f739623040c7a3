"""Who measures: this machine, or the workers of an executor, grouped by what machine they are.

Scheduling is the executor's: here are only the calls of `concurrent.futures`. A
``dask.distributed.Client`` is one that has `get_executor` and `run`; nothing of dask is imported.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from dataclasses import field
from importlib.metadata import version
from typing import Any, Protocol

from tileworkbench.compiler.device.host import processor
from tileworkbench.compiler.diagnostics import ArgumentError, TileError, UnsupportedError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.tuning.measuring import (
    Outcome,
    Processes,
    Setting,
)
from tileworkbench.tuning.workers import Worker, describe_worker

_MOST_PROCESSES = 4  # each takes some 200 MB
_TRIES = 4  # of a task whose worker was lost

Task = tuple[Callable[..., Outcome], tuple[Any, ...]]


class ExecutorLostError(TileError):
    """An executor takes no more work: its workers are gone, or somebody shut it down."""


@dataclass(slots=True)
class Crew:
    """Workers that are one kind of machine: its key, its name, and the executor that reaches them.

    `limit` is how many tasks are given to it at once, None as many as there are. `held` are the
    processes of this machine that measure for it. `is_dask` says that tasks have names, which dask
    shows: "measure matmul" on its bars, and the configuration behind that.
    """

    machine: str
    name: str
    executor: Executor
    setting: Setting
    limit: int | None = None
    held: Processes | None = None
    is_dask: bool = False
    _lost: dict[int, int] = field(default_factory=dict)

    def stop(self) -> None:
        """End what it measures on this machine, and the threads that wait for it."""
        if self.held is not None:
            self.held.stop()
            self.executor.shutdown(wait=False, cancel_futures=True)

    def submit(self, task: Task, label: str) -> Future[Outcome]:
        function, arguments = task
        more = () if self.held is None else (self.held,)
        # What dask groups by ends in front of the first part with a sign in it.
        named = {"key": f"{label}-{uuid.uuid4()}"} if self.is_dask else {}
        try:
            return self.executor.submit(function, *arguments, *more, **named)
        except RuntimeError as error:  # broken, or shut down
            raise ExecutorLostError(
                f"the executor takes no more work: {error}",
                hint="what was measured is kept: call again with another executor",
            ) from None

    def outcome(self, number: int, future: Future[Outcome]) -> Outcome | None:
        """What a worker found of task `number`; None where another one shall try."""
        try:
            return future.result()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # workers return their failures, so this is none of theirs
            self._lost[number] = self._lost.get(number, 0) + 1
            if self._lost[number] < _TRIES:
                return None
            return Outcome(error=f"{type(error).__name__}: its worker was lost: {error}")


class Course(Protocol):
    """What a crew is to do."""

    @property
    def crew(self) -> Crew: ...
    def next_task(self) -> tuple[int, Task] | None:
        """A task with its number, None when there are no more."""

    def label(self, number: int) -> str:
        """What a person calls a task: what is done to what, "-", and the configuration."""

    def wants(self, number: int) -> bool:
        """Whether a task that may not have begun is still to be done."""


def run_courses(
    courses: Sequence[Course],
) -> Generator[tuple[int, int, Outcome], None, None]:
    """(which course, which task, its outcome), as they come.

    A course is asked for a task when it can be begun, and what it no longer wants is cancelled. A
    task whose worker is lost is given to another one. Raises `ExecutorLostError` where an executor
    takes no more; what is ready is told first.
    """
    pending: dict[Future[Outcome], tuple[int, int, Task]] = {}
    asked = set(range(len(courses)))
    try:
        while True:
            for at in tuple(asked):
                crew = courses[at].crew
                while crew.limit is None or crew.limit > sum(
                    each[0] == at for each in pending.values()
                ):
                    begun = courses[at].next_task()
                    if begun is None:
                        asked.discard(at)
                        break
                    number, task = begun
                    pending[crew.submit(task, courses[at].label(number))] = at, number, task
            if not pending:
                return
            lost = []
            for future in wait(tuple(pending), return_when=FIRST_COMPLETED).done:
                at, number, task = pending.pop(future)
                outcome = courses[at].crew.outcome(number, future)
                if outcome is None:
                    lost.append((at, number, task))
                else:
                    yield at, number, outcome
            for at, number, task in lost:
                label = courses[at].label(number)
                pending[courses[at].crew.submit(task, label)] = at, number, task
            for future, (at, number, _) in tuple(pending.items()):
                if not courses[at].wants(number) and future.cancel():
                    del pending[future]
    finally:
        for future in pending:
            future.cancel()


def label_of(verb: str, kernel: str, config: Mapping[str, Any]) -> str:
    """The label of a task, see `Course`."""
    values = ", ".join(f"{name}={value}" for name, value in config.items())
    return f"{verb} {kernel}-{values}"


class _Here(Executor):
    """Runs what is submitted at once, in the thread that submits."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


def crews_of(executor: Any, target: str, setting: Setting) -> list[Crew]:
    """The kinds of machines that measure on `target`.

    Raises `ArgumentError` for what is no executor, and `UnsupportedError` where its workers lack
    this package or have another version of it.
    """
    if executor is None:
        own = describe_worker(target, setting.threads)
        if not setting.isolated:
            return [Crew(own.machine, own.name, _Here(), setting, limit=1)]
        count = min(processor.core_count(), _MOST_PROCESSES)
        pool = ThreadPoolExecutor(count, thread_name_prefix="tileworkbench-tuning")
        return [Crew(own.machine, own.name, pool, setting, count, Processes())]
    setting = setting.elsewhere()
    if hasattr(executor, "get_executor") and hasattr(executor, "run"):
        return _of_cluster(executor, target, setting)
    if not isinstance(executor, Executor):
        raise ArgumentError(
            f"executor is a concurrent.futures.Executor, not '{type(executor).__name__}'",
            hint="or a dask.distributed.Client",
        )
    worker = _asked(lambda: executor.submit(describe_worker, target, setting.threads).result())
    return [Crew(worker.machine, worker.name, executor, setting)]


def _of_cluster(client: Any, target: str, setting: Setting) -> list[Crew]:
    """A crew for each kind of machine in a cluster of dask."""
    if getattr(client, "asynchronous", False):
        raise ArgumentError(
            "executor is an asynchronous client, which cannot be waited for",
            hint="make it with Client(..., asynchronous=False)",
        )
    workers: Mapping[str, Worker] = _asked(
        lambda: client.run(describe_worker, target, setting.threads)
    )
    if not workers:
        raise ArgumentError("executor is a cluster without workers")
    kinds: dict[str, tuple[Worker, set[str]]] = {}
    for address, worker in workers.items():
        _check_version(worker)
        kinds.setdefault(worker.machine, (worker, set()))[1].add(_host(address))
    crews = []
    for worker, hosts in kinds.values():
        # By host and not by address: a worker that is started again has another address.
        chosen = {"workers": sorted(hosts)} if len(kinds) > 1 else {}
        executor = client.get_executor(pure=False, **chosen)
        crews.append(Crew(worker.machine, worker.name, executor, setting, is_dask=True))
    return crews


def _host(address: str) -> str:
    """The host of an address such as ``tcp://10.0.0.1:8786``."""
    return address.rpartition("://")[2].rpartition(":")[0] or address


def _asked(ask: Callable[[], Any]) -> Any:
    """What workers say of themselves."""
    try:
        said = ask()
    except Exception as error:
        needed = f"they need tileworkbench {version('tileworkbench')} as it is installed here"
        is_over = isinstance(error, RuntimeError)  # also a BrokenExecutor
        raise UnsupportedError(
            f"the workers of the executor cannot measure: {type(error).__name__}: {error}",
            hint=f"make another executor, whose workers start; {needed}" if is_over else needed,
        ) from None
    if isinstance(said, Worker):
        _check_version(said)
    return said


def _check_version(worker: Worker) -> None:
    here = version("tileworkbench")
    if worker.version != here:
        raise UnsupportedError(
            f"the workers of the executor have tileworkbench {worker.version}, and this process "
            f"has {here}",
            hint="install the same version everywhere",
        )
