"""Accesses that certainly go outside their buffer, though not each time they are executed.

A tile has to be in range always: an index that is a sum of loop variables reaches the sum of their
ends. Global memory is masked, so only an access that is never inside is reported.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from tileworkbench.compiler.analysis.dataflow import may_leave
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir import simt, tile
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.effects import Access, accesses
from tileworkbench.compiler.ir.expr import Buffer, Expr, Var
from tileworkbench.compiler.ir.printer import print_expr

Ends = tuple[int, int]  # the least and the largest value


def overruns(kernel: st.Kernel, ranges: Ranges) -> Iterator[tuple[int, str]]:
    """The site and the sentence of every such access, one for each statement and buffer."""
    walk = _Walk(ranges)
    walk.enter(kernel.vars, kernel.grid)
    walk.enter(kernel.thread_vars, kernel.threads[: len(kernel.thread_vars)])
    walk.visit(kernel.body, True)
    yield from walk.found


@dataclass(slots=True)
class _Walk:
    ranges: Ranges
    reached: dict[Var, Ends] = field(default_factory=dict)  # both ends are taken
    found: list[tuple[int, str]] = field(default_factory=list)

    def enter(self, variables: tuple[Var, ...], extents: tuple[Expr | int, ...]) -> None:
        """Variables of a box take both of their ends, in all combinations."""
        for var, extent in zip(variables, extents, strict=True):
            size = extent if isinstance(extent, int) else const_int(extent)
            if size:
                self.reached[var] = 0, size - 1

    def visit(self, stmt: st.Stmt, certain: bool) -> None:
        """Check what is below `stmt`, which is executed in every run where `certain`."""
        if certain:
            self.check(stmt)
        match stmt:
            case st.If() | st.While() | simt.Role():
                certain = False
            case tile.Parallel(variables, extents, body):
                self.enter(variables, extents)
                certain = certain and all(const_int(extent) for extent in extents)
            case st.For(var, start, stop, step, body=body):
                self.enter_loop(var, const_int(start), const_int(stop), const_int(step))
                certain = certain and var in self.reached and not may_leave(body)
            case tile.Pipelined(var, start, stop, body=body):
                self.enter_loop(var, const_int(start), const_int(stop), 1)
                certain = certain and var in self.reached and not may_leave(body)
        for child in stmt.children():
            if isinstance(child, st.Stmt):
                self.visit(child, certain)

    def enter_loop(self, var: Var, start: int | None, stop: int | None, step: int | None) -> None:
        if start is None or stop is None or not step or not range(start, stop, step):
            return
        values = range(start, stop, step)
        ends = sorted((values[0], values[-1]))
        self.reached[var] = ends[0], ends[1]

    def check(self, stmt: st.Stmt) -> None:
        named: set[Buffer] = set()
        for use in accesses(stmt):
            if use.certain and use.buffer not in named:
                sentence = self.sentence(use)
                if sentence is not None:
                    named.add(use.buffer)
                    self.found.append((stmt.site, sentence))

    def sentence(self, use: Access) -> str | None:
        buffer = use.buffer
        if any(const_int(extent) == 0 for extent in buffer.shape):
            return None  # nothing is meant to be in it
        for d, (index, extent) in enumerate(zip(use.indices, buffer.shape, strict=False)):
            size = const_int(extent)
            if buffer.scope == "global":
                if use.region is None and self.never_inside(index, size):
                    return (
                        f"'{print_expr(index)}' is outside dimension {d} of '{buffer.name}'"
                        f"{_elements(size)}: {_masked(use)}"
                    )
                continue
            ends = self.ends(index)
            if ends is None:
                continue
            outside = ends[0] if ends[0] < 0 else ends[1]
            if outside < 0 or (size is not None and outside >= size):
                return (
                    f"'{print_expr(index)}' reaches {outside} here, outside dimension {d} of "
                    f"'{buffer.name}'{_elements(size)}"
                )
        return None

    def never_inside(self, index: Expr, size: int | None) -> bool:
        bounds = self.ranges.bounds(index)
        return (bounds.high is not None and bounds.high < 0) or (
            size is not None and bounds.low is not None and bounds.low >= size
        )

    def ends(self, index: Expr) -> Ends | None:
        """The least and the largest value that `index` has, None where they are not known."""
        linear = self.ranges.linear(index)
        low = high = linear.constant
        for atom, factor in linear.terms:
            span = self.reached.get(atom) if isinstance(atom, Var) else None
            if span is None:
                return None
            low += min(factor * end for end in span)
            high += max(factor * end for end in span)
        return low, high


def _elements(size: int | None) -> str:
    return "" if size is None else f", which has {size} element{'s' if size != 1 else ''}"


def _masked(use: Access) -> str:
    return "nothing is stored" if use.writes else "the safe value is read"
