"""Which statement makes the first infinity and the first NaN, and from which operands."""

from __future__ import annotations

from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir import tile
from tileworkbench.compiler.ir.expr import Const
from tileworkbench.compiler.ir.node import Node
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import walk
from tileworkbench.compiler.sim.numerics.result import Loops, Operand, Origin
from tileworkbench.compiler.sim.report import element

if TYPE_CHECKING:
    from tileworkbench.compiler.ir.stmt import Stmt
    from tileworkbench.compiler.sim.memory import Storage
    from tileworkbench.compiler.sim.observers import Place

Array = np.ndarray[Any, Any]
_TESTS = {"infinity": np.isinf, "NaN": np.isnan}
_MOST_OPERANDS = 8


@dataclass(frozen=True)
class Access:
    """Elements that a statement has read or written, with their values at that moment."""

    storage: Storage
    place: Place
    values: Array

    @property
    def name(self) -> str:
        """The name of the buffer."""
        return self.storage.name

    @property
    def wide(self) -> Array:
        """The values as float64."""
        return self.values.astype(np.float64)

    @cached_property
    def is_finite(self) -> bool:
        """Whether there is nothing to find in them."""
        return bool(np.isfinite(self.values).all())

    def element(self, number: int) -> tuple[int, ...]:
        """The indices of the element `number` of `values`, in the buffer's own shape where its
        memory is one row of numbers.
        """
        at = np.unravel_index(number, self.values.shape) if self.values.ndim else ()
        if any(isinstance(part, slice) for part in self.place):
            steps = iter(at)
            index = [
                (part.start or 0) + int(next(steps)) if isinstance(part, slice) else int(part)
                for part in self.place
            ]
        else:
            index = [int(np.broadcast_to(part, self.values.shape)[at]) for part in self.place]
        index = index[len(self.storage.prefix) :]
        shape = self.storage.shape
        if len(index) == 1 and len(shape) > 1 and index[0] < prod(shape):
            return tuple(map(int, np.unravel_index(index[0], shape)))
        return tuple(index)

    def at(self, number: int) -> Operand:
        """One element as an operand."""
        value = float(self.wide.reshape(-1)[number])
        return Operand(element(self.name, self.element(number)), value, value)

    def range(self, values: Array, name: str) -> Operand:
        """Some of its elements as an operand."""
        wide = values.astype(np.float64)
        return Operand(f"{self.name}[{name}]", float(wide.min()), float(wide.max()))


class Origins:
    """Finds the first of each kind while a block runs."""

    __slots__ = ("_program", "_tainted", "found")

    def __init__(self, program: Program) -> None:
        self._program = program
        self._tainted: dict[str, set[str]] = {kind: set() for kind in _TESTS}
        self.found: list[Origin] = []

    def look(
        self,
        stmt: Stmt,
        loops: Loops,
        step: int,
        written: Access,
        reads: list[Access],
        exact: Array | None,
    ) -> None:
        """Look at what a statement wrote and what it read for that."""
        if written.is_finite and all(access.is_finite for access in reads):
            return
        for kind, test in _TESTS.items():
            if any(origin.kind == kind and origin.made for origin in self.found):
                continue
            self._look_at_reads(kind, stmt, loops, step, reads)
            bad = test(written.wide)
            if not bad.any():
                continue
            self._tainted[kind].add(written.name)
            if kind == "infinity" and (_sets_infinity(stmt) or self._pads(reads)):
                continue
            fresh = bad & ~_inherited(kind, stmt, written, reads)
            if fresh.any():
                number = int(fresh.reshape(-1).argmax())
                span = self._program.span(stmt.site)
                self.found.append(
                    Origin(
                        kind,
                        True,
                        step,
                        0 if span is None else span.line,
                        stmt.site,
                        loops,
                        written.name,
                        written.element(number),
                        float(written.wide.reshape(-1)[number]),
                        None if exact is None else float(exact.reshape(-1)[number]),
                        _operands(stmt, written, reads, number),
                    )
                )

    def _pads(self, reads: list[Access]) -> bool:
        """Whether one of them is a tensor whose safe value, outside of it, is infinite."""
        safe = dict(self._program.safe_values)
        return any(access.name in safe and _is_infinite(safe[access.name]) for access in reads)

    def _look_at_reads(
        self, kind: str, stmt: Stmt, loops: Loops, step: int, reads: list[Access]
    ) -> None:
        """Note the first NaN or infinity that the block reads where it has written nothing itself.
        """
        if any(origin.kind == kind for origin in self.found):
            return
        for access in reads:
            bad = _TESTS[kind](access.wide)
            if bad.any() and access.name not in self._tainted[kind]:
                number = int(bad.reshape(-1).argmax())
                value = float(access.wide.reshape(-1)[number])
                span = self._program.span(stmt.site)
                line = 0 if span is None else span.line
                place = (access.name, access.element(number))
                self.found.append(
                    Origin(kind, False, step, line, stmt.site, loops, *place, value, None, ())
                )
                return


def _sets_infinity(stmt: Stmt) -> bool:
    """Whether an infinity stands in the statement itself."""
    return any(_is_infinite(node) for node in walk(stmt))


def _is_infinite(node: Node) -> bool:
    return isinstance(node, Const) and node.dtype.is_float and bool(np.isinf(float(node.value)))


def _inherited(kind: str, stmt: Stmt, written: Access, reads: list[Access]) -> Array:
    """The elements that have an operand which is NaN already; for an infinity, one not finite."""

    def bad(access: Access) -> Array:
        wide = access.wide
        return np.asarray(np.isnan(wide) if kind == "NaN" else ~np.isfinite(wide))

    shape = written.values.shape
    inherited = np.zeros(shape, np.bool_)
    for access in reads:
        mask = bad(access)
        if not mask.any():
            continue
        spread = _spread(stmt, access, mask, shape)
        inherited |= True if spread is None else spread
    return inherited


def _spread(stmt: Stmt, access: Access, mask: Array, shape: tuple[int, ...]) -> Array | None:
    """`mask` of an operand's elements as a mask of the elements of the result that are computed
    from them; None where that is not known.
    """
    match stmt:
        case tile.Gemm() if mask.ndim >= 2 and len(shape) >= 2:
            flat = mask.reshape(mask.shape[-2:])
            if access.name == stmt.a.buffer.name and access.name != stmt.c.buffer.name:
                rows = np.asarray(flat.any(axis=0 if stmt.transpose_a else 1))
                return _fitting(rows[:, None], shape)
            if access.name == stmt.b.buffer.name and access.name != stmt.c.buffer.name:
                columns = np.asarray(flat.any(axis=1 if stmt.transpose_b else 0))
                return _fitting(columns[None, :], shape)
        case tile.Reduce(dim=dim) if access.name == stmt.src.name and dim < mask.ndim:
            along = np.asarray(mask.any(axis=dim))
            return along.reshape(shape) if along.size == prod(shape) else None
        case tile.Scan():
            return None
    if mask.size == prod(shape):
        return mask.reshape(shape)
    return _fitting(mask, shape)


def _fitting(mask: Array, shape: tuple[int, ...]) -> Array | None:
    try:
        return np.broadcast_to(mask, shape)
    except ValueError:
        return None


def _operands(stmt: Stmt, written: Access, reads: list[Access], number: int) -> tuple[Operand, ...]:
    """What the statement reads for the element `number` of what it wrote; where that is not known,
    for all of them.
    """
    shape = written.values.shape
    at = tuple(map(int, np.unravel_index(number, shape))) if shape else ()
    made: dict[Operand, None] = {}
    for access in reads:
        size = access.values.size
        summed = _summed(stmt, access, at, shape)
        if summed is not None:
            made[summed] = None
        elif size == written.values.size:
            made[access.at(number)] = None
        elif size == 1:
            made[access.at(0)] = None
        elif size:
            made[access.range(access.values, ", ".join(":" * len(access.storage.shape)))] = None
    return tuple(made)[:_MOST_OPERANDS]


def _summed(
    stmt: Stmt, access: Access, at: tuple[int, ...], shape: tuple[int, ...]
) -> Operand | None:
    """The row or column that a product or a reduction takes for the element at `at`; None for
    other statements and operands.
    """
    values = access.values
    match stmt:
        case tile.Gemm() if values.ndim >= 2 and len(at) >= 2:
            matrix = values.reshape(values.shape[-2:])
            if access.name == stmt.a.buffer.name:
                by_row, number = not stmt.transpose_a, at[-2]
            elif access.name == stmt.b.buffer.name:
                by_row, number = stmt.transpose_b, at[-1]
            else:
                return None
            if by_row:
                return access.range(matrix[number], f"{number}, :")
            return access.range(matrix[:, number], f":, {number}")
        case tile.Reduce(dim=dim) if access.name == stmt.src.name and dim < values.ndim:
            others = values.shape[:dim] + values.shape[dim + 1 :]
            if prod(others) != prod(shape):
                return None
            index = np.unravel_index(int(np.ravel_multi_index(at, shape)) if at else 0, others)
            names = [str(int(part)) for part in index]
            names.insert(dim, ":")
            return access.range(np.moveaxis(values, dim, -1)[index], ", ".join(names))
    return None
