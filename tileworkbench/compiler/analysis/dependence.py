"""What depends on one variable of a parallel dimension: a block index, a thread index, the variable
of a parallel loop.

`private` scopes are those of which each value of the variable has its own memory; the contents of
other memory are the same for all of them.
"""

from __future__ import annotations

from dataclasses import field

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir import simt, tile
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.effects import accesses, exposed
from tileworkbench.compiler.ir.expr import Buffer, Load, Var
from tileworkbench.compiler.ir.node import Node
from tileworkbench.compiler.ir.rewrite import statements, walk


@dataclass(slots=True)
class Dependence:
    """Names whose value differs with the variable, and those of which it is not known."""

    root: st.Stmt
    variable: Var
    private: tuple[str, ...]
    different: set[Var | Buffer] = field(default_factory=set)
    unknown: set[Var | Buffer] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.different.add(self.variable)
        flows = [flow for stmt in statements(self.root) for flow in self._flows(stmt)]
        size = -1
        while size != len(self.different) + len(self.unknown):
            size = len(self.different) + len(self.unknown)
            for target, sources in flows:
                for known in (self.different, self.unknown):
                    if target not in known and any(source in known for source in sources):
                        known.add(target)

    def differs(self, value: Node) -> bool:
        """Whether `value` is known to depend on the variable."""
        return any(source in self.different for source in self._sources(value))

    def is_fixed(self, value: Node) -> bool:
        """Whether `value` is known not to depend on it."""
        return not any(
            source in self.different or source in self.unknown for source in self._sources(value)
        )

    def _sources(self, value: Node) -> list[Var | Buffer]:
        """The names that `value` is computed from."""
        sources: list[Var | Buffer] = []
        for node in walk(value):
            if isinstance(node, Var):
                sources.append(node)
            elif isinstance(node, Load) and (
                node.buffer.scope in self.private or node.buffer in self.unknown
            ):
                sources.append(node.buffer)
        return sources

    def _flows(self, stmt: st.Stmt) -> list[tuple[Var | Buffer, list[Var | Buffer]]]:
        """What `stmt` sets, and from what."""
        match stmt:
            case st.Let(var, value):
                return [(var, self._sources(value))]
            case st.For(var, start, stop) | tile.Pipelined(var, start, stop):
                return [(var, self._sources(start) + self._sources(stop))]
            case st.Alias(buffer, source):
                return [(buffer, [source]), (source, [buffer])]
            case st.Atomic(previous=var):
                if var is not None:
                    self.unknown.add(var)
            case simt.Exchange(var):
                self.unknown.add(var)
            case st.If(cond, then, orelse):
                sources = self._sources(cond)
                bodies = [body for body in (then, orelse) if body is not None]
                return [
                    (use.buffer, sources)
                    for body in bodies
                    for inner in statements(body)
                    for use in accesses(inner)
                    if use.writes
                ]
            case simt.Peer(buffer, source):
                self.unknown |= {buffer, source}
                return []
        if stmt.effects.exposes:
            self.unknown.update(exposed(stmt))
        uses = list(accesses(stmt))
        read: list[Var | Buffer] = []
        for use in uses:
            if use.reads and use.buffer.scope in self.private:
                read.append(use.buffer)
            read += [name for index in use.indices for name in self._sources(index)]
        for child in stmt.children():
            if not isinstance(child, st.Stmt):
                read += self._sources(child)
        return [(use.buffer, read) for use in uses if use.writes]
