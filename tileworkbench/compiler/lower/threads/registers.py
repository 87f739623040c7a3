"""Which element each register of a lane holds, read off the fragment of an instruction's operand.

An element's index is the sum of what the lane contributes and what the register's number does,
digit by digit. So code for all registers of a lane is a loop for each digit of the number, and what
follows one another along the last dimension is a vector.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.build import add, int_const
from tileworkbench.compiler.ir.expr import Expr
from tileworkbench.compiler.ir.stmt import Stmt
from tileworkbench.compiler.layout.fragment import Fragment
from tileworkbench.compiler.layout.layout import Layout
from tileworkbench.compiler.lower.threads.context import ThreadContext
from tileworkbench.compiler.lower.threads.formulas import map_exprs
from tileworkbench.compiler.lower.threads.loops import scale, unrolled

_NAMES = ("b", "p")  # loops that walk the blocks of an operand along its rows and its columns


@dataclass(frozen=True, slots=True)
class _Digit:
    """`extent` steps of `slots` registers, which go `stride` elements along dimension `dim`."""

    slots: int
    extent: int
    dim: int
    stride: int


@dataclass(frozen=True, slots=True)
class RegisterMap:
    """The registers of a lane for one operand of `rows` x `columns` elements.

    `lanes` is the element ``lane -> (row, column)`` of the first register; the next ones hold `run`
    elements side by side in a row, and `digits` say where the others are, the slowest first.
    """

    lanes: Layout
    run: int
    digits: tuple[_Digit, ...]

    @property
    def across(self) -> tuple[int, int]:
        """How many neighbouring rows a lane has, and how many registers apart they are."""
        near = (digit for digit in self.digits if digit.dim == 0 and digit.stride == 1)
        return next(((digit.extent, digit.slots) for digit in near), (1, 0))

    def first(self, context: ThreadContext) -> tuple[Expr, Expr]:
        """Row and column of this lane's first register."""
        member = context.member(self.lanes.size)
        row, column = map_exprs(self.lanes.mapping, (member,))
        return row, column

    def each_run(
        self,
        context: ThreadContext,
        body: Callable[[Expr, Expr, Expr], Stmt],
        site: int,
        across: bool = False,
    ) -> Stmt:
        """`body` for each `run` registers: the first one's number, and how far its row and its
        column are from those of register 0. With `across` it takes neighbouring rows at once.
        """
        digits = [each for each in self.digits if not across or (each.dim, each.stride) != (0, 1)]
        zero = int_const(0)

        def loop(depth: int, slot: Expr, at: tuple[Expr, Expr]) -> Stmt:
            if depth == len(digits):
                return body(slot, *at)
            digit = digits[depth]

            def step(x: Expr) -> Stmt:
                moved = [*at]
                moved[digit.dim] = add(at[digit.dim], scale(x, digit.stride))
                return loop(depth + 1, add(slot, scale(x, digit.slots)), (moved[0], moved[1]))

            return unrolled(context, _NAMES[digit.dim], digit.extent, step, site)

        return loop(0, zero, (zero, zero))


@lru_cache(maxsize=256)
def register_map(fragment: Fragment) -> RegisterMap:
    """The registers of `fragment`, one operand of an instruction.

    Raises `LayoutError` where a lane has none or several elements for a register.
    """
    inverse = fragment.inverse()
    lanes = Layout((fragment.threads,), lambda lane: inverse.evaluate(0, lane)[:2])
    digits = []
    for dim, terms in enumerate((inverse.digits or ())[:2]):
        for term in terms:
            (digit,) = term.digits  # operands of instructions are not swizzled
            if digit.dim == 0:
                digits.append(_Digit(digit.divisor, digit.extent, dim, term.stride))
    digits.sort(key=lambda digit: -digit.slots)
    run = digits.pop().extent if digits and digits[-1] == _Digit(1, digits[-1].extent, 1, 1) else 1
    return RegisterMap(lanes, run, tuple(digits))


@lru_cache(maxsize=256)
def matrix_origins(fragment: Fragment, matrix: Fragment) -> Layout | None:
    """``number -> (row, column)`` of the first element of each matrix, where the registers of
    `fragment` are those of such matrices, one after the other; else None.
    """
    whole, part = register_map(fragment), register_map(matrix)
    if (whole.run, whole.lanes) != (part.run, part.lanes) or part.digits:
        return None
    count = fragment.slots // matrix.slots
    inverse = fragment.inverse()
    return Layout((count,), lambda number: inverse.evaluate(number * matrix.slots, 0)[:2])
