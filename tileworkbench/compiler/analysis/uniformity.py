"""Which values may differ between the threads of a block.

A value varies when it depends on a thread index, on another thread's value (an `Exchange`), on a
thread's own memory that was given varying values or written under a varying condition, or on memory
read at a varying index or, in loops that threads leave apart, at different times. Everything else
is uniform: the same in all threads that have it.
"""

from __future__ import annotations

from tileworkbench.compiler.analysis.effects import constant_buffers
from tileworkbench.compiler.ir import simt, tile
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.expr import Buffer, Expr, Load, Var
from tileworkbench.compiler.ir.node import Node
from tileworkbench.compiler.ir.rewrite import walk


class Uniformity:
    """The varying variables and thread-private buffers of one kernel."""

    def __init__(self, kernel: st.Kernel) -> None:
        self._varying: set[Var | Buffer] = set(kernel.thread_vars)
        self._constant = constant_buffers(kernel.body)
        while True:
            before = len(self._varying)
            self._visit(kernel.body, False, False)
            if len(self._varying) == before:
                return

    @property
    def varying(self) -> frozenset[Var | Buffer]:
        """The variables and thread-private buffers that differ between threads."""
        return frozenset(self._varying)

    def varies(self, value: Node) -> bool:
        """Whether threads of a block may disagree on `value`."""
        for node in walk(value):
            if isinstance(node, Var) and node in self._varying:
                return True
            if isinstance(node, Load) and node.buffer in self._varying:
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

    def _visit(self, stmt: st.Stmt, divergent: bool, apart: bool) -> None:
        """Mark what varies in `stmt`, which only some threads execute where `divergent`, and these
        at different times where they are `apart`.
        """
        match stmt:
            case st.Let(var, value):
                self._mark(var, self.varies(value) or (apart and self._may_change(value)))
            case st.Alloc(buffer, init) if init is not None:
                self._mark_memory(buffer, self.varies(init))
            case st.Store(buffer, indices, value, predicate):
                operands = (*indices, value, *(() if predicate is None else (predicate,)))
                self._mark_memory(buffer, divergent or any(map(self.varies, operands)))
            case st.Atomic(buffer=buffer, previous=previous):
                self._mark_memory(buffer, True)
                if previous is not None:
                    self._varying.add(previous)
            case simt.Exchange(var, kind):
                self._mark(var, not kind.startswith("block_"))
            case simt.LoadMatrix(dst=address) | simt.LoadTurned(dst=address) | simt.Mma(c=address):
                self._mark_memory(address.buffer, True)
            case simt.Role():
                divergent = True
            case st.If(cond):
                divergent = divergent or self.varies(cond)
            case st.While(cond, body):
                apart = apart or self.varies(cond) or self.leaves_divergently(body)
            case st.For(var, start, stop, step):
                varies = any(map(self.varies, (start, stop, step)))
                self._mark(var, varies)
                apart = apart or varies or self.leaves_divergently(stmt.body)
        for child in stmt.children():
            if isinstance(child, st.Stmt):
                self._visit(child, divergent or apart, apart)

    def _may_change(self, value: Expr) -> bool:
        """Whether `value` is of memory that the kernel writes."""
        return any(
            isinstance(node, Load) and node.buffer not in self._constant for node in walk(value)
        )

    def _mark(self, name: Var, varies: bool) -> None:
        if varies:
            self._varying.add(name)

    def _mark_memory(self, buffer: Buffer, varies: bool) -> None:
        if varies and buffer.scope in ("local", "local.var", "local.fragment"):
            self._varying.add(buffer)
