"""Operands that lanes turn while they read them from shared memory, several lanes together."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from tileworkbench.compiler.layout.atoms import mfma_operand
from tileworkbench.compiler.layout.fragment import Fragment
from tileworkbench.compiler.layout.layout import Layout
from tileworkbench.compiler.lower.threads.registers import register_map


@lru_cache(maxsize=64)
def lanes_that_turn(operand: Fragment, rows: int, lanes: int) -> Layout | None:
    """``lane -> (n, k)`` of the elements that each lane names, for its first registers of `operand`
    over ``[n, k]`` to be loaded by `lanes` that turn blocks of so many rows; None where they lie
    otherwise.
    """
    (edge, depth), slots = operand.shape, operand.slots
    if edge % lanes or slots % rows or operand != mfma_operand(edge, depth):
        return None
    pieces, run = lanes // rows, register_map(operand).run

    def place(lane: Any) -> tuple[Any, Any]:
        first = lane % edge // lanes * lanes
        return first + lane % pieces * rows, lane // edge * run + lane % lanes // pieces

    return Layout((operand.threads,), place)


@lru_cache(maxsize=64)
def turned_blocks(operand: Fragment, rows: int) -> Layout:
    """``number -> k`` of a lane's blocks of so many registers, counted from its first one."""
    registers = register_map(operand)
    apart = next((digit.stride for digit in registers.digits if digit.dim), 0)
    per = registers.run // rows
    return Layout((operand.slots // rows,), lambda x: x % per * rows + x // per * apart)
