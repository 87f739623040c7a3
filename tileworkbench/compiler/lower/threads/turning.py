"""Operands that lanes turn while they read them from shared memory, 16 together."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from tileworkbench.compiler.layout.atoms import mfma_operand
from tileworkbench.compiler.layout.fragment import Fragment
from tileworkbench.compiler.layout.layout import Layout

_LANES = 16
_BITS = 64  # that each lane names, and gets


def turned_rows(bits: int) -> int:
    """Rows of a block that 16 lanes turn, and elements of a row that each of them names."""
    return _BITS // bits


@lru_cache(maxsize=64)
def lanes_that_turn(operand: Fragment, rows: int) -> Layout | None:
    """``lane -> (n, k)`` of the elements that each lane names, for its first registers of `operand`
    over ``[n, k]`` to be loaded by lanes that turn blocks of so many rows; None where they lie
    otherwise.
    """
    (edge, depth), slots = operand.shape, operand.slots
    if edge % _LANES or slots % rows or operand != mfma_operand(edge, depth):
        return None
    pieces = _LANES // rows  # of a row

    def place(lane: Any) -> tuple[Any, Any]:
        first = lane % edge // _LANES * _LANES
        row = lane // edge * slots + lane % _LANES // pieces
        return first + lane % pieces * rows, row

    return Layout((operand.threads,), place)
