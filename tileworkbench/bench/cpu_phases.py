"""Loops of a block that wait for memory by themselves.

A core computes one loop while the tensors of the next are on their way, but only as far as it
fetches ahead, which is within a page (4 KiB). A loop that moves less than a quarter of a page
overlaps with what stands around it. One that moves two pages or more overlaps with its own
arithmetic alone, and loops in between in part, by the logarithm of their bytes. Rows that do not go
on where the iteration before it ended are fetched ahead by nobody, however short they are.

Stores wait for nothing. Blocks with products are left out, for packing fetches ahead, and so are
those that are one loop, which goes on in the next block.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from tileworkbench.bench.cpu_block import Env
from tileworkbench.bench.cpu_reuse import Piece, Reuse
from tileworkbench.bench.cpu_terms import value_of
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir import expr as ir
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir import tile
from tileworkbench.compiler.ir.rewrite import statements, walk

_TOGETHER, _ALONE = 1024, 8192  # bytes


@dataclass(frozen=True, slots=True)
class Phase:
    """A loop without loops after each other inside: its sites, and the part of what it moves that
    nothing outside of it overlaps with.
    """

    sites: frozenset[int]
    alone: float


def phases(block: st.For, env: Env) -> list[Phase]:
    """Those of a block that load tensors, in order; `block` is the loop over blocks."""
    if _loops(block.body) < 2 or any(map(_fetches, statements(block))):
        return []
    walk = _Phases()
    walk.piece(block.body, {**env, block.var.name: 0}, block.site)
    return [phase for _, phase in walk.found if phase.alone > 0]


class _Phases(Reuse):
    def __init__(self) -> None:
        super().__init__(math.inf)
        self.found: list[tuple[st.For, Phase]] = []

    def loop(self, loop: st.For, env: Env, site: int) -> Piece:
        """An outer loop replaces the phases inside of it where it is one itself."""
        before = len(self.found)
        piece = super().loop(loop, env, site)
        if _loops(loop) != 1:
            self.found[before:] = [
                (inner, Phase(phase.sites, 1.0) if _jumps(inner, loop, env) else phase)
                for inner, phase in self.found[before:]
            ]
            return piece
        del self.found[before:]
        loaded = {load.buffer for load in _loads(loop)}
        bytes_ = sum(size for buffer, size in piece.touched.items() if buffer in loaded)
        if bytes_:
            alone = math.log(bytes_ / _TOGETHER) / math.log(_ALONE / _TOGETHER)
            sites = frozenset(site for site, _ in piece.missed)
            self.found.append((loop, Phase(sites, min(max(alone, 0.0), 1.0))))
        return piece


def _fetches(stmt: st.Stmt) -> bool:
    return isinstance(stmt, tile.Pack | tile.MicroGemm)


def _loads(stmt: st.Stmt) -> Iterator[ir.Load]:
    for node in walk(stmt):
        if isinstance(node, ir.Load) and node.buffer.scope == "global" and node.indices:
            yield node


def _loops(stmt: st.Stmt) -> int:
    """How many loops stand after each other in a statement, vectors not counted."""
    match stmt:
        case st.Seq(stmts):
            return sum(map(_loops, stmts))
        case st.For(kind=st.LoopKind.VECTORIZED):
            return 0
        case st.For(body=body):
            return max(1, _loops(body))
        case st.If(_, then, orelse):
            return max(_loops(part) for part in (then, orelse) if part is not None)
    return 0


def _jumps(nest: st.For, around: st.For, env: Env) -> bool:
    """Whether an iteration of the loop `around` a nest loads elements that do not follow those of
    the iteration before.
    """
    inside = [each for each in statements(nest) if isinstance(each, st.For)]
    trips = {each.var: value_of(each.stop, env) for each in inside}
    start = {**env, **{var.name: 0 for var in trips}}
    for load in _loads(nest):
        index, strides = load.indices[-1], []
        origin = value_of(index, start)
        for var in (around.var, *trips):
            moved = value_of(index, {**start, var.name: start.get(var.name, 0) + 1})
            if origin is None or moved is None:
                return False
            strides.append(abs(int(moved) - int(origin)))
        run = 1
        for stride, count in sorted(zip(strides[1:], trips.values(), strict=True)):
            if stride == run and count:
                run *= int(count)
        if strides[0] > run:
            return True
    return False
