"""Measuring one configuration: as plain data, so that another process or machine can do it.

`measure_configuration` and `predict_configuration` are what workers run. Each has a process of its
own work for it (`isolation`), which a configuration may end or hang without harm; what such a
process costs is said there. With `isolated=False` they do the same in their own process.
"""

from __future__ import annotations

import atexit
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from tileworkbench.api import Recipe
from tileworkbench.bench.timing import do_bench, measure
from tileworkbench.compiler.device.host import processor
from tileworkbench.compiler.device.host.llvm import native_target
from tileworkbench.compiler.device.host.threads import get_num_threads
from tileworkbench.compiler.diagnostics import (
    ArgumentError,
    CheckError,
    DeviceUnavailableError,
    RunError,
    TileError,
)
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.runtime.forks import fresh_lock
from tileworkbench.isolation.process import ChildError, Process, ProcessEndedError
from tileworkbench.tuning.closeness import assert_close, paired, results_of
from tileworkbench.tuning.facts import Facts, facts_of
from tileworkbench.tuning.supply import TensorSupplyType, supply_tensors
from tileworkbench.tuning.trials import Fault
from tileworkbench.tuning.turns import compiling, measuring
from tileworkbench.tuning.workers import is_cpu, launching_with, machine_of
from tileworkbench.workbench.kernel import Kernel

# Ends of a process that are the kernel's own doing; others, such as SIGKILL when memory runs out,
# may have another reason.
_OWN = ("SIGSEGV", "SIGBUS", "SIGABRT", "SIGFPE", "SIGILL", "SIGTRAP")


@dataclass(frozen=True, slots=True)
class Expected:
    """What a kernel's results should be, and how far they may be off: see `assert_close`."""

    values: tuple[Any, ...]
    rtol: float
    atol: float
    max_mismatched_ratio: float


@dataclass(frozen=True, slots=True)
class Setting:
    """Where and how long: `threads` of a launch (None: all cores of the worker's machine; never
    more), seconds until a configuration is given up, and whether a process of its own measures.
    """

    threads: int | None = None
    timeout: float = 100
    isolated: bool = True

    @staticmethod
    def here(timeout: float, isolated: bool) -> Setting:
        """As launches in this process are."""
        return Setting(get_num_threads(), timeout, isolated)

    def elsewhere(self) -> Setting:
        """As launches in this process are, on a machine that may have more cores."""
        all_cores = self.threads == processor.core_count()
        return replace(self, threads=None if all_cores else self.threads)


@dataclass(frozen=True, slots=True)
class Job:
    """One configuration to measure.

    Attributes:
        recipe: the kernel.
        inputs: the tensors of a call, or what to make up.
        warmup, rep: milliseconds, see `do_bench`.
        rounds: time so many rounds instead, as `Kernel.bench` does; 0 for `do_bench`.
        expected: what its results should be; None compares nothing.
        returns: whether the results are wanted.
        is_described: whether `Facts` are wanted.
    """

    recipe: Recipe
    inputs: tuple[Any, ...] | TensorSupplyType
    setting: Setting
    warmup: float = 25
    rep: float = 100
    rounds: int = 0
    expected: Expected | None = None
    returns: bool = False
    is_described: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a configuration: milliseconds of a call, or what the model predicts, or why
    there are none, and whose fault that is; `machine` is where.
    """

    machine: str = ""
    latency: float = math.nan
    predicted: float = math.nan
    error: str = ""
    fault: Fault = Fault.OTHER
    results: tuple[Any, ...] = ()
    facts: Facts | None = None


# What runs in the process that measures


class Measurement:
    """One configuration in the process that measures it, step by step. A step that fails gives an
    outcome with the reason.
    """

    def __init__(self, recipe: Recipe, setting: Setting) -> None:
        self._recipe, self._setting = recipe, setting
        self._machine = ""
        self._kernel: Kernel
        self._run: Callable[[], Any]
        self._results: tuple[Any, ...] = ()

    def compile(self) -> Outcome:
        """Compile the kernel."""
        return self._step(self._compile)

    def check(self, job: Job) -> Outcome:
        """Call it once, and compare what it gives."""
        return self._step(lambda: self._check(job))

    def measure(self, warmup: float, rep: float, rounds: int) -> Outcome:
        """Time its calls."""

        def run() -> Outcome:
            if rounds:
                return Outcome(latency=measure({"": self._run}, rounds)[""].median)
            return Outcome(latency=float(do_bench(self._run, warmup, rep)))

        return replace(self._step(run), results=self._results)

    def predict(self) -> Outcome:
        """Ask the time model, which measures what it still has to know of a CPU."""
        return self._step(self._predict)

    def describe(self) -> Outcome:
        """Say what a sweep says of the kernel."""
        return self._step(lambda: Outcome(facts=facts_of(self._kernel)))

    def _step(self, step: Callable[[], Outcome]) -> Outcome:
        try:
            with launching_with(self._setting.threads):
                self._machine = self._machine or machine_of(self._recipe.target)
                return replace(step(), machine=self._machine)
        except KeyboardInterrupt:
            raise
        except Exception as error:
            return Outcome(self._machine, error=said(error), fault=_fault_of(error))

    def _compile(self) -> Outcome:
        self._kernel = self._recipe.compile()
        return Outcome()

    def _check(self, job: Job) -> Outcome:
        kernel, inputs, expected = self._kernel, job.inputs, job.expected
        if isinstance(inputs, TensorSupplyType):
            inputs = tuple(supply_tensors(kernel.program, inputs))
        if expected is not None or job.returns:
            results = results_of(kernel, inputs)
            self._results = tuple(results) if job.returns else ()
            if expected is not None:
                for got, want in paired(kernel.name, results, expected.values):
                    limits = (expected.rtol, expected.atol, expected.max_mismatched_ratio)
                    assert_close(got, want, *limits)
        self._run = lambda: kernel(*inputs)
        self._run()
        return Outcome()

    def _predict(self) -> Outcome:
        causes = self._kernel.causes
        return Outcome(predicted=math.nan if causes is None else causes.total_us / 1e3)


def said(error: Exception) -> str:
    """An error as the text of a row."""
    message = error.message if isinstance(error, TileError) else str(error)
    return f"{type(error).__name__}: {message}"


def _fault_of(error: Exception) -> Fault:
    """What has failed. Arguments may be others, a device or memory there, another time."""
    if isinstance(error, CheckError):
        return Fault.CHECK
    may_pass = isinstance(error, RunError | ArgumentError | DeviceUnavailableError)
    return Fault.KERNEL if isinstance(error, TileError) and not may_pass else Fault.OTHER


_current: list[Measurement] = []


def _get_ready(uses_torch: bool) -> None:
    """Import what takes long; torch, where it is in use, brings its team of threads."""
    if uses_torch:
        import torch  # noqa: F401
    native_target()


def _begin(recipe: Recipe, setting: Setting) -> Outcome:
    _current[:] = [Measurement(recipe, setting)]
    return _current[0].compile()


def _go_on(step: str, *arguments: Any) -> Outcome:
    outcome: Outcome = getattr(_current[0], step)(*arguments)
    return outcome


# What runs on a worker


def measure_configuration(job: Job, held: Processes | None = None) -> Outcome:
    """Compile, check and time one configuration; whatever it does is told in the outcome.

    Compiling and checking wait while anything on this machine is measured, and measuring until
    nothing else is done: see `turns`.
    """
    with (held or _own).steps(job.recipe, job.setting) as run:
        with compiling():
            outcome = run("compile")
            outcome = outcome if outcome.error else run("check", job)
        if outcome.error:
            return outcome
        with measuring():
            outcome = run("measure", job.warmup, job.rep, job.rounds)
            described = run("describe") if job.is_described else outcome
        return replace(outcome, facts=described.facts)


def describe_configuration(
    recipe: Recipe, setting: Setting, held: Processes | None = None
) -> Outcome:
    """Compile one configuration and say what a sweep says of it."""
    return _looked_at("describe", recipe, setting, held)


def predict_configuration(
    recipe: Recipe, setting: Setting, held: Processes | None = None
) -> Outcome:
    """Compile one configuration and predict its time. Only a compilation can fail: what the model
    lacks, or takes long to measure, is no fault of the configuration.
    """
    return _looked_at("predict", recipe, setting, held)


def _looked_at(step: str, recipe: Recipe, setting: Setting, held: Processes | None) -> Outcome:
    with (held or _own).steps(recipe, setting) as run:
        with compiling():
            outcome = run("compile")
        if outcome.error:
            return outcome
        is_measured = is_cpu(recipe.target)
        with measuring() if is_measured else compiling():
            outcome = run(step)
        if step == "predict":
            return Outcome(outcome.machine, predicted=outcome.predicted)
        return outcome


Run = Callable[..., Outcome]


_idle: dict[int, list[Process]] = {}  # by the process that started them
_idle_lock = fresh_lock()


@atexit.register
def _close_idle() -> None:
    for process in _idle.pop(os.getpid(), []):
        process.close()


class Processes:
    """The processes that measure for somebody. They are kept for the next configuration, of
    whomever, and end by themselves when there is none for a minute.
    """

    def __init__(self) -> None:
        self._busy: set[Process] = set()

    @contextmanager
    def steps(self, recipe: Recipe, setting: Setting) -> Iterator[Run]:
        """A function that runs a step of one `Measurement` with a time limit on them all."""
        left = [setting.timeout]
        if not setting.isolated:
            measurement = Measurement(recipe, setting)
            yield _limited(lambda step, *given: getattr(measurement, step)(*given), left, setting)
            return
        with self._borrowed() as process:

            def run(step: str, *given: Any) -> Outcome:
                if step == "compile":
                    return _apart(process, left, setting, _begin, (recipe, setting))
                return _apart(process, left, setting, _go_on, (step, *given))

            yield run

    def stop(self) -> None:
        """End what is measured now."""
        for process in tuple(self._busy):
            process.close()

    @contextmanager
    def _borrowed(self) -> Iterator[Process]:
        with _idle_lock:
            idle = _idle.setdefault(os.getpid(), [])
            process = idle.pop() if idle else Process(_get_ready, "torch" in sys.modules)
            self._busy.add(process)
        try:
            yield process
        finally:
            with _idle_lock:
                self._busy.discard(process)
                if not process.is_closed:
                    idle.append(process)


_own = Processes()


def _apart(
    process: Process,
    left: list[float],
    setting: Setting,
    function: Callable[..., Outcome],
    arguments: tuple[Any, ...],
) -> Outcome:
    """A step in another process, or how that ended. `left` are the seconds that it may take."""
    try:
        process.start()
        began = time.monotonic()
        try:
            outcome: Outcome = process.call(function, *arguments, seconds=left[0])
            return outcome
        finally:
            left[0] -= time.monotonic() - began
    except ProcessEndedError as error:
        if error.timed_out:
            return _too_long(setting)
        fault = Fault.KERNEL if error.cause.startswith(_OWN) else Fault.OTHER
        return Outcome(error=said(error), fault=fault)
    except ChildError as error:
        return Outcome(error=error.message)
    except TileError as error:
        return Outcome(error=said(error))


def _limited(run: Run, left: list[float], setting: Setting) -> Run:
    """`run`, where no step begins after the time limit."""

    def limited(step: str, *given: Any) -> Outcome:
        if left[0] <= 0:
            return _too_long(setting)
        began = time.monotonic()
        try:
            return run(step, *given)
        finally:
            left[0] -= time.monotonic() - began

    return limited


def _too_long(setting: Setting) -> Outcome:
    error = f"TileError: took longer than {setting.timeout:g} s"
    return Outcome(error=error, fault=Fault.LIMIT)
