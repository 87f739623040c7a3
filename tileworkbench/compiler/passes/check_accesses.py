"""Refuse accesses of tiles that are out of range whatever the inputs are.

Global memory is guarded at run time; tiles are not, so an index that can never be inside is an
error of the program. One that may be inside for some iterations is not refused here, nor one under
conditions that are not known to hold in any iteration: that is found at run time.

Accepted, and left as it is::

    A_shared = T.alloc_shared((4, 4), "float32")
    A_shared[3, 0] = 0.0
    if n > 4:
        A_shared[4, 0] = 0.0

Refused::

    A_shared[4, 0] = 0.0
"""

from __future__ import annotations

from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.analysis.reachability import Iterations
from tileworkbench.compiler.diagnostics import TileIndexError
from tileworkbench.compiler.ir.build import binary, const_int, unary
from tileworkbench.compiler.ir.expr import Binary, Buffer, Expr, Load, Ramp, Region, Select
from tileworkbench.compiler.ir.node import Node
from tileworkbench.compiler.ir.printer import print_expr
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.stmt import Atomic, If, Stmt, Store, While

_Path = tuple[Expr, ...]  # the conditions under which something is executed


def check_accesses(program: Program) -> Program:
    """Raise `TileIndexError` at the first tile access that is never in range."""
    _Check(program).visit(program.body, ())
    return program


class _Check:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.ranges = Ranges(program)
        self.iterations: Iterations | None = None
        self.checked: set[tuple[Node, _Path]] = set()

    def visit(self, stmt: Stmt, path: _Path) -> None:
        if isinstance(stmt, Store | Atomic):
            self.element(stmt.buffer, stmt.indices, stmt, _under(path, stmt.predicate))
        for child in stmt.children():
            if not isinstance(child, Stmt):
                self.part(child, stmt, path)
        if isinstance(stmt, If):
            self.visit(stmt.then, (*path, stmt.cond))
            if stmt.orelse is not None:
                self.visit(stmt.orelse, (*path, unary("not", stmt.cond)))
            return
        if isinstance(stmt, While):
            path = (*path, stmt.cond)
        for child in stmt.children():
            if isinstance(child, Stmt):
                self.visit(child, path)

    def part(self, node: Node, stmt: Stmt, path: _Path) -> None:
        """Check what is below `node`, an expression or region of `stmt`."""
        if (node, path) in self.checked:
            return
        self.checked.add((node, path))
        paths = [path] * len(node.children())
        if isinstance(node, Select) and node.lazy:
            paths[1:] = (*path, node.cond), (*path, unary("not", node.cond))
        elif isinstance(node, Binary) and node.op in ("logical_and", "logical_or"):
            taken = node.a if node.op == "logical_and" else unary("not", node.a)
            paths[1] = (*path, taken)
        elif isinstance(node, Load):
            self.element(node.buffer, node.indices, stmt, _under(path, node.predicate))
        elif isinstance(node, Region):
            self.region(node, stmt, path)
        for child, under in zip(node.children(), paths, strict=True):
            self.part(child, stmt, under)

    def happens(self, path: _Path) -> bool:
        """Whether some iteration is known to fulfil the conditions `path`."""
        if not path:
            return True
        if self.iterations is None:
            self.iterations = Iterations(self.program)
        return self.iterations.satisfy(path)

    def element(self, buffer: Buffer, indices: tuple[Expr, ...], stmt: Stmt, path: _Path) -> None:
        if buffer.scope == "global":
            return
        for d, (index, extent) in enumerate(zip(indices, buffer.shape, strict=True)):
            if isinstance(index, Ramp):
                continue
            bounds, size = self.ranges.bounds(index), const_int(extent)
            never = (bounds.high is not None and bounds.high < 0) or (
                size is not None and bounds.low is not None and bounds.low >= size
            )
            if never and self.happens(path):
                raise TileIndexError(
                    f"index '{print_expr(index)}' is outside dimension {d} of '{buffer.name}', "
                    f"which has {size} elements",
                    self.program.span(stmt.site),
                )

    def region(self, region: Region, stmt: Stmt, path: _Path) -> None:
        if region.buffer.scope == "global":
            return
        for d, (low, extent, size) in enumerate(
            zip(region.mins, region.extents, region.buffer.shape, strict=True)
        ):
            start = self.ranges.bounds(low)
            negative = start.high is not None and start.high < 0
            outside = self.ranges.proves(binary("gt", binary("add", low, extent), size)) is True
            if (negative or outside) and self.happens(path):
                raise TileIndexError(
                    f"the region goes outside dimension {d} of '{region.buffer.name}', "
                    f"which has {print_expr(size)} elements",
                    self.program.span(stmt.site),
                )


def _under(path: _Path, predicate: Expr | None) -> _Path:
    return path if predicate is None else (*path, predicate)
