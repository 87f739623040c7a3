"""A user's function made runnable under a trace: rewritten, compiled with its own places, bound to
its own names.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import CellType, CodeType, FunctionType
from typing import Any

from tileworkbench.compiler.diagnostics import Span, TileSyntaxError
from tileworkbench.compiler.frontend import errors
from tileworkbench.compiler.frontend.control import Control
from tileworkbench.compiler.frontend.dtypes import is_dtype
from tileworkbench.compiler.frontend.rewrite import CONTROL, FunctionRewriter
from tileworkbench.compiler.frontend.source import Located, locate
from tileworkbench.compiler.frontend.syntax import statements_of
from tileworkbench.compiler.ir.types import DType


def rewritten(fn: Callable[..., Any], namespace: Mapping[str, Any]) -> Callable[..., Any]:
    """`fn` rewritten, with the same globals, defaults and closure; `namespace` holds enclosing
    names it may not close over.

    Raises `TileSyntaxError` for syntax that has no meaning in a kernel.
    """
    located = locate(fn)
    free = fn.__code__.co_freevars
    extra = tuple(
        name for name in _annotation_names(located.node) if name in namespace and name not in free
    )
    code, spans = _compile(_Key(located, (*free, *extra)))
    cells = dict(zip(free, fn.__closure__ or (), strict=True))
    cells |= {name: CellType(namespace[name]) for name in extra}
    cells[CONTROL] = CellType(Control(spans))
    made = FunctionType(
        code,
        fn.__globals__,
        fn.__name__,
        fn.__defaults__,
        tuple(cells[name] for name in code.co_freevars),
    )
    made.__kwdefaults__ = fn.__kwdefaults__
    made.__qualname__ = fn.__qualname__
    return made


@lru_cache(maxsize=256)
def _annotation_names(node: ast.FunctionDef) -> tuple[str, ...]:
    """Names read by annotations, which a function that postpones them does not close over."""
    names: dict[str, None] = {}
    for child in statements_of(node):
        inner = ast.walk(child.args) if isinstance(child, ast.FunctionDef) else (child,)
        for each in inner:
            if isinstance(each, ast.AnnAssign | ast.arg) and each.annotation is not None:
                for name in ast.walk(_parsed(each.annotation)):
                    if isinstance(name, ast.Name):
                        names[name.id] = None
    return tuple(names)


def names_in_annotations(node: ast.FunctionDef) -> set[str]:
    """The names and attributes in the annotations of the parameters."""
    arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
    parsed = [_parsed(arg.annotation) for arg in arguments if arg.annotation is not None]
    nodes = [child for annotation in parsed for child in ast.walk(annotation)]
    names = {child.id for child in nodes if isinstance(child, ast.Name)}
    return names | {child.attr for child in nodes if isinstance(child, ast.Attribute)}


def _parsed(annotation: ast.expr) -> ast.expr:
    """An annotation, read as an expression when it is written as text."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        try:
            return ast.parse(annotation.value, mode="eval").body
        except SyntaxError:
            return annotation
    return annotation


class _Key:
    """A function's tree by identity (trees of one file text are parsed once) and the names it
    closes over.
    """

    def __init__(self, located: Located, free: tuple[str, ...]) -> None:
        self.located = located
        self.free = free

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _Key)
            and self.located.node is other.located.node
            and self.free == other.free
        )

    def __hash__(self) -> int:
        return hash((id(self.located.node), self.free))


@lru_cache(maxsize=256)
def _compile(key: _Key) -> tuple[CodeType, tuple[Span, ...]]:
    """The code of the rewritten function and the spans of its statements."""
    rewriter = FunctionRewriter(key.located)
    function = rewriter.rewrite()
    parameters = [ast.arg(name) for name in dict.fromkeys((CONTROL, *key.free))]
    arguments = ast.arguments(
        posonlyargs=[], args=parameters, kwonlyargs=[], kw_defaults=[], defaults=[]
    )
    factory = ast.FunctionDef("factory", arguments, [function], decorator_list=[])
    if sys.version_info >= (3, 12):
        factory.type_params = []
    module = ast.Module([ast.copy_location(factory, function)], type_ignores=[])
    ast.fix_missing_locations(module)
    # Under its own name the function would be a local of the factory, and not found by itself.
    name, function.name = function.name, "_rewritten"
    outer = compile(module, key.located.file, "exec", dont_inherit=True)
    code = _nested(_nested(outer, "factory"), function.name).replace(co_name=name)
    errors.register(code)
    return code, tuple(rewriter.spans)


def _nested(code: CodeType, name: str) -> CodeType:
    return next(c for c in code.co_consts if isinstance(c, CodeType) and c.co_name == name)


def users_names(fn: Callable[..., Any]) -> dict[str, Any]:
    """What the annotations of `fn` may refer to where it is defined: local names of the nearest
    caller that is not this package.
    """
    frame = inspect.currentframe()
    while frame is not None and errors.is_package(frame.f_code):
        frame = frame.f_back
    if frame is None or frame.f_locals is frame.f_globals:
        return {}
    names = frame.f_locals
    return {name: names[name] for name in _annotation_names(locate(fn).node) if name in names}


def resolve_annotation(
    fn: Callable[..., Any], name: str, annotation: Any, namespace: Mapping[str, Any]
) -> Any:
    """The annotation of parameter `name` as an object; text (from postponed evaluation) is
    evaluated where the function is defined, and its errors are placed in the function's text.
    """
    if not isinstance(annotation, str) or isinstance(annotation, DType):
        return annotation
    names = {**vars(builtins), **fn.__globals__, **namespace}
    for free, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        try:
            names[free] = cell.cell_contents
        except ValueError:
            continue  # not bound yet
    located = locate(fn)
    written = _annotation(located.node, name)
    span = located.span(written)
    quoted = getattr(written, "value", None)
    if annotation == repr(quoted):  # quoted, and postponed as well
        annotation = quoted
    try:
        # The user's own text, as Python itself would evaluate it.
        return eval(_annotation_code(located, written, annotation), names)
    except SyntaxError as error:
        raise TileSyntaxError(f"the annotation of '{name}' is no expression", span) from error
    except NameError as error:
        if is_dtype(annotation):
            return annotation
        raise errors.placed(error, span) from None
    except Exception as error:
        raise errors.placed(error, span) from None


def _annotation(node: ast.FunctionDef, name: str) -> ast.expr | ast.FunctionDef:
    """What is written behind a parameter's colon; the function for an annotation set later."""
    every = (each for each in ast.walk(node.args) if isinstance(each, ast.arg))
    return next((arg.annotation for arg in every if arg.arg == name and arg.annotation), node)


def _annotation_code(located: Located, written: ast.AST, text: str) -> CodeType:
    """The code of an annotation, with the places of the function's text."""
    made = ast.parse(text.strip(), mode="eval")
    if ast.dump(made.body) == ast.dump(written):
        made.body = written  # type: ignore[assignment]
    else:  # quoted: all of it is where the quotes are
        for node in ast.walk(made.body):
            ast.copy_location(node, written)
    code = compile(made, located.file, "eval", dont_inherit=True)
    errors.register(code)
    return code
