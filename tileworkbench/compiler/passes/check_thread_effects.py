"""Refuse updates whose result depends on how many threads execute them: code outside tile operators
is executed by every thread of a block.

A worker of the CPU runs a block once. That is the same as running it once per thread, except for an
update of shared or global memory that reads what it writes: each thread would add again, in an
order that is not defined. A block of one thread has no such updates, and an element that is made
from others is the same whichever thread makes it.

Accepted, and left as it is::

    B[bx] = 0.0
    S[g + 1] = S[g] + 1.0

Refused::

    B[bx] = B[bx] + 1.0
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from math import prod

from tileworkbench.compiler.analysis.access import has_loads
from tileworkbench.compiler.analysis.effects import owners
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.analysis.uniformity import Uniformity
from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.build import binary
from tileworkbench.compiler.ir.expr import Buffer, Expr, Load, Var
from tileworkbench.compiler.ir.node import Node
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import statements, walk
from tileworkbench.compiler.ir.simt import Role
from tileworkbench.compiler.ir.stmt import Atomic, For, If, Kernel, Let, Stmt, Store, While
from tileworkbench.compiler.ir.tile import Parallel, Pipelined

_SHARED_SCOPES = ("global", "shared")


def check_thread_effects(program: Program) -> Program:
    """Raise `UnsupportedError` where all threads of a block update one element of shared or global
    memory, each with what it has read there.
    """
    for stmt in statements(program.body):
        if isinstance(stmt, Kernel) and prod(stmt.threads) > 1:
            _Check(stmt, program).visit(stmt.body, False)
    return program


@dataclass(frozen=True, slots=True)
class _Source:
    """An element that a value was read from. One that is `kept` was read earlier, where the names
    in its indices may have had other values.
    """

    buffer: Buffer
    indices: tuple[Expr, ...]
    kept: bool


class _Check:
    def __init__(self, kernel: Kernel, program: Program) -> None:
        self.program = program
        self.kernel = kernel
        self.sources: dict[Var | Buffer, set[_Source]] = {}
        self.aliases = owners(kernel.body)
        self.optional = 0  # conditions around

    @cached_property
    def uniformity(self) -> Uniformity:
        """The values that may differ between threads."""
        return Uniformity(self.kernel)

    @cached_property
    def ranges(self) -> Ranges:
        """What is known of indices."""
        return Ranges(self.program)

    def visit(self, stmt: Stmt, divergent: bool) -> None:
        """Check `stmt`, which only some threads execute when `divergent`."""
        match stmt:
            case Parallel():
                return
            case Let(var, value):
                self.sources[var] = _sources(value, self.sources)
            case Atomic(buffer=buffer, indices=indices, previous=previous) if previous is not None:
                self.sources[previous] = {_Source(buffer, indices, True)}
            case Store():
                self.check(stmt, divergent)
            case Role():
                divergent = True
            case If(cond) | While(cond):
                divergent = divergent or self.uniformity.varies(cond)
        repeats = isinstance(stmt, For | While | Pipelined)
        self.optional += isinstance(stmt, If)
        if repeats:
            self.keep()
        for child in stmt.children():
            if isinstance(child, Stmt):
                self.visit(child, divergent)
        self.optional -= isinstance(stmt, If)
        if repeats:
            self.keep()

    def keep(self) -> None:
        """From here on variables may hold values that an earlier iteration read."""
        for name, sources in self.sources.items():
            if isinstance(name, Buffer):
                self.sources[name] = {replace(source, kept=True) for source in sources}

    def check(self, stmt: Store, divergent: bool) -> None:
        sources, buffer = _sources(stmt.value, self.sources), stmt.buffer
        if buffer.scope in _SHARED_SCOPES:
            owner = self.aliases.get(buffer, buffer)
            same = [s for s in sources if self.aliases.get(s.buffer, s.buffer) is owner]
            if not same or divergent or any(map(self.uniformity.varies, stmt.indices)):
                return
            if self.uniformity.varies(stmt.value) or not all(
                self.are_apart(stmt, source) for source in same
            ):
                raise UnsupportedError(
                    f"every thread of the block executes this update of '{buffer.name}', which "
                    "target 'cpu' cannot do",
                    self.program.span(stmt.site),
                    hint="put it in T.Parallel to execute it once per element",
                )
        elif not buffer.shape and not self.optional:
            self.sources[buffer] = sources
        elif not buffer.shape or buffer.scope == "local":
            self.sources.setdefault(buffer, set()).update(sources)

    def are_apart(self, stmt: Store, source: _Source) -> bool:
        """Whether what `stmt` writes is certainly not the element of `source`."""
        if source.buffer is not stmt.buffer:
            return False
        for written, read in zip(stmt.indices, source.indices, strict=True):
            if source.kept:
                a, b = self.ranges.bounds(written), self.ranges.bounds(read)
                ends = ((a.high, b.low), (b.high, a.low))
                if any(x is not None and y is not None and x < y for x, y in ends):
                    return True
            elif self.ranges.proves(binary("eq", written, read)) is False:
                return True
        return False


def _sources(value: Node, sources: dict[Var | Buffer, set[_Source]]) -> set[_Source]:
    """The elements of shared and global memory that `value` depends on, also through lets and
    locals.
    """
    direct: set[_Source] = set()
    for current in walk(value):
        if isinstance(current, Load):
            if current.buffer.scope in _SHARED_SCOPES:
                direct.add(_Source(current.buffer, current.indices, False))
            else:
                direct |= sources.get(current.buffer, set())
        elif isinstance(current, Var):
            through = sources.get(current, set())
            # An index that was read from memory may have changed since.
            direct |= {replace(s, kept=s.kept or any(map(has_loads, s.indices))) for s in through}
    return direct
