"""Walking and rewriting trees. A rewrite that changes nothing returns the object it was given."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from tileworkbench.compiler.ir.expr import Binary, Buffer, Expr, Select, Var
from tileworkbench.compiler.ir.node import InternedNode, Node
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rules import current_log
from tileworkbench.compiler.ir.stmt import Seq, Stmt, seq


def walk(root: Node) -> Iterator[Node]:
    """Every node below and including `root`, parents first, in program order; what a statement's
    expressions share once.
    """
    stack = [root]
    seen: set[Node] = set()
    while stack:
        current = stack.pop()
        if not isinstance(current, InternedNode):
            seen.clear()
        elif current in seen:
            continue
        else:
            seen.add(current)
        yield current
        children = current.children()
        if children:
            stack.extend(children[::-1])


def evaluated(root: Node) -> Iterator[Node]:
    """The nodes below `root` that are computed whenever it is: not what a lazy selection or a
    logical operator may leave out.
    """
    stack = [root]
    seen: set[Node] = set()
    while stack:
        current = stack.pop()
        if current in seen:
            continue
        seen.add(current)
        yield current
        match current:
            case Select(cond, lazy=True):
                stack.append(cond)
            case Binary("logical_and" | "logical_or", a):
                stack.append(a)
            case _:
                stack.extend(reversed(current.children()))


def statements(root: Stmt) -> Iterator[Stmt]:
    """Every statement below and including `root`, parents first, in program order."""
    stack: list[Stmt] = [root]
    while stack:
        current = stack.pop()
        yield current
        # Expressions hold no statements.
        stack.extend([c for c in reversed(current.children()) if isinstance(c, Stmt)])


class Rewriter:
    """Bottom-up rewriting with a memo table for interned nodes.

    `rewrite_expr` is given every interned node (expression, buffer, region, address) after its
    children were rewritten, `rewrite_stmt` every statement; both return a replacement or the node
    itself. What `Rules` do is noted where somebody records it.
    """

    def __init__(
        self,
        rewrite_expr: Callable[[Any], Any] | None = None,
        rewrite_stmt: Callable[[Stmt], Stmt] | None = None,
    ) -> None:
        self._expr = rewrite_expr
        self._stmt = rewrite_stmt
        self._memo: dict[InternedNode, InternedNode] = {}
        self._log = log = current_log()
        if log is not None:
            self._expr, self._stmt = log.noting(rewrite_expr), log.noting(rewrite_stmt)

    def __call__(self, root: Any) -> Any:
        if isinstance(root, InternedNode):
            return self._visit_interned(root)
        if self._log is None or not isinstance(root, Stmt):
            return self._visit(root)
        # What statements share is rewritten in each of them, so that each has its rewrites.
        memo, self._memo = self._memo, {}
        with self._log.within(root):
            made = self._visit(root)
        self._memo = memo
        return made

    def _visit(self, root: Any) -> Any:
        made = root.map_children(self)
        if isinstance(made, Seq):
            made = _flattened(made)
        return self._stmt(made) if self._stmt is not None and isinstance(made, Stmt) else made

    def _visit_interned(self, root: InternedNode) -> InternedNode:
        known = self._memo.get(root)
        if known is None:
            known = root.map_children(self._visit_interned)
            if self._expr is not None:
                known = self._expr(known)
            self._memo[root] = known
        return known


def _flattened(body: Seq) -> Stmt:
    if any(isinstance(stmt, Seq) for stmt in body.stmts):
        return seq(body.stmts)
    return body


def substitute(root: Any, values: Mapping[Var, Expr]) -> Any:
    """`root` with each variable of `values` replaced, in expressions only (not in binders)."""
    if not values:
        return root
    return Rewriter(lambda node: values.get(node, node) if isinstance(node, Var) else node)(root)


def replace_buffers(program: Program, buffers: Mapping[Buffer, Buffer]) -> Program:
    """`program` with each buffer of `buffers` replaced everywhere, parameters included."""
    if not buffers:
        return program
    body = Rewriter(lambda node: buffers.get(node, node) if isinstance(node, Buffer) else node)(
        program.body
    )
    params = tuple(
        replace(param, value=buffers[param.value])
        if isinstance(param.value, Buffer) and param.value in buffers
        else param
        for param in program.params
    )
    if body is program.body and params == program.params:
        return program
    return replace(program, body=body, params=params)


def with_body(program: Program, body: Stmt) -> Program:
    """`program` with another body; itself when it is the same object."""
    return program if body is program.body else replace(program, body=body)


def variables(root: Node) -> list[Var]:
    """The variables read below `root`, each once, in the order met."""
    return list(dict.fromkeys(node for node in walk(root) if isinstance(node, Var)))


def bound_by(node: Node) -> tuple[Var, ...]:
    """The variables that `node` itself binds."""
    single = (getattr(node, "var", None), getattr(node, "previous", None))
    many = (*getattr(node, "vars", ()), *getattr(node, "thread_vars", ()))
    return (*many, *(var for var in single if var is not None))


def buffers_of(root: Node) -> list[Buffer]:
    """The buffers below `root`, each once, in the order met."""
    return list(dict.fromkeys(node for node in walk(root) if isinstance(node, Buffer)))


def parameters(program: Program) -> list[Buffer]:
    """The program's tensor parameters."""
    return [param.value for param in program.params if isinstance(param.value, Buffer)]
