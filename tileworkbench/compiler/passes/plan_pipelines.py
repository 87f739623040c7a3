"""Choose which iteration each statement of a pipelined loop works on.

Copies from global to shared memory that nothing in the loop feeds go first, `num_stages - 1`
iterations ahead of the rest. With all copies in front of the iteration, one wait and one barrier at
its start order both "the data have come" and "the buffer is free again". The user's own `order` and
`stage` are checked against the dependences and kept. A loop with fewer than two stages, or with
nothing to copy ahead, becomes a serial loop, and a note says why.

Before::

    for k in T.Pipelined(32, num_stages=3):
        T.copy(A[0:128, k * 32:k * 32 + 32], A_shared)
        T.gemm(A_shared, B_shared, C_local)

After::

    for k in T.Pipelined(32, num_stages=3, order=(0, 1), stage=(0, 2)):
        T.copy(A[0:128, k * 32:k * 32 + 32], A_shared)
        T.gemm(A_shared, B_shared, C_local)
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import combinations

from tileworkbench.compiler.analysis.access import loads
from tileworkbench.compiler.analysis.dataflow import leaves_early, regions_overlap
from tileworkbench.compiler.analysis.effects import owners
from tileworkbench.compiler.diagnostics import TileValueError
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.expr import Buffer, Region
from tileworkbench.compiler.ir.loops import as_serial
from tileworkbench.compiler.ir.node import Node
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import buffers_of, statements
from tileworkbench.compiler.ir.simt import Peer
from tileworkbench.compiler.ir.stmt import Alloc, Let, Seq, Stmt, items
from tileworkbench.compiler.ir.tile import Copy, Pipelined
from tileworkbench.compiler.passes.optional import optional
from tileworkbench.compiler.passes.serialize_pipelines import serialize_pipelines
from tileworkbench.compiler.schedule.pipelines import Item, schedule_of
from tileworkbench.compiler.schedule.user_schedules import checked_schedule


@optional("overlap: copies wait until they are needed", lambda _: serialize_pipelines)
def plan_pipelines(program: Program) -> Program:
    """Give every pipelined loop an order and a stage per statement."""
    notes: list[str] = []
    views = owners(program.body)
    viewed = {buffer for pair in views.items() for buffer in pair}

    def change(stmt: Stmt, outside: set[Buffer]) -> Stmt:
        """`outside`: the buffers used by what surrounds `stmt`."""
        if isinstance(stmt, Pipelined):
            stmt = replace(stmt, body=below(stmt.body, outside))
            return _plan(stmt, outside | viewed, views, program, notes)
        return stmt.map_children(
            lambda child: below(child, outside) if isinstance(child, Stmt) else child
        )

    def below(stmt: Stmt, outside: set[Buffer]) -> Stmt:
        if not isinstance(stmt, Seq):
            return change(stmt, outside)
        used = [_used(child) for child in stmt.stmts]
        users = Counter(buffer for buffers in used for buffer in buffers)
        children = []
        for own, child in zip(used, stmt.stmts, strict=True):
            others = {buffer for buffer, count in users.items() if count > (buffer in own)}
            children.append(change(child, outside | others))
        if all(new is old for new, old in zip(children, stmt.stmts, strict=True)):
            return stmt
        return Seq(tuple(children), site=stmt.site)

    body = below(program.body, set())
    if body is program.body:
        return program
    return replace(program, body=body, notes=(*program.notes, *notes))


def _used(stmt: Stmt) -> set[Buffer]:
    """The buffers some statement below `stmt` reads or writes. Allocating a buffer does not count
    as a use, nor do the uses of a pipelined loop of a tile that each iteration fills before it
    reads it.
    """
    if isinstance(stmt, Alloc):
        return set()
    buffers = {b for child in stmt.children() for b in _used_by(child)}
    return buffers - _filled_in(stmt) if isinstance(stmt, Pipelined) else buffers


def _filled_in(loop: Pipelined) -> set[Buffer]:
    """The shared tiles that copies fill in each iteration before it reads them."""
    schedule = schedule_of(replace(loop, order=(), stage=()), {})
    copies = [item.stmt for item in schedule if isinstance(item.stmt, Copy)]
    apart = not any(regions_overlap(a.dst, b.dst) for a, b in combinations(copies, 2))
    return {b for b in buffers_of(loop.body) if apart and _is_filled_first(b, schedule)}


def _used_by(child: Node) -> set[Buffer]:
    return _used(child) if isinstance(child, Stmt) else set(buffers_of(child))


def _plan(
    loop: Pipelined,
    outside: set[Buffer],
    views: dict[Buffer, Buffer],
    program: Program,
    notes: list[str],
) -> Stmt:
    """The loop with a schedule, or a serial loop where nothing can run ahead, which a note says.

    Buffers of `outside` are used outside the loop too, so they have only one version. `views` maps
    each view to the buffer whose memory it is.
    """
    if any(isinstance(stmt, Peer) for stmt in statements(loop.body)):
        notes.append(f"loop '{loop.var.name}' is not pipelined: it uses memory of another block")
        return as_serial(loop)
    if loop.order or loop.stage:
        return checked_schedule(loop, views, outside, program)
    schedule = schedule_of(loop, views)
    reason = _obstacle(loop, schedule, views)
    ahead = [reason is None and _is_ahead(item, schedule, outside) for item in schedule]
    if reason is None and not any(ahead):
        reason = "no copy from global to shared memory can run ahead"
    if reason is not None:
        notes.append(f"loop '{loop.var.name}' is not pipelined: {reason}")
        return as_serial(loop)
    _check_overlap([item for item, first in zip(schedule, ahead, strict=True) if first], program)
    last = loop.num_stages - 1
    order = [0] * len(schedule)
    ranked = sorted(range(len(schedule)), key=lambda at: (not ahead[at], at))
    for place, at in enumerate(ranked):
        order[at] = place
    stage = tuple(0 if first else last for first in ahead)
    return replace(loop, order=tuple(order), stage=stage)


def _obstacle(loop: Pipelined, schedule: list[Item], views: dict[Buffer, Buffer]) -> str | None:
    if loop.num_stages < 2:
        return "it has fewer than two stages"
    written = {buffer for item in schedule for buffer in item.effects.writes}
    for stmt in items(loop.body):
        if isinstance(stmt, Let):
            read_from = (load.buffer for load in loads(stmt))
            read = next((b for b in read_from if views.get(b, b) in written or not b.shape), None)
            if read is not None:
                return f"'{stmt.var.name}' is read from '{read.name}', which the loop writes"
    if leaves_early(loop.body):
        return "it is left early"
    return None


def _is_ahead(item: Item, schedule: list[Item], outside: set[Buffer]) -> bool:
    """Whether the copy may run iterations ahead of the rest of the loop."""
    stmt = item.stmt
    if not isinstance(stmt, Copy):
        return False
    src, dst = stmt.src.buffer, stmt.dst.buffer  # `dst` is no view: that would be outside
    if src.scope != "global" or dst in outside:
        return False
    written = {buffer for other in schedule if other is not item for buffer in other.effects.writes}
    read = set(item.effects.reads) - {dst}
    if read & (written - {dst}) or dst in item.effects.reads:
        return False
    first_use = _first_use(dst, schedule)
    return schedule.index(item) < first_use < len(schedule) and _is_filled_first(dst, schedule)


def _first_use(tile: Buffer, schedule: list[Item]) -> int:
    return next(
        (at for at, item in enumerate(schedule) if tile in item.effects.reads), len(schedule)
    )


def _is_filled_first(tile: Buffer, schedule: list[Item]) -> bool:
    """Whether copies fill a shared tile before the iteration reads it."""
    before = [item.stmt for item in schedule[: _first_use(tile, schedule)]]
    return tile.scope == "shared" and _covered(tile, before)


def _covered(dst: Buffer, before: list[Stmt]) -> bool:
    """Whether the copies before the first use of `dst` write all of it in every iteration."""
    total = _volume(Region(dst, dst.shape, dst.shape))
    filled = 0
    for stmt in before:
        if isinstance(stmt, Copy) and stmt.dst.buffer is dst:
            volume = _volume(stmt.dst)
            if volume is None:
                return False
            filled += volume
    return total is not None and filled >= total


def _volume(region: Region) -> int | None:
    volume = 1
    for extent in region.extents:
        number = const_int(extent)
        if number is None:
            return None
        volume *= number
    return volume


def _check_overlap(copies: list[Item], program: Program) -> None:
    """Asynchronous copies land in no order: two of one iteration must not write one element."""
    for first, second in combinations(copies, 2):
        a, b = first.stmt, second.stmt
        if isinstance(a, Copy) and isinstance(b, Copy) and regions_overlap(a.dst, b.dst):
            raise TileValueError(
                f"two copies of one iteration write the same elements of '{a.dst.buffer.name}'",
                program.span(b.site),
                hint="give them disjoint regions, or use T.serial for this loop",
            )
