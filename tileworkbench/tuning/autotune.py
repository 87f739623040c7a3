"""`tw.autotune`: measure the configurations of a kernel and keep the fastest.

Configurations are tried one after the other; with `top`, those alone that the time model ranks
first. What has been measured stays when Ctrl-C ends a search, and in a file (`store`) for later
processes.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field
from pathlib import Path
from typing import Any

from tileworkbench.api import Jit
from tileworkbench.bench.timing import refuse_simulated
from tileworkbench.compiler.diagnostics import (
    ArgumentError,
    Interrupted,
    TileTypeError,
)
from tileworkbench.compiler.driver import resolve_target
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.tuning.courses import Course, Known, best_of, nothing_measured, run_search
from tileworkbench.tuning.crews import crews_of
from tileworkbench.tuning.dispatch import DispatchedKernel
from tileworkbench.tuning.dynamic import tune_sizes
from tileworkbench.tuning.jobs import Jobs, Made, form, forms_of
from tileworkbench.tuning.measuring import Setting
from tileworkbench.tuning.progress import Progress
from tileworkbench.tuning.store import store_of
from tileworkbench.tuning.supply import TensorSupplyType
from tileworkbench.tuning.sweep import Sweep, SweepPoint
from tileworkbench.tuning.trials import Config, Settings, Trial, listed_configs
from tileworkbench.tuning.workers import machine_of
from tileworkbench.workbench.kernel import Kernel

Configs = Sequence[Config] | Callable[..., Sequence[Config]]

_inputs: ContextVar[tuple[Any, ...] | None] = ContextVar("autotune_inputs", default=None)


@contextmanager
def set_autotune_inputs(*tensors: Any) -> Iterator[None]:
    """Within this context lazy kernels are tuned on these tensors (several, or one sequence)."""
    single = len(tensors) == 1 and isinstance(tensors[0], list | tuple)
    token = _inputs.set(tuple(tensors[0]) if single else tensors)
    try:
        yield
    finally:
        _inputs.reset(token)


@dataclass(slots=True)
class _Search:
    """One set of arguments: what is to be tried, and what has been, by the key of the machine."""

    configs: list[Config]
    known: dict[str, Known] = field(default_factory=dict)
    failure: Exception | None = None
    ref_latency: float | None = None
    is_complete: bool = False

    def trials(self) -> tuple[Trial, ...]:
        return tuple(trial for known in self.known.values() for trial in known.listed())


class Autotuned:
    """A `tw.jit` function whose tunable arguments are chosen by measuring; see `autotune`.

    `trials` are those of the last call that tuned, also where Ctrl-C ended it, and `results` is
    their table. `kernel` is the kernel of the last call.
    """

    def __init__(self, jit: Jit, configs: Configs, settings: Settings) -> None:
        functools.update_wrapper(self, jit.fn)
        self.jit, self.configs, self.settings = jit, configs, settings
        self.trials: tuple[Trial, ...] = ()
        self._planned = 0
        self._signature = inspect.signature(jit.fn)
        self._searches: dict[Any, _Search] = {}
        self._by_class: dict[Any, DispatchedKernel] = {}
        self._ready: dict[Any, Kernel] = {}  # by the forms of a call's tensors
        self._called: Kernel | None = None  # where sizes choose it

    @property
    def kernel(self) -> Kernel | None:
        """The kernel of the last call, None before."""
        return self._called or self.jit.kernel

    @property
    def results(self) -> Sweep:
        """The trials of the last call that tuned, as a table with a heat map, plain data, a
        DataFrame, and points for `tw.roofline`: see `Sweep`.
        """
        axes: dict[str, dict[Any, None]] = {}
        for trial in self.trials:
            for name, value in trial.config.items():
                axes.setdefault(name, {})[value] = None
        points = tuple(
            SweepPoint(
                {name: trial.config.get(name) for name in axes},
                time_us=1e3 * trial.latency,
                predicted_us=1e3 * trial.predicted,
                error=trial.error,
                machine=trial.machine,
                kernel=trial.kernel,
                recipe=trial.recipe,
            )
            for trial in self.trials
        )
        target = self.kernel.target if self.kernel is not None else self.jit.target or "auto"
        interrupted = len(points) < self._planned
        values = {name: tuple(taken) for name, taken in axes.items()}
        name = self.jit.fn.__name__
        left_out = sum(not (each.error or each.is_measured) for each in self.trials)
        return Sweep(name, target, values, points, interrupted, self._planned, left_out)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function in its best configuration, found by the first such call.

        Eager functions run and return their outputs, lazy ones return the `Kernel`. Nothing is
        tuned when the call gives every tunable argument that is not in `do_not_specialize`.
        """
        if self.settings.sizes is not None:
            return self._call_dispatched(args, kwargs)
        args, kwargs, search = self._tuned(args, kwargs)
        result = self.jit(*args, **kwargs)
        self._label(search)
        return result

    def compile(self, *args: Any, **kwargs: Any) -> Any:
        """The kernel in its best configuration for these arguments, those of `Jit.compile`, without
        a call of it.

        An eager function is measured on copies of the tensors where all are given, else on
        made-up ones.
        """
        if self.settings.sizes is not None:
            return self._dispatched(args, kwargs)
        args, kwargs, search = self._tuned(args, kwargs)
        kernel = self.jit.compile(*args, **kwargs)
        self._label(search)
        return kernel

    def _tuned(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any], _Search | None]:
        """The arguments in the best configuration, and the search that found it, if any."""
        configs = self._listed(args, kwargs)
        given = self._given(args, kwargs)
        free = [name for name in given if name in self.settings.do_not_specialize]
        if free:  # what a configuration may replace is passed by name
            args, kwargs = (), dict(given)
            given = {name: value for name, value in given.items() if name not in free}
        if all(given.keys() >= config.keys() for config in configs):
            return args, kwargs, None
        search = self._search(given, configs)
        self._measure_all(search, args, kwargs)
        return args, {**kwargs, **self._best(search).config}, search

    def _call_dispatched(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call of a kernel of symbolic sizes: of an eager one, with what it is called with."""
        form = None if kwargs else self.jit.form(*args)
        ready = None if form is None else self._ready.get(form)
        if ready is not None:
            self._called = ready
            return ready(*args)
        made = self._dispatched(args, kwargs)
        if not self.jit.is_eager:
            return made
        run_time = self.jit.run_time(*args, **{**kwargs, **made.buckets[0].config})
        self._called = made.kernel_of(run_time)
        if form is not None and len(run_time) == len(args):
            self._ready[form] = self._called
        return self._called(*run_time)

    def _dispatched(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> DispatchedKernel:
        """The kernel for all sizes, tuned by the first call for each set of other arguments."""
        configs = self._listed(args, kwargs)
        key = self.jit.shape_class(*args, **{**kwargs, **configs[0]})
        known = self._by_class.get(key)
        if known is not None:
            return known
        trials: list[Trial] = []
        progress = Progress()
        try:
            made = tune_sizes(self.jit, configs, self.settings, args, kwargs, trials, progress.show)
        finally:
            progress.end()
            self.trials, self._planned = tuple(trials), len(trials)
        self._by_class[key] = made
        return made

    def _label(self, search: _Search | None) -> None:
        """Write what was found onto the kernel."""
        kernel = self.jit.kernel
        if kernel is not None and search is not None:
            best = self._best(search)
            kernel.config, kernel.latency = dict(best.config), best.latency
            kernel.ref_latency = search.ref_latency

    def _given(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        try:
            return self._signature.bind_partial(*args, **kwargs).arguments
        except TypeError as error:
            raise ArgumentError(f"'{self.jit.fn.__name__}': {error}") from None

    def _listed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Config]:
        made = self.configs(*args, **kwargs) if callable(self.configs) else self.configs
        configs = listed_configs(made)
        if not configs:
            raise ArgumentError(f"'{self.jit.fn.__name__}' has no configuration to tune")
        for config in configs:
            unknown = [name for name in config if name not in self._signature.parameters]
            if unknown:
                raise ArgumentError(f"'{self.jit.fn.__name__}' has no argument '{unknown[0]}'")
        return configs

    def _search(self, given: Mapping[str, Any], configs: list[Config]) -> _Search:
        key = tuple((name, form(value)) for name, value in given.items())
        try:
            known = self._searches.get(key)
        except TypeError as error:
            name = self.jit.fn.__name__
            raise TileTypeError(f"'{name}': an argument has no hash: {error}") from None
        if known is None:
            chosen: list[Config] = []
            for config in configs:  # what the call gives is not up to a configuration
                rest = {name: value for name, value in config.items() if name not in given}
                if rest not in chosen:
                    chosen.append(rest)
            known = self._searches[key] = _Search(chosen)
        return known

    def _measure_all(self, search: _Search, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        name, settings = self.jit.fn.__name__, self.settings
        target = str(resolve_target(self.jit.target or "auto"))
        refuse_simulated(name, target)
        if search.is_complete:
            self.trials = search.trials()
            return

        def make(config: Config) -> Made:
            return self.jit.recipe(*args, **{**kwargs, **config})

        jobs = Jobs(search.configs, make, _inputs.get(), settings)
        setting = Setting.here(settings.timeout, settings.isolate)
        crews = crews_of(settings.executor, target, setting)
        forms = forms_of(args, kwargs)
        courses = []
        for crew in crews:
            if not jobs.is_steady and settings.is_checked and crew.limit is not None:
                crew.limit = 1  # the reference runs in between
            known = search.known.setdefault(crew.machine, Known(crew.name))
            courses.append(Course(crew, jobs, known, target, name, forms))
        self._planned = len(search.configs) * len(crews)
        progress = Progress()
        try:
            run_search(courses, settings, progress.show)
            search.is_complete = True
        except KeyboardInterrupt:
            if best_of([*search.known.values()]) is None:
                raise
            raise self._interrupted(search) from None
        finally:
            progress.end()
            for course in courses:
                course.crew.stop()
                search.failure = search.failure or course.failure
                search.ref_latency = search.ref_latency or course.ref_latency
            self._finish(search)

    def _finish(self, search: _Search) -> None:
        """What is found on this machine comes first."""
        here = machine_of(str(resolve_target(self.jit.target or "auto")))
        search.known = dict(sorted(search.known.items(), key=lambda each: each[0] != here))
        self.trials = search.trials()

    def _interrupted(self, search: _Search) -> Interrupted:
        """The error of a search that Ctrl-C ended, with what it has found so far."""
        name, best = self.jit.fn.__name__, self._best(search)
        return Interrupted(
            f"interrupted after {len(search.trials())} of {self._planned} configurations of "
            f"'{name}'; the fastest so far is {dict(best.config)}, {best.latency:.4g} ms",
            hint=f"'{name}.results' has what was measured; the same call goes on from there",
        )

    def _best(self, search: _Search) -> Trial:
        best = best_of([*search.known.values()])
        if best is None:
            knowns = [*search.known.values()]
            raise nothing_measured(self.jit.fn.__name__, knowns) from search.failure
        return best

    def __repr__(self) -> str:
        return f"<tw.autotune of {self.jit!r}>"


def autotune(
    configs: Configs,
    warmup: float = 25,
    rep: float = 100,
    timeout: float = 100,
    supply_type: TensorSupplyType = TensorSupplyType.Auto,
    ref_prog: Callable[..., Any] | None = None,
    supply_prog: Callable[..., Sequence[Any]] | None = None,
    rtol: float = 1e-2,
    atol: float = 1e-2,
    max_mismatched_ratio: float = 0.01,
    skip_check: bool = False,
    manual_check_prog: Callable[[list[Any], list[Any]], Any] | None = None,
    cache_input_tensors: bool = False,
    do_not_specialize: Sequence[str] | None = None,
    early_stop: bool | None = None,
    top: int | None = None,
    store: bool | str | Path = True,
    isolate: bool = True,
    executor: Any = None,
    sizes: Mapping[str, Sequence[int]] | None = None,
    retry: bool = False,
) -> Callable[[Any], Autotuned]:
    """Choose the fastest of `configs` when a `tw.jit` function is called; goes above `@tw.jit`.

    Args:
        configs: keyword arguments to try, as dictionaries, or a function that makes them from the
            call's arguments.
        warmup, rep: milliseconds of calls before and while a configuration is timed.
        timeout: seconds after which a configuration is given up: its process is stopped. Without
            `isolate` it is looked at between compilation, check and timing.
        supply_type, supply_prog: what a lazy kernel is measured on: made-up tensors, or a function
            that makes them from the list of parameters; see also `set_autotune_inputs`. An eager
            function is measured on copies of its arguments.
        ref_prog: a reference that every configuration must agree with, within `rtol`, `atol` and
            `max_mismatched_ratio`, or as `manual_check_prog(outputs, expected)` decides by raising;
            `skip_check` leaves that out. Its time becomes the kernel's `ref_latency`.
        cache_input_tensors: use the same tensors for all configurations.
        do_not_specialize: names of arguments that what is found does not depend on: calls that
            differ in nothing else share one search, and configurations replace what a call gives.
        early_stop: measure no more when the model says that nothing can win. Configurations are
            measured in the order of their predicted times, and the search ends where ``predicted /
            (1 + 2 e)`` of the next one is above the best time measured. `e` is the model's median
            error on what this search has measured, three configurations at least: a prediction
            that is off by at most twice that rules the rest out. None: with `top`, which has the
            predictions; and of 12 configurations or more, as long as the model is at most 50 % off
            and its order correlates with the measured one (Spearman's 0.8).
        top: measure only this many configurations: all are compiled, and those come first whose
            time the model predicts to be the shortest (`Kernel.causes`; on a GPU the model is
            simulated only). None, or shapes that it knows nothing of: all are measured.
        store: keep what is measured in a SQLite file and take what is there already: True for the
            one in the folder of the compilation cache, or a path. A result holds for the text of
            the program, target, machine, forms of the tensors and version of this package; results
            on what `supply_prog` makes are not kept.
        isolate: compile and measure in processes of their own, which are kept for a minute for the
            next search; the first one takes 1 to 3 s to start. A configuration that crashes, hangs
            or takes all memory then ends its process and no more. Up to four of them compile at
            once, never while one measures. False does all of it in this process.
        executor: a `concurrent.futures.Executor` or a `dask.distributed.Client` whose workers
            compile and measure instead of this machine. Each machine finds its own results: workers
            of a dask cluster are told apart by processor (or GPU) and threads, those of an executor
            are taken to be alike. Two workers of one machine never disturb each other's
            measurements. A task whose worker is lost is given to another one, three times at most.
            Workers need this package in the same version, else `UnsupportedError`.
        sizes: for a kernel with `T.dynamic` extents, samples of each by name, such as ``{"M": [1,
            16, 128, 1024]}``. The time model says which configuration is the best at each sample
            (four different ones at most, as few as are within 5 % of the best everywhere); samples
            with the same one are a bucket, at whose largest sample the best `top` (two) are
            measured, on made-up tensors. Lazy calls and `compile` then give a `DispatchedKernel`,
            which picks by the sizes of a call. Without it such a kernel is tuned for the shapes of
            a call's tensors.
        retry: try again what has failed in an earlier search. What took too long is tried again
            with a longer `timeout` as well.

    A configuration that fails (does not compile, crashes, takes longer than `timeout`, gives wrong
    numbers) is a row with the reason; if all fail the call raises `TileError`. Raises
    `ArgumentError` for options that make no sense. The kernel gets `.config`, `.latency` and
    `.ref_latency` (milliseconds), and the function `.results`, a table. Ctrl-C ends the search with
    `Interrupted` and keeps what was measured; the same call goes on with the configurations that
    are left.
    """
    if isinstance(configs, Jit):
        raise TileTypeError("tw.autotune needs configurations: @tw.autotune(configs=[...])")
    settings = Settings(
        *(warmup, rep, timeout, supply_type, ref_prog, supply_prog, rtol, atol),
        *(max_mismatched_ratio, skip_check, manual_check_prog, cache_input_tensors),
        *(tuple(do_not_specialize or ()), early_stop, top),
        store_of(store),
        *(isolate, executor, sizes),
        retry=retry,
    )
    settings.check()
    chosen = configs if callable(configs) else listed_configs(configs)

    def decorate(function: Any) -> Autotuned:
        if not isinstance(function, Jit):
            raise TileTypeError(
                f"tw.autotune goes above @tw.jit, not above '{type(function).__name__}'",
                hint="write @tw.autotune(configs=...) on the line before @tw.jit",
            )
        return Autotuned(function, chosen, settings)

    return decorate
