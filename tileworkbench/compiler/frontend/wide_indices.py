"""Arithmetic that is used as an index is as wide as the buffer needs.

`A[bx * 4096 + i]` is 32-bit arithmetic by its types. Where a dimension of `A` has 2**31 elements
and more, or a 64-bit extent, and the number that stands there may be larger than 32 bits hold, it
is written out in 64 bits: with the names and loop variables that it is computed from, which keep
their own values beside that. Every executor then agrees. Stored, compared or passed on, the same
arithmetic wraps around as its type says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import reduce
from math import prod
from typing import Any

from tileworkbench.compiler.frontend.bounds import Interval, bounds
from tileworkbench.compiler.ir import expr as ir
from tileworkbench.compiler.ir import tile
from tileworkbench.compiler.ir.build import binary, cast, const_int, mul, product, unary
from tileworkbench.compiler.ir.expr import Binary, Cast, Expr, Region, Select, Unary, Var
from tileworkbench.compiler.ir.rewrite import Rewriter, statements, variables
from tileworkbench.compiler.ir.sizes import is_wide
from tileworkbench.compiler.ir.stmt import Atomic, For, Kernel, Let, Stmt, Store, seq
from tileworkbench.compiler.ir.types import INT32, INT64
from tileworkbench.compiler.target import MOST_BLOCKS

# What is followed to its operands; anything else is the value that its own type gives it.
_NUMBERS = ("add", "sub", "mul", "floordiv", "floormod", "truncdiv", "truncmod", "min", "max")
_ROOM = 1 << 19  # for what is added to a product: a tile, the number of workers
_Loop = For | tile.Pipelined


def exact_extent(value: Expr, symbols: Iterable[Var]) -> Expr:
    """An extent that a kernel computes from `symbols`, in 64 bits where 32 may not hold it."""
    widener = _Widener(lambda name: Var(name, INT64))
    widener.ranges |= {symbol: _symbol_range(symbol) for symbol in symbols}
    return widener.exact(value)


def exact_product(values: tuple[Expr, ...], symbols: Iterable[Var]) -> Expr:
    """The product of numbers computed from `symbols`, in 64 bits where 32 may not hold it."""
    ranges = {symbol: _symbol_range(symbol) for symbol in symbols}
    most = [bounds(value, ranges, _of_dtype)[1] for value in values]
    if None in most or prod(n for n in most if n is not None) > INT32.max_value - _ROOM:
        return product(values)
    return reduce(mul, values)


def widen_indices(body: Stmt, symbols: Iterable[Var], fresh: Callable[[str], Var]) -> Stmt:
    """`body` with such arithmetic written out; `fresh` makes a 64-bit variable of a new name."""
    widener = _Widener(fresh)
    widener.ranges |= {symbol: _symbol_range(symbol) for symbol in symbols}
    for stmt in statements(body):
        widener.collect(stmt)
    made: Stmt = Rewriter(widener.access, widener.statement)(body)
    return made if not widener.wide else _with_wide_names(made, widener)


def _symbol_range(symbol: Var) -> Interval:
    return 0, symbol.dtype.largest_extent


class _Widener:
    def __init__(self, fresh: Callable[[str], Var]) -> None:
        self.fresh = fresh
        self.ranges: dict[Var, Interval] = {}
        self.values: dict[Var, Expr] = {}  # of names
        self.loops: dict[Var, _Loop] = {}
        self.wide: dict[Var, Var] = {}
        self._fits: dict[Expr, bool] = {}
        self._exact: dict[Expr, Expr] = {}

    def collect(self, stmt: Stmt) -> None:
        """Note what is known of the variables that `stmt` binds; outer statements come first."""
        match stmt:
            case Let(var, value) if var.dtype == INT32:
                self.values[var] = value
                self.ranges[var] = self.interval(value)
            case For(var, start, stop, step) if var.dtype == INT32 and const_int(step):
                self.loops[var] = stmt
                self.ranges[var] = self.between(start, stop, (const_int(step) or 0) > 0)
            case tile.Pipelined(var, start, stop) if var.dtype == INT32:
                self.loops[var] = stmt
                self.ranges[var] = self.between(start, stop, True)
            case tile.Parallel(names, extents) | Kernel(names, extents):
                most = MOST_BLOCKS if isinstance(stmt, Kernel) else int(INT64.max_value)
                for var, extent in zip(names, extents, strict=True):
                    high = self.interval(extent)[1]
                    self.ranges[var] = 0, (most if high is None else min(high, most)) - 1
                if isinstance(stmt, Kernel):
                    for var, count in zip(stmt.thread_vars, stmt.threads, strict=False):
                        self.ranges[var] = 0, count - 1

    def between(self, start: Expr, stop: Expr, upwards: bool) -> Interval:
        (low, _), (_, high) = map(self.interval, (start, stop) if upwards else (stop, start))
        if low is None or high is None:
            return None, None
        return (low, max(low, high - 1)) if upwards else (min(low + 1, high), high)

    def interval(self, value: Expr) -> Interval:
        """The bounds of the number that `value` stands for, were nothing in it to wrap around."""
        return bounds(value, self.ranges, _of_dtype)

    def fits(self, value: Expr) -> bool:
        """Whether `value` is surely that number."""
        known = self._fits.get(value)
        if known is None:
            known = self._fits[value] = self._find_fit(value)
        return known

    def _find_fit(self, value: Expr) -> bool:
        low, high = self.interval(value)
        if low is None or high is None:
            return False
        inside = value.dtype.min_value <= low and high <= value.dtype.max_value
        return bool(inside) and all(map(self.fits, self.operands(value)))

    def operands(self, value: Expr) -> tuple[Expr, ...]:
        """The operands that a number is computed from; () where only its type bounds it."""
        match value:
            case Var() if value in self.values:
                return (self.values[value],)
            case Var() if value in self.loops:
                return self.loops[value].start, self.loops[value].stop
            case Binary(op, a, b) if op in _NUMBERS:
                return a, b
            case Unary("neg", a):
                return (a,)
            case Select(_, then, other):
                return then, other
            case Cast(inner, dtype) if inner.dtype == INT32 and dtype == INT64:
                return (inner,)
        return ()

    def exact(self, value: Expr) -> Expr:
        """That number, in its own dtype where it fits, else in 64 bits."""
        known = self._exact.get(value)
        if known is None:
            known = self._exact[value] = value if self.fits(value) else self._write_out(value)
        return known

    def in_64_bits(self, value: Expr) -> Expr:
        """That number as an int64."""
        return cast(self.exact(value), INT64)

    def _write_out(self, value: Expr) -> Expr:
        match value:
            case Var():
                return self.wide_name(value)
            case Cast(inner):
                return self.in_64_bits(inner)
            case Binary(op, a, b):
                return binary(op, self.in_64_bits(a), self.in_64_bits(b))
            case Unary(op, a):
                return unary(op, self.in_64_bits(a))
            case Select(cond, then, other, lazy):
                then, other = self.in_64_bits(then), self.in_64_bits(other)
                return Select(cond, then, other, lazy, then.dtype)
        return cast(value, INT64)

    def wide_name(self, var: Var) -> Expr:
        """The 64-bit variable beside a name or loop variable; others are what their type holds."""
        if var not in self.values and var not in self.loops:
            return cast(var, INT64)
        if var not in self.wide:
            self.wide[var] = self.fresh(f"{var.name}_wide")
            for operand in self.operands(var):  # what it is made from has such names, too
                self.exact(operand)
        return self.wide[var]

    # Accesses

    def index(self, index: Expr, extent: Expr, beyond: int = 0) -> Expr:
        """An index of a dimension, `beyond` which further elements are meant."""
        if not is_wide(extent) or not index.dtype.is_int:
            return index
        high = self.interval(index)[1]
        if self.fits(index) and high is not None and high + beyond <= index.dtype.max_value:
            return index
        return self.in_64_bits(index)

    def indices(self, buffer: ir.Buffer, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(map(self.index, indices, buffer.shape))

    def access(self, node: Any) -> Any:
        if isinstance(node, ir.Load | ir.AddressOf):
            return replace(node, indices=self.indices(node.buffer, node.indices))
        if isinstance(node, Region):
            beyond = [self.interval(extent)[1] or int(INT32.max_value) for extent in node.extents]
            mins = tuple(map(self.index, node.mins, node.buffer.shape, beyond))
            return replace(node, mins=mins)
        return node

    def statement(self, stmt: Stmt) -> Stmt:
        if isinstance(stmt, Store | Atomic):
            return replace(stmt, indices=self.indices(stmt.buffer, stmt.indices))
        return stmt


def _with_wide_names(body: Stmt, widener: _Widener) -> Stmt:
    """`body` with the 64-bit variables bound beside those that they widen."""

    def bind(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Let) and stmt.var in widener.wide:
            wide = widener.in_64_bits(stmt.value)
            return seq([stmt, Let(widener.wide[stmt.var], wide, site=stmt.site)])
        if isinstance(stmt, _Loop) and stmt.var in widener.wide:
            return _counting_in_64_bits(stmt, widener)
        return stmt

    made: Stmt = Rewriter(rewrite_stmt=bind)(body)
    return made


def _counting_in_64_bits(loop: _Loop, widener: _Widener) -> Stmt:
    var = widener.wide[loop.var]
    start, stop = widener.in_64_bits(loop.start), widener.in_64_bits(loop.stop)
    body = loop.body
    if loop.var in variables(body):
        body = seq([Let(loop.var, cast(var, loop.var.dtype), site=loop.site), body])
    made = replace(loop, var=var, start=start, stop=stop, body=body)
    return replace(made, step=cast(made.step, INT64)) if isinstance(made, For) else made


def _of_dtype(value: Expr) -> Interval:
    """All values of an expression's type; for a name or loop variable the bounds that are known of
    it.
    """
    dtype = value.dtype
    return (int(dtype.min_value), int(dtype.max_value)) if dtype.is_int else (None, None)
