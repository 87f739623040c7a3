"""Dtypes of torch in generated kernels: which there are, how they promote, what computes them."""

from __future__ import annotations

from functools import cache
from typing import Any

# What kernels load, compute and store; narrow floats are computed in float32, bytes in int32.
NAMES = (*("float32", "float64", "float16", "bfloat16", "int32", "int64", "int8", "uint8", "bool"),)
_WIDER = {"float16": "float32", "bfloat16": "float32", "int8": "int32", "uint8": "int32"}


@cache
def _by_name() -> dict[str, Any]:
    import torch

    return {name: getattr(torch, name) for name in NAMES}


def name_of(dtype: Any) -> str:
    """The name that torch and T share."""
    return str(dtype).removeprefix("torch.")


def named(name: str) -> Any:
    """torch's dtype of one of `NAMES`."""
    return _by_name()[name]


def is_known(dtype: Any) -> bool:
    """Whether generated kernels have this dtype."""
    return name_of(dtype) in NAMES


def compute_dtype(dtype: Any) -> Any:
    """The dtype that values of `dtype` are computed in."""
    wider = _WIDER.get(name_of(dtype))
    return dtype if wider is None else named(wider)


@cache
def promote(a: Any, b: Any) -> Any:
    """The dtype of `a op b`."""
    import torch

    return torch.promote_types(a, b)


def weak_dtype(value: Any, other: Any) -> Any:
    """The dtype of a Python number beside a tensor of dtype `other`."""
    dtypes = _by_name()
    if isinstance(value, bool):
        return dtypes["bool"]
    if isinstance(value, int):
        return dtypes["int64"] if name_of(other) == "bool" else other
    return other if other.is_floating_point else dtypes["float32"]
