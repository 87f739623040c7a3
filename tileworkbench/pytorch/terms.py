"""Expressions of generated kernels: what an element of a value follows from, and how T writes it.

A term is of one element of a tile ("full"), of a row, or of nothing (a number). Operators promote
as torch does; 16-bit floats are computed in float32, as torch's own compiler computes them.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, Literal

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.pytorch.dtypes import compute_dtype, name_of, promote, weak_dtype

Kind = Literal["number", "row", "full"]
_ORDER: tuple[Kind, ...] = ("number", "row", "full")
_LEVELS = {"<": 4, "<=": 4, ">": 4, ">=": 4, "==": 4, "!=": 4, "|": 5, "^": 6, "&": 7}
_LEVELS |= {">>": 8, "<<": 8, "+": 9, "-": 9, "*": 10, "/": 10, "//": 10, "%": 10}
_SHIFTS = (">>", "<<")
_COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
_ATOM, _UNARY = 12, 11


class NoRuleError(Exception):
    """There is no T expression for this use of an operation; its text says why."""


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """An expression: `op` with `args`.

    `op` is an operator, "call" (a name of T and its arguments), "cast", "number", "load" (an
    input), "element" (its text, and the least and largest value of it where they are known),
    "gather" (an input, and the row of it), "pick" (an element, and its column), "column"
    (where an element is in its row) or "value" (a definition). `stage` counts the reductions
    over rows that come before it.
    """

    op: str
    args: tuple[Any, ...]
    dtype: Any  # of torch; never a 16-bit float
    kind: Kind = "number"
    stage: int = 0

    def __add__(self, other: Any) -> Term:
        return binary("+", self, other)

    def __radd__(self, other: Any) -> Term:
        return binary("+", other, self)

    def __sub__(self, other: Any) -> Term:
        return binary("-", self, other)

    def __rsub__(self, other: Any) -> Term:
        return binary("-", other, self)

    def __mul__(self, other: Any) -> Term:
        return binary("*", self, other)

    def __rmul__(self, other: Any) -> Term:
        return binary("*", other, self)

    def __truediv__(self, other: Any) -> Term:
        return binary("/", self, other)

    def __rtruediv__(self, other: Any) -> Term:
        return binary("/", other, self)

    def __neg__(self) -> Term:
        if self.dtype.is_floating_point or self.dtype.is_signed:
            return _made("neg", (self,), self.dtype)
        raise NoRuleError(f"the negative of a {name_of(self.dtype)}")

    def __lt__(self, other: Any) -> Term:
        return binary("<", self, other)

    def __le__(self, other: Any) -> Term:
        return binary("<=", self, other)

    def __gt__(self, other: Any) -> Term:
        return binary(">", self, other)

    def __ge__(self, other: Any) -> Term:
        return binary(">=", self, other)

    def equals(self, other: Any) -> Term:
        """Whether the two are equal, element by element."""
        return binary("==", self, other)

    def differs(self, other: Any) -> Term:
        """Whether the two differ, element by element."""
        return binary("!=", self, other)

    @property
    def is_bool(self) -> bool:
        return name_of(self.dtype) == "bool"

    def to(self, dtype: Any) -> Term:
        """The value in the dtype that `dtype` is computed in."""
        wanted = compute_dtype(dtype)
        if wanted == self.dtype:
            return self
        if self.op == "number":
            return number(self.args[0], wanted)
        return _made("cast", (self,), wanted)

    def wrapped(self, dtype: Any) -> Term:
        """The value in the dtype that `dtype` is computed in, as far as `dtype` has room for it:
        integers of 8 bits, which are computed in more, begin anew behind their largest one.
        """
        is_narrow = name_of(dtype) in ("int8", "uint8")
        return self.rounded(dtype) if is_narrow else self.to(dtype)

    def rounded(self, dtype: Any) -> Term:
        """The value rounded to `dtype`, as an explicit conversion of the user's does."""
        wanted = compute_dtype(dtype)
        if wanted == dtype or _is_exact(self, dtype):
            return self.to(dtype)
        # To integers of 8 bits by way of those of 32: floats, too, begin anew behind the largest.
        wide = self if dtype.is_floating_point else self.to(dtype)
        narrow = Term("cast", (wide,), dtype, self.kind, self.stage)
        return Term("cast", (narrow,), wanted, self.kind, self.stage)


def number(value: Any, dtype: Any) -> Term:
    """A constant."""
    if dtype.is_floating_point:
        value = float(value)
    elif name_of(dtype) == "bool":
        value = bool(value)
    return Term("number", (value,), compute_dtype(dtype))


def promoted(a: Any, b: Any) -> tuple[Term, Term, Any]:
    """Both as terms, and the dtype that they are brought to; a number takes that of the other."""
    if not isinstance(a, Term):
        a = number(a, weak_dtype(a, b.dtype))
    if not isinstance(b, Term):
        b = number(b, weak_dtype(b, a.dtype))
    return a, b, compute_dtype(promote(a.dtype, b.dtype))


Keep = Callable[[str, Term], Term]
"""Keeps a term under a name, which stands where the term is used."""


def binary(op: str, a: Any, b: Any) -> Term:
    """`a op b` in the promoted dtype; a number takes that of the other."""
    a, b, common = promoted(a, b)
    if op == "/" and not common.is_floating_point:
        common = weak_dtype(1.0, common)
    if name_of(common) == "bool" and op not in _COMPARISONS:
        raise NoRuleError(f"'{op}' of two bools")
    result = weak_dtype(True, None) if op in _COMPARISONS else common
    return _made(op, (a.to(common), b.to(common)), result)


def bitwise(op: str, a: Any, b: Any) -> Term:
    """`a op b` of integers, for the operators of bits."""
    if not isinstance(a, Term):
        a = number(a, b.dtype)
    if not isinstance(b, Term):
        b = number(b, a.dtype)
    if any(each.dtype.is_floating_point or each.is_bool for each in (a, b)):
        raise NoRuleError(f"'{op}' of what are no integers")
    if op in _SHIFTS:
        return _made(op, (a, b), a.dtype)
    common = promote(a.dtype, b.dtype)
    return _made(op, (a.to(common), b.to(common)), common)


def call(name: str, *args: Any, dtype: Any = None) -> Term:
    """`T.name(...)` of floats, in the dtype of the first of them, or `dtype`."""
    first = next(each for each in args if isinstance(each, Term))
    return _made("call", (name, *args), dtype or first.dtype)


def of_float(name: str) -> Callable[[Term], Term]:
    """A function of T that takes a float; integers become float32 first, as in torch."""

    def apply(x: Term) -> Term:
        wide = x if x.dtype.is_floating_point else x.to(weak_dtype(1.0, x.dtype))
        if name_of(wide.dtype) == "float64":
            raise NoRuleError(f"'{name}' of a float64")
        return call(name, wide)

    return apply


def of_floats(name: str, a: Any, b: Any) -> Term:
    """A function of T of two floats, in the promoted dtype."""
    a, b, common = promoted(a, b)
    if not common.is_floating_point:
        raise NoRuleError(f"'{name}' of integers")
    if name_of(common) == "float64":
        raise NoRuleError(f"'{name}' of a float64")
    return call(name, a.to(common), b.to(common))


def select(condition: Term, then: Any, other: Any) -> Term:
    """`then` where the condition holds, else `other`."""
    if not isinstance(then, Term) and not isinstance(other, Term):
        raise NoRuleError("a choice between two numbers")
    if not isinstance(then, Term):
        then = number(then, weak_dtype(then, other.dtype))
    if not isinstance(other, Term):
        other = number(other, weak_dtype(other, then.dtype))
    common = promote(then.dtype, other.dtype)
    return _made("call", ("if_then_else", condition, then.to(common), other.to(common)), common)


def _made(op: str, args: tuple[Any, ...], dtype: Any) -> Term:
    terms = [each for each in args if isinstance(each, Term)]
    kind = max((each.kind for each in terms), key=_ORDER.index)
    return Term(op, args, dtype, kind, max(each.stage for each in terms))


# Integers that fit

Bounds = tuple[int, int]
_FITS: dict[str, Bounds] = {"int8": (-128, 127), "uint8": (0, 255)}
_EXACT: dict[str, Bounds] = {**_FITS, "bfloat16": (-256, 256), "float16": (-2048, 2048)}


def _is_exact(term: Term, dtype: Any) -> bool:
    """Whether each value that an integer may have is one of `dtype`."""
    own, room = bounds_of(term), _EXACT[name_of(dtype)]
    return own is not None and room[0] <= own[0] and own[1] <= room[1]


def bounds_of(term: Term) -> Bounds | None:
    """The least and the largest value of an integer, as far as its term says; None where it does
    not."""
    op, args = term.op, term.args
    if term.dtype.is_floating_point or term.is_bool:
        return None
    if op == "value":
        return None if args[0].reduce else bounds_of(args[0].term)
    if op == "number":
        return args[0], args[0]
    if op == "element" and len(args) > 1:
        return args[1], args[2]
    if op == "cast" or op in ("load", "element", "gather"):
        inner = bounds_of(args[0]) if op == "cast" else None
        return inner or _FITS.get(name_of(term.dtype))
    if op in ("+", "-", ">>", "&"):
        return _bounds_of_operation(op, bounds_of(args[0]), bounds_of(args[1]))
    return None


def _bounds_of_operation(op: str, a: Bounds | None, b: Bounds | None) -> Bounds | None:
    if op == "&":
        masks = [each[1] for each in (a, b) if each is not None and each[0] >= 0]
        return (0, min(masks)) if masks else None
    if a is None or b is None:
        return None
    if op == ">>":
        return (min(a[0], 0), max(a[1], -1)) if b[0] >= 0 else None
    made = (a[0] + b[0], a[1] + b[1]) if op == "+" else (a[0] - b[1], a[1] - b[0])
    return made if made[0] >= -(1 << 31) and made[1] < 1 << 31 else None


# Text

Write = Callable[[Term], str]


NEUTRAL = {"sum": 0.0, "prod": 1.0, "max": -inf, "min": inf}  # what changes no reduction


def reduction_text(how: str, tile: str, made: str, more: bool = False) -> str:
    """The statement that reduces each row of a tile, or with `more` a further piece of each; of a
    row with NaN it is NaN, as in torch.
    """
    last = ", clear=False" if more else ""
    last += ", nan_propagate=True" if how in ("max", "min") else ""
    return f"T.reduce_{how}({tile}, {made}, dim=1{last})"


def text_of(term: Term, leaf: Write) -> str:
    """The text of a term; `leaf` writes loads and values."""
    return _text(term, leaf)[0]


def _text(term: Term, leaf: Write) -> tuple[str, int]:
    op, args = term.op, term.args
    if op == "value" and args[0].is_inline:
        return _text(args[0].term, leaf)
    if op == "element":
        return args[0], _ATOM
    if op in ("load", "gather", "column", "value"):
        return leaf(term), _ATOM
    if op == "pick":
        return leaf(term), _ATOM if args[0].op == "load" else 0
    if op == "number":
        return _number_text(args[0], term.dtype)
    if op == "cast":
        return f"T.cast({_text(args[0], leaf)[0]}, T.{name_of(term.dtype)})", _ATOM
    if op == "call":
        inner = (_text(x, leaf)[0] if isinstance(x, Term) else repr(x) for x in args[1:])
        return f"T.{args[0]}({', '.join(inner)})", _ATOM
    if op == "neg":
        return f"-{_inside(args[0], leaf, _UNARY)}", _UNARY
    level = _LEVELS[op]
    # What stands on the right of an operator of its own level is in parentheses, and a comparison
    # on either side of one: Python would chain them.
    left = _inside(args[0], leaf, level + (op in _COMPARISONS))
    right = _inside(args[1], leaf, level + 1)
    return f"{left} {op} {right}", level


def _inside(term: Term, leaf: Write, level: int) -> str:
    text, own = _text(term, leaf)
    return text if own >= level else f"({text})"


def _number_text(value: Any, dtype: Any) -> tuple[str, int]:
    if isinstance(value, float) and value != value:
        raise NoRuleError("NaN as a constant")
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        text = f"T.infinity(T.{name_of(dtype)})"
        return (text, _ATOM) if value > 0 else (f"-{text}", _UNARY)
    return repr(value), _ATOM if value >= 0 else _UNARY
