"""A kernel of the library against its torch reference, natively and in the simulator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

import tileworkbench as tw
from tests.tolerances import assert_within

DTYPES = ("float32", "float16", "bfloat16")


def random(*shape: int, dtype: str = "float32", seed: int = 0) -> torch.Tensor:
    """Standard normal floats, or integers over the whole range of an integer dtype."""
    generator = torch.Generator().manual_seed(seed * 1000 + len(shape) + sum(shape))
    kind = getattr(torch, dtype)
    if kind.is_floating_point:
        return torch.randn(shape, generator=generator).to(kind)
    info = torch.iinfo(kind)
    return torch.randint(info.min, info.max + 1, shape, generator=generator).to(kind)


def check_kernel(
    program: Any,
    arguments: Sequence[Any],
    expected: torch.Tensor | Sequence[torch.Tensor],
    scale: Any = 1.0,
    steps: float = 1.0,
    inner: str = "float32",
    simulated: bool = False,
) -> None:
    """`program` gives `expected`, natively, and where `simulated` also in the simulator: there
    nothing is wrong with its accesses, and every pass keeps the result.

    An element may be off by `steps` roundings to the dtype `inner` at magnitude `scale` (a number
    or a tensor; one per output in a list) and one rounding to the output's own dtype. What is too
    small for these dtypes may be lost.
    """
    kernel = tw.compile(program)
    compare(kernel(*arguments), expected, scale, steps, inner)
    if not simulated:
        return
    result = kernel.simulate(*arguments, stage="tile")
    assert result.report.ok, str(result.report)
    compare(result.outputs, expected, scale, steps, inner)
    validation = kernel.validate(*arguments)
    assert validation.ok, str(validation)


def compare(found: Any, expected: Any, scale: Any, steps: float, inner: str) -> None:
    """The outputs of a run are `expected`; see `check_kernel`."""
    found, expected = _listed(found), _listed(expected)
    scales = scale if isinstance(scale, list) else [scale] * len(found)
    for output, reference, size in zip(found, expected, scales, strict=True):
        array, exact = _array(output), _array(reference).astype(np.float64)
        wide = array.dtype if array.dtype.kind in "iub" else np.float64
        (own, least), (unit, lost) = _limits(output.dtype), _limits(getattr(torch, inner))
        bound = steps * unit * np.abs(_array(size)) + own * np.abs(exact) + own * least + lost
        assert_within(array.astype(wide), exact, bound)


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _array(value: Any) -> np.ndarray[Any, Any]:
    if isinstance(value, torch.Tensor):
        value = value.double().numpy() if value.is_floating_point() else value.numpy()
    return np.asarray(value)


def _limits(dtype: Any) -> tuple[float, float]:
    """The spacing at 1 and the smallest normal number; zeros for integers."""
    kind = getattr(torch, str(dtype).removeprefix("torch."))
    if not kind.is_floating_point:
        return 0.0, 0.0
    info = torch.finfo(kind)
    return info.eps, info.tiny
