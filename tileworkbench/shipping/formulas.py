"""Expressions of the IR as formulas of a manifest, and those as C."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.compiler.ir.expr import Binary, Cast, Const, Expr, Select, Unary, Var
from tileworkbench.compiler.ir.printer import print_expr
from tileworkbench.compiler.runtime.parameters import DerivedDim, DimSpec
from tileworkbench.shipping.shipped.formulas import OPERATIONS, Formula

# C has the operators of these; the others are functions of the C text's own (`HELPERS`).
_OPERATORS = {
    **{"add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^"},
    **{"shl": "<<", "shr": ">>", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">"},
    **{"ge": ">=", "logical_and": "&&", "logical_or": "||"},
}
_FUNCTIONS = {
    **{"floordiv": "floor_div", "floormod": "floor_mod"},
    **{"truncdiv": "trunc_div", "truncmod": "trunc_mod"},
    **{"min": "least", "max": "most", "abs": "magnitude"},
}
HELPERS = """\
/* A division by zero gives 0: sizes that it would be for are refused. */
static inline int64_t trunc_div(int64_t a, int64_t b) { return b ? a / b : 0; }
static inline int64_t trunc_mod(int64_t a, int64_t b) { return b ? a % b : 0; }
static inline int64_t floor_div(int64_t a, int64_t b) {
    return trunc_div(a, b) - (trunc_mod(a, b) != 0 && (a < 0) != (b < 0));
}
static inline int64_t floor_mod(int64_t a, int64_t b) { return a - b * floor_div(a, b); }
static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t magnitude(int64_t a) { return a < 0 ? -a : a; }
"""


def formula_of(value: Expr | int) -> Formula:
    """An integer expression of symbols and scalars. Raises `UnsupportedError` for any other."""
    match value:
        case int():
            return value
        case Const() if value.dtype.is_int or value.dtype.is_bool:
            return int(value.value)
        case Var(name) if not value.dtype.is_float:
            return name
        case Binary(op, a, b, dtype) if op in OPERATIONS and (dtype.is_int or dtype.is_bool):
            return [op, str(dtype), formula_of(a), formula_of(b)]
        case Unary(op, a, dtype) if op in OPERATIONS and (dtype.is_int or dtype.is_bool):
            return [op, str(dtype), formula_of(a)]
        case Select(condition, a, b) if a.dtype.is_int or a.dtype.is_bool:
            parts = [formula_of(each) for each in (condition, a, b)]
            return ["select", str(a.dtype), *parts]
        case Cast(inner, dtype) if dtype.is_int and not inner.dtype.is_float:
            return ["cast", str(dtype), formula_of(inner)]
    raise UnsupportedError(
        f"a shipped kernel computes its sizes with integers, and not '{print_expr(value)}'",
        hint="compute it before the call and pass it as an argument",
    )


def formula_of_dim(dim: DimSpec) -> Formula:
    """An extent or a stride of a parameter."""
    if isinstance(dim, DerivedDim):
        return formula_of(dim.formula)
    if dim.symbol is None:
        return dim.constant
    dtype = str(dim.dtype or "int64")
    term: Formula = dim.symbol
    if dim.coefficient != 1:
        term = ["mul", dtype, dim.coefficient, term]
    return ["add", dtype, term, dim.constant] if dim.constant else term


def c_text(formula: Formula, names: Mapping[str, str]) -> str:
    """A formula in C, on 64-bit integers; `names` are those of symbols and scalars there."""
    if isinstance(formula, int):
        return f"INT64_C({formula})" if formula >= 0 else f"(-INT64_C({-formula}))"
    if isinstance(formula, str):
        return names[formula]
    operation, _, *operands = formula
    texts = [c_text(each, names) for each in operands]
    return _SPELLINGS[operation](texts)


def _infix(sign: str) -> Callable[[Sequence[str]], str]:
    return lambda texts: f"({texts[0]} {sign} {texts[1]})"


def _function(name: str) -> Callable[[Sequence[str]], str]:
    return lambda texts: f"{name}({', '.join(texts)})"


_SPELLINGS: dict[str, Callable[[Sequence[str]], str]] = {
    **{operation: _infix(sign) for operation, sign in _OPERATORS.items()},
    **{operation: _function(name) for operation, name in _FUNCTIONS.items()},
    "not": lambda texts: f"(!{texts[0]})",
    "neg": lambda texts: f"(-{texts[0]})",
    "select": lambda texts: f"({texts[0]} ? {texts[1]} : {texts[2]})",
    "cast": lambda texts: texts[0],
}
