"""`tw.autotune`: measure the configurations of a kernel and keep the fastest.

Configurations are tried one after the other; with `top`, those alone that the time model ranks
first. What has been measured stays when Ctrl-C ends a search, and in a file (`store`) for later
processes.
"""

from __future__ import annotations

import copy
import functools
import inspect
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from tileworkbench.api import Jit
from tileworkbench.bench.ceilings import machine_key
from tileworkbench.bench.timing import do_bench, refuse_simulated
from tileworkbench.compiler.diagnostics import (
    ArgumentError,
    Interrupted,
    TileError,
    TileTypeError,
)
from tileworkbench.compiler.driver import resolve_target
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.frontend.values import hashable
from tileworkbench.compiler.ir.printer import print_program
from tileworkbench.compiler.target import parse_target
from tileworkbench.tuning.closeness import assert_close, result_pairs
from tileworkbench.tuning.progress import Progress
from tileworkbench.tuning.store import Origin, Stored, TuningStore, default_store, key_of
from tileworkbench.tuning.supply import TensorSupplyType, input_parameters, supply_tensors
from tileworkbench.tuning.sweep import Sweep, SweepPoint
from tileworkbench.workbench.checking import listed
from tileworkbench.workbench.kernel import Kernel

Config = Mapping[str, Any]
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


@dataclass(frozen=True, slots=True)
class Settings:
    """How configurations are measured and checked; see `autotune`."""

    warmup: float = 25
    rep: float = 100
    timeout: float = 100
    supply_type: TensorSupplyType = TensorSupplyType.Auto
    ref_prog: Callable[..., Any] | None = None
    supply_prog: Callable[..., Sequence[Any]] | None = None
    rtol: float = 1e-2
    atol: float = 1e-2
    max_mismatched_ratio: float = 0.01
    skip_check: bool = False
    manual_check_prog: Callable[[list[Any], list[Any]], Any] | None = None
    cache_input_tensors: bool = False
    do_not_specialize: tuple[str, ...] = ()
    top: int | None = None
    store: TuningStore | None = None


@dataclass(frozen=True, slots=True)
class Trial:
    """One configuration: milliseconds per call, or NaN and why there are none: an `error`, or none
    where the time model ranks `top` others before it.

    `predicted` are the milliseconds of the time model (NaN: it was not asked, or knows none).
    `is_stored` says that an earlier search measured it.
    """

    config: Config
    latency: float = math.nan
    error: str = ""
    predicted: float = math.nan
    is_stored: bool = False
    is_final: bool = field(default=False, repr=False, compare=False)  # the kernel's own failure
    kernel: Kernel | None = field(default=None, repr=False, compare=False)


@dataclass(slots=True)
class _Search:
    """One set of arguments: what is to be tried, and what has been."""

    configs: list[Config]
    trials: list[Trial] = field(default_factory=list)
    failure: Exception | None = None
    inputs: list[Any] | None = None
    ref_latency: float | None = None
    predicted: dict[int, float] = field(default_factory=dict)  # by place, in milliseconds
    is_ranked: bool = False


@dataclass(frozen=True, slots=True)
class _Known:
    """What a store has of a search, by place of the configuration."""

    store: TuningStore
    target: str
    machine: str
    keys: dict[int, str]
    results: dict[str, Stored]

    def at(self, place: int) -> Stored | None:
        return self.results.get(self.keys.get(place, ""))

    def put(
        self, place: int, kernel: str, trial: Trial, reference: float | None, checked: bool
    ) -> None:
        """Store a trial. What fails for another reason than the kernel's own is tried again."""
        if place not in self.keys or (trial.error and not trial.is_final):
            return
        latency = None if trial.error else trial.latency
        result = Stored(latency, reference, trial.error, checked)
        origin = Origin(kernel, self.target, self.machine, repr(dict(trial.config)))
        self.store.put(self.keys[place], result, origin)


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

    @property
    def kernel(self) -> Kernel | None:
        """The kernel of the last call, None before."""
        return self.jit.kernel

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
                kernel=trial.kernel,
            )
            for trial in self.trials
        )
        target = next((each.kernel.target for each in self.trials if each.kernel), "")
        interrupted = len(points) < self._planned
        values = {name: tuple(taken) for name, taken in axes.items()}
        name = self.jit.fn.__name__
        left_out = sum(not (each.error or math.isfinite(each.latency)) for each in self.trials)
        return Sweep(name, target, values, points, interrupted, self._planned, left_out)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function in its best configuration, found by the first such call.

        Eager functions run and return their outputs, lazy ones return the `Kernel`. Nothing is
        tuned when the call gives every tunable argument that is not in `do_not_specialize`.
        """
        args, kwargs, search = self._tuned(args, kwargs)
        result = self.jit(*args, **kwargs)
        self._label(search)
        return result

    def compile(self, *args: Any, **kwargs: Any) -> Kernel:
        """The kernel in its best configuration for these arguments, those of `Jit.compile`, without
        a call of it.

        An eager function is measured on copies of the tensors where all are given, else on
        made-up ones.
        """
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
        configs = list(made)
        if not configs:
            raise ArgumentError(f"'{self.jit.fn.__name__}' has no configuration to tune")
        for config in configs:
            unknown = [name for name in config if name not in self._signature.parameters]
            if unknown:
                raise ArgumentError(f"'{self.jit.fn.__name__}' has no argument '{unknown[0]}'")
        return configs

    def _search(self, given: Mapping[str, Any], configs: list[Config]) -> _Search:
        key = tuple((name, _form(value)) for name, value in given.items())
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
        refuse_simulated(self.jit.fn.__name__, str(resolve_target(self.jit.target or "auto")))
        self._planned = total = len(search.configs)
        progress = Progress()
        try:
            if self.settings.top is not None and not search.is_ranked:
                self._rank(search, args, kwargs)
            known = self._stored(search, args, kwargs)
            for place in range(len(search.trials), total):
                progress.show(len(search.trials), total)
                search.trials.append(self._trial(search, place, known, args, kwargs))
        except KeyboardInterrupt:
            if not any(math.isfinite(trial.latency) for trial in search.trials):
                raise
            raise self._interrupted(search) from None
        finally:
            progress.end()
            self.trials = tuple(search.trials)
            search.inputs = None

    def _rank(self, search: _Search, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Bring the configurations into the order of their predicted times; those without one
        come last, in the order in which they were given.
        """
        times: list[float] = []
        for config in search.configs:
            try:
                merged = {**kwargs, **config}
                is_call = self.jit.is_call(*args, **merged)
                compiled = self.jit.prepare(*args, **merged)[0] if is_call else None
                causes = (compiled or self.jit.compile(*args, **merged)).causes
            except Exception:  # it is told when its turn comes to be measured
                causes = None
            times.append(math.inf if causes is None else causes.total_us / 1e3)
        order = sorted(range(len(times)), key=times.__getitem__)
        search.configs = [search.configs[place] for place in order]
        search.predicted = {
            place: times[at] for place, at in enumerate(order) if math.isfinite(times[at])
        }
        search.is_ranked = True

    def _stored(
        self, search: _Search, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> _Known | None:
        """What earlier searches have measured of what is still to be measured; None where results
        are not stored.
        """
        store, settings = self.settings.store, self.settings
        if store is None or settings.supply_prog is not None or settings.manual_check_prog:
            return None  # what a function of the user's makes or wants is in no key
        target = str(resolve_target(self.jit.target or "auto"))
        inputs = _inputs.get()
        forms = None if inputs is None else [_form(value) for value in inputs]
        machine = machine_of(target)
        keys: dict[int, str] = {}
        for place, config in enumerate(search.configs[len(search.trials) :], len(search.trials)):
            merged = {**kwargs, **config}
            try:
                text = print_program(self.jit.trace(*args, **merged))
            except Exception:  # it is told when its turn comes to be compiled
                continue
            tensors = [_form(each) for each in (*args, *kwargs.values()) if _is_tensor(each)]
            facts = (text, self.jit.options, settings.supply_type.name, forms, tensors)
            keys[place] = key_of(target, machine, *facts)
        return _Known(store, target, machine, keys, store.find([*keys.values()]))

    def _trial(
        self,
        search: _Search,
        place: int,
        known: _Known | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Trial:
        """One configuration: remembered, left out by its rank, or measured and stored."""
        config, top = search.configs[place], self.settings.top
        predicted = search.predicted.get(place, math.nan)
        wants_check = self.settings.ref_prog is not None and not self.settings.skip_check
        kept = None if known is None else known.at(place)
        if kept is not None and (kept.is_checked or not wants_check):
            search.ref_latency = search.ref_latency or kept.ref_latency
            latency = math.nan if kept.latency is None else kept.latency
            return Trial(config, latency, kept.error, predicted, is_stored=True)
        if top is not None and search.predicted and place >= top:
            return Trial(config, predicted=predicted)
        trial = self._measure(search, config, args, kwargs)
        if known is not None:
            known.put(place, self.jit.fn.__name__, trial, search.ref_latency, wants_check)
        return replace(trial, predicted=predicted)

    def _interrupted(self, search: _Search) -> Interrupted:
        """The error of a search that Ctrl-C ended, with what it has found so far."""
        name, best = self.jit.fn.__name__, self._best(search)
        return Interrupted(
            f"interrupted after {len(search.trials)} of {len(search.configs)} configurations of "
            f"'{name}'; the fastest so far is {dict(best.config)}, {best.latency:.4g} ms",
            hint=f"'{name}.results' has what was measured; the same call goes on from there",
        )

    def _measure(
        self, search: _Search, config: Config, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Trial:
        """Compile, check and time one configuration; whatever it raises makes it a failed one."""
        try:
            latency, kernel = self._latency(search, config, args, kwargs)
        except KeyboardInterrupt:
            raise
        except Exception as error:
            search.failure = search.failure or error
            is_final = isinstance(error, TileError)
            message = error.message if isinstance(error, TileError) else str(error)
            text = f"{type(error).__name__}: {message}"
            return Trial(config, error=text, is_final=is_final)
        return Trial(config, latency, kernel=kernel)

    def _latency(
        self, search: _Search, config: Config, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[float, Kernel]:
        settings, deadline = self.settings, time.monotonic() + self.settings.timeout
        merged = {**kwargs, **config}
        run_time: tuple[Any, ...] | None = None
        if self.jit.is_call(*args, **merged):
            kernel, run_time = self.jit.prepare(*args, **merged)
        else:
            kernel = self.jit.compile(*args, **merged)
        inputs = self._inputs(search, kernel, run_time)
        self._within(deadline)
        if settings.ref_prog is not None and not settings.skip_check:
            self._check(kernel, inputs, settings.ref_prog)
            self._within(deadline)
        kernel(*inputs)
        self._within(deadline)
        latency = do_bench(lambda: kernel(*inputs), settings.warmup, settings.rep)
        reference = settings.ref_prog
        if reference is not None and search.ref_latency is None:
            run = functools.partial(reference, *inputs)
            search.ref_latency = do_bench(run, settings.warmup, settings.rep)
        return float(latency), kernel

    def _within(self, deadline: float) -> None:
        if time.monotonic() > deadline:
            raise TileError(f"took longer than {self.settings.timeout:g} s")

    def _inputs(
        self, search: _Search, kernel: Kernel, run_time: tuple[Any, ...] | None
    ) -> list[Any]:
        """The tensors of one trial: copies, because a kernel may write into them."""
        if search.inputs is not None:
            return search.inputs
        settings, given = self.settings, _inputs.get()
        if run_time is not None:
            made = copy.deepcopy(list(run_time))
        elif given is not None:
            made = copy.deepcopy(list(given))
        elif settings.supply_prog is not None:
            made = listed(settings.supply_prog(list(input_parameters(kernel.program))))
        else:
            made = supply_tensors(kernel.program, settings.supply_type)
        if settings.cache_input_tensors:
            search.inputs = made
        return made

    def _check(self, kernel: Kernel, inputs: list[Any], reference: Callable[..., Any]) -> None:
        settings = self.settings
        pairs = result_pairs(kernel, inputs, reference)
        if settings.manual_check_prog is not None:
            settings.manual_check_prog([got for got, _ in pairs], [want for _, want in pairs])
            return
        for got, want in pairs:
            assert_close(got, want, settings.rtol, settings.atol, settings.max_mismatched_ratio)

    def _best(self, search: _Search) -> Trial:
        measured = [trial for trial in search.trials if math.isfinite(trial.latency)]
        if not measured:
            count = sum(bool(trial.error) for trial in search.trials)
            raise TileError(
                f"none of the {count} configurations of '{self.jit.fn.__name__}' could be measured",
                hint=f"the first one, {dict(search.trials[0].config)}, failed: "
                f"{search.trials[0].error}",
            ) from search.failure
        return min(measured, key=lambda trial: trial.latency)

    def __repr__(self) -> str:
        return f"<tw.autotune of {self.jit!r}>"


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype")


def machine_of(target: str) -> str:
    """What times on a target hold for: the processor with its threads and caches, or the GPU."""
    if parse_target(target).kind == "cpu":
        return machine_key()
    import torch

    if torch.cuda.is_available():
        return f"{torch.cuda.get_device_name()}, {torch.version.cuda or torch.version.hip}"
    return "no GPU"


def _form(value: Any) -> Any:
    """What tuning depends on: of a tensor its dtype and shape, of anything else itself."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return str(value.dtype), tuple(value.shape)
    return type(value), hashable(value)


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
    early_stop: Any = None,
    top: int | None = None,
    store: bool | str | Path = True,
) -> Callable[[Any], Autotuned]:
    """Choose the fastest of `configs` when a `tw.jit` function is called; goes above `@tw.jit`.

    Args:
        configs: keyword arguments to try, as dictionaries, or a function that makes them from the
            call's arguments.
        warmup, rep: milliseconds of calls before and while a configuration is timed.
        timeout: seconds after which a configuration is given up, looked at between its
            compilation, check, first call and timing.
        supply_type, supply_prog: what a lazy kernel is measured on: made-up tensors, or a function
            that makes them from the list of parameters; see also `set_autotune_inputs`. An eager
            function is measured on copies of its arguments.
        ref_prog: a reference that every configuration must agree with, within `rtol`, `atol` and
            `max_mismatched_ratio`, or as `manual_check_prog(outputs, expected)` decides by raising;
            `skip_check` leaves that out. Its time becomes the kernel's `ref_latency`.
        cache_input_tensors: use the same tensors for all configurations.
        do_not_specialize: names of arguments that what is found does not depend on: calls that
            differ in nothing else share one search, and configurations replace what a call gives.
        early_stop: accepted for scripts that give it, without effect.
        top: measure only this many configurations: all are compiled, and those come first whose
            time the model predicts to be the shortest (`Kernel.causes`; on a GPU the model is
            simulated only). None, or shapes that it knows nothing of: all are measured.
        store: keep what is measured in a SQLite file and take what is there already: True for the
            one in the folder of the compilation cache, or a path. A result holds for the text of
            the program, target, machine, forms of the tensors and version of this package; results
            on what `supply_prog` makes are not kept.

    A configuration that fails is left out; if all fail the call raises `TileError`. The kernel
    gets `.config`, `.latency` and `.ref_latency` (milliseconds), and the function `.results`, a
    table. Ctrl-C ends the search with `Interrupted` and keeps what was measured; the same call goes
    on with the configurations that are left.
    """
    settings = Settings(
        *(warmup, rep, timeout, supply_type, ref_prog, supply_prog, rtol, atol),
        *(max_mismatched_ratio, skip_check, manual_check_prog, cache_input_tensors),
        *(tuple(do_not_specialize or ()), top),
        default_store() if store is True else TuningStore(store) if store else None,
    )
    if top is not None and (isinstance(top, bool) or not isinstance(top, int) or top < 1):
        raise ArgumentError(f"top is how many configurations are measured, not {top!r}")

    def decorate(function: Any) -> Autotuned:
        if not isinstance(function, Jit):
            raise TileTypeError(
                f"tw.autotune goes above @tw.jit, not above '{type(function).__name__}'",
                hint="write @tw.autotune(configs=...) on the line before @tw.jit",
            )
        return Autotuned(function, configs, settings)

    if isinstance(configs, Jit):
        raise TileTypeError("tw.autotune needs configurations: @tw.autotune(configs=[...])")
    return decorate
