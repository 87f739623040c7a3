"""What it gives to reduce in vectors what whole vectors leave of a row, on this processor.

    python benchmarks/row_rests.py [--quick] [--only PART]

Of a row of 100 elements four vectors of sixteen leave 36: two vectors and four elements, or 36
additions that wait for each other. The kernels of `cost/`, with tiles from the beginning, the
middle and the end of their lists, are compiled in both ways, for all that this processor has and
for AVX2, and called in turn: one thread. What becomes the same code is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from two_ways import compare_cases, compiled_with

from tileworkbench.compiler.ir.build import add, int_const
from tileworkbench.compiler.ir.expr import Expr
from tileworkbench.compiler.ir.stmt import Stmt
from tileworkbench.compiler.lower.vectors.reduce import _Lowering


def main() -> None:
    heads = ("in vectors, ms", "element by element, ms")
    compare_cases("row_rests", __doc__, heads, element_by_element)


def element_by_element(program: Any, target: str) -> Any:
    """The kernel with a loop over what whole vectors leave."""
    return compiled_with(_Lowering, "rest", _one_by_one, program, target)


def _one_by_one(
    self: _Lowering, extent: int, lanes: int, more: Callable[[int, Expr], Stmt]
) -> Iterator[Stmt]:
    left = extent % lanes
    if left:
        step = self.context.names.var("k")
        update = more(1, add(step, int_const(extent - left)))
        yield self.serial(step, int_const(left), update)


if __name__ == "__main__":
    main()
