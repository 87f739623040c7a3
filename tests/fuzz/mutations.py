"""Random changes of kernels' text: what people get wrong, and what nobody would write.

Changes are made to the syntax tree, so that Python always accepts the text and the front end has to
say what is wrong with it. The same seed gives the same text.
"""

from __future__ import annotations

import ast
import copy
import random
from collections.abc import Callable

import tileworkbench.language as T

NAMES = sorted(name for name in dir(T) if not name.startswith("_"))
VALUES: tuple[object, ...] = (
    *(0, 1, -1, 2, 3, 7, 64, 127, 255, 1 << 31, (1 << 31) - 1, -(1 << 31), 1 << 63, 1 << 64),
    *(0.0, 0.5, -1.5, 1e30, 1e400, float("nan"), True, False, None, ..., 1j),
    *("", "x", "float32", "int8", "float8_e4m3fn", "shared", "é", b"bytes"),
)
OPERATORS = (
    *(ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.MatMult),
    *(ast.LShift, ast.RShift, ast.BitAnd, ast.BitOr, ast.BitXor),
)
COMPARISONS = (
    *(ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Is, ast.IsNot, ast.In, ast.NotIn),
)
KEYWORDS = (
    *("dim", "clear", "threads", "num_stages", "transpose_A", "policy", "shape", "dtype", "scope"),
    *("init", "annotations", "reverse", "step", "order", "value", "nothing"),
)
Change = Callable[[ast.Module, random.Random], bool]


def mutate(source: str, seed: int) -> str:
    """`source` with one to three changes."""
    chance = random.Random(seed)
    while True:
        tree = ast.parse(source)
        wanted = chance.choice((1, 1, 1, 2, 3))
        for _ in range(50):
            if wanted and chance.choice(CHANGES)(tree, chance):
                wanted -= 1
        try:
            return ast.unparse(ast.fix_missing_locations(tree)) + "\n"
        except ValueError:  # a tree without a text
            continue


def _body(tree: ast.Module) -> list[ast.stmt]:
    """The statements of the functions; what is around them stays."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return [statement for function in functions for statement in function.body]


def _pick(tree: ast.Module, chance: random.Random, *kinds: type[ast.AST]) -> ast.AST | None:
    found = [node for part in _body(tree) for node in ast.walk(part) if isinstance(node, kinds)]
    return chance.choice(found) if found else None


def _replace(tree: ast.Module, old: ast.AST, new: ast.AST) -> bool:
    for parent in ast.walk(tree):
        for field, value in ast.iter_fields(parent):
            if value is old:
                setattr(parent, field, new)
                return True
            if isinstance(value, list):
                for at, item in enumerate(value):
                    if item is old:
                        value[at] = new
                        return True
    return False


def _is_read(node: ast.AST) -> bool:
    return isinstance(node, ast.expr) and isinstance(getattr(node, "ctx", ast.Load()), ast.Load)


def _some_expression(tree: ast.Module, chance: random.Random) -> ast.expr | None:
    found = [node for part in _body(tree) for node in ast.walk(part) if _is_read(node)]
    found = [node for node in found if not isinstance(node, ast.Slice | ast.Starred)]
    return chance.choice(found) if found else None  # type: ignore[return-value]


def change_value(tree: ast.Module, chance: random.Random) -> bool:
    node = _pick(tree, chance, ast.Constant)
    if not isinstance(node, ast.Constant):
        return False
    node.value = chance.choice(VALUES)  # type: ignore[assignment]
    return True


def change_name(tree: ast.Module, chance: random.Random) -> bool:
    node, other = _pick(tree, chance, ast.Name), _pick(tree, chance, ast.Name)
    if not isinstance(node, ast.Name) or not isinstance(other, ast.Name):
        return False
    node.id = chance.choice((other.id, other.id, other.id, "missing", "len", "print"))
    return True


def change_construct(tree: ast.Module, chance: random.Random) -> bool:
    node = _pick(tree, chance, ast.Attribute)
    if not isinstance(node, ast.Attribute):
        return False
    node.attr = chance.choice((*chance.sample(NAMES, 4), "shape", "dtype", "missing"))
    return True


def change_operator(tree: ast.Module, chance: random.Random) -> bool:
    node = _pick(tree, chance, ast.BinOp, ast.AugAssign, ast.Compare, ast.UnaryOp, ast.BoolOp)
    match node:
        case ast.BinOp() | ast.AugAssign():
            node.op = chance.choice(OPERATORS)()
        case ast.Compare():
            node.ops[0] = chance.choice(COMPARISONS)()
        case ast.UnaryOp():
            node.op = chance.choice((ast.Not, ast.Invert, ast.USub, ast.UAdd))()
        case ast.BoolOp():
            node.op = chance.choice((ast.And, ast.Or))()
        case _:
            return False
    return True


def exchange_expressions(tree: ast.Module, chance: random.Random) -> bool:
    old, new = _some_expression(tree, chance), _some_expression(tree, chance)
    return old is not None and new is not None and _replace(tree, old, copy.deepcopy(new))


def wrap_expression(tree: ast.Module, chance: random.Random) -> bool:
    old, other = _some_expression(tree, chance), _some_expression(tree, chance)
    if old is None or other is None:
        return False
    inner, other = copy.deepcopy(old), copy.deepcopy(other)
    read = ast.Load()
    construct = ast.Attribute(ast.Name("T", read), chance.choice(NAMES), read)
    new: ast.expr = chance.choice(
        (
            ast.Tuple([inner, other], read),
            ast.List([inner], read),
            ast.Subscript(inner, other, read),
            ast.Subscript(inner, ast.Slice(other, None, None), read),
            ast.Subscript(inner, ast.Tuple([other, ast.Slice()], read), read),
            ast.Call(construct, [inner], []),
            ast.Call(construct, [inner, other], []),
            ast.Call(inner, [other], []),
            ast.IfExp(other, inner, copy.deepcopy(other)),
            ast.BinOp(inner, chance.choice(OPERATORS)(), other),
            ast.Compare(inner, [chance.choice(COMPARISONS)()], [other]),
            ast.BoolOp(ast.And(), [inner, other]),
            ast.UnaryOp(chance.choice((ast.Not, ast.Invert, ast.USub))(), inner),
            ast.Attribute(inner, chance.choice(("shape", "dtype", "data", "T", "missing")), read),
            ast.Lambda(ast.arguments([], [], None, [], [], None, []), inner),
            ast.Dict([inner], [other]),
            ast.JoinedStr([ast.FormattedValue(inner, -1, None)]),
        )
    )
    return _replace(tree, old, new)


def change_arguments(tree: ast.Module, chance: random.Random) -> bool:
    node, other = _pick(tree, chance, ast.Call), _some_expression(tree, chance)
    if not isinstance(node, ast.Call) or other is None:
        return False
    other, how = copy.deepcopy(other), chance.randrange(6)
    if how == 0 and node.args:
        node.args.pop(chance.randrange(len(node.args)))
    elif how == 1:
        node.args.insert(chance.randint(0, len(node.args)), other)
    elif how == 2 and len(node.args) > 1:
        chance.shuffle(node.args)
    elif how == 3:
        name = chance.choice(KEYWORDS)
        node.keywords = [word for word in node.keywords if word.arg != name]
        node.keywords.append(ast.keyword(name, other))
    elif how == 4 and node.keywords:
        node.keywords.pop(chance.randrange(len(node.keywords)))
    elif node.keywords:
        chance.choice(node.keywords).value = other
    else:
        return False
    return True


def _suites(tree: ast.Module) -> list[list[ast.stmt]]:
    found = []
    for part in [tree, *_body(tree)]:
        for node in ast.walk(part):
            if not isinstance(node, ast.Module):
                found += [s for s in (getattr(node, "body", 0), getattr(node, "orelse", 0)) if s]
    return [suite for suite in found if isinstance(suite, list)]


def change_statements(tree: ast.Module, chance: random.Random) -> bool:
    suites = _suites(tree)
    if not suites:
        return False
    one, two = chance.choice(suites), chance.choice(suites)
    at = chance.randrange(len(one))
    statement = copy.deepcopy(one[at])
    how = chance.randrange(4)
    if how == 0 and len(one) > 1:
        one.pop(at)
    elif how == 1:
        two.insert(chance.randint(0, len(two)), statement)
    elif how == 2 and len(one) > 1:
        chance.shuffle(one)
    elif hasattr(statement, "body") and isinstance(statement.body, list):
        one[at : at + 1] = statement.body
    else:
        return False
    return True


def add_statement(tree: ast.Module, chance: random.Random) -> bool:
    suites, value = _suites(tree), _some_expression(tree, chance)
    if not suites or value is None:
        return False
    suite, value = chance.choice(suites), copy.deepcopy(value)
    at = chance.randint(0, len(suite))
    rest = copy.deepcopy(suite[at:]) or [ast.Pass()]
    name = ast.Name(chance.choice(("x", "i", "A", "T", "bx")), ast.Store())
    made: ast.stmt = chance.choice(
        (
            ast.Expr(value),
            ast.Assign([name], value, lineno=1),
            ast.AugAssign(name, chance.choice(OPERATORS)(), value),
            ast.AnnAssign(name, value, None, 1),
            ast.Return(value),
            ast.Raise(value, None),
            ast.Assert(value, None),
            ast.Delete([ast.Name(name.id, ast.Del())]),
            ast.If(value, rest, []),
            ast.While(value, rest, []),
            ast.For(name, value, rest, [], lineno=1),
            ast.With([ast.withitem(value, name)], rest, lineno=1),
            ast.Try(rest, [ast.ExceptHandler(None, None, [ast.Pass()])], [], []),
            ast.Global([name.id]),
            ast.Import([ast.alias("math", None)]),
        )
    )
    suite[at:] = [made] if hasattr(made, "body") else [made, *suite[at:]]
    return True


CHANGES: tuple[Change, ...] = (
    *(change_value, change_name, change_construct, change_operator, exchange_expressions),
    *(wrap_expression, change_arguments, change_statements, add_statement),
)
