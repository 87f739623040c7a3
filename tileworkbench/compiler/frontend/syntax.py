"""Python's syntax: operators, what has no meaning in a kernel, which names are bound and read."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator
from typing import Any

# The fields of nodes that hold statements, and handlers and cases with statements of their own.
_BODIES = ("body", "handlers", "cases", "orelse", "finalbody")

OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "truediv",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.Pow: "pow",
    ast.LShift: "lshift",
    ast.RShift: "rshift",
    ast.BitAnd: "and_",
    ast.BitOr: "or_",
    ast.BitXor: "xor",
    ast.MatMult: "matmul",
}
COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
    ast.Is: "is_",
    ast.IsNot: "is_not",
    ast.In: "in",
    ast.NotIn: "not_in",
}
REFUSED: dict[str, str] = {
    "AsyncFor": "async for",
    "AsyncFunctionDef": "async def",
    "AsyncWith": "async with",
    "Await": "await",
    "ClassDef": "class",
    "Delete": "del",
    "Global": "global",
    "Match": "match",
    "Nonlocal": "nonlocal",
    "Try": "try",
    "TryStar": "try",
    "TypeAlias": "type",
    "Yield": "yield",
    "YieldFrom": "yield from",
}
HINTS = {
    "try": "nothing in a kernel raises; guard the statement with 'if'",
    "class": "define the class outside the kernel",
    "global": "return the value, or keep it in a buffer",
    "nonlocal": "keep the value in T.alloc_var",
}


def constant(value: Any) -> ast.Constant:
    """The node of a literal. It may hold a tuple of literals: Python's compiler accepts that,
    though its grammar has no such literal.
    """
    return ast.Constant(value)


def target_names(target: ast.expr) -> tuple[str, ...]:
    """A name for each element of a target: the name itself, for an element of a tensor that of the
    tensor.
    """
    if isinstance(target, ast.Name):
        return (target.id,)
    if isinstance(target, ast.Tuple | ast.List):
        return tuple(
            name for element in target.elts for name in (target_names(element) or ("value",))[:1]
        )
    if isinstance(target, ast.Subscript | ast.Starred | ast.Attribute):
        return target_names(target.value)
    return ()


def value_names(target: ast.expr) -> tuple[str, ...]:
    """Names for values that are computed before they are assigned to the elements of `target`."""
    elements = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
    return tuple(element.id if isinstance(element, ast.Name) else "value" for element in elements)


def bound_names(target: ast.AST) -> tuple[str, ...]:
    """The names that assigning to `target` binds."""
    return tuple(
        node.id
        for node in ast.walk(target)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    )


def statements_of(tree: ast.AST) -> Iterator[ast.AST]:
    """`tree` and the statements below it, outer ones first; no expressions, which are most nodes
    and hold no statement.
    """
    waiting = deque([tree])
    while waiting:
        node = waiting.popleft()
        yield node
        for field in _BODIES:
            waiting.extend(getattr(node, field, ()))


def assigned(statements: list[ast.stmt]) -> tuple[str, ...]:
    """Every name that `statements` may bind, each once, not looking into nested functions."""
    names: dict[str, None] = {}
    stack: list[ast.AST] = list(reversed(statements))
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names[node.id] = None
        if not isinstance(
            node,
            ast.FunctionDef
            | ast.Lambda
            | ast.ListComp
            | ast.SetComp
            | ast.DictComp
            | ast.GeneratorExp,
        ):
            stack.extend(reversed(list(ast.iter_child_nodes(node))))
    return tuple(names)


def reads(value: ast.expr) -> frozenset[str]:
    """The names that an expression reads."""
    return frozenset(
        node.id
        for node in ast.walk(value)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    )
