"""Integers and addresses of LLVM IR that are known without running it.

An address is the name of what it points into, a parameter or an `alloca`, and an offset in bytes.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping

from tileworkbench.bench.llvm.instructions import Instruction
from tileworkbench.compiler.fast_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """An address."""

    base: str
    offset: int


Value = int | Place
Values = dict[str, Value]

_SIGNED: Mapping[str, Callable[[int, int], int]] = {
    **{"add": operator.add, "sub": operator.sub, "mul": operator.mul, "shl": operator.lshift},
    **{"ashr": operator.rshift, "and": operator.and_, "or": operator.or_, "xor": operator.xor},
    **{"sdiv": lambda a, b: int(a / b), "srem": lambda a, b: int(math.fmod(a, b))},
}
_UNSIGNED: Mapping[str, Callable[[int, int], int]] = {
    **{"lshr": operator.rshift, "udiv": operator.floordiv, "urem": operator.mod}
}
_COMPARED: Mapping[str, Callable[[int, int], bool]] = {
    **{"eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le},
    **{"gt": operator.gt, "ge": operator.ge},
}


def value_of(values: Values, arg: str) -> Value | None:
    """The value of an operand, None where it is not known."""
    if arg.startswith("%"):
        return values.get(arg)
    if arg in ("true", "false"):
        return int(arg == "true")
    return int(arg) if arg.lstrip("-").isdigit() else None


def evaluate(instruction: Instruction, values: Values) -> Value | None:
    """The value of an instruction without lanes, None where it is not known."""
    op, kind = instruction.op, instruction.kind
    if op == "load":  # the flag that asks a launch to stop
        return 0 if instruction.detail == "atomic" else None
    if kind.lanes > 1 or kind.is_float:
        return None
    if op == "alloca":
        return Place(instruction.name, 0)
    args = [value_of(values, arg) for arg in instruction.args]
    if op == "getelementptr":
        return _place(instruction, args)
    if op == "select":
        taken = args[0]
        return args[1 if taken else 2] if isinstance(taken, int) else None
    if op == "freeze":
        return args[0]
    if op == "call" and instruction.detail.startswith("llvm.expect"):
        return args[1]
    numbers = [arg for arg in args if isinstance(arg, int)]
    return _number(instruction, numbers) if numbers and len(numbers) == len(args) else None


def compare(predicate: str, first: int, second: int, bits: int) -> bool:
    """An `icmp` of two numbers of so many bits."""
    if predicate[0] == "u":
        first, second = _low(first, bits), _low(second, bits)
    name = predicate if predicate in ("eq", "ne") else predicate[1:]
    return _COMPARED[name](first, second)


def _place(instruction: Instruction, args: list[Value | None]) -> Place | None:
    base, *indices = args
    if not isinstance(base, Place):
        return None
    offset = base.offset
    for index, stride in zip(indices, instruction.strides, strict=False):
        if not isinstance(index, int):
            return None
        offset += index * stride
    return Place(base.base, offset)


def _number(instruction: Instruction, args: list[int]) -> int | None:
    op, bits = instruction.op, instruction.kind.bits
    try:
        if op in _SIGNED:
            return _signed(_SIGNED[op](*args), bits)
        if op in _UNSIGNED:
            return _signed(_UNSIGNED[op](*(_low(arg, bits) for arg in args)), bits)
    except (ValueError, ZeroDivisionError):
        return None
    if op == "icmp":
        first, second = args
        return int(compare(instruction.detail, first, second, bits))
    if op == "sext":
        return -args[0] if instruction.source.bits == 1 else args[0]
    if op == "zext":
        return _low(args[0], instruction.source.bits)
    if op == "trunc":
        return _signed(args[0], bits)
    if op == "call" and instruction.detail.startswith(("llvm.smin", "llvm.umin")):
        return min(args)
    if op == "call" and instruction.detail.startswith(("llvm.smax", "llvm.umax")):
        return max(args)
    return None


def _low(number: int, bits: int) -> int:
    return number & ((1 << bits) - 1)


def _signed(number: int, bits: int) -> int:
    number = _low(number, bits)
    return number - (1 << bits) if bits > 1 and number >> (bits - 1) else number


def step(before: Value | None, after: Value | None) -> int | None:
    """How far a value moves, None where that is not known."""
    if isinstance(before, int) and isinstance(after, int):
        return after - before
    if isinstance(before, Place) and isinstance(after, Place) and before.base == after.base:
        return after.offset - before.offset
    return None


def moved(value: Value | None, by: int | None) -> Value | None:
    """A value so far on."""
    if value is None or by is None:
        return value if by == 0 else None
    return Place(value.base, value.offset + by) if isinstance(value, Place) else value + by
