"""Tiles of roles side by side to which no copy is under way any more behind a loop of the last one.

Another role starts the copies, one phase of a ring of memory barriers (`schedule/rings`) for each
iteration of a loop. The last role goes round the ring in step: the same iterations, and in each a
wait for that phase. So behind its loop everything has come, and where it has used the tiles for the
last time their memory is free.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tileworkbench.compiler.analysis.dataflow import leaves_early
from tileworkbench.compiler.analysis.effects import owners
from tileworkbench.compiler.analysis.uniformity import Uniformity
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.build import const_int, sub
from tileworkbench.compiler.ir.effects import accesses
from tileworkbench.compiler.ir.expr import Buffer, Expr, Load, Var
from tileworkbench.compiler.ir.rewrite import statements, substitute, walk
from tileworkbench.compiler.ir.simt import (
    BarrierArrive,
    BarrierExpect,
    BarrierInit,
    BarrierSignal,
    BarrierWait,
    Engine,
    Role,
    Start,
)
from tileworkbench.compiler.ir.stmt import For, If, Kernel, Let, Seq, Stmt
from tileworkbench.compiler.schedule.rings import Ring

_Loop = tuple[Expr, Expr, Expr]  # first, last and step
_AtBarrier = BarrierSignal | BarrierArrive | BarrierExpect


@dataclass(frozen=True, slots=True)
class _Place:
    """`stmt` stands right in a loop, whose variable is `var` and whose bounds are `loop`. Bounds
    name no variable that is bound in the role.
    """

    stmt: Stmt
    var: Var
    loop: _Loop

    def goes_round(self, ring: Ring) -> bool:
        """Whether each iteration has its place and its phase of the ring."""
        distance = sub(self.var, self.loop[0])
        match self.stmt:
            case BarrierWait(barrier, parity):
                return barrier == ring.place(distance) and parity == ring.parity(distance)
            case BarrierSignal(barrier, arrivals):
                return barrier == ring.place(distance) and arrivals == ring.arrivals
            case Start(barrier=barrier):
                return barrier == ring.place(distance)
        return False


def settled(roles: Sequence[Stmt], kernel: Kernel, uniformity: Uniformity) -> frozenset[Buffer]:
    """The tiles that roles in front of the last one fill, and for whose copies that one waits."""
    if len(roles) < 2 or not all(isinstance(role, Role) for role in roles):
        return frozenset()
    front = [place for role in roles[:-1] for place in _places(role, uniformity)]
    last = list(_places(roles[-1], None))
    owner = owners(kernel.body)
    fills: dict[Buffer, list[Stmt]] = {}
    others: set[Buffer] = set()
    for role in roles[:-1]:
        for stmt, used in _uses(role):
            buffer = owner.get(used, used)
            if isinstance(stmt, Start) and stmt.engine is Engine.TMA:
                fills.setdefault(buffer, []).append(stmt)
            else:
                others.add(buffer)
    return frozenset(
        tile
        for tile, starts in fills.items()
        if tile not in others and all(_awaited(start, front, last, kernel) for start in starts)
    )


def _awaited(start: Stmt, front: list[_Place], last: list[_Place], kernel: Kernel) -> bool:
    """Whether the last role waits for the copies of `start` in each iteration."""
    if not isinstance(start, Start) or start.barrier is None:
        return False
    ring = Ring(start.barrier.buffer, None)
    here = next((place for place in front if place.stmt is start), None)
    told = [s for s in statements(kernel.body) if _is_told(s, ring.buffer)]
    counts = {
        const_int(stmt.count)
        for stmt in statements(kernel.body)
        if isinstance(stmt, BarrierInit) and stmt.barrier.buffer is ring.buffer
    }
    if here is None or not here.goes_round(ring) or len(told) != 1 or counts != {ring.arrivals}:
        return False
    in_step = [place for place in (*front, *last) if place.loop == here.loop]
    signals = any(each.stmt is told[0] and each.goes_round(ring) for each in in_step)
    return signals and any(
        isinstance(each.stmt, BarrierWait) and each.goes_round(ring)
        for each in in_step
        if each in last
    )


def _is_told(stmt: Stmt, barrier: Buffer) -> bool:
    return isinstance(stmt, _AtBarrier) and stmt.barrier.buffer is barrier


def _uses(stmt: Stmt) -> Iterator[tuple[Stmt, Buffer]]:
    """The shared buffers below `stmt`, and the statement or the start that touches them."""
    below: Iterable[Stmt] = (stmt,)
    if not isinstance(stmt, Start):
        yield from ((stmt, each.buffer) for each in accesses(stmt) if each.buffer.scope == "shared")
        below = (child for child in stmt.children() if isinstance(child, Stmt))
        for child in below:
            yield from _uses(child)
        return
    for inner in statements(stmt):
        yield from (
            (stmt, each.buffer) for each in accesses(inner) if each.buffer.scope == "shared"
        )


def _places(role: Stmt, uniformity: Uniformity | None) -> Iterator[_Place]:
    """What stands right in the loops of a role that are executed once. One thread of those that
    start copies may be alone: with `uniformity`, below conditions that vary.
    """

    def visit(stmt: Stmt, values: Mapping[Var, Expr], loop: For | None) -> Iterator[_Place]:
        match stmt:
            case Role(body=body):
                yield from visit(body, values, loop)
            case Seq(stmts):
                known = dict(values)
                for child in stmts:
                    if isinstance(child, Let):
                        known[child.var] = substitute(child.value, known)
                    else:
                        yield from visit(child, known, loop)
            case If(cond, then, None) if uniformity is not None and uniformity.varies(cond):
                yield from visit(then, values, loop)
            case For(body=body) if loop is None and not leaves_early(body):
                yield from visit(body, values, stmt)
            case BarrierWait() | BarrierSignal() | Start() if loop is not None:
                bounds = (loop.start, loop.stop, loop.step)
                first, end, step = (substitute(each, values) for each in bounds)
                if not any(isinstance(n, Load) for each in (first, end, step) for n in walk(each)):
                    yield _Place(stmt, loop.var, (first, end, step))

    yield from visit(role, {}, None)
