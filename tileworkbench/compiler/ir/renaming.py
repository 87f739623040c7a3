"""Copies of code with names of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from tileworkbench.compiler.ir import simt, tile
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.expr import Buffer, Var
from tileworkbench.compiler.ir.rewrite import Rewriter, bound_by, statements

S = TypeVar("S", bound=st.Stmt)


def with_new_names(root: S, fresh: Callable[[str], str]) -> S:
    """`root` with new names, by `fresh` from the old ones, for everything that is made in it."""
    return renamed(root, fresh)[0]


def renamed(root: S, fresh: Callable[[str], str]) -> tuple[S, dict[Buffer, Buffer]]:
    """The same, and what its buffers are called now."""
    variables: dict[Var, Var] = {}
    buffers: dict[Buffer, Buffer] = {}
    for stmt in statements(root):
        for var in bound_by(stmt):
            variables[var] = Var(fresh(var.name), var.dtype)
        if isinstance(stmt, st.Alloc | st.Alias | simt.Peer):
            buffers[stmt.buffer] = replace(stmt.buffer, name=fresh(stmt.buffer.name))

    def change(node: object) -> object:
        if isinstance(node, Var):
            return variables.get(node, node)
        return buffers.get(node, node) if isinstance(node, Buffer) else node

    return Rewriter(change, _binder(variables))(root), buffers


def _binder(variables: dict[Var, Var]) -> Callable[[st.Stmt], st.Stmt]:
    def several(names: tuple[Var, ...]) -> tuple[Var, ...]:
        return tuple(variables[var] for var in names)

    def bind(stmt: st.Stmt) -> st.Stmt:
        match stmt:
            case st.Kernel(vars=names, thread_vars=threads):
                return replace(stmt, vars=several(names), thread_vars=several(threads))
            case tile.Parallel(vars=names):
                return replace(stmt, vars=several(names))
            case st.Atomic(previous=previous) if previous is not None:
                return replace(stmt, previous=variables[previous])
            case st.ExternCall(var=var) if var is not None:
                return replace(stmt, var=variables[var])
            case st.Let(var) | st.For(var) | tile.Pipelined(var) | simt.Exchange(var):
                return replace(stmt, var=variables[var])
        return stmt

    return bind
