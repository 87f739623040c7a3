"""Tiles that one thread fills and others use: what is handed over in a pipelined loop.

A producer starts the copies of iteration i as soon as the users of the tiles have released what
iteration i - n left there, for tiles in n versions. The users wait until all bytes are there, and
release a version behind the last statement that uses it. Copies whose tiles are used by the same
statements are handed over together, at two rings of memory barriers (`schedule/rings`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tileworkbench.compiler.analysis.dataflow import effects_of
from tileworkbench.compiler.analysis.effects import owners
from tileworkbench.compiler.ir.effects import accesses
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.simt import Engine, Start, TensorLoad, TensorMap, WaitGroup, Wgmma
from tileworkbench.compiler.ir.stmt import For, If, Kernel, Stmt, While, items
from tileworkbench.compiler.ir.tile import Pipelined
from tileworkbench.compiler.schedule.pipelines import Schedule
from tileworkbench.compiler.schedule.rings import Ring, bytes_of, counter, loads_below, new_ring
from tileworkbench.compiler.schedule.versions import in_versions, needed_versions


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
    """What is handed over in a loop. `stmts` are those of the users; `tiles` have versions."""

    handovers: tuple[Handover, ...]
    stmts: tuple[Stmt, ...]
    tiles: Mapping[Buffer, Buffer]

    def end(self, loop: Pipelined) -> list[Stmt]:
        """What everybody does behind the loop."""
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
        if tile not in versions or tile in used:
            raise Unsuitable(f"'{tile.name}' has one version, or is used outside the loop")
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
    if tiles.keys() != versions.keys():
        raise Unsuitable("threads fill some of its tiles ahead")
    return LoopPlan(tuple(handovers), tuple(stmts), tiles)


def _split(loop: Pipelined) -> tuple[list[TensorLoad], list[Stmt]]:
    """The copies that run ahead, and the other statements, in the kernel's order."""
    schedule = Schedule(loop)
    ahead = [item.stmt for item in schedule.items if item.stage < schedule.depth]
    if any(0 < item.stage < schedule.depth for item in schedule.items):
        raise Unsuitable("its statements have more than two stages")
    loads: list[TensorLoad] = []
    for stmt in ahead:
        boxes = loads_below(stmt)
        if not boxes:
            raise Unsuitable("threads do some of its copies")
        if not isinstance(stmt, If) or items(stmt.then) != tuple(boxes):
            raise Unsuitable("some of its copies stand under a condition")
        loads += boxes
    views = owners(loop.body)
    for load in loads:
        if load.dst.buffer in (*views, *views.values()):
            raise Unsuitable(f"it uses a view of '{load.dst.buffer.name}'")
    return loads, [stmt for stmt in items(loop.body) if not any(stmt is each for each in ahead)]


def _use(tile: Buffer, stmts: Sequence[Stmt]) -> tuple[int, int, bool]:
    """The first and the last of `stmts` that use a tile, and whether threads read it."""
    effects = [effects_of(stmt) for stmt in stmts]
    if any(tile in each.writes for each in effects):
        raise Unsuitable(f"threads write to '{tile.name}', too")
    readers = [at for at, each in enumerate(effects) if tile in each.reads]
    if not readers:
        raise Unsuitable(f"nobody reads '{tile.name}'")
    products = [at for at in readers if _is_product(stmts[at])]
    last = readers[-1]
    if last in products:
        waits = (at for at in range(last, len(stmts)) if _waits(stmts[at]))
        last = next(waits, len(stmts) - 1)
    return readers[0], last, products != readers


def _is_product(stmt: Stmt) -> bool:
    return isinstance(stmt, Start) and stmt.engine is Engine.WGMMA


def _waits(stmt: Stmt) -> bool:
    """Whether all products are done behind `stmt`."""
    return isinstance(stmt, WaitGroup) and stmt.engine is Engine.WGMMA and not stmt.pending
