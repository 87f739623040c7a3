"""Sizes that follow from those of the arguments, as the manifest has them.

A formula is a number, the name of a symbol or scalar argument, or a list of an operation, the dtype
of its result and its operands. Numbers never wrap around: one that its dtype does not hold is an
error, since the kernel's own arithmetic would go wrong there.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

Formula = int | str | list[Any]


def _toward_zero(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


OPERATIONS: dict[str, Callable[..., int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": operator.floordiv,
    "floormod": operator.mod,
    "truncdiv": _toward_zero,
    "truncmod": lambda a, b: a - b * _toward_zero(a, b),
    "min": min,
    "max": max,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "shl": operator.lshift,
    "shr": operator.rshift,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "logical_and": lambda a, b: bool(a) and bool(b),
    "logical_or": lambda a, b: bool(a) or bool(b),
    "not": operator.not_,
    "neg": operator.neg,
    "abs": abs,
    "select": lambda condition, a, b: a if condition else b,
    "cast": int,
}


class WrappedSizeError(ArithmeticError):
    """A size is `number`, which `dtype` does not hold."""

    def __init__(self, number: int, dtype: str) -> None:
        super().__init__(f"{number} is no '{dtype}'")
        self.number, self.dtype = number, dtype


def evaluate(formula: Formula, numbers: Mapping[str, int]) -> int:
    """The value of a formula. Raises `WrappedSizeError`, and `ZeroDivisionError`."""
    if isinstance(formula, int):
        return formula
    if isinstance(formula, str):
        return numbers[formula]
    operation, dtype, *operands = formula
    value = int(OPERATIONS[operation](*(evaluate(each, numbers) for each in operands)))
    low, high = limits(dtype)
    if not low <= value <= high:
        raise WrappedSizeError(value, dtype)
    return value


def limits(dtype: str) -> tuple[int, int]:
    """The least and the largest integer of "bool", "int32", "uint8" and their like."""
    if dtype == "bool":
        return 0, 1
    if dtype.startswith("uint"):
        return 0, (1 << int(dtype[4:])) - 1
    half = 1 << int(dtype[3:]) - 1
    return -half, half - 1
