"""Refuse what only threads can tell apart: code outside tile operators is executed by every thread
of a block.

A worker of the CPU runs a block once. That is the same as running it once per thread, except for an
update of shared or global memory that reads what it writes: each thread would add again, in an
order that is not defined. A block of one thread has no such updates.

Accepted, and left as it is::

    B[bx] = 0.0

Refused::

    B[bx] = B[bx] + 1.0
"""

from __future__ import annotations

from functools import cached_property
from math import prod

from tileworkbench.compiler.analysis.effects import owners
from tileworkbench.compiler.analysis.uniformity import Uniformity
from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.compiler.ir.expr import Buffer, Load, Var
from tileworkbench.compiler.ir.node import Node
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import statements, walk
from tileworkbench.compiler.ir.simt import Role
from tileworkbench.compiler.ir.stmt import Atomic, If, Kernel, Let, Stmt, Store, While
from tileworkbench.compiler.ir.tile import Parallel

_SHARED_SCOPES = ("global", "shared")


def check_thread_effects(program: Program) -> Program:
    """Raise `UnsupportedError` where all threads of a block update one element of shared or global
    memory, each with what it has read there.
    """
    for stmt in statements(program.body):
        if isinstance(stmt, Kernel) and prod(stmt.threads) > 1:
            _Check(stmt, program).visit(stmt.body, False)
    return program


class _Check:
    def __init__(self, kernel: Kernel, program: Program) -> None:
        self.program = program
        self.kernel = kernel
        self.sources: dict[Var | Buffer, set[Buffer]] = {}
        self.aliases = owners(kernel.body)

    @cached_property
    def uniformity(self) -> Uniformity:
        """What threads may disagree on."""
        return Uniformity(self.kernel)

    def visit(self, stmt: Stmt, divergent: bool) -> None:
        """Check `stmt`, which only some threads execute when `divergent`."""
        match stmt:
            case Parallel():
                return
            case Let(var, value):
                self.sources[var] = _sources(value, self.sources)
            case Atomic(buffer=buffer, previous=previous) if previous is not None:
                self.sources[previous] = {buffer}
            case Store():
                self.check(stmt, divergent)
            case Role():
                divergent = True
            case If(cond) | While(cond):
                divergent = divergent or self.uniformity.varies(cond)
        for child in stmt.children():
            if isinstance(child, Stmt):
                self.visit(child, divergent)

    def check(self, stmt: Store, divergent: bool) -> None:
        found, buffer = _sources(stmt.value, self.sources), stmt.buffer
        if buffer.scope in _SHARED_SCOPES:
            owner = self.aliases.get(buffer, buffer)
            same = owner in {self.aliases.get(other, other) for other in found}
            if same and not divergent and not any(map(self.uniformity.varies, stmt.indices)):
                raise UnsupportedError(
                    f"every thread of the block executes this update of '{buffer.name}', which "
                    "target 'cpu' cannot do",
                    self.program.span(stmt.site),
                    hint="put it in T.Parallel to execute it once per element",
                )
        elif not buffer.shape or buffer.scope == "local":
            self.sources.setdefault(buffer, set()).update(found)


def _sources(value: Node, sources: dict[Var | Buffer, set[Buffer]]) -> set[Buffer]:
    """The shared and global buffers that `value` depends on, also through lets and locals."""
    found: set[Buffer] = set()
    for current in walk(value):
        if isinstance(current, Load):
            if current.buffer.scope in _SHARED_SCOPES:
                found.add(current.buffer)
            else:
                found |= sources.get(current.buffer, set())
        elif isinstance(current, Var):
            found |= sources.get(current, set())
    return found
