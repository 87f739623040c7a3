"""Rounded quotients, remainders and powers, of which those of integers are exact.

Integers are divided by numbers alone: torch raises an error where a tensor has a 0.
"""

from __future__ import annotations

from typing import Any

from tileworkbench.pytorch import formulas
from tileworkbench.pytorch.dtypes import name_of
from tileworkbench.pytorch.terms import (
    Keep,
    NoRuleError,
    Term,
    binary,
    bitwise,
    call,
    of_floats,
    promoted,
    select,
)

_LARGEST_EXPONENT = 64  # that T multiplies out


def divided(keep: Keep, x: Any, y: Any, rounding_mode: str | None = None) -> Term:
    """The quotient, rounded as torch's modes say."""
    if rounding_mode == "floor":
        return floor_divided(keep, x, y)
    return x / y if rounding_mode is None else truncated_quotient(x, y)


def truncated_quotient(x: Any, y: Any) -> Term:
    x, y, common = promoted(x, y)
    if common.is_floating_point:
        return formulas.rounding("trunc")(x / y)
    return call("truncdiv", x.to(common), _divisor(y, common))


def floor_divided(keep: Keep, x: Any, y: Any) -> Term:
    """The quotient, rounded down. That of floats follows from the remainder, which is exact: a
    quotient just below a whole number is rounded up to it. A zero has the quotient's sign.
    """
    x, y, common = promoted(x, y)
    if not common.is_floating_point:
        return binary("//", x.to(common), _divisor(y, common))
    quotient = keep("quotient", x / y)
    if y.op == "number" and not y.args[0]:
        return quotient
    rest = keep("rest", of_floats("fmod", x, y))
    whole = keep("whole", (x - rest) / y)
    below = keep("below", select(_is_across(rest, y), whole - 1.0, whole))
    rounded = call("copysign", formulas.rounding("round")(below), quotient)
    return rounded if y.op == "number" else select(y.equals(0), quotient, rounded)


def _is_across(rest: Term, y: Term) -> Term:
    """Whether a remainder is on the other side of 0 than its divisor."""
    if y.op == "number":
        return rest < 0 if y.args[0] > 0 else rest > 0
    return call("And", rest.differs(0), (rest < 0).differs(y < 0), dtype=(y < 0).dtype)


def _divisor(y: Term, common: Any) -> int:
    """What integers are divided by, which are of this dtype."""
    if name_of(common) == "bool":
        raise NoRuleError("a division of bools")
    if y.op != "number":
        raise NoRuleError("integers divided by a tensor, where torch raises an error for a 0")
    if not y.args[0]:
        raise NoRuleError("a division by 0")
    return int(y.args[0])


def floor_remainder(keep: Keep, x: Any, y: Any) -> Term:
    """The remainder with the sign of the divisor."""
    x, y, common = promoted(x, y)
    if not common.is_floating_point:
        return binary("%", x.to(common), _divisor(y, common))
    rest = keep("rest", of_floats("fmod", x, y))
    return select(_is_across(rest, y), rest + y, rest)


def truncated_remainder(x: Any, y: Any) -> Term:
    """The remainder with the sign of what is divided."""
    x, y, common = promoted(x, y)
    if common.is_floating_point:
        return of_floats("fmod", x, y)
    return call("truncmod", x.to(common), _divisor(y, common))


def power(x: Term, exponent: Any) -> Term:
    base, _, common = promoted(x, exponent)
    if common.is_floating_point:
        return formulas.power(x, exponent)
    return _power_of_integer(base.to(common), exponent)


def _power_of_integer(x: Term, exponent: Any) -> Term:
    if isinstance(exponent, Term) or x.is_bool:
        raise NoRuleError("integers to the power of a tensor, or bools")
    if exponent < 0:
        raise NoRuleError("integers to a negative power, for which torch raises an error")
    if exponent > _LARGEST_EXPONENT:
        raise NoRuleError(f"integers to the power of {exponent}")
    return x * x if exponent == 2 else call("pow", x, exponent)


def power_of_number(base: Any, exponent: Term) -> Term:
    common = promoted(base, exponent)[2]
    if base != 2:
        return of_floats("pow", base, exponent)
    is_float = common.is_floating_point
    return formulas.exp2(exponent) if is_float else _shifted_one(exponent.to(common))


def _shifted_one(count: Term) -> Term:
    """The integer 2 to the power of an integer: 0 where that is less than 1, or too large."""
    room = 8 * count.dtype.itemsize
    has_room = call("And", count >= 0, count < room, dtype=(count >= 0).dtype)
    return select(has_room, bitwise("<<", 1, count), 0)
