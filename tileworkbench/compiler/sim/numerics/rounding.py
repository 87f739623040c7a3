"""How far values are from exact ones: absolute, relative, and in units in the last place."""

from __future__ import annotations

from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.types import DType
from tileworkbench.compiler.sim.values import storage_dtype

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Grid:
    """The finite numbers of a floating type: `digits` after the leading one, and the exponent of
    the least normal number.
    """

    digits: int
    least: int


@cache
def grid_of(dtype: DType) -> Grid:
    """The numbers of `dtype`."""
    if dtype.scalar == "tfloat32":
        return Grid(10, -126)
    storage = storage_dtype(dtype)
    # numpy knows its own types only, and ml_dtypes has no annotations.
    information: Any = np.finfo if storage.isbuiltin == 1 else ml_dtypes.finfo
    limits = information(storage)
    return Grid(int(limits.nmant), int(limits.minexp))


def unit(exact: Array, dtype: DType) -> Array:
    """The distance between neighbouring numbers of `dtype` where `exact` (float64) lies: one unit
    in the last place.
    """
    exponent = np.asarray(exact, np.float64).view(np.int64) >> 52 & 0x7FF
    return np.asarray(_units(dtype)[exponent])


@cache
def _units(dtype: DType) -> Array:
    """The same by the exponent of a float64 as it is stored: 0 of zero, 1023 of one."""
    grid = grid_of(dtype)
    normal = np.maximum(np.arange(2048) - 1023, grid.least)
    return np.asarray(np.ldexp(1.0, normal - grid.digits))


@dataclass(frozen=True, slots=True)
class Errors:
    """The largest errors of some elements: absolute, relative, in units in the last place of the
    element itself (`ulp`) and of the largest element (`scaled`). `worst` is the number of the
    element with the largest absolute error.

    Where a value is infinite or NaN and the exact one is another, its error is infinite.
    """

    absolute: float
    relative: float
    ulp: float
    scaled: float
    worst: int


def errors_of(values: Array, exact: Array, dtype: DType) -> Errors:
    """The errors of `values` (any floating type; at least one) against `exact` (float64)."""
    wide = values.astype(np.float64).reshape(-1)
    exact = np.broadcast_to(exact, values.shape).reshape(-1)
    with np.errstate(invalid="ignore"):  # infinity less infinity
        error = np.abs(wide - exact)
    if not np.isfinite(error.max()):
        same = (wide == exact) | (np.isnan(wide) & np.isnan(exact))
        error = np.where(same, 0.0, np.where(np.isfinite(error), error, np.inf))
    absolute, worst = float(error.max()), int(error.argmax())
    if absolute == 0:
        return Errors(0.0, 0.0, 0.0, 0.0, 0)
    size = np.abs(exact)
    if not np.isfinite(size.max()):
        size = np.where(np.isfinite(size), size, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):  # of what should be zero, and is
        relative = float(np.fmax.reduce(error / size))
    ulp = float((error / unit(size, dtype)).max())
    return Errors(absolute, relative, ulp, absolute / float(unit(size.max(), dtype)), worst)
