"""Refuse accesses of tiles that are out of range whatever the inputs are.

Global memory is guarded at run time; tiles are not, so an index that can never be inside is an
error of the program. One that may be inside for some iterations is not refused here.

Accepted, and left as it is::

    A_shared = T.alloc_shared((4, 4), "float32")
    A_shared[3, 0] = 0.0

Refused::

    A_shared[4, 0] = 0.0
"""

from __future__ import annotations

from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.diagnostics import TileIndexError
from tileworkbench.compiler.ir.build import binary, const_int
from tileworkbench.compiler.ir.expr import Buffer, Expr, Load, Ramp, Region
from tileworkbench.compiler.ir.node import Node
from tileworkbench.compiler.ir.printer import print_expr
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.stmt import Atomic, Stmt, Store


def check_accesses(program: Program) -> Program:
    """Raise `TileIndexError` at the first tile access that is never in range."""
    ranges = Ranges(program)
    checked: set[Node] = set()
    for stmt in statements(program.body):
        if isinstance(stmt, Store | Atomic):
            _check_element(stmt.buffer, stmt.indices, stmt, ranges, program)
        stack = [child for child in stmt.children() if not isinstance(child, Stmt)]
        while stack:
            found = stack.pop()
            if found in checked:
                continue
            checked.add(found)
            if isinstance(found, Load):
                _check_element(found.buffer, found.indices, stmt, ranges, program)
            elif isinstance(found, Region):
                _check_region(found, stmt, ranges, program)
            stack.extend(found.children())
    return program


def _check_element(
    buffer: Buffer, indices: tuple[Expr, ...], stmt: Stmt, ranges: Ranges, program: Program
) -> None:
    if buffer.scope == "global":
        return
    for d, (index, extent) in enumerate(zip(indices, buffer.shape, strict=True)):
        if isinstance(index, Ramp):
            continue
        found, size = ranges.bounds(index), const_int(extent)
        never = (found.high is not None and found.high < 0) or (
            size is not None and found.low is not None and found.low >= size
        )
        if never:
            raise TileIndexError(
                f"index '{print_expr(index)}' is outside dimension {d} of '{buffer.name}', "
                f"which has {size} elements",
                program.span(stmt.site),
            )


def _check_region(region: Region, stmt: Stmt, ranges: Ranges, program: Program) -> None:
    if region.buffer.scope == "global":
        return
    for d, (low, extent, size) in enumerate(
        zip(region.mins, region.extents, region.buffer.shape, strict=True)
    ):
        start = ranges.bounds(low)
        negative = start.high is not None and start.high < 0
        if negative or ranges.proves(binary("gt", binary("add", low, extent), size)) is True:
            raise TileIndexError(
                f"the region goes outside dimension {d} of '{region.buffer.name}', "
                f"which has {print_expr(size)} elements",
                program.span(stmt.site),
            )
