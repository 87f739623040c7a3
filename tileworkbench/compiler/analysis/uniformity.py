"""Which values may differ between the threads of a block.

A value varies when it depends on a thread index, on another thread's value (an `Exchange`), on a
thread's own memory that was given varying values or written under a varying condition, or on memory
read at a varying index. Everything else is uniform: the same in all threads of the block.
"""

from __future__ import annotations

from tileworkbench.compiler.ir import simt, tile
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.expr import Buffer, Expr, Load, Var
from tileworkbench.compiler.ir.node import Node
from tileworkbench.compiler.ir.rewrite import walk


class Uniformity:
    """The varying variables and thread-private buffers of one kernel."""

    def __init__(self, kernel: st.Kernel) -> None:
        self._varying: set[Var | Buffer] = set(kernel.thread_vars)
        while True:
            before = len(self._varying)
            self._visit(kernel.body, False)
            if len(self._varying) == before:
                return

    @property
    def varying(self) -> frozenset[Var | Buffer]:
        """The variables and thread-private buffers that differ between threads."""
        return frozenset(self._varying)

    def varies(self, value: Node) -> bool:
        """Whether threads of a block may disagree on `value`."""
        for found in walk(value):
            if isinstance(found, Var) and found in self._varying:
                return True
            if isinstance(found, Load) and found.buffer in self._varying:
                return True
        return False

    def leaves_divergently(self, body: st.Stmt, divergent: bool = False) -> bool:
        """Whether threads may leave the loop around `body`, or an iteration of it, at different
        times.
        """
        match body:
            case st.Break() | st.Continue():
                return divergent
            case st.For() | st.While() | tile.Pipelined():
                return False
            case st.If(cond):
                divergent = divergent or self.varies(cond)
            case simt.Role():
                divergent = True
        return any(
            self.leaves_divergently(child, divergent)
            for child in body.children()
            if isinstance(child, st.Stmt)
        )

    def _visit(self, stmt: st.Stmt, divergent: bool) -> None:
        match stmt:
            case st.Let(var, value):
                self._mark(var, self.varies(value) or self._own_memory(value, divergent))
            case st.Store(buffer, indices, value, predicate):
                operands = (*indices, value, *(() if predicate is None else (predicate,)))
                self._mark_memory(buffer, divergent or any(map(self.varies, operands)))
            case st.Atomic(buffer=buffer, previous=previous):
                self._mark_memory(buffer, True)
                if previous is not None:
                    self._varying.add(previous)
            case simt.Exchange(var, kind):
                self._mark(var, not kind.startswith("block_"))
            case simt.LoadMatrix(dst=address) | simt.Mma(c=address):
                self._mark_memory(address.buffer, True)
            case simt.Role():
                divergent = True
            case st.If(cond):
                divergent = divergent or self.varies(cond)
            case st.While(cond, body):
                divergent = divergent or self.varies(cond) or self.leaves_divergently(body)
            case st.For(var, start, stop, step):
                varies = any(map(self.varies, (start, stop, step)))
                self._mark(var, varies)
                divergent = divergent or varies or self.leaves_divergently(stmt.body)
        for child in stmt.children():
            if isinstance(child, st.Stmt):
                self._visit(child, divergent)

    def _own_memory(self, value: Expr, divergent: bool) -> bool:
        return divergent and any(isinstance(found, Load) for found in walk(value))

    def _mark(self, name: Var, varies: bool) -> None:
        if varies:
            self._varying.add(name)

    def _mark_memory(self, buffer: Buffer, varies: bool) -> None:
        if varies and buffer.scope in ("local", "local.var", "local.fragment"):
            self._varying.add(buffer)
