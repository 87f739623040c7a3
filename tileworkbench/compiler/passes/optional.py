"""Which passes a compilation can do without."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.program import Program

Pass = Callable[[Program], Program]
Found = TypeVar("Found", bound=Callable[..., Any])

_OPTIONAL = "optional_pass"


@dataclass(frozen=True, slots=True)
class Optional:
    """What programs lack without a pass, and what runs in its place, made from the pass itself;
    nothing where programs are right as they are.
    """

    lost: str
    instead: Callable[[Any], Pass] | None


def optional(lost: str, instead: Callable[[Any], Pass] | None = None) -> Callable[[Found], Found]:
    """Declare that programs are right without this pass, or with `instead` in its place.

    It is a decorator of the pass, so that the fact stands in one place.
    """

    def declare(pass_: Found) -> Found:
        setattr(pass_, _OPTIONAL, Optional(lost, instead))
        return pass_

    return declare


def lost_without(pass_: Pass) -> str:
    """What programs lack without this pass; empty for one that no program can do without."""
    declared: Optional | None = getattr(pass_, _OPTIONAL, None)
    return "" if declared is None else declared.lost


def in_place_of(pass_: Pass) -> Pass | None:
    """What runs where this optional pass is switched off; None: nothing."""
    declared: Optional = getattr(pass_, _OPTIONAL)
    return None if declared.instead is None else declared.instead(pass_)
