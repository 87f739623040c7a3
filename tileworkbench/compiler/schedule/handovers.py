"""Tiles that one thread fills and others use: what is handed over in a pipelined loop.

A producer starts the copies of iteration i as soon as the users of the tiles have released what
iteration i - n left there, for tiles in n versions. The users wait until all bytes are there, and
release a version behind the last statement that uses it. Copies whose tiles are used by the same
statements are handed over together, at two rings of memory barriers (`schedule/rings`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import replace

from tileworkbench.compiler.analysis.dataflow import effects_of
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.effects import accesses
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.simt import (
    CommitGroup,
    Engine,
    Fence,
    Start,
    TensorLoad,
    TensorMap,
    WaitGroup,
    Wgmma,
)
from tileworkbench.compiler.ir.stmt import For, If, Kernel, Stmt, While, declares, items
from tileworkbench.compiler.ir.tile import Pipelined
from tileworkbench.compiler.schedule.overlap import Apart, Overlap, overlap_of
from tileworkbench.compiler.schedule.pipelines import Schedule
from tileworkbench.compiler.schedule.rings import Ring, bytes_of, counter, loads_below, new_ring
from tileworkbench.compiler.schedule.versions import in_versions, needed_versions, version_count


class Unsuitable(Exception):
    """Why a loop or a kernel has no producer, as the end of a sentence."""


@dataclass(frozen=True, slots=True)
class Handover:
    """`loads`, of `bytes_` in all, of tiles that the statements of a loop from the `first` to the
    `last` use. Their versions are `filled` and `emptied` in turn; `by_threads`: some of the users
    are no products of warpgroups.
    """

    loads: tuple[TensorLoad, ...]
    bytes_: int
    first: int
    last: int
    filled: Ring
    emptied: Ring
    by_threads: bool


@dataclass(frozen=True, slots=True)
class LoopPlan:
    """What is handed over in a loop. `stmts` are those of the users; `tiles` have versions.
    `overlap` says how the last product runs beside the next iteration; where it cannot, `apart` is
    the reason. The warpgroups of the users start their products in `turn`, where there is more than
    one.
    """

    handovers: tuple[Handover, ...]
    stmts: tuple[Stmt, ...]
    tiles: Mapping[Buffer, Buffer]
    overlap: Overlap | None = None
    apart: str = ""
    turn: Ring | None = None

    @property
    def batches_follow(self) -> bool:
        """Whether the users do nothing but multiply: each batch of products is started while the
        one before is under way.
        """
        work = [stmt for stmt in self.stmts if not declares(stmt)]
        if len(work) != 3 or not (_is_product(work[0]) and waits(work[2])):
            return False
        return all(s.a_form for s in statements(work[0]) if isinstance(s, Wgmma))

    @property
    def counters(self) -> list[Buffer]:
        """What counts the iterations of earlier executions."""
        return [each.filled.done for each in self.handovers if each.filled.done is not None]

    def end(self, loop: Pipelined) -> list[Stmt]:
        """What each thread does behind the loop."""
        return [stmt for each in self.handovers for stmt in each.filled.counted(loop)]


def products(stmt: Stmt, repeated: bool = False) -> Iterator[tuple[Pipelined, bool]]:
    """The pipelined loops with products of warpgroups, and whether they may be executed again."""
    if isinstance(stmt, Pipelined):
        if any(isinstance(inner, Wgmma) for inner in statements(stmt)):
            yield stmt, repeated
        return
    for child in stmt.children():
        if isinstance(child, Stmt):
            yield from products(child, repeated or isinstance(stmt, For | While))


def plan_of(
    loop: Pipelined,
    kernel: Kernel,
    program: Program,
    maps: Mapping[Buffer, TensorMap],
    repeated: bool,
    warps: int,
    fresh: Callable[[str], str],
) -> LoopPlan:
    """How the tiles of a loop are handed over to the `warps` warps of its kernel. Raises
    `Unsuitable`.
    """
    loads, stmts = _split(loop)
    versions = needed_versions(loop, program)
    inside = set(map(id, statements(loop)))
    others = [stmt for stmt in statements(kernel.body) if id(stmt) not in inside]
    used = {access.buffer for stmt in others for access in accesses(stmt)}
    groups: dict[tuple[int, int, bool], list[TensorLoad]] = {}
    for load in loads:
        tile = load.dst.buffer
        if tile in used:
            raise Unsuitable(f"another loop uses '{tile.name}', too")
        groups.setdefault(_use(tile, stmts), []).append(load)
    handovers = []
    for (first, last, by_threads), group in groups.items():
        number = min(versions[load.dst.buffer] for load in group)
        done = counter(fresh("done")) if repeated else None
        filled = new_ring(fresh("filled"), number, done)
        emptied = new_ring(fresh("emptied"), number, done, warps)
        bytes_ = bytes_of(group, maps)
        handovers.append(Handover(tuple(group), bytes_, first, last, filled, emptied, by_threads))
    tiles = {
        load.dst.buffer: in_versions(load.dst.buffer, each.filled.number)
        for each in handovers
        for load in each.loads
    }
    plan = LoopPlan(tuple(handovers), tuple(stmts), tiles)
    try:
        numbers = {tile: version_count(made) for tile, made in tiles.items()}
        return replace(plan, overlap=overlap_of(stmts, numbers))
    except Apart as reason:
        return replace(plan, apart=str(reason))


def _split(loop: Pipelined) -> tuple[list[TensorLoad], list[Stmt]]:
    """The copies that run ahead, and the other statements, in the kernel's order."""
    schedule = Schedule(loop)
    ahead = [item.stmt for item in schedule.items if item.stage < schedule.depth]
    if any(0 < item.stage < schedule.depth for item in schedule.items):
        raise Unsuitable("its statements have more than two stages")
    loads: list[TensorLoad] = []
    for stmt in ahead:
        boxes = loads_below(stmt)
        if isinstance(stmt, Fence):
            raise Unsuitable("threads write to its tiles, too")
        if not isinstance(stmt, If) or items(stmt.then) != tuple(boxes):
            raise Unsuitable("threads do some of its copies")
        loads += boxes
    kept = [stmt for stmt in items(loop.body) if not any(stmt is each for each in ahead)]
    copying = {id(item.stmt) for item in schedule.items if item.asynchronous}
    return loads, list(_with_waits(kept, copying))


def _with_waits(stmts: Sequence[Stmt], copying: Set[int]) -> Iterator[Stmt]:
    """`stmts` with waits for the copies that the users start themselves, in front of the first
    statement that reads them.
    """
    under_way: set[Buffer] = set()
    for stmt in stmts:
        if under_way & effects_of(stmt).reads:
            yield WaitGroup(0, site=stmt.site)
            under_way.clear()
        yield stmt
        if id(stmt) in copying:
            yield CommitGroup(site=stmt.site)
            under_way |= effects_of(stmt).writes
    if under_way:
        yield WaitGroup(0, site=stmts[-1].site)


def _use(tile: Buffer, stmts: Sequence[Stmt]) -> tuple[int, int, bool]:
    """The first and the last of `stmts` that use a tile, and whether threads read it."""
    readers = [at for at, stmt in enumerate(stmts) if tile in effects_of(stmt).reads]
    if not readers:
        raise Unsuitable(f"nobody reads '{tile.name}'")
    ends = [_end(at, stmts) for at in readers]
    return readers[0], max(ends), not all(_is_product(stmts[at]) for at in readers)


def _end(at: int, stmts: Sequence[Stmt]) -> int:
    """The statement behind which `stmts[at]` is done."""
    if not _is_product(stmts[at]):
        return at
    ends = (later for later in range(at, len(stmts)) if waits(stmts[later]))
    return next(ends, len(stmts) - 1)


def _is_product(stmt: Stmt) -> bool:
    return isinstance(stmt, Start) and stmt.engine is Engine.WGMMA


def waits(stmt: Stmt) -> bool:
    """Whether all products are done behind `stmt`."""
    return isinstance(stmt, WaitGroup) and stmt.engine is Engine.WGMMA and not stmt.pending
