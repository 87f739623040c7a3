"""Layouts as one line of text: digit formulas printed, and read without evaluating code."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from math import prod
from typing import Any

from tileworkbench.compiler.diagnostics import LayoutError
from tileworkbench.compiler.fast_dataclass import dataclass

from .digits import DigitSum, Shape
from .maps import DigitMap, Function, IndexMap, build_map, check_shape, make_map

NAMES = ("i", "j", "k", "m", "n", "p")
OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.BitXor: operator.xor,
}


def index_names(rank: int) -> tuple[str, ...]:
    """Names of the index variables of a formula: ``i j k m n p``, or ``x0 x1 ...`` beyond."""
    return NAMES[:rank] if rank <= len(NAMES) else tuple(f"x{dim}" for dim in range(rank))


def format_sum(shape: Shape, total: DigitSum, names: tuple[str, ...]) -> str:
    """The formula of a digit sum, largest strides first: ``64*(i//8) + 8*(i%8 ^ j//8) + j%8``.

    The sum is nowhere negative, so a constant above zero makes up for negative strides.
    """
    parts = []
    for term in sorted(total.terms, key=lambda term: -abs(term.stride)):
        digits = []
        for digit in term.digits:
            text = names[digit.dim]
            if digit.divisor > 1:
                text += f"//{digit.divisor}"
            if digit.divisor * digit.extent < shape[digit.dim]:
                text += f"%{digit.extent}"
            digits.append(text)
        text = " ^ ".join(digits)
        scale = abs(term.stride)
        if len(digits) > 1 or (scale != 1 and text != names[term.digits[0].dim]):
            text = f"({text})"
        parts.append(("-" if term.stride < 0 else "+", text if scale == 1 else f"{scale}*{text}"))
    if total.constant or not parts:
        # What is subtracted comes after the constant: '-i//2' would be '(-i)//2'.
        place = 0 if parts and parts[0][0] == "-" else len(parts)
        parts.insert(place, ("+", str(total.constant)))
    return parts[0][1] + "".join(f" {sign} {text}" for sign, text in parts[1:])


def format_outputs(mapping: DigitMap, names: tuple[str, ...]) -> str:
    """The outputs of a digit map as a Python tuple of formulas."""
    outputs = [format_sum(mapping.shape, total, names) for total in mapping.sums]
    return f"({outputs[0]},)" if len(outputs) == 1 else f"({', '.join(outputs)})"


def format_map(mapping: IndexMap, names: tuple[str, ...]) -> str:
    """A map as source text: a lambda of digits, or the list of all outputs, row-major."""
    if isinstance(mapping, DigitMap):
        return f"lambda {', '.join(names)}: {format_outputs(mapping, names)}"
    rows = mapping.values.reshape(-1, mapping.values.shape[-1]).tolist()
    return repr([tuple(row) for row in rows])


@dataclass(frozen=True, slots=True)
class ParsedMap:
    """What the text of a layout says: its class, shape, function or table, and keywords."""

    kind: str
    shape: Shape
    function: Function | None
    table: list[tuple[int, ...]] | None
    keywords: dict[str, Any]


def parse_map(text: str, kind: str, keywords: tuple[str, ...] = ()) -> ParsedMap:
    """Read ``kind(shape, lambda ...)`` or ``kind(shape, [...])`` with the given keywords.

    The text is parsed, never evaluated: only integers, tuples, lists, the lambda's own variables
    and ``+ - * // % ^`` are understood.

    Raises:
        LayoutError: anything else.
    """
    try:
        call = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise _malformed(text, kind, "it is not an expression") from error
    if not (
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id == kind
        and len(call.args) == 2
    ):
        raise _malformed(text, kind, f"it is not '{kind}(shape, map)'")
    if any(keyword.arg not in keywords for keyword in call.keywords):
        raise _malformed(text, kind, "it has an unknown keyword")
    try:
        shape = ast.literal_eval(call.args[0])
        values = {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
        body = call.args[1]
        if isinstance(body, ast.Lambda):
            return ParsedMap(kind, shape, _make_function(text, kind, body), None, values)
        return ParsedMap(kind, shape, None, [tuple(row) for row in ast.literal_eval(body)], values)
    except (ValueError, TypeError, RecursionError) as error:
        if isinstance(error, LayoutError):
            raise
        raise _malformed(text, kind, "its shape, table and keywords must be literals") from error


def _make_function(text: str, kind: str, source: ast.Lambda) -> Function:
    """A function that interprets the lambda; its syntax is checked here, once."""
    names = [argument.arg for argument in source.args.args]
    arity = len(source.args.args)
    body = source.body.elts if isinstance(source.body, ast.Tuple) else [source.body]
    for node in body:
        _check_formula(text, kind, node, names)

    def function(*values: Any) -> tuple[Any, ...]:
        if len(values) != arity:
            raise _malformed(text, kind, f"its function takes {arity} indices, not {len(values)}")
        known = dict(zip(names, values, strict=True))
        return tuple(_evaluate(node, known) for node in body)

    return function


def _check_formula(text: str, kind: str, node: ast.expr, names: list[str]) -> None:
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        _check_formula(text, kind, node.left, names)
        _check_formula(text, kind, node.right, names)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        _check_formula(text, kind, node.operand, names)
    elif not (isinstance(node, ast.Name) and node.id in names) and not (
        isinstance(node, ast.Constant) and type(node.value) is int
    ):
        raise _malformed(text, kind, f"'{ast.unparse(node)}' is not index arithmetic")


def _evaluate(node: ast.expr, known: dict[str, Any]) -> Any:
    if isinstance(node, ast.BinOp):
        return OPERATORS[type(node.op)](_evaluate(node.left, known), _evaluate(node.right, known))
    if isinstance(node, ast.UnaryOp):
        return _evaluate(node.operand, known) * -1
    if isinstance(node, ast.Name):
        return known[node.id]
    return node.value  # type: ignore[attr-defined]  # a constant, as checked


def _malformed(text: str, kind: str, reason: str) -> LayoutError:
    return LayoutError(f"'{text}' is not the text of a {kind}: {reason}.")


def build_parsed(parsed: ParsedMap, shape: Shape) -> IndexMap:
    """The map of parsed text over the box `shape`."""
    if parsed.function is not None:
        return build_map(shape, parsed.function)
    import numpy as np

    box = check_shape(shape)
    rows = parsed.table or []
    if len(rows) != prod(box) or len({len(row) for row in rows}) != 1:
        raise LayoutError(f"A table over '{shape}' needs {prod(box)} equal rows, not {len(rows)}.")
    values = np.array(rows, np.int64)
    return make_map(box, values.reshape(*box, -1))
