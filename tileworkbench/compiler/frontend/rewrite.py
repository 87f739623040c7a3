"""The user's function, rewritten so that running it once records it.

Every statement is preceded by `__tw.at(k, names)`, which says where we are and what its targets are
called. Loops, branches, assignments and lazy operators become calls of `__tw` (see
`control.Control`), whose arguments are lambdas where Python would not have evaluated them.
Positions are those of the user's text, so that tracebacks point at it.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Sequence
from typing import NoReturn, cast

from tileworkbench.compiler.diagnostics import Span, TileSyntaxError
from tileworkbench.compiler.frontend.source import Located
from tileworkbench.compiler.frontend.syntax import (
    COMPARISONS,
    HINTS,
    OPERATORS,
    REFUSED,
    assigned,
    bound_names,
    constant,
    reads,
    target_names,
    value_names,
)

CONTROL = "__tw"


class FunctionRewriter(ast.NodeTransformer):
    """Rewrites the body of one function; `spans[k]` is the place of `__tw.at(k)`."""

    def __init__(self, located: Located) -> None:
        self.located = located
        self.spans: list[Span] = []
        self._temporaries = 0
        self._rebound: set[str] = set()  # names that a branch or loop so far may have bound

    # Entry

    def rewrite(self) -> ast.FunctionDef:
        """The rewritten function, without decorators, defaults and annotations."""
        node = self.located.node
        arguments = node.args
        parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        parameters += [extra for extra in (arguments.vararg, arguments.kwarg) if extra is not None]
        bare = ast.arguments(
            posonlyargs=[ast.arg(a.arg) for a in arguments.posonlyargs],
            args=[ast.arg(a.arg) for a in arguments.args],
            vararg=ast.arg(arguments.vararg.arg) if arguments.vararg else None,
            kwonlyargs=[ast.arg(a.arg) for a in arguments.kwonlyargs],
            kw_defaults=[None] * len(arguments.kwonlyargs),
            kwarg=ast.arg(arguments.kwarg.arg) if arguments.kwarg else None,
            defaults=[],
        )
        made = ast.FunctionDef(node.name, bare, self._body(node.body), decorator_list=[])
        if sys.version_info >= (3, 12):
            made.type_params = []
        ast.copy_location(made, node)
        return made

    # Pieces

    def _refuse(self, node: ast.AST, what: str, hint: str | None = None) -> NoReturn:
        raise TileSyntaxError(what, self.located.span(node), hint)

    def _name(self) -> str:
        self._temporaries += 1
        return f"__tw_{self._temporaries}"

    def _call(
        self, place: ast.AST, method: str, *arguments: ast.expr, owner: str = CONTROL
    ) -> ast.Call:
        function = ast.Attribute(ast.Name(owner, ast.Load()), method, ast.Load())
        made = ast.Call(function, list(arguments), [])
        for child in (made, function, function.value):
            ast.copy_location(child, place)
        # CPython places the call of an attribute that spans lines at its last one; this one does
        # not.
        function.end_lineno, function.end_col_offset = function.lineno, function.col_offset + 1
        return made

    def _header(self, node: ast.stmt, last: ast.expr) -> ast.stmt:
        """A place for the first line of a statement with a body, which ends with `last`."""
        place = ast.copy_location(ast.Pass(), node)
        place.end_lineno, place.end_col_offset = last.end_lineno, last.end_col_offset
        return place

    def _lambda(self, body: ast.expr) -> ast.Lambda:
        empty = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
        return ast.copy_location(ast.Lambda(empty, body), body)

    def _readers(self, place: ast.AST, names: Sequence[str]) -> list[ast.expr]:
        """`lambda: name` for each name, which may not be bound."""
        return [
            self._lambda(ast.copy_location(ast.Name(name, ast.Load()), place)) for name in names
        ]

    def _at(self, span: Span, place: ast.AST, hints: Iterable[str] = ()) -> ast.stmt:
        self.spans.append(span)
        names = tuple(hints)
        arguments: list[ast.expr] = [ast.Constant(len(self.spans) - 1)]
        if names:
            arguments.append(constant(names))
        return self._statement(self._call(place, "at", *arguments))

    def _statement(self, value: ast.expr) -> ast.stmt:
        return ast.copy_location(ast.Expr(value), value)

    def _bind(self, name: str, value: ast.expr, place: ast.AST) -> ast.stmt:
        made = ast.Assign([ast.copy_location(ast.Name(name, ast.Store()), place)], value)
        return ast.copy_location(made, place)

    def _bind_all(self, names: Sequence[str], value: ast.expr, place: ast.AST) -> ast.stmt:
        """`(a, b) = value`, or just `value` when there are no names."""
        if not names:
            return self._statement(value)
        target = ast.Tuple([ast.Name(name, ast.Store()) for name in names], ast.Store())
        return ast.copy_location(ast.Assign([target], value), place)

    def _body(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        made: list[ast.stmt] = []
        for statement in statements:
            result = self.visit(statement)
            made.extend(result if isinstance(result, list) else [result])
        return made or [ast.Pass()]

    def _expr(self, node: ast.expr) -> ast.expr:
        made: ast.expr = self.visit(node)
        return made

    # Statements

    def generic_visit(self, node: ast.AST) -> ast.AST:
        refused = REFUSED.get(type(node).__name__)
        if refused is not None:
            self._refuse(node, f"'{refused}' has no meaning in a kernel", HINTS.get(refused))
        return super().generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> list[ast.stmt]:
        """A nested function stays as it is: a decorator such as T.macro rewrites it from its own
        source.
        """
        return [self._at(self.located.span(node), node, (node.name,)), node]

    def visit_Import(self, node: ast.Import) -> ast.stmt:
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.stmt:
        return node

    def visit_Expr(self, node: ast.Expr) -> list[ast.stmt]:
        if isinstance(node.value, ast.Constant):
            return []
        value = self._expr(node.value)
        return [self._at(self.located.span(node), node), self._statement(value)]

    def visit_Raise(self, node: ast.Raise) -> list[ast.stmt]:
        at = self._at(self.located.span(node), node)
        parts = (None if part is None else self._expr(part) for part in (node.exc, node.cause))
        return [at, ast.copy_location(ast.Raise(*parts), node)]

    def visit_Return(self, node: ast.Return) -> list[ast.stmt]:
        value = self._expr(node.value) if node.value is not None else ast.Constant(None)
        checked = self._call(node, "returned", value)
        return [
            self._at(self.located.span(node), node),
            ast.copy_location(ast.Return(checked), node),
        ]

    def visit_Assert(self, node: ast.Assert) -> list[ast.stmt]:
        message = self._expr(node.msg) if node.msg is not None else ast.Constant(None)
        call = self._call(
            node, "check", self._expr(node.test), self._lambda(ast.copy_location(message, node))
        )
        return [self._at(self.located.span(node), node), self._statement(call)]

    def visit_Assign(self, node: ast.Assign) -> list[ast.stmt]:
        hints = target_names(node.targets[0])
        made = [self._at(self.located.span(node), node, hints)]
        value = self._values(node.value, node.targets[0], hints)
        target = node.targets[0]
        if len(node.targets) == 1 and not isinstance(target, ast.Tuple | ast.List):
            return [*made, *self._store(target, value, node, reads(node.value))]
        temporary = self._name()
        names = constant(value_names(target))
        made.append(self._bind(temporary, self._call(node, "evaluate", names, value), node))
        for target in node.targets:
            source = ast.copy_location(ast.Name(temporary, ast.Load()), node)
            made += self._store(target, source, node, frozenset())
        return made

    def _values(self, value: ast.expr, target: ast.expr, hints: tuple[str, ...]) -> ast.expr:
        """The value; in `a, b = e, f` each element is evaluated with its own name as the hint."""
        if not (
            isinstance(value, ast.Tuple | ast.List) and isinstance(target, ast.Tuple | ast.List)
        ):
            return self._expr(value)
        if len(value.elts) != len(hints):
            return self._expr(value)
        parts: list[ast.expr] = []
        for element, hint in zip(value.elts, hints, strict=True):
            if isinstance(element, ast.Starred):
                return self._expr(value)
            named = self._call(element, "hint", ast.Constant(hint))
            parts.append(self._call(element, "second", named, self._expr(element)))
        return ast.copy_location(ast.Tuple(parts, ast.Load()), value)

    def _store(
        self, target: ast.expr, value: ast.expr, place: ast.stmt, read: frozenset[str]
    ) -> list[ast.stmt]:
        """Assign `value` to one target; `read` holds the names that the value reads."""
        if isinstance(target, ast.Name):
            name = ast.Constant(target.id)
            arguments = [name, value, *self._readers(place, [target.id])]
            if target.id in read:
                arguments.append(ast.Constant(True))
            return [self._bind(target.id, self._call(place, "assign", *arguments), place)]
        if isinstance(target, ast.Subscript):
            element = self._call(
                target, "element", self._expr(target.value), self._expr(target.slice)
            )
            return [self._statement(self._call(place, "store", element, value))]
        if isinstance(target, ast.Attribute):
            member = self._call(
                target, "member", self._expr(target.value), ast.Constant(target.attr)
            )
            return [self._statement(self._call(place, "store", member, value))]
        if isinstance(target, ast.Tuple | ast.List):
            return self._unpack(target, value, place)
        starred = cast(ast.Starred, target)  # Python's grammar has no other targets
        return self._store(starred.value, value, place, read)

    def _unpack(
        self, target: ast.Tuple | ast.List, value: ast.expr, place: ast.stmt
    ) -> list[ast.stmt]:
        names = [self._name() for _ in target.elts]
        pattern: list[ast.expr] = []
        for name, element in zip(names, target.elts, strict=True):
            simple: ast.expr = ast.Name(name, ast.Store())
            pattern.append(
                ast.Starred(simple, ast.Store()) if isinstance(element, ast.Starred) else simple
            )
        unpacked = ast.copy_location(ast.Assign([ast.Tuple(pattern, ast.Store())], value), place)
        made: list[ast.stmt] = [unpacked]
        for name, element in zip(names, target.elts, strict=True):
            source = ast.copy_location(ast.Name(name, ast.Load()), place)
            made += self._store(element, source, place, frozenset())
        return made

    def visit_AugAssign(self, node: ast.AugAssign) -> list[ast.stmt]:
        at = self._at(self.located.span(node), node, target_names(node.target))
        operator = ast.Constant(OPERATORS[type(node.op)])
        value = self._expr(node.value)
        if isinstance(node.target, ast.Name):
            name = node.target.id
            call = self._call(
                node, "augment", ast.Constant(name), *self._readers(node, [name]), operator, value
            )
            return [at, self._bind(name, call, node)]
        if isinstance(node.target, ast.Subscript):
            target = node.target
            element = self._call(
                target, "element", self._expr(target.value), self._expr(target.slice)
            )
            return [at, self._statement(self._call(node, "augment_at", element, operator, value))]
        owner, attribute = self._expr(node.target.value), ast.Constant(node.target.attr)
        member = self._call(node.target, "member", owner, attribute)
        return [at, self._statement(self._call(node, "augment_at", member, operator, value))]

    def visit_AnnAssign(self, node: ast.AnnAssign) -> list[ast.stmt]:
        if node.value is not None:
            plain = ast.copy_location(ast.Assign([node.target], node.value), node)
            return self.visit_Assign(plain)
        if not isinstance(node.target, ast.Name):
            self._refuse(node, "only a parameter's name can be declared")
        name = node.target.id
        at = self._at(self.located.span(node), node, (name,))
        call = self._call(node, "declare", ast.Constant(name), self._expr(node.annotation))
        return [at, self._bind(name, call, node)]

    def visit_With(self, node: ast.With) -> list[ast.stmt]:
        item, *others = node.items
        target = item.optional_vars
        hints = target_names(target) if target is not None else ()
        at = self._at(self.located.span(node, item.context_expr), node, hints)
        manager = self._expr(item.context_expr)
        first: list[ast.stmt] = []
        bound: ast.expr | None = None
        if target is not None:
            temporary = self._name()
            bound = ast.Name(temporary, ast.Store())
            source: ast.expr = ast.copy_location(ast.Name(temporary, ast.Load()), target)
            if isinstance(target, ast.Tuple | ast.List):
                source = self._call(target, "as_sequence", source)
            first.append(ast.copy_location(ast.Assign([target], source), target))
        if others:  # `with a, b` is `with a` around `with b`
            inner = ast.copy_location(ast.With(others, node.body), others[0].context_expr)
            body = self.visit_With(inner)
        else:
            body = self._body(node.body)
        block = ast.With([ast.withitem(manager, bound)], [*first, *body])
        return [at, ast.copy_location(block, node)]

    # Control flow

    def visit_If(self, node: ast.If) -> list[ast.stmt]:
        names = assigned([*node.body, *node.orelse])
        branch = self._name()
        at, test = self._at(self.located.span(node, node.test), node), self._expr(node.test)
        self._rebound.update(names)

        place = self._header(node, node.test)

        def ask(method: str, *arguments: ast.expr) -> ast.Call:
            return self._call(place, method, *arguments, owner=branch)

        arguments = [constant(names), *self._readers(node, names)]
        start = self._call(place, "branch", test, *arguments)
        made = [at, self._bind(branch, start, node)]
        made.append(ast.copy_location(ast.If(ask("then"), self._body(node.body), []), node))
        made.append(self._bind_all(names, ask("between", *self._readers(node, names)), node))
        if node.orelse:
            made.append(ast.copy_location(ast.If(ask("orelse"), self._body(node.orelse), []), node))
        made.append(self._bind_all(names, ask("end", *self._readers(node, names)), node))
        return made

    def visit_For(self, node: ast.For) -> list[ast.stmt]:
        if node.orelse:
            self._refuse(node.orelse[0], "'else' of a loop has no meaning in a kernel")
        at = self._at(self.located.span(node, node.iter), node, target_names(node.target))
        iterable = self._expr(node.iter)
        if isinstance(iterable, ast.Call) and not iterable.keywords:
            function = iterable.func
            if isinstance(function, ast.Name) and function.id == "range":
                iterable = self._call(node.iter, "range", function, *iterable.args)
        names = tuple(dict.fromkeys((*bound_names(node.target), *assigned(node.body))))
        return [at, *self._loop(node, node.target, "loop", iterable, names, node.body)]

    def visit_While(self, node: ast.While) -> list[ast.stmt]:
        if node.orelse:
            self._refuse(node.orelse[0], "'else' of a loop has no meaning in a kernel")
        at = self._at(self.located.span(node, node.test), node)
        test = self._lambda(self._expr(node.test))
        target = ast.copy_location(ast.Name(self._name(), ast.Store()), node)
        return [at, *self._loop(node, target, "repeat", test, assigned(node.body), node.body)]

    def _loop(
        self,
        node: ast.stmt,
        target: ast.expr,
        method: str,
        subject: ast.expr,
        names: tuple[str, ...],
        body: list[ast.stmt],
    ) -> list[ast.stmt]:
        scope = self._name()
        self._rebound.update(names)
        start = self._call(node, "scope", constant(names), *self._readers(node, names))
        iterator = self._call(subject, method, subject, owner=scope)
        loop = ast.For(target, iterator, self._body(body), [])
        end = self._call(node, "leave", *self._readers(node, names), owner=scope)
        return [
            self._bind(scope, start, node),
            ast.copy_location(loop, node),
            self._bind_all(names, end, node),
        ]

    def visit_Break(self, node: ast.Break) -> list[ast.stmt]:
        return self._jump(node, "leaves_loop")

    def visit_Continue(self, node: ast.Continue) -> list[ast.stmt]:
        return self._jump(node, "continues_loop")

    def _jump(self, node: ast.Break | ast.Continue, method: str) -> list[ast.stmt]:
        test = self._call(node, method)
        return [
            self._at(self.located.span(node), node),
            ast.copy_location(ast.If(test, [node], []), node),
        ]

    # Expressions

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """A name that a run-time branch or loop may have left without a value is checked where it
        is read.
        """
        if isinstance(node.ctx, ast.Load) and node.id in self._rebound:
            return self._call(node, "usable", node)
        return node

    def visit_Slice(self, node: ast.Slice) -> ast.expr:
        parts = [
            self._expr(p) if p is not None else ast.Constant(None)
            for p in (node.lower, node.upper, node.step)
        ]
        return self._call(node, "slice", *parts)

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        made = ast.Subscript(self._expr(node.value), self._expr(node.slice), node.ctx)
        return ast.copy_location(made, node)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        method = "all_of" if isinstance(node.op, ast.And) else "any_of"
        return self._call(node, method, *(self._lambda(self._expr(value)) for value in node.values))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        operand = self._expr(node.operand)
        if isinstance(node.op, ast.Not):
            return self._call(node, "negation", operand)
        return ast.copy_location(ast.UnaryOp(node.op, operand), node)

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        if len(node.ops) == 1:
            sides = [self._expr(node.comparators[0])]
            return ast.copy_location(ast.Compare(self._expr(node.left), node.ops, sides), node)
        names = constant(tuple(COMPARISONS[type(op)] for op in node.ops))
        rest = [self._lambda(self._expr(value)) for value in node.comparators]
        return self._call(node, "compare", names, self._expr(node.left), *rest)

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        branches = (self._lambda(self._expr(value)) for value in (node.body, node.orelse))
        return self._call(node, "choose", self._expr(node.test), *branches)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> ast.expr:
        self._refuse(
            node, "':=' has no meaning in a kernel", "assign the name in a statement of its own"
        )

    def visit_comprehension(self, node: ast.comprehension) -> ast.comprehension:
        source = self._call(node.iter, "elements", self._expr(node.iter))
        return ast.comprehension(
            node.target, source, [self._expr(test) for test in node.ifs], node.is_async
        )
