"""One search on the machines that measure for it: what is known, what comes next, when it ends."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import date
from typing import Any

from tileworkbench.bench.timing import do_bench
from tileworkbench.compiler.diagnostics import TileError
from tileworkbench.tuning.crews import Crew, Task, label_of, run_courses
from tileworkbench.tuning.jobs import Jobs
from tileworkbench.tuning.measuring import (
    Job,
    Outcome,
    measure_configuration,
    predict_configuration,
    said,
)
from tileworkbench.tuning.quality import Quality, quality_of
from tileworkbench.tuning.store import Origin, Stored
from tileworkbench.tuning.trials import Fault, Settings, Trial
from tileworkbench.tuning.turns import measuring


class Known:
    """What a search has found on one kind of machine, by place of the configuration."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.trials: dict[int, Trial] = {}
        self.predicted: dict[int, float] = {}  # milliseconds
        self.order: list[int] = []

    def listed(self) -> list[Trial]:
        """The trials in the order of their predictions, where there are some."""
        return [self.trials[place] for place in self.order if place in self.trials]

    @property
    def best(self) -> Trial | None:
        """The fastest."""
        measured = [trial for trial in self.listed() if trial.is_measured]
        return min(measured, key=lambda trial: trial.latency, default=None)

    def can_win(self, place: int, trusting: bool) -> bool:
        """Whether a configuration may still be the fastest, by the model and by its error so far:
        see `autotune`. Unless `trusting`, only a model that has put the fastest first is asked.
        """
        best, predicted = self.best, self.predicted.get(place)
        quality = self._quality()
        if best is None or predicted is None or quality is None:
            return True
        if not trusting and not quality.is_good:
            return True
        return predicted / (1 + 2 * quality.error) <= best.latency

    def _quality(self) -> Quality | None:
        pairs = [(trial.predicted, trial.latency) for trial in self.trials.values()]
        return quality_of(pairs)


class Course:
    """The part of a search that one kind of machine does."""

    def __init__(
        self, crew: Crew, jobs: Jobs, known: Known, target: str, kernel: str, forms: Sequence[Any]
    ) -> None:
        self.crew, self.jobs, self.known = crew, jobs, known
        self.ref_latency: float | None = None
        self.failure: Exception | None = None
        self._target, self._kernel = target, kernel
        self._keys: dict[int, str] = {}
        self._given: dict[int, Job] = {}
        self.left: list[int] = []  # places, the next one first
        self._predicts = False
        for place in range(len(jobs.configs)):
            if jobs.is_stored and jobs.recipe(place) is not None:
                self._keys[place] = jobs.key(place, target, crew.machine, forms)
        if not known.order:
            known.order = list(range(len(jobs.configs)))
        self._recall([*self._keys])

    def ask_model(self) -> bool:
        """Prepare to predict what has no prediction yet; whether there is anything to do."""
        known = self.known
        places = [p for p in known.order if p not in known.predicted and self._recipe(p)]
        tried = all(place in known.trials for place in known.order)
        self.left, self._predicts = [] if tried else places, True
        return bool(self.left)

    def rank(self) -> None:
        """Bring the configurations into the order of their predicted times; those without one come
        last, in the order in which they were given.
        """
        times = self.known.predicted
        self.known.order.sort(key=lambda place: (times.get(place, math.inf), place))

    def begin(self) -> None:
        """Prepare to measure."""
        known = self.known
        self.left, self._predicts = [p for p in known.order if p not in known.trials], False

    def next_task(self) -> tuple[int, Task] | None:
        """The next configuration to predict or to measure."""
        while self.left:
            place = self.left.pop(0)
            recipe = self._recipe(place)
            if self._predicts:
                if recipe is not None:
                    return place, (predict_configuration, (recipe, self.crew.setting))
                continue
            if recipe is None:
                self._fail(place, self.jobs.failures[place])
                continue
            self._recall([place])  # another process may have measured it meanwhile
            if place not in self.known.trials and self.wants(place):
                try:
                    job = self._given[place] = self.jobs.job(place, self.crew.setting)
                except Exception as error:
                    self._fail(place, error)
                    continue
                return place, (measure_configuration, (job,))
        return None

    def label(self, place: int) -> str:
        """What is done with a configuration."""
        verb = "predict" if self._predicts else "measure"
        return label_of(verb, self._kernel, self.jobs.configs[place])

    def wants(self, place: int) -> bool:
        """Whether a configuration is still to be measured: it may win, and is among the first."""
        if self._predicts:
            return True
        settings, known = self.jobs.settings, self.known
        if not settings.is_predicted(len(known.order)):
            return True
        top = settings.top if known.predicted else None
        if top is not None and known.order.index(place) >= top:
            return False
        trusting = settings.early_stop or settings.top is not None
        return settings.early_stop is False or known.can_win(place, bool(trusting))

    def take(self, place: int, outcome: Outcome) -> None:
        """Note what came of a task."""
        if self._predicts:
            if math.isfinite(outcome.predicted):
                self.known.predicted[place] = outcome.predicted
            if outcome.fault is not Fault.OTHER:  # to measure it would fail so again
                self._note_outcome(place, outcome)
            return
        job = self._given.pop(place)
        if not outcome.error:
            try:
                self.jobs.judge(place, job, outcome.results)
            except Exception as error:
                self._fail(place, error)
                return
        self._note_outcome(place, outcome)
        if not outcome.error:
            self._time_reference(place, job)

    def end(self) -> None:
        """Note what is left out, since the model says that it cannot win."""
        for place in self.known.order:
            if place not in self.known.trials:
                self._note(place, Trial(self.jobs.configs[place], recipe=self._recipe(place)))

    def _recall(self, places: Sequence[int]) -> None:
        """Take what other searches have measured and predicted."""
        store, settings = self.jobs.settings.store, self.jobs.settings
        keys = {place: self._keys[place] for place in places if place in self._keys}
        kept = {} if store is None else store.find([*keys.values()])
        for place, key in keys.items():
            stored = kept.get(key)
            if stored is None or place in self.known.trials:
                continue
            if stored.predicted is not None:
                self.known.predicted[place] = stored.predicted
            if stored.answers(self.jobs.checked, settings.timeout, settings.retry):
                self.ref_latency = self.ref_latency or stored.ref_latency
                latency = math.nan if stored.latency is None else stored.latency
                error = stored.told_error if stored.error else ""
                trial = Trial(self.jobs.configs[place], latency, error, is_stored=True)
                self.known.trials[place] = self._complete(place, trial)

    def _recipe(self, place: int) -> Any:
        return self.jobs.recipe(place)

    def _complete(self, place: int, trial: Trial) -> Trial:
        predicted = self.known.predicted.get(place, math.nan)
        return replace(trial, predicted=predicted, machine=self.known.name)

    def _fail(self, place: int, error: Exception) -> None:
        self.failure = self.failure or error
        config, recipe = self.jobs.configs[place], self._recipe(place)
        self._note(place, Trial(config, error=said(error), recipe=recipe))

    def _note_outcome(self, place: int, outcome: Outcome) -> None:
        config, recipe = self.jobs.configs[place], self._recipe(place)
        trial = Trial(config, outcome.latency, outcome.error, recipe=recipe, fault=outcome.fault)
        self._note(place, trial)

    def _note(self, place: int, trial: Trial) -> None:
        """Keep a trial, in the file too: but for failures that may pass."""
        self.known.trials[place] = trial = self._complete(place, trial)
        self._put(place, trial)

    def _put(self, place: int, trial: Trial) -> None:
        store, settings = self.jobs.settings.store, self.jobs.settings
        passes = bool(trial.error) and trial.fault is Fault.OTHER
        if store is None or place not in self._keys or passes:
            return
        predicted = trial.predicted if math.isfinite(trial.predicted) else None
        if not trial.is_measured and not trial.error and predicted is None:
            return
        is_compared = trial.is_measured or trial.fault is Fault.CHECK
        result = Stored(
            latency=trial.latency if trial.is_measured else None,
            ref_latency=self.ref_latency,
            predicted=predicted,
            error=trial.error,
            limit=settings.timeout if trial.fault is Fault.LIMIT else None,
            checked=self.jobs.checked if is_compared else "",
            date=date.today().isoformat(),
        )
        origin = Origin(self._kernel, self._target, self.crew.machine, repr(dict(trial.config)))
        store.put(self._keys[place], result, origin)

    def _time_reference(self, place: int, job: Job) -> None:
        """Time the reference, once, when something is known to work."""
        settings = self.jobs.settings
        reference = settings.ref_prog
        if reference is None or self.ref_latency is not None:
            return
        tensors = self.jobs.tensors(place, job)
        reference(*tensors)  # it may compile, or be tuned itself
        with measuring():
            self.ref_latency = float(
                do_bench(lambda: reference(*tensors), settings.warmup, settings.rep)
            )
        self._put(place, self.known.trials[place])


def run_search(
    courses: Sequence[Course], settings: Settings, progress: Callable[[int, int], None]
) -> None:
    """Predict where that is asked for, then measure, on all machines at once. What is known
    when an error or an interrupt ends it stays in the courses.
    """
    is_predicted = settings.is_predicted(max(len(course.known.order) for course in courses))
    if is_predicted:
        predict_all(courses, progress)
    for course in courses:
        if is_predicted:
            course.rank()
        course.begin()
    _run(courses, progress)
    for course in courses:
        course.end()


def predict_all(courses: Sequence[Course], progress: Callable[[int, int], None]) -> None:
    """Predict what has no prediction yet."""
    _run([each for each in courses if each.ask_model()], progress)


def _run(courses: Sequence[Course], progress: Callable[[int, int], None]) -> None:
    total = sum(len(course.left) for course in courses)
    done = 0
    if total:
        progress(done, total)
    with closing(run_courses(courses)) as outcomes:
        for at, place, outcome in outcomes:
            courses[at].take(place, outcome)
            done += 1
            progress(done, total)


def best_of(knowns: Sequence[Known]) -> Trial | None:
    """The fastest on the first machine that has measured anything."""
    return next((known.best for known in knowns if known.best is not None), None)


def nothing_measured(name: str, knowns: Sequence[Known]) -> TileError:
    """The error of a search without a time."""
    trials = [trial for known in knowns for trial in known.listed()]
    count = sum(bool(trial.error) for trial in trials)
    return TileError(
        f"none of the {count} configurations of '{name}' could be measured",
        hint=f"the first one, {dict(trials[0].config)}, failed: {trials[0].error}",
    )
