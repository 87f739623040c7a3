"""Reads of tiles that nothing can have written yet.

One walk in program order with the set of buffers that may have been written. A loop is judged by
its first iteration. What is under a condition is judged by everything that the loops around it may
have written in earlier iterations, so a read that some run finds initialised is never reported.
Iterations of T.Parallel that keep to an element of their own have no earlier ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from tileworkbench.compiler.analysis.dataflow import may_leave
from tileworkbench.compiler.analysis.effects import owners, written, written_below
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir import simt, tile
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.effects import Access, accesses
from tileworkbench.compiler.ir.expr import Buffer, Expr, Load
from tileworkbench.compiler.ir.rewrite import statements, walk

_TILES = ("shared", "local.fragment", "local")


@dataclass(frozen=True, slots=True)
class FreshRead:
    """A buffer's first read, which comes before every write: what it finds is not defined."""

    site: int
    sentence: str
    buffer: Buffer


def uninitialised_reads(kernel: st.Kernel) -> Iterator[FreshRead]:
    """The reads of tiles and private arrays that hold nothing yet, one for each buffer."""
    flow = _Flow(owners(kernel.body))
    before: set[Buffer] = set()
    if any(isinstance(node, simt.THREAD_LEVEL) for node in statements(kernel.body)):
        # Threads in different roles are not in program order.
        before = {buffer for buffer in written_below(kernel.body) if buffer.scope == "shared"}
    flow.visit(kernel.body, before, set())
    yield from flow.found


@dataclass(slots=True)
class _Flow:
    owner: dict[Buffer, Buffer]
    found: list[FreshRead] = field(default_factory=list)

    def visit(self, stmt: st.Stmt, before: set[Buffer], around: set[Buffer]) -> None:
        """Check `stmt`; `before` may have been written before it and grows, `around` by earlier
        iterations of the loops around it.
        """
        match stmt:
            case st.If(_, then, orelse):
                self.check(stmt, before, around)
                for branch in (then, orelse):
                    if branch is not None:
                        self.visit_later(branch, before, around)
            case simt.Start(body):
                self.visit(body, before, around)
            case simt.Role(body=body):
                self.visit_later(body, before, around)
            case (
                st.For(body=body)
                | st.While(body=body)
                | tile.Pipelined(body=body)
                | tile.Parallel(body=body)
            ):
                self.check(stmt, before, around)
                own = _own_elements(stmt) if isinstance(stmt, tile.Parallel) else set()
                around = around | (written_below(body) - own)
                if may_leave(body):
                    self.visit_later(body, before, around)
                else:
                    self.visit(body, before, around)
            case st.Seq(stmts):
                for part in stmts:
                    self.visit(part, before, around)
            case _:
                self.check(stmt, before, around)
                before |= {self.owner.get(buffer, buffer) for buffer in written(stmt)}

    def visit_later(self, body: st.Stmt, before: set[Buffer], around: set[Buffer]) -> None:
        """Check a body that iterations may leave out, the first ones too."""
        self.visit(body, before | around, around)
        before |= written_below(body)

    def check(self, stmt: st.Stmt, before: set[Buffer], around: set[Buffer]) -> None:
        for use in accesses(stmt):
            buffer = self.owner.get(use.buffer, use.buffer)
            seen = buffer in before or (not use.certain and buffer in around)
            if not use.reads or seen or buffer.scope not in _TILES:
                continue
            self.found.append(FreshRead(stmt.site, _sentence(stmt, use, buffer in around), buffer))
            before.add(buffer)


def _own_elements(loop: tile.Parallel) -> set[Buffer]:
    """The buffers of which each iteration of `loop` uses one element, which no other uses."""
    places: dict[Buffer, set[tuple[Expr, ...]]] = {}
    for node in walk(loop.body):
        if isinstance(node, Load | st.Store | st.Atomic):
            places.setdefault(node.buffer, set()).add(node.indices)
    shared = {buffer for pair in owners(loop.body).items() for buffer in pair}
    return {
        buffer
        for buffer, indices in places.items()
        if len(indices) == 1 and set(loop.vars) <= set(*indices) and buffer not in shared
    }


def _sentence(stmt: st.Stmt, use: Access, later: bool) -> str:
    name = use.buffer.name
    if isinstance(stmt, tile.Gemm) and use.region is stmt.c:
        return f"T.gemm adds to '{name}', which holds nothing yet: clear it first with T.clear"
    if isinstance(stmt, tile.Reduce) and use.buffer is stmt.dst:
        return (
            f"clear=False keeps what is in '{name}', which holds nothing yet: fill it first with "
            "T.fill, or leave clear=False out"
        )
    if isinstance(stmt, st.Atomic) and use.buffer is stmt.buffer:
        return (
            f"this atomic update starts from '{name}', which holds nothing yet: clear it first "
            "with T.clear"
        )
    if later:
        return (
            f"'{name}' is read before it is written, in the first iteration: fill it in front of "
            "the loop, with T.clear or T.fill"
        )
    return (
        f"'{name}' is read before anything is written to it: fill it first, with T.clear, T.fill "
        "or T.copy"
    )
