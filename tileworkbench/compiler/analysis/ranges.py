"""What is known about integer expressions: bounds, linear form and divisibility.

All variables of a program have distinct names, so one table of ranges holds for the whole program:
a loop variable lies between its bounds wherever it is in scope, a `Let` is its value, a block index
is below its grid extent. Conditions of `If` are not used, so that a fact survives when a branch
becomes a predicate.

Integers wrap around. A linear form is therefore equal to its expression up to a multiple of what
its dtype holds, and equal where its bounds fit (`fits`); nothing else is said of one that may wrap,
but that it is in a range in which the whole sum is.
"""

from __future__ import annotations

from math import gcd

from tileworkbench.compiler.analysis.linear import ANY, Interval, Linear, combine, sum_bounds
from tileworkbench.compiler.ir import expr as ir
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir import tile
from tileworkbench.compiler.ir.build import add, binary, const, const_int, int_const, mul, sub
from tileworkbench.compiler.ir.expr import Binary, Const, Expr, Var
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import variables, walk
from tileworkbench.compiler.ir.types import DType


class Ranges:
    """The facts of one program; queries are remembered by expression."""

    def __init__(self, program: Program) -> None:
        self._variables: dict[Var, Interval] = {
            symbol: Interval(0, symbol.dtype.largest_extent) for symbol in program.symbols
        }
        self._maxima: dict[Var, Expr] = {}
        self._definitions: dict[Var, Expr] = {}
        self._undefined: set[Var] = set()  # those of several values
        self._factors: dict[Expr, int] = {}
        self._bounds: dict[Expr, Interval] = {}
        self._linear: dict[Expr, Linear] = {}
        self._collect(program.body, True)

    # Collecting

    def _collect(self, stmt: st.Stmt, always: bool) -> None:
        """Take the facts of `stmt`; `always` says that it is executed once in every run of the
        program.
        """
        match stmt:
            case st.Seq(stmts):
                for part in stmts:
                    self._collect(part, always)
                return
            case st.Let(var, value):
                if var.dtype.is_int:
                    self._define(var, value)
                return
            case st.For(var, start, stop, step):
                self.enter(var, start, stop, const_int(step))
            case tile.Pipelined(var, start, stop):
                self.enter(var, start, stop, 1)
            case tile.Parallel(variables, extents) | st.Kernel(variables, extents):
                for var, extent in zip(variables, extents, strict=True):
                    self.enter(var, int_const(0), extent, 1)
                if isinstance(stmt, st.Kernel):
                    for var, count in zip(stmt.thread_vars, stmt.threads, strict=False):
                        self.enter(var, int_const(0), int_const(count), 1)
            case st.Assume(cond) if always:
                self.assume(cond)
        for child in stmt.children():
            if isinstance(child, st.Stmt):
                self._collect(child, always and isinstance(stmt, st.Kernel))

    def _define(self, var: Var, value: Expr) -> None:
        pure = not any(isinstance(node, ir.Load) for node in walk(value))
        known = var in self._undefined
        if pure and not known and self._definitions.setdefault(var, value) is value:
            return
        bounds = self.bounds(value)
        if var in self._definitions or var in self._variables:
            bounds = bounds.union(self.bounds(var))
        self._undefined.add(var)
        self._definitions.pop(var, None)
        self._variables[var] = bounds
        self._bounds.clear()
        self._linear.clear()

    def enter(self, var: Var, start: Expr, stop: Expr, step: int | None) -> None:
        """Declare a loop variable; one that is declared twice has the union of both ranges."""
        low, high = self.bounds(start), self.bounds(stop)
        if step is None:
            bounds, last = ANY, None
        elif step > 0:
            bounds, last = Interval(low.low, sum_bounds(high.high, -1)), sub(stop, int_const(1))
        else:
            bounds, last = Interval(sum_bounds(high.low, 1), low.high), None
        if var in self._variables:
            bounds = bounds.union(self._variables[var])
            last = last if self._maxima.get(var) is last else None
            self._bounds.clear()
        self._variables[var] = bounds
        self._maxima.pop(var, None)
        if last is not None and self.fits(stop):
            self._maxima[var] = last
        if step is not None and abs(step) > 1 and const_int(start) == 0:
            self._factors[var] = abs(step)

    def assume(self, cond: Expr) -> None:
        """Take `cond` for true from here on."""
        if not isinstance(cond, Binary):
            return
        if cond.op == "logical_and":
            self.assume(cond.a)
            self.assume(cond.b)
        elif (
            cond.op == "eq" and isinstance(cond.a, Binary) and cond.a.op in ("floormod", "truncmod")
        ):
            divisor = const_int(cond.a.b)
            if divisor and const_int(cond.b) == 0:
                self._factors[cond.a.a] = (
                    divisor
                    * self._factors.get(cond.a.a, 1)
                    // gcd(divisor, self._factors.get(cond.a.a, 1))
                )
        elif (
            isinstance(cond.a, Var)
            and isinstance(cond.b, Const)
            and cond.op in ("lt", "le", "gt", "ge", "eq")
        ):
            self._assume_bound(cond.a, cond.op, int(cond.b.value))

    def _assume_bound(self, var: Var, op: str, value: int) -> None:
        low, high = (bounds := self.bounds(var)).low, bounds.high
        if op in ("lt", "le", "eq"):
            limit = value - (op == "lt")
            high = limit if high is None else min(high, limit)
        if op in ("gt", "ge", "eq"):
            limit = value + (op == "gt")
            low = limit if low is None else max(low, limit)
        self._variables[var] = Interval(low, high)
        self._bounds.clear()

    # Queries

    def bounds(self, value: Expr) -> Interval:
        """The least and the largest value that `value` can have."""
        known = self._bounds.get(value)
        if known is None:
            known = self._find_bounds(value)
            self._bounds[value] = known
        return known

    def _find_bounds(self, value: Expr) -> Interval:
        if isinstance(value, Const):
            return Interval(int(value.value), int(value.value)) if value.dtype.is_int else ANY
        if not value.dtype.is_int:
            return ANY
        if isinstance(value, Var) and value not in self._definitions:
            return self._variables.get(value, _dtype_interval(value.dtype))
        if isinstance(value, Var) or (
            isinstance(value, Binary) and value.op in ("add", "sub", "mul")
        ):
            linear = self.linear(value)
            if linear.terms != ((value, 1),):
                bounds = self.linear_bounds(linear)
            elif isinstance(value, Binary) and value.op == "mul":
                bounds = _product(self.bounds(value.a), self.bounds(value.b))
            else:
                return _dtype_interval(value.dtype)
            return bounds if _fits(bounds, value.dtype) else _dtype_interval(value.dtype)
        if isinstance(value, Binary):
            return self._binary_bounds(value)
        if isinstance(value, ir.Select):
            return self.bounds(value.then).union(self.bounds(value.other))
        if isinstance(value, ir.Cast) and value.value.dtype.is_int:
            inner = self.bounds(value.value)
            return inner if _fits(inner, value.dtype) else _dtype_interval(value.dtype)
        return _dtype_interval(value.dtype)

    def _binary_bounds(self, value: Binary) -> Interval:
        a, b, divisor = self.bounds(value.a), self.bounds(value.b), const_int(value.b)
        match value.op:
            case "min":
                highs = [end for end in (a.high, b.high) if end is not None]
                low = None if a.low is None or b.low is None else min(a.low, b.low)
                return Interval(low, min(highs) if highs else None)
            case "max":
                lows = [end for end in (a.low, b.low) if end is not None]
                high = None if a.high is None or b.high is None else max(a.high, b.high)
                return Interval(max(lows) if lows else None, high)
            case "floordiv" if divisor and divisor > 0:
                return Interval(
                    *(None if end is None else end // divisor for end in (a.low, a.high))
                )
            case "truncdiv" if divisor and divisor > 0 and a.low is not None and a.low >= 0:
                return Interval(a.low // divisor, None if a.high is None else a.high // divisor)
            case "floormod" if divisor and divisor > 0:
                inside = (
                    a.low is not None and a.high is not None and a.low >= 0 and a.high < divisor
                )
                return a if inside else Interval(0, divisor - 1)
            case "floormod" if b.low is not None and b.low > 0:
                return Interval(0, None if b.high is None else b.high - 1)
            case "floordiv" if b.low is not None and b.low > 0 and a.low is not None and a.low >= 0:
                return Interval(0, a.high)
            case "and" if divisor is not None and divisor >= 0:
                return Interval(0, divisor)
            case "xor" | "or" if _natural(a) and _natural(b):
                top = max(a.high or 0, b.high or 0)
                return Interval(0, (1 << top.bit_length()) - 1)
        return _dtype_interval(value.dtype)

    def linear_bounds(self, linear: Linear) -> Interval:
        """The interval of a sum, each atom taken on its own."""
        total = Interval(linear.constant, linear.constant)
        for atom, factor in linear.terms:
            total = total + self.bounds(atom).scale(factor)
        return total

    def fits(self, value: Expr) -> bool:
        """Whether `value` is surely its linear form: no part of the sum makes it wrap around."""
        return _fits(self.linear_bounds(self.linear(value)), value.dtype)

    def is_exact(self, value: Expr) -> bool:
        """Whether `value` and all that it is computed from are surely the numbers that they stand
        for: nothing wraps around.
        """
        return all(
            _fits(self._exact_bounds(node), node.dtype)
            for node in walk(value)
            if isinstance(node, Binary | ir.Unary | ir.Cast) and node.dtype.is_int
        )

    def _exact_bounds(self, value: Binary | ir.Unary | ir.Cast) -> Interval:
        """The interval of one operation on the bounds of its operands, were it not to wrap."""
        match value:
            case Binary("add", a, b):
                return self.bounds(a) + self.bounds(b)
            case Binary("sub", a, b):
                return self.bounds(a) + self.bounds(b).scale(-1)
            case Binary("mul", a, b):
                return _product(self.bounds(a), self.bounds(b))
            case ir.Unary("neg", a):
                return self.bounds(a).scale(-1)
            case ir.Cast(inner) if inner.dtype.is_int:
                return self.bounds(inner)
            case Binary("shl"):
                return ANY
        return _dtype_interval(value.dtype)

    def _number(self, value: Expr) -> Linear:
        """The linear form where `value` is equal to it, else `value` as an atom."""
        return self.linear(value) if self.fits(value) else Linear(((value, 1),), 0)

    def linear(self, value: Expr) -> Linear:
        """`value` as a sum of atoms, up to wrapping around; lets without loads are seen through."""
        known = self._linear.get(value)
        if known is None:
            known = self._find_linear(value)
            self._linear[value] = known
        return known

    def _find_linear(self, value: Expr) -> Linear:
        linear = self._sum(value)
        if linear is None or not (
            _is_index(value.dtype) or _fits(self.linear_bounds(linear), value.dtype)
        ):
            return Linear(((value, 1),), 0)
        return linear

    def _sum(self, value: Expr) -> Linear | None:
        """`value` as a sum that is equal as long as nothing wraps."""
        match value:
            case Const() if value.dtype.is_int:
                return Linear((), int(value.value))
            case Var() if value in self._definitions:
                return self.linear(self._definitions[value])
            case Binary("add", a, b):
                return combine([(self.linear(a), 1), (self.linear(b), 1)])
            case Binary("sub", a, b):
                return combine([(self.linear(a), 1), (self.linear(b), -1)])
            case Binary("mul", a, b):
                left, right = self.linear(a), self.linear(b)
                if not right.terms:
                    return combine([(left, right.constant)])
                if not left.terms:
                    return combine([(right, left.constant)])
            case ir.Cast(inner, dtype) if dtype.is_int and inner.dtype.is_int:
                if _contains(dtype, inner.dtype) or _fits(self.bounds(inner), dtype):
                    return self._number(inner)
        return None

    def proves(self, cond: Expr) -> bool | None:
        """True or False where `cond` always has that value, None where it is not known."""
        match cond:
            case Const():
                return bool(cond.value)
            case Binary("lt", a, b) if a.dtype.is_int:
                return self._below_zero(combine([(self._number(a), 1), (self._number(b), -1)]))
            case Binary("le", a, b) if a.dtype.is_int:
                return self._below_zero(combine([(self._number(a), 1), (self._number(b), -1)], -1))
            case Binary("gt", a, b) if a.dtype.is_int:
                return self._below_zero(combine([(self._number(b), 1), (self._number(a), -1)]))
            case Binary("ge", a, b) if a.dtype.is_int:
                return self._below_zero(combine([(self._number(b), 1), (self._number(a), -1)], -1))
            case Binary("eq" | "ne" as op, a, b) if a.dtype.is_int:
                difference = self.linear_bounds(
                    combine([(self._number(a), 1), (self._number(b), -1)])
                )
                if difference.low == 0 == difference.high:
                    return op == "eq"
                if (difference.low is not None and difference.low > 0) or (
                    difference.high is not None and difference.high < 0
                ):
                    return op == "ne"
            case Binary("logical_and", a, b):
                return _all(self.proves(a), self.proves(b))
            case ir.Unary("not", a):
                inner = self.proves(a)
                return None if inner is None else not inner
        return None

    def _below_zero(self, linear: Linear) -> bool | None:
        bounds = self.linear_bounds(linear)
        if bounds.high is not None and bounds.high < 0:
            return True
        if bounds.low is not None and bounds.low >= 0:
            return False
        raised = self._raise_to_maxima(linear)
        high = self.linear_bounds(raised).high
        return True if high is not None and high < 0 else None

    def _raise_to_maxima(self, linear: Linear) -> Linear:
        """An upper bound of `linear` with fewer loop variables and quotients in it.

        What the bound of another atom depends on waits for it: the two may cancel.
        """
        for _ in range(4):
            known = [(atom, self._raise_term(atom, factor)) for atom, factor in linear.terms]
            bounds = {atom: bound for atom, bound in known if bound is not None}
            below = [atom for bound, _ in bounds.values() for atom, _ in bound.terms]
            waiting = {var for atom in below for var in variables(atom)}
            raised = {atom: bounds[atom] for atom in bounds if atom not in waiting} or bounds
            if not raised:
                break
            parts = [raised.get(atom, (Linear(((atom, 1),), 0), n)) for atom, n in linear.terms]
            linear = combine(parts, linear.constant)
        return linear

    def _raise_term(self, atom: Expr, factor: int) -> tuple[Linear, int] | None:
        """An upper bound of `factor * atom`: a loop variable at its symbolic last value, and
        `d * (x // d)` between `x - d + 1` and `x`.
        """
        if isinstance(atom, Var):
            last = self._maxima.get(atom)
            return (self._number(last), factor) if last is not None and factor > 0 else None
        if isinstance(atom, Binary) and atom.op == "min" and factor > 0:
            left, right = self._number(atom.a), self._number(atom.b)
            return (right if right.terms else left), factor
        if not isinstance(atom, Binary) or atom.op != "floordiv":
            return None
        divisor = const_int(atom.b) or 0
        if divisor <= 0 or factor % divisor:
            return None
        value = self._number(atom.a)
        if factor > 0:
            return self._floor_to_multiple(value, divisor), factor // divisor
        return combine([(value, 1)], 1 - divisor), factor // divisor

    def _floor_to_multiple(self, linear: Linear, divisor: int) -> Linear:
        """An upper bound of `divisor * (linear // divisor)`, exact when every atom is known to be a
        multiple.
        """
        if all(self._factor(atom) * factor % divisor == 0 for atom, factor in linear.terms):
            return Linear(linear.terms, linear.constant // divisor * divisor)
        return linear

    def are_natural(self, a: Expr, b: Expr) -> bool:
        """Whether a is known to be at least 0 and b more: then a / b rounded down and to zero are
        one number.
        """
        low = self.bounds(b).low
        return _at_least_zero(self.bounds(a)) and low is not None and low > 0

    def divides(self, divisor: int, value: Expr) -> bool:
        """Whether `value` is known to be a multiple of `divisor`."""
        wraps = divisor & (divisor - 1) and not self.fits(value)
        return not wraps and self.linear_divides(divisor, self.linear(value))

    def linear_divides(self, divisor: int, linear: Linear) -> bool:
        """Whether a sum is known to be a multiple of `divisor`."""
        return linear.constant % divisor == 0 and all(
            self._factor(atom) * factor % divisor == 0 for atom, factor in linear.terms
        )

    def _factor(self, atom: Expr) -> int:
        """A number that `atom` is known to be a multiple of."""
        known = self._factors.get(atom, 1)
        match atom:
            case Const() if atom.dtype.is_int:
                return int(atom.value)
            case ir.Cast(inner, dtype) if inner.dtype.is_int and dtype.bits >= inner.dtype.bits:
                factor = self._factor(inner)
                known = max(known, factor if _contains(dtype, inner.dtype) else factor & -factor)
            case Binary("mul", a, b):
                factor = self._factor(a) * self._factor(b)
                known = max(known, factor if self.fits(atom) else factor & -factor)
            case Binary("floormod", a, Const() as modulus) if self.fits(a):
                form = self.linear(a)
                parts = (self._factor(each) * factor for each, factor in form.terms)
                known = max(known, gcd(int(modulus.value), form.constant, *parts))
        return known

    def in_range(self, index: Expr, extent: Expr) -> tuple[bool, bool]:
        """Whether `0 <= index` and `index < extent` are known to hold, in all lanes of a vector."""
        if isinstance(index, ir.Ramp):
            last = add(index.base, mul(index.stride, int_const(index.lanes - 1)))
            ends = (self.in_range(index.base, extent), self.in_range(last, extent))
            return ends[0][0] and ends[1][0], ends[0][1] and ends[1][1]
        linear = self.linear(index)
        at_least = self._below_zero(combine([(linear, -1)], -1)) is True
        below = self._below_zero(combine([(linear, 1), (self._number(extent), -1)])) is True
        if (at_least and below) or self.fits(index):
            return at_least, below
        return False, False

    def guards(self, index: Expr, extent: Expr) -> list[Expr]:
        """The conditions under which `0 <= index < extent`, without those known to hold."""
        at_least, below = self.in_range(index, extent)
        conditions = [] if at_least else [binary("ge", index, const(0, index.dtype.scalar))]
        return conditions if below else [*conditions, binary("lt", index, extent)]


def _dtype_interval(dtype: DType) -> Interval:
    return Interval(int(dtype.min_value), int(dtype.max_value)) if dtype.is_int else ANY


def _fits(interval: Interval, dtype: DType) -> bool:
    return (
        interval.low is not None
        and interval.high is not None
        and dtype.min_value <= interval.low
        and interval.high <= dtype.max_value
    )


def _is_index(dtype: DType) -> bool:
    """Whether sums of `dtype` have linear forms though they may wrap around."""
    return dtype.is_int and dtype.is_signed and dtype.bits >= 32


def _contains(dtype: DType, other: DType) -> bool:
    """Whether every value of `other` is one of `dtype`."""
    return bool(dtype.min_value <= other.min_value and other.max_value <= dtype.max_value)


def _natural(interval: Interval) -> bool:
    return interval.low is not None and interval.low >= 0 and interval.high is not None


def _product(a: Interval, b: Interval) -> Interval:
    if None in (a.low, a.high, b.low, b.high):
        return Interval(0, None) if _at_least_zero(a) and _at_least_zero(b) else ANY
    ends = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]  # type: ignore[operator]
    return Interval(min(ends), max(ends))


def _at_least_zero(interval: Interval) -> bool:
    return interval.low is not None and interval.low >= 0


def _all(a: bool | None, b: bool | None) -> bool | None:
    if a is False or b is False:
        return False
    return True if a and b else None
