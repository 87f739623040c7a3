"""Counters beside a loop: which of `number` stages an iteration works on, without a division.

`(k + 2) % 3` costs a multiplication, shifts and a subtraction in every iteration. A variable that
goes up by one and back to zero costs a comparison and a selection. Powers of two are masks already.
"""

from __future__ import annotations

from collections.abc import Iterator

from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.build import const, const_int
from tileworkbench.compiler.ir.expr import Binary, Expr
from tileworkbench.compiler.ir.rewrite import substitute, walk
from tileworkbench.compiler.ir.stmt import For


@dataclass(frozen=True, slots=True)
class Counter:
    """`value`, which is `start` in the first iteration of the loop and counts to below `number`."""

    value: Expr
    name: str
    start: Expr
    number: int

    @property
    def next(self) -> str:
        """The assignment that an iteration ends with."""
        return f"{self.name} = {self.name} == {self.number - 1} ? 0 : {self.name} + 1"


def counters_of(loop: For, name: str, ranges: Ranges) -> Iterator[Counter]:
    """The values `(loop.var + constant) % number` that the body of a loop called `name` needs."""
    if const_int(loop.step) != 1:
        return
    for value in dict.fromkeys(walk(loop.body)):
        if not isinstance(value, Binary) or value.op != "floormod":
            continue
        number = const_int(value.b)
        if number is None or number < 2 or number & (number - 1) == 0:
            continue
        form = ranges.linear(value.a)
        if form.terms == ((loop.var, 1),) and ranges.is_exact(value.a):
            ahead = f"_plus_{form.constant % number}" if form.constant % number else ""
            first = const_int(loop.start)
            start = substitute(value, {loop.var: loop.start})
            if first is not None:
                start = const((first + form.constant) % number, value.dtype)
            yield Counter(value, f"{name}{ahead}_mod_{number}", start, number)
