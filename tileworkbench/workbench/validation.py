"""Which pass broke a result: every snapshot of a compilation, simulated on the same arguments."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tileworkbench.compiler.diagnostics import RunError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.workbench.checking import (
    absolute_error,
    allowed_error,
    rounds_to_tf32,
    tolerance_of,
    wide,
)
from tileworkbench.workbench.simulation import run_program

if TYPE_CHECKING:
    from tileworkbench.compiler.sim.simulate import SimResult
    from tileworkbench.workbench.kernel import Kernel

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Validation:
    """The outcome of `validate`: every stage in order with its largest deviation from the first.

    `first_wrong` names the pass after which a result differs, or after which the simulator finds
    something wrong that it does not find in the front end's program; None when there is none.
    `finding` says what it found, if that is what is wrong.
    """

    stages: tuple[tuple[str, float], ...]
    first_wrong: str | None
    finding: str = ""

    @property
    def ok(self) -> bool:
        """Whether all stages agree."""
        return self.first_wrong is None

    @property
    def joined(self) -> str:
        """The same about wrong elements that are known: ``first wrong after pass widen_blocks``."""
        if self.first_wrong is None:
            return f"wrong as written: all {len(self.stages)} stages agree"
        return f"first wrong after pass {self.first_wrong}"

    def __str__(self) -> str:
        if self.first_wrong is None:
            return f"all {len(self.stages)} stages agree"
        if self.finding:
            return f"wrong after pass '{self.first_wrong}': {self.finding}"
        return f"the result changes after pass '{self.first_wrong}'"


def validate_passes(
    kernel: Kernel, args: Sequence[Any], progress: Callable[[int, int], None] | None = None
) -> Validation:
    """Simulate the front end's program and every snapshot on the same arguments; `progress` hears
    after each how many of how many are done.
    """
    total = 1 + sum(snapshot.changed for snapshot in kernel.passes)
    for validation in validation_steps(kernel, args):
        if progress is not None:
            progress(len(validation.stages), total)
    join_errors(kernel, args, validation)
    return validation


def join_errors(kernel: Kernel, args: Sequence[Any], validation: Validation) -> None:
    """Say in the kernel's error map which pass made its elements wrong, where `args` are those of
    the check that failed.
    """
    if kernel._failed is None:
        return
    errors, failed = kernel._failed
    if len(args) == len(failed) and all(map(operator.is_, args, failed)):
        kernel._failed = replace(errors, bisected=validation.joined), failed


def validation_steps(kernel: Kernel, args: Sequence[Any]) -> Iterator[Validation]:
    """The same stage by stage: what is known after each."""
    origin = run_program(kernel.program, kernel.program, args)
    first = _results(kernel, origin)
    tf32 = rounds_to_tf32(kernel)
    validation = Validation((("tile", 0.0),), None)
    yield validation
    for snapshot in kernel.passes:
        if not snapshot.changed:
            continue
        try:
            result = run_program(kernel.program, snapshot.program, args)
        except RunError as error:
            worst, violation = float("inf"), error.message
        else:
            pairs = zip(_results(kernel, result), first, strict=True)
            worst = max((_deviation(a, b, tf32) for a, b in pairs), default=0.0)
            violation = _new_violation(origin, result, kernel.target)
        validation = replace(validation, stages=(*validation.stages, (snapshot.name, worst)))
        if validation.ok and (worst > 1.0 or violation):
            validation = replace(validation, first_wrong=snapshot.name, finding=violation)
        yield validation


def _new_violation(first: SimResult, later: SimResult, target: str) -> str:
    """What is wrong in a later run though nothing was in the first, else empty.

    Vectors of a CPU also read what no lane uses: what was never written shows in the results.
    """
    if not first.report.ok:
        return ""
    harmless = later.report.uninitialised if target.startswith("cpu") else ()
    wrong = [finding for finding in later.report.findings if finding not in harmless]
    return f"{wrong[0].kind}: {wrong[0]}" if wrong else ""


def _results(kernel: Kernel, result: SimResult) -> list[tuple[Array, str]]:
    """Every tensor after a run, in the order of the parameters, with its dtype."""
    tensors = [p.value for p in kernel.program.params if isinstance(p.value, Buffer)]
    return [(wide(result.arrays[b.name]).reshape(-1), str(b.dtype)) for b in tensors]


def _deviation(result: tuple[Array, str], expected: tuple[Array, str], tf32: bool) -> float:
    """The largest error in units of the dtype's tolerance."""
    (a, dtype), (b, _) = result, expected
    allowed = allowed_error(b, tolerance_of(dtype, tf32=tf32).relative)
    error = absolute_error(a, b)
    error = np.where(np.isnan(error), np.inf, error)
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.max(np.where(error == 0, 0.0, error / allowed), initial=0.0))
