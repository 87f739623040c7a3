"""Whether a function does in kernels what it does in torch: results, gradients, its arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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

_MOVES = 8  # calls that look for jumps: what tips in every second one is hardly missed


@dataclass(frozen=True, slots=True)
class Agreement:
    """A comparison with torch. `max_error` and `tolerance` are absolute, the largest of all results
    and gradients; `gradients` counts the latter. `jumps` counts the elements that differ by more,
    which move as far in torch when its arguments move by a few roundings.
    """

    results: int
    gradients: int
    max_error: float
    tolerance: float
    jumps: int = 0

    def __str__(self) -> str:
        also = f" and {_count(self.gradients, 'gradient')}" if self.gradients else ""
        text = (
            f"agrees with torch in {_count(self.results, 'result')}{also}: largest error "
            f"{format_error(self.max_error)}, tolerance {format_error(self.tolerance)}"
        )
        if not self.jumps:
            return text
        but = f"but for {_count(self.jumps, 'element')}"
        return f"{text}; {but}, which move as far in torch when arguments move by roundings"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What a call left: its results, the arguments and a module's buffers as it left them, the
    gradients of their sum with random weights."""

    results: list[Any]
    arguments: list[Any]
    buffers: list[Any]
    gradients: list[Any]


def compare_with_torch(
    tiled: Tiled, args: Sequence[Any], rtol: float | None, atol: float | None
) -> Agreement:
    """Call `tiled` and the function that it was made of on copies of `args`, with the same random
    numbers. Raises `CheckError`.
    """
    expected, made = (_outcome(tiled.fn, fn, args) for fn in (tiled.fn, tiled))
    worst = limit = 0.0
    jumps = 0
    torchs_own = _Jumps(tiled.fn, args, expected)
    for place, (name, got, want) in enumerate(_pairs(made, expected)):
        own = _relative(tiled, want)
        relative = own if rtol is None else rtol
        error, allowed = _errors(tiled.name, name, got, want, relative, atol)
        bad = ~(error <= allowed)
        if bad.any():
            moved = torchs_own.of(place)
            jumped = bad & (moved > allowed_error(wide(want), own)) & (error <= 2 * moved)
            _raise_for(tiled.name, name, got, want, relative, bad & ~jumped)
            jumps += int(jumped.sum())
            error = np.where(jumped, 0.0, error)
        worst = max(worst, float(error.max(initial=0.0)))
        limit = max(limit, float(allowed.max(initial=0.0)))
    return Agreement(len(expected.results), len(expected.gradients), worst, limit, jumps)


class _Jumps:
    """How far torch's own results move when arguments move by a few roundings.

    Kernels round elsewhere than torch. Where a function jumps (two elements that are nearly equal
    change places in a sort, a comparison tips), results and gradients there may be others, and are
    no errors: torch has them too, for arguments as close as that.
    """

    def __init__(self, fn: Callable[..., Any], args: Sequence[Any], expected: _Outcome) -> None:
        self._fn, self._args, self._expected = fn, args, expected
        self._moved: list[Any] = []

    def of(self, place: int) -> Any:
        """The largest move of each element of a result, argument or gradient; found once."""
        if not self._moved:
            self._moved = [np.zeros(want.shape) for _, _, want in self._of(self._expected)]
            for seed in range(_MOVES):
                moved = _outcome(self._fn, self._fn, self._args, seed)
                for at, (_, got, want) in enumerate(self._of(moved)):
                    if got.shape == want.shape:  # that of `nonzero` may move too
                        move = absolute_error(wide(got), wide(want))
                        self._moved[at] = np.fmax(self._moved[at], move)  # NaN excuses nothing
        return self._moved[place]

    def _of(self, made: _Outcome) -> list[tuple[str, Any, Any]]:
        return _pairs(made, self._expected)


def _relative(tiled: Tiled, want: Any) -> float:
    """The relative tolerance of a tensor."""
    tf32 = any(map(rounds_to_tf32, tiled.kernels.values()))
    return tolerance_of(name_of(want.dtype), tf32=tf32).relative


def _outcome(
    owner: Callable[..., Any],
    fn: Callable[..., Any],
    args: Sequence[Any],
    nudge: int | None = None,
) -> _Outcome:
    """What a call of `fn` leaves; `nudge` is a seed to move what it takes by a rounding."""
    import torch
    from torch.utils import _pytree as trees

    copies = trees.tree_map_only(torch.Tensor, _copy, tuple(args))
    parameters = dict(owner.named_parameters()) if isinstance(owner, torch.nn.Module) else {}
    if nudge is not None:
        random = torch.Generator().manual_seed(nudge)
        parameters = {name: _copy(each) for name, each in parameters.items()}
        for each in (*trees.tree_leaves(copies), *parameters.values()):
            if isinstance(each, torch.Tensor) and each.is_floating_point():
                _nudge(each, nudge, random)
        if parameters:
            fn = functools.partial(torch.func.functional_call, owner, parameters)
    with torch.random.fork_rng(devices=[]), _kept_buffers(owner) as buffers:
        torch.manual_seed(0)
        results = trees.tree_leaves(fn(*copies))
        tensors = [each for each in results if isinstance(each, torch.Tensor)]
        arguments = [each for each in trees.tree_leaves(copies) if isinstance(each, torch.Tensor)]
        inputs = [each for each in (*arguments, *parameters.values()) if each.requires_grad]
        outputs = [each for each in tensors if each.requires_grad]
        gradients: list[Any] = []
        if inputs and outputs:
            # Ones would cancel: the sum of a softmax does not depend on anything.
            random = torch.Generator().manual_seed(0)
            weights = [torch.randn(each.shape, generator=random).to(each.dtype) for each in outputs]
            made = torch.autograd.grad(outputs, inputs, weights, allow_unused=True)
            gradients = [each for each in made if each is not None]
        left = [each.detach().clone() for each in buffers]
    plain = [each.detach() for each in arguments]
    return _Outcome([each.detach() for each in tensors], plain, left, gradients)


def _copy(tensor: Any) -> Any:
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


def _nudge(tensor: Any, seed: int, random: Any) -> None:
    """Move each element by up to a rounding; by up to 8 where sums are of the same dtype."""
    import torch

    most = 1 if tensor.itemsize < 4 else 2 ** (seed // 2)
    with torch.no_grad():
        roundings = torch.randint(-most, most + 1, tensor.shape, generator=random)
        tensor.mul_(1 + roundings * torch.finfo(tensor.dtype).eps)


@contextmanager
def _kept_buffers(owner: Any) -> Iterator[list[Any]]:
    """A module's buffers, which a call in training may write to; they are put back."""
    import torch

    buffers = list(owner.buffers()) if isinstance(owner, torch.nn.Module) else []
    kept = [each.detach().clone() for each in buffers]
    try:
        yield buffers
    finally:
        with torch.no_grad():
            for each, old in zip(buffers, kept, strict=True):
                each.copy_(old)


def _pairs(made: _Outcome, expected: _Outcome) -> list[tuple[str, Any, Any]]:
    """(name, tensor, that of torch) of all that a call left. Raises `CheckError`."""
    pairs = []
    for kind in ("result", "argument", "buffer", "gradient"):
        got, want = getattr(made, f"{kind}s"), getattr(expected, f"{kind}s")
        if len(got) != len(want):
            raise CheckError(f"there are {_count(len(got), kind)}, torch has {len(want)}")
        both = enumerate(zip(got, want, strict=True))
        pairs += [(f"{kind} {place}", mine, torchs) for place, (mine, torchs) in both]
    return pairs


def _errors(
    fn: str, name: str, got: Any, want: Any, relative: float, atol: float | None
) -> tuple[Any, Any]:
    """(errors, tolerances) of the elements of one tensor. Raises `CheckError`."""
    if got.shape != want.shape or got.dtype != want.dtype:
        raise CheckError(
            f"{name} of '{fn}' is {name_of(got.dtype)} {tuple(got.shape)}, that of torch "
            f"{name_of(want.dtype)} {tuple(want.shape)}"
        )
    return absolute_error(wide(got), wide(want)), allowed_error(wide(want), relative, atol)


def _raise_for(fn: str, name: str, got: Any, want: Any, relative: float, bad: Any) -> None:
    """Raise `CheckError` if elements are bad."""
    if not bad.any():
        return
    first = tuple(int(i) for i in np.argwhere(bad)[0])
    raise CheckError(
        f"'{fn}' in kernels disagrees with torch in {int(bad.sum())} of {bad.size} elements of "
        f"{name}: first at {list(first)}, where it is {wide(got)[first]:.6g} instead of "
        f"{wide(want)[first]:.6g}; the relative tolerance is {relative:g}",
        hint=f"{fn}['NAME'] is a kernel of it, with its source and a reference for a check",
    )
