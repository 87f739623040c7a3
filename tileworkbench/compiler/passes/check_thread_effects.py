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

from math import prod

from tileworkbench.compiler.analysis.effects import owners
from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.compiler.ir.expr import Buffer, Load, Var
from tileworkbench.compiler.ir.node import Node
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import walk
from tileworkbench.compiler.ir.stmt import Atomic, AtomicKind, Kernel, Let, Stmt, Store
from tileworkbench.compiler.ir.tile import Parallel

_SHARED_SCOPES = ("global", "shared")


def check_thread_effects(program: Program) -> Program:
    """Raise `UnsupportedError` at an update of shared or global memory that every thread would
    repeat.
    """
    sources: dict[Var | Buffer, set[Buffer]] = {}
    aliases = owners(program.body)
    stack: list[Node] = [program.body]
    while stack:
        stmt = stack.pop()
        if isinstance(stmt, Parallel) or (isinstance(stmt, Kernel) and prod(stmt.threads) == 1):
            continue
        if isinstance(stmt, Let):
            sources[stmt.var] = _sources(stmt.value, sources)
        elif isinstance(stmt, Store):
            _check(stmt, sources, aliases, program)
        elif isinstance(stmt, Atomic):
            _check_atomic(stmt, program)
            if stmt.previous is not None:
                sources[stmt.previous] = {stmt.buffer}
        stack.extend(child for child in reversed(stmt.children()) if isinstance(child, Stmt))
    return program


def _check(
    stmt: Store,
    sources: dict[Var | Buffer, set[Buffer]],
    aliases: dict[Buffer, Buffer],
    program: Program,
) -> None:
    found = _sources(stmt.value, sources)
    buffer = stmt.buffer
    if buffer.scope in _SHARED_SCOPES:
        if aliases.get(buffer, buffer) in {aliases.get(other, other) for other in found}:
            raise UnsupportedError(
                f"every thread of the block executes this update of '{buffer.name}', which target "
                "'cpu' cannot do",
                program.span(stmt.site),
                hint="put it in T.Parallel to execute it once per element",
            )
    elif not buffer.shape or buffer.scope == "local":
        sources.setdefault(buffer, set()).update(found)


def _check_atomic(stmt: Atomic, program: Program) -> None:
    if stmt.kind not in (AtomicKind.LOAD, AtomicKind.STORE):
        raise UnsupportedError(
            f"every thread of the block executes this atomic update of '{stmt.buffer.name}', which "
            "target 'cpu' cannot do",
            program.span(stmt.site),
            hint="put it in T.Parallel to execute it once per element",
        )


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
