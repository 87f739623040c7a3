"""Tuning a kernel of symbolic sizes: the time model says where which configuration is the best, and
the best few are measured there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, product
from types import SimpleNamespace
from typing import Any

from tileworkbench.api import Jit, Recipe
from tileworkbench.bench.kernel import specialize
from tileworkbench.bench.timing import refuse_simulated
from tileworkbench.compiler.analysis.evaluate import evaluate
from tileworkbench.compiler.diagnostics import ArgumentError, UnsupportedError
from tileworkbench.compiler.driver import resolve_target
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.ir.program import Program
from tileworkbench.tuning.courses import (
    Course,
    Known,
    best_of,
    nothing_measured,
    predict_all,
    run_search,
)
from tileworkbench.tuning.crews import Crew, crews_of
from tileworkbench.tuning.dispatch import (
    Bucket,
    DispatchedKernel,
    Sizes,
    border,
    cover,
    grouped,
    is_size,
    place_of,
)
from tileworkbench.tuning.jobs import Jobs, Made
from tileworkbench.tuning.measuring import Setting
from tileworkbench.tuning.supply import input_parameters, supply_tensors
from tileworkbench.tuning.trials import Config, Settings, Trial

_BISECTIONS = 4  # for a border between two buckets
_MEASURED = 2  # configurations of a bucket, where `top` does not say


def with_sizes(program: Program, sizes: Mapping[str, int]) -> Program:
    """The program for these values of its symbols."""
    arguments = [
        SimpleNamespace(shape=tuple(int(evaluate(n, dict(sizes))) for n in param.value.shape))
        if isinstance(param.value, Buffer)
        else _no_scalar(program, param.name)
        for param in input_parameters(program)
    ]
    return specialize(program, arguments)


def _no_scalar(program: Program, name: str) -> Any:
    raise UnsupportedError(
        f"there is no prediction for '{program.name}': its argument '{name}' is a scalar",
        hint="leave out sizes, and the kernel is tuned for the tensors of a call",
    )


def tune_sizes(
    jit: Jit,
    configs: Sequence[Config],
    settings: Settings,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    trials: list[Trial],
    progress: Callable[[int, int], None],
) -> DispatchedKernel:
    """The kernel of a function for all sizes, see `autotune`; what is measured is put into
    `trials`.
    """
    name, target = jit.fn.__name__, str(resolve_target(jit.target or "auto"))
    refuse_simulated(name, target)

    def make(config: Config) -> Made:
        return jit.recipe(*args, **{**kwargs, **config})

    crews = crews_of(settings.executor, target, Setting.here(settings.timeout, settings.isolate))
    try:
        search = _SizeSearch(name, target, configs, make, settings, crews)
        search.trials = trials
        buckets = search.run(progress)
        borders = search.borders(buckets, progress)
    finally:
        for crew in crews:
            crew.stop()
    kernels = []
    for bucket in buckets:
        kernels.append(jit.compile(*args, **{**kwargs, **bucket.config}))
        kernels[-1].config, kernels[-1].latency = dict(bucket.config), bucket.latency
    return DispatchedKernel(search.symbols, settings.sizes or {}, buckets, kernels, borders)


class _SizeSearch:
    """The search for one kernel of symbolic sizes. `trials` are those of all its buckets."""

    def __init__(
        self,
        name: str,
        target: str,
        configs: Sequence[Config],
        make: Callable[[Config], Made],
        settings: Settings,
        crews: Sequence[Crew],
    ) -> None:
        self.name, self.target, self.configs = name, target, configs
        self.settings, self.crews = settings, crews
        self.trials: list[Trial] = []
        self._recipes: dict[int, Recipe] = {}
        failure: Exception | None = None
        for place, config in enumerate(configs):
            try:
                self._recipes[place] = make(config)[0]
            except Exception as error:
                failure = failure or error
        if failure is not None and not self._recipes:
            raise failure
        self.symbols = self._checked()

    def run(self, progress: Callable[[int, int], None]) -> list[Bucket]:
        """The buckets, smallest sizes first. Raises `UnsupportedError` where the model knows
        nothing of the kernel.
        """
        sizes = self.settings.sizes or {}
        samples: list[Sizes] = list(product(*(sorted(set(sizes[name])) for name in self.symbols)))
        times = self._predict(samples, [*self._recipes], progress)
        return [
            self._measure(samples, times[samples[-1]], progress)
            for _, samples in grouped(cover(times))
        ]

    def borders(
        self, buckets: Sequence[Bucket], progress: Callable[[int, int], None]
    ) -> dict[tuple[int, int], int]:
        """Where the model says that the configurations of two neighbouring buckets change places;
        for one symbol, whose sizes have one order. A few bisections bring it near enough: there
        both are about as fast.
        """
        crossings = {}
        for first, second in pairwise(buckets if len(self.symbols) == 1 else ()):
            (low,), (high,) = first.samples[-1], second.samples[0]
            places = [self.configs.index(each.config) for each in (first, second)]
            if places[0] == places[1]:
                continue
            inner, outer = low, high
            for _ in range(_BISECTIONS):
                middle = border(inner, outer) - 1
                if not inner < middle < outer:
                    break
                times = self._predict([(middle,)], places, progress)[(middle,)]
                if times[places[0]] <= times[places[1]]:
                    inner = middle
                else:
                    outer = middle
            crossings[low, high] = border(inner, outer)
        return crossings

    def _checked(self) -> list[str]:
        sizes = self.settings.sizes or {}
        program = next(iter(self._recipes.values())).program
        symbols = [symbol.name for symbol in program.symbols]
        for name in symbols:
            given = sizes.get(name, ())
            is_listed = isinstance(given, Iterable) and bool(given)
            if not is_listed or not all(map(is_size, given)):
                raise ArgumentError(
                    f"sizes has no positive integers for the symbol '{name}' of '{self.name}'",
                    hint=f"such as sizes={{'{name}': [16, 128, 1024]}}",
                )
        unknown = [name for name in sizes if name not in symbols]
        if unknown:
            raise ArgumentError(f"'{self.name}' has no symbol '{unknown[0]}', which sizes names")
        for name in symbols:
            place_of(program, name)
        return symbols

    def _predict(
        self, samples: Sequence[Sizes], places: Sequence[int], progress: Callable[[int, int], None]
    ) -> dict[Sizes, list[float]]:
        """Milliseconds of configurations at samples; infinite where one has none."""
        pairs = [(each, place) for each in samples for place in places]
        points: list[Config] = [
            {**dict(zip(self.symbols, each, strict=True)), "configuration": place}
            for each, place in pairs
        ]

        def make(point: Config) -> Made:
            recipe = self._recipes[point["configuration"]]
            values = {name: point[name] for name in self.symbols}
            return replace(recipe, program=with_sizes(recipe.program, values)), None

        jobs = Jobs(points, make, None, replace(self.settings, ref_prog=None, supply_prog=None))
        known = Known(self.crews[0].name)
        course = Course(self.crews[0], jobs, known, self.target, self.name, ())
        predict_all([course], progress)
        course.end()
        times = {each: [math.inf] * len(self.configs) for each in samples}
        for number, (each, place) in enumerate(pairs):
            times[each][place] = known.predicted.get(number, math.inf)
        if any(math.isinf(min(each)) for each in times.values()):
            failure = next(iter(jobs.failures.values()), None)
            raise UnsupportedError(
                f"there is no prediction for '{self.name}' on '{self.target}'",
                hint="leave out sizes, and the kernel is tuned for the tensors of a call",
            ) from failure
        return times

    def _measure(
        self,
        samples: tuple[Sizes, ...],
        times: Sequence[float],
        progress: Callable[[int, int], None],
    ) -> Bucket:
        """The configuration of a bucket: the fastest of the best few by the model, at its largest
        sample.
        """
        count = self.settings.top or _MEASURED
        ranked = sorted(range(len(times)), key=times.__getitem__)
        ranked = [place for place in ranked if math.isfinite(times[place])][:count]
        recipes = {number: self._recipes[place] for number, place in enumerate(ranked)}
        configs: list[Config] = [self.configs[place] for place in ranked]
        program = recipes[0].program
        values = dict(zip(self.symbols, samples[-1], strict=True))
        given = supply_tensors(program, self.settings.supply_type, values)
        numbers = iter(range(len(configs)))
        jobs = Jobs(configs, lambda config: (recipes[next(numbers)], None), given, self._plain())
        courses, knowns = [], []
        for crew in self.crews:
            knowns.append(Known(crew.name))
            courses.append(Course(crew, jobs, knowns[-1], self.target, self.name, ()))
        try:
            run_search(courses, jobs.settings, progress)
        finally:
            for known in knowns:
                self.trials += known.listed()
        best = best_of(knowns)
        if best is None:
            raise nothing_measured(self.name, knowns)
        return Bucket(samples, best.config, best.latency, times[ranked[configs.index(best.config)]])

    def _plain(self) -> Settings:
        """Settings for a bucket: what is measured is chosen already."""
        return replace(self.settings, top=None, early_stop=False)
