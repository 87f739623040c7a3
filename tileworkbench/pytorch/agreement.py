"""Whether a function does in kernels what it does in torch: results, gradients, its arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tileworkbench.bench.units import format_error
from tileworkbench.compiler.diagnostics import CheckError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.pytorch.dtypes import name_of
from tileworkbench.workbench.checking import (
    absolute_error,
    allowed_error,
    rounds_to_tf32,
    tolerance_of,
    wide,
)

if TYPE_CHECKING:
    from tileworkbench.pytorch.tiled import Tiled


@dataclass(frozen=True, slots=True)
class Agreement:
    """A comparison with torch. `max_error` and `tolerance` are absolute, the largest of all results
    and gradients; `gradients` counts the latter.
    """

    results: int
    gradients: int
    max_error: float
    tolerance: float

    def __str__(self) -> str:
        also = f" and {_count(self.gradients, 'gradient')}" if self.gradients else ""
        return (
            f"agrees with torch in {_count(self.results, 'result')}{also}: largest error "
            f"{format_error(self.max_error)}, tolerance {format_error(self.tolerance)}"
        )


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What a call left: its results, the arguments as it left them, the gradients of their
    sum with random weights."""

    results: list[Any]
    arguments: list[Any]
    gradients: list[Any]


def compare_with_torch(
    tiled: Tiled, args: Sequence[Any], rtol: float | None, atol: float | None
) -> Agreement:
    """Call `tiled` and the function that it was made of on copies of `args`, with the same random
    numbers. Raises `CheckError`.
    """
    expected, made = (_outcome(tiled.fn, fn, args) for fn in (tiled.fn, tiled))
    worst = limit = 0.0
    pairs = [
        *_pairs("result", made.results, expected.results),
        *_pairs("argument", made.arguments, expected.arguments),
        *_pairs("gradient", made.gradients, expected.gradients),
    ]
    for name, got, want in pairs:
        relative = _relative(tiled, want) if rtol is None else rtol
        error, allowed = _compared(tiled.name, name, got, want, relative, atol)
        worst, limit = max(worst, error), max(limit, allowed)
    return Agreement(len(expected.results), len(expected.gradients), worst, limit)


def _relative(tiled: Tiled, want: Any) -> float:
    """The relative tolerance of a tensor."""
    tf32 = any(map(rounds_to_tf32, tiled.kernels.values()))
    return tolerance_of(name_of(want.dtype), tf32=tf32).relative


def _outcome(owner: Callable[..., Any], fn: Callable[..., Any], args: Sequence[Any]) -> _Outcome:
    import torch
    from torch.utils import _pytree as trees

    copies = trees.tree_map_only(torch.Tensor, _copy, tuple(args))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        results = trees.tree_leaves(fn(*copies))
    tensors = [each for each in results if isinstance(each, torch.Tensor)]
    arguments = [each for each in trees.tree_leaves(copies) if isinstance(each, torch.Tensor)]
    inputs = [each for each in arguments if each.requires_grad]
    if isinstance(owner, torch.nn.Module):
        inputs += [each for each in owner.parameters() if each.requires_grad]
    outputs = [each for each in tensors if each.requires_grad]
    gradients: list[Any] = []
    if inputs and outputs:
        # Ones would cancel: the sum of a softmax does not depend on anything.
        random = torch.Generator().manual_seed(0)
        weights = [torch.randn(each.shape, generator=random).to(each.dtype) for each in outputs]
        made = torch.autograd.grad(outputs, inputs, weights, allow_unused=True)
        gradients = [each for each in made if each is not None]
    plain = [each.detach() for each in arguments]
    return _Outcome([each.detach() for each in tensors], plain, gradients)


def _copy(tensor: Any) -> Any:
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


def _pairs(kind: str, made: list[Any], expected: list[Any]) -> list[tuple[str, Any, Any]]:
    if len(made) != len(expected):
        raise CheckError(f"there are {_count(len(made), kind)}, torch has {len(expected)}")
    return [
        (f"{kind} {place}", got, want)
        for place, (got, want) in enumerate(zip(made, expected, strict=True))
    ]


def _compared(
    fn: str, name: str, got: Any, want: Any, relative: float, atol: float | None
) -> tuple[float, float]:
    """(largest error, largest tolerance) of one tensor. Raises `CheckError`."""
    if got.shape != want.shape or got.dtype != want.dtype:
        raise CheckError(
            f"{name} of '{fn}' is {name_of(got.dtype)} {tuple(got.shape)}, that of torch "
            f"{name_of(want.dtype)} {tuple(want.shape)}"
        )
    actual, wanted = wide(got), wide(want)
    allowed = allowed_error(wanted, relative, atol)
    error = absolute_error(actual, wanted)
    bad = ~(error <= allowed)
    if bad.any():
        first = tuple(int(i) for i in np.argwhere(bad)[0])
        raise CheckError(
            f"'{fn}' in kernels disagrees with torch in {int(bad.sum())} of {bad.size} elements of "
            f"{name}: first at {list(first)}, where it is {actual[first]:.6g} instead of "
            f"{wanted[first]:.6g}; the relative tolerance is {relative:g}",
            hint=f"{fn}['NAME'] is a kernel of it, with its source and a reference for a check",
        )
    return float(error.max(initial=0.0)), float(allowed.max(initial=0.0))
