"""Loops of a block that wait for memory by themselves.

A core computes one loop while the tensors of the next are on their way, but only as far as it
fetches ahead, which is within a page (4 KiB). A loop that moves less than a quarter of a page
overlaps with what stands around it. One that moves two pages or more is waited for, and loops in
between in part, by the logarithm of their bytes. Rows that do not go
on where the iteration before it ended are fetched ahead by nobody, however short they are.

What is fetched by nobody begins with the time to find its page and, where a row is longer than what
can be under way at once, with the latency of its level: the loads of shorter rows are under way
together, while a longer one waits for its first before its last are begun.

Stores wait for nothing. Blocks with products are left out, for packing fetches ahead, and so are
those that are one loop, or one beside which others do little: it goes on in the next block.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from tileworkbench.bench.cpu_block import Env
from tileworkbench.bench.cpu_reuse import Piece, Reuse
from tileworkbench.bench.cpu_terms import shift, value_of
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir import expr as ir
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir import tile
from tileworkbench.compiler.ir.rewrite import statements, walk

_TOGETHER, _ALONE = 1024, 8192  # bytes
_PAGE, _LINE = 4096, 64
# Nanoseconds until data of a level arrive, as usual for servers, and to find a page that was not
# among the last some dozen; bytes that a core has under way at most.
_LATENCY_NS, _LOOKUP_NS = {"L3": 14.0, "DRAM": 110.0}, 1.8
_UNDER_WAY = 24 * 64


@dataclass(frozen=True, slots=True)
class Phase:
    """A loop without loops after each other inside: its sites, and the part of what it moves that
    nothing outside of it overlaps with.

    `run` is the number of bytes that it loads in a row, at most a page, and `jumps` says whether it
    then goes on where nobody has fetched.
    """

    sites: frozenset[int]
    alone: float
    run: int = _PAGE
    jumps: bool = False

    def starts_ns(self, level: str, bytes_: float) -> float:
        """What beginnings elsewhere take of the time for so many bytes of a level."""
        if level not in _LATENCY_NS or not self.jumps:
            return 0.0
        exposed = _LATENCY_NS[level] * max(1 - _UNDER_WAY / self.run, 0.0)
        return bytes_ / self.run * (exposed + _LOOKUP_NS)


def phases(block: st.For, env: Env) -> list[Phase]:
    """Those of a block that load tensors, in order; `block` is the loop over blocks."""
    if any(map(_fetches, statements(block))):
        return []
    walk = _Phases()
    walk.piece(block.body, {**env, block.var.name: 0}, block.site)
    goes_on = len(walk.found) == 1 and not walk.broken and walk.other < walk.loaded
    return [
        phase for _, phase in walk.found if phase.alone > 0 and not (goes_on and phase.run == _PAGE)
    ]


class _Phases(Reuse):
    def __init__(self) -> None:
        super().__init__(math.inf)
        self.found: list[tuple[st.For, Phase]] = []
        self.broken = False  # by other loops, before it goes on in the next iteration
        # The most bytes of a loop that loads tensors, and of one that does not.
        self.loaded = self.other = 0.0

    def loop(self, loop: st.For, env: Env, site: int) -> Piece:
        """An outer loop replaces the phases inside of it where it is one itself."""
        before = len(self.found)
        piece = super().loop(loop, env, site)
        if _loops(loop) != 1:
            self.broken |= len(self.found) > before
            self.found[before:] = [
                (
                    inner,
                    replace(phase, alone=1.0, run=run, jumps=True)
                    if jumps
                    else replace(phase, run=_PAGE),
                )
                for inner, phase in self.found[before:]
                for run, jumps in (_run(inner, loop, env),)
            ]
            return piece
        del self.found[before:]
        loaded = {load.buffer for load in _loads(loop)}
        bytes_ = sum(size for buffer, size in piece.touched.items() if buffer in loaded)
        self.loaded = max(self.loaded, bytes_)
        if not bytes_:
            self.other = max(self.other, piece.size)
        else:
            alone = math.log(bytes_ / _TOGETHER) / math.log(_ALONE / _TOGETHER)
            sites = frozenset(site for site, _ in piece.missed)
            run, jumps = _run(loop, None, env)
            self.found.append((loop, Phase(sites, min(max(alone, 0.0), 1.0), run, jumps)))
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


def _run(nest: st.For, around: st.For | None, env: Env) -> tuple[int, bool]:
    """Bytes that a nest of loops loads in a row, at most a page and the least of its tensors, and
    whether it then goes on elsewhere: within the nest or, if given, in the next iteration of the
    loop `around` it.
    """
    inside = [each for each in statements(nest) if isinstance(each, st.For)]
    trips = {each.var: value_of(each.stop, env) for each in inside}
    start = {**env, **{var.name: 0 for var in trips}}
    least, jumps = _PAGE, False
    for load in _loads(nest):
        index, run = load.indices[-1], 1
        strides = {var: shift(index, var, start) for var in trips}
        apart = 1 if around is None else shift(index, around.var, start)
        if apart is None or None in strides.values():
            continue
        for stride, count in sorted((abs(strides[var] or 0), trips[var] or 0) for var in trips):
            # Every so many elements of each line are lines in a row.
            if count and 0 < stride <= max(run, _LINE // load.buffer.dtype.bytes):
                run = max(run, stride * int(count))
        if around is None:
            apart = max((abs(stride or 0) for stride in strides.values()), default=0)
        if abs(apart) > run and (around is not None or apart * load.buffer.dtype.bytes >= _PAGE):
            least, jumps = min(least, run * load.buffer.dtype.bytes), True
    return least, jumps
