"""Where engines use what threads wrote: they see it in shared memory only behind a fence (PTX ISA,
"Async proxy").

A walk in program order keeps the tiles that threads wrote and nobody has fenced; loops are walked
twice. A product or a copy out of shared memory that reads one of them needs a fence in front, and
so does a load into one or to a place where one lay: what threads wrote there must not come later. A
role does not know what the fences of others order; what others wrote may be new behind each wait
for a memory barrier.
"""

from __future__ import annotations

from functools import reduce

from tileworkbench.compiler.analysis.effects import owners
from tileworkbench.compiler.ir.effects import accesses
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.simt import BarrierWait, Engine, Fence, Role, Start
from tileworkbench.compiler.ir.stmt import Alloc, For, If, Kernel, Seq, Stmt, While
from tileworkbench.compiler.schedule.lifetimes import shared_bytes

_READERS = (Engine.WGMMA, Engine.TMA_STORE)

Tiles = frozenset[Buffer]


class ProxyFences:
    """The statements of one kernel, by `id`, that need a fence in front."""

    def __init__(self, kernel: Kernel) -> None:
        self.needed: set[int] = set()
        if not any(isinstance(stmt, Start) for stmt in statements(kernel.body)):
            return
        self.owners = owners(kernel.body)
        allocs = (stmt for stmt in statements(kernel.body) if isinstance(stmt, Alloc))
        self.offsets = {alloc.buffer: alloc.offset for alloc in allocs if alloc.offset is not None}
        roles = [stmt for stmt in statements(kernel.body) if isinstance(stmt, Role)]
        self.by_roles = frozenset[Buffer]().union(*map(self.written_below, roles))
        self.walk(kernel.body, frozenset())

    def walk(self, stmt: Stmt, before: Tiles) -> Tiles:
        """The tiles that are not fenced behind `stmt`."""
        match stmt:
            case Seq(stmts):
                return reduce(lambda tiles, child: self.walk(child, tiles), stmts, before)
            case For() | While():
                once = self.walk(stmt.body, before)
                return before | self.walk(stmt.body, before | once)
            case Role(body=body):
                return before | self.walk(body, before)
            case If(then=then, orelse=orelse):
                other = before if orelse is None else self.walk(orelse, before)
                return self.walk(then, before) | other
            case Start() if _reads_shared(stmt):
                if self.touched(stmt, writes=False) & before:
                    self.needed.add(id(stmt))
                    return frozenset()
                return before
            case Start(engine=Engine.TMA) if self.lies_on(stmt, before):
                self.needed.add(id(stmt))
                return frozenset()
            case Start():
                return before
            case Fence("async"):
                return frozenset()
            case BarrierWait():
                return before | self.by_roles
        return before | self.touched(stmt, writes=True)

    def lies_on(self, load: Start, before: Tiles) -> bool:
        """Whether `load` fills a tile of `before`, or memory where one of them lay. What one role
        loads and another one writes lies apart.
        """
        tiles = self.touched(load, writes=True)
        others = before - self.by_roles
        return bool(tiles & before) or any(
            self.overlap(tile, other) for tile in tiles for other in others
        )

    def overlap(self, one: Buffer, other: Buffer) -> bool:
        """Whether two tiles have bytes in common."""
        start, then = (self.offsets.get(buffer) for buffer in (one, other))
        if start is None or then is None:
            return False
        return start < then + shared_bytes(other) and then < start + shared_bytes(one)

    def written_below(self, stmt: Stmt) -> Tiles:
        """What threads themselves write in `stmt`."""
        if isinstance(stmt, Start):
            return frozenset()
        below = (child for child in stmt.children() if isinstance(child, Stmt))
        own = self.touched(stmt, writes=True, deep=False)
        return own.union(*map(self.written_below, below))

    def touched(self, stmt: Stmt, writes: bool, deep: bool = True) -> Tiles:
        """The shared tiles that `stmt`, and with `deep` what is below it, reads or writes."""
        return frozenset(
            self.owners.get(access.buffer, access.buffer)
            for each in (statements(stmt) if deep else (stmt,))
            for access in accesses(each)
            if access.buffer.scope == "shared" and (access.writes if writes else access.reads)
        )


def _reads_shared(stmt: Stmt) -> bool:
    """Whether `stmt` starts an engine that reads shared memory."""
    return isinstance(stmt, Start) and stmt.engine in _READERS
