"""The configurations of one search as jobs: kernels, what they are called with, what they should
give.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tileworkbench.api import Recipe
from tileworkbench.compiler.frontend.values import hashable
from tileworkbench.compiler.ir.printer import print_program
from tileworkbench.tuning.closeness import expected_of
from tileworkbench.tuning.measuring import Expected, Job, Setting
from tileworkbench.tuning.reference import digest_of
from tileworkbench.tuning.store import key_of
from tileworkbench.tuning.supply import TensorSupplyType, input_parameters, supply_tensors
from tileworkbench.tuning.trials import Config, Settings
from tileworkbench.workbench.checking import listed

Made = tuple[Recipe, tuple[Any, ...] | None]


class Jobs:
    """The configurations of a search in the order in which they were given.

    `make` gives a configuration's recipe, and the arguments of the call if there is one; `given`
    are the tensors that the user named, None where he did not. `failures` has the error of each
    configuration that has no recipe, `checked` what results are compared with, "" for nothing.
    """

    def __init__(
        self,
        configs: Sequence[Config],
        make: Callable[[Config], Made],
        given: Sequence[Any] | None,
        settings: Settings,
    ) -> None:
        self.configs, self.settings = configs, settings
        self.failures: dict[int, Exception] = {}
        self._made: dict[int, Made] = {}
        self._given = None if given is None else tuple(given)
        self._supplied: tuple[Any, ...] | None = None
        self._expected: dict[Any, tuple[Any, ...]] = {}
        self.checked = _checked(settings)
        for place, config in enumerate(configs):
            try:
                self._made[place] = make(config)
            except Exception as error:  # a row, as what fails later is
                self.failures[place] = error

    def recipe(self, place: int) -> Recipe | None:
        """What is compiled; None where tracing failed."""
        made = self._made.get(place)
        return None if made is None else made[0]

    @property
    def is_stored(self) -> bool:
        """Whether results can be kept: what the user's functions make or want is in no key."""
        settings = self.settings
        no_functions = settings.supply_prog is None and not settings.manual_check_prog
        return settings.store is not None and no_functions

    @property
    def is_steady(self) -> bool:
        """Whether all configurations are called with the same tensors, so that the reference is
        asked once.
        """
        return self.settings.supply_prog is None or self.settings.cache_input_tensors

    def key(self, place: int, target: str, machine: str, forms: Sequence[Any]) -> str:
        """What the result of a configuration is stored under; `forms` are those of the call's
        tensors.
        """
        recipe = self._made[place][0]
        given = None if self._given is None else [form(value) for value in self._given]
        options = replace(recipe.options, constants=())
        facts = (print_program(recipe.program), options, self.settings.supply_type.name)
        return key_of(target, machine, *facts, given, list(forms))

    def job(self, place: int, setting: Setting) -> Job:
        """A configuration to measure. Raises what the user's functions raise."""
        settings, recipe = self.settings, self._made[place][0]
        inputs = self._inputs(place)
        expected = None
        if settings.is_checked and not settings.manual_check_prog:
            limits = settings.rtol, settings.atol, settings.max_mismatched_ratio
            expected = Expected(self.expected(place, inputs), *limits)
        if not setting.isolated and not isinstance(inputs, TensorSupplyType):
            inputs = tuple(copy.deepcopy(list(inputs)))
        wants_results = settings.is_checked and settings.manual_check_prog is not None
        times = settings.warmup, settings.rep
        return Job(recipe, inputs, setting, *times, 0, expected, wants_results)

    def judge(self, place: int, job: Job, results: Sequence[Any]) -> None:
        """Ask `manual_check_prog`, which raises where results are wrong."""
        judge = self.settings.manual_check_prog
        if judge is not None and job.returns:
            judge(list(results), list(self.expected(place, job.inputs)))

    def tensors(self, place: int, job: Job) -> tuple[Any, ...]:
        """What the kernel of a job is called with, made up or copied."""
        if isinstance(job.inputs, TensorSupplyType):
            return tuple(supply_tensors(self._made[place][0].program, job.inputs))
        return tuple(copy.deepcopy(list(job.inputs)))

    def expected(self, place: int, inputs: tuple[Any, ...] | TensorSupplyType) -> tuple[Any, ...]:
        """What the reference gives for these inputs; asked once for the same ones."""
        reference, program = self.settings.ref_prog, self._made[place][0].program
        assert reference is not None
        key: Any = "given"
        if isinstance(inputs, TensorSupplyType):
            key = input_parameters(program)
            known = self._expected.get(key)
            inputs = () if known is not None else tuple(supply_tensors(program, inputs))
        elif not self.is_steady:
            return tuple(expected_of(program, inputs, reference))
        if key not in self._expected:
            self._expected[key] = tuple(expected_of(program, inputs, reference))
        return self._expected[key]

    def _inputs(self, place: int) -> tuple[Any, ...] | TensorSupplyType:
        recipe, run_time = self._made[place]
        if run_time is not None or self._given is not None:
            return run_time if run_time is not None else self._given or ()
        settings = self.settings
        if settings.supply_prog is None:
            return settings.supply_type
        if self._supplied is None or not settings.cache_input_tensors:
            self._supplied = tuple(
                listed(settings.supply_prog(list(input_parameters(recipe.program))))
            )
        return self._supplied


def _checked(settings: Settings) -> str:
    if settings.ref_prog is None or not settings.is_checked:
        return ""
    limits = settings.rtol, settings.atol, settings.max_mismatched_ratio
    return digest_of(settings.ref_prog, limits)


def form(value: Any) -> Any:
    """What tuning depends on: of a tensor its dtype and shape, of anything else itself."""
    if is_tensor(value):
        return str(value.dtype), tuple(value.shape)
    return type(value), hashable(value)


def is_tensor(value: Any) -> bool:
    """Whether it has a shape and elements of a type."""
    return hasattr(value, "shape") and hasattr(value, "dtype")


def forms_of(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """The forms of a call's tensors."""
    return [form(each) for each in (*args, *kwargs.values()) if is_tensor(each)]
