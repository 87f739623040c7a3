"""Results held against a reference, where a small part of the elements may differ."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tileworkbench.bench.units import format_percent
from tileworkbench.compiler.analysis.effects import written_below
from tileworkbench.compiler.diagnostics import ArgumentError, CheckError
from tileworkbench.compiler.ir.program import Program
from tileworkbench.workbench.checking import absolute_error, allowed_error, listed, wide

if TYPE_CHECKING:
    from tileworkbench.workbench.kernel import Kernel


def assert_close(
    actual: Any,
    expected: Any,
    rtol: float = 1e-2,
    atol: float = 1e-3,
    max_mismatched_ratio: float = 0.001,
    name: str = "the result",
) -> None:
    """Compare two torch tensors or numpy arrays of one shape.

    An element differs where |actual - expected| > atol + rtol |expected|. NaN equals NaN, and an
    infinity equals itself alone. Raises `CheckError`, an `AssertionError`, when more than
    `max_mismatched_ratio` of them differ.
    """
    got, want = wide(actual), wide(expected)
    if got.shape != want.shape:
        raise CheckError(f"{name} has shape {got.shape}, the reference {want.shape}")
    error = absolute_error(got, want)
    bad = ~(error <= allowed_error(want, rtol, atol))
    count = int(bad.sum())
    if count <= max_mismatched_ratio * got.size:
        return
    first = tuple(int(i) for i in np.argwhere(bad)[0])
    raise CheckError(
        f"{name} disagrees with the reference in {count} of {got.size} elements, "
        f"{format_percent(max_mismatched_ratio)} may: first at {list(first)}, where it is "
        f"{got[first]:.6g} instead of {want[first]:.6g}; largest error "
        f"{np.nanmax(error[bad], initial=0.0):.3g}"
    )


def results_of(kernel: Kernel, inputs: Sequence[Any]) -> list[Any]:
    """What a call on copies of `inputs` returns; where that is nothing, the parameters that it has
    written.
    """
    mine = copy.deepcopy(list(inputs))
    return listed(kernel(*mine)) or [mine[at] for at in _written(kernel.program)]


def expected_of(
    program: Program, inputs: Sequence[Any], reference: Callable[..., Any]
) -> list[Any]:
    """What `results_of` a kernel should be: what `reference` returns for copies of `inputs`, or,
    where neither returns anything, what it has written.
    """
    theirs = copy.deepcopy(list(inputs))
    want = listed(reference(*theirs))
    if want or any(param.output for param in program.params):
        return want
    return [theirs[at] for at in _written(program)]


def paired(name: str, got: Sequence[Any], want: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Results with what they should be. Raises `ArgumentError` for different numbers of them."""
    if len(got) != len(want):
        outputs = "1 output" if len(got) == 1 else f"{len(got)} outputs"
        raise ArgumentError(f"'{name}' has {outputs}, the reference {len(want)}")
    return list(zip(got, want, strict=True))


def result_pairs(
    kernel: Kernel, inputs: Sequence[Any], reference: Callable[..., Any]
) -> list[tuple[Any, Any]]:
    """(what the kernel gives, what the reference gives) for each output, on copies of `inputs`.

    Outputs are what is returned. Where the kernel returns nothing they are the parameters it
    writes, which the reference returns too, or writes like the kernel. Raises `ArgumentError` for
    different numbers of outputs.
    """
    got = results_of(kernel, inputs)
    return paired(kernel.name, got, expected_of(kernel.program, inputs, reference))


def _written(program: Program) -> list[int]:
    """The places of the parameters that a kernel writes, among those that a caller passes."""
    written = written_below(program.body)
    params = [param.value for param in program.params if not param.output]
    return [at for at, value in enumerate(params) if value in written]
